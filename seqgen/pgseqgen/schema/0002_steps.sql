-- The steps. An outcome is 0 applied, 1 stale, 2 rolled back, 3 exhausted, 4 another
-- mode, 5 locked by another transaction. Modes, kinds and reasons are those of the
-- package seqgen.

-- seqgen_reserve answers asks, which are sorted by key.
CREATE FUNCTION {schema}.seqgen_reserve(
    p_scope text, p_mode integer, p_retention bigint,
    p_keys text[], p_modes smallint[], p_counts integer[], p_nonces bytea[], p_seen_epochs bigint[], p_seen_numbers bigint[],
    p_opens boolean[], p_tokens bigint[], p_useds bigint[])
RETURNS TABLE (n integer, outcome smallint, at_epoch bigint, lo bigint, hi bigint, at_token bigint,
    void_epoch bigint, void_lo bigint, void_hi bigint, mode smallint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    a   record;
    r   {schema}.seqgen_keys;
    now bigint;
    at  integer;
BEGIN
    PERFORM {schema}.seqgen_begin(p_mode);
    FOR a IN
        SELECT * FROM unnest(p_keys, p_modes, p_counts, p_nonces, p_seen_epochs, p_seen_numbers, p_opens, p_tokens, p_useds)
        WITH ORDINALITY AS a(key, mode, count, nonce, seen_epoch, seen_number, opens, token, used, n)
    LOOP
        IF r.key IS DISTINCT FROM a.key THEN
            r := {schema}.seqgen_lock(p_scope, a.key, p_mode);
            IF r.epoch IS NULL AND a.seen_epoch = 0 AND a.seen_number = 0 AND (a.mode <> 2 OR a.opens) THEN
                r := {schema}.seqgen_make(p_scope, a.key, p_mode);
            END IF;
        END IF;
        n := a.n; outcome := 0;
        at_epoch := 0; lo := 0; hi := 0; at_token := 0; void_epoch := 0; void_lo := 0; void_hi := 0; mode := 0;
        at := CASE WHEN r.log IS NULL THEN 0 ELSE {schema}.seqgen_logged(r.log, a.nonce) END;
        IF r.epoch = -1 THEN
            outcome := 5;
        ELSIF r.epoch IS NULL THEN
            outcome := CASE WHEN a.seen_epoch = 0 AND a.seen_number = 0 THEN 1 ELSE 2 END;
        ELSIF at > 0 THEN
            lo := {schema}.seqgen_field(r.log, at + 24);
            IF lo = 0 THEN
                outcome := 1;
            ELSE
                at_epoch := {schema}.seqgen_field(r.log, at + 16);
                hi := {schema}.seqgen_field(r.log, at + 32);
                at_token := {schema}.seqgen_field(r.log, at + 40);
            END IF;
        ELSIF (r.epoch, r.last) < (a.seen_epoch, a.seen_number) THEN
            outcome := 2; at_epoch := r.epoch; lo := r.last;
        ELSIF r.mode <> 0 AND r.mode <> a.mode THEN
            outcome := 4; mode := r.mode;
        ELSIF a.mode = 2 AND NOT a.opens AND (NOT r.owned OR r.token <> a.token) THEN
            outcome := 1;
        ELSIF r.last = 9223372036854775807 THEN
            outcome := 3;
        ELSE
            IF a.mode = 2 AND a.opens THEN
                now := {schema}.seqgen_now();
                IF {schema}.seqgen_orphan(r, 5, now, p_retention) THEN
                    void_epoch := r.epoch; void_lo := r.used + 1; void_hi := r.last;
                END IF;
                r.token := greatest(r.token + 1, now);
                r.owned := true;
                r.used := r.last;
            ELSIF a.mode = 2 THEN
                r.used := greatest(r.used, least(a.used, r.last));
            END IF;
            at_token := CASE WHEN a.mode = 2 THEN r.token ELSE 0 END;
            at_epoch := r.epoch;
            lo := r.last + 1;
            hi := r.last + least(a.count, 9223372036854775807 - r.last);
            r.last := hi;
            r.mode := a.mode;
            r.log := {schema}.seqgen_note(r.log, a.nonce, at_epoch, lo, hi, at_token);
            UPDATE {schema}.seqgen_keys AS t SET mode = r.mode, owned = r.owned, last = r.last, token = r.token, used = r.used, log = r.log
            WHERE t.scope = p_scope AND t.key = a.key;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- seqgen_settle applies changes, which are sorted by key. lo and hi are what became
-- void in void_epoch; with outcome 2 they are what the key has.
CREATE FUNCTION {schema}.seqgen_settle(
    p_scope text, p_mode integer, p_retention bigint,
    p_keys text[], p_kinds smallint[], p_epochs bigint[], p_tokens bigint[], p_los bigint[], p_his bigint[],
    p_nonces bytea[], p_reasons smallint[])
RETURNS TABLE (n integer, outcome smallint, new_epoch bigint, void_epoch bigint, void_lo bigint, void_hi bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    c       record;
    r       {schema}.seqgen_keys;
    v       {schema}.seqgen_voids;
    now     bigint;
    at      integer;
    kind    integer;
    g_epoch bigint;  -- of what is given back or void
    g_token bigint;
    g_lo    bigint;
    g_hi    bigint;
    known   boolean;
BEGIN
    PERFORM {schema}.seqgen_begin(p_mode);
    FOR c IN
        SELECT * FROM unnest(p_keys, p_kinds, p_epochs, p_tokens, p_los, p_his, p_nonces, p_reasons)
        WITH ORDINALITY AS c(key, kind, epoch, token, lo, hi, nonce, reason, n)
    LOOP
        IF r.key IS DISTINCT FROM c.key THEN
            r := {schema}.seqgen_lock(p_scope, c.key, p_mode);
            known := r.epoch IS NOT NULL;
            IF NOT known AND c.kind IN (3, 4, 5) AND NOT (c.kind = 4 AND c.epoch = 9223372036854775807) THEN
                r := {schema}.seqgen_make(p_scope, c.key, p_mode);
                -- Somebody may have made it meanwhile, and it is then one as any.
                known := r.last > 0 OR length(r.log) > 0 OR r.epoch <> 1;
            END IF;
        END IF;
        n := c.n; outcome := 0; new_epoch := 0; void_epoch := 0; void_lo := 0; void_hi := 0;
        IF r.epoch = -1 THEN
            outcome := 5;
            RETURN NEXT;
            CONTINUE;
        ELSIF r.epoch IS NULL THEN
            outcome := CASE WHEN c.kind = 4 THEN 3 ELSE 2 END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        now := {schema}.seqgen_now();
        kind := c.kind;
        g_epoch := c.epoch; g_token := c.token; g_lo := c.lo; g_hi := c.hi;
        at := 0;
        IF kind IN (3, 4) THEN
            at := {schema}.seqgen_logged(r.log, c.nonce);
        END IF;

        IF kind = 3 AND at = 0 THEN
            r.log := {schema}.seqgen_note(r.log, c.nonce, 0, 0, 0, 0);
        ELSIF kind = 3 THEN
            g_epoch := {schema}.seqgen_field(r.log, at + 16);
            g_lo := {schema}.seqgen_field(r.log, at + 24);
            g_hi := {schema}.seqgen_field(r.log, at + 32);
            g_token := {schema}.seqgen_field(r.log, at + 40);
            kind := CASE WHEN g_lo = 0 THEN 0 WHEN g_token <> 0 THEN 1 ELSE 2 END;
        END IF;

        IF kind = 1 THEN
            IF r.epoch = g_epoch AND r.token = g_token AND r.owned THEN
                IF g_lo - 1 > r.last THEN
                    outcome := 2;
                ELSIF g_lo <= r.used THEN
                    outcome := 1;
                ELSE
                    r.last := g_lo - 1;
                    r.used := g_lo - 1;
                    r.owned := false;
                    FOR i IN 0 .. length(r.log) / 48 - 1 LOOP
                        IF {schema}.seqgen_field(r.log, i * 48 + 17) = g_epoch AND {schema}.seqgen_field(r.log, i * 48 + 33) >= g_lo THEN
                            r.log := {schema}.seqgen_spend(r.log, i * 48 + 1);
                        END IF;
                    END LOOP;
                END IF;
            ELSIF r.epoch < g_epoch OR r.epoch = g_epoch AND r.token < g_token THEN
                outcome := 2;
            ELSIF r.epoch <> g_epoch OR r.token <> g_token THEN  -- taken over
                SELECT * INTO v FROM {schema}.seqgen_voids AS t
                WHERE t.scope = p_scope AND t.key = c.key AND t.epoch = g_epoch AND t.kind = 2 AND t.token = g_token AND t.hi >= g_lo
                ORDER BY t.lo LIMIT 1;
                IF FOUND THEN
                    g_lo := greatest(g_lo, v.lo);
                    IF g_lo = v.lo THEN
                        DELETE FROM {schema}.seqgen_voids AS t
                        WHERE t.scope = p_scope AND t.key = c.key AND t.epoch = g_epoch AND t.lo = v.lo;
                    ELSE
                        UPDATE {schema}.seqgen_voids AS t SET hi = g_lo - 1
                        WHERE t.scope = p_scope AND t.key = c.key AND t.epoch = g_epoch AND t.lo = v.lo;
                    END IF;
                    PERFORM {schema}.seqgen_certain(r, g_epoch, g_lo, v.hi, c.reason, now, p_retention);
                    void_epoch := g_epoch; void_lo := g_lo; void_hi := v.hi;
                END IF;
            END IF;
        ELSIF kind = 2 THEN
            IF (r.epoch, r.last) < (g_epoch, g_hi) THEN
                outcome := 2;
            ELSE
                PERFORM {schema}.seqgen_certain(r, g_epoch, g_lo, g_hi, c.reason, now, p_retention);
                void_epoch := g_epoch; void_lo := g_lo; void_hi := g_hi;
            END IF;
        ELSIF kind = 4 AND at > 0 THEN
            new_epoch := {schema}.seqgen_field(r.log, at + 16);
        ELSIF kind = 4 THEN
            g_epoch := greatest(CASE WHEN known THEN r.epoch ELSE 0 END, c.epoch);
            IF g_epoch = 9223372036854775807 THEN
                outcome := 3;
            ELSE
                IF {schema}.seqgen_orphan(r, 6, now, p_retention) THEN
                    void_epoch := r.epoch; void_lo := r.used + 1; void_hi := r.last;
                END IF;
                r.epoch := g_epoch + 1;
                r.last := 0; r.mode := 0; r.owned := false; r.used := 0;
                r.token := greatest(r.token + 1, now);
                r.log := {schema}.seqgen_note(r.log, c.nonce, r.epoch, 0, 0, 0);
                new_epoch := r.epoch;
            END IF;
        ELSIF kind = 5 THEN
            IF (c.epoch, c.hi) >= (r.epoch, r.last) THEN
                r.epoch := c.epoch; r.last := c.hi;
                r.token := c.token; r.owned := c.token <> 0; r.used := 0;
            END IF;
        END IF;
        IF c.kind = 3 AND kind IN (1, 2) AND outcome = 0 THEN
            r.log := {schema}.seqgen_spend(r.log, at);
        END IF;
        IF outcome = 2 THEN
            void_epoch := r.epoch; void_lo := r.last;
        END IF;
        IF outcome = 0 THEN
            known := true;
            PERFORM {schema}.seqgen_save(r);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- seqgen_sweep removes at most p_most voids whose retention has passed. One of a
-- key that another transaction has locked may be removed meanwhile: nobody else
-- touches it but to join it.
CREATE FUNCTION {schema}.seqgen_sweep(p_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    now  bigint := {schema}.seqgen_now();
    gone integer;
BEGIN
    DELETE FROM {schema}.seqgen_voids WHERE ctid = ANY (ARRAY(
        SELECT t.ctid FROM {schema}.seqgen_voids AS t WHERE t.expires <= now
        ORDER BY t.expires LIMIT p_most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$pawl$;
