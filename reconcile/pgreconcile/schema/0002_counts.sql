-- Counts are kept, so that what they cost does not depend on how many operations there
-- are. A step does not write the row of an account, which all steps about one account
-- would then have to write one after the other, until each has committed: it inserts one
-- row with all that it adds and takes away into reconcile_deltas, and now and then a step
-- folds what it finds there into reconcile_counts. The truth is the sum of both, read in
-- one statement.
--
-- A tally is what an operation counts for: started, accepted, confirmed, failed, unknown,
-- review, resent, resent and confirmed, and failed and to be sent.

CREATE SEQUENCE {schema}.reconcile_delta_seq;

CREATE TABLE {schema}.reconcile_deltas (
    id       bigint    NOT NULL DEFAULT nextval('{schema}.reconcile_delta_seq'::regclass),
    layout   smallint  NOT NULL DEFAULT 1,
    kind     text COLLATE "C" NOT NULL,
    accounts text[] COLLATE "C" NOT NULL,        -- of each number that changes: whose,
    parts    smallint[] NOT NULL,                -- which of the tally,
    ns       integer[] NOT NULL,                 -- and by how much
    PRIMARY KEY (kind, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, vacuum_truncate = off);

CREATE TABLE {schema}.reconcile_counts (
    started          bigint NOT NULL,
    accepted         bigint NOT NULL,
    confirmed        bigint NOT NULL,
    failed           bigint NOT NULL,
    unknown          bigint NOT NULL,
    review           bigint NOT NULL,
    resent           bigint NOT NULL,
    resent_confirmed bigint NOT NULL,
    waiting          bigint NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, account)
) WITH (fillfactor = 70, vacuum_truncate = off);

CREATE FUNCTION {schema}.reconcile_tally(p_state integer, p_review text, p_attempts integer, p_due bigint) RETURNS integer[]
LANGUAGE sql IMMUTABLE AS
$pawl$
    SELECT ARRAY[(p_state = 1)::integer, (p_state = 2)::integer, (p_state = 3)::integer, (p_state = 4)::integer, (p_state = 5)::integer,
        (p_review <> '')::integer, (p_attempts > 1)::integer, (p_attempts > 1 AND p_state = 3)::integer,
        (p_state = 4 AND p_due IS NOT NULL)::integer]
$pawl$;

-- reconcile_change is what a step changes of a tally; NULL if that is nothing. A tally
-- that is NULL is that of no operation.
CREATE FUNCTION {schema}.reconcile_change(p_before integer[], p_after integer[]) RETURNS integer[]
LANGUAGE sql IMMUTABLE AS
$pawl$
    SELECT CASE WHEN p_before IS DISTINCT FROM p_after THEN
        ARRAY(SELECT coalesce(p_after[i], 0) - coalesce(p_before[i], 0) FROM generate_series(1, 9) AS i) END
$pawl$;

-- reconcile_note_changes keeps changes of tallies, one for each account.
CREATE FUNCTION {schema}.reconcile_note_changes(p_kind text, p_accounts text[], p_changes integer[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    IF cardinality(p_accounts) > 0 THEN
        INSERT INTO {schema}.reconcile_deltas (kind, accounts, parts, ns)
        SELECT p_kind, array_agg(p_accounts[i]), array_agg(part), array_agg(p_changes[i][part])
        FROM generate_subscripts(p_accounts, 1) AS i CROSS JOIN generate_series(1, 9) AS part WHERE p_changes[i][part] <> 0;
    END IF;
END
$pawl$;

-- reconcile_sums adds up the changes of some accounts of a kind: behind p_after, or from
-- the first on, until p_until; NULL: to the last. p_ids NULL means all rows.
CREATE FUNCTION {schema}.reconcile_sums(p_kind text, p_after text, p_first boolean, p_until text, p_ids bigint[])
RETURNS TABLE (account text, t bigint[])
LANGUAGE sql STABLE AS
$pawl$
    SELECT x.account, ARRAY[
        coalesce(sum(x.n) FILTER (WHERE x.part = 1), 0), coalesce(sum(x.n) FILTER (WHERE x.part = 2), 0),
        coalesce(sum(x.n) FILTER (WHERE x.part = 3), 0), coalesce(sum(x.n) FILTER (WHERE x.part = 4), 0),
        coalesce(sum(x.n) FILTER (WHERE x.part = 5), 0), coalesce(sum(x.n) FILTER (WHERE x.part = 6), 0),
        coalesce(sum(x.n) FILTER (WHERE x.part = 7), 0), coalesce(sum(x.n) FILTER (WHERE x.part = 8), 0),
        coalesce(sum(x.n) FILTER (WHERE x.part = 9), 0)]::bigint[]
    FROM (
        SELECT y.account COLLATE "C" AS account, y.part, y.n
        FROM {schema}.reconcile_deltas AS d CROSS JOIN LATERAL unnest(d.accounts, d.parts, d.ns) AS y(account, part, n)
        WHERE d.kind = p_kind AND (p_ids IS NULL OR d.id = ANY (p_ids))
    ) AS x
    WHERE (p_first OR x.account > p_after) AND (p_until IS NULL OR x.account <= p_until)
    GROUP BY x.account
$pawl$;

-- reconcile_fold folds changes of a kind into its counts, unless somebody else is doing
-- it. It is called with some probability where the transaction ends at once.
CREATE FUNCTION {schema}.reconcile_fold(p_kind text) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    ids bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(p_kind, '{schema}.reconcile_counts'::regclass::oid::bigint)) THEN
        RETURN;
    END IF;
    ids := ARRAY(SELECT t.id FROM {schema}.reconcile_deltas AS t WHERE t.kind = p_kind ORDER BY t.id LIMIT 1000);
    IF cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.reconcile_counts AS t (kind, account, started, accepted, confirmed, failed, unknown, review, resent, resent_confirmed, waiting)
    SELECT p_kind, s.account, s.t[1], s.t[2], s.t[3], s.t[4], s.t[5], s.t[6], s.t[7], s.t[8], s.t[9]
    FROM {schema}.reconcile_sums(p_kind, '', true, NULL, ids) AS s
    ON CONFLICT (kind, account) DO UPDATE SET
        started = t.started + excluded.started, accepted = t.accepted + excluded.accepted, confirmed = t.confirmed + excluded.confirmed,
        failed = t.failed + excluded.failed, unknown = t.unknown + excluded.unknown, review = t.review + excluded.review,
        resent = t.resent + excluded.resent, resent_confirmed = t.resent_confirmed + excluded.resent_confirmed,
        waiting = t.waiting + excluded.waiting;
    DELETE FROM {schema}.reconcile_counts AS t USING (
        SELECT DISTINCT unnest(d.accounts) AS account FROM {schema}.reconcile_deltas AS d WHERE d.kind = p_kind AND d.id = ANY (ids)
    ) AS a
    WHERE t.kind = p_kind AND t.account = a.account
    AND t.started = 0 AND t.accepted = 0 AND t.confirmed = 0 AND t.failed = 0 AND t.unknown = 0;
    DELETE FROM {schema}.reconcile_deltas AS t WHERE t.kind = p_kind AND t.id = ANY (ids);
END
$pawl$;

-- reconcile_fold_sometimes keeps changes few: some dozens of rows. A caller's transaction
-- (mode 1) would keep others from folding until it ends.
CREATE FUNCTION {schema}.reconcile_fold_sometimes(p_mode integer, p_kind text) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    IF p_mode <> 1 AND random() < 0.03 THEN
        PERFORM {schema}.reconcile_fold(p_kind);
    END IF;
END
$pawl$;

-- reconcile_counted returns the counts of accounts of a kind: behind p_after, or from the
-- first on. It goes through as many rows of accounts at a time as are asked for, since of
-- some of them nothing may be left.
CREATE FUNCTION {schema}.reconcile_counted(p_kind text, p_after text, p_first boolean, p_n integer)
RETURNS TABLE (account text, t bigint[], age bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint := {schema}.reconcile_now();
    names text[];
    until text;
    found integer;
BEGIN
    WHILE p_n > 0 LOOP
        names := ARRAY(SELECT c.account FROM {schema}.reconcile_counts AS c
            WHERE c.kind = p_kind AND (p_first OR c.account > p_after) AND c.account >= p_after ORDER BY c.account LIMIT p_n);
        until := CASE WHEN cardinality(names) = p_n THEN names[p_n] END;
        RETURN QUERY
        SELECT x.account, x.t, (
            SELECT greatest(now - min(o.created), 0) FROM {schema}.reconcile_ops AS o
            WHERE o.kind = p_kind AND o.account = x.account AND (o.state NOT IN (3, 4) OR o.review <> '' OR o.due IS NOT NULL))
        FROM (
            SELECT y.account, ARRAY[sum(y.t[1]), sum(y.t[2]), sum(y.t[3]), sum(y.t[4]), sum(y.t[5]), sum(y.t[6]), sum(y.t[7]), sum(y.t[8]),
                sum(y.t[9])]::bigint[] AS t
            FROM (
                SELECT c.account, ARRAY[c.started, c.accepted, c.confirmed, c.failed, c.unknown, c.review, c.resent, c.resent_confirmed, c.waiting] AS t
                FROM {schema}.reconcile_counts AS c WHERE c.kind = p_kind AND c.account = ANY (names)
                UNION ALL
                SELECT s.account, s.t FROM {schema}.reconcile_sums(p_kind, p_after, p_first, until, NULL) AS s
            ) AS y
            GROUP BY y.account
        ) AS x
        WHERE x.t[1] + x.t[2] + x.t[3] + x.t[4] + x.t[5] > 0
        ORDER BY x.account COLLATE "C" LIMIT p_n;
        GET DIAGNOSTICS found = ROW_COUNT;
        p_n := p_n - found;
        EXIT WHEN until IS NULL;
        p_after := until;
        p_first := false;
    END LOOP;
END
$pawl$;
