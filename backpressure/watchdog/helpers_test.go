package watchdog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A fixture is a store, a watchdog that makes no rounds by itself, and one worker
// whose beats a test sends. It lives in a bubble.
type fixture struct {
	t     *testing.T
	store *Memory
	shift atomic.Int64 // of the store's clock against everybody else's
	down  atomic.Bool
	acts  atomic.Int32 // calls of Act
	lose  atomic.Int32 // replies of Act that are lost from now on
	w     *Watchdog
	seq   uint64
	nonce [16]byte
	calls struct {
		sync.Mutex
		incidents []Incident
	}
}

func newFixture(t *testing.T, opts Options) *fixture {
	f := &fixture{t: t, store: NewMemory(), nonce: [16]byte{1}}
	f.store.clock = func() time.Time { return time.Now().Add(time.Duration(f.shift.Load())) }
	if opts.Restart == nil {
		opts.Restart = f.note
	}
	f.w = f.watchdog(opts)
	return f
}

func (f *fixture) watchdog(opts Options) *Watchdog {
	w, err := New(&downStore{f.store, f}, &opts)
	require.NoError(f.t, err)
	return w
}

func (f *fixture) note(_ context.Context, i Incident) error {
	f.calls.Lock()
	defer f.calls.Unlock()
	f.calls.incidents = append(f.calls.incidents, i)
	return nil
}

// restarts returns how often the hook was called until now.
func (f *fixture) restarts() int {
	synctest.Wait()
	f.calls.Lock()
	defer f.calls.Unlock()
	return len(f.calls.incidents)
}

// beat sends a heartbeat of the worker "w". What it says is up to the change.
func (f *fixture) beat(change ...func(*Beat)) Ack {
	f.t.Helper()
	f.seq++
	b := Beat{Name: "w", Nonce: f.nonce, Join: f.seq == 1, Seq: f.seq, Interval: DefaultInterval, State: Flowing, Busy: true, Pending: 1, Position: f.seq}
	for _, c := range change {
		c(&b)
	}
	acks, err := f.store.Beat(f.t.Context(), Params{Scope: DefaultScope, Most: MaxWorkers}, []Beat{b})
	require.NoError(f.t, err)
	require.NoError(f.t, acks[0].Err)
	return acks[0]
}

func at(position uint64) func(*Beat) { return func(b *Beat) { b.Position = position } }

// look makes a round, which must find one worker.
func (f *fixture) look() Worker {
	f.t.Helper()
	workers, err := f.w.Round(f.t.Context())
	require.NoError(f.t, err)
	require.Len(f.t, workers, 1)
	return workers[0]
}

// watch makes a round every five seconds for some time, and returns what the last one
// found.
func (f *fixture) watch(d time.Duration, each ...func(passed time.Duration)) (w Worker) {
	f.t.Helper()
	for passed := time.Duration(0); passed < d; passed += 5 * time.Second {
		time.Sleep(5 * time.Second)
		for _, e := range each {
			e(passed + 5*time.Second)
		}
		w = f.look()
		synctest.Wait()
	}
	return w
}

var errDown = errors.New("connection refused")

// A downStore fails while the fixture says that it is down.
type downStore struct {
	Store
	*fixture
}

func (s *downStore) Beat(ctx context.Context, p Params, beats []Beat) ([]Ack, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.Store.Beat(ctx, p, beats)
}

func (s *downStore) List(ctx context.Context, scope, after string, limit int) (Page, error) {
	if s.down.Load() {
		return Page{}, errDown
	}
	return s.Store.List(ctx, scope, after, limit)
}

func (s *downStore) Act(ctx context.Context, scope string, actions []Action) ([]Outcome, error) {
	if s.down.Load() {
		return nil, errDown
	}
	s.acts.Add(1)
	outcomes, err := s.Store.Act(ctx, scope, actions)
	if s.lose.Add(-1) >= 0 {
		return nil, errDown
	}
	return outcomes, err
}
