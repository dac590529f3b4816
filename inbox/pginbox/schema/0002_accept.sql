-- inbox_accept stores arrivals. The arrays have one item for each, in ascending
-- order of the IDs, and of two with one ID the earlier comes first; so acceptances
-- that share IDs cannot wait for each other in a circle. p_places says where each
-- stands in the order of arrival, from 1 to p_total, in which the numbers rise. An
-- arrival for further streams has them in p_more_streams: p_more_at is its place in
-- the arrays.
--
-- The first row has n = 0, and answer is how many arrivals were new. Every other
-- one has a row of its own: 1 accepted, 2 duplicate, 3 conflict, 4 quarantined.
-- Those that were new have none if all were.
CREATE FUNCTION {schema}.inbox_accept(
    p_keep bigint, p_total integer, p_places integer[], p_ids text[], p_streams text[], p_keys text[], p_digests bytea[],
    p_providers text[], p_types text[], p_versions text[], p_accounts text[], p_phones text[], p_messages text[], p_externals text[],
    p_traces text[], p_occurred bigint[], p_flags integer[], p_payloads bytea[], p_contexts bytea[], p_reasons text[],
    p_more_at integer[], p_more_ranks smallint[], p_more_places integer[], p_more_streams text[])
RETURNS TABLE (n integer, answer integer)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s'
AS $pawl$
#variable_conflict use_column
DECLARE
    now   bigint;
    seqs  bigint[];
    todo  integer[];
    i     integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.inbox_check_isolation();
    END IF;
    PERFORM pg_current_xact_id();  -- before any number is given out: see inbox_claim
    now := {schema}.inbox_now();
    seqs := ARRAY(SELECT nextval('{schema}.inbox_seq'::regclass) FROM generate_series(1, p_total));

    -- Flags: 1 fingerprinted, 2 unknown, 4 raw, 8 to 32 the form, from 64 on the nanoseconds of occurred.
    INSERT INTO {schema}.inbox_records (seq, received, since, occurred, settled, expires, erases, state, rank, form,
        fingerprinted, unknown, occurred_ns, digest, id, stream, key, provider, type, version, account, phone, message_id, external_id,
        trace, last_error, context, payload)
    SELECT seqs[a.place], now, now, a.occurred,
        CASE WHEN a.flags & 4 <> 0 THEN now END, CASE WHEN a.flags & 4 <> 0 THEN now + p_keep END,
        CASE WHEN a.flags & 4 <> 0 THEN now + p_keep END,
        CASE WHEN a.flags & 4 <> 0 THEN 4 ELSE 1 END, 0, a.flags >> 3 & 7, a.flags & 1 <> 0, a.flags & 2 <> 0, a.flags >> 6,
        a.digest, a.id, a.stream, a.key, a.provider, a.type, a.version, a.account, a.phone, a.message_id, a.external_id,
        coalesce(a.trace, ''), coalesce(a.reason, ''), a.context, a.payload
    FROM unnest(p_places, p_ids, p_streams, p_keys, p_digests, p_providers, p_types, p_versions, p_accounts, p_phones,
        p_messages, p_externals, p_traces, p_occurred, p_flags, p_payloads, p_contexts, p_reasons)
        AS a(place, id, stream, key, digest, provider, type, version, account, phone, message_id, external_id, trace, occurred,
        flags, payload, context, reason)
    ON CONFLICT (id, rank) DO NOTHING;
    GET DIAGNOSTICS answer = ROW_COUNT;

    n := 0;
    RETURN NEXT;
    IF p_more_at IS NOT NULL AND answer > 0 THEN
        INSERT INTO {schema}.inbox_records (seq, received, since, occurred, state, rank, form, fingerprinted, unknown, occurred_ns, digest, id,
            stream, key, provider, type, version, account, phone, message_id, external_id, trace, context, payload)
        SELECT seqs[m.place], now, now, a.occurred, 1, m.rank, a.flags >> 3 & 7, a.flags & 1 <> 0, a.flags & 2 <> 0, a.flags >> 6, a.digest, a.id,
            m.stream, a.key, a.provider, a.type, a.version, a.account, a.phone, a.message_id, a.external_id,
            coalesce(a.trace, ''), a.context, a.payload
        FROM unnest(p_places, p_ids, p_keys, p_digests, p_providers, p_types, p_versions, p_accounts, p_phones,
            p_messages, p_externals, p_traces, p_occurred, p_flags, p_payloads, p_contexts) WITH ORDINALITY
            AS a(place, id, key, digest, provider, type, version, account, phone, message_id, external_id, trace, occurred,
            flags, payload, context, n)
        JOIN unnest(p_more_at, p_more_ranks, p_more_places, p_more_streams) AS m(at, rank, place, stream) ON m.at = a.n
        WHERE EXISTS (SELECT FROM {schema}.inbox_records AS t WHERE t.id = a.id AND t.rank = 0 AND t.seq = seqs[a.place]);
    END IF;
    IF answer = cardinality(p_ids) THEN
        RETURN;
    END IF;

    -- The others are known. This statement sees all that was committed by those
    -- who had inserted them. 9: to be looked at one by one.
    todo := NULL;
    FOR i, n, answer IN
        SELECT a.n::integer, a.n::integer, CASE
            WHEN r.seq = seqs[a.place] THEN 0
            WHEN r.seq IS NULL OR r.known <> a.digest THEN 9
            WHEN a.flags & 4 <> 0 THEN 4 ELSE 2 END
        FROM unnest(p_places, p_ids, p_digests, p_flags) WITH ORDINALITY AS a(place, id, digest, flags, n)
        LEFT JOIN LATERAL (
            SELECT t.seq, coalesce(t.first_digest, t.digest) AS known FROM {schema}.inbox_records AS t WHERE t.id = a.id AND t.rank = 0 OFFSET 0
        ) AS r ON true
        ORDER BY a.n
    LOOP
        IF answer = 0 THEN
            answer := CASE WHEN p_flags[i] & 4 <> 0 THEN 4 ELSE 1 END;
        ELSIF answer = 9 THEN
            todo := todo || i;
            CONTINUE;
        END IF;
        RETURN NEXT;
    END LOOP;
    FOREACH i IN ARRAY coalesce(todo, '{}'::integer[]) LOOP
        n := i;
        answer := {schema}.inbox_accept_other(p_keep, now, seqs[p_places[i]], p_ids[i], p_keys[i], p_digests[i], p_providers[i], p_types[i],
            p_versions[i], p_accounts[i], p_phones[i], p_messages[i], p_externals[i], p_traces[i], p_occurred[i], p_flags[i],
            p_payloads[i], p_contexts[i], p_reasons[i]);
        RETURN NEXT;
    END LOOP;
END
$pawl$;

-- inbox_accept_other answers an arrival whose ID is known, with another digest as
-- it seems, and keeps it. The rank makes sure of one row for each digest: who
-- finds it taken looks again.
CREATE FUNCTION {schema}.inbox_accept_other(
    p_keep bigint, p_now bigint, p_seq bigint, p_id text, p_key text, p_digest bytea, p_provider text, p_type text, p_version text,
    p_account text, p_phone text, p_message text, p_external text, p_trace text, p_occurred bigint, p_flags integer,
    p_payload bytea, p_context bytea, p_reason text)
RETURNS integer
LANGUAGE plpgsql VOLATILE AS
$pawl$
DECLARE
    known     bytea;
    at        smallint;
    conflicts integer;
    same      boolean;
BEGIN
    FOR i IN 1 .. 100 LOOP
        SELECT coalesce(t.first_digest, t.digest) INTO known FROM {schema}.inbox_records AS t WHERE t.id = p_id AND t.rank = 0;
        IF NOT FOUND THEN
            -- It was removed meanwhile. The caller sends the batch again.
            RAISE EXCEPTION 'an event was removed while it was accepted' USING ERRCODE = 'lock_not_available';
        END IF;
        IF known = p_digest THEN
            RETURN CASE WHEN p_flags & 4 <> 0 THEN 4 ELSE 2 END;
        END IF;
        SELECT count(*) FILTER (WHERE t.state = 5), bool_or(t.digest = p_digest), greatest(max(t.rank) + 1, 16)
        INTO conflicts, same, at FROM {schema}.inbox_records AS t WHERE t.id = p_id;
        IF same OR conflicts >= 16 THEN
            RETURN 3;
        END IF;
        INSERT INTO {schema}.inbox_records (seq, received, since, occurred, settled, expires, erases, state, rank, form,
            fingerprinted, unknown, occurred_ns, digest, id, stream, key, provider, type, version, account, phone, message_id, external_id,
            trace, last_error, context, payload)
        VALUES (p_seq, p_now, p_now, p_occurred, p_now, p_now + p_keep, p_now + p_keep, 5, at, p_flags >> 3 & 7, p_flags & 1 <> 0,
            p_flags & 2 <> 0, p_flags >> 6, p_digest, p_id, '', p_key, p_provider, p_type, p_version, p_account, p_phone, p_message, p_external,
            coalesce(p_trace, ''), coalesce(p_reason, ''), p_context, p_payload)
        ON CONFLICT (id, rank) DO NOTHING;
        IF FOUND THEN
            RETURN 3;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'too many acceptances of one ID at once' USING ERRCODE = 'lock_not_available';
END
$pawl$;
