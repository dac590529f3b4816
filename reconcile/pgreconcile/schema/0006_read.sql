-- reconcile_list returns at most p_n operations by ascending keys, behind p_after. One key,
-- what a person has to resolve, and what is open have indexes; anything else is found by
-- going through the kind; which of them serves best depends on their sizes, so a list is
-- planned each time. A page ends early, behind its first, when payloads and results
-- exceed 8 MiB.
CREATE FUNCTION {schema}.reconcile_list(
    p_kind text, p_key text, p_account text, p_state integer, p_open boolean, p_review boolean, p_after text, p_n integer)
RETURNS SETOF {schema}.reconcile_row
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint := {schema}.reconcile_now();
BEGIN
    IF p_key <> '' THEN
        RETURN QUERY SELECT e.* FROM (
            SELECT t AS op FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key = p_key AND t.key > p_after
            AND (p_account = '' OR t.account = p_account) AND (p_state = 0 OR t.state = p_state)
            AND (NOT p_open OR t.state NOT IN (3, 4) OR t.review <> '' OR t.due IS NOT NULL) AND (NOT p_review OR t.review <> '')
            AND NOT {schema}.reconcile_expired(now, t.expires, t.review, t.due)
        ) AS x CROSS JOIN LATERAL {schema}.reconcile_entry(1, 1, now, x.op) AS e LIMIT p_n;
    ELSIF p_review THEN
        RETURN QUERY SELECT e.* FROM (
            SELECT t AS op, t.key, sum(coalesce(octet_length(t.payload), 0) + coalesce(octet_length(t.result), 0)) OVER (ORDER BY t.key)
                - coalesce(octet_length(t.payload), 0) - coalesce(octet_length(t.result), 0) AS before
            FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.review <> '' AND t.key > p_after
            AND (p_account = '' OR t.account = p_account) AND (p_state = 0 OR t.state = p_state)
            ORDER BY t.key LIMIT p_n
        ) AS x CROSS JOIN LATERAL {schema}.reconcile_entry(1, 1, now, x.op) AS e
        WHERE x.before < 8388608 ORDER BY x.key;
    ELSIF p_open OR p_state IN (1, 2, 5) THEN
        -- The condition on the account leads to the index of what is open.
        RETURN QUERY SELECT e.* FROM (
            SELECT t AS op, t.key, sum(coalesce(octet_length(t.payload), 0) + coalesce(octet_length(t.result), 0)) OVER (ORDER BY t.key)
                - coalesce(octet_length(t.payload), 0) - coalesce(octet_length(t.result), 0) AS before
            FROM {schema}.reconcile_ops AS t
            WHERE t.kind = p_kind AND t.account >= p_account AND (p_account = '' OR t.account = p_account)
            AND (t.state NOT IN (3, 4) OR t.review <> '' OR t.due IS NOT NULL)
            AND (p_state = 0 OR t.state = p_state) AND t.key || '' > p_after
            ORDER BY t.key || '' LIMIT p_n
        ) AS x CROSS JOIN LATERAL {schema}.reconcile_entry(1, 1, now, x.op) AS e
        WHERE x.before < 8388608 ORDER BY x.key;
    ELSE
        RETURN QUERY SELECT e.* FROM (
            SELECT t AS op, t.key, sum(coalesce(octet_length(t.payload), 0) + coalesce(octet_length(t.result), 0)) OVER (ORDER BY t.key)
                - coalesce(octet_length(t.payload), 0) - coalesce(octet_length(t.result), 0) AS before
            FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key > p_after
            AND (p_account = '' OR t.account = p_account) AND (p_state = 0 OR t.state = p_state)
            AND NOT {schema}.reconcile_expired(now, t.expires, t.review, t.due)
            ORDER BY t.key LIMIT p_n
        ) AS x CROSS JOIN LATERAL {schema}.reconcile_entry(1, 1, now, x.op) AS e
        WHERE x.before < 8388608 ORDER BY x.key;
    END IF;
END
$pawl$;
