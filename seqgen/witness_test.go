package seqgen_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl/seqgen"
)

// Two processes share a witness. One goes on alone, then the store goes back to
// where the other one had left it: that one notices, though it knew the key long
// before.
func TestSharedWitness(t *testing.T) {
	next := func(g *seqgen.Generator, _ seqgen.Store) (seqgen.Position, error) { return g.Next(ctx, "key") }
	inTx := func(g *seqgen.Generator, s seqgen.Store) (seqgen.Position, error) {
		p, err := g.With(s).NextTx(ctx, "key")
		if err == nil {
			err = g.Observe(ctx, "key", p)
		}
		return p, err
	}
	for mode, draw := range map[seqgen.Mode]func(*seqgen.Generator, seqgen.Store) (seqgen.Position, error){
		seqgen.Single: next, seqgen.Block: next, seqgen.Gapless: inTx,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
			store := &patched{Store: memory}
			opts := &seqgen.Options{Mode: mode, Block: 10, MaxBlock: 10, Witness: witness}
			a, b := newGenerator(t, store, opts), newGenerator(t, store, opts)
			used := map[seqgen.Position]bool{}
			must := func(g *seqgen.Generator) {
				t.Helper()
				p, err := draw(g, store)
				if err != nil || used[p] {
					t.Fatalf("%v, %v", p, err)
				}
				used[p] = true
			}
			for range 3 {
				must(a)
			}
			settled(t, a)
			older := memory.Clone()
			for range 15 {
				must(b)
			}
			settled(t, b)
			store.set(func(p *patched) { p.Store = older })
			for range 40 { // what is left of a block may be handed out
				p, err := draw(a, store)
				if err == nil && !used[p] {
					used[p] = true
					continue
				}
				var back *seqgen.RolledBackError
				if !errors.As(err, &back) || back.Seen.Number < 15 {
					t.Fatalf("after a rollback: %v, %v", p, err)
				}
				return
			}
			t.Error("a store that went back was not noticed")
		})
	}
}

// A bump is above the epochs of another process that the store has lost.
func TestSharedWitnessAndBump(t *testing.T) {
	memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
	store := &patched{Store: memory}
	opts := &seqgen.Options{Witness: witness}
	a, b := newGenerator(t, store, opts), newGenerator(t, store, opts)
	wantNext(t, a, "key", 1, 1)
	wantNext(t, a, "other", 1, 1)
	older := memory.Clone()
	for _, key := range []string{"key", "other"} {
		for epoch := uint64(2); epoch < 5; epoch++ {
			if got, err := b.Bump(ctx, key); err != nil || got != epoch {
				t.Fatalf("Bump returned %d, %v", got, err)
			}
			wantNext(t, b, key, epoch, 1)
		}
	}
	store.set(func(p *patched) { p.Store = older })
	if epoch, err := a.Bump(ctx, "key"); err != nil || epoch != 5 {
		t.Errorf("Bump returned %d, %v", epoch, err)
	}
	if epoch, err := a.With(store).Bump(ctx, "other"); err != nil || epoch != 5 {
		t.Errorf("Bump on a view returned %d, %v", epoch, err)
	}
}

// An owner that returns its rest between another one's look at the witness and its
// reservation is not taken for a store that has gone back.
func TestReturnBetweenTheLookAndTheReservation(t *testing.T) {
	memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
	opts := blocksOf(10)
	opts.Witness = witness
	owner := newGenerator(t, memory, opts)
	wantNext(t, owner, "key", 1, 1)
	var once sync.Once
	late := &patched{Store: memory}
	late.reserve = func(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
		once.Do(func() {
			if err := owner.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return memory.Reserve(ctx, p, asks)
	}
	g := newGenerator(t, late, opts)
	wantNext(t, g, "key", 1, 2)
	if n := g.Stats().RolledBack; n != 0 {
		t.Errorf("%d rollbacks were counted", n)
	}
	shut(t, g)
	wantVoids(t, memory, "key", 1)
}

// The witness is looked at once for all keys of a call, and a key that it has no
// answer for does not keep the others from their numbers.
func TestLooksAtTheWitnessAreShared(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			var looks, reserves, bad atomic.Int64
			witness := &patched{Store: seqgen.NewMemory()}
			witness.look = func(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
				looks.Add(1)
				states, err := witness.Store.Look(ctx, scope, keys)
				for i := range states {
					if states[i].Key == "bad" {
						bad.Add(1)
						states[i].Err = errLost
					}
				}
				return states, err
			}
			release := make(chan struct{})
			store := &patched{Store: seqgen.NewMemory()}
			store.reserve = func(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
				if reserves.Add(1) == 1 {
					<-release
				}
				return store.Store.Reserve(ctx, p, asks)
			}
			g := newGenerator(t, store, &seqgen.Options{Mode: mode, Witness: witness})
			var wg sync.WaitGroup
			draw := func(key string) {
				wg.Go(func() {
					p, err := g.Next(ctx, key)
					if key == "bad" {
						if !errors.Is(err, seqgen.ErrUnavailable) || !errors.Is(err, errLost) {
							t.Errorf("Next returned %v, %v", p, err)
						}
					} else if err != nil || p.Number != 1 {
						t.Errorf("Next returned %v, %v", p, err)
					}
				})
			}
			draw("first")
			waitFor(t, func() bool { return reserves.Load() == 1 })
			for n := range 20 {
				draw(fmt.Sprint("key-", n))
			}
			draw("bad")
			waitFor(t, func() bool { return g.Stats().Waiting >= 21 })
			if mode == seqgen.Block { // which counts callers of Next twice
				waitFor(t, func() bool { return g.Stats().Waiting >= 43 })
			}
			close(release)
			wg.Wait()
			if looks, reserves := looks.Load(), reserves.Load(); looks != 3 || reserves != 2 || bad.Load() != 2 {
				t.Errorf("%d looks for %d reservations; want 3, one of them again for the bad key, and 2", looks, reserves)
			}
			if s, _ := g.Look(ctx, "bad"); s.Epoch != 0 {
				t.Errorf("a key was used that the witness has no answer for: %+v", s)
			}
			shut(t, g)
		})
	}
}

// A block that was granted while the witness did not answer is not handed out when
// another owner has got the same numbers meanwhile, from a store that went back.
func TestBlockThatWaitedForTheWitness(t *testing.T) {
	witness := seqgen.NewMemory()
	store, deaf := &patched{Store: seqgen.NewMemory()}, &patched{Store: witness}
	opts, through := blocksOf(10), blocksOf(10)
	opts.Witness, through.Witness = witness, deaf
	deaf.settle = func(context.Context, seqgen.Params, []seqgen.Change) ([]seqgen.Outcome, error) { return nil, errLost }
	g, other := newGenerator(t, store, through), newGenerator(t, store, opts)
	wantNextErr(t, g, "key", seqgen.ErrUnavailable)
	deaf.mend()
	store.set(func(p *patched) { p.Store = seqgen.NewMemory() })
	wantNext(t, other, "key", 1, 1)
	wantNextErr(t, g, "key", seqgen.ErrStale)
	if err := g.Open(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	wantNext(t, g, "key", 1, 11)
	shut(t, other)
	shut(t, g)
}
