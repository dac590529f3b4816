-- inbox_claim takes keys of a stream.
--
-- Work is found in two places. A key that was released with something pending, or
-- whose lease may lapse, has a due time in inbox_keys. A record that came while
-- its key was idle is found by its number: the claim reads the records from
-- p_floor on. Records whose key is busy are passed over, and parked when it was
-- claimed some time ago, which its token tells: from then on they are found
-- through their key alone.
--
-- p_floor is what makes a claim cheap when an old snapshot keeps dead rows from
-- being removed: no claim reads again what an earlier one has seen to be worked.
-- It must not lie above a record that is not committed yet. The last row
-- of the answer tells the caller how far it may rise: numbers up to mark were given
-- out by transactions below newest, for an acceptance has its transaction before its
-- numbers, and the claim reads mark before it has its own, which is newest. (The end of a
-- snapshot would not do: transactions above it may have begun.) Once a later answer's
-- oldest has reached that newest, all of them have ended, and what a claim did not see
-- is not there. 0 begins at the first pending record. p_due_floor is the same for due
-- times.
--
-- Claims of one stream take turns. They are not flushed to disk: a crash of the
-- server then undoes the last claims, their attempts included, and their tokens
-- are stale.
--
-- The statements are written so that there is one way to plan them, also while the
-- tables are empty: a key is looked up by key and stream, one after the other.
CREATE FUNCTION {schema}.inbox_claim(
    p_stream text, p_nonce bytea, p_keys integer, p_events integer, p_bytes bigint, p_lease bigint,
    p_floor bigint, p_due_floor bigint, p_look boolean)
RETURNS SETOF {schema}.inbox_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now      bigint;
    numbers  bigint;
    seen     pg_snapshot;
    due_keys text[];
    due_at   bigint[];
    keys     text[];
    dues     bigint[];
    seqs     bigint[];
    w_rows   integer;
    w_top    bigint;
    w_low    bigint;
    w_stuck  bigint[];
    w_keys   text[];
    w_dues   bigint[];
    w_seqs   bigint[];
    at       bigint := p_floor;
    low      bigint;
    crowded     boolean := false;
    stuck    bigint[];
    next     bigint;
    took     integer;
    last     {schema}.inbox_row;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.inbox_check_isolation();
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_advisory_xact_lock(hashtextextended(p_stream, '{schema}.inbox_keys'::regclass::oid::bigint));
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END INTO numbers FROM {schema}.inbox_seq AS s;
    now := {schema}.inbox_now();
    seen := pg_current_snapshot();

    keys := '{}';
    IF EXISTS (SELECT FROM {schema}.inbox_asks AS t WHERE t.nonce = p_nonce) THEN
        keys := ARRAY(SELECT k.key FROM {schema}.inbox_keys AS k
            WHERE k.stream = p_stream AND k.due > now AND k.nonce = p_nonce AND k.lease_until > now ORDER BY k.key);
    END IF;
    IF cardinality(keys) = 0 THEN
        SELECT array_agg(k.key), array_agg(k.due) INTO due_keys, due_at FROM (
            SELECT t.key, t.due FROM {schema}.inbox_keys AS t
            WHERE t.stream = p_stream AND t.due >= p_due_floor AND t.due <= now
            ORDER BY t.due LIMIT p_keys FOR NO KEY UPDATE SKIP LOCKED
        ) AS k;
        took := coalesce(cardinality(due_keys), 0);
        last.more := took = p_keys;

        IF at = 0 THEN
            SELECT min(p.seq) INTO at FROM (
                SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.stream = p_stream AND r.state = 1 AND NOT r.parked OFFSET 0
            ) AS p;
            at := coalesce(at, numbers + 1);
        END IF;
        -- One window after the other, until there are keys enough.
        FOR i IN 1 .. 16 LOOP
            -- state + 0 keeps the planner from looking for work in inbox_records_work.
            SELECT count(*), max(f.seq), min(f.seq),
                array_agg(f.seq) FILTER (WHERE f.busy AND f.token < now - 200000),
                array_agg(f.key ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first),
                array_agg(f.since ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first),
                array_agg(f.seq ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first)
            INTO w_rows, w_top, w_low, w_stuck, w_keys, w_dues, w_seqs FROM (
                SELECT r.seq, r.key, r.since, k.token, row_number() OVER (PARTITION BY r.key ORDER BY r.seq) = 1 AS first,
                    coalesce(k.due IS NOT NULL OR k.lease_until > now, false) OR r.key = ANY (keys) AS busy
                FROM (
                    SELECT t.seq, t.key, t.since FROM {schema}.inbox_records AS t
                    WHERE t.seq >= at AND t.stream = p_stream AND t.state + 0 = 1 AND NOT t.parked
                    ORDER BY t.seq LIMIT p_keys + 64
                ) AS r
                LEFT JOIN LATERAL (
                    SELECT t.due, t.lease_until, t.token FROM {schema}.inbox_keys AS t WHERE t.key = r.key AND t.stream = p_stream OFFSET 0
                ) AS k ON true
            ) AS f;
            low := coalesce(low, w_low);
            keys := keys || coalesce(w_keys, '{}');
            dues := dues || w_dues;
            seqs := seqs || w_seqs;
            stuck := stuck || w_stuck;
            crowded := w_rows = p_keys + 64;
            EXIT WHEN NOT crowded OR cardinality(keys) >= p_keys;
            at := w_top + 1;
        END LOOP;
        low := coalesce(low, numbers + 1);

        IF took > 0 OR cardinality(keys) > 0 THEN
            -- A key that is locked is being settled. It is left for the next claim.
            SELECT array_agg(c.key) INTO keys FROM (
                SELECT f.key, f.due, f.seq FROM unnest(keys, dues, seqs) AS f(key, due, seq)
                UNION ALL
                SELECT d.key, d.due, 0 FROM unnest(due_keys, due_at) AS d(key, due)
                ORDER BY 2, 3 LIMIT p_keys
            ) AS c;
            keys := ARRAY(
                SELECT c.key FROM unnest(keys) WITH ORDINALITY AS c(key, n)
                LEFT JOIN LATERAL (
                    SELECT true AS known FROM {schema}.inbox_keys AS t WHERE t.key = c.key AND t.stream = p_stream OFFSET 0
                ) AS k ON true
                LEFT JOIN LATERAL (
                    SELECT true AS free FROM {schema}.inbox_keys AS t WHERE k.known AND t.key = c.key AND t.stream = p_stream
                    AND (t.due IS NULL OR t.due <= now) AND (t.lease_until IS NULL OR t.lease_until <= now)
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS l ON true
                WHERE k.known IS NULL OR l.free
                ORDER BY c.n);
        END IF;

        IF stuck IS NOT NULL THEN
            PERFORM {schema}.inbox_park(p_stream, stuck, now);
        END IF;
        IF cardinality(keys) > 0 THEN
            PERFORM {schema}.inbox_take(p_stream, keys, p_nonce, p_lease, now);
        END IF;
    END IF;

    -- A record below the one that was begun was committed only now, and comes later.
    IF cardinality(keys) > 0 THEN
        RETURN QUERY
        SELECT CASE WHEN r.seq IS NULL THEN 2 ELSE 1 END::smallint, k.token, k.lease_until - now, r.more,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            r.seq, r.stream, k.key, r.id, r.state, CASE WHEN k.begun = r.seq THEN k.tries ELSE r.attempts END, r.form, r.received,
            greatest(now - r.since, 0), r.occurred, r.occurred_ns, r.next, r.settled, r.expires, r.erases, r.deleted, r.fingerprinted, r.unknown,
            r.provider, r.type, r.version, r.account, r.phone, r.message_id, r.external_id, r.trace, r.last_error, r.failures,
            r.action_kinds, r.action_times, r.action_actors, r.action_notes, r.context, r.payload
        FROM unnest(keys) WITH ORDINALITY AS c(key, n)
        JOIN LATERAL (SELECT t.* FROM {schema}.inbox_keys AS t WHERE t.key = c.key AND t.stream = p_stream OFFSET 0) AS k
            ON k.nonce = p_nonce AND k.lease_until IS NOT NULL
        LEFT JOIN LATERAL (
            SELECT s.*, lead(s.seq) OVER w IS NOT NULL AS more, row_number() OVER w AS place,
                coalesce(sum(coalesce(octet_length(s.payload), 0) + coalesce(octet_length(s.context), 0))
                    OVER (ORDER BY s.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM (
                SELECT t.* FROM {schema}.inbox_records AS t
                WHERE t.stream = p_stream AND t.key = c.key AND t.state = 1 AND t.seq >= k.begun ORDER BY t.seq LIMIT p_events + 1
            ) AS s
            WINDOW w AS (ORDER BY s.seq)
        ) AS r ON r.place <= p_events AND (r.place = 1 OR r.before < p_bytes)
        ORDER BY c.n, r.seq;
    END IF;

    IF p_look AND cardinality(keys) < p_keys AND NOT crowded THEN
        SELECT t.due INTO next FROM {schema}.inbox_keys AS t
        WHERE t.stream = p_stream AND t.due > now AND t.due IS NOT NULL ORDER BY t.due LIMIT 1;
        IF next IS NOT NULL THEN
            last.remains := greatest(next - now, 1000);
        END IF;
    ELSIF crowded AND cardinality(keys) < p_keys THEN
        last.remains := 1000;
    END IF;
    last.what := 3; last.at_token := now; last.low := low; last.mark := numbers;
    last.oldest := pg_snapshot_xmin(seen)::text::bigint; last.newest := pg_current_xact_id_if_assigned()::text::bigint;
    IF last.newest IS NULL AND p_look AND p_floor <= numbers THEN  -- others work what was accepted
        last.newest := pg_current_xact_id()::text::bigint;
    END IF;
    RETURN NEXT last;
END
$pawl$;

-- inbox_take claims keys that are locked, or have no row yet, and begins their
-- first records. A key with nothing pending is no longer due.
CREATE FUNCTION {schema}.inbox_take(p_stream text, p_taken text[], p_nonce bytea, p_lease bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    barren     text[];
    left_seqs  bigint[];
    left_tries integer[];
    took       boolean;
BEGIN
    -- What a key counts of a record that is not its first any longer goes to the
    -- record: one with a lower number may have been committed later.
    --
    -- The upsert finds a key's row by the primary key, whatever the planner thinks.
    WITH head AS MATERIALIZED (
        SELECT c.key, k.begun, k.tries, h.seq, h.attempts
        FROM unnest(p_taken) AS c(key)
        LEFT JOIN LATERAL (
            SELECT t.begun, t.tries FROM {schema}.inbox_keys AS t WHERE t.key = c.key AND t.stream = p_stream OFFSET 0
        ) AS k ON true
        LEFT JOIN LATERAL (
            SELECT t.seq, t.attempts FROM {schema}.inbox_records AS t
            WHERE t.stream = p_stream AND t.key = c.key AND t.state = 1 ORDER BY t.seq LIMIT 1
        ) AS h ON true
    ), taken AS (
        INSERT INTO {schema}.inbox_keys AS t (token, lease_until, due, begun, tries, stream, key, nonce)
        SELECT p_now, p_now + p_lease, p_now + p_lease, h.seq, h.attempts + 1, p_stream, h.key, p_nonce
        FROM head AS h WHERE h.seq IS NOT NULL
        ON CONFLICT (key, stream) DO UPDATE SET
            token = greatest(t.token + 1, excluded.token), lease_until = excluded.lease_until, due = excluded.due,
            begun = excluded.begun, nonce = excluded.nonce,
            tries = CASE WHEN t.begun = excluded.begun THEN t.tries + 1 ELSE excluded.tries END
    )
    SELECT array_agg(h.key) FILTER (WHERE h.seq IS NULL), array_agg(h.begun) FILTER (WHERE h.begun <> h.seq),
        array_agg(h.tries) FILTER (WHERE h.begun <> h.seq), bool_or(h.seq IS NOT NULL)
    INTO barren, left_seqs, left_tries, took FROM head AS h;
    FOR i IN 1 .. coalesce(cardinality(barren), 0) LOOP
        UPDATE {schema}.inbox_keys AS t SET due = NULL WHERE t.key = barren[i] AND t.stream = p_stream;
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality(left_seqs), 0) LOOP
        UPDATE {schema}.inbox_records AS t SET attempts = left_tries[i]
        WHERE t.seq = left_seqs[i] AND t.state + 0 = 1 AND t.attempts < left_tries[i];
    END LOOP;
    IF took THEN
        INSERT INTO {schema}.inbox_asks (until, nonce) VALUES (p_now + greatest(p_lease, 3600000000), p_nonce)
        ON CONFLICT (nonce) DO UPDATE SET until = excluded.until;
    END IF;
END
$pawl$;

-- inbox_park marks records whose keys are busy. The lock of a key keeps its owner
-- from releasing it meanwhile without seeing the record.
CREATE FUNCTION {schema}.inbox_park(p_stream text, p_seqs bigint[], p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    busy text[];
BEGIN
    busy := ARRAY(
        SELECT k.key FROM (SELECT DISTINCT r.key FROM {schema}.inbox_records AS r WHERE r.seq = ANY (p_seqs)) AS c
        JOIN LATERAL (
            SELECT t.key FROM {schema}.inbox_keys AS t WHERE t.key = c.key AND t.stream = p_stream AND t.due IS NOT NULL
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS k ON true);
    UPDATE {schema}.inbox_records AS t SET parked = true
    WHERE t.seq IN (
        SELECT r.seq FROM {schema}.inbox_records AS r
        WHERE r.seq = ANY (p_seqs) AND r.state + 0 = 1 AND r.key = ANY (busy) FOR NO KEY UPDATE SKIP LOCKED);
END
$pawl$;
