-- inbox_change applies what persons decided, one change after another, and returns
-- the outcome of each that was not applied: 1 not found, 2 the state does not allow
-- it, 3 another transaction has a record or its key locked. Kinds are 1 replay, 2 resolve,
-- 3 redact, 4 forget.
CREATE FUNCTION {schema}.inbox_change(
    p_retention bigint, p_bodies bigint, p_kinds smallint[], p_nonces bytea[], p_ids text[], p_seqs bigint[], p_actors text[], p_reasons text[])
RETURNS TABLE (n integer, outcome integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.inbox_check_isolation();
    END IF;
    PERFORM pg_current_xact_id();  -- as in inbox_accept: a replay takes a number
    FOR i IN 1 .. coalesce(cardinality(p_ids), 0) LOOP
        BEGIN
            n := i;
            outcome := {schema}.inbox_change_one(p_retention, p_bodies, p_kinds[i], p_nonces[i], p_ids[i], p_seqs[i], p_actors[i], p_reasons[i]);
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            outcome := 3;
        END;
        IF outcome > 0 THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$pawl$;

CREATE FUNCTION {schema}.inbox_change_one(
    p_retention bigint, p_bodies bigint, p_kind integer, p_nonce bytea, p_id text, p_seq bigint, p_actor text, p_reason text)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r       {schema}.inbox_records;
    now     bigint;
    changed boolean := false;
    why     integer := 1;
BEGIN
    IF p_kind = 4 THEN
        -- Keys are locked before records, as by whoever settles.
        PERFORM FROM (
            SELECT l.key FROM (
                SELECT p.key, p.stream FROM {schema}.inbox_records AS p WHERE p.id = p_id AND p.state + 0 = 1 ORDER BY p.stream, p.key
            ) AS a
            JOIN LATERAL (
                SELECT t.key FROM {schema}.inbox_keys AS t WHERE t.key = a.key AND t.stream = a.stream FOR NO KEY UPDATE
            ) AS l ON true
        ) AS locked;
        -- Its keys stay: a claim finds that they have nothing pending.
        WITH gone AS (
            DELETE FROM {schema}.inbox_records AS t WHERE t.id = p_id RETURNING t.seq, t.state, t.stream, t.key
        ), done AS (
            DELETE FROM {schema}.inbox_done AS t USING gone AS g WHERE t.seq = g.seq
        )
        UPDATE {schema}.inbox_keys AS t SET expires = {schema}.inbox_now() + p_retention
        FROM gone AS g WHERE g.state = 1 AND t.key = g.key AND t.stream = g.stream;
        RETURN 0;
    END IF;
    PERFORM {schema}.inbox_change_done(p_id);
    now := {schema}.inbox_now();
    FOR r IN SELECT * FROM {schema}.inbox_records AS t WHERE t.id = p_id ORDER BY t.rank FOR UPDATE LOOP
        IF r.changed_by = p_nonce THEN
            changed := true;
            CONTINUE;
        ELSIF p_seq <> 0 AND r.seq <> p_seq THEN
            CONTINUE;
        ELSIF NOT (CASE p_kind
            WHEN 1 THEN r.stream <> '' AND r.state NOT IN (1, 5) AND r.form & 4 = 0
            WHEN 2 THEN r.state NOT IN (1, 2)
            ELSE r.state <> 1 END)
        THEN
            why := 2;
            CONTINUE;
        END IF;
        changed := true;
        r.changed_by := p_nonce;
        r.action_kinds := (r.action_kinds || p_kind::smallint)[greatest(coalesce(cardinality(r.action_kinds), 0) - 14, 1):];
        r.action_times := (r.action_times || now)[greatest(coalesce(cardinality(r.action_times), 0) - 14, 1):];
        r.action_actors := (r.action_actors || p_actor)[greatest(coalesce(cardinality(r.action_actors), 0) - 14, 1):];
        r.action_notes := (r.action_notes || p_reason)[greatest(coalesce(cardinality(r.action_notes), 0) - 14, 1):];
        IF p_kind = 1 THEN
            UPDATE {schema}.inbox_records AS t SET
                seq = nextval('{schema}.inbox_seq'::regclass), since = now, state = 1, attempts = 0, ended_by = NULL, parked = false,
                settled = NULL, expires = NULL, erases = NULL, next = NULL, changed_by = p_nonce, action_kinds = r.action_kinds,
                action_times = r.action_times, action_actors = r.action_actors, action_notes = r.action_notes
            WHERE t.seq = r.seq;
        ELSIF p_kind = 2 THEN
            UPDATE {schema}.inbox_records AS t SET
                state = 2, settled = now, expires = now + p_retention, erases = now + coalesce(nullif(p_bodies, 0), p_retention),
                changed_by = p_nonce, action_kinds = r.action_kinds, action_times = r.action_times,
                action_actors = r.action_actors, action_notes = r.action_notes
            WHERE t.seq = r.seq;
        ELSE
            UPDATE {schema}.inbox_records AS t SET
                payload = NULL, context = NULL, last_error = '', failures = NULL, trace = '', form = 4, deleted = now,
                changed_by = p_nonce, action_kinds = r.action_kinds, action_times = r.action_times,
                action_actors = r.action_actors, action_notes = r.action_notes
            WHERE t.seq = r.seq;
        END IF;
    END LOOP;
    RETURN CASE WHEN changed THEN 0 ELSE why END;
END
$pawl$;
