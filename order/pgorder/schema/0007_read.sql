-- Reading, and forgetting.

CREATE FUNCTION {schema}.order_account(p_scope text, p_key text)
RETURNS TABLE (epoch bigint, base bigint, cursor bigint, head bigint, ended boolean, voids bigint, skipped bigint, late bigint,
    buffered bigint, parked bigint, unordered bigint, void_ahead bigint, out_of_order bigint,
    counts bigint[], oldest bigint, late_held integer, at_cursor smallint, claimed boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint := {schema}.order_now();
BEGIN
    RETURN QUERY
    SELECT e.epoch, e.base, e.cursor, e.head, e.ended, e.voids, e.skipped, e.late,
        e.buffered, e.parked, e.unordered, e.void_ahead, e.out_of_order,
        ARRAY[k.accepted, k.duplicate, k.conflict, k.late, k.stale, k.refused, k.too_far],
        CASE WHEN e.epoch = k.active THEN (
            SELECT greatest(now - m.pushed_at, 0)
            FROM {schema}.order_epochs AS x JOIN {schema}.order_messages AS m ON m.kid = x.kid AND m.epoch = x.epoch
            WHERE x.kid = k.kid AND NOT x.ended AND m.place >= x.cursor AND m.state IN (1, 2) ORDER BY m.epoch, m.place LIMIT 1) END,
        k.late_held, e.at_cursor, k.claimed AND k.lease_until > now
    FROM {schema}.order_keys AS k
    CROSS JOIN LATERAL (
        (SELECT * FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND NOT t.ended ORDER BY t.epoch LIMIT 16)
        UNION ALL
        (SELECT * FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.ended ORDER BY t.epoch DESC LIMIT 16)
    ) AS e
    WHERE k.scope = p_scope AND k.key = p_key
    ORDER BY e.ended, CASE WHEN e.ended THEN -e.epoch ELSE e.epoch END;
END
$pawl$;

-- order_find says where messages are. An ID that is not empty is looked up; state
-- is that of the package order.
CREATE FUNCTION {schema}.order_find(p_scope text, p_window bigint, p_ids text[], p_keys text[], p_epochs bigint[], p_places bigint[])
RETURNS TABLE (n integer, state smallint, at_key text, at_epoch bigint, at_place bigint,
    known boolean, tries integer, age bigint, is_late boolean, has_id text, has_payload bytea, has_context bytea, has_error text,
    gap_lo bigint, gap_hi bigint, gap_age bigint, alerted boolean, asked integer, reason smallint, arrived bigint,
    resolution smallint, actor text, note text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    q    record;
    k    {schema}.order_keys;
    e    {schema}.order_epochs;
    m    {schema}.order_messages;
    g    {schema}.order_gaps;
    kind smallint;
    now  bigint := {schema}.order_now();
BEGIN
    FOR q IN SELECT * FROM unnest(p_ids, p_keys, p_epochs, p_places) WITH ORDINALITY AS q(id, key, epoch, place, n) LOOP
        n := q.n; at_key := q.key; at_epoch := q.epoch; at_place := q.place;
        k := NULL; m := NULL; g := NULL;
        IF q.id <> '' THEN
            SELECT * INTO m FROM {schema}.order_messages AS t WHERE t.id = q.id AND t.scope = p_scope AND t.named;
            SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.kid = m.kid;
            at_key := coalesce(k.key, ''); at_epoch := coalesce(m.epoch, 0); at_place := coalesce(m.place, -1);
        ELSE
            SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = q.key;
            SELECT * INTO m FROM {schema}.order_messages AS t WHERE t.kid = k.kid AND t.epoch = q.epoch AND t.place = q.place;
        END IF;
        SELECT * INTO e FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch = at_epoch;
        kind := NULL;
        IF e.voids > 0 OR e.skipped > 0 OR e.void_ahead > 0 OR e.unordered > 0 THEN
            kind := {schema}.order_range_at(k.kid, at_epoch, at_place);
        END IF;
        state := CASE
            WHEN e.epoch IS NULL OR at_place < e.base OR at_place >= e.head THEN 0
            WHEN kind = 1 THEN 2
            WHEN kind = 2 THEN 3
            WHEN kind = 3 THEN 8
            WHEN at_place >= e.cursor THEN CASE m.state WHEN 1 THEN 6 WHEN 2 THEN 7 ELSE 9 END
            WHEN m.state IN (3, 4) THEN 4
            WHEN e.cursor - at_place > p_window THEN 5
            WHEN m.late THEN 4
            ELSE 1 END;
        IF state = 3 THEN
            SELECT * INTO g FROM {schema}.order_gaps AS t
            WHERE t.scope = p_scope AND t.key = at_key AND t.epoch = at_epoch AND t.lo <= at_place ORDER BY t.lo DESC LIMIT 1;
            IF g.hi <= at_place THEN g := NULL; END IF;
        END IF;
        known := state <> 0 AND m.digest IS NOT NULL;
        tries := CASE
            WHEN m.state <> 1 THEN m.attempt
            WHEN at_place < e.cursor THEN m.attempt + 1
            WHEN at_place = e.cursor THEN e.attempts
            WHEN at_place < e.begun THEN 1
            ELSE 0 END;
        age := greatest(now - m.pushed_at, 0);
        is_late := m.late; has_id := m.id; has_payload := m.payload; has_context := m.context; has_error := m.error;
        gap_lo := g.lo; gap_hi := g.hi; gap_age := greatest(now - g.opened, 0); alerted := g.alerted; asked := g.asked;
        reason := g.reason; arrived := g.arrived; resolution := g.resolution; actor := g.actor; note := g.note;
        RETURN NEXT;
    END LOOP;
END
$pawl$;

CREATE FUNCTION {schema}.order_list_gaps(
    p_scope text, p_key text, p_after text, p_after_epoch bigint, p_after_place bigint, p_most integer, p_unresolved boolean)
RETURNS TABLE (key text, epoch bigint, lo bigint, hi bigint, age bigint, since bigint, open boolean, old boolean, alerted boolean, asked integer,
    reason smallint, arrived bigint, resolution smallint, actor text, note text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.order_now();
    last text := coalesce(p_key, repeat(chr(1114111), 129));  -- behind every key
BEGIN
    IF p_key > p_after COLLATE "C" THEN
        p_after := p_key; p_after_epoch := -1; p_after_place := -1;
    END IF;
    RETURN QUERY
    SELECT * FROM (
        (SELECT g.key, g.epoch, g.lo, g.hi, greatest(now - g.opened, 0), 0::bigint, false, false, g.alerted, g.asked,
            g.reason, g.arrived, g.resolution, g.actor, g.note
        FROM {schema}.order_gaps AS g
        WHERE g.scope = p_scope AND (g.key, g.epoch, g.lo) > (p_after, p_after_epoch, p_after_place) AND g.key <= last
        AND (NOT p_unresolved OR g.resolution = 0)
        ORDER BY g.scope, g.key, g.epoch, g.lo LIMIT p_most)
        UNION ALL
        (SELECT k.key, e.epoch, e.cursor, e.gap_above, greatest(now - e.gap_opened, 0), greatest(now - e.gap_since, 0), true, k.epochs > 1, e.gap_alerted, e.gap_asked,
            0::smallint, 0::bigint, 0::smallint, '', ''
        FROM {schema}.order_epochs AS e
        JOIN {schema}.order_keys AS k ON k.kid = e.kid
        WHERE e.gap_opened IS NOT NULL AND k.scope = p_scope
        AND (k.key, e.epoch, e.cursor) > (p_after, p_after_epoch, p_after_place) AND k.key <= last
        ORDER BY k.key, e.epoch, e.cursor LIMIT p_most)
    ) AS g
    ORDER BY 1, 2, 3 LIMIT p_most;
END
$pawl$;

CREATE FUNCTION {schema}.order_list_parked(
    p_scope text, p_key text, p_after text, p_after_epoch bigint, p_after_place bigint, p_most integer)
RETURNS TABLE (key text, epoch bigint, place bigint, attempt integer, age bigint, late boolean,
    id text, payload bytea, context bytea, error text)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
#variable_conflict use_column
DECLARE
    now  bigint := {schema}.order_now();
    one bigint;
BEGIN
    IF p_key IS NOT NULL THEN
        SELECT k.kid INTO one FROM {schema}.order_keys AS k WHERE k.scope = p_scope AND k.key = p_key;
        one := coalesce(one, -1);
    END IF;
    RETURN QUERY
    SELECT r.key, r.epoch, r.place, m.attempt, greatest(now - m.pushed_at, 0), m.late, m.id, m.payload, m.context, m.error
    FROM (
        SELECT k.key, t.kid, t.epoch, t.place
        FROM {schema}.order_messages AS t JOIN {schema}.order_keys AS k ON k.kid = t.kid
        WHERE t.state IN (2, 3, 4) AND t.state <> 3 AND k.scope = p_scope
        AND t.kid >= coalesce(one, 0) AND t.kid <= coalesce(one, 9223372036854775807)
        AND (k.key, t.epoch, t.place) > (p_after, p_after_epoch, p_after_place)
        ORDER BY k.key, t.epoch, t.place LIMIT p_most
    ) AS r
    JOIN {schema}.order_messages AS m ON m.kid = r.kid AND m.epoch = r.epoch AND m.place = r.place
    ORDER BY r.key, r.epoch, r.place;
END
$pawl$;

CREATE FUNCTION {schema}.order_totals(p_scope text)
RETURNS TABLE (keys bigint, buffered numeric, parked numeric, late_held bigint, open_gaps bigint, unresolved bigint, oldest bigint)
LANGUAGE plpgsql VOLATILE
SET jit = off
AS $pawl$
#variable_conflict use_column
DECLARE
    now bigint := {schema}.order_now();
BEGIN
    RETURN QUERY
    SELECT t.keys, t.buffered, t.parked, t.late_held, t.open_gaps,
        (SELECT count(*) FROM {schema}.order_gaps AS g WHERE g.scope = p_scope AND g.resolution = 0),
        greatest(now - t.oldest, 0)
    FROM (
        SELECT (SELECT count(*) FROM {schema}.order_keys AS k WHERE k.scope = p_scope) AS keys,
            coalesce(sum(e.buffered), 0) AS buffered, coalesce(sum(e.parked), 0) AS parked,
            (SELECT coalesce(sum(k.late_held), 0) FROM {schema}.order_keys AS k WHERE k.scope = p_scope AND k.late_held > 0) AS late_held,
            count(e.gap_opened) AS open_gaps,
            min(CASE WHEN e.buffered + e.parked > 0 AND (e.epoch = k.active OR e.epoch = (
                SELECT min(x.epoch) FROM {schema}.order_epochs AS x WHERE x.kid = e.kid AND NOT x.ended AND x.buffered + x.parked > 0)) THEN (
                SELECT m.pushed_at FROM {schema}.order_messages AS m
                WHERE m.kid = e.kid AND m.epoch = e.epoch AND m.place >= e.cursor AND m.state IN (1, 2) ORDER BY m.place LIMIT 1)
            END) AS oldest
        FROM {schema}.order_keys AS k JOIN {schema}.order_epochs AS e ON e.kid = k.kid
        WHERE k.scope = p_scope AND NOT e.ended AND e.cursor < e.head
    ) AS t;
END
$pawl$;

-- order_sweep looks at up to p_most messages, keys and gap records behind a place,
-- forgets those that need not be remembered, and says where to go on: with a NULL
-- key behind the last one.
CREATE FUNCTION {schema}.order_sweep(
    p_scope text, p_window bigint, p_keep bigint, p_keep_gaps bigint, p_key text, p_epoch bigint, p_place bigint, p_most integer)
RETURNS TABLE (forgotten integer, next_key text, next_epoch bigint, next_place bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    k      record;
    e      record;
    now    bigint := {schema}.order_now();
    left_  integer := p_most;
    gone   integer;
    seen   integer;
    ended  bigint;
    last   bigint;
BEGIN
    forgotten := 0;
    IF p_key = '' THEN  -- once in every pass
        DELETE FROM {schema}.order_gaps AS t WHERE t.ctid = ANY (ARRAY(
            SELECT g.ctid FROM {schema}.order_gaps AS g WHERE g.scope = p_scope AND g.resolved_at <= now - p_keep_gaps
            LIMIT p_most FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS gone = ROW_COUNT;
        forgotten := gone;
        left_ := left_ - gone;
    END IF;
    <<keys>>
    FOR k IN SELECT t.kid, t.key FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key >= p_key ORDER BY t.key LOOP
        next_key := k.key;
        IF k.key <> p_key THEN
            p_epoch := -1;
            p_place := -1;
        END IF;
        next_epoch := p_epoch; next_place := p_place;
        EXIT keys WHEN left_ <= 0;
        IF k.key <> p_key THEN left_ := left_ - 1; END IF;  -- once: a call always gets further
        FOR e IN SELECT * FROM {schema}.order_epochs AS t WHERE t.kid = k.kid AND t.epoch >= p_epoch ORDER BY t.epoch LOOP
            -- What lies below ended has ended long enough ago.
            SELECT max(t.upto) INTO ended FROM {schema}.order_marks AS t WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.at <= now - p_keep;
            DELETE FROM {schema}.order_marks AS t WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.upto < ended;
            IF e.moved <= now - p_keep THEN
                ended := e.cursor;
            END IF;
            last := CASE WHEN e.epoch = p_epoch THEN p_place ELSE -1 END;
            LOOP
                next_epoch := e.epoch; next_place := last;
                EXIT keys WHEN left_ <= 0;
                WITH looked AS MATERIALIZED (
                    SELECT t.ctid AS row, t.place, t.state IN (1, 5) AND (t.id = '' OR NOT t.named
                        OR t.state = 1 AND t.place < ended OR t.state = 5 AND t.ended_at <= now - p_keep) AS forget
                    FROM {schema}.order_messages AS t
                    WHERE t.kid = k.kid AND t.epoch = e.epoch AND t.place > last AND t.place < e.cursor - p_window
                    ORDER BY t.place LIMIT least(left_, 1000) FOR UPDATE SKIP LOCKED
                ), removed AS (
                    DELETE FROM {schema}.order_messages AS t WHERE t.ctid = ANY (ARRAY(SELECT l.row FROM looked AS l WHERE l.forget))
                    RETURNING 1
                )
                SELECT (SELECT count(*) FROM removed), count(*), max(l.place) INTO gone, seen, last FROM looked AS l;
                EXIT WHEN seen = 0;
                forgotten := forgotten + gone;
                left_ := left_ - seen;
            END LOOP;
        END LOOP;
        next_key := NULL;
    END LOOP;
    RETURN NEXT;
END
$pawl$;
