-- dedup_retain makes p_ids, which are distinct and ascend, stay at least so many
-- microseconds from now if they are done. It returns the places, from 1, of those that
-- another transaction kept locked for a quarter of a second, for which nothing was
-- done.
--
-- It takes no lock of the claims: of a record that is done and has not expired nothing
-- but this and the time of its end changes, and who erases it, or claims it after its
-- end, has the row itself locked.
CREATE FUNCTION {schema}.dedup_retain(p_scope text, p_ids text[], p_retentions bigint[]) RETURNS SETOF integer
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms'
AS $pawl$
DECLARE
    now bigint;
BEGIN
    PERFORM {schema}.dedup_check_isolation();
    FOR i IN 1 .. cardinality(p_ids) LOOP
        BEGIN
            now := {schema}.dedup_now();
            UPDATE {schema}.dedup AS d SET expires_at = {schema}.dedup_now() + p_retentions[i]  -- it may have waited
            WHERE d.scope = p_scope AND d.id = p_ids[i] AND d.state = 3 AND d.expires_at > now AND d.expires_at < now + p_retentions[i];
        EXCEPTION WHEN lock_not_available THEN
            RETURN NEXT i;
        END;
    END LOOP;
END
$pawl$;
