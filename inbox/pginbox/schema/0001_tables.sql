-- The tables of pginbox, and the functions that all its steps share.
--
-- Times are microseconds of the Unix epoch. Steps are functions because each of
-- them is several statements that have to see what was committed meanwhile, in
-- one round trip; and because their plans must not depend on how large a table
-- was when a connection first planned them.
--
-- An acceptance inserts one row for a record and touches nothing else: no row of
-- a key, and no lock that others share. How a key is held stands in inbox_keys,
-- which claims and settlements alone write. Whoever settles holds the lock of the
-- key's row, and locks keys in ascending order.
--
-- Most records are done at the first attempt. That is noted beside them, in
-- inbox_done: to write the record itself again would copy its body, and enter it
-- into every index once more. So what is pending has state 1 and nothing in
-- inbox_done. A record that has failed was written again anyway, and is done in its own
-- row.

CREATE SEQUENCE {schema}.inbox_seq;  -- CACHE 1: inbox_claim relies on it

CREATE TABLE {schema}.inbox_records (
    seq           bigint   PRIMARY KEY,
    received      bigint   NOT NULL,
    since         bigint   NOT NULL,             -- received, or when it was replayed
    occurred      bigint,
    next          bigint,                        -- when a pending one that failed is due
    settled       bigint,
    expires       bigint,
    erases        bigint,
    deleted       bigint,
    ended_by      bigint,                        -- the token under which it ended
    attempts      integer  NOT NULL DEFAULT 0,   -- of a pending one: without those that its key counts
    layout        smallint NOT NULL DEFAULT 1,   -- of this row
    state         smallint NOT NULL,             -- 1 pending, or see inbox_done, 2 done, 3 dead, 4 quarantined, 5 conflict, 6 unknown
    rank          smallint NOT NULL,             -- 0 the first of its event, to 15 its other streams, from 16 conflicts
    form          smallint NOT NULL DEFAULT 0,
    occurred_ns   smallint NOT NULL DEFAULT 0,   -- what occurred leaves out
    parked        boolean  NOT NULL DEFAULT false,  -- pending, and has failed: found through its key
    fingerprinted boolean  NOT NULL,
    unknown       boolean  NOT NULL,
    digest        bytea    NOT NULL,
    id            text COLLATE "C" NOT NULL,
    stream        text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    provider      text     NOT NULL,
    type          text     NOT NULL,
    version       text     NOT NULL,
    account       text     NOT NULL,             -- WABA
    phone         text     NOT NULL,             -- of the business
    message_id    text COLLATE "C" NOT NULL,
    external_id   text COLLATE "C" NOT NULL,
    trace         text     NOT NULL,
    last_error    text     NOT NULL DEFAULT '',
    first_digest  bytea,                         -- of the event's first arrival, if that is not this record
    changed_by    bytea,                         -- nonce of the last change
    failures      bytea,
    action_kinds  smallint[],
    action_times  bigint[],
    action_actors text[],
    action_notes  text[],
    context       bytea,
    payload       bytea,
    UNIQUE (id, rank)
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
    vacuum_truncate = off                        -- truncating locks every step out
);

-- What waits, by key, and what inbox_done has. Nothing looks for work here: see
-- inbox_claim. Whoever reads it begins where the key's pending records begin.
CREATE INDEX inbox_records_work ON {schema}.inbox_records (stream, key, seq) WHERE state = 1;
CREATE INDEX inbox_records_parked ON {schema}.inbox_records (seq) WHERE parked;
-- What ended in its own row: the few that a person looks at, and what took several attempts.
CREATE INDEX inbox_records_apart ON {schema}.inbox_records (state, seq) WHERE state > 1;
CREATE INDEX inbox_records_message ON {schema}.inbox_records (message_id) WHERE message_id <> '';
CREATE INDEX inbox_records_external ON {schema}.inbox_records (external_id) WHERE external_id <> '';
CREATE INDEX inbox_records_outside ON {schema}.inbox_records (seq) WHERE form & 2 <> 0;

-- The records that were done in one go, with what an end writes. A record has a row
-- here only while its state is 1.
CREATE TABLE {schema}.inbox_done (
    seq      bigint   PRIMARY KEY,
    ended_by bigint   NOT NULL,
    settled  bigint   NOT NULL,
    expires  bigint   NOT NULL,
    erases   bigint   NOT NULL,
    attempts integer  NOT NULL,
    layout   smallint NOT NULL DEFAULT 1
) WITH (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
    vacuum_truncate = off
);

-- Where the front of a stream is: a pending record with a number below has a key that
-- is due, and is found through it. No row: 0.
CREATE TABLE {schema}.inbox_fronts (
    floor  bigint   NOT NULL,
    layout smallint NOT NULL DEFAULT 1,
    stream text COLLATE "C" PRIMARY KEY
) WITH (vacuum_truncate = off);

-- A number for the time since the server last crashed or was promoted: what is unlogged
-- is empty then.
CREATE UNLOGGED TABLE {schema}.inbox_runs (
    run bigint  NOT NULL,
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- A key has a row from its first claim on. It is claimed while lease_until is
-- set, lapsed or not. due is when it can be claimed, by itself or because its
-- lease lapses; it is NULL only if it has nothing pending but records that are
-- not parked.
CREATE TABLE {schema}.inbox_keys (
    token       bigint   NOT NULL,
    lease_until bigint,
    due         bigint,
    begun       bigint,                          -- seq of the record that was last begun under the token
    low         bigint   NOT NULL,               -- a pending record with a number below is at the front
    expires     bigint,                          -- it may be forgotten then if it has nothing pending
    tries       integer  NOT NULL DEFAULT 0,     -- attempts of the record in begun
    layout      smallint NOT NULL DEFAULT 1,
    stream      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    nonce       bytea    NOT NULL,               -- of the ask that claimed it
    PRIMARY KEY (key, stream)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

CREATE INDEX inbox_keys_due ON {schema}.inbox_keys (stream, due) WHERE due IS NOT NULL;

-- The asks that took keys, so that a repeated one is known: keys have no index on
-- the nonce, which would be written twice for each.
CREATE TABLE {schema}.inbox_asks (
    until  bigint   NOT NULL,                    -- it need not be known any longer; leases may go on
    layout smallint NOT NULL DEFAULT 1,
    nonce  bytea    PRIMARY KEY
);

CREATE INDEX inbox_asks_until ON {schema}.inbox_asks (until);

-- inbox_row is a record as it is read, with what a claim says of its key.
CREATE TYPE {schema}.inbox_row AS (
    what          smallint,  -- 1 a record of a claimed key, 2 a claimed key without any, 3 the end of a claim, 4 a record of a list
    at_token      bigint,    -- 3: the store's time
    remains       bigint,    -- of the lease; 3: until the next key can be claimed
    more          boolean,   -- 3: the keys were looked through for the next one
    low           bigint,    -- 3: the first record that a claim has to look at
    mark          bigint,    -- 3: numbers up to this were given out,
    oldest        bigint,    -- 3: transactions below this one have ended
    newest        bigint,    -- 3: by transactions below this one; NULL: not known
    seq           bigint,
    stream        text,
    key           text,
    id            text,
    state         smallint,
    attempts      integer,
    form          smallint,
    received      bigint,
    age           bigint,
    occurred      bigint,
    occurred_ns   smallint,
    next          bigint,
    settled       bigint,
    expires       bigint,
    erases        bigint,
    deleted       bigint,
    fingerprinted boolean,
    unknown       boolean,
    provider      text,
    type          text,
    version       text,
    account       text,
    phone         text,
    message_id    text,
    external_id   text,
    trace         text,
    last_error    text,
    failures      bytea,
    action_kinds  smallint[],
    action_times  bigint[],
    action_actors text[],
    action_notes  text[],
    context       bytea,
    payload       bytea
);

-- inbox_now is the store's time.
CREATE FUNCTION {schema}.inbox_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- inbox_check_isolation refuses a transaction that cannot see what others have
-- committed since it began: it would settle a record that was forgotten. Steps call it
-- where a look at the setting did not do, which is cheaper.
CREATE FUNCTION {schema}.inbox_check_isolation() RETURNS void
LANGUAGE plpgsql STABLE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and inbox needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$pawl$;
