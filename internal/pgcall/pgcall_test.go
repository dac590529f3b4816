package pgcall_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/testenv"
)

var errInvalid = errors.New("invalid")

func connect(t *testing.T, isolation string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// functions makes a schema with one function that refuses what is not READ
// COMMITTED, and one that fails in mode 0 and answers its arguments in others.
func functions(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	schema := testenv.SchemaName(t)
	_, err := pool.Exec(t.Context(), `CREATE SCHEMA `+schema+`;
		CREATE FUNCTION `+schema+`.level(n integer) RETURNS SETOF integer LANGUAGE plpgsql AS $$
		BEGIN
			IF current_setting('transaction_isolation') <> 'read committed' THEN
				RAISE EXCEPTION 'too high' USING ERRCODE = '25000';
			END IF;
			RETURN QUERY SELECT * FROM generate_series(1, n);
		END $$;
		CREATE FUNCTION `+schema+`.locking(scope text, mode integer, n integer) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			IF mode = 0 OR n < 0 THEN
				RAISE EXCEPTION 'locked' USING ERRCODE = '55P03';
			END IF;
			RETURN scope || mode || n;
		END $$;`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
		require.NoError(t, err)
	})
	return schema
}

func TestCallHandsOverEachRow(t *testing.T) {
	for _, isolation := range []string{"read committed", "serializable"} {
		pool := connect(t, isolation)
		schema := functions(t, pool)
		sum := 0
		add := func(rows pgx.Rows) error {
			var n int
			err := rows.Scan(&n)
			sum += n
			return err
		}
		sql := "SELECT * FROM " + schema + ".level($1::integer)"
		require.NoError(t, pgcall.Alone(pool, 1).Call(t.Context(), add, sql, 4), "sent again where it has to be")
		require.Equal(t, 10, sum)

		errStop := errors.New("stop")
		rows := 0
		err := pgcall.Alone(pool, 1).Call(t.Context(), func(pgx.Rows) error { rows++; return errStop }, sql, 4)
		require.ErrorIs(t, err, errStop)
		require.Equal(t, 1, rows)

		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		err = pgcall.Within(tx, 2, errInvalid).Call(t.Context(), add, sql, 4)
		require.Equal(t, isolation != "read committed", pgcall.HasCode(err, pgcall.Isolation), "the caller's transaction is as it is")
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestCallLockingModes(t *testing.T) {
	pool := connect(t, "read committed")
	sql := "SELECT " + functions(t, pool) + ".locking($1::text, $2::integer, $3::integer)"
	var got string
	read := func(rows pgx.Rows) error { return rows.Scan(&got) }

	require.NoError(t, pgcall.Alone(pool, 7).CallLocking(t.Context(), read, sql, "scope", 5))
	require.Equal(t, "scope75", got, "sent again in the busy mode")
	err := pgcall.Alone(pool, 7).CallLocking(t.Context(), read, sql, "scope", -1)
	require.True(t, pgcall.HasCode(err, pgcall.Locked), "and not for ever")

	for _, mode := range []int{0, 3} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		err = pgcall.Within(tx, mode, errInvalid).CallLocking(t.Context(), read, sql, "scope", 5)
		if mode == 0 {
			require.True(t, pgcall.HasCode(err, pgcall.Locked), "an aborted transaction is not tried again")
		} else {
			require.NoError(t, err)
			require.Equal(t, "scope35", got)
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestNilTransaction(t *testing.T) {
	r := pgcall.Within(nil, 0, errInvalid)
	require.ErrorIs(t, r.Call(t.Context(), nil, "SELECT 1"), errInvalid)
	require.ErrorIs(t, r.CallLocking(t.Context(), nil, "SELECT 1", "scope"), errInvalid)
}
