-- dlq_job_row is a job as it is read. p_outcome: 0 done, 1 not found, 3 it was changed.
CREATE TYPE {schema}.dlq_job_row AS (
    outcome smallint, stream text, id text, nonce bytea, version bigint, data bytea, ended boolean, created bigint, updated bigint,
    released bigint, passed bigint, failed bigint, moved bigint
);

-- dlq_save_job stores a job by the rules of dlq.Store.SaveJob.
CREATE FUNCTION {schema}.dlq_save_job(
    p_retention bigint, p_stream text, p_id text, p_nonce bytea, p_version bigint, p_data bytea, p_ended boolean)
RETURNS SETOF {schema}.dlq_job_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint;
    j    {schema}.dlq_jobs;
    why  smallint := 0;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    now := {schema}.dlq_now();
    IF p_version = 0 THEN
        INSERT INTO {schema}.dlq_jobs (version, created, updated, expires, ended, stream, id, nonce, data)
        VALUES (1, now, now, now + p_retention, p_ended, p_stream, p_id, p_nonce, p_data) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- What an earlier job of this name released counts for it no longer.
            UPDATE {schema}.dlq_deltas AS t SET job = '' WHERE t.stream = p_stream AND t.job = p_id;
            DELETE FROM {schema}.dlq_counts AS t WHERE t.kind = 2 AND t.stream = p_stream AND t.name = p_id;
            RETURN QUERY SELECT 0::smallint, p_stream, p_id, p_nonce, 1::bigint, p_data, p_ended, now, now, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO j FROM {schema}.dlq_jobs AS t WHERE t.stream = p_stream AND t.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 1::smallint, p_stream, p_id, p_nonce, 0::bigint, NULL::bytea, false, now, now, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF j.nonce = p_nonce THEN
        NULL;
    ELSIF j.version <> p_version THEN
        why := 3;
    ELSE
        UPDATE {schema}.dlq_jobs AS t SET
            version = t.version + 1, updated = now, expires = now + p_retention, ended = p_ended, nonce = p_nonce, data = p_data
        WHERE t.stream = p_stream AND t.id = p_id;
    END IF;
    RETURN QUERY SELECT why, t.stream, t.id, t.nonce, t.version, t.data, t.ended, t.created, t.updated, t.released, t.passed, t.failed, t.moved
    FROM {schema}.dlq_list_jobs(p_stream, p_id, true, 1) AS t;
END
$pawl$;

-- dlq_list_jobs reads jobs behind a name, or from it on, with what is counted of them.
CREATE FUNCTION {schema}.dlq_list_jobs(p_stream text, p_from text, p_with boolean, p_n integer) RETURNS SETOF {schema}.dlq_job_row
LANGUAGE sql VOLATILE AS
$pawl$
    SELECT 0::smallint, j.stream, j.id, j.nonce, j.version, j.data, j.ended, j.created, j.updated,
        coalesce(c.a, 0) + d.released, coalesce(c.b, 0) + d.passed, coalesce(c.c, 0) + d.failed, coalesce(c.d, 0) + d.moved
    FROM (
        SELECT * FROM {schema}.dlq_jobs AS t
        WHERE t.stream = p_stream AND t.id >= p_from AND (p_with OR t.id > p_from) ORDER BY t.id LIMIT p_n
    ) AS j
    LEFT JOIN LATERAL (
        SELECT * FROM {schema}.dlq_counts AS t WHERE t.kind = 2 AND t.stream = p_stream AND t.name = j.id OFFSET 0
    ) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(t.released), 0)::bigint AS released, coalesce(sum(t.passed), 0)::bigint AS passed,
            coalesce(sum(t.failed), 0)::bigint AS failed, coalesce(sum(t.moved), 0)::bigint AS moved
        FROM {schema}.dlq_deltas AS t WHERE t.stream = p_stream AND t.job = j.id
    ) AS d
    ORDER BY j.id
$pawl$;

-- dlq_alert says which alarms are the first of their window. It goes through them in
-- order; a batch locks the rows of its fingerprints in ascending order before.
CREATE FUNCTION {schema}.dlq_alert(p_nonces bytea[], p_streams text[], p_prints text[], p_windows bigint[])
RETURNS TABLE (n integer, first boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint;
    a   {schema}.dlq_alarms;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    FOR a.stream, a.print IN SELECT DISTINCT u.s, u.p FROM unnest(p_streams, p_prints) AS u(s, p) ORDER BY 1, 2 LOOP
        INSERT INTO {schema}.dlq_alarms AS t (until, stream, print, nonce) VALUES (0, a.stream, a.print, '')
        ON CONFLICT (stream, print) DO UPDATE SET nonce = t.nonce;
    END LOOP;
    now := {schema}.dlq_now();
    FOR i IN 1 .. cardinality(p_nonces) LOOP
        n := i;
        SELECT * INTO a FROM {schema}.dlq_alarms AS t WHERE t.stream = p_streams[i] AND t.print = p_prints[i];
        first := true;
        IF a.nonce = p_nonces[i] THEN
            NULL;
        ELSIF now < a.until THEN
            first := false;
        ELSE
            UPDATE {schema}.dlq_alarms AS t SET nonce = p_nonces[i], until = now + p_windows[i]
            WHERE t.stream = p_streams[i] AND t.print = p_prints[i];
        END IF;
        RETURN NEXT;
    END LOOP;
END
$pawl$;
