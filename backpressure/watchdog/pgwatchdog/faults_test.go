package pgwatchdog_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/pgwatchdog"
	"github.com/pawl-go/pawl/internal/testenv"
)

const interval = 50 * time.Millisecond

func join(name string) watchdog.Beat {
	return watchdog.Beat{Name: name, Nonce: [16]byte{1}, Join: true, Seq: 1, Interval: interval, State: watchdog.Flowing, Position: 1, Pending: 1, Busy: true}
}

func try(ctx context.Context, s watchdog.Store, b watchdog.Beat) (watchdog.Ack, error) {
	acks, err := s.Beat(ctx, watchdog.Params{Scope: watchdog.DefaultScope, Most: 10}, []watchdog.Beat{b})
	if err != nil {
		return watchdog.Ack{}, err
	}
	return acks[0], acks[0].Err
}

func look(t *testing.T, s watchdog.Store) watchdog.Record {
	t.Helper()
	page, err := s.List(t.Context(), watchdog.DefaultScope, "", 10)
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	return page.Records[0].Record
}

// textual makes the names of functions visible to a proxy in every call.
func textual(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

func behindProxy(t *testing.T) (*pgwatchdog.Store, *testenv.Proxy) {
	_, _, schema := newStore(t)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	store, err := pgwatchdog.New(connect(t, proxy.URL(), textual), &pgwatchdog.Options{Schema: schema})
	require.NoError(t, err)
	return store, proxy
}

// Every step is worked and its reply lost once: sent again, it has the first answer.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	dropped := 0
	lose := func(step string, send func() error) {
		t.Helper()
		proxy.DropRepliesTo(step, 1)
		require.Error(t, send())
		dropped++
		require.Equal(t, dropped, proxy.Dropped())
	}
	var ack watchdog.Ack
	beat := func(b watchdog.Beat) func() error {
		return func() (err error) { ack, err = try(t.Context(), s, b); return err }
	}
	lose("watchdog_beat", beat(join("w")))
	require.NoError(t, beat(join("w"))())
	require.Equal(t, look(t, s).Token, ack.Token)

	var o watchdog.Outcome
	act := func(a watchdog.Action) func() error {
		return func() error {
			outcomes, err := s.Act(t.Context(), watchdog.DefaultScope, []watchdog.Action{a})
			if err == nil {
				o = outcomes[0]
			}
			return err
		}
	}
	take := watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{7}, Wait: time.Hour, Most: 1}
	lose("watchdog_act", act(take))
	require.NoError(t, act(take)())
	require.NoError(t, o.Err)
	require.Equal(t, 1, o.Attempt)
	done := watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Microsecond}
	lose("watchdog_act", act(done))
	require.NoError(t, act(done)())
	require.NoError(t, o.Err)
	require.Equal(t, 1, look(t, s).Attempts, "each step took effect once")
	take.Nonce = [16]byte{8}
	lose("watchdog_act", act(take))
	require.NoError(t, act(take)())
	require.ErrorIs(t, o.Err, watchdog.ErrGivenUp)
	require.True(t, o.First, "who gave up is told so")
}

// While the server is away nobody is called stuck, and not at once when it is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	w, err := watchdog.New(s, &watchdog.Options{Restart: func(context.Context, watchdog.Incident) error {
		t.Error("restarted")
		return nil
	}})
	require.NoError(t, err)
	_, err = try(t.Context(), s, join("w"))
	require.NoError(t, err)
	_, err = w.Round(t.Context())
	require.NoError(t, err)
	proxy.Refuse()
	proxy.Cut()
	for began := time.Now(); time.Since(began) < 6*interval; {
		_, err = w.Round(t.Context())
		require.ErrorIs(t, err, watchdog.ErrUnavailable)
		require.ErrorIs(t, w.Healthy(), watchdog.ErrUnhealthy)
	}
	proxy.Heal()
	workers, err := w.Round(t.Context())
	require.NoError(t, err)
	require.Equal(t, watchdog.Undecided, workers[0].Verdict)
	require.Equal(t, watchdog.Unknown, workers[0].State)
}

// What a killed server committed is there when it comes back.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	server := testenv.PostgresOwn(t)
	s, _, _ := newStoreOn(t, server.URL())
	ack, err := try(t.Context(), s, join("w"))
	require.NoError(t, err)
	take := []watchdog.Action{{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{7}, Wait: time.Hour, Most: 1}}
	granted, err := s.Act(t.Context(), watchdog.DefaultScope, take)
	require.NoError(t, err)
	require.NoError(t, granted[0].Err)
	before := look(t, s)
	server.Kill()
	_, err = try(t.Context(), s, join("w"))
	require.Error(t, err)
	server.Start()
	require.Equal(t, before, look(t, s))
	again, err := s.Act(t.Context(), watchdog.DefaultScope, take)
	require.NoError(t, err)
	require.Equal(t, granted, again)
}

// A row that somebody else has locked for too long fails the step, and changes nothing.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	s, pool, schema := newStore(t)
	_, err := try(t.Context(), s, join("w"))
	require.NoError(t, err)
	before := look(t, s)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM "+schema+".watchdog_workers FOR UPDATE")
	require.NoError(t, err)
	next := join("w")
	next.Seq = 2
	_, err = try(t.Context(), s, next)
	require.ErrorContains(t, err, "55P03")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, before, look(t, s))
	_, err = try(t.Context(), s, next)
	require.NoError(t, err)
}

func TestNewRefuses(t *testing.T) {
	_, err := pgwatchdog.New(nil, nil)
	require.ErrorIs(t, err, watchdog.ErrInvalid)
	_, err = pgwatchdog.New(connect(t, testenv.Postgres(t)), &pgwatchdog.Options{Schema: `a"b`})
	require.ErrorIs(t, err, watchdog.ErrInvalid)
}

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	with := func(name, value string) *pgwatchdog.Store {
		s, err := pgwatchdog.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pgwatchdog.Options{Schema: schema})
		require.NoError(t, err)
		return s
	}
	require.ErrorIs(t, with("synchronous_commit", "off").Check(t.Context()), watchdog.ErrAtRisk)
	serializable := with("default_transaction_isolation", "serializable")
	require.ErrorIs(t, serializable.Check(t.Context()), pgwatchdog.ErrIsolation)
	_, err := try(t.Context(), serializable, join("w"))
	require.NoError(t, err, "steps work all the same")

	other, err := pgwatchdog.New(pool, &pgwatchdog.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pgwatchdog.ErrNotMigrated)
	_, err = try(t.Context(), other, join("w"))
	require.ErrorIs(t, err, pgwatchdog.ErrNotMigrated)

	files, err := pgwatchdog.Schema("")
	require.NoError(t, err)
	require.Len(t, files, 1)
	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'watchdog'")
	require.NoError(t, err)
	var newer *pgwatchdog.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

// After the server's clock has gone back a wait begins again; it is not as much longer.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	s, pool, schema := newStore(t)
	ack, err := try(t.Context(), s, join("w"))
	require.NoError(t, err)
	take := func(nonce byte) error {
		outcomes, err := s.Act(t.Context(), watchdog.DefaultScope, []watchdog.Action{
			{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{nonce}, Wait: time.Minute, Most: 5}})
		require.NoError(t, err)
		return outcomes[0].Err
	}
	require.NoError(t, take(1))
	shift := func(d time.Duration) { // of the clock, seen from the row
		_, err := pool.Exec(t.Context(), "UPDATE "+schema+".watchdog_workers SET acted_at = acted_at - $1, next_at = next_at - $1, beat_at = beat_at - $1", d.Microseconds())
		require.NoError(t, err)
	}
	shift(-8 * time.Hour)
	require.ErrorIs(t, take(2), watchdog.ErrBusy)
	r := look(t, s)
	require.Equal(t, time.Minute, r.NextAt.Sub(r.ActedAt))
	require.Less(t, time.Until(r.NextAt), time.Hour)
	shift(time.Minute)
	require.NoError(t, take(3))
	require.Greater(t, look(t, s).Claim, r.Claim)

	shift(-8 * time.Hour)
	next := join("w")
	next.Seq = 2
	_, err = try(t.Context(), s, next)
	require.NoError(t, err)
	require.Zero(t, look(t, s).Stalled)
}
