-- reconcile_settle applies settlements by the rules of reconcile.Store.Settle. The arrays
-- have one item for each, sorted by key, those of one key in order. p_plain says that
-- an item is the only one of its key, and accepts, confirms, fails or doubts. p_mode is as in
-- reconcile_begin.
--
-- Every settlement that was not applied has a row: 1 stale, 2 not found, 3 changed,
-- 9 locked, 10 + state ended otherwise.
CREATE FUNCTION {schema}.reconcile_settle(
    p_mode integer, p_kind text, p_quiet bigint, p_retention bigint, p_plain boolean[], p_verbs smallint[], p_keys text[], p_tokens bigint[],
    p_nonces bytea[], p_states smallint[], p_results bytea[], p_agains boolean[], p_lookeds boolean[], p_delays bigint[], p_leases bigint[],
    p_bys text[], p_notes text[])
RETURNS TABLE (n integer, outcome integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now      bigint := {schema}.reconcile_now();
    done     bigint[] := '{}';
    at       integer := 1;
    account  text;
    change   integer[];
    accounts text[] := '{}';
    changes  integer[] := '{}';
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    IF p_mode = 0 AND true = ANY (p_plain) THEN
        -- What was sent, and came to an end: one statement for all. A row that is changed
        -- meanwhile has another ctid, and is left to what comes below.
        WITH told AS (
            UPDATE {schema}.reconcile_ops AS t SET
                state = CASE a.verb WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 3 THEN 4 ELSE 5 END, ended_by = a.verb, until = NULL,
                due = CASE WHEN a.verb IN (1, 4) OR a.verb = 3 AND a.again AND a.delay > 0 THEN now + a.delay END,
                again = a.verb = 3 AND a.again,
                expires = CASE WHEN a.verb IN (2, 3) THEN now + p_retention END,
                result = CASE WHEN a.verb <> 4 AND a.result IS NOT NULL THEN a.result ELSE t.result END,
                log = t.log || {schema}.reconcile_line(now, a.verb, CASE a.verb WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 3 THEN 4 ELSE 5 END,
                    t.token, a.told, a.note)
            FROM (
                SELECT b.*, x.ctid AS place
                FROM unnest(p_plain, p_verbs, p_keys, p_tokens, p_results, p_agains, p_delays, p_bys, p_notes) WITH ORDINALITY
                    AS b(plain, verb, key, token, result, again, delay, told, note, n)
                CROSS JOIN LATERAL (
                    SELECT t.ctid FROM {schema}.reconcile_ops AS t
                    WHERE t.kind = p_kind AND t.key = b.key AND t.token = b.token AND t.state + 0 = 1 AND t.ended_by = 0 AND NOT t.outside
                    AND t.review || '' = '' AND cardinality(t.log) < 32 OFFSET 0
                ) AS x
                WHERE b.plain
            ) AS a
            WHERE t.ctid = a.place
            RETURNING a.n, t.state, t.account, t.attempts > 1 AS resent, t.state = 4 AND t.due IS NOT NULL AS waits
        ), noted AS (
            INSERT INTO {schema}.reconcile_deltas (kind, accounts, parts, ns)
            SELECT p_kind, array_agg(x.account), array_agg(x.part), array_agg(x.n)
            FROM (
                SELECT t.account, 1 AS part, -count(*)::integer AS n FROM told AS t GROUP BY t.account
                UNION ALL
                SELECT t.account, t.state, count(*)::integer FROM told AS t GROUP BY t.account, t.state
                UNION ALL
                SELECT t.account, 8, count(*)::integer FROM told AS t WHERE t.resent AND t.state = 3 GROUP BY t.account
                UNION ALL
                SELECT t.account, 9, count(*)::integer FROM told AS t WHERE t.waits GROUP BY t.account
            ) AS x HAVING count(*) > 0
        )
        SELECT coalesce(array_agg(t.n ORDER BY t.n), '{}') INTO done FROM told AS t;
    END IF;
    IF cardinality(done) < cardinality(p_keys) THEN
        FOR i IN 1 .. cardinality(p_keys) LOOP
            IF at <= cardinality(done) AND done[at] = i THEN
                at := at + 1;
                CONTINUE;
            END IF;
            n := i;
            IF p_mode = 0 THEN
                SELECT s.outcome, s.account, s.change INTO outcome, account, change FROM {schema}.reconcile_settle_one(
                    p_kind, p_quiet, p_retention, p_verbs[i], p_keys[i], p_tokens[i], p_nonces[i], p_states[i], p_results[i], p_agains[i],
                    p_lookeds[i], p_delays[i], p_leases[i], p_bys[i], p_notes[i]) AS s;
            ELSE
                BEGIN
                    SELECT s.outcome, s.account, s.change INTO outcome, account, change FROM {schema}.reconcile_settle_one(
                        p_kind, p_quiet, p_retention, p_verbs[i], p_keys[i], p_tokens[i], p_nonces[i], p_states[i], p_results[i], p_agains[i],
                        p_lookeds[i], p_delays[i], p_leases[i], p_bys[i], p_notes[i]) AS s;
                EXCEPTION WHEN lock_not_available THEN
                    outcome := 9; change := NULL;
                END;
            END IF;
            IF outcome > 0 THEN
                RETURN NEXT;
            END IF;
            IF change IS NOT NULL THEN
                accounts := accounts || account;
                changes := changes || ARRAY[change];
            END IF;
        END LOOP;
        PERFORM {schema}.reconcile_note_changes(p_kind, accounts, changes);
    END IF;
    PERFORM {schema}.reconcile_fold_sometimes(p_mode, p_kind);
END
$pawl$;

-- reconcile_settle_one applies one settlement. change is that of the tally of an account.
CREATE FUNCTION {schema}.reconcile_settle_one(
    p_kind text, p_quiet bigint, p_retention bigint, p_verb integer, p_key text, p_token bigint, p_nonce bytea, p_state integer,
    p_result bytea, p_again boolean, p_looked boolean, p_delay bigint, p_lease bigint, p_by text, p_note text,
    OUT outcome integer, OUT account text, OUT change integer[])
LANGUAGE plpgsql VOLATILE AS
$pawl$
#variable_conflict use_column
DECLARE
    r       {schema}.reconcile_ops;
    o       record;
    now     bigint;
    was     integer[];
    applied boolean := false;
BEGIN
    SELECT * INTO r FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key = p_key FOR UPDATE;
    now := {schema}.reconcile_now();
    account := r.account;
    was := {schema}.reconcile_tally(r.state, r.review, r.attempts, r.due);
    outcome := 0;
    IF p_verb = 11 THEN
        IF r.token IS NOT NULL THEN
            DELETE FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key = p_key;
            change := {schema}.reconcile_change(was, NULL);
        END IF;
        RETURN;
    ELSIF r.token IS NULL OR {schema}.reconcile_expired(now, r.expires, r.review, r.due) THEN
        outcome := CASE WHEN p_verb IN (9, 10) THEN 2 ELSE 1 END;
        RETURN;
    END IF;

    IF p_verb IN (9, 10) THEN
        IF r.said_to = p_nonce THEN
            outcome := r.said;
            RETURN;
        END IF;
        IF p_verb = 9 THEN
            o := {schema}.reconcile_receipt(r, now, p_retention, p_state, p_by, p_note);
            r := o.op;
            outcome := o.outcome;
            applied := o.applied;
        ELSIF r.token <> p_token THEN
            outcome := 3;
        ELSIF r.state IN (3, 4) AND r.review = '' THEN
            outcome := 10 + r.state;
        ELSE
            r := {schema}.reconcile_ended(r, now, p_retention, p_state, p_again);
            IF p_again THEN
                r.due := now;
            END IF;
            r := {schema}.reconcile_moved(r, now, p_nonce, 1);
            r.ended_by := 10;
            r := {schema}.reconcile_log(r, now, 10, p_by, p_note);
            applied := true;
        END IF;
        r.said_to := p_nonce;
        r.said := outcome;
        PERFORM {schema}.reconcile_save(r, CASE WHEN applied THEN p_result END);
    ELSE
        IF r.token <> p_token THEN
            outcome := 1;
        ELSIF r.outside THEN
            outcome := CASE WHEN p_verb = 8 OR p_verb = 2 AND r.state = 3 OR p_verb = 3 AND r.state = 4 THEN 0 ELSE 10 + r.state END;
            RETURN;
        ELSIF r.ended_by = p_verb THEN  -- applied before
            RETURN;
        ELSIF r.ended_by <> 0 OR p_verb = 7 AND r.state <> 1 AND (r.granted <> 4 OR r.until IS NULL OR r.until <= now) THEN
            outcome := 1;
        END IF;
        IF outcome <> 0 OR p_verb = 7 AND r.state = 1 THEN
            RETURN;
        END IF;
        r := {schema}.reconcile_told(r, now, p_quiet, p_retention, p_verb, p_again, p_looked, p_delay, p_lease, p_by, p_note);
        PERFORM {schema}.reconcile_save(r, CASE WHEN p_verb IN (1, 2, 3) THEN p_result END);
    END IF;
    change := {schema}.reconcile_change(was, {schema}.reconcile_tally(r.state, r.review, r.attempts, r.due));
END
$pawl$;

-- reconcile_ended is an operation that is Confirmed or Failed.
CREATE FUNCTION {schema}.reconcile_ended(r {schema}.reconcile_ops, p_now bigint, p_retention bigint, p_state integer, p_again boolean)
RETURNS {schema}.reconcile_ops LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    r.state := p_state; r.again := p_again; r.review := ''; r.due := NULL; r.until := NULL;
    r.expires := p_now + p_retention;
    RETURN r;
END
$pawl$;

-- reconcile_receipt is what the remote said by itself.
CREATE FUNCTION {schema}.reconcile_receipt(
    r {schema}.reconcile_ops, p_now bigint, p_retention bigint, p_state integer, p_by text, p_note text,
    OUT op {schema}.reconcile_ops, OUT outcome integer, OUT applied boolean)
LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    outcome := 0;
    applied := false;
    IF r.state = p_state THEN
        IF r.state = 4 THEN
            r.again := false; r.due := NULL; r.until := NULL;
            r.outside := r.ended_by = 0;
            r.expires := coalesce(r.expires, p_now + p_retention);  -- it may never have been sent
        END IF;
    ELSIF r.state IN (3, 4) THEN
        r.again := false; r.due := NULL; r.until := NULL; r.review := 'contradicting receipts';
        r.outside := r.ended_by = 0;
        r := {schema}.reconcile_log(r, p_now, 9, p_by, p_note);
        outcome := 10 + r.state;
    ELSE
        applied := true;
        r.outside := r.ended_by = 0;
        r := {schema}.reconcile_ended(r, p_now, p_retention, p_state, false);
        r := {schema}.reconcile_log(r, p_now, 9, p_by, p_note);
    END IF;
    op := r;
END
$pawl$;

-- reconcile_told is what becomes of an operation by its owner.
CREATE FUNCTION {schema}.reconcile_told(
    r {schema}.reconcile_ops, p_now bigint, p_quiet bigint, p_retention bigint, p_verb integer, p_again boolean, p_looked boolean,
    p_delay bigint, p_lease bigint, p_by text, p_note text)
RETURNS {schema}.reconcile_ops LANGUAGE plpgsql IMMUTABLE AS
$pawl$
DECLARE
    was integer := r.state;
BEGIN
    IF p_verb = 7 THEN
        r := {schema}.reconcile_sent(r, p_now, p_lease, p_quiet, was = 4);
        RETURN {schema}.reconcile_log(r, p_now, 7, p_by, p_note);
    ELSIF p_verb = 8 THEN
        r.until := p_now + p_lease;
        IF r.state = 1 THEN
            r.due := r.until + p_quiet;
        END IF;
        RETURN r;
    END IF;
    r.ended_by := p_verb; r.until := NULL;
    IF p_verb IN (1, 4) THEN
        r.state := CASE p_verb WHEN 1 THEN 2 ELSE 5 END;
        r.due := p_now + p_delay;
        r.expires := NULL;
    ELSIF p_verb = 2 THEN
        r := {schema}.reconcile_ended(r, p_now, p_retention, 3, false);
    ELSIF p_verb = 3 THEN
        r := {schema}.reconcile_ended(r, p_now, p_retention, 4, p_again);
        IF p_again AND p_delay > 0 THEN
            r.due := p_now + p_delay;
        END IF;
    ELSIF p_verb = 5 THEN
        r.due := p_now + p_delay;
        r.looks := r.looks + p_looked::integer;
    ELSIF p_verb = 6 THEN
        r.review := p_note; r.due := NULL;
    END IF;
    IF r.state = 1 THEN
        r.state := 5;
    END IF;
    IF r.state <> was OR p_verb = 6 THEN
        r := {schema}.reconcile_log(r, p_now, p_verb, p_by, p_note);
    END IF;
    RETURN r;
END
$pawl$;
