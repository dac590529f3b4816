package pginbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// as returns the store as a role sees it.
func (d *desk) as(role string) (*pginbox.Store, *pgxpool.Pool) {
	pool := connect(d.T, testenv.Postgres(d.T), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return err
		}
	})
	store, err := pginbox.New(pool, &pginbox.Options{Schema: d.schema})
	require.NoError(d.T, err)
	return store, pool
}

// withRoles makes the four roles, which end with the test.
func withRoles(t *testing.T) (*desk, pginbox.RoleNames) {
	d := newDesk(t)
	names := pginbox.RoleNames{Ingest: d.schema + "_i", Worker: d.schema + "_w", Operator: d.schema + "_o", Purge: d.schema + "_p"}
	for _, role := range []string{names.Ingest, names.Worker, names.Operator, names.Purge} {
		_, err := d.pool.Exec(t.Context(), "CREATE ROLE "+role)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := d.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		})
	}
	sql, err := pginbox.Roles(d.schema, names)
	require.NoError(t, err)
	for range 2 { // it may be applied again
		_, err = d.pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	return d, names
}

// Each role can do its own steps, all of them.
func TestRolesDoTheirSteps(t *testing.T) {
	t.Parallel()
	d, names := withRoles(t)
	ingest, _ := d.as(names.Ingest)
	worker, _ := d.as(names.Worker)
	operator, _ := d.as(names.Operator)
	purge, _ := d.as(names.Purge)

	for name, s := range map[string]*pginbox.Store{"ingest": ingest, "worker": worker, "operator": operator, "purge": purge} {
		require.NoError(t, s.Check(t.Context()), name)
	}

	brief := inbox.Params{Retention: time.Millisecond, Keep: time.Millisecond, Bodies: time.Millisecond}
	several := arrival("k", "several")
	several.Streams = []string{"default", "second"}
	conflict := arrival("k", "1")
	conflict.Digest[0]++
	raw := inbox.Arrival{Event: event("raw", "raw"), Raw: true}
	answers, err := ingest.Accept(t.Context(), brief, []inbox.Arrival{arrival("k", "1"), arrival("k", "1"), conflict, several, raw, arrival("l", "2"), arrival("k", "3")})
	require.NoError(t, err)
	require.Equal(t, []inbox.Answer{inbox.Accepted, inbox.Duplicate, inbox.Conflict, inbox.Accepted, inbox.Quarantined, inbox.Accepted, inbox.Accepted}, answers)

	ask := newAsk(time.Minute)
	for range 2 { // the second time as a repetition
		claimed, err := worker.Claim(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, claimed.Claims, 2)
		if ask.Events > 1 {
			ask.Events = 1
			continue
		}
		k, l := claimed.Claims[0], claimed.Claims[1]
		if k.Key != "k" {
			k, l = l, k
		}
		errs, err := worker.Settle(t.Context(), brief, []inbox.Settlement{
			settlement(inbox.KindDone, k, "p/1"), settlement(inbox.KindBegin, k, "p/several"), {Kind: inbox.KindExtend, Stream: k.Stream, Key: k.Key, Token: k.Token, Lease: time.Minute},
			{Kind: inbox.KindDead, Stream: k.Stream, Key: k.Key, Token: k.Token, ID: "p/several", Error: "no", Failures: []inbox.Failure{{Attempt: 1}}},
			settlement(inbox.KindRelease, k, ""),
			{Kind: inbox.KindRetry, Stream: l.Stream, Key: l.Key, Token: l.Token, ID: "p/2", Error: "no", Delay: time.Millisecond},
		})
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	require.Eventually(t, func() bool { // a key that was released is claimed again, and what waits behind it is parked
		claimed, err := worker.Claim(t.Context(), newAsk(time.Minute))
		require.NoError(t, err)
		return len(claimed.Claims) == 0
	}, time.Minute, 10*time.Millisecond)

	for _, q := range []inbox.Query{{ID: "p/1"}, {MessageID: "m"}, {ExternalID: "x"}, {State: inbox.StatePending}, {State: inbox.StateDone}, {State: inbox.StateDead}, {Outside: true}} {
		q.N = 10
		_, err = operator.List(t.Context(), q)
		require.NoError(t, err)
	}
	_, err = operator.Totals(t.Context())
	require.NoError(t, err)
	for i, c := range []inbox.Change{
		{Kind: inbox.ChangeResolve, ID: "p/raw"}, {Kind: inbox.ChangeRedact, ID: "p/raw"}, {Kind: inbox.ChangeReplay, ID: "p/1"}, {Kind: inbox.ChangeForget, ID: "p/2"},
	} {
		c.Nonce, c.Actor, c.Reason = [16]byte{byte(i + 1)}, "ann", "why"
		errs, err := operator.Change(t.Context(), brief, []inbox.Change{c})
		require.NoError(t, err)
		require.Nil(t, errs, c.Kind)
	}
	require.Eventually(t, func() bool { // the first of an event goes, and another takes its place
		_, err := purge.Sweep(t.Context(), 100)
		require.NoError(t, err)
		records, err := operator.List(t.Context(), inbox.Query{ID: "p/several", N: 10})
		require.NoError(t, err)
		return len(records) == 1
	}, time.Minute, 10*time.Millisecond)
}

// What is not a role's step is refused by the server, through the functions and
// past them.
func TestRolesAreRefusedOthersSteps(t *testing.T) {
	t.Parallel()
	d, names := withRoles(t)
	d.accept("k", "1")
	type step = func(*pginbox.Store) error
	accept := func(s *pginbox.Store) error {
		_, err := s.Accept(t.Context(), params, []inbox.Arrival{arrival("k", "2")})
		return err
	}
	claim := func(s *pginbox.Store) error { _, err := s.Claim(t.Context(), newAsk(time.Minute)); return err }
	settle := func(s *pginbox.Store) error {
		_, err := s.Settle(t.Context(), params, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: "default", Key: "k", Token: 1}})
		return err
	}
	change := func(s *pginbox.Store) error {
		_, err := s.Change(t.Context(), params, []inbox.Change{{Kind: inbox.ChangeForget, ID: "p/1", Actor: "a"}})
		return err
	}
	list := func(s *pginbox.Store) error {
		_, err := s.List(t.Context(), inbox.Query{ID: "p/1", N: 1})
		return err
	}
	sweep := func(s *pginbox.Store) error { _, err := s.Sweep(t.Context(), 10); return err }
	denied := func(err error) {
		t.Helper()
		var e *pgconn.PgError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "42501", e.Code, e.Message) // insufficient privilege
	}
	for role, c := range map[string]struct {
		steps []step
		sql   []string
	}{
		names.Ingest:   {[]step{claim, settle, change, list, sweep}, []string{"SELECT payload FROM {}", "UPDATE {} SET state = 2", "DELETE FROM {}"}},
		names.Worker:   {[]step{accept, change, list, sweep}, []string{"UPDATE {} SET payload = NULL", "UPDATE {} SET id = ''", "DELETE FROM {}", "INSERT INTO {} (seq) VALUES (0)"}},
		names.Operator: {[]step{accept, claim, settle, sweep}, []string{"UPDATE {} SET id = ''", "INSERT INTO {} (seq) VALUES (0)"}},
		names.Purge:    {[]step{accept, claim, settle, change, list}, []string{"SELECT payload FROM {}", "SELECT phone FROM {}", "UPDATE {} SET state = 2"}},
	} {
		store, pool := d.as(role)
		for _, s := range c.steps {
			denied(s(store))
		}
		for _, sql := range c.sql {
			at := 0
			for i := range sql {
				if sql[i] == '{' {
					at = i
				}
			}
			_, err := pool.Exec(t.Context(), sql[:at]+d.schema+".inbox_records"+sql[at+2:])
			denied(err)
		}
	}
	records, err := d.box.Get(t.Context(), "p/1")
	require.NoError(t, err)
	require.Equal(t, inbox.StatePending, records[0].State)
}

func TestRolesChecksNames(t *testing.T) {
	_, err := pginbox.Roles("", pginbox.RoleNames{Ingest: "a", Worker: "b", Operator: "c"})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = pginbox.Roles("", pginbox.RoleNames{Ingest: "a", Worker: "b", Operator: "c", Purge: "d'"})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = pginbox.Roles(`a"b`, pginbox.RoleNames{Ingest: "a", Worker: "b", Operator: "c", Purge: "d"})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	sql, err := pginbox.Roles("", pginbox.RoleNames{Ingest: "a", Worker: "b", Operator: "c", Purge: "d"})
	require.NoError(t, err)
	require.NotContains(t, sql, "{")
}
