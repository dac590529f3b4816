-- A read sees one moment. Its statements would otherwise each see what had been
-- committed by then: a record that failed between two of them was in none.
ALTER FUNCTION {schema}.inbox_list(text, text, text, integer, bigint, integer) STABLE;
ALTER FUNCTION {schema}.inbox_list_fronts() STABLE;
ALTER FUNCTION {schema}.inbox_list_held() STABLE;
ALTER FUNCTION {schema}.inbox_totals() STABLE;
