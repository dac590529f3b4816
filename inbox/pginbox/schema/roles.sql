-- What each of four roles needs for its steps, and nothing else.
--
-- The functions run with the rights of their caller (SECURITY INVOKER), and the
-- rights are given for columns. With SECURITY DEFINER a fault in one function would
-- be a fault with all rights of the owner, and the tables would be as open to
-- whoever may call inbox_list as to the owner.
--
-- A role that serves for two, such as a process that accepts and works, is granted
-- both. Nobody but the owner changes what was accepted, once it is there: no role may
-- update the columns of identity and of correlation.

REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {ingest}, {worker}, {operator}, {purge};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {ingest}, {worker}, {operator}, {purge};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM {ingest}, {worker}, {operator}, {purge};
GRANT USAGE ON SCHEMA {schema} TO {ingest}, {worker}, {operator}, {purge};
GRANT SELECT ON {schema}.pawl_versions TO {ingest}, {worker}, {operator}, {purge}; -- for Check

DO $pawl$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure FROM pg_proc AS p
        WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname LIKE 'inbox\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
        IF f::text ~ 'inbox_(now|check_isolation)\(' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {ingest}, {worker}, {operator}, {purge}', f);
        ELSIF f::text ~ 'inbox_accept' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {ingest}', f);
        ELSIF f::text ~ 'inbox_(claim|take|pass|settle|lock_each)' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {worker}', f);
        ELSIF f::text ~ 'inbox_(change|list|totals)' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {operator}', f);
        ELSIF f::text ~ 'inbox_sweep' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {purge}', f);
        END IF;
    END LOOP;
END
$pawl$;

-- Ingest sees what it needs to know a duplicate, and no body.
GRANT INSERT ON {schema}.inbox_records TO {ingest};
GRANT SELECT (seq, id, rank, state, digest, first_digest) ON {schema}.inbox_records TO {ingest};
GRANT USAGE ON SEQUENCE {schema}.inbox_seq TO {ingest};

GRANT SELECT ON {schema}.inbox_records TO {worker};
GRANT UPDATE (state, attempts, last_error, failures, next, parked, ended_by, settled, expires, erases)
    ON {schema}.inbox_records TO {worker};
GRANT SELECT, INSERT, UPDATE ON {schema}.inbox_keys TO {worker};
GRANT SELECT, INSERT, UPDATE ON {schema}.inbox_asks TO {worker};
GRANT SELECT, INSERT ON {schema}.inbox_done TO {worker};
GRANT SELECT, INSERT, UPDATE ON {schema}.inbox_fronts, {schema}.inbox_runs TO {worker};
GRANT SELECT ON SEQUENCE {schema}.inbox_seq TO {worker};

GRANT SELECT, DELETE ON {schema}.inbox_records TO {operator};
GRANT UPDATE (seq, since, state, attempts, ended_by, parked, settled, expires, erases, next, changed_by, action_kinds, action_times,
    action_actors, action_notes, payload, context, last_error, failures, trace, form, deleted) ON {schema}.inbox_records TO {operator};
GRANT SELECT (key, stream, begun, low, tries, due, expires), UPDATE (expires) ON {schema}.inbox_keys TO {operator};
GRANT SELECT, DELETE ON {schema}.inbox_done TO {operator};
GRANT SELECT ON {schema}.inbox_fronts TO {operator};
GRANT USAGE ON SEQUENCE {schema}.inbox_seq TO {operator};

GRANT SELECT (seq, id, rank, state, digest, first_digest, form, expires, erases, deleted, stream, key, parked), DELETE
    ON {schema}.inbox_records TO {purge};
GRANT UPDATE (rank, first_digest, payload, context, last_error, failures, trace, form, deleted) ON {schema}.inbox_records TO {purge};
GRANT SELECT (key, stream, expires, lease_until, due), UPDATE (expires), DELETE ON {schema}.inbox_keys TO {purge};
GRANT SELECT, UPDATE (layout), DELETE ON {schema}.inbox_asks TO {purge};
GRANT SELECT, UPDATE (layout), DELETE ON {schema}.inbox_done TO {purge};
GRANT SELECT, UPDATE (floor) ON {schema}.inbox_fronts TO {purge};
