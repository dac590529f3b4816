-- dlq_list reads letters of a stream by ascending number, behind p_after. It goes along
-- the index of what is likely to be the rarest thing that is asked for, looks at most
-- at p_look rows, and returns those for which the rest holds, too. Its last row is an
-- end: seq is where to go on, or NULL. With p_heads bodies are left where they are.
--
-- Statements are planned anew each time, because which index serves depends on what
-- is asked for.
CREATE FUNCTION {schema}.dlq_list(
    p_stream text, p_id text, p_key text, p_state smallint, p_print text, p_job text, p_from bigint, p_until bigint, p_after bigint, p_n integer,
    p_look integer, p_heads boolean)
RETURNS SETOF {schema}.dlq_row
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_custom_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    along  text;
    seqs   bigint[];
    looked integer;
    top    bigint;
    last   {schema}.dlq_row;
BEGIN
    along := CASE
        WHEN p_id <> '' THEN 't.id = $2'
        WHEN p_key <> '' THEN 't.key = $3 AND t.key <> '''''
        WHEN p_job <> '' THEN 't.job = $6 AND t.job <> '''''
        WHEN p_print <> '' THEN 't.fingerprint = $5 AND t.fingerprint <> '''''
        WHEN p_state <> 0 THEN 't.state = $4'
        ELSE 'true' END;
    along := '
        SELECT t.seq, ($2 = '''' OR t.id = $2) AND ($3 = '''' OR t.key = $3) AND ($4 = 0 OR t.state = $4) AND ($5 = '''' OR t.fingerprint = $5)
            AND ($6 = '''' OR t.job = $6) AND ($7 IS NULL OR t.put >= $7) AND ($8 IS NULL OR t.put < $8) AS fits
        FROM {schema}.dlq_letters AS t WHERE t.stream = $1 AND t.seq > $9 AND ' || along || '
        ORDER BY t.seq LIMIT $11';
    EXECUTE 'SELECT ARRAY(SELECT w.seq FROM (' || along || ') AS w WHERE w.fits LIMIT $10 + 1)' INTO seqs
    USING p_stream, p_id, p_key, p_state, p_print, p_job, p_from, p_until, p_after, p_n, p_look;
    IF cardinality(seqs) > p_n THEN
        last.seq := seqs[p_n];
    ELSE
        EXECUTE 'SELECT count(*), max(w.seq) FROM (' || along || ') AS w' INTO looked, top
        USING p_stream, p_id, p_key, p_state, p_print, p_job, p_from, p_until, p_after, p_n, p_look;
        IF looked = p_look THEN
            last.seq := top;
        END IF;
    END IF;
    RETURN QUERY
    SELECT 1::smallint, NULL::bigint, NULL::bigint, t.seq, t.stream, t.id, t.key, t.lane, t.state, t.aside,
        CASE WHEN k.begun = t.seq THEN k.tries ELSE t.tries END, t.job, t.fingerprint, t.put, t.next, t.settled, t.expires, t.digest,
        t.log_times, t.log_prints, t.log_details, t.fold_prints, t.fold_counts, t.fold_firsts, t.fold_lasts, t.others,
        CASE WHEN NOT p_heads THEN t.original END, CASE WHEN NOT p_heads THEN t.body END
    FROM unnest(seqs[1:p_n]) AS c(seq)
    CROSS JOIN LATERAL (SELECT * FROM {schema}.dlq_letters AS y WHERE y.stream = p_stream AND y.seq = c.seq OFFSET 0) AS t
    LEFT JOIN LATERAL (
        SELECT y.begun, y.tries FROM {schema}.dlq_lanes AS y WHERE t.due IS NOT NULL AND y.stream = p_stream AND y.lane = t.lane OFFSET 0
    ) AS k ON true
    ORDER BY t.seq;
    last.what := 2;
    RETURN NEXT last;
END
$pawl$;

-- dlq_groups reads groups behind a fingerprint. As many kept ones are looked at as may
-- have come to nothing since.
CREATE FUNCTION {schema}.dlq_groups(p_stream text, p_after text, p_n integer)
RETURNS TABLE (print text, waiting bigint, review bigint, first bigint, last bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $pawl$
    WITH open AS MATERIALIZED (
        SELECT DISTINCT d.print FROM {schema}.dlq_deltas AS d WHERE d.stream = p_stream AND d.print > p_after
    ), kept AS (
        SELECT t.name FROM {schema}.dlq_counts AS t WHERE t.kind = 1 AND t.stream = p_stream AND t.name > p_after
        ORDER BY t.name LIMIT p_n + (SELECT count(*) FROM open)
    ), wanted AS (
        SELECT array_agg(u.name) AS names FROM (SELECT k.name FROM kept AS k UNION SELECT o.print FROM open AS o) AS u
    )
    SELECT g.* FROM wanted AS w CROSS JOIN LATERAL {schema}.dlq_fold_group(p_stream, w.names, NULL) AS g
    WHERE w.names IS NOT NULL AND g.waiting + g.review > 0
    ORDER BY g.print COLLATE "C" LIMIT p_n
$pawl$;

-- dlq_audit reads entries of a stream by ascending number, behind p_after.
CREATE FUNCTION {schema}.dlq_audit(p_stream text, p_id text, p_job text, p_after bigint, p_n integer, p_look integer)
RETURNS TABLE (what smallint, seq bigint, at bigint, verb text, id text, letter bigint, job text, actor text, reason text, before bytea, after bytea)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    along  text;
    seqs   bigint[];
    looked integer;
    top    bigint;
    place  bigint;
BEGIN
    along := CASE WHEN p_id <> '' THEN 't.id = $2 AND t.id <> ''''' WHEN p_job <> '' THEN 't.job = $3 AND t.job <> ''''' ELSE 'true' END;
    along := '
        SELECT t.seq, ($2 = '''' OR t.id = $2) AND ($3 = '''' OR t.job = $3) AS fits
        FROM {schema}.dlq_entries AS t WHERE t.stream = $1 AND t.seq > $4 AND ' || along || '
        ORDER BY t.seq LIMIT $6';
    EXECUTE 'SELECT ARRAY(SELECT w.seq FROM (' || along || ') AS w WHERE w.fits LIMIT $5 + 1)' INTO seqs
    USING p_stream, p_id, p_job, p_after, p_n, p_look;
    IF cardinality(seqs) > p_n THEN
        place := seqs[p_n];
    ELSE
        EXECUTE 'SELECT count(*), max(w.seq) FROM (' || along || ') AS w' INTO looked, top USING p_stream, p_id, p_job, p_after, p_n, p_look;
        IF looked = p_look THEN
            place := top;
        END IF;
    END IF;
    RETURN QUERY
    SELECT 1::smallint, t.seq, t.at, t.verb, t.id, t.letter, t.job, t.actor, t.reason, t.before, t.after
    FROM unnest(seqs[1:p_n]) AS c(seq)
    CROSS JOIN LATERAL (SELECT * FROM {schema}.dlq_entries AS y WHERE y.stream = p_stream AND y.seq = c.seq OFFSET 0) AS t
    ORDER BY t.seq;
    RETURN QUERY SELECT 2::smallint, place, 0::bigint, '', '', 0::bigint, '', '', '', NULL::bytea, NULL::bytea;
END
$pawl$;

-- dlq_totals counts the letters of streams behind one.
CREATE FUNCTION {schema}.dlq_totals(p_after text, p_n integer)
RETURNS TABLE (stream text, waiting bigint, review bigint, resolved bigint, discarded bigint, rejected bigint, oldest bigint)
LANGUAGE sql VOLATILE
SET enable_bitmapscan = off SET jit = off
AS $pawl$
    WITH RECURSIVE touched AS (
        (SELECT d.stream FROM {schema}.dlq_deltas AS d WHERE d.stream > p_after ORDER BY d.stream LIMIT 1)
        UNION ALL
        SELECT (SELECT d.stream FROM {schema}.dlq_deltas AS d WHERE d.stream > t.stream ORDER BY d.stream LIMIT 1)
        FROM touched AS t WHERE t.stream IS NOT NULL
    ), sums AS (
        SELECT u.stream, sum(u.a) AS a, sum(u.b) AS b, sum(u.c) AS c, sum(u.d) AS d, sum(u.e) AS e FROM (
            SELECT t.stream, t.a, t.b, t.c, t.d, t.e FROM {schema}.dlq_counts AS t WHERE t.kind = 0 AND t.stream > p_after
            UNION ALL
            SELECT d.stream, d.waiting, d.review, d.resolved, d.discarded, d.rejected
            FROM touched AS t JOIN {schema}.dlq_deltas AS d ON d.stream = t.stream
        ) AS u
        GROUP BY u.stream HAVING sum(u.a + u.b + u.c + u.d + u.e) > 0
        ORDER BY u.stream LIMIT p_n
    )
    SELECT s.stream, s.a::bigint, s.b::bigint, s.c::bigint, s.d::bigint, s.e::bigint, {schema}.dlq_now() - (
        SELECT t.put FROM (
            (SELECT x.seq, x.put FROM {schema}.dlq_letters AS x WHERE x.stream = s.stream AND x.state = 1 ORDER BY x.seq LIMIT 1)
            UNION ALL
            (SELECT x.seq, x.put FROM {schema}.dlq_letters AS x WHERE x.stream = s.stream AND x.state = 2 ORDER BY x.seq LIMIT 1)
        ) AS t ORDER BY t.seq LIMIT 1)
    FROM sums AS s ORDER BY s.stream
$pawl$;
