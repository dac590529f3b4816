package seqgen_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

var errLost = errors.New("connection reset")

// newGenerator makes a generator or fails the test. It is for the caller to close.
func newGenerator(t *testing.T, s seqgen.Store, opts *seqgen.Options) *seqgen.Generator {
	t.Helper()
	g, err := seqgen.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func shut(t *testing.T, g *seqgen.Generator) {
	t.Helper()
	if err := g.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, g *seqgen.Generator, key string) seqgen.Position {
	t.Helper()
	p, err := g.Next(context.Background(), key)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return p
}

func wantNext(t *testing.T, g *seqgen.Generator, key string, epoch, n uint64) {
	t.Helper()
	p, err := g.Next(context.Background(), key)
	if err != nil || p != (seqgen.Position{Epoch: epoch, Number: n}) {
		t.Fatalf("Next returned %v, %v; want %d/%d", p, err, epoch, n)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func wantNextErr(t *testing.T, g *seqgen.Generator, key string, want error) error {
	t.Helper()
	p, err := g.Next(context.Background(), key)
	if !errors.Is(err, want) || p != (seqgen.Position{}) {
		t.Fatalf("Next returned %v, %v; want the error %v", p, err, want)
	}
	return err
}

// A span is a void as tests name it.
type span struct {
	lo, hi uint64
	kind   seqgen.VoidKind
}

func wantVoids(t *testing.T, s seqgen.Store, key string, epoch uint64, want ...span) {
	t.Helper()
	got := voidsOf(t, s, key, epoch)
	if !slices.Equal(got, want) {
		t.Fatalf("the voids of %q in epoch %d are %v, want %v", key, epoch, got, want)
	}
}

func voidsOf(t *testing.T, s seqgen.Store, key string, epoch uint64) (spans []span) {
	t.Helper()
	g := newGenerator(t, s, nil)
	voids, err := g.Voids(context.Background(), key, epoch, 1, seqgen.MaxNumber)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range voids {
		spans = append(spans, span{v.Lo, v.Hi, v.Kind})
	}
	return spans
}

// waitFor waits until something is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// A patched store has some of its steps replaced.
type patched struct {
	seqgen.Store
	mu      sync.Mutex
	reserve func(context.Context, seqgen.Params, []seqgen.Ask) ([]seqgen.Grant, error)
	settle  func(context.Context, seqgen.Params, []seqgen.Change) ([]seqgen.Outcome, error)
	look    func(context.Context, string, []string) ([]seqgen.State, error)
}

func (s *patched) set(change func(s *patched)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *patched) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	s.mu.Lock()
	f := s.reserve
	s.mu.Unlock()
	if f != nil {
		return f(ctx, p, asks)
	}
	return s.Store.Reserve(ctx, p, asks)
}

func (s *patched) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	s.mu.Lock()
	f := s.settle
	s.mu.Unlock()
	if f != nil {
		return f(ctx, p, changes)
	}
	return s.Store.Settle(ctx, p, changes)
}

func (s *patched) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	s.mu.Lock()
	f := s.look
	s.mu.Unlock()
	if f != nil {
		return f(ctx, scope, keys)
	}
	return s.Store.Look(ctx, scope, keys)
}

// fail makes every step of the store fail, before it is applied or after.
func (s *patched) fail(after bool) {
	s.set(func(p *patched) {
		p.reserve = func(ctx context.Context, params seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
			if after {
				if _, err := s.Store.Reserve(ctx, params, asks); err != nil {
					return nil, err
				}
			}
			return nil, errLost
		}
		p.settle = func(ctx context.Context, params seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
			if after {
				if _, err := s.Store.Settle(ctx, params, changes); err != nil {
					return nil, err
				}
			}
			return nil, errLost
		}
		p.look = func(context.Context, string, []string) ([]seqgen.State, error) { return nil, errLost }
	})
}

func (s *patched) mend() {
	s.set(func(p *patched) { p.reserve, p.settle, p.look = nil, nil, nil })
}

var (
	ctx   = context.Background()
	block = &seqgen.Options{Mode: seqgen.Block}
)

func blocksOf(n int) *seqgen.Options {
	return &seqgen.Options{Mode: seqgen.Block, Block: n, MaxBlock: n}
}

const (
	certain  = seqgen.Certain
	orphaned = seqgen.Orphaned
)
