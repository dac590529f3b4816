-- The claims of pgdedup: one table, and the steps of dedup.Store as functions.
--
-- The steps are functions because each of them is several statements that have
-- to see one after the other what was committed meanwhile, in one round trip;
-- and because their plans must not depend on how large the table was when a
-- connection first planned them. A scan of the whole table is never the plan
-- that is wanted here, hence enable_seqscan = off.
--
-- Whoever writes a record holds its lock: a transaction-level advisory lock on a
-- hash of the table, the scope and the ID. A claim only tries to take it, so it
-- never waits for the end of another transaction.

CREATE TABLE {schema}.dedup (
    layout      smallint NOT NULL,            -- of this row: 1
    state       smallint NOT NULL,            -- 1 claimed, 2 held, 3 done, 4 released
    attempt     integer  NOT NULL,
    token       bigint   NOT NULL,
    since       bigint   NOT NULL,            -- microseconds of the Unix epoch, like the two below:
                                              -- of the grant, or of the completion or release
    lease_until bigint   NOT NULL,
    expires_at  bigint   NOT NULL,            -- no meaning while hold is set
    hold        boolean  NOT NULL,            -- never expires: held, or claimed under Hold
    nonce       bytea    NOT NULL,            -- of the ask that claimed last
    scope       text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    fingerprint bytea,                        -- NULL: not compared
    result      bytea,                        -- NULL: empty
    PRIMARY KEY (id, scope)
) WITH (
    fillfactor = 50,                          -- every record is written again when it is completed: on the same page
    vacuum_truncate = off,                    -- truncating locks every claim out
    autovacuum_vacuum_scale_factor = 0.05
);

-- Only for Held, and only over the few rows that can be listed. A claim under
-- the policy Rerun never touches it.
CREATE INDEX dedup_hold ON {schema}.dedup (scope, id) WHERE hold;

-- dedup_now is the store's time in microseconds.
CREATE FUNCTION {schema}.dedup_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- dedup_check_isolation refuses a transaction that cannot see what others have
-- committed since it began: it would settle a record that was forgotten.
CREATE FUNCTION {schema}.dedup_check_isolation() RETURNS void
LANGUAGE plpgsql STABLE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and dedup needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$pawl$;

-- dedup_claim answers one ask for each of p_ids, which are distinct. The first
-- row has n = 0: so many asks (attempt) were granted as first attempts, with
-- this token. Each ask that was answered otherwise has a row of its own, with
-- its place in p_ids from 1; state is 1 acquired, 2 in flight, 3 done,
-- 4 conflict, 5 unknown.
CREATE FUNCTION {schema}.dedup_claim(
    p_scope text, p_ids text[], p_nonces bytea[], p_fingerprints bytea[],
    p_lease bigint, p_retention bigint, p_hold boolean, p_complete boolean, p_bound boolean)
RETURNS TABLE (n integer, state smallint, token bigint, attempt integer, remains bigint, age bigint, result bytea)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    locked  boolean[];
    now     bigint;
    granted integer;
BEGIN
    PERFORM {schema}.dedup_check_isolation();
    IF p_bound THEN
        -- The caller's transaction keeps a lock until its end, and would keep the
        -- owner of a record from renewing and completing it: what cannot be granted
        -- is answered without one.
        now := {schema}.dedup_now();
        locked := ARRAY(
            SELECT CASE WHEN EXISTS (
                SELECT FROM {schema}.dedup AS d
                WHERE d.scope = p_scope AND d.id = a.id AND (d.hold OR d.expires_at > now)
                AND (d.state IN (2, 3) OR d.state = 1 AND (d.hold OR d.lease_until > now)))
            THEN false
            ELSE pg_try_advisory_xact_lock(hashtextextended(p_scope || '/' || a.id, '{schema}.dedup'::regclass::oid::bigint)) END
            FROM unnest(p_ids) AS a(id));
    ELSE
        locked := ARRAY(
            SELECT pg_try_advisory_xact_lock(hashtextextended(p_scope || '/' || a.id, '{schema}.dedup'::regclass::oid::bigint))
            FROM unnest(p_ids) AS a(id));
    END IF;
    now := {schema}.dedup_now();

    -- Nearly every ask is the first of its ID. From here on no other transaction
    -- can claim or settle what is locked.
    INSERT INTO {schema}.dedup (layout, state, attempt, token, since, lease_until, expires_at, hold, nonce, scope, id, fingerprint)
    SELECT 1, CASE WHEN p_complete THEN 3 ELSE 1 END, 1, now, now, now + p_lease,
           now + greatest(p_retention, CASE WHEN p_complete THEN 0 ELSE p_lease END),
           p_hold AND NOT p_complete, a.nonce, p_scope, a.id, a.fingerprint
    FROM unnest(p_ids, p_nonces, p_fingerprints, locked) AS a(id, nonce, fingerprint, locked)
    WHERE a.locked
    ON CONFLICT (id, scope) DO NOTHING;
    GET DIAGNOSTICS granted = ROW_COUNT;

    n := 0; state := 1; token := now; attempt := granted; remains := 0; age := 0;
    RETURN NEXT;
    IF granted = cardinality(p_ids) THEN
        RETURN;
    END IF;

    -- The others have a record, or somebody else has their lock. This statement
    -- sees all that was committed by those who had the locks before.
    RETURN QUERY
    WITH answer AS MATERIALIZED (
        SELECT a.*, r.*, CASE
            WHEN r.state IS NULL OR NOT r.hold AND r.expires_at <= now THEN 10               -- rule 1: first
            WHEN r.fingerprint <> a.asked_fingerprint THEN 4                                 -- rule 2: conflict
            WHEN r.state = 3 AND p_complete AND r.nonce = a.asked_nonce THEN 6               -- rule 3: done by this ask
            WHEN r.state = 3 THEN 3
            WHEN r.state = 2 OR r.state = 1 AND r.hold AND r.lease_until <= now THEN 5       -- rule 4: unknown
            WHEN r.state = 1 AND r.lease_until > now AND r.nonce = a.asked_nonce THEN 1      -- rule 5: claimed by this ask
            WHEN r.state = 1 AND r.lease_until > now THEN 2
            WHEN r.state = 4 AND r.nonce = a.asked_nonce THEN 7                              -- rule 6: a spent ask
            ELSE 11 END AS is                                                                -- rule 6: next attempt
        FROM unnest(p_ids, p_nonces, p_fingerprints, locked) WITH ORDINALITY
             AS a(asked_id, asked_nonce, asked_fingerprint, locked, n)
        LEFT JOIN LATERAL (
            SELECT d.* FROM {schema}.dedup AS d WHERE d.scope = p_scope AND d.id = a.asked_id OFFSET 0
        ) AS r ON true
        WHERE r.state IS NULL OR r.token <> now OR r.nonce <> a.asked_nonce                  -- not granted above
    ), taken AS (
        INSERT INTO {schema}.dedup (layout, state, attempt, token, since, lease_until, expires_at, hold, nonce, scope, id, fingerprint)
        SELECT 1, CASE WHEN p_complete THEN 3 ELSE 1 END,
               CASE a.is WHEN 10 THEN 1 ELSE a.attempt + 1 END,
               greatest(a.token + 1, now), now, now + p_lease,
               now + greatest(p_retention, CASE WHEN p_complete THEN 0 ELSE p_lease END),
               p_hold AND NOT p_complete, a.asked_nonce, p_scope, a.asked_id,
               CASE a.is WHEN 10 THEN a.asked_fingerprint ELSE coalesce(a.fingerprint, a.asked_fingerprint) END
        FROM answer AS a
        WHERE a.is >= 10 AND a.locked
        ON CONFLICT (id, scope) DO UPDATE SET
            layout = excluded.layout, state = excluded.state, attempt = excluded.attempt, token = excluded.token,
            since = excluded.since, lease_until = excluded.lease_until, expires_at = excluded.expires_at,
            hold = excluded.hold, nonce = excluded.nonce, fingerprint = excluded.fingerprint, result = NULL
    )
    SELECT a.n::integer,
           (CASE WHEN a.is >= 10 AND a.locked OR a.is = 6 THEN 1 WHEN a.is >= 10 OR a.is = 7 THEN 2 ELSE a.is END)::smallint,
           CASE WHEN a.is >= 10 AND a.locked THEN greatest(a.token + 1, now)
                WHEN a.is IN (1, 5, 6) THEN a.token ELSE 0 END,
           CASE WHEN a.is = 10 THEN CASE WHEN a.locked THEN 1 ELSE 0 END
                WHEN a.is = 11 AND a.locked THEN a.attempt + 1 ELSE a.attempt END,
           CASE WHEN a.is >= 10 AND a.locked AND NOT p_complete THEN p_lease
                WHEN a.is IN (1, 2) THEN a.lease_until - now ELSE 0 END,
           CASE WHEN a.is IN (2, 3, 5) THEN greatest(now - a.since, 0) ELSE 0 END,
           CASE WHEN a.is = 3 THEN a.result END
    FROM answer AS a;
END
$pawl$;

-- dedup_settle settles p_ids, which are distinct. p_kinds are 1 complete,
-- 2 release, 3 hold, 4 extend, 5 forget. The first row has n = 0 and the number
-- of settlements that were applied, now or before. Each other one has a row of
-- its own: outcome 1 is stale, 2 is busy, which means that another transaction
-- kept the record locked for a quarter of a second and nothing was done.
CREATE FUNCTION {schema}.dedup_settle(
    p_scope text, p_ids text[], p_kinds smallint[], p_tokens bigint[], p_leases bigint[], p_results bytea[],
    p_retention bigint)
RETURNS TABLE (n integer, outcome integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms'
AS $pawl$
#variable_conflict use_column
DECLARE
    locked  boolean[];
    now     bigint;
    refused integer;
BEGIN
    PERFORM {schema}.dedup_check_isolation();
    -- In ascending order of the keys, so that settlements cannot wait for each
    -- other in a circle.
    BEGIN
        PERFORM pg_advisory_xact_lock(k.key)
        FROM (SELECT hashtextextended(p_scope || '/' || a.id, '{schema}.dedup'::regclass::oid::bigint) AS key
              FROM unnest(p_ids) AS a(id) ORDER BY key) AS k;
    EXCEPTION WHEN lock_not_available THEN
        locked := ARRAY(
            SELECT pg_try_advisory_xact_lock(hashtextextended(p_scope || '/' || a.id, '{schema}.dedup'::regclass::oid::bigint))
            FROM unnest(p_ids) AS a(id));
    END;
    now := {schema}.dedup_now();

    RETURN QUERY
    WITH answer AS MATERIALIZED (
        SELECT a.*, r.*, CASE
            WHEN NOT coalesce(a.locked, true) THEN 2
            WHEN a.kind = 5 THEN 0
            WHEN r.state IS NULL OR NOT r.hold AND r.expires_at <= now OR r.token <> a.asked_token THEN 1
            WHEN a.kind <= 3 AND r.state <= 2 AND NOT (a.kind = 3 AND r.state = 2) THEN 10   -- open: apply
            WHEN a.kind = 4 AND r.state = 1 THEN 10
            WHEN a.kind = 1 AND r.state = 3 OR a.kind = 2 AND r.state = 4 OR a.kind = 3 AND r.state = 2 THEN 0
            ELSE 1 END AS is
        FROM unnest(p_ids, p_kinds, p_tokens, p_leases, p_results, locked) WITH ORDINALITY
             AS a(asked_id, kind, asked_token, asked_lease, asked_result, locked, n)
        LEFT JOIN LATERAL (
            SELECT d.* FROM {schema}.dedup AS d WHERE d.scope = p_scope AND d.id = a.asked_id OFFSET 0
        ) AS r ON true
    ), applied AS (
        INSERT INTO {schema}.dedup (layout, state, attempt, token, since, lease_until, expires_at, hold, nonce, scope, id, fingerprint, result)
        SELECT 1, CASE a.kind WHEN 1 THEN 3 WHEN 2 THEN 4 WHEN 3 THEN 2 ELSE 1 END,
               a.attempt, a.token,
               CASE WHEN a.kind <= 2 THEN now ELSE a.since END,
               CASE a.kind WHEN 4 THEN now + a.asked_lease ELSE a.lease_until END,
               CASE a.kind WHEN 3 THEN a.expires_at WHEN 4 THEN now + greatest(p_retention, a.asked_lease) ELSE now + p_retention END,
               a.kind = 3 OR a.kind = 4 AND a.hold,
               a.nonce, a.scope, a.id, a.fingerprint,
               CASE a.kind WHEN 1 THEN a.asked_result END
        FROM answer AS a
        WHERE a.is = 10
        ON CONFLICT (id, scope) DO UPDATE SET
            layout = excluded.layout, state = excluded.state, since = excluded.since, lease_until = excluded.lease_until,
            expires_at = excluded.expires_at, hold = excluded.hold, result = excluded.result
    )
    SELECT a.n::integer, a.is FROM answer AS a WHERE a.is IN (1, 2);
    GET DIAGNOSTICS refused = ROW_COUNT;

    IF 5 = ANY (p_kinds) THEN
        FOR i IN 1 .. cardinality(p_ids) LOOP
            IF p_kinds[i] = 5 AND coalesce(locked[i], true) THEN
                DELETE FROM {schema}.dedup AS d WHERE d.scope = p_scope AND d.id = p_ids[i];
            END IF;
        END LOOP;
    END IF;

    n := 0; outcome := cardinality(p_ids) - refused;
    RETURN NEXT;
END
$pawl$;

-- dedup_held lists the claims of a scope that are unknown, behind an ID.
CREATE FUNCTION {schema}.dedup_held(p_scope text, p_after text, p_most integer)
RETURNS TABLE (id text, token bigint, attempt integer, age bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint := {schema}.dedup_now();
BEGIN
    RETURN QUERY
    SELECT d.id, d.token, d.attempt, greatest(now - d.since, 0)
    FROM {schema}.dedup AS d
    WHERE d.hold AND d.scope = p_scope AND d.id > p_after COLLATE "C" AND (d.state = 2 OR d.lease_until <= now)
    ORDER BY d.scope, d.id
    LIMIT p_most;
END
$pawl$;

-- dedup_sweep removes at most p_most expired records from p_pages pages of the
-- table, beginning with page p_from, and says where to go on: at 0 behind the
-- last page. A record that another transaction has locked is left for the next
-- time.
CREATE FUNCTION {schema}.dedup_sweep(p_from bigint, p_pages integer, p_most integer)
RETURNS TABLE (removed integer, next_page bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    pages   bigint := pg_relation_size('{schema}.dedup'::regclass) / current_setting('block_size')::bigint;
    start   tid    := format('(%s,0)', p_from);
    stop    tid    := format('(%s,0)', p_from + p_pages);
    now     bigint := {schema}.dedup_now();
    gone    integer;
BEGIN
    DELETE FROM {schema}.dedup
    WHERE ctid = ANY (ARRAY(
        SELECT d.ctid FROM {schema}.dedup AS d
        WHERE d.ctid >= start AND d.ctid < stop AND NOT d.hold AND d.expires_at <= now
        LIMIT p_most
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN QUERY SELECT gone, CASE
        WHEN gone >= p_most THEN p_from
        WHEN p_from + p_pages >= pages THEN 0
        ELSE p_from + p_pages END;
END
$pawl$;
