-- dlq_put stores letters. The arrays have one item for each, in ascending order of
-- stream and lane, and those of one ID or one lane in the order of the batch, in which
-- p_places says where each stands: so batches do not wait for each other in a circle.
-- p_ways says how: 1 in one statement with the others, if nothing is known of its ID
-- and its lane; 2 alone, after those. p_mode is 1 in a caller's transaction.
--
-- The first row has n = 0, and answer is how many letters were stored in one statement.
-- If that is not all of them, every letter has a row: 1 added, 2 duplicate, 3 not
-- blocked, 4 full.
--
-- A letter without another in its lane takes no lock: the unique index of lanes makes
-- sure that it is the only first. One that parks locks the first of its lane, so
-- that whoever takes that away sees what parks behind it.
CREATE FUNCTION {schema}.dlq_put(
    p_mode integer, p_capacity bigint, p_places integer[], p_ways smallint[], p_nonces bytea[], p_streams text[], p_ids text[],
    p_keys text[], p_bodies bytea[], p_digests bytea[], p_times bigint[], p_prints text[], p_details bytea[], p_delays bigint[], p_blocked boolean[])
RETURNS TABLE (n integer, answer integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint;
    size  integer := cardinality(p_ids);
    tight boolean;
    seqs  bigint[];
    fresh bigint[] := '{}';
    i     integer;
BEGIN
    PERFORM {schema}.dlq_check_isolation();
    now := {schema}.dlq_now();
    SELECT bool_or({schema}.dlq_unresolved(s.stream) + s.letters > p_capacity) INTO tight
    FROM (SELECT u.stream, count(*) AS letters FROM unnest(p_streams) AS u(stream) GROUP BY u.stream) AS s;
    seqs := ARRAY(SELECT nextval('{schema}.dlq_seq'::regclass) FROM generate_series(1, size));

    IF NOT tight AND 1 = ANY (p_ways) THEN
        -- Without ON CONFLICT, which is dear where there is none: what is known is left out,
        -- and if another transaction puts the same at this moment, all are put alone.
        BEGIN
            WITH inserted AS (
                INSERT INTO {schema}.dlq_letters (seq, rank, due, next, put, digest, put_by, stream, id, key, lane, fingerprint,
                    log_times, log_prints, log_details, body)
                SELECT seqs[a.place], 0, now + a.delay, now + a.delay, now, a.digest, a.nonce, a.stream, a.id, a.key, a.lane, coalesce(a.print, ''),
                    CASE WHEN a.print <> '' THEN ARRAY[a.time] END, CASE WHEN a.print <> '' THEN ARRAY[a.print] END,
                    CASE WHEN a.print <> '' THEN ARRAY[coalesce(a.detail, '')] END, coalesce(a.body, '')
                FROM (
                    SELECT u.*, {schema}.dlq_lane(u.id, u.key, false) AS lane
                    FROM unnest(p_places, p_ways, p_nonces, p_streams, p_ids, p_keys, p_bodies, p_digests, p_times, p_prints, p_details, p_delays)
                        AS u(place, way, nonce, stream, id, key, body, digest, time, print, detail, delay)
                ) AS a
                WHERE a.way = 1
                AND NOT EXISTS (SELECT FROM {schema}.dlq_letters AS t
                    WHERE t.id = a.id AND (t.ended + 0 = 0 OR t.put_by = a.nonce) AND t.stream || '' = a.stream OFFSET 0)
                AND NOT EXISTS (SELECT FROM {schema}.dlq_letters AS t
                    WHERE t.lane = a.lane AND t.rank = 0 AND t.state <= 2 AND t.stream || '' = a.stream OFFSET 0)
                RETURNING seq
            )
            SELECT coalesce(array_agg(seq), '{}') INTO fresh FROM inserted;
        EXCEPTION WHEN unique_violation THEN
            fresh := '{}';
        END;
    END IF;

    n := 0; answer := cardinality(fresh);
    RETURN NEXT;
    IF answer = size THEN
        INSERT INTO {schema}.dlq_deltas (at, waiting, failure, stream, print)
        SELECT now, count(*), true, u.stream, coalesce(u.print, '') FROM unnest(p_streams, p_prints) AS u(stream, print)
        GROUP BY u.stream, coalesce(u.print, '');
        GET DIAGNOSTICS i = ROW_COUNT;
    ELSE
        INSERT INTO {schema}.dlq_deltas (at, nth, waiting, failure, stream, print)
        SELECT now, u.place, 1, true, u.stream, coalesce(u.print, '')
        FROM unnest(p_places, p_streams, p_prints) AS u(place, stream, print)
        WHERE seqs[u.place] IN (SELECT unnest(fresh));
        FOR i, answer IN
            SELECT u.n, CASE WHEN f.seq IS NOT NULL THEN 1 ELSE 0 END
            FROM unnest(p_places) WITH ORDINALITY AS u(place, n) LEFT JOIN unnest(fresh) AS f(seq) ON f.seq = seqs[u.place]
            ORDER BY CASE WHEN tight THEN u.place ELSE u.n END  -- where there is not room for all, the first come first
        LOOP
            n := i;
            IF answer = 0 THEN
                answer := {schema}.dlq_put_one(now, p_places[i], seqs[p_places[i]], CASE WHEN tight THEN p_capacity END, p_nonces[i], p_streams[i], p_ids[i],
                    p_keys[i], coalesce(p_bodies[i], ''), p_digests[i], p_times[i], coalesce(p_prints[i], ''), coalesce(p_details[i], ''),
                    p_delays[i], p_blocked[i]);
            END IF;
            RETURN NEXT;
        END LOOP;
    END IF;
    PERFORM {schema}.dlq_fold_sometimes(p_mode, p_streams[1], i);
END
$pawl$;

-- dlq_put_one puts a letter by the rules of dlq.Store.Put, in their order. The room is
-- looked at if p_capacity is not NULL.
CREATE FUNCTION {schema}.dlq_put_one(
    p_now bigint, p_nth integer, p_seq bigint, p_capacity bigint, p_nonce bytea, p_stream text, p_id text, p_key text, p_body bytea,
    p_digest bytea, p_time bigint, p_print text, p_detail bytea, p_delay bigint, p_blocked boolean)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r    {schema}.dlq_letters;
    last record;
    name text := {schema}.dlq_lane(p_id, p_key, false);
    head bigint;
    top  bigint;
BEGIN
    FOR i IN 1 .. 100 LOOP
        SELECT * INTO r FROM {schema}.dlq_letters AS t WHERE t.id = p_id AND t.ended = 0 AND t.stream || '' = p_stream FOR UPDATE;
        IF FOUND THEN
            IF r.put_by = p_nonce THEN
                RETURN r.put_as;
            END IF;
            IF p_print <> '' THEN
                r := {schema}.dlq_fail(r, p_now, p_nth, p_time, p_print, p_detail);
                PERFORM {schema}.dlq_keep_log(r);
                PERFORM {schema}.dlq_interrupt(r, p_now + p_delay);
            END IF;
            UPDATE {schema}.dlq_letters AS t SET put_by = p_nonce, put_as = 2 WHERE t.stream = p_stream AND t.seq = r.seq;
            RETURN 2;
        END IF;
        SELECT t.put_by, t.put_as INTO last FROM {schema}.dlq_letters AS t
        WHERE t.id = p_id AND t.stream || '' = p_stream ORDER BY t.ended DESC LIMIT 1;
        IF FOUND AND last.put_by = p_nonce THEN
            RETURN last.put_as;
        END IF;

        SELECT t.seq INTO head FROM {schema}.dlq_letters AS t
        WHERE t.lane = name AND t.rank = 0 AND t.state <= 2 AND t.stream || '' = p_stream FOR UPDATE;
        -- This statement sees what was committed while the last one waited.
        SELECT max(t.rank) INTO top FROM {schema}.dlq_letters AS t WHERE t.lane = name AND t.state <= 2 AND t.stream || '' = p_stream;
        IF head IS NULL AND top IS NOT NULL THEN
            CONTINUE;  -- another letter has become the first
        END IF;
        IF p_blocked AND head IS NULL THEN
            RETURN 3;
        ELSIF p_capacity IS NOT NULL AND {schema}.dlq_unresolved(p_stream) >= p_capacity THEN
            RETURN 4;
        END IF;
        IF p_seq < greatest(head, top) THEN
            p_seq := nextval('{schema}.dlq_seq'::regclass);
        END IF;
        INSERT INTO {schema}.dlq_letters (seq, rank, due, next, put, digest, put_by, stream, id, key, lane, fingerprint,
            log_times, log_prints, log_details, body)
        VALUES (p_seq, CASE WHEN head IS NULL THEN 0 ELSE p_seq END, CASE WHEN head IS NULL THEN p_now + p_delay END, p_now + p_delay, p_now,
            p_digest, p_nonce, p_stream, p_id, p_key, name, p_print,
            CASE WHEN p_print <> '' THEN ARRAY[p_time] END, CASE WHEN p_print <> '' THEN ARRAY[p_print] END,
            CASE WHEN p_print <> '' THEN ARRAY[p_detail] END, p_body)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            INSERT INTO {schema}.dlq_deltas (at, nth, waiting, failure, stream, print) VALUES (p_now, p_nth, 1, true, p_stream, p_print);
            RETURN 1;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'too many puts of one lane at once' USING ERRCODE = 'lock_not_available';
END
$pawl$;

-- dlq_fail adds a failure to a letter that is locked and unresolved, as dlq.Log.Add
-- does: the first and the last four stay as they are, those in between are counted
-- by fingerprint, up to sixteen of them. It moves the letter to its new group. The
-- caller stores what it returns.
CREATE FUNCTION {schema}.dlq_fail(r {schema}.dlq_letters, p_now bigint, p_nth integer, p_time bigint, p_print text, p_detail bytea)
RETURNS {schema}.dlq_letters
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    at integer;
    w  integer := CASE WHEN r.state = 1 THEN 1 ELSE 0 END;
BEGIN
    IF cardinality(r.log_times) = 5 THEN
        at := array_position(r.fold_prints, r.log_prints[2]);
        IF at IS NOT NULL THEN
            r.fold_counts[at] := r.fold_counts[at] + 1;
            r.fold_lasts[at] := r.log_times[2];
        ELSIF coalesce(cardinality(r.fold_prints), 0) < 16 THEN
            r.fold_prints := r.fold_prints || r.log_prints[2];
            r.fold_counts := r.fold_counts || 1;
            r.fold_firsts := r.fold_firsts || r.log_times[2];
            r.fold_lasts := r.fold_lasts || r.log_times[2];
        ELSE
            r.others := r.others + 1;
        END IF;
        r.log_times := r.log_times[1:1] || r.log_times[3:5];
        r.log_prints := r.log_prints[1:1] || r.log_prints[3:5];
        r.log_details := r.log_details[1:1] || r.log_details[3:5];
    END IF;
    r.log_times := r.log_times || p_time;
    r.log_prints := r.log_prints || p_print;
    r.log_details := array_append(r.log_details, p_detail);
    IF r.fingerprint = p_print THEN
        INSERT INTO {schema}.dlq_deltas (at, nth, failure, stream, print) VALUES (p_now, p_nth, true, r.stream, p_print);
    ELSE
        INSERT INTO {schema}.dlq_deltas (at, nth, waiting, review, failure, stream, print)
        VALUES (p_now, p_nth, -w, w - 1, false, r.stream, r.fingerprint), (p_now, p_nth, w, 1 - w, true, r.stream, p_print);
        r.fingerprint := p_print;
    END IF;
    RETURN r;
END
$pawl$;

-- dlq_interrupt takes a letter that is locked from its worker, if it is begun, to be due
-- at p_next: a try that began before a failure must not resolve it. Its lane stays
-- claimed.
CREATE FUNCTION {schema}.dlq_interrupt(r {schema}.dlq_letters, p_next bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k record;
BEGIN
    IF r.rank <> 0 THEN
        RETURN;
    END IF;
    SELECT t.begun, t.tries INTO k FROM {schema}.dlq_lanes AS t WHERE t.stream = r.stream AND t.lane = r.lane FOR UPDATE;
    IF FOUND AND k.begun = r.seq THEN
        UPDATE {schema}.dlq_letters AS t SET tries = k.tries, settled_by = 0, next = p_next, due = p_next
        WHERE t.stream = r.stream AND t.seq = r.seq;
        UPDATE {schema}.dlq_lanes AS t SET begun = NULL WHERE t.stream = r.stream AND t.lane = r.lane;
    END IF;
END
$pawl$;

CREATE FUNCTION {schema}.dlq_keep_log(r {schema}.dlq_letters) RETURNS void
LANGUAGE sql VOLATILE AS
$pawl$
    UPDATE {schema}.dlq_letters AS t SET
        fingerprint = r.fingerprint, log_times = r.log_times, log_prints = r.log_prints, log_details = r.log_details, others = r.others,
        fold_prints = r.fold_prints, fold_counts = r.fold_counts, fold_firsts = r.fold_firsts, fold_lasts = r.fold_lasts
    WHERE t.stream = r.stream AND t.seq = r.seq
$pawl$;
