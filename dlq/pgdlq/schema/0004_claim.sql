-- dlq_row is a letter as it is read, with what a claim says of its lane.
CREATE TYPE {schema}.dlq_row AS (
    what        smallint,  -- 1 a letter, 2 the end
    token       bigint,
    remains     bigint,    -- of the lease; 2: until the next lane can be claimed
    seq         bigint,    -- 2: up to where was looked, NULL if there is no more
    stream      text,
    id          text,
    key         text,
    lane        text,
    state       smallint,
    aside       boolean,
    tries       integer,
    job         text,
    fingerprint text,
    put         bigint,
    next        bigint,
    settled     bigint,
    expires     bigint,
    digest      bytea,
    log_times   bigint[],
    log_prints  text[],
    log_details bytea[],
    fold_prints text[],
    fold_counts integer[],
    fold_firsts bigint[],
    fold_lasts  bigint[],
    others      integer,
    original    bytea,
    body        bytea
);

-- dlq_claim takes lanes of a stream. It looks for them in two places: the first
-- letters that wait and whose lane nobody holds have a due time in dlq_letters; and
-- lanes whose lease has lapsed are found by its end. A claim does not write the letter,
-- only the lane: what is held is passed over by the next claim.
--
-- Claims of one stream take turns. They are not flushed to disk: a crash of the
-- server then undoes the last claims, their tries included, and their tokens are
-- stale. 0010_rounds.sql replaces it.
CREATE FUNCTION {schema}.dlq_claim(p_stream text, p_nonce bytea, p_n integer, p_bytes bigint, p_lease bigint)
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
            WHERE t.stream = p_stream AND t.due <= now AND NOT EXISTS (
                SELECT FROM {schema}.dlq_lanes AS k WHERE k.lane = t.lane AND coalesce(k.until, 0) > 0 AND k.stream || '' = t.stream OFFSET 0)
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
        WHERE t.stream = p_stream AND t.due IS NOT NULL AND NOT EXISTS (
            SELECT FROM {schema}.dlq_lanes AS k WHERE k.lane = t.lane AND coalesce(k.until, 0) > 0 AND k.stream || '' = t.stream OFFSET 0)
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
