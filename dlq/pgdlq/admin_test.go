package pgdlq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestNewRefuses(t *testing.T) {
	_, err := pgdlq.New(nil, nil)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = pgdlq.New(connect(t, testenv.Postgres(t)), &pgdlq.Options{Schema: `a"b`})
	require.ErrorIs(t, err, dlq.ErrInvalid)
}

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	check := func(name, value string) error {
		s, err := pgdlq.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pgdlq.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	require.ErrorIs(t, check("synchronous_commit", "off"), dlq.ErrAtRisk)
	require.ErrorIs(t, check("default_transaction_isolation", "serializable"), pgdlq.ErrIsolation)

	closed := connect(t, testenv.Postgres(t))
	closed.Close()
	gone, err := pgdlq.New(closed, nil)
	require.NoError(t, err)
	require.ErrorIs(t, gone.Check(t.Context()), dlq.ErrUnchecked)

	other, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pgdlq.ErrNotMigrated)
	_, err = other.Put(t.Context(), params, []dlq.Put{letter("a", "")})
	require.ErrorIs(t, err, pgdlq.ErrNotMigrated)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'dlq'")
	require.NoError(t, err)
	var newer *pgdlq.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

// Migrate may be called by many at once, and again.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			store, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema})
			assert.NoError(t, err)
			for range 2 {
				assert.NoError(t, store.Migrate(t.Context()))
			}
			_, err = store.Put(t.Context(), params, []dlq.Put{letter(fmt.Sprint(i), "")})
			assert.NoError(t, err)
			assert.NoError(t, store.Check(t.Context()))
		})
	}
	all.Wait()
}

// What was stored, claimed and counted before a migration is so after it.
func TestMigrateKeepsLetters(t *testing.T) {
	t.Parallel()
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	text, err := pgdlq.Schema(schema)
	require.NoError(t, err)
	const before = 9
	for _, sql := range append([]string{"CREATE SCHEMA " + schema}, text[:before]...) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	_, err = pool.Exec(t.Context(), fmt.Sprintf(`CREATE TABLE %[1]s.pawl_versions (
			component text PRIMARY KEY, version integer NOT NULL, migrated_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO %[1]s.pawl_versions VALUES ('dlq', %[2]d)`, schema, before))
	require.NoError(t, err)
	store, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema})
	require.NoError(t, err)
	require.ErrorIs(t, store.Check(t.Context()), pgdlq.ErrNotMigrated)
	put(t, store, letter("a", "k"), letter("b", "k"), letter("c", ""))
	held := claim(t, store, time.Minute)
	require.Len(t, held, 2)
	put(t, store, letter("d", ""))

	require.NoError(t, store.Migrate(t.Context()))
	require.NoError(t, store.Check(t.Context()))
	counts := func() []dlq.Group {
		groups, err := store.Groups(t.Context(), orders, "", 10)
		require.NoError(t, err)
		return groups
	}
	groups := counts()
	require.Len(t, groups, 1)
	require.Equal(t, 4, groups[0].Waiting)
	more := claim(t, store, time.Minute)
	require.Len(t, more, 1, "what is held is passed over")
	require.Equal(t, "d", more[0].Record.ID)
	settle(t, store, settlement(dlq.KindResolve, held[0]), settlement(dlq.KindReview, held[1]))
	_, err = pool.Exec(t.Context(), "SELECT "+schema+".dlq_fold($1)", orders)
	require.NoError(t, err)
	waiting, review := 0, 0
	for _, g := range counts() {
		waiting, review = waiting+g.Waiting, review+g.Review
	}
	require.Equal(t, []int{2, 1}, []int{waiting, review})
}

// A role needs no more than the package comment says.
func TestRights(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	role := schema + "_service"
	_, err := pool.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[2]s LOGIN; GRANT USAGE ON SCHEMA %[1]s TO %[2]s;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s`, schema, role))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
		require.NoError(t, err)
	})
	store, err := pgdlq.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) { c.ConnConfig.User = role }), &pgdlq.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()), "nothing is missing")
	put(t, store, letter("a", "k"), letter("b", "k"))
	settle(t, store, settlement(dlq.KindRetry, claim(t, store, time.Minute)[0]))
	settle(t, store, settlement(dlq.KindResolve, claim(t, store, time.Minute)[0]))
	_, err = store.SaveJob(t.Context(), params, dlq.Job{Stream: orders, ID: "j", Nonce: nonce()})
	require.NoError(t, err)
	_, err = store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, dlq.Totals{Stream: orders, Waiting: 1, Resolved: 1}, totals(t, store))
}

// A sweep looks at no more than it was told, goes on where it stopped, and removes all
// that has expired in the end.
func TestSweepInSmallSteps(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	_, err := store.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	brief := dlq.Params{Retention: time.Millisecond, Audit: time.Millisecond, Capacity: 1000}
	const n = 20
	for i := range n {
		put(t, store, letter(fmt.Sprint(i), fmt.Sprint("k", i)))
	}
	_, err = store.SaveJob(t.Context(), brief, dlq.Job{Stream: orders, ID: "j", Nonce: nonce(), Ended: true})
	require.NoError(t, err)
	_, err = store.Alert(t.Context(), []dlq.Alarm{{Nonce: nonce(), Stream: orders, Fingerprint: "aa", Window: time.Millisecond}})
	require.NoError(t, err)
	for _, c := range claim(t, store, 50*time.Millisecond) {
		errs, err := store.Settle(t.Context(), brief, []dlq.Settlement{settlement(dlq.KindResolve, c)})
		require.NoError(t, err)
		require.Nil(t, errs)
		errs, err = store.Change(t.Context(), brief, []dlq.Change{change(dlq.ChangeNote, c.Record)})
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	put(t, store, letter("waits", ""))
	rows := func(table string) (count int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".dlq_"+table).Scan(&count))
		return count
	}
	require.Equal(t, n, rows("lanes"))
	require.Equal(t, n, rows("entries"))
	sum := 0
	require.Eventually(t, func() bool {
		got, err := store.Sweep(t.Context(), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, got, 2, "one letter, and one entry")
		sum += got
		return sum == 2*n && rows("lanes")+rows("jobs")+rows("alarms")+rows("entries") == 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, rows("letters"))
	require.Equal(t, dlq.Totals{Stream: orders, Waiting: 1}, totals(t, store))
	verify(t, store, pool, schema)
}

// Whatever is unresolved stays, and its lane while somebody holds it.
func TestSweepKeepsWhatIsUnresolved(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	brief := dlq.Params{Retention: 1, Audit: 1, Capacity: 1000}
	put(t, store, letter("a", "k"), letter("b", "k"), letter("c", ""))
	c := claim(t, store, time.Minute)
	require.Len(t, c, 2)
	errs, err := store.Change(t.Context(), brief, []dlq.Change{change(dlq.ChangeForget, c[1].Record)})
	require.NoError(t, err)
	require.Nil(t, errs)
	time.Sleep(2 * time.Millisecond) // the server's clock moves past the retention
	_, err = store.Sweep(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, list(t, store, dlq.Query{}))
	var lanes int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".dlq_lanes").Scan(&lanes))
	require.Equal(t, 2, lanes)
	settle(t, store, settlement(dlq.KindResolve, c[0]), settlement(dlq.KindRelease, c[1]))
}

// A page looks at so many letters and no more, and says where to go on.
func TestListBoundsWhatItLooksAt(t *testing.T) {
	t.Parallel()
	store, _, _ := newStore(t)
	for i := range 11 {
		batch := make([]dlq.Put, 1000)
		for k := range batch {
			batch[k] = letter(fmt.Sprintf("%02d-%03d", i, k), "")
		}
		put(t, store, batch...)
	}
	last := letter("last", "k")
	put(t, store, last)
	p, err := store.List(t.Context(), dlq.Query{Stream: orders, Fingerprint: "aa", State: dlq.StateReview, N: 10})
	require.NoError(t, err)
	require.Empty(t, p.Records)
	require.NotZero(t, p.Next)
	p, err = store.List(t.Context(), dlq.Query{Stream: orders, Fingerprint: "aa", State: dlq.StateReview, N: 10, After: p.Next})
	require.NoError(t, err)
	require.Empty(t, p.Records)
	require.Zero(t, p.Next)
	p, err = store.List(t.Context(), dlq.Query{Stream: orders, Fingerprint: "aa", Key: "k", N: 10})
	require.NoError(t, err)
	require.Len(t, p.Records, 1, "along the rarer of the two")
}

func TestSchema(t *testing.T) {
	text, err := pgdlq.Schema("")
	require.NoError(t, err)
	require.Len(t, text, 10)
	assert.Contains(t, text[0], `CREATE TABLE "pawl".dlq_letters (`)
	for _, s := range text {
		assert.NotContains(t, s, "{schema}")
	}
}
