-- reconcile_claim grants at most p_n operations that are due, in the order in which they
-- became due, by the rules of reconcile.Store.Claim. It passes over those that others have
-- locked. The last row has n = 0, and in due when the next can be claimed, if that is
-- within ten seconds: beyond them lie the dead entries of all that is confirmed as it
-- is begun, and nobody waits that long.
CREATE FUNCTION {schema}.reconcile_claim(p_kind text, p_lease bigint, p_nonce bytea, p_n integer)
RETURNS SETOF {schema}.reconcile_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint;
    taken integer;
    last  {schema}.reconcile_row;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    now := {schema}.reconcile_now();
    RETURN QUERY SELECT e.* FROM {schema}.reconcile_ops AS t CROSS JOIN LATERAL {schema}.reconcile_entry(1, 4, now, t) AS e
        WHERE t.nonce = p_nonce AND t.granted = 4 AND t.until > now AND t.ended_by = 0 AND NOT t.outside AND t.kind || '' = p_kind
        ORDER BY t.due, t.key;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken = 0 THEN
        RETURN QUERY
        WITH due AS MATERIALIZED (
            SELECT t.ctid AS place, t.state FROM {schema}.reconcile_ops AS t
            WHERE t.kind = p_kind AND t.due <= now AND t.review = '' AND (t.until IS NULL OR t.until <= now)
            AND (t.state NOT IN (3, 4) OR t.state = 4 AND t.again)
            ORDER BY t.due, t.key LIMIT p_n FOR UPDATE SKIP LOCKED
        ), looks AS (
            UPDATE {schema}.reconcile_ops AS t SET
                state = CASE WHEN t.state = 1 THEN 5 ELSE t.state END, fenced = coalesce(t.fenced, now), until = now + p_lease,
                token = greatest(t.token + 1, now), nonce = p_nonce, granted = 4, ended_by = 0, outside = false
            FROM due AS d WHERE t.ctid = d.place
            RETURNING t AS op, d.state AS was
        ), noted AS (
            INSERT INTO {schema}.reconcile_deltas (kind, accounts, parts, ns)
            SELECT p_kind, array_agg(x.account), array_agg(b.part), array_agg(b.sign * x.n)
            FROM (SELECT (l.op).account, count(*)::integer AS n FROM looks AS l WHERE l.was = 1 GROUP BY (l.op).account) AS x
            CROSS JOIN (VALUES (1, -1), (5, 1)) AS b(part, sign) HAVING count(*) > 0
        )
        SELECT e.* FROM looks AS l CROSS JOIN LATERAL {schema}.reconcile_entry(1, 4, now, l.op) AS e ORDER BY (l.op).due, (l.op).key;
        GET DIAGNOSTICS taken = ROW_COUNT;
    END IF;
    IF taken < p_n THEN
        SELECT t.due INTO last.due FROM {schema}.reconcile_ops AS t
        WHERE t.kind = p_kind AND t.due > now AND t.due <= now + 10000000 AND t.review = '' ORDER BY t.due LIMIT 1;
        last.due := least(last.due, (
            SELECT min(x.until) FROM (
                SELECT t.until FROM {schema}.reconcile_ops AS t
                WHERE t.kind = p_kind AND t.due <= now AND t.review = '' AND t.until > now ORDER BY t.due LIMIT 256
            ) AS x));
    END IF;
    last.n := 0; last.now := now;
    RETURN NEXT last;
    PERFORM {schema}.reconcile_fold_sometimes(0, p_kind);
END
$pawl$;
