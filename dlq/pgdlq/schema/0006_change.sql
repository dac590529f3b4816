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
    IF p_mode = 0 THEN
        -- In the order of lanes, as settlements do.
        PERFORM FROM (
            SELECT t.stream, t.seq FROM unnest(p_streams, p_seqs) AS a(stream, seq)
            CROSS JOIN LATERAL (
                SELECT x.stream, x.seq, x.lane FROM {schema}.dlq_letters AS x WHERE x.stream = a.stream AND x.seq = a.seq OFFSET 0
            ) AS t
            ORDER BY t.stream, t.lane, t.seq
        ) AS c
        CROSS JOIN LATERAL (SELECT x.seq FROM {schema}.dlq_letters AS x WHERE x.stream = c.stream AND x.seq = c.seq FOR UPDATE) AS l;
    END IF;
    IF p_approves AND p_mode = 0 THEN
        done := {schema}.dlq_approve(p_audit, p_nonces, p_streams, p_ids, p_seqs, p_befores, p_jobs, p_actors, p_reasons);
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
    IF EXISTS (SELECT FROM {schema}.dlq_entries AS t WHERE t.nonce = p_nonce AND t.stream || '' = p_stream) THEN
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
        moves := CASE WHEN r.counted THEN 1 ELSE 0 END;
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

-- dlq_approve approves letters that are locked in few statements, and returns the numbers of those that
-- it has approved. The others are left to dlq_change_one.
CREATE FUNCTION {schema}.dlq_approve(
    p_audit bigint, p_nonces bytea[], p_streams text[], p_ids text[], p_seqs bigint[], p_befores bytea[], p_jobs text[], p_actors text[],
    p_reasons text[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    now  bigint;
    done bigint[];
BEGIN
    now := {schema}.dlq_now();
    WITH good AS MATERIALIZED (
        SELECT a.*, r.state, r.digest, r.fingerprint, r.counted, r.job AS old_job, k.begun
        FROM unnest(p_nonces, p_streams, p_ids, p_seqs, p_befores, p_jobs, p_actors, p_reasons) WITH ORDINALITY
            AS a(nonce, stream, id, seq, before, job, actor, reason, n)
        CROSS JOIN LATERAL (
            SELECT t.lane, t.state, t.digest, t.fingerprint, t.counted, t.job FROM {schema}.dlq_letters AS t
            WHERE t.stream = a.stream AND t.seq = a.seq AND t.id || '' = a.id AND t.state + 0 <= 2 OFFSET 0
        ) AS r
        LEFT JOIN LATERAL (
            SELECT t.begun FROM {schema}.dlq_lanes AS t WHERE r.state = 1 AND t.stream = a.stream AND t.lane = r.lane AND t.begun = a.seq OFFSET 0
        ) AS k ON true
        WHERE (a.before IS NULL OR a.before = r.digest)
        AND NOT EXISTS (SELECT FROM {schema}.dlq_entries AS t WHERE t.nonce = a.nonce AND t.stream || '' = a.stream OFFSET 0)
        AND (a.job = '' OR EXISTS (SELECT FROM {schema}.dlq_jobs AS t WHERE t.stream = a.stream AND t.id = a.job OFFSET 0))
    ), letters AS (
        UPDATE {schema}.dlq_letters AS t SET
            state = 1, tries = 0, next = now, due = CASE WHEN t.rank = 0 THEN now END,
            settled_by = CASE WHEN g.begun IS NULL THEN t.settled_by ELSE 0 END,
            counted = g.job <> '', job = CASE WHEN g.job <> '' THEN g.job ELSE t.job END
        FROM good AS g WHERE t.stream = g.stream AND t.seq = g.seq
        RETURNING t.stream, t.lane, t.seq, g.begun
    ), lanes AS (
        UPDATE {schema}.dlq_lanes AS t SET begun = NULL
        FROM letters AS l WHERE l.begun IS NOT NULL AND t.stream = l.stream AND t.lane = l.lane AND t.begun = l.seq
    ), entries AS (
        INSERT INTO {schema}.dlq_entries (seq, at, expires, letter, stream, id, job, verb, actor, reason, nonce, before, after)
        SELECT nextval('{schema}.dlq_seq'::regclass), now, now + p_audit, g.seq, g.stream, g.id, g.job, 'approve', g.actor, g.reason, g.nonce,
            g.digest, g.digest
        FROM (SELECT * FROM good AS o ORDER BY o.n) AS g
    ), deltas AS (
        INSERT INTO {schema}.dlq_deltas (at, waiting, review, released, moved, stream, print, job)
        SELECT now, sum(u.waiting), -sum(u.waiting), sum(u.released), sum(u.moved), u.stream, u.print, u.job FROM (
            SELECT CASE WHEN g.state = 2 THEN 1 ELSE 0 END AS waiting, 0 AS released, CASE WHEN g.counted THEN 1 ELSE 0 END AS moved,
                g.stream, g.fingerprint AS print, CASE WHEN g.counted THEN g.old_job ELSE '' END AS job
            FROM good AS g
            UNION ALL
            SELECT 0, 1, 0, g.stream, '', g.job FROM good AS g WHERE g.job <> ''
        ) AS u
        GROUP BY u.stream, u.print, u.job
    )
    SELECT coalesce(array_agg(g.seq), '{}') INTO done FROM good AS g;
    RETURN done;
END
$pawl$;

-- dlq_job_row is a job as it is read. p_outcome: 0 done, 1 not found, 3 it was changed.
CREATE TYPE {schema}.dlq_job_row AS (
    outcome smallint, stream text, id text, nonce bytea, version bigint, data bytea, ended boolean, created bigint, updated bigint,
    released bigint, passed bigint, failed bigint, moved bigint
);

-- dlq_save_job stores a job by the rules of dlq.Store.SaveJob.
CREATE FUNCTION {schema}.dlq_save_job(
    p_retention bigint, p_stream text, p_id text, p_nonce bytea, p_version bigint, p_data bytea, p_ended boolean)
RETURNS SETOF {schema}.dlq_job_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint;
    j    {schema}.dlq_jobs;
    why  smallint := 0;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    now := {schema}.dlq_now();
    IF p_version = 0 THEN
        INSERT INTO {schema}.dlq_jobs (version, created, updated, expires, ended, stream, id, nonce, data)
        VALUES (1, now, now, now + p_retention, p_ended, p_stream, p_id, p_nonce, p_data) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- What an earlier job of this name released counts for it no longer.
            UPDATE {schema}.dlq_deltas AS t SET job = '' WHERE t.stream = p_stream AND t.job = p_id;
            DELETE FROM {schema}.dlq_counts AS t WHERE t.kind = 2 AND t.stream = p_stream AND t.name = p_id;
            RETURN QUERY SELECT 0::smallint, p_stream, p_id, p_nonce, 1::bigint, p_data, p_ended, now, now, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO j FROM {schema}.dlq_jobs AS t WHERE t.stream = p_stream AND t.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 1::smallint, p_stream, p_id, p_nonce, 0::bigint, NULL::bytea, false, now, now, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF j.nonce = p_nonce THEN
        NULL;
    ELSIF j.version <> p_version THEN
        why := 3;
    ELSE
        UPDATE {schema}.dlq_jobs AS t SET
            version = t.version + 1, updated = now, expires = now + p_retention, ended = p_ended, nonce = p_nonce, data = p_data
        WHERE t.stream = p_stream AND t.id = p_id;
    END IF;
    RETURN QUERY SELECT why, t.stream, t.id, t.nonce, t.version, t.data, t.ended, t.created, t.updated, t.released, t.passed, t.failed, t.moved
    FROM {schema}.dlq_list_jobs(p_stream, p_id, true, 1) AS t;
END
$pawl$;

-- dlq_list_jobs reads jobs behind a name, or from it on, with what is counted of them.
CREATE FUNCTION {schema}.dlq_list_jobs(p_stream text, p_from text, p_with boolean, p_n integer) RETURNS SETOF {schema}.dlq_job_row
LANGUAGE sql VOLATILE AS
$pawl$
    SELECT 0::smallint, j.stream, j.id, j.nonce, j.version, j.data, j.ended, j.created, j.updated,
        coalesce(c.a, 0) + d.released, coalesce(c.b, 0) + d.passed, coalesce(c.c, 0) + d.failed, coalesce(c.d, 0) + d.moved
    FROM (
        SELECT * FROM {schema}.dlq_jobs AS t
        WHERE t.stream = p_stream AND t.id >= p_from AND (p_with OR t.id > p_from) ORDER BY t.id LIMIT p_n
    ) AS j
    LEFT JOIN LATERAL (
        SELECT * FROM {schema}.dlq_counts AS t WHERE t.kind = 2 AND t.stream = p_stream AND t.name = j.id OFFSET 0
    ) AS c ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(t.released), 0)::bigint AS released, coalesce(sum(t.passed), 0)::bigint AS passed,
            coalesce(sum(t.failed), 0)::bigint AS failed, coalesce(sum(t.moved), 0)::bigint AS moved
        FROM {schema}.dlq_deltas AS t WHERE t.stream = p_stream AND t.job = j.id
    ) AS d
    ORDER BY j.id
$pawl$;

-- dlq_alert says which alarms are the first of their window. It goes through them in
-- order; a batch locks the rows of its fingerprints in ascending order before.
CREATE FUNCTION {schema}.dlq_alert(p_nonces bytea[], p_streams text[], p_prints text[], p_windows bigint[])
RETURNS TABLE (n integer, first boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint;
    a   {schema}.dlq_alarms;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    FOR a.stream, a.print IN SELECT DISTINCT u.s, u.p FROM unnest(p_streams, p_prints) AS u(s, p) ORDER BY 1, 2 LOOP
        INSERT INTO {schema}.dlq_alarms AS t (until, stream, print, nonce) VALUES (0, a.stream, a.print, '')
        ON CONFLICT (stream, print) DO UPDATE SET nonce = t.nonce;
    END LOOP;
    now := {schema}.dlq_now();
    FOR i IN 1 .. cardinality(p_nonces) LOOP
        n := i;
        SELECT * INTO a FROM {schema}.dlq_alarms AS t WHERE t.stream = p_streams[i] AND t.print = p_prints[i];
        first := true;
        IF a.nonce = p_nonces[i] THEN
            NULL;
        ELSIF now < a.until THEN
            first := false;
        ELSE
            UPDATE {schema}.dlq_alarms AS t SET nonce = p_nonces[i], until = now + p_windows[i]
            WHERE t.stream = p_streams[i] AND t.print = p_prints[i];
        END IF;
        RETURN NEXT;
    END LOOP;
END
$pawl$;
