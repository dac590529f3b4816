-- The tables of pgdlq, and the functions that all its steps share.
--
-- Times are microseconds of the Unix epoch. Steps are functions because each of
-- them is several statements that have to see what was committed meanwhile, in
-- one round trip; and because their plans must not depend on how large a table
-- was when a connection first planned them.
--
-- Each way to look something up is served by one index alone, so that a plan cannot be
-- wrong, also one that was made while the tables were empty: what tells most stands
-- first in an index, and a stream that must not lead to another index is written
-- stream || ''.
--
-- Whoever changes a letter or a lane locks the letter first, then the lane, then
-- the letter that becomes the lane's first.

CREATE SEQUENCE {schema}.dlq_seq;

CREATE TABLE {schema}.dlq_letters (
    seq         bigint   NOT NULL,
    ended       bigint   NOT NULL DEFAULT 0,     -- 0 while it is unresolved, then seq: see the unique indexes
    rank        bigint   NOT NULL,               -- in its lane while it is unresolved: 0 the first, else seq
    due         bigint,                          -- of the first of a lane that waits: when the lane can be claimed
    next        bigint,                          -- when it is due, if it waits
    put         bigint   NOT NULL,
    settled     bigint,
    expires     bigint,
    settled_by  bigint   NOT NULL DEFAULT 0,     -- token of its last settlement; counts if it is not begun
    tries       integer  NOT NULL DEFAULT 0,     -- while it is begun, dlq_lanes.tries counts instead
    others      integer  NOT NULL DEFAULT 0,
    layout      smallint NOT NULL DEFAULT 1,     -- of this row
    state       smallint NOT NULL DEFAULT 1,     -- 1 waiting, 2 review, 3 resolved, 4 discarded, 5 rejected
    put_as      smallint NOT NULL DEFAULT 1,     -- the answer to the last Put
    settled_as  smallint NOT NULL DEFAULT 0,
    aside       boolean  NOT NULL DEFAULT false,
    counted     boolean  NOT NULL DEFAULT false, -- its job waits for what becomes of it; counts while it is unresolved
    digest      bytea    NOT NULL,
    put_by      bytea    NOT NULL,               -- nonce of the last Put
    stream      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    lane        text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL DEFAULT '',
    job         text COLLATE "C" NOT NULL DEFAULT '',
    log_times   bigint[],                        -- the first failure and the last ones
    log_prints  text[],
    log_details bytea[],
    fold_prints text[],                          -- those in between
    fold_counts integer[],
    fold_firsts bigint[],
    fold_lasts  bigint[],
    original    bytea,
    body        bytea    NOT NULL,
    PRIMARY KEY (stream, seq),
    UNIQUE (id, ended, stream)                   -- one unresolved letter of an ID
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
    vacuum_truncate = off                        -- truncating locks every step out
);

-- One first letter of a lane, and behind it the others in order.
CREATE UNIQUE INDEX dlq_letters_lane ON {schema}.dlq_letters (lane, rank, stream) WHERE state <= 2;
CREATE INDEX dlq_letters_due ON {schema}.dlq_letters (stream, due, seq) WHERE due IS NOT NULL;
CREATE INDEX dlq_letters_state ON {schema}.dlq_letters (state, stream, seq);
CREATE INDEX dlq_letters_print ON {schema}.dlq_letters (fingerprint, stream, seq) WHERE fingerprint <> '';
CREATE INDEX dlq_letters_key ON {schema}.dlq_letters (key, stream, seq) WHERE key <> '';
CREATE INDEX dlq_letters_job ON {schema}.dlq_letters (job, stream, seq) WHERE job <> '';
CREATE INDEX dlq_letters_expires ON {schema}.dlq_letters (expires) WHERE expires IS NOT NULL;

-- A lane has a row from its first claim on. It is claimed while until is set,
-- lapsed or not. begun is the letter that is being tried under the token, which is
-- the lane's first.
CREATE TABLE {schema}.dlq_lanes (
    token   bigint   NOT NULL,
    until   bigint,
    begun   bigint,
    expires bigint   NOT NULL DEFAULT 0,         -- it may be forgotten then if it is empty and nobody holds it
    tries   integer  NOT NULL DEFAULT 0,         -- of the letter in begun
    layout  smallint NOT NULL DEFAULT 1,
    stream  text COLLATE "C" NOT NULL,
    lane    text COLLATE "C" NOT NULL,
    nonce   bytea    NOT NULL,                   -- of the ask that claimed it
    PRIMARY KEY (lane, stream)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

CREATE INDEX dlq_lanes_until ON {schema}.dlq_lanes (stream, until) WHERE until IS NOT NULL;
CREATE INDEX dlq_lanes_nonce ON {schema}.dlq_lanes (nonce) WHERE until IS NOT NULL;

CREATE TABLE {schema}.dlq_entries (
    seq     bigint   NOT NULL,
    at      bigint   NOT NULL,
    expires bigint   NOT NULL,
    letter  bigint   NOT NULL,
    layout  smallint NOT NULL DEFAULT 1,
    stream  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    job     text COLLATE "C" NOT NULL,
    verb    text     NOT NULL,
    actor   text     NOT NULL,
    reason  text     NOT NULL,
    nonce   bytea    NOT NULL,                   -- of the change
    before  bytea,
    after   bytea,
    PRIMARY KEY (stream, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, vacuum_truncate = off);

-- A change that is sent again is found among the entries of its ID, by the nonce. Changes
-- of a stream take turns, so nothing has to be unique.
CREATE INDEX dlq_entries_id ON {schema}.dlq_entries (id, stream, seq) WHERE id <> '';
CREATE INDEX dlq_entries_nonce ON {schema}.dlq_entries (nonce, stream) WHERE id = '';
CREATE INDEX dlq_entries_job ON {schema}.dlq_entries (job, stream, seq) WHERE job <> '';
CREATE INDEX dlq_entries_expires ON {schema}.dlq_entries (expires);

CREATE TABLE {schema}.dlq_jobs (
    version bigint   NOT NULL,
    created bigint   NOT NULL,
    updated bigint   NOT NULL,
    expires bigint   NOT NULL,                   -- counts once it has ended
    layout  smallint NOT NULL DEFAULT 1,
    ended   boolean  NOT NULL,
    stream  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    nonce   bytea    NOT NULL,
    data    bytea,
    PRIMARY KEY (stream, id)
);

CREATE TABLE {schema}.dlq_alarms (
    until  bigint   NOT NULL,                    -- the end of its window
    layout smallint NOT NULL DEFAULT 1,
    stream text COLLATE "C" NOT NULL,
    print  text COLLATE "C" NOT NULL,
    nonce  bytea    NOT NULL,
    PRIMARY KEY (stream, print)
);

CREATE INDEX dlq_alarms_until ON {schema}.dlq_alarms (until);

-- dlq_now is the store's time.
CREATE FUNCTION {schema}.dlq_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- dlq_check_isolation refuses a transaction that cannot see what others have
-- committed since it began: it would settle a letter that was forgotten.
CREATE FUNCTION {schema}.dlq_check_isolation() RETURNS void
LANGUAGE plpgsql STABLE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and dlq needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$pawl$;

-- dlq_lane is the lane of a letter.
CREATE FUNCTION {schema}.dlq_lane(p_id text, p_key text, p_aside boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS
$pawl$ SELECT CASE WHEN p_key = '' OR p_aside THEN 'i' || p_id ELSE 'k' || p_key END $pawl$;
