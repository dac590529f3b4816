-- inbox_settle applies settlements. The arrays have one item for each key and
-- round, in ascending order of the keys within a round: what becomes of a record
-- (p_ends: 0 nothing, else the kind, 2 done, 3 retry, 4 dead, 5 quarantine,
-- 8 unknown), and what follows for the key (p_follows: 0 nothing, else the kind,
-- 1 begin, 6 release, 7 extend). p_times is the delay of a retry, or the lease. p_seqs
-- and p_follow_seqs are the numbers of the records; 0 or NULL is any.
--
-- p_mode is what happens at a key that another transaction has locked: 0 waits as
-- long as lock_timeout allows, and fails; 2 waits as long, and answers for it.
--
-- Rows are written where they were found, by ctid: under the lock of the key nobody
-- moves them, and there is no other way to plan it. A key is found when it is locked.
--
-- Every settlement that was not applied has a row: ended and followed are 1 for
-- one that is stale, and 2 for one whose key stayed locked.
CREATE FUNCTION {schema}.inbox_settle(
    p_mode integer, p_retention bigint, p_keep bigint, p_bodies bigint,
    p_rounds smallint[], p_streams text[], p_keys text[], p_tokens bigint[], p_ends smallint[], p_ids text[], p_errors text[],
    p_failures bytea[], p_follows smallint[], p_follow_ids text[], p_times bigint[], p_seqs bigint[], p_follow_seqs bigint[])
RETURNS TABLE (n integer, ended integer, followed integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now    bigint;
    locked boolean[];
    places tid[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.inbox_check_isolation();
    END IF;
    IF p_mode = 0 THEN
        places := ARRAY(
            SELECT k.at FROM unnest(p_streams, p_keys, p_rounds) WITH ORDINALITY AS a(stream, key, round, n)
            LEFT JOIN LATERAL (
                SELECT t.ctid AS at FROM {schema}.inbox_keys AS t WHERE t.key = a.key AND t.stream = a.stream FOR NO KEY UPDATE
            ) AS k ON true
            WHERE a.round = 1);
    ELSE
        locked := {schema}.inbox_lock_each(p_streams, p_keys);
    END IF;
    FOR turn IN 1 .. coalesce(p_rounds[cardinality(p_rounds)], 0) LOOP
        IF turn > 1 OR places IS NULL THEN  -- those of the round before have moved
            places := ARRAY(
                SELECT k.at FROM unnest(p_streams, p_keys, p_rounds) WITH ORDINALITY AS a(stream, key, round, n)
                LEFT JOIN LATERAL (
                    SELECT t.ctid AS at FROM {schema}.inbox_keys AS t
                    WHERE a.round = turn AND t.key = a.key AND t.stream = a.stream OFFSET 0
                ) AS k ON true);
        END IF;
        now := {schema}.inbox_now();
        RETURN QUERY
        WITH answer AS MATERIALIZED (
            SELECT a.*, r.seq, r.at AS record_at, r.parked, k.tries, k.begun, b.seq AS next_seq, b.attempts AS next_attempts,
                CASE
                    WHEN NOT coalesce(a.locked, true) THEN 2
                    WHEN a.end_kind = 0 THEN 0
                    WHEN r.done_by IS NOT NULL THEN CASE WHEN r.done_by = a.token AND a.end_kind = 2 THEN 0 ELSE 1 END
                    WHEN r.state <> 1 THEN CASE
                        WHEN r.ended_by = a.token AND r.state = CASE a.end_kind WHEN 2 THEN 2 WHEN 4 THEN 3 WHEN 5 THEN 4 WHEN 8 THEN 6 END
                        THEN 0 ELSE 1 END
                    WHEN k.token IS NULL OR k.token <> a.token OR r.seq IS NULL OR k.begun IS DISTINCT FROM r.seq THEN 1
                    WHEN k.lease_until IS NULL THEN CASE WHEN a.end_kind = 3 THEN 0 ELSE 1 END
                    ELSE 10 END AS is_ended,
                CASE
                    WHEN NOT coalesce(a.locked, true) THEN 2
                    WHEN a.follow = 0 THEN 0
                    WHEN a.follow = 1 AND (b.state IS DISTINCT FROM 1 OR b.done) THEN 1
                    WHEN k.token IS NULL OR k.token <> a.token THEN 1
                    WHEN k.lease_until IS NULL THEN CASE WHEN a.follow = 6 THEN 0 ELSE 1 END
                    WHEN a.follow <> 1 THEN 10
                    WHEN k.begun = b.seq THEN 0
                    WHEN EXISTS (
                        -- A record that was committed late may have a number below that which
                        -- was begun: it has no order with it, and its turn comes later.
                        SELECT FROM {schema}.inbox_records AS t
                        WHERE t.stream = a.stream AND t.key = a.key AND t.state = 1 AND t.seq >= k.begun AND t.seq < b.seq
                        AND (t.seq <> k.begun OR a.end_kind NOT IN (2, 4, 5, 8) OR r.seq IS DISTINCT FROM k.begun)
                        AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL
                    ) THEN 1
                    ELSE 10 END AS is_followed
            FROM unnest(p_rounds, p_streams, p_keys, p_tokens, p_ends, p_ids, p_errors, p_failures, p_follows, p_follow_ids, p_times,
                p_seqs, p_follow_seqs, locked, places)
                WITH ORDINALITY AS a(round, stream, key, token, end_kind, end_id, error, failures, follow, follow_id, time,
                end_seq, follow_seq, locked, key_at, n)
            LEFT JOIN LATERAL (
                SELECT t.token, t.lease_until, t.begun, t.tries FROM {schema}.inbox_keys AS t
                WHERE t.ctid = a.key_at AND t.key = a.key AND t.stream = a.stream OFFSET 0
            ) AS k ON true
            LEFT JOIN LATERAL (  -- by its number where there is one, which costs less
                SELECT f.*, CASE WHEN k.begun = f.seq AND k.tries > 0 THEN NULL  -- its end would have made that 0
                    ELSE (SELECT d.ended_by FROM {schema}.inbox_done AS d WHERE d.seq = f.seq) END AS done_by FROM (
                    SELECT t.ctid AS at, t.seq, t.state, t.ended_by, t.parked FROM {schema}.inbox_records AS t
                    WHERE a.end_kind <> 0 AND a.end_seq > 0 AND t.seq = a.end_seq AND t.id || '' = a.end_id
                    AND t.rank < 16 AND t.stream || '' = a.stream AND t.key = a.key
                    UNION ALL
                    SELECT t.ctid AS at, t.seq, t.state, t.ended_by, t.parked FROM {schema}.inbox_records AS t
                    WHERE a.end_kind <> 0 AND coalesce(a.end_seq, 0) = 0 AND t.id = a.end_id
                    AND t.rank < 16 AND t.stream || '' = a.stream AND t.key = a.key
                ) AS f LIMIT 1
            ) AS r ON true
            LEFT JOIN LATERAL (
                SELECT f.*, (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = f.seq) IS NOT NULL AS done FROM (
                    SELECT t.seq, t.state, t.attempts FROM {schema}.inbox_records AS t
                    WHERE a.follow = 1 AND a.follow_seq > 0 AND t.seq = a.follow_seq AND t.id || '' = a.follow_id
                    AND t.rank < 16 AND t.stream || '' = a.stream AND t.key = a.key
                    UNION ALL
                    SELECT t.seq, t.state, t.attempts FROM {schema}.inbox_records AS t
                    WHERE a.follow = 1 AND coalesce(a.follow_seq, 0) = 0 AND t.id = a.follow_id
                    AND t.rank < 16 AND t.stream || '' = a.stream AND t.key = a.key
                ) AS f LIMIT 1
            ) AS b ON true
            WHERE a.round = turn
        ), records AS (
            UPDATE {schema}.inbox_records AS t SET
                state = CASE a.end_kind WHEN 2 THEN 2 WHEN 4 THEN 3 WHEN 5 THEN 4 WHEN 8 THEN 6 ELSE 1 END,
                attempts = a.tries,
                last_error = CASE a.end_kind WHEN 2 THEN t.last_error ELSE coalesce(a.error, '') END,
                failures = CASE a.end_kind WHEN 2 THEN t.failures ELSE a.failures END,
                next = CASE a.end_kind WHEN 3 THEN now + coalesce(a.time, 0) END,
                parked = a.end_kind = 3,
                ended_by = CASE a.end_kind WHEN 3 THEN NULL ELSE a.token END,
                settled = CASE a.end_kind WHEN 3 THEN NULL ELSE now END,
                expires = CASE a.end_kind WHEN 2 THEN now + p_retention WHEN 4 THEN now + p_keep WHEN 5 THEN now + p_keep END,
                erases = CASE a.end_kind WHEN 2 THEN now + coalesce(nullif(p_bodies, 0), p_retention)
                    WHEN 4 THEN now + p_keep WHEN 5 THEN now + p_keep END
            FROM answer AS a
            WHERE a.is_ended = 10 AND (a.end_kind <> 2 OR a.parked) AND t.ctid = a.record_at AND t.state + 0 = 1
        ), done AS (
            INSERT INTO {schema}.inbox_done (seq, ended_by, settled, expires, erases, attempts)
            SELECT a.seq, a.token, now, now + p_retention, now + coalesce(nullif(p_bodies, 0), p_retention), a.tries
            FROM answer AS a WHERE a.is_ended = 10 AND a.end_kind = 2 AND NOT a.parked
        ), keys AS (
            UPDATE {schema}.inbox_keys AS t SET
                lease_until = CASE WHEN a.end_kind = 3 AND a.is_ended = 10 OR a.follow = 6 AND a.is_followed = 10 THEN NULL
                    WHEN a.follow = 7 AND a.is_followed = 10 THEN now + coalesce(a.time, 0) ELSE t.lease_until END,
                due = CASE WHEN a.end_kind = 3 AND a.is_ended = 10 THEN now + coalesce(a.time, 0)
                    WHEN a.follow = 7 AND a.is_followed = 10 THEN now + coalesce(a.time, 0)
                    WHEN a.follow = 6 AND a.is_followed = 10 THEN CASE WHEN EXISTS (
                        SELECT FROM {schema}.inbox_records AS p
                        WHERE p.stream = a.stream AND p.key = a.key AND p.state = 1 AND p.seq >= t.low AND (a.is_ended <> 10 OR p.seq <> a.seq)
                        AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = p.seq) IS NULL
                    ) THEN now END
                    ELSE t.due END,
                begun = CASE WHEN a.follow = 1 AND a.is_followed = 10 THEN a.next_seq ELSE t.begun END,
                tries = CASE WHEN a.follow = 1 AND a.is_followed = 10 THEN a.next_attempts + 1
                    WHEN a.is_ended = 10 AND a.end_kind <> 3 THEN 0 ELSE t.tries END,
                expires = now + p_retention
            FROM answer AS a
            WHERE (a.is_ended = 10 OR a.is_followed = 10) AND t.ctid = a.key_at
        )
        SELECT a.n::integer, a.is_ended, a.is_followed FROM answer AS a WHERE a.is_ended IN (1, 2) OR a.is_followed IN (1, 2);
    END LOOP;
END
$pawl$;

-- inbox_lock_each locks keys one by one, and says of each whether it could. One
-- that has no row counts as locked. It waits for the first that is locked, as long as
-- lock_timeout allows, and hardly for those after it.
CREATE FUNCTION {schema}.inbox_lock_each(p_streams text[], p_keys text[]) RETURNS boolean[]
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    locked boolean[] := '{}';
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_keys), 0) LOOP
        BEGIN
            PERFORM FROM {schema}.inbox_keys AS t WHERE t.key = p_keys[i] AND t.stream = p_streams[i] FOR NO KEY UPDATE;
            locked := locked || true;
        EXCEPTION WHEN lock_not_available THEN
            locked := locked || false;
            PERFORM set_config('lock_timeout', '1ms', true);  -- the others of the batch have waited, too
        END;
    END LOOP;
    RETURN locked;
END
$pawl$;
