package seqgen_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// A generator that outlives a store's going back notices, hands nothing out, and
// goes on in a new epoch.
func TestRollbackToAnOlderCopy(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			memory := seqgen.NewMemory()
			store := &patched{Store: memory}
			g := newGenerator(t, store, &seqgen.Options{Mode: mode, Block: 5, MaxBlock: 5})
			wantNext(t, g, "key", 1, 1)
			settled(t, g)
			older := memory.Clone()
			var last uint64
			for range 20 {
				last = next(t, g, "key").Number
			}
			settled(t, g)
			store.set(func(p *patched) { p.Store = older })
			var err error
			for err == nil {
				var p seqgen.Position
				if p, err = g.Next(ctx, "key"); err == nil {
					if p.Number != last+1 {
						t.Fatalf("after a rollback Next returned %v after %d", p, last)
					}
					last++
				}
			}
			var back *seqgen.RolledBackError
			if !errors.Is(err, seqgen.ErrRolledBack) || !errors.As(err, &back) || back.Seen.Number < last || back.Stored.Number >= last {
				t.Fatalf("the error is %v", err)
			}
			wantNextErr(t, g, "key", seqgen.ErrRolledBack)
			if mode == seqgen.Block {
				wantErr(t, g.Open(ctx, "key"), seqgen.ErrRolledBack)
			}
			if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
				t.Fatalf("Bump returned %d, %v", epoch, err)
			}
			wantNext(t, g, "key", 2, 1)
			if g.Stats().RolledBack == 0 {
				t.Error("no rollback was counted")
			}
			shut(t, g)
		})
	}
}

// A store that lost a bump is noticed, and the next epoch is above the lost one.
func TestRollbackBehindABump(t *testing.T) {
	memory := seqgen.NewMemory()
	store := &patched{Store: memory}
	g := newGenerator(t, store, nil)
	wantNext(t, g, "key", 1, 1)
	older := memory.Clone()
	for epoch := uint64(2); epoch <= 5; epoch++ {
		if got, err := g.Bump(ctx, "key"); err != nil || got != epoch {
			t.Fatalf("Bump returned %d, %v", got, err)
		}
	}
	store.set(func(p *patched) { p.Store = older })
	wantNextErr(t, g, "key", seqgen.ErrRolledBack)
	if got, err := g.Bump(ctx, "key"); err != nil || got != 6 {
		t.Fatalf("Bump returned %d, %v", got, err)
	}
}

func TestObserve(t *testing.T) {
	memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
	g := newGenerator(t, memory, &seqgen.Options{Witness: witness})
	if err := g.Observe(ctx, "key", seqgen.Position{Epoch: 3, Number: 7}); err != nil {
		t.Fatal(err)
	}
	wantNextErr(t, g, "key", seqgen.ErrRolledBack)
	_, err := g.With(memory).NextTx(ctx, "key")
	wantErr(t, err, seqgen.ErrRolledBack)
	other := newGenerator(t, memory, &seqgen.Options{Witness: witness})
	wantNextErr(t, other, "key", seqgen.ErrRolledBack)
	if epoch, err := other.Bump(ctx, "key"); err != nil || epoch != 4 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	wantNext(t, other, "key", 4, 1)
}

// With a witness, a store that went back while no generator was there is noticed
// at the start.
func TestWitness(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
			opts := &seqgen.Options{Mode: mode, Block: 5, MaxBlock: 5, Witness: witness}
			g := newGenerator(t, memory, opts)
			wantNext(t, g, "key", 1, 1)
			shut(t, g)
			older := memory.Clone()
			g = newGenerator(t, memory, opts)
			wantNext(t, g, "key", 1, 2)
			shut(t, g)

			g = newGenerator(t, older, opts)
			wantNextErr(t, g, "key", seqgen.ErrRolledBack)
			if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
				t.Fatalf("Bump returned %d, %v", epoch, err)
			}
			wantNext(t, g, "key", 2, 1)
			shut(t, g)
			empty := newGenerator(t, seqgen.NewMemory(), opts)
			wantNextErr(t, empty, "key", seqgen.ErrRolledBack)
			shut(t, empty)
			without := newGenerator(t, seqgen.NewMemory(), &seqgen.Options{Mode: mode})
			wantNext(t, without, "key", 1, 1) // as the doc says: nobody can notice
			shut(t, without)
		})
	}
}

// What is returned is taken back from the witness, too: no false alarm, whatever
// part of a closing the process lived to see.
func TestWitnessAndReturns(t *testing.T) {
	memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
	opts := blocksOf(10)
	opts.Witness = witness
	opts.SettleTimeout = 20 * time.Millisecond
	for n := uint64(1); n <= 5; n++ {
		g := newGenerator(t, memory, opts)
		wantNext(t, g, "key", 1, n)
		shut(t, g)
	}
	// A witness that does not answer lets nothing be returned.
	down := &patched{Store: witness}
	half := *opts
	half.Witness = down
	g := newGenerator(t, memory, &half)
	wantNext(t, g, "key", 1, 6)
	settled(t, g)
	down.fail(true)
	wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
	g = newGenerator(t, memory, opts)
	p := next(t, g, "key")
	if p.Number <= 6 {
		t.Errorf("Next returned %v", p)
	}
	shut(t, g)
	// A store that does not answer leaves a witness that knows less.
	lost := &patched{Store: memory}
	g = newGenerator(t, lost, opts)
	wantNext(t, g, "key", 1, p.Number+1)
	settled(t, g)
	lost.fail(false)
	wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
	g = newGenerator(t, memory, opts)
	next(t, g, "key")
	shut(t, g)
}

// A witness that does not answer stops everything, and what was reserved meanwhile
// becomes void, or comes later.
func TestWitnessThatIsDown(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			memory := seqgen.NewMemory()
			witness := &patched{Store: seqgen.NewMemory()}
			g := newGenerator(t, memory, &seqgen.Options{Mode: mode, Block: 1, MaxBlock: 1, Witness: witness})
			witness.fail(false)
			wantNextErr(t, g, "key", seqgen.ErrUnavailable)
			if s, _ := g.Look(ctx, "key"); s.Epoch != 0 {
				t.Errorf("a key was used that the witness was not asked of: %+v", s)
			}
			witness.mend()
			wantNext(t, g, "key", 1, 1)
			witness.fail(false)
			wantNextErr(t, g, "key", seqgen.ErrUnavailable)
			witness.mend()
			wantNext(t, g, "key", 1, 2)    // nothing was reserved meanwhile
			witness.set(func(p *patched) { // it is down after the look
				p.settle = func(context.Context, seqgen.Params, []seqgen.Change) ([]seqgen.Outcome, error) { return nil, errLost }
			})
			wantNextErr(t, g, "key", seqgen.ErrUnavailable)
			witness.mend()
			p := next(t, g, "key")
			shut(t, g)
			if mode == seqgen.Single {
				wantVoids(t, memory, "key", 1, span{3, 3, certain})
				if p.Number != 4 {
					t.Errorf("Next returned %v", p)
				}
				return
			}
			wantVoids(t, memory, "key", 1)
			if p.Number != 3 {
				t.Errorf("Next returned %v", p)
			}
		})
	}
}

// The store's clock is set forward and back by an hour: numbers and owners do not
// care.
func TestClockSetForwardAndBack(t *testing.T) {
	memory := seqgen.NewMemory()
	now := time.Now()
	used := map[seqgen.Position]bool{}
	take := func(g *seqgen.Generator, key string) uint64 {
		t.Helper()
		p := next(t, g, key)
		if key == "block" && used[p] {
			t.Fatalf("%v came twice", p)
		}
		used[p] = true
		return p.Number
	}
	singles := newGenerator(t, memory, nil)
	old := newGenerator(t, memory, blocksOf(2))
	take(old, "block")
	n := uint64(0)
	for _, d := range []time.Duration{time.Hour, -time.Hour, -2 * time.Hour, 3 * time.Hour, -60 * 365 * 24 * time.Hour, 0} {
		memory.SetClock(func() time.Time { return now.Add(d) })
		g := newGenerator(t, memory, blocksOf(2))
		first := take(g, "block")
		memory.SetClock(func() time.Time { return now.Add(-d) })
		if second := take(g, "block"); second != first+1 {
			t.Fatalf("with the clock set from %v to %v, %d came after %d", d, -d, second, first)
		}
		if third := take(g, "block"); third != first+2 { // a reservation by the owner
			t.Fatalf("with the clock set from %v to %v, %d came after %d", d, -d, third, first+1)
		}
		for { // the old owner is refused, whatever the clock says
			if p, err := old.Next(ctx, "block"); err != nil {
				wantErr(t, err, seqgen.ErrStale)
				break
			} else if used[p] {
				t.Fatalf("%v came twice", p)
			} else {
				used[p] = true
			}
		}
		shut(t, old)
		old = g
		for range 2 {
			n++
			wantNext(t, singles, "single", 1, n)
		}
	}
	shut(t, old)
}

func settle(t *testing.T, s seqgen.Store, c seqgen.Change) {
	t.Helper()
	out, err := s.Settle(ctx, seqgen.Params{Scope: "default", Retention: time.Hour}, []seqgen.Change{c})
	if err != nil || out[0].Err != nil {
		t.Fatalf("%v: %v, %v", c.Kind, out, err)
	}
}

func TestExhaustion(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			memory := seqgen.NewMemory()
			settle(t, memory, seqgen.Change{Kind: seqgen.KindRaise, Key: "key", Epoch: 1, Hi: seqgen.MaxNumber - 10})
			g := newGenerator(t, memory, &seqgen.Options{Mode: mode, Block: 7, MaxBlock: 7})
			for n := uint64(seqgen.MaxNumber - 9); n <= seqgen.MaxNumber; n++ {
				wantNext(t, g, "key", 1, n)
			}
			for range 3 {
				wantNextErr(t, g, "key", seqgen.ErrExhausted)
			}
			if g.Stats().Exhausted == 0 {
				t.Error("no exhaustion was counted")
			}
			if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
				t.Fatalf("Bump returned %d, %v", epoch, err)
			}
			wantNext(t, g, "key", 2, 1)
			shut(t, g)
		})
	}
}

func TestNumbersAround2To53(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		memory := seqgen.NewMemory()
		settle(t, memory, seqgen.Change{Kind: seqgen.KindRaise, Key: "key", Epoch: 1 << 53, Hi: 1<<53 - 5})
		for n := uint64(1<<53 - 4); n < 1<<53+20; {
			g := newGenerator(t, memory, &seqgen.Options{Mode: mode, Witness: seqgen.NewMemory()})
			for range 3 {
				wantNext(t, g, "key", 1<<53, n)
				n++
			}
			shut(t, g)
		}
	}
}

// What is left of a block when a rollback is noticed is not handed out: the store
// may have given it to others since.
func TestRollbackEndsTheBlock(t *testing.T) {
	store := &patched{Store: seqgen.NewMemory()}
	opts := blocksOf(10)
	lost := make(chan error, 1)
	opts.Hooks = &seqgen.Hooks{Lost: func(_ string, err error) { lost <- err }}
	g := newGenerator(t, store, opts)
	wantNext(t, g, "key", 1, 1)
	store.set(func(p *patched) { p.Store = seqgen.NewMemory() })
	for n := uint64(2); n <= 6; n++ { // the sixth begins a refill
		wantNext(t, g, "key", 1, n)
	}
	wantErr(t, <-lost, seqgen.ErrRolledBack)
	if n := g.Stats().RolledBack; n != 1 {
		t.Errorf("%d rollbacks were counted", n)
	}
	wantNextErr(t, g, "key", seqgen.ErrRolledBack)
	shut(t, g)
}

// Taking a key anew does not make a generator forget what it was told of.
func TestObservedIsKeptThroughOpen(t *testing.T) {
	memory := seqgen.NewMemory()
	store := &patched{Store: memory}
	g, other := newGenerator(t, store, blocksOf(10)), newGenerator(t, store, blocksOf(10))
	wantNext(t, g, "key", 1, 1)
	older := memory.Clone()
	wantNext(t, other, "key", 1, 11)
	if err := g.Observe(ctx, "key", seqgen.Position{Epoch: 1, Number: 11}); err != nil {
		t.Fatal(err)
	}
	store.set(func(p *patched) { p.Store = older })
	for range 3 {
		wantErr(t, g.Open(ctx, "key"), seqgen.ErrRolledBack)
		wantNextErr(t, g, "key", seqgen.ErrRolledBack)
	}
	if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	wantNext(t, g, "key", 2, 1)
	shut(t, g)
}

// A bump in a transaction opens an epoch above what the generator was told of, also
// when it has no room for the key.
func TestBumpOnAViewIsAboveWhatWasSeen(t *testing.T) {
	memory := seqgen.NewMemory()
	g := newGenerator(t, memory, nil)
	if err := g.Observe(ctx, "key", seqgen.Position{Epoch: 7, Number: 3}); err != nil {
		t.Fatal(err)
	}
	view := g.With(memory)
	_, err := view.NextTx(ctx, "key")
	wantErr(t, err, seqgen.ErrRolledBack)
	if epoch, err := view.Bump(ctx, "key"); err != nil || epoch != 8 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	if p, err := view.NextTx(ctx, "key"); err != nil || p != (seqgen.Position{Epoch: 8, Number: 1}) {
		t.Fatalf("NextTx returned %v, %v", p, err)
	}

	witness := seqgen.NewMemory()
	settle(t, witness, seqgen.Change{Kind: seqgen.KindRaise, Key: "other", Epoch: 5, Hi: 1})
	full := newGenerator(t, memory, &seqgen.Options{Mode: seqgen.Block, MaxKeys: 1, Witness: witness})
	wantNext(t, full, "first", 1, 1)
	_, err = full.With(memory).NextTx(ctx, "other")
	wantErr(t, err, seqgen.ErrRolledBack)
	if epoch, err := full.With(memory).Bump(ctx, "other"); err != nil || epoch != 6 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	shut(t, full)
}
