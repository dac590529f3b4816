-- Counts are kept, so that what they cost does not depend on how many letters
-- there are. A step does not write the row of a count, which all steps about one
-- fingerprint would then have to write one after the other, until each has
-- committed: it inserts what it adds and takes away into dlq_deltas, and now and
-- then a step folds what it finds there into dlq_counts. The truth is the sum of
-- both, read in one statement.

CREATE SEQUENCE {schema}.dlq_delta_seq;

CREATE TABLE {schema}.dlq_deltas (
    id          bigint   NOT NULL DEFAULT nextval('{schema}.dlq_delta_seq'::regclass),
    at          bigint   NOT NULL,
    xact        bigint   NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    nth         integer  NOT NULL DEFAULT 0,     -- the item of its step
    waiting     integer  NOT NULL DEFAULT 0,
    review      integer  NOT NULL DEFAULT 0,
    resolved    integer  NOT NULL DEFAULT 0,
    discarded   integer  NOT NULL DEFAULT 0,
    rejected    integer  NOT NULL DEFAULT 0,
    released    integer  NOT NULL DEFAULT 0,     -- these four count for the job
    passed      integer  NOT NULL DEFAULT 0,
    failed      integer  NOT NULL DEFAULT 0,
    moved       integer  NOT NULL DEFAULT 0,
    failure     boolean  NOT NULL DEFAULT false, -- a failure was recorded
    stream      text COLLATE "C" NOT NULL,
    print       text COLLATE "C" NOT NULL DEFAULT '',
    job         text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (stream, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

CREATE TABLE {schema}.dlq_counts (
    a      bigint   NOT NULL DEFAULT 0,          -- waiting; of a job: released
    b      bigint   NOT NULL DEFAULT 0,          -- review; passed
    c      bigint   NOT NULL DEFAULT 0,          -- resolved; failed
    d      bigint   NOT NULL DEFAULT 0,          -- discarded; moved
    e      bigint   NOT NULL DEFAULT 0,          -- rejected
    first  bigint,                               -- of a group: when it began
    last   bigint,                               -- when a failure was last recorded
    kind   smallint NOT NULL,                    -- 0 the stream, 1 a group, 2 a job
    stream text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, stream, name)
) WITH (fillfactor = 70, vacuum_truncate = off);

-- dlq_unresolved is how many letters of a stream are unresolved.
CREATE FUNCTION {schema}.dlq_unresolved(p_stream text) RETURNS bigint
LANGUAGE sql STABLE AS
$pawl$
    SELECT coalesce((SELECT t.a + t.b FROM {schema}.dlq_counts AS t WHERE t.kind = 0 AND t.stream = p_stream AND t.name = ''), 0)
        + coalesce((SELECT sum(t.waiting + t.review) FROM {schema}.dlq_deltas AS t WHERE t.stream = p_stream), 0)
$pawl$;

-- dlq_fold_group is what becomes of groups. A group begins with the first letter and
-- ends when there is none, so the deltas of a group are gone through in order, from
-- its count on. p_prints NULL means all groups that have deltas, of which only those
-- with an ID in p_ids count, unless that is NULL. 0010_rounds.sql replaces it.
CREATE FUNCTION {schema}.dlq_fold_group(p_stream text, p_prints text[], p_ids bigint[])
RETURNS TABLE (print text, waiting bigint, review bigint, first bigint, last bigint)
LANGUAGE sql STABLE AS
$pawl$
    WITH steps AS MATERIALIZED (
        SELECT d.print, d.at, d.waiting, d.review, d.failure, row_number() OVER w AS i, sum(d.waiting + d.review) OVER w AS sum
        FROM {schema}.dlq_deltas AS d
        WHERE d.stream = p_stream AND d.print <> '' AND (p_prints IS NULL OR d.print = ANY (p_prints)) AND (p_ids IS NULL OR d.id = ANY (p_ids))
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

-- dlq_fold folds deltas of a stream into its counts, unless somebody else is doing
-- it. It is called with some probability where the transaction ends at once.
CREATE FUNCTION {schema}.dlq_fold(p_stream text) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    ids bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(p_stream, '{schema}.dlq_counts'::regclass::oid::bigint)) THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT t.id FROM {schema}.dlq_deltas AS t WHERE t.stream = p_stream ORDER BY t.id LIMIT 10000);
    IF cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.dlq_counts AS t (kind, stream, name, a, b, c, d, e)
    SELECT 0, p_stream, '', sum(d.waiting), sum(d.review), sum(d.resolved), sum(d.discarded), sum(d.rejected)
    FROM {schema}.dlq_deltas AS d WHERE d.stream = p_stream AND d.id = ANY (ids)
    ON CONFLICT (kind, stream, name) DO UPDATE SET
        a = t.a + excluded.a, b = t.b + excluded.b, c = t.c + excluded.c, d = t.d + excluded.d, e = t.e + excluded.e;

    INSERT INTO {schema}.dlq_counts AS t (kind, stream, name, a, b, first, last)
    SELECT 1, p_stream, g.print, g.waiting, g.review, g.first, g.last FROM {schema}.dlq_fold_group(p_stream, NULL, ids) AS g
    ON CONFLICT (kind, stream, name) DO UPDATE SET a = excluded.a, b = excluded.b, first = excluded.first, last = excluded.last;

    INSERT INTO {schema}.dlq_counts AS t (kind, stream, name, a, b, c, d)
    SELECT 2, p_stream, d.job, sum(d.released), sum(d.passed), sum(d.failed), sum(d.moved)
    FROM {schema}.dlq_deltas AS d
    WHERE d.stream = p_stream AND d.id = ANY (ids) AND d.job <> ''
    AND EXISTS (SELECT FROM {schema}.dlq_jobs AS j WHERE j.stream = p_stream AND j.id = d.job)
    GROUP BY d.job
    ON CONFLICT (kind, stream, name) DO UPDATE SET a = t.a + excluded.a, b = t.b + excluded.b, c = t.c + excluded.c, d = t.d + excluded.d;

    DELETE FROM {schema}.dlq_counts AS t USING (
        SELECT DISTINCT d.print FROM {schema}.dlq_deltas AS d WHERE d.stream = p_stream AND d.id = ANY (ids) AND d.print <> ''
    ) AS p WHERE t.kind = 1 AND t.stream = p_stream AND t.name = p.print AND t.a + t.b <= 0;
    DELETE FROM {schema}.dlq_deltas AS t WHERE t.stream = p_stream AND t.id = ANY (ids);
END
$pawl$;

-- dlq_fold_sometimes keeps deltas few: a step that added p_rows of them folds with such
-- a probability that some hundreds are there.
CREATE FUNCTION {schema}.dlq_fold_sometimes(p_mode integer, p_stream text, p_rows integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    -- A caller's transaction would keep others from folding until it ends.
    IF p_mode <> 1 AND random() < 0.03 + p_rows / 300.0 THEN
        PERFORM {schema}.dlq_fold(p_stream);
    END IF;
END
$pawl$;
