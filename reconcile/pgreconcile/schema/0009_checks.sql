-- What checks found and counted. Findings are few: unresolved ones are bounded by their
-- check, and resolved ones expire.

CREATE TABLE {schema}.reconcile_findings (
    version bigint   NOT NULL,
    first   bigint   NOT NULL,
    last    bigint   NOT NULL,
    opened  bigint,
    due     bigint,
    expires bigint,
    count   bigint   NOT NULL,
    times   integer  NOT NULL,
    dropped integer  NOT NULL,                   -- from the log
    layout  smallint NOT NULL,
    state   smallint NOT NULL,                   -- 1 suspected, 2 open, 3 acknowledged, 4 resolved
    outcome smallint NOT NULL,                   -- of the last report that changed it
    nonce   bytea    NOT NULL,                   -- of that report
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,           -- of the check
    subject text COLLATE "C" NOT NULL,
    account text COLLATE "C" NOT NULL,
    detail  text     NOT NULL,
    told_by text     NOT NULL,
    note    text     NOT NULL,
    log     text[]   NOT NULL,                   -- as that of operations, with versions as tokens
    PRIMARY KEY (kind, name, subject)
) WITH (fillfactor = 80, vacuum_truncate = off);

CREATE INDEX reconcile_findings_due ON {schema}.reconcile_findings (kind, name, due) WHERE state < 4;
CREATE INDEX reconcile_findings_expires ON {schema}.reconcile_findings (expires) WHERE expires IS NOT NULL;

CREATE TABLE {schema}.reconcile_cells (
    n       bigint   NOT NULL,
    start   bigint   NOT NULL,
    expires bigint   NOT NULL,
    layout  smallint NOT NULL DEFAULT 1,
    kind    text COLLATE "C" NOT NULL,
    series  text COLLATE "C" NOT NULL,
    writer  bytea    NOT NULL,
    PRIMARY KEY (kind, series, start, writer)
) WITH (fillfactor = 80, vacuum_truncate = off);

CREATE INDEX reconcile_cells_expires ON {schema}.reconcile_cells (expires);

-- reconcile_become gives a finding another state.
CREATE FUNCTION {schema}.reconcile_become(f {schema}.reconcile_findings, p_now bigint, p_state integer, p_by text, p_note text)
RETURNS {schema}.reconcile_findings LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    f.state := p_state; f.told_by := p_by; f.note := p_note;
    f.version := greatest(coalesce(f.version, 0) + 1, p_now);
    IF cardinality(f.log) >= 32 THEN
        f.log := f.log[1:4] || f.log[6:];
        f.dropped := f.dropped + 1;
    END IF;
    f.log := f.log || {schema}.reconcile_line(p_now, 0, p_state, f.version, p_by, p_note);
    RETURN f;
END
$pawl$;

-- reconcile_report applies reports by the rules of reconcile.CheckStore.Report, in their
-- order, and returns the outcome of each. The rows that are there are locked before, in the
-- order of their names. Verbs are 1 suspect, 2 raise, 3 wait, 4 clear, 5 acknowledge,
-- 6 resolve, 7 forget.
CREATE FUNCTION {schema}.reconcile_report(
    p_kind text, p_most integer, p_lull bigint, p_retention bigint, p_verbs smallint[], p_names text[], p_subjects text[], p_nonces bytea[],
    p_versions bigint[], p_ns bigint[], p_delays bigint[], p_accounts text[], p_details text[], p_bys text[], p_notes text[])
RETURNS SETOF integer
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    f         {schema}.reconcile_findings;
    now       bigint;
    new       boolean;
    dismissed boolean;
    was       integer;
    said      integer;
    name      text;
    many      integer;  -- unresolved findings of the check of that name
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    PERFORM FROM (
        SELECT DISTINCT a.name, a.subject FROM unnest(p_names, p_subjects) AS a(name, subject) ORDER BY a.name, a.subject
    ) AS a CROSS JOIN LATERAL (
        SELECT t.state FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.name = a.name AND t.subject = a.subject FOR UPDATE
    ) AS l;
    FOR i IN 1 .. cardinality(p_verbs) LOOP
        LOOP
            SELECT * INTO f FROM {schema}.reconcile_findings AS t
            WHERE t.kind = p_kind AND t.name = p_names[i] AND t.subject = p_subjects[i] FOR UPDATE;
            new := NOT FOUND;
            now := {schema}.reconcile_now();
            IF NOT new AND f.expires IS NOT NULL AND f.expires <= now THEN
                DELETE FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.name = p_names[i] AND t.subject = p_subjects[i];
                new := true;
                f := NULL;
            END IF;
            was := CASE WHEN new THEN 0 ELSE f.state END;
            dismissed := NOT new AND f.state = 4 AND f.told_by <> '' AND now - f.last <= p_lull;
            IF NOT new AND f.nonce = p_nonces[i] THEN                                    -- rule 1
                said := f.outcome;
                EXIT;
            ELSIF p_versions[i] <> 0 AND (new OR f.version <> p_versions[i]) THEN        -- rule 2
                said := 7;
                EXIT;
            ELSIF p_verbs[i] = 7 THEN
                IF NOT new THEN
                    DELETE FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.name = p_names[i] AND t.subject = p_subjects[i];
                    IF name = p_names[i] AND was < 4 THEN
                        many := many - 1;
                    END IF;
                END IF;
                said := 6;
                EXIT;
            ELSIF p_verbs[i] > 2 AND (new OR f.state = 4 OR p_verbs[i] = 5 AND f.state <> 2) THEN
                said := 1;
                EXIT;
            END IF;
            IF p_verbs[i] <= 2 AND (new OR f.state = 4 AND NOT dismissed) THEN           -- rule 3
                IF name IS DISTINCT FROM p_names[i] THEN
                    name := p_names[i];
                    SELECT count(*) INTO many FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.name = p_names[i] AND t.state < 4;
                END IF;
                IF many >= p_most THEN
                    said := 8;
                    EXIT;
                END IF;
            END IF;

            IF new THEN
                f.kind := p_kind; f.name := p_names[i]; f.subject := p_subjects[i]; f.first := now; f.count := 0; f.times := 0;
                f.dropped := 0; f.layout := 1; f.log := '{}'; f.detail := '';
            END IF;
            said := 6;
            IF p_verbs[i] <= 2 THEN
                IF dismissed THEN
                    said := 5;
                    f.expires := now + p_retention;
                ELSIF p_verbs[i] = 1 THEN
                    said := 5;
                    IF new OR f.state = 4 THEN
                        said := 2;
                        f := {schema}.reconcile_become(f, now, 1, p_bys[i], p_notes[i]);
                        f.due := now + p_delays[i]; f.expires := NULL;
                    END IF;
                ELSE
                    said := 5;
                    f.due := now + p_delays[i]; f.expires := NULL;
                    IF new OR f.state IN (1, 4) THEN
                        f := {schema}.reconcile_become(f, now, 2, p_bys[i], p_notes[i]);
                        f.times := f.times + 1;
                        f.opened := now;
                        said := CASE WHEN f.times > 1 THEN 4 ELSE 3 END;
                    END IF;
                END IF;
                f.last := now; f.count := f.count + p_ns[i]; f.account := p_accounts[i];
                IF said <> 5 OR p_verbs[i] = 2 THEN
                    f.detail := p_details[i];
                END IF;
            ELSIF p_verbs[i] = 3 THEN
                f.due := now + p_delays[i];
            ELSIF p_verbs[i] = 5 THEN
                f := {schema}.reconcile_become(f, now, 3, p_bys[i], p_notes[i]);
            ELSIF p_verbs[i] = 4 AND f.state = 1 AND f.times = 0 THEN
                DELETE FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.name = p_names[i] AND t.subject = p_subjects[i];
                f := NULL;
            ELSE
                f := {schema}.reconcile_become(f, now, 4, p_bys[i], p_notes[i]);
                f.due := NULL; f.expires := now + p_retention;
            END IF;
            IF name = p_names[i] THEN
                many := many - (was IN (1, 2, 3))::integer + (coalesce(f.state, 4) < 4)::integer;
            END IF;
            EXIT WHEN f.kind IS NULL;
            f.nonce := p_nonces[i]; f.outcome := said;
            IF NOT new THEN
                UPDATE {schema}.reconcile_findings AS t SET
                    version = f.version, last = f.last, opened = f.opened, due = f.due, expires = f.expires, count = f.count, times = f.times,
                    dropped = f.dropped, state = f.state, outcome = f.outcome, nonce = f.nonce, account = f.account, detail = f.detail,
                    told_by = f.told_by, note = f.note, log = f.log
                WHERE t.kind = p_kind AND t.name = p_names[i] AND t.subject = p_subjects[i];
                EXIT;
            END IF;
            INSERT INTO {schema}.reconcile_findings VALUES (f.*) ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            name := NULL;  -- somebody else has made it
        END LOOP;
        RETURN NEXT said;
    END LOOP;
END
$pawl$;

-- reconcile_claim_findings claims findings by the rules of reconcile.CheckStore.Claim.
CREATE FUNCTION {schema}.reconcile_claim_findings(p_kind text, p_name text, p_n integer, p_hold bigint)
RETURNS TABLE (now bigint, f {schema}.reconcile_findings)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    at bigint := {schema}.reconcile_now();
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT t.ctid AS place, t.due FROM {schema}.reconcile_findings AS t
        WHERE t.kind = p_kind AND t.name = p_name AND t.state < 4 AND t.due <= at
        ORDER BY t.due, t.subject LIMIT p_n FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE {schema}.reconcile_findings AS t SET due = at + p_hold FROM due AS d WHERE t.ctid = d.place
        RETURNING t AS f, d.due
    )
    SELECT at, c.f FROM claimed AS c ORDER BY c.due, (c.f).subject;
END
$pawl$;

-- reconcile_list_findings returns findings by ascending checks and subjects, behind a place.
-- It goes through the findings of the kind, or of the check.
CREATE FUNCTION {schema}.reconcile_list_findings(
    p_kind text, p_name text, p_subject text, p_account text, p_state integer, p_unresolved boolean, p_after_name text, p_after_subject text,
    p_n integer)
RETURNS TABLE (now bigint, f {schema}.reconcile_findings)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    at bigint := {schema}.reconcile_now();
BEGIN
    RETURN QUERY
    SELECT at, t FROM {schema}.reconcile_findings AS t
    WHERE t.kind = p_kind AND (t.name, t.subject) > (p_after_name, p_after_subject)
    AND t.name >= p_name AND (p_name = '' OR t.name <= p_name) AND (p_subject = '' OR t.subject = p_subject)
    AND (p_account = '' OR t.account = p_account) AND (p_state = 0 OR t.state = p_state) AND (NOT p_unresolved OR t.state < 4)
    AND (t.expires IS NULL OR t.expires > at)
    ORDER BY t.name, t.subject LIMIT p_n;
END
$pawl$;

-- reconcile_open_findings counts what is unresolved.
CREATE FUNCTION {schema}.reconcile_open_findings(p_kind text)
RETURNS TABLE (name text, suspected bigint, open bigint, acknowledged bigint, age bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $pawl$
    SELECT t.name, count(*) FILTER (WHERE t.state = 1), count(*) FILTER (WHERE t.state = 2), count(*) FILTER (WHERE t.state = 3),
        greatest({schema}.reconcile_now() - min(t.opened) FILTER (WHERE t.state > 1), 0)
    FROM {schema}.reconcile_findings AS t WHERE t.kind = p_kind AND t.state < 4 GROUP BY t.name ORDER BY t.name
$pawl$;

-- reconcile_count keeps the greatest count of each cell. The arrays are sorted and name each
-- cell once.
CREATE FUNCTION {schema}.reconcile_count(p_kind text, p_keep bigint, p_series text[], p_starts bigint[], p_writers bytea[], p_ns bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $pawl$
DECLARE
    now bigint := {schema}.reconcile_now();
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    INSERT INTO {schema}.reconcile_cells AS t (n, start, expires, kind, series, writer)
    SELECT a.n, a.start, a.start + p_keep, p_kind, a.series, a.writer
    FROM unnest(p_series, p_starts, p_writers, p_ns) AS a(series, start, writer, n)
    WHERE a.start BETWEEN now - p_keep AND now + p_keep
    ON CONFLICT (kind, series, start, writer) DO UPDATE SET n = greatest(t.n, excluded.n), expires = excluded.expires
    WHERE t.n < excluded.n OR t.expires <> excluded.expires;
END
$pawl$;

-- reconcile_volumes returns sums of series, behind one, for some starts.
CREATE FUNCTION {schema}.reconcile_volumes(p_kind text, p_after text, p_n integer, p_starts bigint[])
RETURNS TABLE (series text, since bigint, sums bigint[])
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
BEGIN
    FOR i IN 1 .. p_n LOOP
        SELECT t.series, t.start INTO series, since FROM {schema}.reconcile_cells AS t
        WHERE t.kind = p_kind AND t.series > p_after ORDER BY t.series, t.start LIMIT 1;
        EXIT WHEN NOT FOUND;
        p_after := series;
        sums := ARRAY(
            SELECT (SELECT coalesce(sum(t.n), 0)::bigint FROM {schema}.reconcile_cells AS t
                WHERE t.kind = p_kind AND t.series = p_after AND t.start = a.start)
            FROM unnest(p_starts) WITH ORDINALITY AS a(start, nth) ORDER BY a.nth);
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- reconcile_sweep_checks removes at most p_n findings that have expired, and p_n cells.
CREATE FUNCTION {schema}.reconcile_sweep_checks(p_n integer)
RETURNS TABLE (removed integer, looked integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint := {schema}.reconcile_now();
    cells integer;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    WITH gone AS (
        DELETE FROM {schema}.reconcile_findings AS t USING (
            SELECT x.ctid AS place FROM {schema}.reconcile_findings AS x WHERE x.expires <= now ORDER BY x.expires LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS e WHERE t.ctid = e.place RETURNING t.state
    ) SELECT count(*) INTO removed FROM gone;
    WITH gone AS (
        DELETE FROM {schema}.reconcile_cells AS t USING (
            SELECT x.ctid AS place FROM {schema}.reconcile_cells AS x WHERE x.expires < now ORDER BY x.expires LIMIT p_n FOR UPDATE SKIP LOCKED
        ) AS e WHERE t.ctid = e.place RETURNING t.n
    ) SELECT count(*) INTO cells FROM gone;
    looked := greatest(removed, cells);
    removed := removed + cells;
    RETURN NEXT;
END
$pawl$;
