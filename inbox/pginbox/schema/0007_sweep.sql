-- inbox_sweep looks at p_n records behind the number p_after, and at as many keys
-- behind (p_key, p_stream), and asks, and passes over what is locked. It removes what has
-- expired, redacts what may be erased, and says where to go on: NULL at the end.
CREATE FUNCTION {schema}.inbox_sweep(p_after bigint, p_n integer, p_key text, p_stream text)
RETURNS TABLE (removed integer, looked integer, next_after bigint, next_key text, next_stream text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now     bigint := {schema}.inbox_now();
    gone    bigint[];
    undone  bigint[];
    ids     text[];
    digests bytea[];
    k       record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.inbox_check_isolation();
    END IF;
    SELECT count(*), max(s.seq) INTO looked, next_after FROM (
        SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.seq > p_after ORDER BY r.seq LIMIT p_n
    ) AS s;
    gone := ARRAY(
        SELECT r.seq FROM {schema}.inbox_records AS r
        WHERE r.seq > p_after AND r.seq <= next_after AND r.state <> 1 AND r.expires <= now AND r.form & 2 = 0
        ORDER BY r.seq FOR UPDATE SKIP LOCKED);
    undone := ARRAY(
        SELECT r.seq FROM {schema}.inbox_records AS r JOIN {schema}.inbox_done AS d ON d.seq = r.seq
        WHERE d.seq > p_after AND d.seq <= next_after AND r.seq > p_after AND r.seq <= next_after AND d.expires <= now AND r.form & 2 = 0
        FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.inbox_done AS t WHERE t.seq = ANY (undone);
    gone := gone || undone;
    -- The first of an event keeps the digest that the event is known by: another
    -- record of the event takes its place.
    WITH deleted AS (
        DELETE FROM {schema}.inbox_records AS t WHERE t.seq = ANY (gone)
        RETURNING t.id, t.rank, coalesce(t.first_digest, t.digest) AS digest
    )
    SELECT count(*), array_agg(d.id) FILTER (WHERE d.rank = 0), array_agg(d.digest) FILTER (WHERE d.rank = 0)
    INTO removed, ids, digests FROM deleted AS d;
    UPDATE {schema}.inbox_records AS t SET rank = 0, first_digest = l.digest
    FROM (
        SELECT a.digest, o.seq FROM unnest(ids, digests) AS a(id, digest)
        JOIN LATERAL (SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.id = a.id ORDER BY r.rank LIMIT 1) AS o ON true
    ) AS l
    WHERE t.seq = l.seq;
    UPDATE {schema}.inbox_records AS t SET
        payload = NULL, context = NULL, last_error = '', failures = NULL, trace = '', form = 4, deleted = now
    WHERE t.seq IN (
        SELECT r.seq FROM {schema}.inbox_records AS r
        WHERE r.seq > p_after AND r.seq <= next_after AND r.state <> 1 AND r.erases <= now AND r.deleted IS NULL AND r.form & 2 = 0
        FOR NO KEY UPDATE SKIP LOCKED);
    UPDATE {schema}.inbox_records AS t SET
        payload = NULL, context = NULL, last_error = '', failures = NULL, trace = '', form = 4, deleted = now
    WHERE t.seq IN (
        SELECT r.seq FROM {schema}.inbox_records AS r JOIN {schema}.inbox_done AS d ON d.seq = r.seq
        WHERE d.seq > p_after AND d.seq <= next_after AND r.seq > p_after AND r.seq <= next_after AND d.erases <= now
        AND r.deleted IS NULL AND r.form & 2 = 0
        FOR NO KEY UPDATE SKIP LOCKED);
    -- The front of a stream goes on as its workers say. Should it have passed a record,
    -- such as after a failover that lost numbers, it goes back to it.
    UPDATE {schema}.inbox_fronts AS t SET floor = p.seq
    FROM (
        SELECT r.stream, min(r.seq) AS seq FROM {schema}.inbox_records AS r
        WHERE r.seq > p_after AND r.seq <= next_after AND r.state + 0 = 1 AND NOT r.parked
        AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = r.seq) IS NULL
        AND (SELECT k.due FROM {schema}.inbox_keys AS k WHERE k.key = r.key AND k.stream = r.stream) IS NULL
        GROUP BY r.stream
    ) AS p
    WHERE t.stream = p.stream AND t.floor > p.seq;
    IF looked < p_n THEN
        next_after := NULL;
    END IF;

    DELETE FROM {schema}.inbox_asks AS t WHERE t.nonce = ANY (ARRAY(
        SELECT a.nonce FROM {schema}.inbox_asks AS a WHERE a.until < now ORDER BY a.until LIMIT p_n FOR UPDATE SKIP LOCKED));

    FOR k IN
        SELECT t.key, t.stream, t.expires, t.lease_until, t.due FROM {schema}.inbox_keys AS t
        WHERE (t.key, t.stream) > (p_key, p_stream) ORDER BY t.key, t.stream LIMIT p_n
    LOOP
        next_key := k.key; next_stream := k.stream;
        p_n := p_n - 1;
        CONTINUE WHEN k.expires IS NULL OR k.expires > now OR k.lease_until > now OR k.lease_until IS NULL AND k.due IS NOT NULL;
        CONTINUE WHEN NOT EXISTS (
            SELECT FROM {schema}.inbox_keys AS t WHERE t.key = k.key AND t.stream = k.stream
            AND t.expires <= now AND (t.lease_until IS NULL AND t.due IS NULL OR t.lease_until <= now) FOR UPDATE SKIP LOCKED);
        DELETE FROM {schema}.inbox_keys AS t
        WHERE t.key = k.key AND t.stream = k.stream
        AND NOT EXISTS (
            SELECT FROM {schema}.inbox_records AS r WHERE r.stream = k.stream AND r.key = k.key AND r.state = 1
            AND (SELECT d.seq FROM {schema}.inbox_done AS d WHERE d.seq = r.seq) IS NULL);
    END LOOP;
    IF p_n > 0 THEN
        next_key := NULL; next_stream := NULL;
    END IF;
    RETURN NEXT;
END
$pawl$;
