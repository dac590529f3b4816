-- inbox_change_done writes what inbox_done has of an event into its records: there
-- is more to say of them now.
CREATE FUNCTION {schema}.inbox_change_done(p_id text) RETURNS void
LANGUAGE sql VOLATILE AS
$pawl$
    WITH gone AS (
        DELETE FROM {schema}.inbox_done AS t
        WHERE t.seq = ANY (ARRAY(SELECT r.seq FROM {schema}.inbox_records AS r WHERE r.id = p_id AND r.state + 0 = 1))
        RETURNING t.seq, t.ended_by, t.settled, t.expires, t.erases, t.attempts
    )
    UPDATE {schema}.inbox_records AS t SET
        state = 2, attempts = g.attempts, ended_by = g.ended_by, settled = g.settled, expires = g.expires, erases = g.erases
    FROM gone AS g WHERE t.seq = g.seq
$pawl$;
