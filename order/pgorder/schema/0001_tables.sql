-- The tables of pgorder, and the functions that all its steps share.
--
-- A place is a number less one: the one behind the highest number then is a
-- bigint, too. Times are microseconds of the Unix epoch.
--
-- Whoever changes anything of a key holds the lock of its row in order_keys. The
-- rows of the other tables are only touched under it, except that a sweep deletes
-- what need not be remembered any longer. Steps lock keys in ascending order.

CREATE TABLE {schema}.order_keys (
    kid          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    layout       smallint NOT NULL DEFAULT 1,   -- of this row
    claimed      boolean  NOT NULL DEFAULT false,
    epochs       integer  NOT NULL DEFAULT 0,   -- that have not ended
    late_held    integer  NOT NULL DEFAULT 0,   -- late messages that are waiting or parked
    active       bigint,                        -- the lowest epoch that has not ended
    highest      bigint,                        -- epoch
    token        bigint   NOT NULL DEFAULT 0,   -- of the last claim
    lease_until  bigint   NOT NULL DEFAULT 0,
    late_due     bigint,                        -- when the first late message is due
    next_at      bigint,                        -- when the key can be claimed
    accepted     bigint   NOT NULL DEFAULT 0,
    duplicate    bigint   NOT NULL DEFAULT 0,
    conflict     bigint   NOT NULL DEFAULT 0,
    late         bigint   NOT NULL DEFAULT 0,
    stale        bigint   NOT NULL DEFAULT 0,
    refused      bigint   NOT NULL DEFAULT 0,   -- full
    too_far      bigint   NOT NULL DEFAULT 0,
    scope        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    nonce        bytea,                         -- of the claim, while it is one
    UNIQUE (scope, key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

-- Both change when a key becomes due, is claimed and is given back, and not with
-- the messages in between.
CREATE INDEX order_keys_next ON {schema}.order_keys (scope, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX order_keys_nonce ON {schema}.order_keys (nonce) WHERE nonce IS NOT NULL;

CREATE TABLE {schema}.order_epochs (
    kid          bigint   NOT NULL,
    epoch        bigint   NOT NULL,
    layout       smallint NOT NULL DEFAULT 1,
    at_cursor    smallint NOT NULL DEFAULT 0,   -- 0 nothing, 1 buffered, 2 parked, 3 missing
    ended        boolean  NOT NULL DEFAULT false,
    gap_alerted  boolean  NOT NULL DEFAULT false,  -- of the gap at the cursor or, if there is none, of the last one,
    gap_asked    integer  NOT NULL DEFAULT 0,      -- whose rest may be met again: like began, look and above below
    attempts     integer  NOT NULL DEFAULT 0,   -- of the message at the cursor
    base         bigint   NOT NULL,             -- places, like the three below and the cursor
    head         bigint   NOT NULL,
    begun        bigint   NOT NULL,             -- what is buffered below it was begun
    run_to       bigint   NOT NULL,             -- end of the run of the last claim
    voids        bigint   NOT NULL DEFAULT 0,   -- below the cursor, like the three below
    skipped      bigint   NOT NULL DEFAULT 0,
    late         bigint   NOT NULL DEFAULT 0,
    out_of_order bigint   NOT NULL DEFAULT 0,
    cursor       bigint   NOT NULL,             -- a delivery writes this and the next two, which are neighbours since
    buffered     bigint   NOT NULL DEFAULT 0,   -- the log takes all from the first byte that changes to the last
    moved        bigint   NOT NULL,             -- when the cursor did
    parked       bigint   NOT NULL DEFAULT 0,   -- from the cursor on, like buffered and the two below
    unordered    bigint   NOT NULL DEFAULT 0,
    void_ahead   bigint   NOT NULL DEFAULT 0,
    mark_from    bigint   NOT NULL,             -- when the newest mark began: see order_marks
    due          bigint,                        -- when what stands at the cursor is due
    gap_opened   bigint,                        -- of the gap at the cursor, if there is one; then it is gap_began
    gap_began    bigint,                        -- its age counts from here
    gap_look     bigint,                        -- when it is to be looked at; while there is one, it is due
    gap_above    bigint,                        -- the place behind it
    gap_since    bigint,                        -- since when the cursor has been at its first place
    PRIMARY KEY (kid, epoch)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);

CREATE INDEX order_epochs_gap ON {schema}.order_epochs (kid) WHERE gap_opened IS NOT NULL;

-- A delivery writes none of these rows: one in state 1 is buffered from the cursor
-- on, and delivered below it.
CREATE TABLE {schema}.order_messages (
    kid          bigint   NOT NULL,
    epoch        bigint   NOT NULL,
    place        bigint   NOT NULL,
    layout       smallint NOT NULL DEFAULT 1,
    state        smallint NOT NULL DEFAULT 1,   -- 2 parked, 3 late and waiting, 4 late and parked, 5 ended otherwise
    late         boolean  NOT NULL DEFAULT false,
    named        boolean  NOT NULL,             -- it is the one that its ID finds
    attempt      integer  NOT NULL DEFAULT 0,   -- of a late one, or when the error was noted
    pushed_at    bigint   NOT NULL,
    ended_at     bigint,                        -- of state 5
    due          bigint,                        -- of state 3
    claim        bigint,                        -- token of the claim that has a late one; negative once it has settled it
    scope        text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    digest       bytea,                         -- NULL: not known
    context      bytea,
    error        text,
    payload      bytea,
    PRIMARY KEY (kid, epoch, place)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1, vacuum_truncate = off);

CREATE UNIQUE INDEX order_messages_id ON {schema}.order_messages (id, scope) WHERE named;
CREATE INDEX order_messages_apart ON {schema}.order_messages (kid, epoch, place) WHERE state IN (2, 3, 4);

-- Ranges never overlap. A void one may reach from below the cursor to above it;
-- skipped ones lie below it and unordered ones above.
CREATE TABLE {schema}.order_ranges (
    kid          bigint   NOT NULL,
    epoch        bigint   NOT NULL,
    lo           bigint   NOT NULL,
    hi           bigint   NOT NULL,             -- not included
    kind         smallint NOT NULL,             -- 1 void, 2 skipped, 3 unordered
    layout       smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (kid, epoch, lo)
);

-- Gaps that were skipped. An open one stands in order_epochs.
CREATE TABLE {schema}.order_gaps (
    scope        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    epoch        bigint   NOT NULL,
    lo           bigint   NOT NULL,
    hi           bigint   NOT NULL,             -- not included
    layout       smallint NOT NULL DEFAULT 1,
    reason       smallint NOT NULL,
    resolution   smallint NOT NULL DEFAULT 0,
    alerted      boolean  NOT NULL,
    asked        integer  NOT NULL,
    opened       bigint   NOT NULL,
    arrived      bigint   NOT NULL DEFAULT 0,
    resolved_at  bigint,
    actor        text     NOT NULL DEFAULT '',
    note         text     NOT NULL DEFAULT '',
    PRIMARY KEY (scope, key, epoch, lo)
);

CREATE INDEX order_gaps_resolved ON {schema}.order_gaps (scope, resolved_at) WHERE resolved_at IS NOT NULL;

-- What stood below upto had ended at that time. Marks take the place of a time in
-- every message; the newest one is open, and is (cursor, moved) of the epoch.
CREATE TABLE {schema}.order_marks (
    kid          bigint NOT NULL,
    epoch        bigint NOT NULL,
    upto         bigint NOT NULL,
    at           bigint NOT NULL,
    PRIMARY KEY (kid, epoch, upto)
);

-- order_now is the store's time.
CREATE FUNCTION {schema}.order_now() RETURNS bigint
LANGUAGE sql VOLATILE AS
$pawl$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $pawl$;

-- order_check_isolation refuses a transaction that cannot see what others have
-- committed since it began: it would move a cursor that has moved.
CREATE FUNCTION {schema}.order_check_isolation() RETURNS void
LANGUAGE plpgsql STABLE AS
$pawl$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the transaction is %, and order needs READ COMMITTED', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$pawl$;

-- order_lock locks a key, and returns its row: one of NULLs if there is no such
-- key, and one with kid -1 if another transaction has it. In mode 0 it waits for
-- that transaction as long as lock_timeout allows, and then fails. In mode 1 it
-- does not wait. In mode 2 it waits as long, and does not fail. With p_make it
-- makes a key that is not there.
CREATE FUNCTION {schema}.order_lock(p_scope text, p_key text, p_mode integer, p_make boolean) RETURNS {schema}.order_keys
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    k {schema}.order_keys;
BEGIN
    LOOP
        IF p_mode = 0 THEN
            SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE;
            IF FOUND THEN RETURN k; END IF;
        ELSE
            SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND THEN RETURN k; END IF;
            IF EXISTS (SELECT FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = p_key) THEN
                IF p_mode = 1 THEN
                    k.kid := -1;
                    RETURN k;
                END IF;
                BEGIN
                    SELECT * INTO k FROM {schema}.order_keys AS t WHERE t.scope = p_scope AND t.key = p_key FOR NO KEY UPDATE;
                EXCEPTION WHEN lock_not_available THEN
                    k.kid := -1;
                END;
                IF k.kid IS NOT NULL THEN RETURN k; END IF;
            END IF;
        END IF;
        IF NOT p_make THEN
            RETURN NULL;
        END IF;
        IF p_mode > 0 THEN
            BEGIN  -- it waits for whoever is making it
                INSERT INTO {schema}.order_keys (scope, key) VALUES (p_scope, p_key)
                ON CONFLICT (scope, key) DO NOTHING RETURNING * INTO k;
            EXCEPTION WHEN lock_not_available THEN
                k.kid := -1;
            END;
        ELSE
            INSERT INTO {schema}.order_keys (scope, key) VALUES (p_scope, p_key)
            ON CONFLICT (scope, key) DO NOTHING RETURNING * INTO k;
        END IF;
        IF k.kid IS NOT NULL THEN RETURN k; END IF;
    END LOOP;  -- somebody made it or removed it meanwhile
END
$pawl$;

-- order_range_at returns the kind of the range that has a place, or NULL.
CREATE FUNCTION {schema}.order_range_at(p_kid bigint, p_epoch bigint, p_place bigint) RETURNS smallint
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.order_ranges;
BEGIN
    SELECT * INTO r FROM {schema}.order_ranges AS t
    WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo <= p_place ORDER BY t.lo DESC LIMIT 1;
    RETURN CASE WHEN r.hi > p_place THEN r.kind END;
END
$pawl$;

-- order_range_add adds a range where there is none, and joins it with its
-- neighbours of the same kind.
CREATE FUNCTION {schema}.order_range_add(p_kid bigint, p_epoch bigint, p_lo bigint, p_hi bigint, p_kind integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.order_ranges;
BEGIN
    DELETE FROM {schema}.order_ranges AS t
    WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo = p_hi AND t.kind = p_kind RETURNING * INTO r;
    IF FOUND THEN p_hi := r.hi; END IF;
    SELECT * INTO r FROM {schema}.order_ranges AS t
    WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo < p_lo ORDER BY t.lo DESC LIMIT 1;
    IF r.hi = p_lo AND r.kind = p_kind THEN
        UPDATE {schema}.order_ranges AS t SET hi = p_hi WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo = r.lo;
    ELSE
        INSERT INTO {schema}.order_ranges (kid, epoch, lo, hi, kind) VALUES (p_kid, p_epoch, p_lo, p_hi, p_kind);
    END IF;
END
$pawl$;

-- order_range_cut takes one place out of its range.
CREATE FUNCTION {schema}.order_range_cut(p_kid bigint, p_epoch bigint, p_place bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    r {schema}.order_ranges;
BEGIN
    SELECT * INTO r FROM {schema}.order_ranges AS t
    WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo <= p_place ORDER BY t.lo DESC LIMIT 1;
    IF r.hi IS NULL OR r.hi <= p_place THEN RETURN; END IF;
    IF r.lo = p_place THEN
        DELETE FROM {schema}.order_ranges AS t WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo = r.lo;
    ELSE
        UPDATE {schema}.order_ranges AS t SET hi = p_place WHERE t.kid = p_kid AND t.epoch = p_epoch AND t.lo = r.lo;
    END IF;
    IF r.hi > p_place + 1 THEN
        INSERT INTO {schema}.order_ranges (kid, epoch, lo, hi, kind) VALUES (p_kid, p_epoch, p_place + 1, r.hi, r.kind);
    END IF;
END
$pawl$;
