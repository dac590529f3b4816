-- reconcile_append and reconcile_sweep_timeline, in place of those of 0007_timeline.sql and
-- 0008_sweep.sql. The first looks up no events of messages of which nothing was said
-- before, and lists what it stored only where that is not all. A number that was left out
-- is given later, so that the highest is not always the newest.
--
-- reconcile_append stores observations by the rules of reconcile.TimelineStore.Append. The
-- arrays have one item for each, sorted by subject, those of one subject in order;
-- p_places says the how many-th of its subject in the batch it is; 0: it has the event of
-- another.
--
-- Every observation that was not stored together with others has a row with its answer: 1
-- appended, 2 repeated, 3 differs, 4 overflow.
CREATE OR REPLACE FUNCTION {schema}.reconcile_append(
    p_kind text, p_ahead bigint, p_behind bigint, p_most integer, p_retention bigint, p_places integer[], p_saids bigint[], p_digests bytea[],
    p_events text[], p_subjects text[], p_owns text[], p_statuses text[], p_participants text[], p_sources text[], p_codes text[])
RETURNS TABLE (n integer, answer integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint;
    added text[];
    at    integer := 1;
    known bytea;
    top   integer;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    now := {schema}.reconcile_now();
    -- An event is about one message: of one that is new, no event is known, as a rule. If
    -- one is, or somebody else stores the same, the second attempt looks up each.
    FOR look IN 1 .. 2 LOOP
        BEGIN
            WITH fresh AS (
                INSERT INTO {schema}.reconcile_observations (received, said, expires, nth, absurd, digest, kind, event, subject, own, status,
                    participant, source, code)
                SELECT now, a.said, now + p_retention, coalesce(b.nth, 0) + a.place,
                    a.said IS NULL OR a.said > now + p_ahead OR a.said < now - p_behind,
                    a.digest, p_kind, a.event, a.subject, a.own, a.status, a.participant, a.source, a.code
                FROM unnest(p_places, p_saids, p_digests, p_events, p_subjects, p_owns, p_statuses, p_participants, p_sources, p_codes)
                    AS a(place, said, digest, event, subject, own, status, participant, source, code)
                LEFT JOIN LATERAL (
                    SELECT t.nth FROM {schema}.reconcile_observations AS t
                    WHERE t.kind = p_kind AND t.subject = a.subject ORDER BY t.subject DESC, t.kind DESC, t.nth DESC LIMIT 1
                ) AS b ON true
                LEFT JOIN LATERAL (
                    SELECT t.nth FROM {schema}.reconcile_observations AS t
                    WHERE t.kind = p_kind AND t.event = a.event AND (look = 2 OR b.nth IS NOT NULL) OFFSET 0
                ) AS k ON true
                WHERE a.place > 0 AND coalesce(b.nth, 0) + a.place <= p_most AND k.nth IS NULL
                RETURNING event
            )
            SELECT CASE WHEN (SELECT count(*) FROM fresh) = cardinality(p_events) THEN p_events
                ELSE ARRAY(SELECT f.event FROM fresh AS f) END INTO added;  -- in the order of p_events
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            added := '{}';  -- somebody else again: one after the other, then
        END;
    END LOOP;
    IF cardinality(added) = cardinality(p_events) THEN
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(p_events) LOOP
        IF at <= cardinality(added) AND added[at] = p_events[i] THEN
            at := at + 1;
            CONTINUE;
        END IF;
        n := i;
        LOOP
            SELECT t.digest INTO known FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.event = p_events[i];
            IF FOUND THEN
                answer := CASE WHEN known = p_digests[i] THEN 2 ELSE 3 END;
                EXIT;
            END IF;
            SELECT t.nth INTO top FROM {schema}.reconcile_observations AS t
            WHERE t.kind = p_kind AND t.subject = p_subjects[i] ORDER BY t.subject DESC, t.kind DESC, t.nth DESC LIMIT 1;
            top := coalesce(top, 0) + 1;
            -- Numbers of observations that were known before were left out. None is above
            -- p_most, so that no two callers can store more than that between them.
            IF top > p_most THEN
                SELECT min(s.i) INTO top FROM (
                    SELECT t.nth, row_number() OVER (ORDER BY t.nth) AS i FROM {schema}.reconcile_observations AS t
                    WHERE t.kind = p_kind AND t.subject = p_subjects[i]
                ) AS s WHERE s.nth > s.i AND s.i <= p_most;
            END IF;
            IF top IS NULL THEN
                INSERT INTO {schema}.reconcile_dropped AS t (dropped, kind, subject, last) VALUES (1, p_kind, p_subjects[i], p_events[i])
                ON CONFLICT (kind, subject) DO UPDATE SET dropped = t.dropped + 1, last = excluded.last WHERE t.last <> excluded.last;
                answer := 4;
                EXIT;
            END IF;
            now := {schema}.reconcile_now();
            INSERT INTO {schema}.reconcile_observations (received, said, expires, nth, absurd, digest, kind, event, subject, own, status,
                participant, source, code)
            VALUES (now, p_saids[i], now + p_retention, top,
                p_saids[i] IS NULL OR p_saids[i] > now + p_ahead OR p_saids[i] < now - p_behind,
                p_digests[i], p_kind, p_events[i], p_subjects[i], p_owns[i], p_statuses[i], p_participants[i], p_sources[i], p_codes[i])
            ON CONFLICT DO NOTHING;
            answer := 1;
            EXIT WHEN FOUND;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- reconcile_sweep_timeline removes what was said of messages of which nothing new has come
-- for their retention: it looks at p_n subjects behind the one that is named.
CREATE OR REPLACE FUNCTION {schema}.reconcile_sweep_timeline(p_n integer, p_kind text, p_subject text)
RETURNS TABLE (removed integer, looked integer, next_kind text, next_subject text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.reconcile_now();
    last record;
    gone integer;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    removed := 0; looked := 0; next_kind := p_kind; next_subject := p_subject;
    WHILE looked < p_n LOOP
        SELECT t.kind, t.subject INTO last FROM {schema}.reconcile_observations AS t
        WHERE (t.subject, t.kind) > (next_subject, next_kind) ORDER BY t.subject, t.kind LIMIT 1;
        IF NOT FOUND THEN
            next_kind := NULL; next_subject := NULL;
            EXIT;
        END IF;
        next_kind := last.kind; next_subject := last.subject;
        looked := looked + 1;
        SELECT t.expires INTO last FROM {schema}.reconcile_observations AS t
        WHERE t.kind = next_kind AND t.subject = next_subject ORDER BY t.subject DESC, t.kind DESC, t.nth DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND OR last.expires > now;  -- of most, one row tells
        CONTINUE WHEN EXISTS (
            SELECT FROM {schema}.reconcile_observations AS t WHERE t.kind = next_kind AND t.subject = next_subject AND t.expires > now);
        -- What is appended meanwhile has not expired, and stays.
        DELETE FROM {schema}.reconcile_observations AS t WHERE t.kind = next_kind AND t.subject = next_subject AND t.expires <= now;
        GET DIAGNOSTICS gone = ROW_COUNT;
        removed := removed + gone;
        DELETE FROM {schema}.reconcile_dropped AS t WHERE t.kind = next_kind AND t.subject = next_subject;
    END LOOP;
    RETURN NEXT;
END
$pawl$;
