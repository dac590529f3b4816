-- inbox_list returns records by number, behind p_after, those that the first of
-- p_id, p_message, p_external and p_state selects that is set; without any, those
-- whose bodies are kept outside and can be erased. Parts are queries of their own,
-- because each has its index.
CREATE FUNCTION {schema}.inbox_list(p_id text, p_message text, p_external text, p_state integer, p_after bigint, p_n integer)
RETURNS SETOF {schema}.inbox_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.inbox_now();
    seqs bigint[];
BEGIN
    IF p_id <> '' THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.id = p_id AND r.seq > p_after);
    ELSIF p_message <> '' THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.message_id = p_message AND r.message_id <> '' AND r.seq > p_after);
    ELSIF p_external <> '' THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.external_id = p_external AND r.external_id <> '' AND r.seq > p_after);
    ELSIF p_state = 1 THEN
        seqs := ARRAY(SELECT * FROM (
            (SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.parked AND r.seq > p_after ORDER BY r.seq LIMIT p_n)
            UNION ALL
            (SELECT h.seq FROM {schema}.inbox_list_held() AS h WHERE h.seq > p_after ORDER BY h.seq LIMIT p_n)
            UNION ALL
            SELECT r.seq FROM {schema}.inbox_list_fronts() AS f
            JOIN LATERAL (
                SELECT t.seq FROM {schema}.inbox_records AS t
                WHERE t.seq > greatest(p_after, f.floor - 1) AND t.stream || '' = f.stream AND t.state + 0 = 1 AND NOT t.parked
                AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL
                ORDER BY t.seq LIMIT p_n
            ) AS r ON true) AS s);
    ELSIF p_state = 2 THEN
        seqs := ARRAY(
            (SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 2 AND r.seq > p_after ORDER BY r.state, r.seq LIMIT p_n)
            UNION ALL
            (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq > p_after ORDER BY d.seq LIMIT p_n));
    ELSIF p_state > 2 THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = p_state AND r.seq > p_after ORDER BY r.state, r.seq LIMIT p_n);
    ELSE
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r
            WHERE r.form & 2 <> 0 AND r.seq > p_after AND coalesce(
                (SELECT d.erases FROM {schema}.inbox_done AS d WHERE d.seq = r.seq), CASE WHEN r.state <> 1 THEN r.erases END) <= now
            ORDER BY r.seq LIMIT p_n);
    END IF;
    RETURN QUERY
    SELECT 4::smallint, NULL::bigint, NULL::bigint, NULL::boolean, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
        r.seq, r.stream, r.key, r.id, CASE WHEN d.seq IS NULL THEN r.state ELSE 2::smallint END,
        coalesce(d.attempts, CASE WHEN k.begun = r.seq THEN k.tries ELSE r.attempts END), r.form, r.received,
        greatest(now - r.since, 0), r.occurred, r.occurred_ns, r.next, coalesce(d.settled, r.settled), coalesce(d.expires, r.expires),
        coalesce(d.erases, r.erases), r.deleted, r.fingerprinted, r.unknown,
        r.provider, r.type, r.version, r.account, r.phone, r.message_id, r.external_id, r.trace, r.last_error, r.failures,
        r.action_kinds, r.action_times, r.action_actors, r.action_notes, r.context, r.payload
    FROM (SELECT DISTINCT t.seq FROM unnest(seqs) AS t(seq) ORDER BY t.seq LIMIT p_n) AS s
    JOIN LATERAL (SELECT t.* FROM {schema}.inbox_records AS t WHERE t.seq = s.seq OFFSET 0) AS r ON true
    LEFT JOIN LATERAL (SELECT t.* FROM {schema}.inbox_done AS t WHERE t.seq = s.seq OFFSET 0) AS d ON true
    LEFT JOIN LATERAL (
        SELECT t.begun, t.tries FROM {schema}.inbox_keys AS t WHERE r.state = 1 AND t.key = r.key AND t.stream = r.stream OFFSET 0
    ) AS k ON true
    ORDER BY r.seq;
END
$pawl$;

-- inbox_list_fronts says of each stream that has records where its front is.
CREATE FUNCTION {schema}.inbox_list_fronts() RETURNS TABLE (stream text, floor bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off
AS $pawl$
#variable_conflict use_column
BEGIN
    stream := '';
    LOOP
        stream := (SELECT r.stream FROM {schema}.inbox_records AS r WHERE r.state = 1 AND r.stream > inbox_list_fronts.stream ORDER BY r.stream LIMIT 1);
        EXIT WHEN stream IS NULL;
        floor := coalesce((SELECT f.floor FROM {schema}.inbox_fronts AS f WHERE f.stream = inbox_list_fronts.stream), 0);
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- inbox_list_held returns pending records that their keys hold: those of keys that are
-- due, whether they have failed before or not.
CREATE FUNCTION {schema}.inbox_list_held() RETURNS TABLE (seq bigint, stream text, parked boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
AS $pawl$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.seq, r.stream, r.parked FROM (SELECT k.stream, k.key, k.low FROM {schema}.inbox_keys AS k WHERE k.due IS NOT NULL OFFSET 0) AS h
    JOIN LATERAL (
        SELECT t.seq, t.stream, t.parked FROM {schema}.inbox_records AS t
        WHERE t.stream = h.stream AND t.key = h.key AND t.state = 1 AND t.seq >= h.low
        AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL OFFSET 0
    ) AS r ON true;
END
$pawl$;

-- inbox_totals counts records by state, each up to a million at least. What is pending
-- is counted at the fronts of the streams, and behind them by key.
CREATE FUNCTION {schema}.inbox_totals()
RETURNS TABLE (pending bigint, done bigint, dead bigint, quarantined bigint, conflicts bigint, unsure bigint, oldest bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    n     bigint;
    first bigint;
    f     record;
BEGIN
    SELECT count(*), min(s.seq) INTO pending, oldest FROM (SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.parked ORDER BY r.seq LIMIT 1000000) AS s;
    FOR f IN SELECT * FROM {schema}.inbox_list_fronts() LOOP
        SELECT count(*), min(s.seq) INTO n, first FROM (
            SELECT t.seq FROM {schema}.inbox_records AS t
            WHERE t.seq >= f.floor AND t.stream || '' = f.stream AND t.state + 0 = 1 AND NOT t.parked
            AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = t.seq) IS NULL
            ORDER BY t.seq LIMIT 1000000
        ) AS s;
        pending := pending + n;
        oldest := least(oldest, first);
        SELECT count(*), min(h.seq) INTO n, first FROM {schema}.inbox_list_held() AS h WHERE h.stream = f.stream AND h.seq < f.floor AND NOT h.parked;
        pending := pending + n;
        oldest := least(oldest, first);
    END LOOP;
    oldest := (SELECT greatest({schema}.inbox_now() - r.since, 0) FROM {schema}.inbox_records AS r WHERE r.seq = oldest);
    SELECT count(*) INTO done FROM (SELECT FROM {schema}.inbox_done AS d LIMIT 1000000) AS s;
    SELECT count(*) INTO n FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 2 LIMIT 1000000) AS s;
    done := done + n;
    SELECT count(*) INTO dead FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 3 LIMIT 1000000) AS s;
    SELECT count(*) INTO quarantined FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 4 LIMIT 1000000) AS s;
    SELECT count(*) INTO conflicts FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 5 LIMIT 1000000) AS s;
    SELECT count(*) INTO unsure FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 1 AND r.state = 6 LIMIT 1000000) AS s;
    RETURN NEXT;
END
$pawl$;
