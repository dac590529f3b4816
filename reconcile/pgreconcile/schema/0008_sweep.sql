-- reconcile_sweep removes operations that have expired, among the p_n that come behind a
-- place in the order of kinds and keys. It passes over what is locked. It returns the
-- place where the next one goes on; NULL at the end.
CREATE FUNCTION {schema}.reconcile_sweep(p_n integer, p_kind text, p_key text)
RETURNS TABLE (removed integer, looked integer, next_kind text, next_key text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.reconcile_now();
    name text;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    WITH few AS MATERIALIZED (
        SELECT t.kind, t.key, t.expires FROM {schema}.reconcile_ops AS t WHERE (t.kind, t.key) > (p_kind, p_key) ORDER BY t.kind, t.key LIMIT p_n
    ), locked AS (
        SELECT l.ctid AS place FROM few AS f CROSS JOIN LATERAL (
            SELECT t.ctid FROM {schema}.reconcile_ops AS t
            WHERE t.kind = f.kind AND t.key = f.key AND {schema}.reconcile_expired(now, t.expires, t.review, t.due) FOR UPDATE SKIP LOCKED
        ) AS l WHERE f.expires <= now
    ), gone AS (
        DELETE FROM {schema}.reconcile_ops AS t USING locked AS l WHERE t.ctid = l.place
        RETURNING t.kind, t.account, t.state, t.attempts > 1 AS resent
    ), noted AS (
        INSERT INTO {schema}.reconcile_deltas (kind, accounts, parts, ns)
        SELECT x.kind, array_agg(x.account), array_agg(x.part), array_agg(-x.n)
        FROM (
            SELECT g.kind, g.account, b.part, count(*)::integer AS n
            FROM gone AS g CROSS JOIN LATERAL (VALUES (g.state::integer), (CASE WHEN g.resent THEN 7 END), (CASE WHEN g.resent AND g.state = 3 THEN 8 END)) AS b(part)
            WHERE b.part IS NOT NULL GROUP BY g.kind, g.account, b.part
        ) AS x GROUP BY x.kind
    )
    SELECT (SELECT count(*) FROM gone), count(*),
        (array_agg(f.kind ORDER BY f.kind DESC, f.key DESC))[1], (array_agg(f.key ORDER BY f.kind DESC, f.key DESC))[1]
    INTO removed, looked, next_kind, next_key FROM few AS f;
    IF looked < p_n THEN
        next_kind := NULL; next_key := NULL;
    END IF;
    FOR name IN SELECT DISTINCT t.kind FROM {schema}.reconcile_deltas AS t LIMIT 100 LOOP
        PERFORM {schema}.reconcile_fold(name);
    END LOOP;
    RETURN NEXT;
END
$pawl$;

-- reconcile_sweep_timeline does the same with observations: it looks at p_n subjects.
-- 0010_append.sql replaces it.
CREATE FUNCTION {schema}.reconcile_sweep_timeline(p_n integer, p_kind text, p_subject text)
RETURNS TABLE (removed integer, looked integer, next_kind text, next_subject text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.reconcile_now();
    last record;
    gone integer;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    removed := 0; looked := 0; next_kind := p_kind; next_subject := p_subject;
    WHILE looked < p_n LOOP
        SELECT t.kind, t.subject INTO last FROM {schema}.reconcile_observations AS t
        WHERE (t.subject, t.kind) > (next_subject, next_kind) ORDER BY t.subject, t.kind LIMIT 1;
        IF NOT FOUND THEN
            next_kind := NULL; next_subject := NULL;
            EXIT;
        END IF;
        next_kind := last.kind; next_subject := last.subject;
        looked := looked + 1;
        SELECT t.nth, t.expires INTO last FROM {schema}.reconcile_observations AS t
        WHERE t.kind = next_kind AND t.subject = next_subject ORDER BY t.subject DESC, t.kind DESC, t.nth DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND OR last.expires > now;
        -- What is appended meanwhile has a greater number, and stays.
        DELETE FROM {schema}.reconcile_observations AS t WHERE t.kind = next_kind AND t.subject = next_subject AND t.nth <= last.nth;
        GET DIAGNOSTICS gone = ROW_COUNT;
        removed := removed + gone;
        DELETE FROM {schema}.reconcile_dropped AS t WHERE t.kind = next_kind AND t.subject = next_subject;
    END LOOP;
    RETURN NEXT;
END
$pawl$;
