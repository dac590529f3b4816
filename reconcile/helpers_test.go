package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"go.uber.org/goleak"
)

// Nothing that a ledger or a memory store starts outlives its use.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func newLedger(t *testing.T, s reconcile.Store, opts *reconcile.Options) *reconcile.Ledger {
	t.Helper()
	l, err := reconcile.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var errLost = errors.New("connection reset")

// A remote is the other side: what it did, under which keys, and how it misbehaves.
type remote struct {
	mu      sync.Mutex
	done    map[string][]time.Time // when it did what
	calls   int
	probes  int
	keys    bool          // it honours keys
	lag     time.Duration // reads lag behind writes
	lose    int           // of the next calls the answers are lost
	down    bool          // nothing is answered, and nothing done
	pending bool          // what it has is pending
}

func newRemote() *remote { return &remote{done: map[string][]time.Time{}} }

func (r *remote) call(_ context.Context, op reconcile.Op) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.down {
		return nil, errLost
	}
	if len(r.done[op.Key]) == 0 || !r.keys {
		r.done[op.Key] = append(r.done[op.Key], time.Now())
	}
	if r.lose > 0 {
		r.lose--
		return nil, errLost
	}
	return []byte("ok " + op.Key), nil
}

func (r *remote) probe(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes++
	if r.down {
		return reconcile.Evidence{}, errLost
	}
	for _, at := range r.done[op.Key] {
		if time.Since(at) < r.lag {
			continue
		}
		if r.pending {
			return reconcile.Evidence{Seen: reconcile.SeenPending}, nil
		}
		return reconcile.Evidence{Seen: reconcile.SeenDone, Result: []byte("found")}, nil
	}
	return reconcile.Evidence{Seen: reconcile.SeenNothing}, nil
}

func (r *remote) set(f func(r *remote)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

func (r *remote) did(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.done[key])
}

func (r *remote) called() (calls, probes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls, r.probes
}

// run works a ledger's queue until the test ends.
func run(t *testing.T, l *reconcile.Ledger, call reconcile.CallFunc, probe reconcile.ProbeFunc) (stop func()) {
	return runAs(t, l, call, probe, &reconcile.RunOptions{Poll: 10 * time.Second})
}

func runAs(t *testing.T, l *reconcile.Ledger, call reconcile.CallFunc, probe reconcile.ProbeFunc, opts *reconcile.RunOptions) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, call, probe, opts) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// want checks the state of an operation, and returns it.
func want(t *testing.T, l *reconcile.Ledger, key string, s reconcile.State) reconcile.Entry {
	t.Helper()
	e, err := l.Lookup(t.Context(), key)
	if err != nil || e.State != s {
		t.Fatalf("%q is %v, %v; want %v (%+v)", key, e.State, err, s, e.Log)
	}
	return e
}

func stateOf(t *testing.T, err error) *reconcile.StateError {
	t.Helper()
	e := (*reconcile.StateError)(nil)
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a StateError", err)
	}
	return e
}
