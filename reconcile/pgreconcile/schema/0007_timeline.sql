-- Observations, and what is dropped of messages that have too many. An observation is
-- inserted once and never changed.
--
-- A subject is what an observation is about: 'm' and the message, or 'o' and the
-- caller's own ID. Its observations are numbered, and the number is unique: two transactions
-- that add to one subject take turns, and neither adds too many.

CREATE TABLE {schema}.reconcile_observations (
    received    bigint   NOT NULL,
    said        bigint,                          -- NULL: no time was said
    expires     bigint   NOT NULL,               -- of the last one of a subject counts
    nth         integer  NOT NULL,
    layout      smallint NOT NULL DEFAULT 1,
    absurd      boolean  NOT NULL,
    digest      bytea    NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    event       text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,
    own         text COLLATE "C" NOT NULL,       -- beside a message; otherwise it is the subject
    status      text     NOT NULL,
    participant text     NOT NULL,
    source      text     NOT NULL,
    code        text     NOT NULL,
    PRIMARY KEY (event, kind),                   -- what tells most stands first: each lookup has one index
    UNIQUE (subject, kind, nth)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, vacuum_truncate = off);

CREATE INDEX reconcile_observations_own ON {schema}.reconcile_observations (own, kind) WHERE own <> '';

CREATE TABLE {schema}.reconcile_dropped (
    dropped bigint   NOT NULL,
    layout  smallint NOT NULL DEFAULT 1,
    kind    text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    last    text COLLATE "C" NOT NULL,           -- the event that was dropped last
    PRIMARY KEY (kind, subject)
) WITH (fillfactor = 70, vacuum_truncate = off);

-- reconcile_append stores observations by the rules of reconcile.TimelineStore.Append. The
-- arrays have one item for each, sorted by subject, those of one subject in order;
-- p_places says the how many-th of its subject in the batch it is; 0: it has the event of
-- another.
--
-- Every observation that was not stored in the first attempt has a row with its answer: 1
-- appended, 2 repeated, 3 differs, 4 overflow. 0010_append.sql replaces it.
CREATE FUNCTION {schema}.reconcile_append(
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
    BEGIN
        WITH fresh AS (
            INSERT INTO {schema}.reconcile_observations (received, said, expires, nth, absurd, digest, kind, event, subject, own, status, participant,
                source, code)
            SELECT now, a.said, now + p_retention, coalesce(b.nth, 0) + a.place, a.said IS NULL OR a.said > now + p_ahead OR a.said < now - p_behind,
                a.digest, p_kind, a.event, a.subject, a.own, a.status, a.participant, a.source, a.code
            FROM unnest(p_places, p_saids, p_digests, p_events, p_subjects, p_owns, p_statuses, p_participants, p_sources, p_codes)
                AS a(place, said, digest, event, subject, own, status, participant, source, code)
            LEFT JOIN LATERAL (
                SELECT t.nth FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.subject = a.subject ORDER BY t.subject DESC, t.kind DESC, t.nth DESC LIMIT 1
            ) AS b ON true
            LEFT JOIN LATERAL (
                SELECT t.nth FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.event = a.event OFFSET 0
            ) AS k ON true
            WHERE a.place > 0 AND coalesce(b.nth, 0) + a.place <= p_most AND k.nth IS NULL
            RETURNING event
        )
        SELECT coalesce(array_agg(f.event), '{}') INTO added FROM fresh AS f;  -- in the order of p_events
    EXCEPTION WHEN unique_violation THEN
        added := '{}';  -- somebody else does the same: one after the other, then
    END;
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
            top := coalesce(top, 0);
            -- Numbers of observations that were known before are left out.
            IF top >= p_most AND (
                SELECT count(*) FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.subject = p_subjects[i]
            ) >= p_most THEN
                INSERT INTO {schema}.reconcile_dropped AS t (dropped, kind, subject, last) VALUES (1, p_kind, p_subjects[i], p_events[i])
                ON CONFLICT (kind, subject) DO UPDATE SET dropped = t.dropped + 1, last = excluded.last WHERE t.last <> excluded.last;
                answer := 4;
                EXIT;
            END IF;
            now := {schema}.reconcile_now();
            INSERT INTO {schema}.reconcile_observations (received, said, expires, nth, absurd, digest, kind, event, subject, own, status,
                participant, source, code)
            VALUES (now, p_saids[i], now + p_retention, top + 1,
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

-- reconcile_subjects are what one reference is about, and what belongs to it.
CREATE FUNCTION {schema}.reconcile_subjects(p_kind text, p_event text, p_message text, p_own text) RETURNS text[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    about    text := CASE WHEN p_message <> '' THEN 'm' || p_message ELSE 'o' || p_own END;
    subjects text[];
BEGIN
    IF p_event <> '' THEN
        SELECT t.subject INTO about FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.event = p_event;
    END IF;
    IF about LIKE 'm%' THEN
        subjects := ARRAY(
            SELECT DISTINCT 'o' || t.own FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.subject = about AND t.own <> '');
    ELSE
        subjects := ARRAY(
            SELECT DISTINCT t.subject FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.own <> '' AND t.own = substr(about, 2));
    END IF;
    RETURN subjects || about;
END
$pawl$;

-- reconcile_history returns the first p_n of what belongs to one reference. The last row has
-- a nth of 0, and how many were dropped in received.
CREATE FUNCTION {schema}.reconcile_history(p_kind text, p_event text, p_message text, p_own text, p_n integer)
RETURNS TABLE (nth integer, received bigint, said bigint, absurd boolean, digest bytea, event text, subject text, own text, status text,
    participant text, source text, code text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    subjects text[] := {schema}.reconcile_subjects(p_kind, p_event, p_message, p_own);
BEGIN
    RETURN QUERY SELECT t.nth, t.received, t.said, t.absurd, t.digest, t.event, t.subject, t.own, t.status, t.participant, t.source, t.code
        FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.subject = ANY (subjects) ORDER BY t.received, t.event LIMIT p_n;
    nth := 0;
    SELECT sum(t.dropped) INTO received FROM {schema}.reconcile_dropped AS t WHERE t.kind = p_kind AND t.subject = ANY (subjects);
    RETURN NEXT;
END
$pawl$;

-- reconcile_forget erases all of what belongs to one reference, and returns how many
-- observations that were.
CREATE FUNCTION {schema}.reconcile_forget(p_kind text, p_event text, p_message text, p_own text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
DECLARE
    subjects text[];
    gone     bigint;
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    subjects := {schema}.reconcile_subjects(p_kind, p_event, p_message, p_own);
    DELETE FROM {schema}.reconcile_observations AS t WHERE t.kind = p_kind AND t.subject = ANY (subjects);
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM {schema}.reconcile_dropped AS t WHERE t.kind = p_kind AND t.subject = ANY (subjects);
    RETURN gone;
END
$pawl$;
