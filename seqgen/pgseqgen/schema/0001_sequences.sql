-- The sequences of pgseqgen: a row for each key, and the voids. The steps of
-- seqgen.Store are functions, because each is several statements in one round trip,
-- and because their plans must not depend on how large a table was when a
-- connection first planned them.
--
-- Whoever changes a key, or its voids, holds the lock of its row. Steps lock keys
-- in ascending order. Times are microseconds of the Unix epoch.

CREATE TABLE {schema}.seqgen_keys (
    layout  smallint NOT NULL DEFAULT 1,     -- of this row
    mode    smallint NOT NULL DEFAULT 0,     -- 0 not set, 1 single, 2 block, 3 gapless
    owned   boolean  NOT NULL DEFAULT false,
    epoch   bigint   NOT NULL,
    last    bigint   NOT NULL DEFAULT 0,
    token   bigint   NOT NULL DEFAULT 0,
    used    bigint   NOT NULL DEFAULT 0,
    scope   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    log     bytea    NOT NULL DEFAULT '',    -- up to 32 entries of 48 bytes, the newest last: a nonce of 16, and as
                                             -- eight bytes each epoch, lo, hi, token; all zero: spent
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

CREATE TABLE {schema}.seqgen_voids (
    layout  smallint NOT NULL DEFAULT 1,
    kind    smallint NOT NULL,               -- 1 certain, 2 orphaned
    reason  smallint NOT NULL,
    epoch   bigint   NOT NULL,
    lo      bigint   NOT NULL,
    hi      bigint   NOT NULL,               -- included
    token   bigint   NOT NULL,               -- that owned what is orphaned
    at      bigint   NOT NULL,
    expires bigint   NOT NULL,
    scope   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, key, epoch, lo)
);

CREATE INDEX seqgen_voids_expires ON {schema}.seqgen_voids (expires);

-- seqgen_now is the store's time.
CREATE FUNCTION {schema}.seqgen_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- seqgen_begin refuses a transaction that cannot see what others have committed
-- since it began: it would assign a number twice. A transaction of the store's own
-- (modes 0 and 1) does not wait long for those of strangers.
CREATE FUNCTION {schema}.seqgen_begin(p_mode integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and seqgen needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF p_mode <> 2 THEN
        PERFORM set_config('lock_timeout', '1s', true);
    END IF;
END
$pawl$;

-- seqgen_lock locks a key and returns its row: one of NULLs if there is no such
-- key, and one in epoch -1 if another transaction has it and p_mode is 1. It waits
-- for that transaction: in mode 0 for a moment, and then it fails; in mode 1 as
-- long, and it does not fail; in mode 2, that of a caller's transaction, as long as
-- it takes.
CREATE FUNCTION {schema}.seqgen_lock(p_scope text, p_key text, p_mode integer) RETURNS {schema}.seqgen_keys
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.seqgen_keys;
BEGIN
    IF p_mode = 1 THEN
        BEGIN
            SELECT * INTO r FROM {schema}.seqgen_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE;
        EXCEPTION WHEN lock_not_available THEN
            r.epoch := -1;
        END;
    ELSE
        SELECT * INTO r FROM {schema}.seqgen_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE;
    END IF;
    RETURN r;
END
$pawl$;

-- seqgen_make makes a key, which is then locked, unless somebody else has made it.
CREATE FUNCTION {schema}.seqgen_make(p_scope text, p_key text, p_mode integer) RETURNS {schema}.seqgen_keys
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.seqgen_keys;
BEGIN
    IF p_mode = 1 THEN
        BEGIN  -- it waits for whoever is making it
            INSERT INTO {schema}.seqgen_keys (scope, key, epoch) VALUES (p_scope, p_key, 1)
            ON CONFLICT (scope, key) DO NOTHING RETURNING * INTO r;
        EXCEPTION WHEN lock_not_available THEN
            r.epoch := -1;
        END;
    ELSE
        INSERT INTO {schema}.seqgen_keys (scope, key, epoch) VALUES (p_scope, p_key, 1)
        ON CONFLICT (scope, key) DO NOTHING RETURNING * INTO r;
    END IF;
    IF r.epoch IS NULL THEN
        r := {schema}.seqgen_lock(p_scope, p_key, p_mode);
    END IF;
    RETURN r;
END
$pawl$;

CREATE FUNCTION {schema}.seqgen_save(r {schema}.seqgen_keys) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    UPDATE {schema}.seqgen_keys AS t SET mode = r.mode, owned = r.owned, epoch = r.epoch, last = r.last, token = r.token,
        used = r.used, log = r.log
    WHERE t.scope = r.scope AND t.key = r.key;
END
$pawl$;

-- seqgen_logged returns where in a log the entry with a nonce is, from 1; 0 is
-- nowhere.
CREATE FUNCTION {schema}.seqgen_logged(p_log bytea, p_nonce bytea) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    IF position(p_nonce IN p_log) > 0 THEN
        FOR i IN 0 .. length(p_log) / 48 - 1 LOOP
            IF substring(p_log FROM i * 48 + 1 FOR 16) = p_nonce THEN
                RETURN i * 48 + 1;
            END IF;
        END LOOP;
    END IF;
    RETURN 0;
END
$pawl$;

-- seqgen_field returns the eight-byte number at a place.
CREATE FUNCTION {schema}.seqgen_field(p_log bytea, p_at integer) RETURNS bigint
LANGUAGE sql IMMUTABLE AS
$pawl$ SELECT ('x' || encode(substring(p_log FROM p_at FOR 8), 'hex'))::bit(64)::bigint $pawl$;

-- seqgen_note adds an entry and drops the oldest of more than 32.
CREATE FUNCTION {schema}.seqgen_note(p_log bytea, p_nonce bytea, p_epoch bigint, p_lo bigint, p_hi bigint, p_token bigint) RETURNS bytea
LANGUAGE sql IMMUTABLE AS
$pawl$
    SELECT substring(p_log FROM greatest(length(p_log) - 31 * 48, 0) + 1)
        || p_nonce || int8send(p_epoch) || int8send(p_lo) || int8send(p_hi) || int8send(p_token)
$pawl$;

-- seqgen_spend leaves of an entry the nonce alone.
CREATE FUNCTION {schema}.seqgen_spend(p_log bytea, p_at integer) RETURNS bytea
LANGUAGE sql IMMUTABLE AS
$pawl$ SELECT overlay(p_log PLACING decode(repeat('00', 32), 'hex') FROM p_at + 16) $pawl$;

-- seqgen_orphan records what the owner of a key has not accounted for, if there is
-- anything.
CREATE FUNCTION {schema}.seqgen_orphan(r {schema}.seqgen_keys, p_reason integer, p_now bigint, p_retention bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    IF NOT r.owned OR r.used >= r.last THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.seqgen_voids (kind, reason, epoch, lo, hi, token, at, expires, scope, key)
    VALUES (2, p_reason, r.epoch, r.used + 1, r.last, r.token, p_now, p_now + p_retention, r.scope, r.key);
    RETURN true;
END
$pawl$;

-- seqgen_certain records a certain void, joined with those that it touches.
CREATE FUNCTION {schema}.seqgen_certain(
    r {schema}.seqgen_keys, p_epoch bigint, p_lo bigint, p_hi bigint, p_reason integer, p_now bigint, p_retention bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    v      record;
    before bigint;
BEGIN
    SELECT t.lo INTO before FROM {schema}.seqgen_voids AS t
    WHERE t.scope = r.scope AND t.key = r.key AND t.epoch = p_epoch AND t.lo <= p_lo AND t.kind = 1 ORDER BY t.lo DESC LIMIT 1;
    FOR v IN
        DELETE FROM {schema}.seqgen_voids AS t
        WHERE t.scope = r.scope AND t.key = r.key AND t.epoch = p_epoch AND t.kind = 1
        AND t.lo >= coalesce(before, p_lo) AND t.lo - 1 <= p_hi AND t.hi >= p_lo - 1
        RETURNING t.lo, t.hi
    LOOP
        p_lo := least(p_lo, v.lo);
        p_hi := greatest(p_hi, v.hi);
    END LOOP;
    INSERT INTO {schema}.seqgen_voids (kind, reason, epoch, lo, hi, token, at, expires, scope, key)
    VALUES (1, p_reason, p_epoch, p_lo, p_hi, 0, p_now, p_now + p_retention, r.scope, r.key);
END
$pawl$;
