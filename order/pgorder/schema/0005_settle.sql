-- order_settle settles, in an order that is sorted by key. It returns a row for
-- each settlement that was refused: 1 stale, 2 not found, 3 too far, 4 the key is
-- locked by another transaction. Kinds, reasons and resolutions are those of the
-- package order.
CREATE FUNCTION {schema}.order_settle(
    p_scope text, p_mode integer, p_start bigint, p_max_ahead bigint, p_abandon boolean, p_window bigint, p_look bigint, p_keep bigint,
    p_keys text[], p_kinds smallint[], p_tokens bigint[], p_epochs bigint[], p_froms bigint[], p_tos bigint[],
    p_errors text[], p_delays bigint[], p_leases bigint[], p_flags boolean[], p_asked integer[],
    p_reasons smallint[], p_resolutions smallint[], p_actors text[], p_notes text[])
RETURNS TABLE (n integer, outcome smallint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s'
AS $pawl$
DECLARE
    s        record;
    k        {schema}.order_keys;
    this_key text;
BEGIN
    PERFORM {schema}.order_check_isolation();
    FOR s IN
        SELECT * FROM unnest(p_keys, p_kinds, p_tokens, p_epochs, p_froms, p_tos, p_errors, p_delays, p_leases, p_flags, p_asked,
            p_reasons, p_resolutions, p_actors, p_notes)
        WITH ORDINALITY AS s(key, kind, token, epoch, lo, hi, error, delay, lease, flag, asked, reason, resolution, actor, note, n)
    LOOP
        IF s.key IS DISTINCT FROM this_key THEN
            this_key := s.key;
            k := {schema}.order_lock(p_scope, s.key, p_mode, s.kind = 15);
        ELSIF k.kid IS NULL AND s.kind = 15 THEN
            k := {schema}.order_lock(p_scope, s.key, p_mode, true);
        END IF;
        IF k.kid = -1 THEN
            outcome := 4;
            p_mode := 1;  -- enough of waiting
        ELSIF k.kid IS NULL THEN
            outcome := CASE WHEN s.kind <= 11 THEN 1 WHEN s.kind = 16 THEN 0 ELSE 2 END;
        ELSIF s.kind <= 11 THEN
            outcome := {schema}.order_settle_worker(k.kid, p_window, p_look, p_keep, s.kind, s.token, s.epoch, s.lo, s.hi,
                s.error, coalesce(s.delay, 0), coalesce(s.lease, 0), coalesce(s.flag, false), coalesce(s.asked, 0), coalesce(s.reason, 0));
        ELSIF s.kind = 15 THEN
            outcome := {schema}.order_unordered(k.kid, p_start, p_max_ahead, p_abandon, p_look, p_keep, s.epoch, s.lo);
            IF k.highest IS NULL THEN  -- leave nothing behind, if nothing came of it
                DELETE FROM {schema}.order_keys AS t WHERE t.kid = k.kid AND t.highest IS NULL;
                IF FOUND THEN k := NULL; END IF;
            END IF;
        ELSIF s.kind = 16 THEN
            PERFORM {schema}.order_forget(k.kid);
            k := NULL;
            outcome := 0;
        ELSE
            outcome := {schema}.order_settle_person(k.kid, p_look, p_keep, s.kind, s.epoch, s.lo, s.hi,
                coalesce(s.resolution, 0::smallint), coalesce(s.actor, ''), coalesce(s.note, ''));
        END IF;
        IF outcome <> 0 THEN
            n := s.n;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$pawl$;

-- order_deliver moves a cursor from where the effects of a transaction begin to
-- where they end, and gives the key back if that was the last of the run. It is what
-- a READ COMMITTED transaction with effects ends with, so a stale claim is an error,
-- and so is a cursor that stands anywhere else: below, since a server that crashed
-- has forgotten transactions, whose effects are gone as well; or above, since the
-- effects are there.
--
-- This is the usual case, within a run and nobody else at work on the key. Each SET
-- takes a few microseconds of a call that takes about fifty, so it has only that
-- which keeps a plan made for few keys from serving for many.
CREATE FUNCTION {schema}.order_deliver(
    p_scope text, p_key text, p_token bigint, p_epoch bigint, p_from bigint, p_to bigint, p_release boolean, p_look bigint, p_keep bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
AS $pawl$
DECLARE
    now bigint := {schema}.order_now();
BEGIN
    IF NOT p_release THEN
        WITH held AS MATERIALIZED (
            SELECT t.kid FROM {schema}.order_keys AS t
            WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.claimed AND t.active = p_epoch
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE {schema}.order_epochs AS t SET cursor = p_to, buffered = t.buffered - (p_to - t.cursor), attempts = 1, moved = now
        FROM held
        WHERE t.kid = held.kid AND t.epoch = p_epoch AND t.cursor = p_from AND p_from < p_to AND p_to < t.begun AND t.at_cursor = 1
        AND t.unordered = 0 AND t.void_ahead = 0 AND (p_keep = 0 OR t.mark_from > now - p_keep / 16);
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    PERFORM {schema}.order_deliver_any(p_scope, p_key, p_token, p_epoch, p_from, p_to, p_release, p_look, p_keep);
END
$pawl$;

-- order_deliver_any is order_deliver in all cases. It waits for a key.
CREATE FUNCTION {schema}.order_deliver_any(
    p_scope text, p_key text, p_token bigint, p_epoch bigint, p_from bigint, p_to bigint, p_release boolean, p_look bigint, p_keep bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s'
AS $pawl$
DECLARE
    k {schema}.order_keys;
BEGIN
    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE;
    IF k.claimed AND k.token = p_token AND k.active = p_epoch AND p_from < p_to
        AND EXISTS (SELECT FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = p_epoch AND t.cursor = p_from)
        AND 0 = {schema}.order_settle_worker(k.kid, 0, p_look, p_keep, 1, p_token, p_epoch, 0, p_to, '', 0, 0, false, 0, 0)
        AND (NOT p_release
            OR 0 = {schema}.order_settle_worker(k.kid, 0, p_look, p_keep, 10, p_token, p_epoch, 0, 0, '', 0, 0, false, 0, 0)) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'stale claim' USING ERRCODE = 'PW001';
END
$pawl$;

-- order_settle_worker applies one settlement of a worker to a key that is locked.
CREATE FUNCTION {schema}.order_settle_worker(
    p_kid bigint, p_window bigint, p_look bigint, p_keep bigint, p_kind integer, p_token bigint, p_epoch bigint, p_lo bigint, p_hi bigint,
    p_error text, p_delay bigint, p_lease bigint, p_flag boolean, p_asked integer, p_reason integer) RETURNS smallint
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k    {schema}.order_keys;
    e    {schema}.order_epochs;
    now  bigint := {schema}.order_now();
    here bigint;
    stop bigint;
    n    bigint;
    due  bigint;
    told boolean;
    asked integer;
BEGIN
    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = p_kid;
    IF p_token <= 0 OR k.token <> p_token THEN
        RETURN 1;
    END IF;
    SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = p_epoch;

    IF p_kind IN (1, 3) AND p_hi <= e.cursor THEN            -- applied before
        RETURN 0;
    ELSIF p_kind = 2 AND least(p_hi, e.head) <= greatest(p_lo, e.cursor) THEN
        RETURN 0;
    ELSIF p_kind IN (4, 5, 6) THEN
        RETURN {schema}.order_settle_late(k, e, p_window, p_kind, p_lo, p_error, p_delay, p_look, now);
    ELSIF p_kind IN (7, 8, 9, 10) AND NOT k.claimed THEN
        RETURN 0;
    ELSIF NOT k.claimed AND p_kind <> 2 THEN
        RETURN 1;
    ELSIF p_kind = 11 THEN
        due := least((SELECT t.due FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = k.active), k.late_due);
        UPDATE {schema}.order_keys AS t SET lease_until = now + p_lease,
            next_at = CASE WHEN due IS NOT NULL THEN greatest(due, now + p_lease) END
        WHERE t.kid = p_kid;
        RETURN 0;
    ELSIF p_kind <> 10 AND e.epoch IS DISTINCT FROM k.active THEN
        RETURN 1;
    END IF;

    IF p_kind = 1 THEN
        IF e.at_cursor <> 1 OR p_hi > e.head THEN
            RETURN 1;
        END IF;
        n := p_hi - e.cursor;
        IF p_hi > e.begun OR e.unordered > 0 OR e.void_ahead > 0 THEN
            SELECT count(*) INTO n FROM {schema}.order_messages AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place >= e.cursor AND t.place < p_hi AND t.state = 1;
            IF n + coalesce((SELECT sum(least(t.hi, p_hi) - greatest(t.lo, e.cursor)) FROM {schema}.order_ranges AS t
                    WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.lo < p_hi AND t.hi > e.cursor), 0) <> p_hi - e.cursor THEN
                RETURN 1;
            END IF;
        END IF;
        e.buffered := e.buffered - n;
        e := {schema}.order_move(e, p_hi, false, p_keep, now, 0, 0, '', '');
        PERFORM {schema}.order_save(e);
        PERFORM {schema}.order_wake(p_kid, p_look, now);
        RETURN 0;

    ELSIF p_kind = 2 THEN
        here := greatest(p_lo, e.cursor);
        stop := least(p_hi, e.head);
        IF NOT k.claimed THEN  -- sent again: there must be nothing left to do
            SELECT count(*) INTO n FROM {schema}.order_messages AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place >= here AND t.place < stop AND t.state IN (1, 2);
            n := n + coalesce((SELECT sum(least(t.hi, stop) - greatest(t.lo, here)) FROM {schema}.order_ranges AS t
                WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.lo < stop AND t.hi > here), 0);
            RETURN CASE WHEN n = stop - here THEN 0 ELSE 1 END;
        END IF;
        WHILE here < stop LOOP
            -- The range that has this place, or what is missing up to the next message or range.
            SELECT t.hi INTO n FROM {schema}.order_ranges AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.lo <= here ORDER BY t.lo DESC LIMIT 1;
            IF n > here THEN
                here := n;
                CONTINUE;
            END IF;
            SELECT t.lo INTO due FROM {schema}.order_ranges AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.lo > here ORDER BY t.lo LIMIT 1;
            SELECT t.place INTO n FROM {schema}.order_messages AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place >= here AND t.state IN (1, 2) ORDER BY t.place LIMIT 1;
            n := least(n, due, stop);
            IF n > here THEN
                PERFORM {schema}.order_range_add(p_kid, e.epoch, here, n, 1);
                e.void_ahead := e.void_ahead + n - here;
                here := n;
            ELSE
                here := here + 1;
            END IF;
        END LOOP;
        PERFORM {schema}.order_save(e);
        PERFORM {schema}.order_wake(p_kid, p_look, now);
        RETURN 0;

    ELSIF p_kind = 3 THEN
        IF p_hi > e.head OR EXISTS (
                SELECT FROM {schema}.order_messages AS t
                WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place >= e.cursor AND t.place < p_hi AND t.state IN (1, 2)) THEN
            RETURN 1;
        END IF;
        told := e.gap_alerted;
        asked := e.gap_asked;
        e.gap_alerted := told OR p_flag;  -- for the record, not for what is left of the gap
        e.gap_asked := greatest(asked, p_asked);
        e := {schema}.order_move(e, p_hi, true, p_keep, now, p_reason, 0, '', '');
        e.gap_alerted := told;
        e.gap_asked := asked;
        PERFORM {schema}.order_save(e);
        PERFORM {schema}.order_wake(p_kid, p_look, now);
        RETURN 0;

    ELSIF p_kind IN (7, 8) THEN
        IF e.at_cursor <> 1 OR p_lo >= 0 AND p_lo <> e.cursor THEN
            RETURN 1;
        END IF;
        UPDATE {schema}.order_messages AS t SET error = p_error, attempt = e.attempts, state = CASE p_kind WHEN 7 THEN 1 ELSE 2 END
        WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place = e.cursor;
        e.begun := e.cursor + 1;
        IF p_kind = 7 THEN
            e.due := now + p_delay;
        ELSE
            e.due := NULL;
            e.at_cursor := 2;
            e.buffered := e.buffered - 1;
            e.parked := e.parked + 1;
        END IF;
        PERFORM {schema}.order_save(e);

    ELSIF p_kind = 9 THEN
        IF e.gap_opened IS NOT NULL AND (p_lo < 0 OR p_lo = e.cursor) THEN
            UPDATE {schema}.order_epochs AS t SET gap_alerted = p_flag, gap_asked = p_asked,
                gap_look = now + p_delay, due = now + p_delay
            WHERE t.kid = p_kid AND t.epoch = e.epoch;
        END IF;

    ELSIF p_kind = 10 THEN
        IF p_flag AND e.epoch = k.active AND e.at_cursor = 1 AND e.attempts > 0 THEN
            UPDATE {schema}.order_epochs AS t SET attempts = e.attempts - 1,
                begun = CASE WHEN e.attempts > 1 THEN e.cursor + 1 ELSE e.cursor END
            WHERE t.kid = p_kid AND t.epoch = e.epoch;
        END IF;
        IF p_delay > 0 THEN
            UPDATE {schema}.order_epochs AS t SET due = now + p_delay WHERE t.kid = p_kid AND t.epoch = k.active AND t.at_cursor = 1;
        END IF;
    END IF;

    -- Given back: the key goes to the end of the line.
    due := least((SELECT t.due FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = k.active), k.late_due);
    UPDATE {schema}.order_keys AS t SET claimed = false, nonce = NULL,
        next_at = CASE WHEN due IS NOT NULL THEN greatest(due, now) END
    WHERE t.kid = p_kid;
    RETURN 0;
END
$pawl$;

-- order_settle_late applies a settlement of a late message.
CREATE FUNCTION {schema}.order_settle_late(
    k {schema}.order_keys, e {schema}.order_epochs, p_window bigint, p_kind integer, p_place bigint, p_error text, p_delay bigint, p_look bigint, p_now bigint)
RETURNS smallint
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    m {schema}.order_messages;
BEGIN
    SELECT * INTO m FROM {schema}.order_messages AS t WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place = p_place;
    IF m.state IS NULL THEN  -- never late, or ended and forgotten
        RETURN CASE WHEN p_place >= e.base AND p_place < e.cursor AND (e.ended OR e.cursor - p_place >= p_window)
            AND {schema}.order_range_at(k.kid, e.epoch, p_place) IS NULL THEN 0 ELSE 1 END;
    ELSIF m.state = 5 AND m.late THEN
        RETURN 0;
    ELSIF m.state NOT IN (3, 4) THEN
        RETURN 1;
    ELSIF NOT k.claimed THEN
        RETURN CASE WHEN p_kind <> 4 AND m.claim = -k.token THEN 0 ELSE 1 END;  -- sent again
    END IF;
    UPDATE {schema}.order_messages AS t SET
        state = CASE p_kind WHEN 4 THEN 5 WHEN 5 THEN 3 ELSE 4 END,
        ended_at = CASE WHEN p_kind = 4 THEN p_now END,
        due = CASE WHEN p_kind = 5 THEN p_now + p_delay END,
        claim = -k.token,
        error = CASE WHEN p_kind = 4 THEN t.error ELSE p_error END
    WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place = p_place;
    PERFORM {schema}.order_late_due(k.kid, CASE WHEN p_kind = 4 THEN -1 ELSE 0 END, p_look, p_now);
    RETURN 0;
END
$pawl$;

-- order_late_due finds out when the next late message is due.
CREATE FUNCTION {schema}.order_late_due(p_kid bigint, p_more integer, p_look bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    UPDATE {schema}.order_keys AS t SET late_held = t.late_held + p_more,
        late_due = (SELECT min(m.due) FROM {schema}.order_messages AS m WHERE m.kid = p_kid AND m.state IN (2, 3, 4) AND m.state = 3)
    WHERE t.kid = p_kid;
    PERFORM {schema}.order_wake(p_kid, p_look, p_now);
END
$pawl$;
