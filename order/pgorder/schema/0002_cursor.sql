-- How a cursor moves.

-- order_carry takes a cursor over the void and unordered places at it.
CREATE FUNCTION {schema}.order_carry(e {schema}.order_epochs, p_now bigint) RETURNS {schema}.order_epochs
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.order_ranges;
    n bigint;
BEGIN
    WHILE e.void_ahead > 0 OR e.unordered > 0 LOOP
        SELECT * INTO r FROM {schema}.order_ranges AS t
        WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.lo <= e.cursor ORDER BY t.lo DESC LIMIT 1;
        EXIT WHEN r.hi IS NULL OR r.hi <= e.cursor;
        n := r.hi - e.cursor;
        IF r.kind = 1 THEN
            e.void_ahead := e.void_ahead - n;
            e.voids := e.voids + n;
        ELSE
            e.unordered := e.unordered - n;
            e.out_of_order := e.out_of_order + n;
            DELETE FROM {schema}.order_ranges AS t WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.lo = r.lo;
        END IF;
        e.cursor := r.hi;
        e.attempts := CASE WHEN e.cursor < e.begun THEN 1 ELSE 0 END;
        e.due := NULL;
        e.gap_opened := NULL;
        e.moved := p_now;
        e.at_cursor := 0;
    END LOOP;
    RETURN e;
END
$pawl$;

-- order_move moves the cursor to p_to, which lies above it and not above the
-- head. What is missing on the way is skipped, with a record for each unbroken
-- range; the caller has accounted for what was buffered or parked, and skips it
-- with p_all.
CREATE FUNCTION {schema}.order_move(
    e {schema}.order_epochs, p_to bigint, p_skip boolean, p_keep bigint, p_now bigint,
    p_reason integer, p_resolution integer, p_actor text, p_note text)
RETURNS {schema}.order_epochs
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r    {schema}.order_ranges;
    k    {schema}.order_keys;
    here bigint := e.cursor;
    stop bigint;
BEGIN
    IF p_keep > 0 AND e.mark_from <= p_now - p_keep / 16 THEN
        INSERT INTO {schema}.order_marks (kid, epoch, upto, at) VALUES (e.kid, e.epoch, e.cursor, e.moved)
        ON CONFLICT (kid, epoch, upto) DO NOTHING;
        e.mark_from := p_now;
    END IF;
    WHILE here < p_to AND (p_skip OR e.void_ahead > 0 OR e.unordered > 0) LOOP
        -- The range that has this place, or else the next one above it.
        SELECT * INTO r FROM {schema}.order_ranges AS t
        WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.lo <= here ORDER BY t.lo DESC LIMIT 1;
        IF r.hi IS NULL OR r.hi <= here THEN
            SELECT * INTO r FROM {schema}.order_ranges AS t
            WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.lo > here ORDER BY t.lo LIMIT 1;
            stop := least(r.lo, p_to);
            IF p_skip THEN
                IF k.kid IS NULL THEN
                    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = e.kid;
                END IF;
                PERFORM {schema}.order_range_add(e.kid, e.epoch, here, stop, 2);
                INSERT INTO {schema}.order_gaps (scope, key, epoch, lo, hi, reason, resolution, alerted, asked, opened, resolved_at, actor, note)
                VALUES (k.scope, k.key, e.epoch, here, stop, p_reason, p_resolution,
                        here = e.cursor AND e.gap_opened IS NOT NULL AND e.gap_alerted,
                        CASE WHEN here = e.cursor AND e.gap_opened IS NOT NULL THEN e.gap_asked ELSE 0 END,
                        CASE WHEN here = e.cursor THEN coalesce(e.gap_opened, p_now) ELSE p_now END,
                        CASE WHEN p_resolution > 0 THEN p_now END, p_actor, p_note);
                e.skipped := e.skipped + stop - here;
            END IF;
        ELSE
            stop := least(r.hi, p_to);
            IF r.kind = 1 THEN
                e.void_ahead := e.void_ahead - (stop - here);
                e.voids := e.voids + (stop - here);
            ELSE
                e.unordered := e.unordered - (stop - here);
                e.out_of_order := e.out_of_order + (stop - here);
                DELETE FROM {schema}.order_ranges AS t WHERE t.kid = e.kid AND t.epoch = e.epoch AND t.lo = r.lo;
                IF stop < r.hi THEN
                    INSERT INTO {schema}.order_ranges (kid, epoch, lo, hi, kind) VALUES (e.kid, e.epoch, stop, r.hi, 3);
                END IF;
            END IF;
        END IF;
        here := stop;
    END LOOP;
    e.cursor := p_to;
    e.attempts := CASE WHEN p_to < e.begun THEN 1 ELSE 0 END;
    e.due := NULL;
    e.gap_opened := NULL;
    e.moved := p_now;
    e.at_cursor := 0;
    RETURN e;
END
$pawl$;

-- order_save writes all of an epoch that can change.
CREATE FUNCTION {schema}.order_save(e {schema}.order_epochs) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    UPDATE {schema}.order_epochs AS t SET
        at_cursor = e.at_cursor, ended = e.ended, gap_alerted = e.gap_alerted, gap_asked = e.gap_asked, attempts = e.attempts,
        cursor = e.cursor, head = e.head, begun = e.begun, run_to = e.run_to, voids = e.voids, skipped = e.skipped,
        late = e.late, out_of_order = e.out_of_order, buffered = e.buffered, parked = e.parked, unordered = e.unordered,
        void_ahead = e.void_ahead, due = e.due, moved = e.moved, mark_from = e.mark_from, gap_opened = e.gap_opened,
        gap_began = e.gap_began, gap_look = e.gap_look, gap_above = e.gap_above, gap_since = e.gap_since
    WHERE t.kid = e.kid AND t.epoch = e.epoch;
END
$pawl$;

-- order_wake ends the epochs of a key that have reached their end, finds out what
-- stands at the cursor of the active one, and says when the key is due.
CREATE FUNCTION {schema}.order_wake(p_kid bigint, p_look bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k     {schema}.order_keys;
    e     {schema}.order_epochs;
    next  {schema}.order_messages;
    was   bigint;
    state smallint;
    due   bigint;
    above bigint;
BEGIN
    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = p_kid;
    was := k.active;
    LOOP
        SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch = k.active;
        e := {schema}.order_carry(e, p_now);
        EXIT WHEN e.cursor < e.head OR k.epochs = 1;
        e.ended := true;
        e.at_cursor := 0;
        e.due := NULL;
        PERFORM {schema}.order_save(e);
        k.epochs := k.epochs - 1;
        SELECT min(t.epoch) INTO k.active FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND t.epoch > k.active AND NOT t.ended;
    END LOOP;

    state := 0;
    IF e.cursor < e.head THEN
        SELECT t.state INTO state FROM {schema}.order_messages AS t
        WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place = e.cursor AND t.state IN (1, 2);
        state := coalesce(state, 3);
    END IF;
    IF state = 1 THEN
        IF e.at_cursor <> 1 OR e.due IS NULL THEN e.due := p_now; END IF;
        e.gap_opened := NULL;
    ELSIF state = 3 THEN
        -- What lies behind it. The place below the head is never missing.
        above := e.head;
        IF e.buffered > 0 THEN
            SELECT * INTO next FROM {schema}.order_messages AS t
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place > e.cursor AND t.state = 1 ORDER BY t.place LIMIT 1;
            above := next.place;
        END IF;
        IF e.unordered > 0 THEN
            above := least(above, (SELECT t.lo FROM {schema}.order_ranges AS t
                WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.lo > e.cursor AND t.kind = 3 ORDER BY t.lo LIMIT 1));
        END IF;
        IF e.gap_opened IS NULL THEN
            IF e.gap_above IS DISTINCT FROM above THEN  -- otherwise it is the rest of the last one
                e.gap_began := CASE WHEN next.place = above THEN next.pushed_at ELSE p_now END;
                e.gap_look := e.gap_began + p_look;
                e.gap_alerted := false;
                e.gap_asked := 0;
            END IF;
            e.gap_opened := e.gap_began;
            e.gap_since := p_now;
            e.due := e.gap_look;
        END IF;
        e.gap_above := above;
    ELSE
        e.due := NULL;
        e.gap_opened := NULL;
    END IF;
    e.at_cursor := state;
    PERFORM {schema}.order_save(e);

    due := least(e.due, k.late_due);
    IF k.claimed AND due IS NOT NULL THEN
        due := greatest(due, k.lease_until);
    END IF;
    IF due IS DISTINCT FROM k.next_at OR was <> k.active THEN
        UPDATE {schema}.order_keys AS t SET active = k.active, epochs = k.epochs, next_at = due WHERE t.kid = p_kid;
    END IF;
END
$pawl$;

-- order_new_epoch begins an epoch of a key that is locked, and with p_abandon
-- ends all lower ones. The caller wakes the key.
CREATE FUNCTION {schema}.order_new_epoch(
    p_kid bigint, p_epoch bigint, p_base bigint, p_abandon boolean, p_keep bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    e {schema}.order_epochs;
BEGIN
    IF p_abandon THEN
        FOR e IN SELECT * FROM {schema}.order_epochs AS t WHERE t.kid = p_kid AND NOT t.ended LOOP
            UPDATE {schema}.order_messages AS t SET state = 5, ended_at = p_now
            WHERE t.kid = p_kid AND t.epoch = e.epoch AND t.place >= e.cursor AND t.place < e.head AND t.state IN (1, 2);
            e.buffered := 0;
            e.parked := 0;
            IF e.cursor < e.head THEN
                e := {schema}.order_move(e, e.head, true, p_keep, p_now, 3, 0, '', '');
            END IF;
            e.ended := true;
            e.due := NULL;
            e.gap_opened := NULL;
            e.at_cursor := 0;
            PERFORM {schema}.order_save(e);
        END LOOP;
    END IF;
    INSERT INTO {schema}.order_epochs (kid, epoch, base, cursor, head, begun, run_to, moved, mark_from)
    VALUES (p_kid, p_epoch, p_base, p_base, p_base, p_base, p_base, p_now, p_now);
    UPDATE {schema}.order_keys AS t SET
        active = CASE WHEN p_abandon THEN p_epoch ELSE least(t.active, p_epoch) END,
        highest = greatest(t.highest, p_epoch),
        epochs = CASE WHEN p_abandon THEN 1 ELSE t.epochs + 1 END
    WHERE t.kid = p_kid;
END
$pawl$;
