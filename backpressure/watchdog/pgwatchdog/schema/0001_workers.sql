-- The workers of pgwatchdog. The steps of watchdog.Store are functions, because each is
-- several statements in one round trip. Batches are sorted by name, so that two of them
-- lock rows in the same order. Times and durations are microseconds, times of the Unix
-- epoch; a time that is not set is 0.

CREATE TABLE {schema}.watchdog_workers (
    layout     smallint NOT NULL DEFAULT 1,   -- of this row
    said       smallint NOT NULL DEFAULT 0,   -- a state of the package watchdog
    busy       boolean  NOT NULL DEFAULT false,
    has_left   boolean  NOT NULL DEFAULT false,
    given_up   boolean  NOT NULL DEFAULT false,
    settled    boolean  NOT NULL DEFAULT true, -- no attempt is under way
    take_first boolean  NOT NULL DEFAULT false, -- the last take gave up
    attempts   integer  NOT NULL DEFAULT 0,
    take_attempt integer NOT NULL DEFAULT 0,  -- what the last take was answered
    token      bigint   NOT NULL DEFAULT 0,
    seq        bigint   NOT NULL DEFAULT 0,
    every      bigint   NOT NULL DEFAULT 0,   -- the interval of its heartbeats
    position   bigint   NOT NULL DEFAULT 0,
    pending    bigint   NOT NULL DEFAULT 0,
    turns      bigint   NOT NULL DEFAULT 0,
    handler    bigint   NOT NULL DEFAULT 0,
    joined_at  bigint   NOT NULL DEFAULT 0,
    state_at   bigint   NOT NULL DEFAULT 0,
    beat_at    bigint   NOT NULL DEFAULT 0,
    stalled    bigint   NOT NULL DEFAULT 0,
    quiet      bigint   NOT NULL DEFAULT 0,
    running    bigint   NOT NULL DEFAULT 0,
    claim      bigint   NOT NULL DEFAULT 0,
    take_claim bigint   NOT NULL DEFAULT 0,
    next_at    bigint   NOT NULL DEFAULT 0,
    acted_at   bigint   NOT NULL DEFAULT 0,
    scope      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    detail     text     NOT NULL DEFAULT '',
    nonce      bytea    NOT NULL DEFAULT '',  -- of the instance
    past       bytea    NOT NULL DEFAULT '',  -- of up to eight before it, 16 bytes each
    take_nonce bytea    NOT NULL DEFAULT '',  -- of the last take
    PRIMARY KEY (scope, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

-- watchdog_now is the store's time.
CREATE FUNCTION {schema}.watchdog_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- watchdog_begin refuses a transaction that cannot see what others have committed since
-- it began, and one that would wait for long.
CREATE FUNCTION {schema}.watchdog_begin() RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and watchdog needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    PERFORM set_config('lock_timeout', '2s', true);
END
$pawl$;

-- watchdog_known says whether the nonce is among those of past instances.
CREATE FUNCTION {schema}.watchdog_known(p_past bytea, p_nonce bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS
$pawl$
DECLARE
    at integer := 1;
BEGIN
    WHILE at <= length(p_past) LOOP
        IF substr(p_past, at, 16) = p_nonce THEN
            RETURN true;
        END IF;
        at := at + 16;
    END LOOP;
    RETURN false;
END
$pawl$;

CREATE FUNCTION {schema}.watchdog_save(r {schema}.watchdog_workers) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
BEGIN
    UPDATE {schema}.watchdog_workers AS t SET said = r.said, busy = r.busy, has_left = r.has_left, token = r.token, seq = r.seq,
        every = r.every, position = r.position, pending = r.pending, turns = r.turns, handler = r.handler,
        joined_at = r.joined_at, state_at = r.state_at, beat_at = r.beat_at, stalled = r.stalled, quiet = r.quiet,
        running = r.running, detail = r.detail, nonce = r.nonce, past = r.past
    WHERE t.scope = r.scope AND t.name = r.name;
END
$pawl$;

-- watchdog_beat records heartbeats, which are sorted by name. An outcome is 0 taken, 1
-- gone, 2 fenced, 3 full.
CREATE FUNCTION {schema}.watchdog_beat(
    p_scope text, p_most integer, p_names text[], p_nonces bytea[], p_joins boolean[], p_leaves boolean[], p_seqs bigint[],
    p_everies bigint[], p_states smallint[], p_details text[], p_positions bigint[], p_pendings bigint[], p_turns bigint[],
    p_handlers bigint[], p_busies boolean[])
RETURNS TABLE (n integer, outcome smallint, at_token bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    b     record;
    r     {schema}.watchdog_workers;
    now   bigint;
    since bigint;
    made  boolean;
BEGIN
    PERFORM {schema}.watchdog_begin();
    -- Those who make records of one scope take turns, and see what the others made. Before
    -- any row, or two batches could wait for each other.
    IF EXISTS (SELECT 1 FROM unnest(p_names, p_joins) AS asked(name, joins) WHERE asked.joins AND NOT EXISTS (
            SELECT 1 FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name = asked.name)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('pawl watchdog {schema} ' || p_scope, 0));
    END IF;
    FOR b IN
        SELECT * FROM unnest(p_names, p_nonces, p_joins, p_leaves, p_seqs, p_everies, p_states, p_details, p_positions, p_pendings,
            p_turns, p_handlers, p_busies)
        WITH ORDINALITY AS b(name, nonce, joins, leaves, seq, every, state, detail, position, pending, turns, handler, busy, n)
    LOOP
        n := b.n; outcome := 0; at_token := 0; made := false;
        SELECT * INTO r FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name = b.name FOR NO KEY UPDATE;
        IF r.name IS NULL AND b.joins THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('pawl watchdog {schema} ' || p_scope, 0));
            SELECT * INTO r FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name = b.name FOR NO KEY UPDATE;
            IF r.name IS NULL THEN
                IF (SELECT count(*) FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope) >= p_most THEN
                    outcome := 3;
                ELSE
                    INSERT INTO {schema}.watchdog_workers (scope, name) VALUES (p_scope, b.name) RETURNING * INTO r;
                    made := true;
                END IF;
            END IF;
        END IF;
        now := {schema}.watchdog_now(); -- after any wait
        IF outcome = 3 THEN
            RETURN NEXT;
            CONTINUE;
        ELSIF r.name IS NULL THEN
            outcome := 1;
            RETURN NEXT;
            CONTINUE;
        ELSIF NOT made AND r.nonce = b.nonce AND (r.has_left OR b.seq <= r.seq) THEN
            at_token := r.token;
            RETURN NEXT;
            CONTINUE;
        ELSIF NOT made AND r.nonce = b.nonce THEN
            since := least(greatest(now - r.beat_at, 0), 4 * b.every);
            r.stalled := CASE WHEN r.busy AND b.busy AND r.position = b.position THEN r.stalled + since ELSE 0 END;
            r.quiet := CASE WHEN r.turns = b.turns AND b.turns <> 0 AND r.handler = 0 AND b.handler = 0 THEN r.quiet + since ELSE 0 END;
            r.running := CASE WHEN r.handler = b.handler AND b.handler <> 0 THEN r.running + since ELSE 0 END;
            IF r.said <> b.state THEN
                r.state_at := now;
            END IF;
        ELSIF made OR b.joins AND NOT {schema}.watchdog_known(r.past, b.nonce) THEN
            IF NOT made THEN
                r.past := r.past || r.nonce;
                r.past := substr(r.past, greatest(length(r.past) - 127, 1));
            END IF;
            r.nonce := b.nonce;
            r.token := greatest(r.token + 1, now);
            r.joined_at := now; r.state_at := now;
            r.stalled := 0; r.quiet := 0; r.running := 0;
        ELSE
            outcome := 2;
            RETURN NEXT;
            CONTINUE;
        END IF;
        r.seq := b.seq; r.every := b.every; r.said := b.state; r.detail := b.detail; r.position := b.position; r.pending := b.pending;
        r.busy := b.busy; r.has_left := b.leaves; r.turns := b.turns; r.handler := b.handler; r.beat_at := now;
        PERFORM {schema}.watchdog_save(r);
        at_token := r.token;
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- watchdog_list returns the time, in a row without a name, and then the workers behind
-- a name.
CREATE FUNCTION {schema}.watchdog_list(p_scope text, p_after text, p_limit integer)
RETURNS TABLE (now bigint, worker {schema}.watchdog_workers)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
BEGIN
    now := {schema}.watchdog_now();
    RETURN NEXT;
    FOR worker IN
        SELECT * FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name > p_after COLLATE "C"
        ORDER BY t.scope, t.name LIMIT p_limit
    LOOP
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- watchdog_act changes what is done about workers. The actions are sorted by name;
-- their kinds are those of the package watchdog. An outcome is 0 done or granted, 1 gone,
-- 2 changed, 3 busy, 4 given up.
CREATE FUNCTION {schema}.watchdog_act(
    p_scope text, p_names text[], p_kinds smallint[], p_nonces bytea[], p_tokens bigint[], p_seqs bigint[], p_stalleds bigint[],
    p_quiets bigint[], p_claims bigint[], p_waits bigint[], p_mosts integer[])
RETURNS TABLE (n integer, outcome smallint, at_claim bigint, attempt integer, first boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $pawl$
DECLARE
    a   record;
    r   {schema}.watchdog_workers;
    now bigint;
BEGIN
    PERFORM {schema}.watchdog_begin();
    FOR a IN
        SELECT * FROM unnest(p_names, p_kinds, p_nonces, p_tokens, p_seqs, p_stalleds, p_quiets, p_claims, p_waits, p_mosts)
        WITH ORDINALITY AS a(name, kind, nonce, token, seq, stalled, quiet, claim, wait, most, n)
    LOOP
        n := a.n; outcome := 0; at_claim := 0; attempt := 0; first := false;
        SELECT * INTO r FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name = a.name FOR UPDATE;
        now := {schema}.watchdog_now();
        IF r.name IS NULL THEN
            outcome := CASE WHEN a.kind = 5 THEN 0 ELSE 1 END;
        ELSIF a.kind = 1 AND r.take_nonce = a.nonce THEN
            at_claim := r.take_claim; attempt := r.take_attempt; first := r.take_first;
            outcome := CASE WHEN first THEN 4 ELSE 0 END;
        ELSIF a.kind = 1 AND (r.has_left OR r.token <> a.token OR a.seq <> 0 AND r.seq <> a.seq OR r.stalled < a.stalled OR r.quiet < a.quiet) THEN
            outcome := 2;
        ELSIF a.kind = 1 AND r.given_up THEN
            outcome := 4;
            UPDATE {schema}.watchdog_workers AS t SET acted_at = now WHERE t.scope = p_scope AND t.name = a.name;
        ELSIF a.kind = 1 AND now < r.acted_at THEN -- the clock has gone back
            outcome := 3;
            UPDATE {schema}.watchdog_workers AS t SET next_at = now + greatest(r.next_at - r.acted_at, 0), acted_at = now
            WHERE t.scope = p_scope AND t.name = a.name;
        ELSIF a.kind = 1 AND now < r.next_at THEN
            outcome := 3;
        ELSIF a.kind = 1 AND r.attempts >= a.most THEN
            outcome := 4; first := true;
            UPDATE {schema}.watchdog_workers AS t SET given_up = true, acted_at = now, take_nonce = a.nonce, take_first = true,
                take_claim = 0, take_attempt = 0
            WHERE t.scope = p_scope AND t.name = a.name;
        ELSIF a.kind = 1 THEN
            at_claim := greatest(r.claim + 1, now); attempt := r.attempts + 1;
            UPDATE {schema}.watchdog_workers AS t SET attempts = watchdog_act.attempt, claim = at_claim, next_at = now + a.wait,
                acted_at = now, settled = false, take_nonce = a.nonce, take_first = false, take_claim = at_claim,
                take_attempt = watchdog_act.attempt
            WHERE t.scope = p_scope AND t.name = a.name;
        ELSIF a.kind = 2 AND r.claim <> a.claim THEN
            outcome := 2;
        ELSIF a.kind = 2 THEN
            IF NOT r.settled THEN
                UPDATE {schema}.watchdog_workers AS t SET settled = true, next_at = now + a.wait, acted_at = now
                WHERE t.scope = p_scope AND t.name = a.name;
            END IF;
        ELSIF a.kind = 3 AND (r.claim <> a.claim OR now < r.acted_at + a.wait) THEN
            outcome := 2;
        ELSIF a.kind = 3 OR a.kind = 4 THEN
            UPDATE {schema}.watchdog_workers AS t SET attempts = 0, given_up = false,
                next_at = CASE WHEN a.kind = 4 AND r.settled THEN 0 ELSE t.next_at END
            WHERE t.scope = p_scope AND t.name = a.name;
        ELSIF a.token <> 0 AND r.token <> a.token OR a.seq <> 0 AND r.seq <> a.seq THEN
            outcome := 2;
        ELSE
            DELETE FROM {schema}.watchdog_workers AS t WHERE t.scope = p_scope AND t.name = a.name;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$pawl$;
