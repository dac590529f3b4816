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
        seqs := ARRAY(SELECT r.seq FROM (SELECT t.seq FROM {schema}.inbox_records AS t WHERE t.state = 1 AND t.seq > p_after OFFSET 0) AS r
            ORDER BY r.seq LIMIT p_n);
    ELSIF p_state = 2 THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.state + 0 = 2 AND r.seq > p_after ORDER BY r.seq LIMIT p_n);
    ELSIF p_state > 2 THEN
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.state > 2 AND r.state = p_state AND r.seq > p_after ORDER BY r.state, r.seq LIMIT p_n);
    ELSE
        seqs := ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r
            WHERE r.form & 2 <> 0 AND r.state <> 1 AND r.erases <= now AND r.seq > p_after ORDER BY r.seq LIMIT p_n);
    END IF;
    RETURN QUERY
    SELECT 4::smallint, NULL::bigint, NULL::bigint, NULL::boolean, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
        r.seq, r.stream, r.key, r.id, r.state, CASE WHEN r.state = 1 AND k.begun = r.seq THEN k.tries ELSE r.attempts END, r.form, r.received,
        greatest(now - r.since, 0), r.occurred, r.occurred_ns, r.next, r.settled, r.expires, r.erases, r.deleted, r.fingerprinted, r.unknown,
        r.provider, r.type, r.version, r.account, r.phone, r.message_id, r.external_id, r.trace, r.last_error, r.failures,
        r.action_kinds, r.action_times, r.action_actors, r.action_notes, r.context, r.payload
    FROM (SELECT t.seq FROM unnest(seqs) AS t(seq) ORDER BY t.seq LIMIT p_n) AS s
    JOIN LATERAL (SELECT t.* FROM {schema}.inbox_records AS t WHERE t.seq = s.seq OFFSET 0) AS r ON true
    LEFT JOIN LATERAL (
        SELECT t.begun, t.tries FROM {schema}.inbox_keys AS t WHERE r.state = 1 AND t.key = r.key AND t.stream = r.stream OFFSET 0
    ) AS k ON true
    ORDER BY r.seq;
END
$pawl$;

-- inbox_totals counts records by state, each up to a million. Those that are done
-- are counted by reading the table, up to that number.
CREATE FUNCTION {schema}.inbox_totals()
RETURNS TABLE (pending bigint, done bigint, dead bigint, quarantined bigint, conflicts bigint, unsure bigint, oldest bigint)
LANGUAGE plpgsql VOLATILE
SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    first bigint;
BEGIN
    SELECT count(*) INTO pending FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state = 1 LIMIT 1000000) AS s;
    SELECT count(*) INTO done FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state = 2 LIMIT 1000000) AS s;
    SELECT count(*) INTO dead FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 2 AND r.state = 3 LIMIT 1000000) AS s;
    SELECT count(*) INTO quarantined FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 2 AND r.state = 4 LIMIT 1000000) AS s;
    SELECT count(*) INTO conflicts FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 2 AND r.state = 5 LIMIT 1000000) AS s;
    SELECT count(*) INTO unsure FROM (SELECT FROM {schema}.inbox_records AS r WHERE r.state > 2 AND r.state = 6 LIMIT 1000000) AS s;
    SELECT min(r.seq) INTO first FROM (SELECT t.seq FROM {schema}.inbox_records AS t WHERE t.state = 1 OFFSET 0) AS r;
    SELECT greatest({schema}.inbox_now() - r.since, 0) INTO oldest FROM {schema}.inbox_records AS r WHERE r.seq = first;
    RETURN NEXT;
END
$pawl$;
