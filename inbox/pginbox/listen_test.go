package pginbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// listen runs Listen until the test ends, and returns what it says.
func listen(t *testing.T, store *pginbox.Store) (woken <-chan struct{}, problems <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	wakes, errs, done := make(chan struct{}, 1000), make(chan error, 1000), make(chan error)
	go func() {
		done <- store.Listen(ctx, func() { wakes <- struct{}{} }, func(err error) { errs <- err })
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return wakes, errs
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

// Who listens hears of what others accept, and again after the connection broke.
func TestListen(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	front, err := pginbox.New(pool, &pginbox.Options{Schema: schema, Notify: true})
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	back, err := pginbox.New(pool, &pginbox.Options{Schema: schema, Listen: func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.Connect(ctx, proxy.URL())
	}})
	require.NoError(t, err)
	woken, problems := listen(t, back)
	await(t, woken) // it listens
	for _, id := range []string{"1", "2"} {
		_, err = front.Accept(t.Context(), params, []inbox.Arrival{arrival("k", id)})
		require.NoError(t, err)
		await(t, woken)
		_, err = front.Accept(t.Context(), params, []inbox.Arrival{arrival("k", id)}) // a duplicate wakes nobody
		require.NoError(t, err)
		require.Empty(t, woken)
		proxy.Cut()
		require.Error(t, await(t, problems))
		await(t, woken) // for what it missed
	}
}

// A connection on which notifications do not arrive is reported: here one to another
// database, which answers LISTEN as a pooler in transaction mode does.
func TestListenWhereNothingArrives(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	store, err := pginbox.New(pool, &pginbox.Options{Schema: schema, Listen: func(ctx context.Context) (*pgx.Conn, error) {
		config, err := pgx.ParseConfig(testenv.Postgres(t))
		if err != nil {
			return nil, err
		}
		config.Database = "template1"
		return pgx.ConnectConfig(ctx, config)
	}})
	require.NoError(t, err)
	woken, problems := listen(t, store)
	require.ErrorIs(t, await(t, problems), pginbox.ErrNoNotifications)
	require.Empty(t, woken)
}

func TestListenTriesAgain(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	refused := errors.New("refused")
	store, err := pginbox.New(pool, &pginbox.Options{Schema: schema, Listen: func(context.Context) (*pgx.Conn, error) { return nil, refused }})
	require.NoError(t, err)
	require.ErrorIs(t, store.Listen(t.Context(), nil, nil), inbox.ErrInvalid)
	_, problems := listen(t, store)
	for range 2 {
		require.ErrorIs(t, await(t, problems), refused)
	}
}
