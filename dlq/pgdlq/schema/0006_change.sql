-- dlq_change applies what persons decided, one change after another, and returns the
-- outcome of each that was not applied: 1 not found, 2 the state does not allow it,
-- 3 it was changed, 4 locked. Kinds are 1 edit, 2 approve, 3 reject, 4 discard, 5 skip,
-- 6 forget, 7 note.
--
-- With p_approves all are of the kind approve and of different letters.
--
-- Changes of one stream take turns, until they are committed: so the audit is in
-- the order in which it becomes visible, and who reads on behind an entry misses none.
CREATE FUNCTION {schema}.dlq_change(
    p_mode integer, p_approves boolean, p_retention bigint, p_audit bigint, p_kinds smallint[], p_nonces bytea[], p_streams text[], p_ids text[], p_seqs bigint[],
    p_bodies bytea[], p_befores bytea[], p_afters bytea[], p_jobs text[], p_verbs text[], p_actors text[], p_reasons text[])
RETURNS TABLE (n integer, outcome integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    name text;
    done bigint[] := '{}';
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    FOR name IN SELECT DISTINCT u.s FROM unnest(p_streams) AS u(s) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(name, '{schema}.dlq_entries'::regclass::oid::bigint));
    END LOOP;
    IF p_approves AND p_mode = 0 THEN
        done := {schema}.dlq_approve(2, p_audit, p_nonces, p_streams, p_ids, p_seqs, p_befores, p_jobs, p_actors, p_reasons);
    END IF;
    IF p_mode = 0 AND cardinality(done) < cardinality(p_kinds) THEN
        -- In the order of lanes, as settlements do.
        PERFORM FROM (
            SELECT t.stream, t.seq FROM unnest(p_streams, p_seqs) AS a(stream, seq)
            CROSS JOIN LATERAL (
                SELECT x.stream, x.seq, x.lane FROM {schema}.dlq_letters AS x WHERE x.stream = a.stream AND x.seq = a.seq OFFSET 0
            ) AS t
            ORDER BY t.stream, t.lane, t.seq
        ) AS c
        CROSS JOIN LATERAL (SELECT x.seq FROM {schema}.dlq_letters AS x WHERE x.stream = c.stream AND x.seq = c.seq FOR UPDATE) AS l;
        IF p_approves THEN
            done := done || {schema}.dlq_approve(1, p_audit, p_nonces, p_streams, p_ids, p_seqs, p_befores, p_jobs, p_actors, p_reasons);
        END IF;
    END IF;
    FOR i IN 1 .. CASE WHEN cardinality(done) = cardinality(p_kinds) THEN 0 ELSE cardinality(p_kinds) END LOOP
        CONTINUE WHEN p_seqs[i] = ANY (done);
        n := i;
        IF p_mode = 0 THEN
            outcome := {schema}.dlq_change_one({schema}.dlq_now(), i, p_retention, p_audit, p_kinds[i], p_nonces[i], p_streams[i], p_ids[i],
                p_seqs[i], coalesce(p_bodies[i], ''), p_befores[i], p_afters[i], p_jobs[i], p_verbs[i], p_actors[i], p_reasons[i]);
        ELSE
            BEGIN
                outcome := {schema}.dlq_change_one({schema}.dlq_now(), i, p_retention, p_audit, p_kinds[i], p_nonces[i], p_streams[i], p_ids[i],
                    p_seqs[i], coalesce(p_bodies[i], ''), p_befores[i], p_afters[i], p_jobs[i], p_verbs[i], p_actors[i], p_reasons[i]);
            EXCEPTION WHEN lock_not_available THEN
                outcome := 4;
            END;
        END IF;
        IF outcome > 0 THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    PERFORM {schema}.dlq_fold_sometimes(p_mode, p_streams[1], cardinality(p_kinds) - cardinality(done));
END
$pawl$;

-- dlq_change_one applies a change by the rules of dlq.Store.Change.
CREATE FUNCTION {schema}.dlq_change_one(
    p_now bigint, p_nth integer, p_retention bigint, p_audit bigint, p_kind integer, p_nonce bytea, p_stream text, p_id text, p_seq bigint,
    p_body bytea, p_before bytea, p_after bytea, p_job text, p_verb text, p_actor text, p_reason text)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r      record;
    k      record;
    digest bytea;
    moves  integer := 0;
    w      integer;
    v      integer;
BEGIN
    IF p_id <> '' THEN
        PERFORM FROM {schema}.dlq_entries AS t WHERE t.id = p_id AND t.id <> '' AND t.nonce = p_nonce AND t.stream || '' = p_stream;
    ELSE
        PERFORM FROM {schema}.dlq_entries AS t WHERE t.nonce = p_nonce AND t.id = '' AND t.stream || '' = p_stream;
    END IF;
    IF FOUND THEN
        RETURN 0;
    END IF;
    IF p_kind = 7 AND p_seq = 0 THEN
        INSERT INTO {schema}.dlq_entries (seq, at, expires, letter, stream, id, job, verb, actor, reason, nonce)
        VALUES (nextval('{schema}.dlq_seq'::regclass), p_now, p_now + p_audit, 0, p_stream, p_id, p_job, p_verb, p_actor, p_reason, p_nonce);
        RETURN 0;
    END IF;
    SELECT t.seq, t.id, t.key, t.lane, t.rank, t.state, t.aside, t.digest, t.fingerprint, t.job, t.counted INTO r
    FROM {schema}.dlq_letters AS t WHERE t.stream = p_stream AND t.seq = p_seq AND t.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 1;
    ELSIF p_kind < 6 AND (r.state > 2 OR p_kind = 5 AND r.aside) THEN
        RETURN 2;
    ELSIF p_before IS NOT NULL AND p_before <> r.digest THEN
        RETURN 3;
    ELSIF p_kind = 2 AND p_job <> '' AND NOT EXISTS (SELECT FROM {schema}.dlq_jobs AS t WHERE t.stream = p_stream AND t.id = p_job) THEN
        RETURN 1;
    END IF;
    digest := CASE p_kind WHEN 1 THEN p_after WHEN 6 THEN NULL ELSE r.digest END;
    w := CASE WHEN r.state = 1 THEN 1 ELSE 0 END;
    v := CASE WHEN r.state = 2 THEN 1 ELSE 0 END;

    IF p_kind < 7 THEN
        -- What a lane counts of its first letter goes back to it, and its worker loses it.
        IF r.state <= 2 AND r.rank = 0 THEN
            SELECT t.begun, t.tries INTO k FROM {schema}.dlq_lanes AS t WHERE t.stream = p_stream AND t.lane = r.lane FOR UPDATE;
            IF FOUND AND k.begun = r.seq THEN
                UPDATE {schema}.dlq_letters AS t SET tries = k.tries, settled_by = 0 WHERE t.stream = p_stream AND t.seq = r.seq;
                UPDATE {schema}.dlq_lanes AS t SET begun = NULL WHERE t.stream = p_stream AND t.lane = r.lane;
            END IF;
        END IF;
        moves := CASE WHEN r.counted AND r.state <= 2 THEN 1 ELSE 0 END;
    END IF;
    IF p_kind = 1 THEN
        UPDATE {schema}.dlq_letters AS t SET original = coalesce(t.original, t.body), body = p_body, digest = p_after, counted = false
        WHERE t.stream = p_stream AND t.seq = r.seq;
        w := 0; v := 0;
    ELSIF p_kind = 2 THEN
        UPDATE {schema}.dlq_letters AS t SET
            state = 1, tries = 0, next = p_now, due = CASE WHEN t.rank = 0 THEN p_now END,
            counted = p_job <> '', job = CASE WHEN p_job <> '' THEN p_job ELSE t.job END
        WHERE t.stream = p_stream AND t.seq = r.seq;
        w := -v;  -- from review to waiting
    ELSIF p_kind IN (3, 4) THEN
        UPDATE {schema}.dlq_letters AS t SET
            state = CASE p_kind WHEN 3 THEN 5 ELSE 4 END, ended = t.seq, next = NULL, due = NULL, counted = false,
            settled = p_now, expires = p_now + p_retention
        WHERE t.stream = p_stream AND t.seq = r.seq;
    ELSIF p_kind = 5 THEN
        UPDATE {schema}.dlq_letters AS t SET
            state = 2, aside = true, lane = {schema}.dlq_lane(t.id, t.key, true), rank = 0, next = NULL, due = NULL, counted = false
        WHERE t.stream = p_stream AND t.seq = r.seq;
        v := -w;  -- from waiting to review
    ELSIF p_kind = 6 THEN
        DELETE FROM {schema}.dlq_letters AS t WHERE t.stream = p_stream AND t.seq = r.seq;
    END IF;
    IF p_kind BETWEEN 3 AND 6 AND r.state <= 2 AND r.rank = 0 THEN
        UPDATE {schema}.dlq_lanes AS t SET expires = p_now + p_retention WHERE t.stream = p_stream AND t.lane = r.lane;
        PERFORM {schema}.dlq_promote(p_stream, r.lane, p_now);
    END IF;

    IF p_kind < 7 AND (moves > 0 OR w <> 0 OR v <> 0 OR r.state > 2) THEN
        INSERT INTO {schema}.dlq_deltas (at, nth, waiting, review, resolved, discarded, rejected, moved, stream, print, job)
        VALUES (p_now, p_nth, -w, -v, CASE WHEN r.state = 3 THEN -1 ELSE 0 END,
            CASE WHEN r.state = 4 THEN -1 WHEN p_kind = 4 THEN 1 ELSE 0 END, CASE WHEN r.state = 5 THEN -1 WHEN p_kind = 3 THEN 1 ELSE 0 END,
            moves, p_stream, CASE WHEN r.state <= 2 THEN r.fingerprint ELSE '' END, CASE WHEN moves > 0 THEN r.job ELSE '' END);
    END IF;
    IF p_kind = 2 AND p_job <> '' THEN
        INSERT INTO {schema}.dlq_deltas (at, nth, released, stream, job) VALUES (p_now, p_nth, 1, p_stream, p_job);
    END IF;
    INSERT INTO {schema}.dlq_entries (seq, at, expires, letter, stream, id, job, verb, actor, reason, nonce, before, after)
    VALUES (nextval('{schema}.dlq_seq'::regclass), p_now, p_now + p_audit, r.seq, p_stream, r.id, CASE WHEN p_kind IN (2, 7) THEN p_job ELSE '' END,
        p_verb, p_actor, p_reason, p_nonce, r.digest, digest);
    RETURN 0;
END
$pawl$;

-- dlq_approve approves the letters of a batch that are in a state in few statements, and
-- returns the numbers of those that it has approved. The others are left to
-- dlq_change_one. Those in review nobody works, so they are not locked before: what
-- is changed while this waits is left out. Those that wait are locked.
CREATE FUNCTION {schema}.dlq_approve(
    p_state integer, p_audit bigint, p_nonces bytea[], p_streams text[], p_ids text[], p_seqs bigint[], p_befores bytea[], p_jobs text[],
    p_actors text[], p_reasons text[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    now     bigint := {schema}.dlq_now();
    done    bigint[];
    streams text[];
    lanes   text[];
    taken   bigint[];
BEGIN
    WITH good AS MATERIALIZED (
        SELECT a.*, r.lane, r.digest, r.fingerprint, r.counted, r.job AS old_job, k.begun
        FROM unnest(p_nonces, p_streams, p_ids, p_seqs, p_befores, p_jobs, p_actors, p_reasons) WITH ORDINALITY
            AS a(nonce, stream, id, seq, before, job, actor, reason, n)
        CROSS JOIN LATERAL (
            SELECT t.lane, t.digest, t.fingerprint, t.counted, t.job FROM {schema}.dlq_letters AS t
            WHERE t.stream = a.stream AND t.seq = a.seq AND t.id || '' = a.id AND t.state + 0 = p_state OFFSET 0
        ) AS r
        LEFT JOIN LATERAL (
            SELECT t.begun FROM {schema}.dlq_lanes AS t WHERE p_state = 1 AND t.stream = a.stream AND t.lane = r.lane AND t.begun = a.seq OFFSET 0
        ) AS k ON true
        WHERE (a.before IS NULL OR a.before = r.digest)
        AND NOT EXISTS (
            SELECT FROM {schema}.dlq_entries AS t
            WHERE t.id = a.id AND t.id <> '' AND t.nonce = a.nonce AND t.stream || '' = a.stream OFFSET 0)
        AND (a.job = '' OR EXISTS (SELECT FROM {schema}.dlq_jobs AS t WHERE t.stream = a.stream AND t.id = a.job OFFSET 0))
        ORDER BY a.stream, r.lane, a.seq  -- as settlements lock
    ), letters AS (
        UPDATE {schema}.dlq_letters AS t SET
            state = 1, tries = 0, next = now, due = CASE WHEN t.rank = 0 THEN now END,
            settled_by = CASE WHEN g.begun IS NULL THEN t.settled_by ELSE 0 END,
            counted = g.job <> '', job = CASE WHEN g.job <> '' THEN g.job ELSE t.job END
        FROM good AS g WHERE t.stream = g.stream AND t.seq = g.seq
        AND t.state + 0 = p_state AND t.digest = g.digest AND t.fingerprint || '' = g.fingerprint AND t.counted = g.counted
        RETURNING g.*
    ), entries AS (
        INSERT INTO {schema}.dlq_entries (seq, at, expires, letter, stream, id, job, verb, actor, reason, nonce, before, after)
        SELECT nextval('{schema}.dlq_seq'::regclass), now, now + p_audit, l.seq, l.stream, l.id, l.job, 'approve', l.actor, l.reason, l.nonce,
            l.digest, l.digest
        FROM (SELECT * FROM letters AS o ORDER BY o.n) AS l
    ), deltas AS (
        INSERT INTO {schema}.dlq_deltas (at, waiting, review, released, moved, stream, print, job)
        SELECT now, sum(u.waiting), -sum(u.waiting), sum(u.released), sum(u.moved), u.stream, u.print, u.job FROM (
            SELECT p_state - 1 AS waiting, 0 AS released, CASE WHEN l.counted THEN 1 ELSE 0 END AS moved,
                l.stream, l.fingerprint AS print, CASE WHEN l.counted THEN l.old_job ELSE '' END AS job
            FROM letters AS l
            UNION ALL
            SELECT 0, 1, 0, l.stream, '', l.job FROM letters AS l WHERE l.job <> ''
        ) AS u
        GROUP BY u.stream, u.print, u.job
    )
    SELECT coalesce(array_agg(l.seq), '{}'), array_agg(l.stream) FILTER (WHERE l.begun IS NOT NULL),
        array_agg(l.lane) FILTER (WHERE l.begun IS NOT NULL), array_agg(l.begun) FILTER (WHERE l.begun IS NOT NULL)
    INTO done, streams, lanes, taken FROM letters AS l;
    -- One by one: a join could be planned, while there are few lanes, to go through all of them.
    FOR i IN 1 .. coalesce(cardinality(taken), 0) LOOP
        UPDATE {schema}.dlq_lanes AS t SET begun = NULL WHERE t.stream = streams[i] AND t.lane = lanes[i] AND t.begun = taken[i];
    END LOOP;
    RETURN done;
END
$pawl$;
