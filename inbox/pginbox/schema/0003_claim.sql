-- inbox_claim takes keys of a stream.
--
-- Work is found in two places. A key that was released with something pending, or
-- whose lease may lapse, has a due time in inbox_keys. A record that came while
-- its key was idle is found by its number: the claim reads the records from
-- p_floor on. Records whose key is busy are passed over, and read no more when the
-- claim has had the lock of the key: whoever releases it afterwards sees them, and makes
-- it due. The record that its key has begun needs no lock for that, for its owner cannot
-- but see it.
--
-- p_floor is what makes a claim cheap: no claim reads again what an earlier one has
-- seen to be worked. It must not lie above a record that is not committed yet. The last
-- row of the answer tells the caller how far it may rise: numbers up to mark were given
-- out by transactions below newest, for an acceptance has its transaction before its
-- numbers, and the claim reads mark before it has its own, which is newest. (The end of a
-- snapshot would not do: transactions above it may have begun.) Once a later answer's
-- oldest has reached that newest, all of them have ended, and what a claim did not see
-- is not there. 0 begins at the front of the stream, inbox_fronts, and the answer says
-- where that is. A caller that knows the front to be further on has p_raise for it, and
-- in p_was and p_run what was so when it began there. If either has changed since it
-- stays: a server that crashed, or took over, may lack what the caller has seen.
-- p_due_floor is the same as p_floor for due times, and 0 for all.
--
-- Claims of one stream take turns. They are not flushed to disk: a crash of the
-- server then undoes the last claims, their attempts included, and their tokens
-- are stale.
--
-- The statements are written so that there is one way to plan them, also while the
-- tables are empty: a key is looked up by key and stream, one after the other, or
-- where it was found before, and inbox_done for each record by itself, unless its number
-- is above all there.
CREATE FUNCTION {schema}.inbox_claim(
    p_stream text, p_nonce bytea, p_keys integer, p_events integer, p_bytes bigint, p_lease bigint,
    p_floor bigint, p_due_floor bigint, p_look boolean, p_raise bigint, p_was bigint, p_run bigint)
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
    due_rows tid[];
    keys     text[];
    dues     bigint[];
    seqs     bigint[];
    places   tid[];
    tokens   bigint[];
    lefts    bigint[];
    begun    bigint[];
    tries    integer[];
    w_rows   integer;
    w_top    bigint;
    w_open   bigint[];
    w_stuck  bigint[];
    w_behind tid[];
    w_keys   text[];
    w_dues   bigint[];
    w_seqs   bigint[];
    w_found  tid[];
    at       bigint := p_floor;
    base     bigint := 0;
    front    bigint;
    low      bigint;
    size     integer := p_keys + 16;
    open     bigint[];
    run      bigint;
    crowded  boolean := false;
    stuck    bigint[];
    behind   tid[];
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

    IF EXISTS (SELECT FROM {schema}.inbox_asks AS t WHERE t.nonce = p_nonce) THEN
        SELECT array_agg(k.key ORDER BY k.key), array_agg(k.token ORDER BY k.key), array_agg(k.lease_until - now ORDER BY k.key),
            array_agg(k.begun ORDER BY k.key), array_agg(k.tries ORDER BY k.key)
        INTO keys, tokens, lefts, begun, tries FROM {schema}.inbox_keys AS k
        WHERE k.stream = p_stream AND k.due > now AND k.nonce = p_nonce AND k.lease_until > now;
    END IF;
    IF keys IS NULL THEN
        keys := '{}';
        SELECT array_agg(k.key), array_agg(k.due), array_agg(k.at) INTO due_keys, due_at, due_rows FROM (
            SELECT t.key, t.due, t.ctid AS at FROM {schema}.inbox_keys AS t
            WHERE t.stream = p_stream AND t.due >= p_due_floor AND t.due <= now
            ORDER BY t.due LIMIT p_keys FOR NO KEY UPDATE SKIP LOCKED
        ) AS k;
        took := coalesce(cardinality(due_keys), 0);
        last.more := took = p_keys;

        IF at = 0 THEN
            front := coalesce((SELECT t.floor FROM {schema}.inbox_fronts AS t WHERE t.stream = p_stream), 0);
            at := front;
            run := (SELECT t.run FROM {schema}.inbox_runs AS t LIMIT 1);
            IF run IS NULL THEN
                INSERT INTO {schema}.inbox_runs AS t (run) VALUES (now) ON CONFLICT (one) DO UPDATE SET one = true RETURNING t.run INTO run;
            END IF;
        END IF;
        base := at;
        -- One window after the other, until there are keys enough.
        FOR i IN 1 .. 16 LOOP
            -- state + 0 keeps the planner from looking for work in inbox_records_work.
            SELECT count(*), max(f.seq), array_agg(f.seq) FILTER (WHERE NOT f.held),
                array_agg(f.seq) FILTER (WHERE f.busy AND NOT f.held AND f.token < now - 10000),
                array_agg(f.at) FILTER (WHERE f.busy AND NOT f.held AND f.token < now - 10000),
                array_agg(f.key ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first),
                array_agg(f.since ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first),
                array_agg(f.seq ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first),
                array_agg(f.at ORDER BY f.seq) FILTER (WHERE NOT f.busy AND f.first)
            INTO w_rows, w_top, w_open, w_stuck, w_behind, w_keys, w_dues, w_seqs, w_found FROM (
                SELECT r.seq, r.key, r.since, k.token, k.at, row_number() OVER (PARTITION BY r.key ORDER BY r.seq) = 1 AS first,
                    coalesce(k.due IS NOT NULL OR k.lease_until > now, false) OR r.key = ANY (keys) AS busy,
                    coalesce(k.due IS NOT NULL AND k.begun = r.seq, false) AS held
                FROM (
                    SELECT t.seq, t.key, t.since FROM {schema}.inbox_records AS t
                    WHERE t.seq >= at AND t.stream = p_stream AND t.state + 0 = 1 AND NOT t.parked
                    AND (t.seq > coalesce((SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq >= at ORDER BY d.seq DESC LIMIT 1), 0)
                        OR (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL)
                    ORDER BY t.seq LIMIT size
                ) AS r
                LEFT JOIN LATERAL (
                    SELECT t.ctid AS at, t.due, t.lease_until, t.token, t.begun FROM {schema}.inbox_keys AS t
                    WHERE t.key = r.key AND t.stream = p_stream OFFSET 0
                ) AS k ON true
            ) AS f;
            open := open || w_open;
            keys := keys || coalesce(w_keys, '{}');
            dues := dues || w_dues;
            seqs := seqs || w_seqs;
            places := places || w_found;
            stuck := stuck || w_stuck;
            behind := behind || w_behind;
            crowded := w_rows = size;
            EXIT WHEN NOT crowded OR cardinality(keys) >= p_keys;
            at := w_top + 1;
            size := least(2 * (p_keys - cardinality(keys)) + 16 * i, p_keys) + 16;
        END LOOP;
        low := CASE WHEN crowded THEN w_top ELSE numbers END + 1;

        IF took > 0 OR cardinality(keys) > 0 THEN
            -- A key that is locked is being settled, and so is one that has moved. It is left
            -- for the next claim. A key without a row is free: claims alone make rows.
            SELECT array_agg(c.key ORDER BY c.n), array_agg(c.seq ORDER BY c.n), array_agg(c.at ORDER BY c.n)
            INTO keys, seqs, places FROM (
                SELECT f.key, f.seq, f.at, row_number() OVER (ORDER BY f.due, f.seq NULLS FIRST) AS n FROM (
                    SELECT w.key, w.due, w.seq, w.at FROM unnest(keys, dues, seqs, places) AS w(key, due, seq, at)
                    UNION ALL
                    SELECT d.key, d.due, NULL, d.at FROM unnest(due_keys, due_at, due_rows) AS d(key, due, at)
                    ORDER BY 2, 3 NULLS FIRST LIMIT p_keys
                ) AS f
            ) AS c
            LEFT JOIN LATERAL (
                SELECT true AS free FROM {schema}.inbox_keys AS t WHERE t.ctid = c.at AND t.key = c.key AND t.stream = p_stream
                AND (t.due IS NULL OR t.due <= now) AND (t.lease_until IS NULL OR t.lease_until <= now)
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS l ON true
            WHERE c.at IS NULL OR l.free;
            keys := coalesce(keys, '{}');
        END IF;

        IF stuck IS NOT NULL THEN
            stuck := {schema}.inbox_pass(stuck, behind);
        END IF;
        IF cardinality(keys) > 0 THEN
            SELECT t.* INTO keys, tokens, begun, tries FROM {schema}.inbox_take(p_stream, keys, seqs, places, p_nonce, p_lease, now, base) AS t;
        END IF;
        SELECT least(min(o.seq), low) INTO low FROM (SELECT unnest(open) AS seq EXCEPT SELECT unnest(begun || stuck)) AS o;
        IF p_raise > p_was AND EXISTS (SELECT FROM {schema}.inbox_runs AS t WHERE t.run = p_run) THEN
            INSERT INTO {schema}.inbox_fronts AS t (stream, floor) VALUES (p_stream, p_raise)
            ON CONFLICT (stream) DO UPDATE SET floor = excluded.floor WHERE t.floor = p_was;
        END IF;
    END IF;

    -- A record below the one that was begun was committed only now, and comes later.
    IF cardinality(keys) > 0 THEN
        RETURN QUERY
        SELECT CASE WHEN r.seq IS NULL THEN 2 ELSE 1 END::smallint, c.token, coalesce(c.remains, p_lease), r.more,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            r.seq, r.stream, c.key, r.id, r.state, CASE WHEN c.begun = r.seq THEN c.tries ELSE r.attempts END, r.form, r.received,
            greatest(now - r.since, 0), r.occurred, r.occurred_ns, r.next, r.settled, r.expires, r.erases, r.deleted, r.fingerprinted, r.unknown,
            r.provider, r.type, r.version, r.account, r.phone, r.message_id, r.external_id, r.trace, r.last_error, r.failures,
            r.action_kinds, r.action_times, r.action_actors, r.action_notes, r.context, r.payload
        FROM unnest(keys, tokens, lefts, begun, tries) WITH ORDINALITY AS c(key, token, remains, begun, tries, n)
        LEFT JOIN LATERAL (
            SELECT s.*, lead(s.seq) OVER w IS NOT NULL AS more, row_number() OVER w AS place,
                coalesce(sum(coalesce(octet_length(s.payload), 0) + coalesce(octet_length(s.context), 0))
                    OVER (ORDER BY s.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM (
                SELECT t.* FROM {schema}.inbox_records AS t
                WHERE t.stream = p_stream AND t.key = c.key AND t.state = 1 AND t.seq >= c.begun
                AND (t.seq >= base AND t.seq > coalesce((SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq >= base ORDER BY d.seq DESC LIMIT 1), 0)
                    OR (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL)
                ORDER BY t.seq LIMIT p_events + 1
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
    last.what := 3; last.at_token := now; last.low := low; last.mark := numbers; last.seq := front; last.received := run;
    last.oldest := pg_snapshot_xmin(seen)::text::bigint; last.newest := pg_current_xact_id_if_assigned()::text::bigint;
    IF last.newest IS NULL AND p_look AND p_floor <= numbers THEN  -- others work what was accepted
        last.newest := pg_current_xact_id()::text::bigint;
    END IF;
    RETURN NEXT last;
END
$pawl$;

-- inbox_take claims keys, and begins their first records. A key has the place of its
-- row, which is locked, unless it has none yet, and the number of a record that was
-- found at the front. It returns those that were claimed: a key with nothing pending is
-- no longer due.
CREATE FUNCTION {schema}.inbox_take(
    p_stream text, p_taken text[], p_found bigint[], p_rows tid[], p_nonce bytea, p_lease bigint, p_now bigint, p_base bigint,
    OUT keys text[], OUT tokens bigint[], OUT begun bigint[], OUT tries integer[])
LANGUAGE plpgsql VOLATILE AS
$pawl$
#variable_conflict use_column
DECLARE
    barren     tid[];
    left_seqs  bigint[];
    left_tries integer[];
BEGIN
    -- What a key counts of a record that is not its first any longer goes to the
    -- record: one with a lower number may have been committed later.
    WITH head AS MATERIALIZED (
        SELECT c.n, c.key, c.at, k.token, k.begun, k.tries, h.seq, h.attempts
        FROM unnest(p_taken, p_found, p_rows) WITH ORDINALITY AS c(key, found, at, n)
        LEFT JOIN LATERAL (
            SELECT t.token, t.begun, t.tries, t.low FROM {schema}.inbox_keys AS t WHERE t.ctid = c.at OFFSET 0
        ) AS k ON true
        LEFT JOIN LATERAL (
            SELECT t.seq, t.attempts FROM {schema}.inbox_records AS t
            WHERE t.stream = p_stream AND t.key = c.key AND t.state = 1 AND t.seq >= least(k.low, c.found)
            AND (t.seq >= p_base AND t.seq > coalesce((SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq >= p_base ORDER BY d.seq DESC LIMIT 1), 0)
                OR (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL)
            ORDER BY t.seq LIMIT 1
        ) AS h ON true
    ), fresh AS (
        INSERT INTO {schema}.inbox_keys AS t (token, lease_until, due, begun, low, tries, stream, key, nonce)
        SELECT p_now, p_now + p_lease, p_now + p_lease, h.seq, h.seq, h.attempts + 1, p_stream, h.key, p_nonce
        FROM head AS h WHERE h.seq IS NOT NULL AND h.at IS NULL
    ), known AS (
        UPDATE {schema}.inbox_keys AS t SET
            token = greatest(t.token + 1, p_now), lease_until = p_now + p_lease, due = p_now + p_lease,
            begun = h.seq, low = h.seq, nonce = p_nonce, tries = CASE WHEN t.begun = h.seq THEN t.tries ELSE h.attempts END + 1
        FROM head AS h WHERE h.seq IS NOT NULL AND t.ctid = h.at
    )
    SELECT array_agg(h.key ORDER BY h.n) FILTER (WHERE h.seq IS NOT NULL),
        array_agg(coalesce(greatest(h.token + 1, p_now), p_now) ORDER BY h.n) FILTER (WHERE h.seq IS NOT NULL),
        array_agg(h.seq ORDER BY h.n) FILTER (WHERE h.seq IS NOT NULL),
        array_agg(CASE WHEN h.begun = h.seq THEN h.tries ELSE h.attempts END + 1 ORDER BY h.n) FILTER (WHERE h.seq IS NOT NULL),
        array_agg(h.at) FILTER (WHERE h.seq IS NULL AND h.at IS NOT NULL),
        array_agg(h.begun) FILTER (WHERE h.begun <> h.seq AND h.tries > 0), array_agg(h.tries) FILTER (WHERE h.begun <> h.seq AND h.tries > 0)
    INTO keys, tokens, begun, tries, barren, left_seqs, left_tries FROM head AS h;
    IF barren IS NOT NULL THEN
        UPDATE {schema}.inbox_keys AS t SET due = NULL WHERE t.ctid = ANY (barren);
    END IF;
    IF left_seqs IS NOT NULL THEN
        UPDATE {schema}.inbox_records AS t SET attempts = l.tries
        FROM unnest(left_seqs, left_tries) AS l(seq, tries)
        WHERE t.seq = l.seq AND t.state + 0 = 1 AND t.attempts < l.tries
        AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = l.seq) IS NULL;
    END IF;
    IF keys IS NOT NULL THEN
        INSERT INTO {schema}.inbox_asks (until, nonce) VALUES (p_now + greatest(p_lease, 3600000000), p_nonce)
        ON CONFLICT (nonce) DO UPDATE SET until = excluded.until;
    END IF;
END
$pawl$;

-- inbox_pass locks busy keys where they were found, and returns which of the records
-- behind them can be passed. A key that is being settled, or has moved, is left out.
CREATE FUNCTION {schema}.inbox_pass(p_seqs bigint[], p_rows tid[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    passed bigint[];
    lowest bigint[];
    places tid[];
BEGIN
    SELECT array_agg(s.seq), array_agg(s.seq) FILTER (WHERE s.seq < k.low), array_agg(k.at) FILTER (WHERE s.seq < k.low)
    INTO passed, lowest, places
    FROM (SELECT b.at, min(b.seq) AS first FROM unnest(p_seqs, p_rows) AS b(seq, at) GROUP BY b.at) AS c
    JOIN LATERAL (
        SELECT t.ctid AS at, t.low FROM {schema}.inbox_keys AS t WHERE t.ctid = c.at AND t.due IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED
    ) AS k ON true
    JOIN unnest(p_seqs, p_rows) AS s(seq, at) ON s.at = c.at;
    IF places IS NOT NULL THEN  -- they were committed late
        UPDATE {schema}.inbox_keys AS t SET low = l.seq
        FROM (SELECT p.at, min(p.seq) AS seq FROM unnest(lowest, places) AS p(seq, at) GROUP BY p.at) AS l
        WHERE t.ctid = l.at;
    END IF;
    RETURN passed;
END
$pawl$;
