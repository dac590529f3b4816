-- What a person decides, and what was delivered outside of the buffer.

CREATE FUNCTION {schema}.order_settle_person(
    p_kid bigint, p_look bigint, p_keep bigint, p_kind integer, p_epoch bigint, p_lo bigint, p_hi bigint,
    p_resolution integer, p_actor text, p_note text) RETURNS smallint
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k     {schema}.order_keys;
    e     {schema}.order_epochs;
    m     {schema}.order_messages;
    now   bigint := {schema}.order_now();
    found_any boolean;
BEGIN
    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = p_kid;
    SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = p_epoch;
    IF e.epoch IS NULL THEN
        RETURN 2;
    END IF;
    IF p_kind IN (12, 13) THEN
        SELECT * INTO m FROM {schema}.order_messages AS t WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_lo;
    END IF;

    IF p_kind = 12 THEN
        IF m.state = 2 THEN
            UPDATE {schema}.order_messages AS t SET state = 1, attempt = 0 WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_lo;
            e.parked := e.parked - 1;
            e.buffered := e.buffered + 1;
            e.attempts := 0;
            e.begun := e.cursor;
            e.run_to := e.cursor;
            e.at_cursor := 0;
            PERFORM {schema}.order_save(e);
            PERFORM {schema}.order_wake(p_kid, p_look, now);
            RETURN 0;
        ELSIF m.state = 4 THEN
            UPDATE {schema}.order_messages AS t SET state = 3, attempt = 0, due = now
            WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_lo;
            PERFORM {schema}.order_late_due(p_kid, 0, p_look, now);
            RETURN 0;
        END IF;
        RETURN CASE WHEN m.state = 3 OR m.state = 1 AND p_lo = e.cursor AND e.epoch = k.active THEN 0 ELSE 2 END;  -- resumed before

    ELSIF p_kind = 13 THEN
        IF m.state = 2 THEN
            UPDATE {schema}.order_messages AS t SET state = 5, ended_at = now, attempt = greatest(t.attempt, e.attempts)
            WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_lo;
            e.parked := e.parked - 1;
            e := {schema}.order_move(e, p_lo + 1, true, p_keep, now, 2, p_resolution, p_actor, p_note);
            PERFORM {schema}.order_save(e);
            PERFORM {schema}.order_wake(p_kid, p_look, now);
            RETURN 0;
        ELSIF m.state = 4 THEN
            UPDATE {schema}.order_messages AS t SET state = 5, ended_at = now
            WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_lo;
            PERFORM {schema}.order_late_due(p_kid, -1, p_look, now);
            RETURN 0;
        END IF;
        RETURN CASE WHEN m.late AND m.state = 5 OR EXISTS (  -- dropped before
            SELECT FROM {schema}.order_gaps AS t
            WHERE t.scope = k.scope AND t.key = k.key AND t.epoch = p_epoch AND t.lo = p_lo AND t.reason = 2) THEN 0 ELSE 2 END;
    END IF;

    -- Kind 14: what a person made of gaps.
    UPDATE {schema}.order_gaps AS t SET resolution = p_resolution, actor = p_actor, note = p_note,
        resolved_at = CASE WHEN t.resolution = p_resolution THEN t.resolved_at WHEN p_resolution > 0 THEN now END
    WHERE t.scope = k.scope AND t.key = k.key AND t.epoch = p_epoch AND t.lo >= p_lo AND t.hi <= p_hi;
    found_any := FOUND;
    IF e.gap_opened IS NOT NULL AND e.cursor = p_lo AND p_hi > p_lo THEN
        found_any := true;
        IF p_resolution = 1 THEN
            e.gap_opened := now;
            e.gap_began := now;
            e.gap_since := now;
            e.gap_look := now + p_look;
            e.gap_alerted := false;
            e.gap_asked := 0;
            e.due := e.gap_look;
        ELSE
            e := {schema}.order_move(e, least(e.gap_above, p_hi), true, p_keep, now, 4, p_resolution, p_actor, p_note);
        END IF;
        PERFORM {schema}.order_save(e);
        PERFORM {schema}.order_wake(p_kid, p_look, now);
    END IF;
    RETURN CASE WHEN found_any THEN 0 ELSE 2 END;
END
$pawl$;

-- order_unordered notes that a place was delivered outside of the buffer.
CREATE FUNCTION {schema}.order_unordered(
    p_kid bigint, p_start bigint, p_max_ahead bigint, p_abandon boolean, p_look bigint, p_keep bigint, p_epoch bigint, p_place bigint)
RETURNS smallint
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k    {schema}.order_keys;
    e    {schema}.order_epochs;
    now  bigint := {schema}.order_now();
    base bigint;
    kind smallint;
    was  smallint;
BEGIN
    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = p_kid;
    SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = p_epoch;
    IF e.epoch IS NULL THEN
        base := CASE WHEN p_start < 0 THEN p_place ELSE p_start END;
        IF p_epoch < k.active OR p_place < base THEN
            RETURN 0;
        ELSIF k.epochs >= 16 OR p_place - base >= p_max_ahead THEN
            RETURN 3;
        END IF;
        PERFORM {schema}.order_new_epoch(p_kid, p_epoch, base, p_abandon AND k.epochs > 0 AND p_epoch > k.highest, p_keep, now);
        SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = p_epoch;
    ELSIF p_place < e.base OR p_epoch < k.active THEN
        RETURN 0;
    ELSIF p_place < e.cursor THEN
        kind := {schema}.order_range_at(p_kid, p_epoch, p_place);
        IF kind IS NULL THEN
            RETURN 0;
        END IF;
        PERFORM {schema}.order_range_cut(p_kid, p_epoch, p_place);
        UPDATE {schema}.order_epochs AS t SET late = t.late + 1, out_of_order = t.out_of_order + 1,
            voids = t.voids - CASE WHEN kind = 1 THEN 1 ELSE 0 END, skipped = t.skipped - CASE WHEN kind = 2 THEN 1 ELSE 0 END
        WHERE t.kid = p_kid AND t.epoch = p_epoch;
        PERFORM {schema}.order_late_arrived(k.scope, k.key, p_epoch, p_place);
        INSERT INTO {schema}.order_messages (kid, epoch, place, state, late, named, pushed_at, ended_at, scope, id)
        VALUES (p_kid, p_epoch, p_place, 5, true, false, now, now, k.scope, '')
        ON CONFLICT (kid, epoch, place) DO UPDATE SET state = 5, late = true, ended_at = now,  -- what was dropped is not what was delivered
            digest = CASE WHEN order_messages.id <> '' THEN order_messages.digest END;
        RETURN 0;
    ELSIF p_place - e.cursor >= p_max_ahead THEN
        RETURN 3;
    END IF;

    SELECT t.state INTO was FROM {schema}.order_messages AS t WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_place;
    IF was = 1 THEN
        UPDATE {schema}.order_messages AS t SET state = 5, ended_at = now WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.place = p_place;
        e.buffered := e.buffered - 1;
    ELSIF was IS NOT NULL THEN
        RETURN 0;
    ELSE
        kind := {schema}.order_range_at(p_kid, p_epoch, p_place);
        IF kind = 3 THEN
            RETURN 0;
        ELSIF kind = 1 THEN
            PERFORM {schema}.order_range_cut(p_kid, p_epoch, p_place);
            e.void_ahead := e.void_ahead - 1;
        END IF;
    END IF;
    PERFORM {schema}.order_range_add(p_kid, p_epoch, p_place, p_place + 1, 3);
    e.unordered := e.unordered + 1;
    e.head := greatest(e.head, p_place + 1);
    e := {schema}.order_carry(e, now);  -- also in an epoch that waits
    PERFORM {schema}.order_save(e);
    PERFORM {schema}.order_wake(p_kid, p_look, now);
    RETURN 0;
END
$pawl$;

-- order_forget erases a key.
CREATE FUNCTION {schema}.order_forget(p_kid bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k {schema}.order_keys;
BEGIN
    DELETE FROM {schema}.order_keys AS t WHERE t.kid = p_kid RETURNING * INTO k;
    DELETE FROM {schema}.order_epochs AS t WHERE t.kid = p_kid;
    DELETE FROM {schema}.order_messages AS t WHERE t.kid = p_kid;
    DELETE FROM {schema}.order_ranges AS t WHERE t.kid = p_kid;
    DELETE FROM {schema}.order_marks AS t WHERE t.kid = p_kid;
    DELETE FROM {schema}.order_gaps AS t WHERE t.scope = k.scope AND t.key = k.key;
END
$pawl$;
