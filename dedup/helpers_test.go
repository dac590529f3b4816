package dedup_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl/dedup"
)

var errLost = errors.New("connection reset")

// A flaky store fails calls before or after they are applied, as often as it is
// told, and counts what it is asked.
type flaky struct {
	dedup.Store
	mu                             sync.Mutex
	claimBefore, claimAfter        int // failures to come
	settleBefore, settleAfter      int
	claimCalls, settleCalls, asked int
	block                          chan struct{} // claims wait for it, when not nil
	down                           bool
}

func (f *flaky) set(change func(f *flaky)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func take(n *int) bool {
	if *n == 0 {
		return false
	}
	*n--
	return true
}

func (f *flaky) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	f.mu.Lock()
	f.claimCalls++
	f.asked += len(asks)
	before, after, block := f.down || take(&f.claimBefore), false, f.block
	if !before {
		after = take(&f.claimAfter)
	}
	f.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if before {
		return nil, errLost
	}
	claims, err := f.Store.Claim(ctx, p, asks)
	if after {
		return nil, errLost
	}
	return claims, err
}

func (f *flaky) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	f.mu.Lock()
	f.settleCalls++
	before, after := f.down || take(&f.settleBefore), false
	if !before {
		after = take(&f.settleAfter)
	}
	f.mu.Unlock()
	if before {
		return nil, errLost
	}
	errs, err := f.Store.Settle(ctx, p, s)
	if after {
		return nil, errLost
	}
	return errs, err
}

func (f *flaky) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return nil, errLost
	}
	return f.Store.Held(ctx, scope, after, n)
}

// A patched store has some of its steps replaced.
type patched struct {
	dedup.Store
	claim  func(context.Context, dedup.Params, []dedup.Ask) ([]dedup.Claim, error)
	settle func(context.Context, dedup.Params, []dedup.Settlement) ([]error, error)
	held   func(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error)
}

func (s *patched) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	if s.claim != nil {
		return s.claim(ctx, p, asks)
	}
	return s.Store.Claim(ctx, p, asks)
}

func (s *patched) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	if s.settle != nil {
		return s.settle(ctx, p, settlements)
	}
	return s.Store.Settle(ctx, p, settlements)
}

func (s *patched) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	if s.held != nil {
		return s.held(ctx, scope, after, n)
	}
	return s.Store.Held(ctx, scope, after, n)
}

// hanging returns a memory store whose settlements have no answer while on is
// set.
func hanging(on *atomic.Bool) *patched {
	m := dedup.NewMemory()
	return &patched{Store: m, settle: func(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
		if on.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return m.Settle(ctx, p, s)
	}}
}

// newGuard makes a guard or fails the test.
func newGuard(t *testing.T, s dedup.Store, opts *dedup.Options) *dedup.Guard {
	t.Helper()
	g, err := dedup.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func claim(t *testing.T, g *dedup.Guard, id string) dedup.Claim {
	t.Helper()
	c, err := g.Claim(t.Context(), dedup.Request{ID: id})
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return c
}

func wantState(t *testing.T, c dedup.Claim, want dedup.State) {
	t.Helper()
	if c.State != want {
		t.Fatalf("claim answered %v, want %v", c.State, want)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func nop(context.Context) error { return nil }
