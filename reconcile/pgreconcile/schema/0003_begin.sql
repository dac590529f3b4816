-- reconcile_begin answers asks by the rules of reconcile.Store.Begin. The arrays have one
-- item for each, sorted by key, those of one key in order. p_mode is 0 in a transaction of
-- its own, to wait for what is locked by others and fail as a whole; 1 in a caller's, and 2
-- in one of its own: what stays locked is answered for, so all are begun one by one.
--
-- A row with n = 0 comes first; its now is the store's time. Items without a row of their
-- own are new: they were recorded at that time, which is also their token. An answer of 9
-- means locked.
CREATE FUNCTION {schema}.reconcile_begin(
    p_mode integer, p_kind text, p_lease bigint, p_quiet bigint,
    p_laters boolean[], p_nonces bytea[], p_keys text[], p_accounts text[], p_prints bytea[], p_payloads bytea[])
RETURNS SETOF {schema}.reconcile_row
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now      bigint;
    fresh    bytea[] := '{}';
    at       integer := 1;
    one      record;
    said     {schema}.reconcile_row;
    accounts text[] := '{}';
    changes  integer[] := '{}';
BEGIN
    PERFORM {schema}.reconcile_check_isolation();
    now := {schema}.reconcile_now();
    IF p_mode = 0 THEN
        WITH added AS (
            INSERT INTO {schema}.reconcile_ops AS t (token, created, first, sent, due, until, attempts, state, granted, ended_by, again,
                nonce, fingerprint, kind, key, account, log, payload)
            SELECT now, now, CASE WHEN NOT a.later THEN now END, CASE WHEN NOT a.later THEN now END,
                CASE WHEN a.later THEN now ELSE now + p_lease + p_quiet END, CASE WHEN NOT a.later THEN now + p_lease END,
                CASE WHEN a.later THEN 0 ELSE 1 END, CASE WHEN a.later THEN 4 ELSE 1 END, CASE WHEN a.later THEN 1 ELSE 3 END,
                CASE WHEN a.later THEN 3 ELSE 0 END, a.later,
                a.nonce, a.print, p_kind, a.key, a.account, {schema}.reconcile_first_log(now, now, a.later), a.payload
            FROM unnest(p_laters, p_nonces, p_keys, p_accounts, p_prints, p_payloads) AS a(later, nonce, key, account, print, payload)
            ON CONFLICT DO NOTHING
            RETURNING t.nonce, t.account, t.state
        ), noted AS (
            INSERT INTO {schema}.reconcile_deltas (kind, accounts, parts, ns)
            -- What failed was made with later, and waits.
            SELECT p_kind, array_agg(x.account) || coalesce(array_agg(x.account) FILTER (WHERE x.state = 4), '{}'),
                array_agg(x.state) || coalesce(array_agg(9::smallint) FILTER (WHERE x.state = 4), '{}'),
                array_agg(x.n) || coalesce(array_agg(x.n) FILTER (WHERE x.state = 4), '{}')
            FROM (SELECT a.account, a.state, count(*)::integer AS n FROM added AS a GROUP BY a.account, a.state) AS x HAVING count(*) > 0
        )
        SELECT coalesce(array_agg(a.nonce), '{}') INTO fresh FROM added AS a;  -- in the order of p_keys
    END IF;
    said.n := 0; said.now := now;
    RETURN NEXT said;
    IF cardinality(fresh) < cardinality(p_keys) THEN
        FOR i IN 1 .. cardinality(p_keys) LOOP
            IF at <= cardinality(fresh) AND fresh[at] = p_nonces[i] THEN
                at := at + 1;
                CONTINUE;
            END IF;
            IF p_mode = 0 THEN
                one := {schema}.reconcile_begin_one(
                    i, p_kind, p_lease, p_quiet, p_laters[i], p_nonces[i], p_keys[i], p_accounts[i], p_prints[i], p_payloads[i]);
                said := one.said;
            ELSE
                BEGIN
                    one := {schema}.reconcile_begin_one(
                        i, p_kind, p_lease, p_quiet, p_laters[i], p_nonces[i], p_keys[i], p_accounts[i], p_prints[i], p_payloads[i]);
                    said := one.said;
                EXCEPTION WHEN lock_not_available THEN
                    said := NULL; said.n := i; said.answer := 9;
                END;
            END IF;
            RETURN NEXT said;
            CONTINUE WHEN said.answer = 9;
            IF one.change IS NOT NULL THEN
                accounts := accounts || one.account;
                changes := changes || ARRAY[one.change];
            END IF;
        END LOOP;
        PERFORM {schema}.reconcile_note_changes(p_kind, accounts, changes);
    END IF;
    PERFORM {schema}.reconcile_fold_sometimes(p_mode, p_kind);
END
$pawl$;

-- reconcile_begin_one answers one ask, of an operation that may be known. change is that
-- of the tally of an account.
CREATE FUNCTION {schema}.reconcile_begin_one(
    p_n integer, p_kind text, p_lease bigint, p_quiet bigint, p_later boolean, p_nonce bytea, p_key text, p_account text, p_print bytea,
    p_payload bytea,
    OUT said {schema}.reconcile_row, OUT account text, OUT change integer[])
LANGUAGE plpgsql VOLATILE AS
$pawl$
#variable_conflict use_column
DECLARE
    r     {schema}.reconcile_ops;
    now   bigint;
    floor bigint := 0;
    was   integer[];
    grnt  integer := 1;
BEGIN
    LOOP
        SELECT * INTO r FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key = p_key FOR UPDATE;
        now := {schema}.reconcile_now();
        IF FOUND AND {schema}.reconcile_expired(now, r.expires, r.review, r.due) THEN
            DELETE FROM {schema}.reconcile_ops AS t WHERE t.kind = p_kind AND t.key = p_key;
            PERFORM {schema}.reconcile_note_changes(p_kind, ARRAY[r.account],
                ARRAY[{schema}.reconcile_change({schema}.reconcile_tally(r.state, r.review, r.attempts, r.due), NULL)]);
            floor := r.token;
            r.token := NULL;
        END IF;
        EXIT WHEN r.token IS NOT NULL;
        floor := greatest(floor + 1, now);
        INSERT INTO {schema}.reconcile_ops AS t (token, created, first, sent, due, until, attempts, state, granted, ended_by, again,
            nonce, fingerprint, kind, key, account, log, payload)
        VALUES (floor, now, CASE WHEN NOT p_later THEN now END, CASE WHEN NOT p_later THEN now END,
            CASE WHEN p_later THEN now ELSE now + p_lease + p_quiet END, CASE WHEN NOT p_later THEN now + p_lease END,
            CASE WHEN p_later THEN 0 ELSE 1 END, CASE WHEN p_later THEN 4 ELSE 1 END, CASE WHEN p_later THEN 1 ELSE 3 END,
            CASE WHEN p_later THEN 3 ELSE 0 END, p_later,
            p_nonce, p_print, p_kind, p_key, p_account, {schema}.reconcile_first_log(now, floor, p_later), p_payload)
        ON CONFLICT DO NOTHING
        RETURNING t.* INTO r;
        IF FOUND THEN
            said := {schema}.reconcile_entry(p_n, r.granted, now, r);
            account := r.account;
            change := {schema}.reconcile_change(NULL, {schema}.reconcile_tally(r.state, '', r.attempts, r.due));
            RETURN;
        END IF;
    END LOOP;

    was := {schema}.reconcile_tally(r.state, r.review, r.attempts, r.due);
    IF r.fingerprint <> p_print THEN                                           -- rule 2; NULL is not compared
        grnt := 2;
    ELSIF r.nonce = p_nonce THEN                                               -- rule 3
        IF r.until > now AND r.ended_by = 0 AND NOT r.outside THEN
            grnt := r.granted;
        END IF;
    ELSIF r.until > now OR p_later THEN
        NULL;
    ELSIF r.state = 4 AND r.again AND r.review = '' THEN                       -- rule 4
        r := {schema}.reconcile_sent(r, now, p_lease, p_quiet, true);
        r := {schema}.reconcile_moved(r, now, p_nonce, 3);
        r := {schema}.reconcile_log(r, now, 7, '', '');
        grnt := 3;
        PERFORM {schema}.reconcile_save(r, NULL);
    ELSIF r.state NOT IN (3, 4) AND r.review = '' AND r.due <= now THEN        -- rule 5
        r.state := CASE WHEN r.state = 1 THEN 5 ELSE r.state END;
        r.fenced := coalesce(r.fenced, now);
        r.until := now + p_lease;
        r := {schema}.reconcile_moved(r, now, p_nonce, 4);
        grnt := 4;
        PERFORM {schema}.reconcile_save(r, NULL);
    END IF;
    said := {schema}.reconcile_entry(p_n, grnt, now, r);
    account := r.account;
    change := {schema}.reconcile_change(was, {schema}.reconcile_tally(r.state, r.review, r.attempts, r.due));
END
$pawl$;

-- reconcile_first_log is the log of a new operation.
CREATE FUNCTION {schema}.reconcile_first_log(p_now bigint, p_token bigint, p_later boolean) RETURNS text[]
LANGUAGE sql IMMUTABLE AS
$pawl$ SELECT ARRAY[{schema}.reconcile_line(p_now, CASE WHEN p_later THEN 3 ELSE 7 END, CASE WHEN p_later THEN 4 ELSE 1 END, p_token, '', '')] $pawl$;

-- reconcile_sent is an operation that is about to be sent. Clean: nothing that was sent
-- before has happened.
CREATE FUNCTION {schema}.reconcile_sent(r {schema}.reconcile_ops, p_now bigint, p_lease bigint, p_quiet bigint, p_clean boolean)
RETURNS {schema}.reconcile_ops LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    IF p_clean THEN
        r.first := p_now;
    END IF;
    r.state := 1; r.again := false; r.fenced := NULL; r.expires := NULL;
    r.attempts := r.attempts + 1;
    r.sent := p_now;
    r.until := p_now + p_lease;
    r.due := r.until + p_quiet;
    RETURN r;
END
$pawl$;

-- reconcile_moved is an operation with a new token.
CREATE FUNCTION {schema}.reconcile_moved(r {schema}.reconcile_ops, p_now bigint, p_nonce bytea, p_granted integer)
RETURNS {schema}.reconcile_ops LANGUAGE plpgsql IMMUTABLE AS
$pawl$
BEGIN
    r.token := greatest(r.token + 1, p_now);
    r.nonce := p_nonce; r.granted := p_granted; r.ended_by := 0; r.outside := false;
    RETURN r;
END
$pawl$;
