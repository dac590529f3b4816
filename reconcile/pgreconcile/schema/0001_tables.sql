-- The table of operations, and the functions that all steps of pgreconcile share.
--
-- Times are microseconds of the Unix epoch; NULL is never. Numbers of states, verbs and
-- grants are those of package reconcile. Steps are functions because each of them is
-- several statements that have to see what was committed meanwhile, in one round trip;
-- and because their plans must not depend on how large a table was when a connection
-- first planned them.
--
-- Whoever changes several operations locks them in ascending order of their keys.

CREATE TABLE {schema}.reconcile_ops (
    token       bigint   NOT NULL,
    created     bigint   NOT NULL,
    first       bigint,
    sent        bigint,
    fenced      bigint,
    due         bigint,
    until       bigint,                          -- of the lease
    expires     bigint,
    attempts    integer  NOT NULL DEFAULT 1,
    looks       integer  NOT NULL DEFAULT 0,
    dropped     integer  NOT NULL DEFAULT 0,     -- from the log
    layout      smallint NOT NULL DEFAULT 1,     -- of this row
    state       smallint NOT NULL DEFAULT 1,     -- 1 started, 2 accepted, 3 confirmed, 4 failed, 5 unknown
    granted     smallint NOT NULL DEFAULT 3,     -- by the last grant: 3 send, 4 look; 1 after a decision
    ended_by    smallint NOT NULL DEFAULT 0,     -- the verb that ended the last grant; 0: none did
    said        smallint NOT NULL DEFAULT 0,     -- the answer to the last receipt or decision
    again       boolean  NOT NULL DEFAULT false,
    outside     boolean  NOT NULL DEFAULT false, -- a receipt ended it under the token that it has
    nonce       bytea    NOT NULL,               -- of the last grant
    said_to     bytea,                           -- nonce of the last receipt or decision
    fingerprint bytea,
    kind        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    account     text COLLATE "C" NOT NULL,
    review      text     NOT NULL DEFAULT '',
    log         text[]   NOT NULL,               -- see reconcile_line
    payload     bytea,
    result      bytea,
    PRIMARY KEY (kind, key)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
    vacuum_truncate = off                        -- truncating locks every step out
);

-- What ends leaves these two, and never comes back as a rule; what is new enters them.
CREATE INDEX reconcile_ops_due ON {schema}.reconcile_ops (kind, due) WHERE due IS NOT NULL;
CREATE INDEX reconcile_ops_open ON {schema}.reconcile_ops (kind, account, created)
    WHERE state NOT IN (3, 4) OR review <> '' OR due IS NOT NULL;
CREATE INDEX reconcile_ops_review ON {schema}.reconcile_ops (kind, key) WHERE review <> '';
CREATE INDEX reconcile_ops_looks ON {schema}.reconcile_ops (nonce) WHERE granted = 4 AND until IS NOT NULL;

-- reconcile_now is the store's time.
CREATE FUNCTION {schema}.reconcile_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- reconcile_check_isolation refuses a transaction that cannot see what others have
-- committed since it began: it would send what another has sent.
CREATE FUNCTION {schema}.reconcile_check_isolation() RETURNS void
LANGUAGE plpgsql STABLE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and reconcile needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$pawl$;

-- reconcile_line is a transition as it stands in the log: when, verb, state, token, the
-- bytes of who says so, who says so and why. The casts let the planner take it apart.
CREATE FUNCTION {schema}.reconcile_line(p_now bigint, p_verb integer, p_state integer, p_token bigint, p_by text, p_note text)
RETURNS text LANGUAGE sql IMMUTABLE AS
$pawl$
    SELECT p_now::text || ' ' || p_verb::text || ' ' || p_state::text || ' ' || p_token::text || ' ' || octet_length(p_by)::text || ' ' || p_by || p_note
$pawl$;

-- reconcile_log adds a transition to an operation. The first four and the last 28 are kept.
CREATE FUNCTION {schema}.reconcile_log(r {schema}.reconcile_ops, p_now bigint, p_verb integer, p_by text, p_note text)
RETURNS {schema}.reconcile_ops LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    IF cardinality(r.log) >= 32 THEN
        r.log := r.log[1:4] || r.log[6:];
        r.dropped := r.dropped + 1;
    END IF;
    r.log := r.log || {schema}.reconcile_line(p_now, p_verb, r.state, r.token, p_by, p_note);
    RETURN r;
END
$pawl$;

-- reconcile_save writes what steps change of an operation. A result that is NULL leaves
-- the one before.
CREATE FUNCTION {schema}.reconcile_save(r {schema}.reconcile_ops, p_result bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    UPDATE {schema}.reconcile_ops AS t SET
        token = r.token, first = r.first, sent = r.sent, fenced = r.fenced, due = r.due, until = r.until, expires = r.expires,
        attempts = r.attempts, looks = r.looks, dropped = r.dropped, state = r.state, granted = r.granted, ended_by = r.ended_by,
        said = r.said, again = r.again, outside = r.outside, nonce = r.nonce, said_to = r.said_to, review = r.review, log = r.log,
        result = CASE WHEN p_result IS NULL THEN t.result ELSE p_result END
    WHERE t.kind = r.kind AND t.key = r.key;
END
$pawl$;

-- reconcile_expired says that an operation may be forgotten.
CREATE FUNCTION {schema}.reconcile_expired(p_now bigint, p_expires bigint, p_review text, p_due bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS
$pawl$ SELECT p_expires IS NOT NULL AND p_expires <= p_now AND p_review = '' AND p_due IS NULL $pawl$;

-- An operation as it is answered: n is the item, or 1, and 0 for what is said of the
-- whole step.
CREATE TYPE {schema}.reconcile_row AS (
    n integer, answer smallint, now bigint, token bigint, created bigint, first bigint, sent bigint, fenced bigint, due bigint,
    until bigint, expires bigint, attempts integer, looks integer, dropped integer, state smallint, again boolean,
    key text, account text, review text, fingerprint bytea, log text[], payload bytea, result bytea
);

CREATE FUNCTION {schema}.reconcile_entry(p_n integer, p_answer integer, p_now bigint, r {schema}.reconcile_ops)
RETURNS {schema}.reconcile_row LANGUAGE sql IMMUTABLE AS
$pawl$
    SELECT ROW(p_n, p_answer::smallint, p_now, r.token, r.created, r.first, r.sent, r.fenced, r.due, r.until, r.expires, r.attempts,
        r.looks, r.dropped, r.state, r.again, r.key, r.account, r.review, r.fingerprint, r.log, r.payload, r.result)::{schema}.reconcile_row
$pawl$;
