-- Claims and folds that do not look something up for each letter that is held, and for
-- each pair of a group and a delta. What they do is as it was.

-- dlq_claim passes over the first letters of all lanes that are held, as many as workers
-- run: it reads those lanes once, by their leases, and tells a letter's by a hash. It
-- is an array, of which the planner knows nothing, so that a plan always hashes it.
-- See 0004_claim.sql.
CREATE OR REPLACE FUNCTION {schema}.dlq_claim(p_stream text, p_nonce bytea, p_n integer, p_bytes bigint, p_lease bigint)
RETURNS SETOF {schema}.dlq_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint;
    seqs  bigint[];
    dues  bigint[];
    sizes integer[];
    tried integer[];
    names text[];
    full_ boolean := false;
    next  bigint;
    other bigint;
    last  {schema}.dlq_row;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_advisory_xact_lock(hashtextextended(p_stream, '{schema}.dlq_lanes'::regclass::oid::bigint));
    now := {schema}.dlq_now();

    seqs := ARRAY(SELECT k.begun FROM {schema}.dlq_lanes AS k
        WHERE k.nonce = p_nonce AND k.until IS NOT NULL AND k.stream || '' = p_stream AND k.until > now AND k.begun IS NOT NULL
        ORDER BY k.begun);
    IF cardinality(seqs) = 0 THEN
        SELECT array_agg(c.seq), array_agg(c.due), array_agg(c.size), array_agg(c.tries), array_agg(c.lane) INTO seqs, dues, sizes, tried, names
        FROM (
            SELECT t.seq, t.due, octet_length(t.body) + coalesce(octet_length(t.original), 0) AS size, t.tries, t.lane
            FROM {schema}.dlq_letters AS t
            WHERE t.stream = p_stream AND t.due <= now AND t.lane NOT IN (
                SELECT unnest(ARRAY(SELECT k.lane FROM {schema}.dlq_lanes AS k WHERE k.stream = p_stream AND k.until > 0)))
            ORDER BY t.due, t.seq LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS c;
        SELECT seqs || array_agg(c.seq), dues || array_agg(c.due), sizes || array_agg(c.size), tried || array_agg(c.tries), names || array_agg(c.lane)
        INTO seqs, dues, sizes, tried, names FROM (
            SELECT t.seq, greatest(t.due, k.until) AS due, t.size, t.tries, t.lane
            FROM (SELECT * FROM {schema}.dlq_lanes AS x WHERE x.stream = p_stream AND x.until <= now ORDER BY x.until OFFSET 0) AS k
            CROSS JOIN LATERAL (
                SELECT y.seq, y.due, octet_length(y.body) + coalesce(octet_length(y.original), 0) AS size, y.tries, y.lane
                FROM {schema}.dlq_letters AS y
                WHERE y.lane = k.lane AND y.rank = 0 AND y.state <= 2 AND coalesce(y.due, now + 1) <= now AND y.stream || '' = p_stream
                FOR UPDATE SKIP LOCKED
            ) AS t
            ORDER BY 2, 1 LIMIT p_n
        ) AS c;
        -- It stops behind the letter that brings the bodies to p_bytes.
        SELECT array_agg(s.seq ORDER BY s.due, s.seq) FILTER (WHERE s.before IS NULL OR s.before < p_bytes),
            array_agg(s.tries ORDER BY s.due, s.seq) FILTER (WHERE s.before IS NULL OR s.before < p_bytes),
            array_agg(s.lane ORDER BY s.due, s.seq) FILTER (WHERE s.before IS NULL OR s.before < p_bytes),
            coalesce(max(s.before + s.size), max(s.size)) >= p_bytes OR count(*) = p_n
        INTO seqs, tried, names, full_ FROM (
            SELECT u.*, sum(u.size) OVER (ORDER BY u.due, u.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM (
                SELECT f.* FROM unnest(seqs, dues, sizes, tried, names) AS f(seq, due, size, tries, lane) ORDER BY f.due, f.seq LIMIT p_n
            ) AS u
        ) AS s;
        IF cardinality(seqs) > 0 THEN
            INSERT INTO {schema}.dlq_lanes AS k (token, until, begun, tries, stream, lane, nonce)
            SELECT now, now + p_lease, c.seq, c.tries + 1, p_stream, c.lane, p_nonce FROM unnest(seqs, tried, names) AS c(seq, tries, lane)
            ON CONFLICT (lane, stream) DO UPDATE SET
                token = greatest(k.token + 1, excluded.token), until = excluded.until, begun = excluded.begun, nonce = excluded.nonce,
                tries = CASE WHEN k.begun = excluded.begun THEN k.tries + 1 ELSE excluded.tries END
            WHERE k.until IS NULL OR k.until <= now;  -- a lease may have been extended meanwhile
        END IF;
    ELSE
        full_ := true;
    END IF;

    IF cardinality(seqs) > 0 THEN
        RETURN QUERY
        SELECT 1::smallint, k.token, k.until - now, t.seq, t.stream, t.id, t.key, t.lane, t.state, t.aside, k.tries, t.job, t.fingerprint,
            t.put, t.next, t.settled, t.expires, t.digest, t.log_times, t.log_prints, t.log_details, t.fold_prints, t.fold_counts,
            t.fold_firsts, t.fold_lasts, t.others, t.original, t.body
        FROM unnest(seqs) WITH ORDINALITY AS c(seq, n)
        CROSS JOIN LATERAL (SELECT * FROM {schema}.dlq_letters AS y WHERE y.stream = p_stream AND y.seq = c.seq OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT * FROM {schema}.dlq_lanes AS y WHERE y.stream = p_stream AND y.lane = t.lane OFFSET 0) AS k
        WHERE k.begun = t.seq AND k.nonce = p_nonce AND coalesce(k.until, 0) > 0
        ORDER BY c.n;
    END IF;
    IF NOT coalesce(full_, false) THEN
        -- What is due and was not taken is locked: it is worth another look soon.
        SELECT CASE WHEN t.due <= now THEN now + 50000 ELSE t.due END INTO next FROM {schema}.dlq_letters AS t
        WHERE t.stream = p_stream AND t.due IS NOT NULL AND t.lane NOT IN (
            SELECT unnest(ARRAY(SELECT k.lane FROM {schema}.dlq_lanes AS k WHERE k.stream = p_stream AND k.until > 0)))
        ORDER BY t.due LIMIT 1;
        -- Of the first lanes whose leases end. When that many are held, the next end comes soon.
        SELECT min(greatest(t.due, CASE WHEN k.until <= now AND t.due <= now THEN now + 50000 ELSE k.until END)) INTO other
        FROM (SELECT * FROM {schema}.dlq_lanes AS x WHERE x.stream = p_stream AND x.until IS NOT NULL ORDER BY x.until LIMIT 256) AS k
        CROSS JOIN LATERAL (
            SELECT y.due FROM {schema}.dlq_letters AS y
            WHERE y.lane = k.lane AND y.rank = 0 AND y.state <= 2 AND coalesce(y.due, -1) >= 0 AND y.stream || '' = p_stream OFFSET 0
        ) AS t;
        next := least(next, other);
        last.remains := CASE WHEN next IS NOT NULL THEN greatest(next - now, 1) END;
    END IF;
    PERFORM {schema}.dlq_fold_sometimes(0, p_stream, 0);
    last.what := 2;
    RETURN NEXT last;
END
$pawl$;

-- dlq_fold_group joins by hashing: a plan takes groups and deltas for few, and would go
-- through all deltas for each group. See 0002_counts.sql.
CREATE OR REPLACE FUNCTION {schema}.dlq_fold_group(p_stream text, p_prints text[], p_ids bigint[])
RETURNS TABLE (print text, waiting bigint, review bigint, first bigint, last bigint)
LANGUAGE sql STABLE
SET enable_hashjoin = on SET enable_nestloop = off SET jit = off AS
$pawl$
    WITH steps AS MATERIALIZED (
        SELECT d.print, d.at, d.waiting, d.review, d.failure, row_number() OVER w AS i, sum(d.waiting + d.review) OVER w AS sum
        FROM {schema}.dlq_deltas AS d
        WHERE d.stream = p_stream AND d.print <> '' AND (p_prints IS NULL OR d.print = ANY (p_prints))
        AND (p_ids IS NULL OR d.id IN (SELECT unnest(p_ids)))
        WINDOW w AS (PARTITION BY d.print ORDER BY d.at, d.xact, d.nth, d.id ROWS UNBOUNDED PRECEDING)
    ), names AS (
        SELECT DISTINCT s.print FROM steps AS s UNION SELECT unnest(p_prints)
    ), base AS MATERIALIZED (
        SELECT n.print, c.a, c.b, c.first, c.last FROM names AS n
        LEFT JOIN LATERAL (
            SELECT t.* FROM {schema}.dlq_counts AS t WHERE t.kind = 1 AND t.stream = p_stream AND t.name = n.print OFFSET 0
        ) AS c ON true
    ), ends AS (
        SELECT b.print, max(s.i) AS i FROM base AS b JOIN steps AS s ON s.print = b.print AND s.sum + coalesce(b.a + b.b, 0) <= 0
        GROUP BY b.print
    )
    SELECT b.print, coalesce(b.a, 0) + coalesce(sum(s.waiting), 0), coalesce(b.b, 0) + coalesce(sum(s.review), 0),
        CASE WHEN e.i IS NULL AND b.first IS NOT NULL THEN b.first ELSE min(s.at) FILTER (WHERE s.i > coalesce(e.i, 0)) END,
        greatest(b.last, max(s.at) FILTER (WHERE s.failure))
    FROM base AS b
    LEFT JOIN steps AS s ON s.print = b.print
    LEFT JOIN ends AS e ON e.print = b.print
    GROUP BY b.print, b.a, b.b, b.first, b.last, e.i
$pawl$;
