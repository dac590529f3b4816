-- dlq_settle applies settlements. The arrays have one item for each, sorted by
-- stream and lane, those of one lane in order; p_places says where each stands in the
-- batch. With p_resolves all are of the kind resolve, and of different lanes and letters. p_mode is
-- 0 in a transaction of its own, 1 in a caller's; 2 as 0, and what is locked by others
-- is answered for.
--
-- Every settlement that was not applied has a row: 1 stale, 2 locked.
CREATE FUNCTION {schema}.dlq_settle(
    p_mode integer, p_resolves boolean, p_retention bigint, p_places integer[], p_kinds smallint[], p_streams text[], p_lanes text[],
    p_tokens bigint[], p_seqs bigint[], p_times bigint[], p_prints text[], p_details bytea[], p_delays bigint[])
RETURNS TABLE (n integer, outcome integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint;
    done bigint[] := '{}';
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    IF p_resolves AND p_mode = 0 THEN
        done := {schema}.dlq_resolve(p_retention, p_streams, p_lanes, p_tokens, p_seqs);
    END IF;
    IF cardinality(done) < cardinality(p_kinds) THEN
        FOR i IN 1 .. cardinality(p_kinds) LOOP
            CONTINUE WHEN p_seqs[i] = ANY (done);
            n := i;
            now := {schema}.dlq_now();
            IF p_mode = 0 THEN
                outcome := {schema}.dlq_settle_one(now, p_places[i], p_retention, p_kinds[i], p_streams[i], p_lanes[i], p_tokens[i], p_seqs[i],
                    p_times[i], p_prints[i], p_details[i], coalesce(p_delays[i], 0));
            ELSE
                BEGIN
                    outcome := {schema}.dlq_settle_one(now, p_places[i], p_retention, p_kinds[i], p_streams[i], p_lanes[i], p_tokens[i],
                        p_seqs[i], p_times[i], p_prints[i], p_details[i], coalesce(p_delays[i], 0));
                EXCEPTION WHEN lock_not_available THEN
                    outcome := 2;
                END;
            END IF;
            IF outcome > 0 THEN
                RETURN NEXT;
            END IF;
        END LOOP;
    END IF;
    PERFORM {schema}.dlq_fold_sometimes(p_mode, p_streams[1], cardinality(p_kinds) - cardinality(done));
END
$pawl$;

-- dlq_settle_one applies a settlement by the rules of dlq.Store.Settle. Kinds are
-- 1 resolve, 2 retry, 3 review, 4 release, 5 extend. p_delay is the delay of a retry, or
-- the lease.
CREATE FUNCTION {schema}.dlq_settle_one(
    p_now bigint, p_nth integer, p_retention bigint, p_kind integer, p_stream text, p_lane text, p_token bigint, p_seq bigint,
    p_time bigint, p_print text, p_detail bytea, p_delay bigint)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r    {schema}.dlq_letters;
    k    {schema}.dlq_lanes;
    mine boolean;
BEGIN
    SELECT * INTO r FROM {schema}.dlq_letters AS t WHERE t.stream = p_stream AND t.seq = p_seq AND t.lane = p_lane FOR UPDATE;
    SELECT * INTO k FROM {schema}.dlq_lanes AS t WHERE t.stream = p_stream AND t.lane = p_lane FOR UPDATE;
    mine := coalesce(k.begun = r.seq, false);
    IF r.settled_by = p_token AND r.settled_as = p_kind AND p_token > 0 AND NOT mine THEN
        RETURN 0;  -- applied before
    ELSIF k.token IS NULL OR k.token <> p_token OR p_token <= 0 THEN
        RETURN 1;
    ELSIF k.until IS NULL THEN
        RETURN CASE WHEN p_kind = 4 THEN 0 ELSE 1 END;
    ELSIF p_kind = 5 THEN
        UPDATE {schema}.dlq_lanes AS t SET until = p_now + p_delay WHERE t.stream = p_stream AND t.lane = p_lane;
        RETURN 0;
    ELSIF p_kind NOT BETWEEN 1 AND 4 OR p_kind < 4 AND NOT mine THEN
        RETURN 1;
    END IF;

    IF mine THEN
        IF p_kind IN (2, 3) THEN
            r := {schema}.dlq_fail(r, p_now, p_nth, p_time, coalesce(p_print, ''), coalesce(p_detail, ''));
            PERFORM {schema}.dlq_keep_log(r);
        END IF;
        IF p_kind <> 4 THEN
            INSERT INTO {schema}.dlq_deltas (at, nth, waiting, review, resolved, passed, failed, stream, print, job)
            SELECT p_now, p_nth, CASE WHEN p_kind IN (1, 3) THEN -1 ELSE 0 END, CASE WHEN p_kind = 3 THEN 1 ELSE 0 END,
                CASE WHEN p_kind = 1 THEN 1 ELSE 0 END, CASE WHEN r.counted AND p_kind = 1 THEN 1 ELSE 0 END,
                CASE WHEN r.counted AND p_kind <> 1 THEN 1 ELSE 0 END, p_stream, r.fingerprint, CASE WHEN r.counted THEN r.job ELSE '' END
            WHERE p_kind <> 2 OR r.counted;
        END IF;
        UPDATE {schema}.dlq_letters AS t SET
            tries = k.tries - CASE WHEN p_kind = 4 THEN 1 ELSE 0 END,
            settled_by = p_token, settled_as = p_kind, counted = t.counted AND p_kind = 4,
            state = CASE p_kind WHEN 1 THEN 3 WHEN 3 THEN 2 ELSE t.state END,
            ended = CASE WHEN p_kind = 1 THEN t.seq ELSE 0 END,
            next = CASE p_kind WHEN 2 THEN p_now + p_delay WHEN 4 THEN t.next END,
            due = CASE p_kind WHEN 2 THEN p_now + p_delay WHEN 4 THEN greatest(t.next, p_now) END,
            settled = CASE WHEN p_kind = 1 THEN p_now END, expires = CASE WHEN p_kind = 1 THEN p_now + p_retention END
        WHERE t.stream = p_stream AND t.seq = r.seq;
    ELSE
        IF k.begun IS NOT NULL THEN  -- released by the name of another letter
            UPDATE {schema}.dlq_letters AS t SET tries = k.tries, settled_by = 0 WHERE t.stream = p_stream AND t.seq = k.begun;
        END IF;
        UPDATE {schema}.dlq_letters AS t SET due = greatest(t.next, p_now)
        WHERE t.lane = p_lane AND t.rank = 0 AND t.state <= 2 AND coalesce(t.due, -1) >= 0 AND t.stream || '' = p_stream;
    END IF;
    UPDATE {schema}.dlq_lanes AS t SET until = NULL, begun = NULL, expires = p_now + p_retention WHERE t.stream = p_stream AND t.lane = p_lane;
    IF p_kind = 1 THEN
        PERFORM {schema}.dlq_promote(p_stream, p_lane, p_now);
    END IF;
    RETURN 0;
END
$pawl$;

-- dlq_promote makes the next letter of a lane its first, after the first has left it.
-- Others may be changing those behind it.
CREATE FUNCTION {schema}.dlq_promote(p_stream text, p_lane text, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    at bigint;
BEGIN
    LOOP
        SELECT t.seq INTO at FROM {schema}.dlq_letters AS t
        WHERE t.lane = p_lane AND t.state <= 2 AND t.stream || '' = p_stream ORDER BY t.rank LIMIT 1;
        EXIT WHEN NOT FOUND;
        UPDATE {schema}.dlq_letters AS t SET rank = 0, due = CASE WHEN t.state = 1 THEN greatest(t.next, p_now) END
        WHERE t.stream = p_stream AND t.seq = at AND t.lane = p_lane AND t.state <= 2;
        EXIT WHEN FOUND;
    END LOOP;
END
$pawl$;

-- dlq_resolve resolves all letters of a batch that are begun under the tokens, in few
-- statements, and returns their numbers. It reads lanes before it has locked them: where
-- one has been taken away meanwhile it does nothing at all, and all are settled one by one.
CREATE FUNCTION {schema}.dlq_resolve(p_retention bigint, p_streams text[], p_lanes text[], p_tokens bigint[], p_seqs bigint[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    now     bigint := {schema}.dlq_now();
    done    bigint[];
    streams text[];
    lanes   text[];
    tokens  bigint[];
    prints  text[];
    jobs    text[];
    held    integer;
    w       record;
BEGIN
    -- jobs has NULL where no job waits for the letter.
    BEGIN
        WITH begun AS MATERIALIZED (
            SELECT a.stream, a.lane, a.token, a.seq, k.tries FROM unnest(p_streams, p_lanes, p_tokens, p_seqs) AS a(stream, lane, token, seq)
            CROSS JOIN LATERAL (
                SELECT t.tries FROM {schema}.dlq_lanes AS t
                WHERE t.stream = a.stream AND t.lane = a.lane AND t.token = a.token AND t.begun = a.seq AND coalesce(t.until, 0) > 0 OFFSET 0
            ) AS k
        ), letters AS (
            UPDATE {schema}.dlq_letters AS t SET
                tries = b.tries, settled_by = b.token, settled_as = 1, state = 3, ended = t.seq, next = NULL, due = NULL,
                settled = now, expires = now + p_retention
            FROM begun AS b WHERE t.stream = b.stream AND t.seq = b.seq AND t.lane || '' = b.lane
            RETURNING t.stream, t.lane, t.seq, b.token, t.fingerprint, CASE WHEN t.counted THEN t.job END AS job
        )
        SELECT array_agg(l.seq), array_agg(l.stream), array_agg(l.lane), array_agg(l.token), array_agg(l.fingerprint), array_agg(l.job)
        INTO done, streams, lanes, tokens, prints, jobs FROM letters AS l;
        IF done IS NULL THEN
            RETURN '{}';
        END IF;
        UPDATE {schema}.dlq_lanes AS t SET until = NULL, begun = NULL, expires = now + p_retention
        FROM unnest(streams, lanes, tokens, done) AS b(stream, lane, token, seq)
        WHERE t.stream = b.stream AND t.lane = b.lane AND t.token = b.token AND t.begun = b.seq AND coalesce(t.until, 0) > 0;
        GET DIAGNOSTICS held = ROW_COUNT;
        IF held < cardinality(done) THEN
            RAISE EXCEPTION 'a lane was taken away' USING ERRCODE = 'DLQ01';
        END IF;
    EXCEPTION WHEN SQLSTATE 'DLQ01' THEN
        RETURN '{}';
    END;
    now := {schema}.dlq_now();  -- this may have waited, and a group is counted in the order of what became of it
    INSERT INTO {schema}.dlq_deltas (at, waiting, resolved, passed, stream, print, job)
    SELECT now, -count(*), count(*), CASE WHEN b.job IS NOT NULL THEN count(*) ELSE 0 END, b.stream, b.print, coalesce(b.job, '')
    FROM unnest(streams, prints, jobs) AS b(stream, print, job) GROUP BY b.stream, b.print, b.job;
    -- Those behind them. A letter without key has nobody behind it.
    FOR w IN
        SELECT b.stream, b.lane FROM unnest(streams, lanes) AS b(stream, lane)
        WHERE left(b.lane, 1) = 'k' AND EXISTS (
            SELECT FROM {schema}.dlq_letters AS t WHERE t.lane = b.lane AND t.state <= 2 AND t.rank > 0 AND t.stream || '' = b.stream OFFSET 0)
    LOOP
        PERFORM {schema}.dlq_promote(w.stream, w.lane, now);
    END LOOP;
    RETURN done;
END
$pawl$;
