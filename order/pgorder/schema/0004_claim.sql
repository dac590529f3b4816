-- order_claim takes keys. It returns rows of these kinds, by what:
--   1 a key: at_token, remains of the lease, at_epoch, flag whether there is more
--   2 a message of the run   3 a late message
--   4 the gap: places from at_place to below stop, age, remains since when the cursor
--     stands there, flag whether somebody was told, tries how often it was asked for,
--     old whether a higher epoch waits
--   5 when the next key can be claimed: remains
CREATE FUNCTION {schema}.order_claim(
    p_scope text, p_nonce bytea, p_keys integer, p_messages integer, p_late integer, p_bytes bigint, p_lease bigint)
RETURNS TABLE (what smallint, at_key text, at_token bigint, remains bigint, at_epoch bigint, at_place bigint, stop bigint,
    tries integer, age bigint, flag boolean, old boolean, has_id text, has_payload bytea, has_context bytea, has_error text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s'
AS $pawl$
DECLARE
    k      {schema}.order_keys;
    e      {schema}.order_epochs;
    now    bigint;
    again  boolean := false;
    taken  integer := 0;
    most   integer;
    len    integer;
    due    bigint;
    run    boolean;
BEGIN
    PERFORM {schema}.order_check_isolation();
    -- The same ask may be under way twice.
    PERFORM pg_advisory_xact_lock(hashtextextended(encode(p_nonce, 'hex'), '{schema}.order_keys'::regclass::oid::bigint));
    now := {schema}.order_now();

    FOR k IN
        SELECT * FROM {schema}.order_keys AS t WHERE t.nonce = p_nonce AND t.scope = p_scope AND t.claimed AND t.lease_until > now
    LOOP
        again := true;
        SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = k.active;
        what := 1; at_key := k.key; at_token := k.token; remains := k.lease_until - now; at_epoch := e.epoch;
        flag := {schema}.order_more(k, e, now);
        RETURN NEXT;
        IF e.at_cursor = 1 AND e.run_to > e.cursor THEN
            RETURN QUERY SELECT * FROM {schema}.order_run(k.key, e, least(e.run_to - e.cursor, p_messages), p_bytes, now);
        ELSIF e.at_cursor = 3 AND e.due <= now THEN
            RETURN QUERY SELECT * FROM {schema}.order_gap(k.key, k.epochs > 1, e, now);
        END IF;
        IF k.late_held > 0 THEN
            RETURN QUERY SELECT 3::smallint, k.key, 0::bigint, 0::bigint, t.epoch, t.place, 0::bigint, t.attempt,
                greatest(now - t.pushed_at, 0), true, false, t.id, t.payload, t.context, t.error
            FROM {schema}.order_messages AS t
            WHERE t.kid = k.kid AND t.state IN (2, 3, 4) AND t.state = 3 AND t.claim = k.token ORDER BY t.epoch, t.place;
        END IF;
    END LOOP;
    IF again THEN
        RETURN;
    END IF;

    FOR k IN
        SELECT * FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.next_at <= now
        ORDER BY t.next_at LIMIT p_keys FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        taken := taken + 1;
        k.token := greatest(k.token + 1, now);
        SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = k.active;
        run := e.at_cursor = 1 AND e.due <= now;
        len := 0;
        IF run THEN
            e.attempts := e.attempts + 1;
            most := CASE WHEN e.attempts > 1 THEN 1 ELSE p_messages END;
            RETURN QUERY SELECT * FROM {schema}.order_run(k.key, e, most, p_bytes, now);
            GET DIAGNOSTICS len = ROW_COUNT;
            e.run_to := e.cursor + len;
            e.begun := CASE WHEN e.attempts > 1 THEN greatest(e.begun, e.run_to) ELSE e.run_to END;
            UPDATE {schema}.order_epochs AS t SET attempts = e.attempts, run_to = e.run_to, begun = e.begun
            WHERE t.kid = e.kid AND t.epoch = e.epoch;
        ELSE
            e.run_to := e.cursor;
            IF e.at_cursor = 1 THEN
                UPDATE {schema}.order_epochs AS t SET run_to = e.run_to WHERE t.kid = e.kid AND t.epoch = e.epoch;
            ELSIF e.at_cursor = 3 AND e.due <= now THEN
                RETURN QUERY SELECT * FROM {schema}.order_gap(k.key, k.epochs > 1, e, now);
            END IF;
        END IF;
        IF k.late_due <= now THEN
            RETURN QUERY
            WITH late AS (
                UPDATE {schema}.order_messages AS t SET attempt = t.attempt + 1, claim = k.token
                FROM (
                    SELECT l.epoch, l.place FROM {schema}.order_messages AS l
                    WHERE l.kid = k.kid AND l.state IN (2, 3, 4) AND l.state = 3 AND l.due <= now
                    ORDER BY l.epoch, l.place LIMIT p_late
                ) AS l
                WHERE t.kid = k.kid AND t.epoch = l.epoch AND t.place = l.place
                RETURNING t.*
            )
            SELECT 3::smallint, k.key, 0::bigint, 0::bigint, t.epoch, t.place, 0::bigint, t.attempt,
                greatest(now - t.pushed_at, 0), true, false, t.id, t.payload, t.context, t.error
            FROM late AS t ORDER BY t.epoch, t.place;
        END IF;
        what := 1; at_key := k.key; at_token := k.token; remains := p_lease; at_epoch := e.epoch;
        flag := {schema}.order_more(k, e, now);
        RETURN NEXT;
        due := least(e.due, k.late_due);
        UPDATE {schema}.order_keys AS t SET token = k.token, nonce = p_nonce, claimed = true, lease_until = now + p_lease,
            next_at = CASE WHEN due IS NOT NULL THEN greatest(due, now + p_lease) END
        WHERE t.kid = k.kid;
    END LOOP;

    IF taken < p_keys THEN
        SELECT t.next_at INTO due FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.next_at IS NOT NULL ORDER BY t.next_at LIMIT 1;
        IF due IS NOT NULL THEN
            what := 5;
            remains := greatest(due - now, 10000);  -- a key that is due is locked for the moment
            RETURN NEXT;
        END IF;
    END IF;
END
$pawl$;

-- order_more says whether a key has more that is due than its claim has.
CREATE FUNCTION {schema}.order_more(k {schema}.order_keys, e {schema}.order_epochs, p_now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    RETURN e.run_to > e.cursor AND e.buffered > e.run_to - e.cursor AND EXISTS (
            SELECT FROM {schema}.order_messages AS t
            WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place = e.run_to AND t.state = 1)
        OR k.late_due <= p_now AND EXISTS (
            SELECT FROM {schema}.order_messages AS t
            WHERE t.kid = k.kid AND t.state IN (2, 3, 4) AND t.state = 3 AND t.due <= p_now AND t.claim IS DISTINCT FROM k.token);
END
$pawl$;

-- order_run returns the unbroken row of buffered messages at a cursor, in the
-- form of order_claim.
CREATE FUNCTION {schema}.order_run(p_key text, e {schema}.order_epochs, p_messages bigint, p_bytes bigint, p_now bigint)
RETURNS TABLE (what smallint, at_key text, at_token bigint, remains bigint, at_epoch bigint, at_place bigint, stop bigint,
    tries integer, age bigint, flag boolean, old boolean, has_id text, has_payload bytea, has_context bytea, has_error text)
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    RETURN QUERY
    SELECT 2::smallint, p_key, 0::bigint, 0::bigint, r.epoch, r.place, 0::bigint,
        CASE WHEN r.place = e.cursor THEN e.attempts ELSE 1 END,
        greatest(p_now - r.pushed_at, 0), false, false, r.id, r.payload, r.context, r.error
    FROM (
        SELECT t.*, t.place - row_number() OVER w + 1 AS origin, sum(coalesce(octet_length(t.payload), 0)) OVER w - coalesce(octet_length(t.payload), 0) AS before
        FROM {schema}.order_messages AS t
        WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.state = 1
        AND t.place >= e.cursor AND t.place <= e.cursor + least(p_messages - 1, 9223372036854775806 - e.cursor)
        WINDOW w AS (ORDER BY t.place ROWS UNBOUNDED PRECEDING)
    ) AS r
    WHERE r.origin = e.cursor AND (r.before < p_bytes OR r.place = e.cursor)
    ORDER BY r.place;
END
$pawl$;

-- order_gap returns the gap at a cursor, in the form of order_claim.
CREATE FUNCTION {schema}.order_gap(p_key text, p_old boolean, e {schema}.order_epochs, p_now bigint)
RETURNS TABLE (what smallint, at_key text, at_token bigint, remains bigint, at_epoch bigint, at_place bigint, stop bigint,
    tries integer, age bigint, flag boolean, old boolean, has_id text, has_payload bytea, has_context bytea, has_error text)
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    RETURN QUERY
    SELECT 4::smallint, p_key, 0::bigint, greatest(p_now - e.gap_since, 0), e.epoch, e.cursor, e.gap_above, e.gap_asked,
        greatest(p_now - e.gap_opened, 0), e.gap_alerted, p_old, NULL::text, NULL::bytea, NULL::bytea, NULL::text;
END
$pawl$;
