-- dlq_sweep removes what its retention has left behind, of the first p_n letters,
-- entries, jobs and alarms that have expired; of lanes it looks at p_n, behind a place.
-- It passes over what is locked. looked is how many things were looked at of the
-- kind with the most; the lanes go on at the place that is returned, NULL at the end.
CREATE FUNCTION {schema}.dlq_sweep(p_n integer, p_stream text, p_lane text)
RETURNS TABLE (removed integer, looked integer, next_stream text, next_lane text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint := {schema}.dlq_now();
    found integer;
    lanes integer;
    name  text;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    WITH gone AS (
        DELETE FROM {schema}.dlq_letters AS t USING (
            SELECT x.stream, x.seq FROM {schema}.dlq_letters AS x WHERE x.expires <= now ORDER BY x.expires LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS c
        WHERE t.stream = c.stream AND t.seq = c.seq AND t.state > 2 RETURNING t.stream, t.state
    ), deltas AS (
        INSERT INTO {schema}.dlq_deltas (at, resolved, discarded, rejected, stream)
        SELECT now, -count(*) FILTER (WHERE g.state = 3), -count(*) FILTER (WHERE g.state = 4), -count(*) FILTER (WHERE g.state = 5), g.stream
        FROM gone AS g GROUP BY g.stream
    )
    SELECT count(*) INTO removed FROM gone;
    looked := removed;

    WITH gone AS (
        DELETE FROM {schema}.dlq_entries AS t USING (
            SELECT x.stream, x.seq FROM {schema}.dlq_entries AS x WHERE x.expires <= now ORDER BY x.expires LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS c
        WHERE t.stream = c.stream AND t.seq = c.seq RETURNING t.seq
    ) SELECT count(*) INTO found FROM gone;
    removed := removed + found; looked := greatest(looked, found);

    WITH gone AS (
        DELETE FROM {schema}.dlq_alarms AS t USING (
            SELECT x.stream, x.print FROM {schema}.dlq_alarms AS x WHERE x.until <= now ORDER BY x.until LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS c
        WHERE t.stream = c.stream AND t.print = c.print RETURNING t.until
    ) SELECT count(*) INTO found FROM gone;
    looked := greatest(looked, found);

    WITH gone AS (
        DELETE FROM {schema}.dlq_jobs AS t USING (
            SELECT x.stream, x.id FROM {schema}.dlq_jobs AS x WHERE x.expires <= now AND x.ended ORDER BY x.expires LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS c
        WHERE t.stream = c.stream AND t.id = c.id RETURNING t.stream, t.id
    ), counts AS (
        DELETE FROM {schema}.dlq_counts AS t USING gone AS g WHERE t.kind = 2 AND t.stream = g.stream AND t.name = g.id
    ) SELECT count(*) INTO found FROM gone;
    looked := greatest(looked, found);

    WITH few AS MATERIALIZED (
        SELECT t.stream, t.lane, t.expires, t.until FROM {schema}.dlq_lanes AS t
        WHERE (t.lane, t.stream) > (p_lane, p_stream) ORDER BY t.lane, t.stream LIMIT p_n
    ), locked AS (
        SELECT l.stream, l.lane FROM few AS s
        CROSS JOIN LATERAL (
            SELECT t.stream, t.lane FROM {schema}.dlq_lanes AS t
            WHERE t.stream = s.stream AND t.lane = s.lane AND t.expires <= now AND (t.until IS NULL OR t.until <= now)
            AND NOT EXISTS (SELECT FROM {schema}.dlq_letters AS x WHERE x.lane = s.lane AND x.state <= 2 AND x.stream || '' = s.stream)
            FOR UPDATE SKIP LOCKED
        ) AS l
        WHERE s.expires <= now AND (s.until IS NULL OR s.until <= now)
    ), gone AS (
        DELETE FROM {schema}.dlq_lanes AS t USING locked AS l WHERE t.stream = l.stream AND t.lane = l.lane
    )
    SELECT count(*), (array_agg(s.stream ORDER BY s.lane DESC, s.stream DESC))[1], (array_agg(s.lane ORDER BY s.lane DESC, s.stream DESC))[1]
    INTO lanes, next_stream, next_lane FROM few AS s;
    IF lanes < p_n THEN
        next_stream := NULL; next_lane := NULL;
    END IF;
    looked := greatest(looked, lanes);
    FOR name IN SELECT DISTINCT t.stream FROM {schema}.dlq_deltas AS t LIMIT 100 LOOP
        PERFORM {schema}.dlq_fold(name);
    END LOOP;
    RETURN NEXT;
END
$pawl$;
