-- order_push answers arrivals, which are sorted by key. state is that of
-- order.Arrived, 20 for a duplicate whose content can no longer be compared, 21
-- for a key that another transaction has locked. elsewhere is the key of an assigned
-- one that is a duplicate elsewhere.
CREATE FUNCTION {schema}.order_push(
    p_scope text, p_mode integer, p_start bigint, p_max_buffered bigint, p_max_ahead bigint, p_abandon boolean, p_late boolean,
    p_look bigint, p_keep bigint,
    p_keys text[], p_epochs bigint[], p_places bigint[], p_ids text[], p_digests bytea[], p_payloads bytea[], p_contexts bytea[],
    p_assign boolean[])
RETURNS TABLE (n integer, answer smallint, at_epoch bigint, at_place bigint, elsewhere text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s'
AS $pawl$
DECLARE
    arrivals CURSOR FOR
        SELECT * FROM unnest(p_keys, p_epochs, p_places, p_ids, p_digests, p_payloads, p_contexts, p_assign)
        WITH ORDINALITY AS a(key, epoch, place, id, digest, payload, context, assign, n);
    a         record;
    more      boolean;
    now       bigint;
    k         {schema}.order_keys;      -- the key at hand, locked
    e         {schema}.order_epochs;    -- its epoch at hand; epoch is NULL: none
    m         {schema}.order_messages;
    this_key  text;
    busy      boolean := false;
    dirty     boolean;                  -- e has to be written
    wake      boolean;                  -- and something may have become due
    held      bigint;                   -- messages of the key that are buffered
    counts    bigint[];                 -- answers, by state
    kind      smallint;
    base      bigint;
    abandon   boolean;
    assign    boolean;
    ahead     boolean;                  -- the arrival opens an epoch
BEGIN
    PERFORM {schema}.order_check_isolation();
    arrivals := NULL;  -- a name of its own, since a transaction may push twice
    OPEN arrivals;
    LOOP
        FETCH arrivals INTO a;
        more := FOUND;
        IF this_key IS NOT NULL AND (NOT more OR a.key <> this_key) AND NOT busy THEN
            IF k.highest IS NULL THEN    -- nothing was stored: leave nothing behind
                DELETE FROM {schema}.order_keys AS t WHERE t.kid = k.kid;
            ELSE
                IF dirty THEN
                    UPDATE {schema}.order_epochs AS t SET head = e.head, buffered = e.buffered, void_ahead = e.void_ahead,
                        voids = e.voids, skipped = e.skipped, late = e.late
                    WHERE t.kid = e.kid AND t.epoch = e.epoch;
                END IF;
                UPDATE {schema}.order_keys AS t SET accepted = t.accepted + counts[1], duplicate = t.duplicate + counts[2],
                    conflict = t.conflict + counts[3], late = t.late + counts[4], stale = t.stale + counts[5],
                    refused = t.refused + counts[6], too_far = t.too_far + counts[7],
                    late_held = k.late_held, late_due = k.late_due
                WHERE t.kid = k.kid;
                IF wake THEN
                    PERFORM {schema}.order_wake(k.kid, p_look, now);
                END IF;
            END IF;
        END IF;
        EXIT WHEN NOT more;

        IF this_key IS DISTINCT FROM a.key THEN
            this_key := a.key;
            k := {schema}.order_lock(p_scope, a.key, p_mode, true);
            now := {schema}.order_now();  -- behind the lock, so that a key's times rise
            busy := k.kid = -1;
            dirty := false;
            wake := false;
            counts := '{0,0,0,0,0,0,0}';
            e := NULL;
            held := 0;
            IF k.epochs = 1 THEN
                SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = k.active;
                held := e.buffered;
            ELSIF k.epochs > 1 THEN
                SELECT sum(t.buffered) INTO held FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND NOT t.ended;
            END IF;
        END IF;
        n := a.n;
        at_epoch := a.epoch;
        at_place := a.place;
        elsewhere := NULL;
        IF busy THEN
            answer := 21;
            p_mode := 1;  -- enough of waiting
            RETURN NEXT;
            CONTINUE;
        END IF;
        assign := coalesce(a.assign, false);
        kind := NULL;
        ahead := false;

        <<rules>>
        LOOP  -- once; again when the owner of an ID turns out to be forgotten
            IF assign THEN
                SELECT * INTO m FROM {schema}.order_messages AS t WHERE t.id = a.id AND t.scope = p_scope AND t.named;
                IF FOUND THEN
                    at_epoch := m.epoch;
                    at_place := m.place;
                    IF m.kid <> k.kid THEN
                        SELECT t.key INTO elsewhere FROM {schema}.order_keys AS t WHERE t.kid = m.kid;
                        IF elsewhere IS NULL THEN CONTINUE rules; END IF;  -- forgotten this moment
                    END IF;
                    answer := 2;
                    EXIT rules;
                END IF;
                at_epoch := greatest(k.highest, a.epoch, 1);
            END IF;

            IF k.active > at_epoch THEN
                answer := 5;
                EXIT rules;
            END IF;
            IF e.epoch IS DISTINCT FROM at_epoch THEN
                IF dirty THEN
                    UPDATE {schema}.order_epochs AS t SET head = e.head, buffered = e.buffered, void_ahead = e.void_ahead,
                        voids = e.voids, skipped = e.skipped, late = e.late
                    WHERE t.kid = e.kid AND t.epoch = e.epoch;
                    dirty := false;
                END IF;
                SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = at_epoch;
            END IF;
            IF e.epoch IS NULL THEN
                IF k.epochs >= 16 THEN
                    answer := 6;
                    EXIT rules;
                END IF;
                IF assign THEN at_place := greatest(p_start, 0); END IF;
                base := CASE WHEN p_start < 0 THEN at_place ELSE p_start END;
                abandon := p_abandon AND k.epochs > 0 AND at_epoch > k.highest;
                answer := CASE WHEN at_place < base THEN 5
                               WHEN at_place - base >= p_max_ahead THEN 7
                               WHEN NOT abandon AND held >= p_max_buffered AND NOT (at_place = base AND k.epochs = 0) THEN 6
                               ELSE 1 END;
                EXIT rules WHEN answer <> 1;
                ahead := true;
            ELSE
                IF assign THEN
                    at_place := e.head;
                    IF at_place = 9223372036854775807 OR at_place - e.cursor >= p_max_ahead THEN
                        answer := 6;
                        EXIT rules;
                    END IF;
                END IF;
                IF at_place < e.base THEN
                    answer := 5;
                    EXIT rules;
                END IF;
                IF at_place < e.cursor THEN
                    IF e.voids > 0 OR e.skipped > 0 THEN
                        kind := {schema}.order_range_at(k.kid, e.epoch, at_place);
                    END IF;
                    IF kind IS NOT NULL THEN
                        answer := CASE WHEN p_late AND k.late_held >= p_max_buffered THEN 6 ELSE 4 END;
                        EXIT rules;
                    END IF;
                END IF;
                IF at_place < e.head THEN
                    SELECT * INTO m FROM {schema}.order_messages AS t
                    WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place = at_place;
                    IF FOUND AND m.digest IS NOT NULL AND (at_place < e.cursor OR m.state <> 5) THEN
                        answer := CASE WHEN m.digest = a.digest THEN 2 ELSE 3 END;
                        EXIT rules;
                    ELSIF FOUND OR at_place < e.cursor THEN
                        answer := 20;
                        EXIT rules;
                    END IF;
                    IF e.void_ahead > 0 OR e.unordered > 0 THEN
                        kind := {schema}.order_range_at(k.kid, e.epoch, at_place);
                        IF kind = 3 THEN
                            answer := 20;
                            EXIT rules;
                        END IF;
                    END IF;
                END IF;
                answer := CASE WHEN at_place - e.cursor >= p_max_ahead THEN 7
                               WHEN held >= p_max_buffered AND NOT (e.epoch = k.active AND at_place = e.cursor) THEN 6
                               ELSE 1 END;
                EXIT rules WHEN answer <> 1;
            END IF;

            -- Two messages cannot stand at one place. So it is the ID that is taken, and
            -- if its owner was not there a moment ago, it has been committed since.
            INSERT INTO {schema}.order_messages (kid, epoch, place, named, pushed_at, scope, id, digest, context, payload)
            VALUES (k.kid, at_epoch, at_place, a.id <> '', now, p_scope, a.id, a.digest, a.context, a.payload)
            ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                CONTINUE rules WHEN assign;
                INSERT INTO {schema}.order_messages (kid, epoch, place, named, pushed_at, scope, id, digest, context, payload)
                VALUES (k.kid, at_epoch, at_place, false, now, p_scope, a.id, a.digest, a.context, a.payload);
            END IF;
            EXIT rules;
        END LOOP;

        IF answer = 1 THEN
            IF ahead THEN
                IF wake THEN
                    PERFORM {schema}.order_wake(k.kid, p_look, now);  -- what comes before it closes gaps
                END IF;
                PERFORM {schema}.order_new_epoch(k.kid, at_epoch, base, abandon, p_keep, now);
                UPDATE {schema}.order_epochs AS t SET head = at_place + 1, buffered = 1 WHERE t.kid = k.kid AND t.epoch = at_epoch;
                held := CASE WHEN abandon THEN 1 ELSE held + 1 END;
                -- At once: what comes behind it may meet an epoch that has ended.
                UPDATE {schema}.order_keys AS t SET late_held = k.late_held, late_due = k.late_due WHERE t.kid = k.kid;
                PERFORM {schema}.order_wake(k.kid, p_look, now);
                SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = k.kid;
                SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = at_epoch;
            ELSE
                IF kind = 1 THEN
                    PERFORM {schema}.order_range_cut(k.kid, e.epoch, at_place);
                    e.void_ahead := e.void_ahead - 1;
                END IF;
                e.head := greatest(e.head, at_place + 1);
                e.buffered := e.buffered + 1;
                held := held + 1;
                dirty := true;
                wake := wake OR e.at_cursor IN (0, 3);
            END IF;
        ELSIF answer = 4 THEN
            PERFORM {schema}.order_range_cut(k.kid, e.epoch, at_place);
            IF kind = 1 THEN e.voids := e.voids - 1; ELSE e.skipped := e.skipped - 1; END IF;
            e.late := e.late + 1;
            dirty := true;
            PERFORM {schema}.order_late_arrived(p_scope, a.key, e.epoch, at_place);
            -- What was dropped or abandoned has left a row.
            DELETE FROM {schema}.order_messages AS t WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place = at_place;
            FOR pass IN 1 .. 2 LOOP  -- the second without the name, if another message has it
                INSERT INTO {schema}.order_messages (kid, epoch, place, state, late, named, pushed_at, ended_at, due, scope, id, digest, context, payload)
                VALUES (k.kid, e.epoch, at_place, CASE WHEN p_late THEN 3 ELSE 5 END, true, pass = 1 AND a.id <> '', now,
                        CASE WHEN NOT p_late THEN now END, CASE WHEN p_late THEN now END, p_scope, a.id, a.digest,
                        CASE WHEN p_late THEN a.context END, CASE WHEN p_late THEN a.payload END)
                ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND;
            END LOOP;
            IF p_late THEN
                k.late_held := k.late_held + 1;
                k.late_due := least(k.late_due, now);
                wake := true;
            END IF;
        END IF;
        IF elsewhere IS NULL THEN
            counts[CASE WHEN answer = 20 THEN 2 ELSE answer END] := counts[CASE WHEN answer = 20 THEN 2 ELSE answer END] + 1;
        END IF;
        RETURN NEXT;
    END LOOP;
    CLOSE arrivals;
END
$pawl$;

-- order_late_arrived counts in the record of a gap, if there is one, that a place
-- of it came after all.
CREATE FUNCTION {schema}.order_late_arrived(p_scope text, p_key text, p_epoch bigint, p_place bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    g {schema}.order_gaps;
BEGIN
    SELECT * INTO g FROM {schema}.order_gaps AS t
    WHERE t.scope = p_scope AND t.key = p_key AND t.epoch = p_epoch AND t.lo <= p_place ORDER BY t.lo DESC LIMIT 1;
    IF g.hi > p_place THEN
        UPDATE {schema}.order_gaps AS t SET arrived = t.arrived + 1
        WHERE t.scope = p_scope AND t.key = p_key AND t.epoch = p_epoch AND t.lo = g.lo;
    END IF;
END
$pawl$;
