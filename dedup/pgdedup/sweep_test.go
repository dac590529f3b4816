package pgdedup_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
)

func TestSweep(t *testing.T) {
	store, pool, schema := newStore(t)
	count := func() (n int) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".dedup").Scan(&n))
		return n
	}
	short := dedup.Params{Scope: "sweep", Lease: time.Millisecond, Retention: time.Millisecond, Complete: true}
	long := dedup.Params{Scope: "sweep", Lease: time.Millisecond, Retention: time.Hour}
	hold := dedup.Params{Scope: "sweep", Lease: time.Millisecond, Retention: time.Millisecond, OnLapse: dedup.Hold}
	for p, prefix := range map[dedup.Params]string{short: "short", long: "long", hold: "hold"} {
		_, err := store.Claim(t.Context(), p, asks(prefix, 3000))
		require.NoError(t, err)
	}

	removed, err := store.Sweep(t.Context(), 500)
	require.NoError(t, err)
	require.LessOrEqual(t, removed, 500, "bounded")
	require.Positive(t, removed)
	require.Equal(t, 9000-removed, count())

	// Two whole passes, the second of which finds nothing.
	var pages int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_relation_size($1::text::regclass) / 8192", schema+".dedup").Scan(&pages))
	for range 2 * (pages/100 + 3000/100 + 1) {
		n, err := store.Sweep(t.Context(), 100)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 100)
		removed += n
	}
	assert.Equal(t, 3000, removed)
	assert.Equal(t, 6000, count(), "what is kept or held stays")
	n, err := store.Sweep(t.Context(), 1_000_000)
	require.NoError(t, err)
	assert.Zero(t, n)

	_, err = store.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, dedup.ErrInvalid)
}

func TestSweepPassesOverWhatIsLocked(t *testing.T) {
	l := newLedger(t, &dedup.Options{Scope: "sweep"})
	short := dedup.Params{Scope: "sweep", Lease: time.Millisecond, Retention: time.Millisecond, Complete: true}
	_, err := l.store.Claim(t.Context(), short, asks("s", 10))
	require.NoError(t, err)
	tx := l.begin()
	require.Eventually(t, func() bool { // until it has expired
		c, err := l.guard.With(l.store.Tx(tx)).Claim(t.Context(), dedup.Request{ID: "s-00004"})
		return err == nil && c.State == dedup.Acquired
	}, time.Minute, time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a sweep that waits
	defer cancel()
	n, err := l.store.Sweep(ctx, 1000)
	require.NoError(t, err)
	assert.Equal(t, 9, n)
	require.NoError(t, tx.Commit(t.Context()))
	c := l.claim("s-00004")
	assert.Equal(t, dedup.InFlight, c.State, "the claim of the transaction stands")
}

// TestClaimsGoOnDuringSweeps claims expired IDs again while they are being
// removed: each is found expired or gone, granted, and not removed afterwards.
func TestClaimsGoOnDuringSweeps(t *testing.T) {
	store, _, _ := newStore(t)
	short := dedup.Params{Scope: params.Scope, Lease: time.Millisecond, Retention: time.Millisecond, Complete: true}
	all := asks("s", 10_000)
	_, err := store.Claim(t.Context(), short, all)
	require.NoError(t, err)
	time.Sleep(2 * time.Millisecond) // the last of them expires, by the server's clock

	// Sweeping begins at one end of the table and claiming at the other.
	for i := range all {
		all[i] = ask(all[i].ID)
	}
	slices.Reverse(all)
	var slowest time.Duration
	claim := func(batch []dedup.Ask) {
		start := time.Now()
		claims, err := store.Claim(t.Context(), params, batch)
		slowest = max(slowest, time.Since(start))
		require.NoError(t, err)
		for _, c := range claims {
			require.NoError(t, c.Err)
			require.Equal(t, dedup.Acquired, c.State)
			require.Equal(t, 1, c.Attempt)
		}
	}
	claim(all[:100])
	sum, err := store.Sweep(t.Context(), 50)
	require.NoError(t, err)

	stop, swept := make(chan struct{}), make(chan int)
	go func() {
		more := 0
		for {
			n, err := store.Sweep(t.Context(), 50)
			assert.NoError(t, err)
			more += n
			select {
			case <-stop:
				swept <- more
				return
			default:
			}
		}
	}()
	for batch := range slices.Chunk(all[100:], 100) {
		claim(batch)
	}
	close(stop)
	sum += <-swept
	require.Positive(t, sum)
	require.LessOrEqual(t, sum, len(all)-100, "what was claimed is not swept")
	t.Logf("swept %d, slowest claim of 100: %v", sum, slowest)
	assert.Less(t, slowest, 5*time.Second)

	again, err := store.Claim(t.Context(), params, all)
	require.NoError(t, err)
	for _, c := range again {
		require.Equal(t, dedup.Acquired, c.State, "the same ask finds its claim")
		require.Equal(t, 1, c.Attempt)
	}
}
