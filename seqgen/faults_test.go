package seqgen_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

// Every reply is lost once: no number comes twice, and there is no hole.
func TestLostReplies(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			store := seqgen.NewMemory()
			for run := range uint64(3) {
				opts := &seqgen.Options{Mode: mode, Block: 7, MaxBlock: 7}
				opts.Witness = seqgentest.LoseReplies(seqgen.NewMemory())
				g := newGenerator(t, seqgentest.LoseReplies(store), opts)
				for n := uint64(1); n <= 50; n++ {
					wantNext(t, g, "key", run+1, n)
				}
				if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != run+2 {
					t.Fatalf("Bump returned %d, %v", epoch, err)
				}
				shut(t, g)
				wantVoids(t, store, "key", run+1)
			}
		})
	}
}

// The process is killed before or after each of its steps, one after the other.
// Whatever it had handed out never comes again, and what it had not is void or
// comes next, except for the hole that the package comment names.
func TestKillAtEveryStep(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		for _, applied := range []bool{false, true} {
			for at := range 45 {
				t.Run(fmt.Sprintf("%v/%d/%t", mode, at, applied), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { killAt(t, mode, at, applied) })
				})
			}
		}
	}
}

func killAt(t *testing.T, mode seqgen.Mode, at int, applied bool) {
	memory, witness := seqgen.NewMemory(), seqgen.NewMemory()
	var steps atomic.Int64
	dead := func(s seqgen.Store) seqgen.Store {
		return &seqgentest.Faulty{Store: s,
			Before: func(seqgentest.Step) error {
				if n := steps.Add(1); n > int64(at+1) || n == int64(at+1) && !applied {
					return errLost
				}
				return nil
			},
			After: func(seqgentest.Step) error {
				if steps.Load() > int64(at) {
					return errLost
				}
				return nil
			},
		}
	}
	opts := &seqgen.Options{Mode: mode, Block: 4, MaxBlock: 4, SettleTimeout: time.Second}
	opts.Witness = dead(witness)
	g := newGenerator(t, dead(memory), opts)
	used := map[seqgen.Position]bool{}
	epoch := uint64(1)
	for n := range 30 {
		if n == 10 || n == 20 {
			if e, err := g.Bump(ctx, "key"); err == nil {
				epoch = e
			}
		}
		if p, err := g.Next(ctx, "key"); err == nil {
			used[p] = true
			if p.Epoch < epoch {
				t.Errorf("after a bump to epoch %d Next returned %v", epoch, p)
			}
		}
	}
	_ = g.Close(ctx)
	synctest.Wait()

	opts.Witness = witness
	after := newGenerator(t, memory, opts)
	for range 10 {
		p, err := after.Next(ctx, "key")
		if errors.Is(err, seqgen.ErrRolledBack) {
			t.Fatalf("a store that was never restored is said to have gone back: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if used[p] {
			t.Fatalf("%v was handed out twice", p)
		}
		used[p] = true
	}
	shut(t, after)
	unexplained := 0
	state, _ := after.Look(ctx, "key")
	for e := uint64(1); e <= state.Epoch; e++ {
		last := uint64(0)
		for p := range used {
			if p.Epoch == e {
				last = max(last, p.Number)
			}
		}
		void := map[uint64]bool{}
		for _, v := range voidsOf(t, memory, "key", e) {
			for n := v.lo; n <= v.hi; n++ {
				void[n] = true
				if v.kind == certain && used[seqgen.Position{Epoch: e, Number: n}] {
					t.Errorf("%d/%d is certainly void, and was handed out", e, n)
				}
			}
		}
		for n := uint64(1); n <= last; n++ {
			if !used[seqgen.Position{Epoch: e, Number: n}] && !void[n] {
				unexplained++
			}
		}
	}
	if mode == seqgen.Block && unexplained > 0 || unexplained > 1 {
		t.Errorf("%d holes have no void", unexplained)
	}
	time.Sleep(time.Minute) // what was to be recorded later gives nobody a surprise
}

// A reservation whose answer never came becomes a certain void as soon as the store
// answers again.
func TestAnswerThatNeverCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		store := &patched{Store: memory}
		g := newGenerator(t, store, nil)
		wantNext(t, g, "key", 1, 1)
		store.fail(true)
		wantNextErr(t, g, "key", seqgen.ErrUnavailable)
		wantNextErr(t, g, "key", seqgen.ErrUnavailable)
		if n := g.Stats().Unsettled; n != 2 {
			t.Errorf("%d voids wait, want 2", n)
		}
		wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
		store.mend()
		time.Sleep(10 * time.Second)
		wantVoids(t, memory, "key", 1, span{2, 3, certain})
		shut(t, g)
		wantNext(t, newGenerator(t, memory, nil), "key", 1, 4)
	})
}

// What is abandoned is told to the store before so much else is reserved that the
// store forgets the nonce.
func TestAbandonedBeforeItIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		store := &patched{Store: memory}
		g := newGenerator(t, store, nil)
		wantNext(t, g, "key", 1, 1)
		store.fail(false)
		store.set(func(p *patched) { // applied, and not answered
			p.reserve = func(ctx context.Context, params seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
				if _, err := memory.Reserve(ctx, params, asks); err != nil {
					return nil, err
				}
				return nil, errLost
			}
		})
		wantNextErr(t, g, "key", seqgen.ErrUnavailable)
		synctest.Wait() // the first attempt to record it has failed; the clock stands still
		store.mend()
		for n := uint64(3); n < 3+2*seqgen.LogSize; n++ {
			wantNext(t, g, "key", 1, n)
		}
		shut(t, g)
		wantVoids(t, memory, "key", 1, span{2, 2, certain})
	})
}

// In mode Block it is handed out later.
func TestBlockWhoseAnswerNeverCame(t *testing.T) {
	memory := seqgen.NewMemory()
	store := &patched{Store: memory}
	g := newGenerator(t, store, blocksOf(5))
	store.fail(true)
	for range 3 {
		wantNextErr(t, g, "key", seqgen.ErrUnavailable)
	}
	store.mend()
	for n := uint64(1); n <= 20; n++ {
		wantNext(t, g, "key", 1, n)
	}
	settled(t, g)
	store.fail(true)
	for n := uint64(21); n <= 40; n++ {
		p, err := g.Next(ctx, "key")
		if err != nil {
			store.mend()
			p = next(t, g, "key")
		}
		if p.Number != n {
			t.Fatalf("Next returned %v, want 1/%d", p, n)
		}
	}
	store.mend()
	shut(t, g)
	wantVoids(t, memory, "key", 1)
}

// A block's rest that could not be returned is returned by the next Close.
func TestCloseAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory := seqgen.NewMemory()
			store := &patched{Store: memory}
			g := newGenerator(t, store, blocksOf(10))
			for n := range uint64(200) {
				wantNext(t, g, fmt.Sprint(n), 1, 1)
			}
			synctest.Wait()
			store.fail(applied)
			began := time.Now()
			wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("Close took %v", d)
			}
			store.mend()
			shut(t, g)
			again := newGenerator(t, memory, blocksOf(10))
			for n := range uint64(200) {
				wantNext(t, again, fmt.Sprint(n), 1, 2)
			}
			shut(t, again)
		})
	}
}

// Open and Bump that had no answer can be called again.
func TestOpenAndBumpAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory := seqgen.NewMemory()
			store := &patched{Store: memory}
			g := newGenerator(t, store, blocksOf(10))
			wantNext(t, g, "key", 1, 1)
			store.fail(applied)
			wantErr(t, g.Open(ctx, "key"), seqgen.ErrUnavailable)
			wantNextErr(t, g, "key", seqgen.ErrUnavailable)
			store.mend()
			wantNext(t, g, "key", 1, 2)
			store.fail(applied)
			_, err := g.Bump(ctx, "key")
			wantErr(t, err, seqgen.ErrUnavailable)
			store.mend()
			if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
				t.Fatalf("Bump returned %d, %v", epoch, err)
			}
			store.set(func(p *patched) { // the return is answered, the bump is not
				p.settle = func(ctx context.Context, params seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
					outcomes, err := memory.Settle(ctx, params, changes)
					if changes[0].Kind == seqgen.KindBump {
						return nil, errLost
					}
					return outcomes, err
				}
			})
			_, err = g.Bump(ctx, "key")
			wantErr(t, err, seqgen.ErrUnavailable)
			store.mend()
			if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 3 {
				t.Fatalf("Bump returned %d, %v", epoch, err)
			}
			wantNext(t, g, "key", 3, 1)
			shut(t, g)
			wantVoids(t, memory, "key", 1)
		})
	}
}

// The number of a caller that gave up becomes a certain void, and nobody else
// suffers.
func TestCallerThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		g := newGenerator(t, slow{memory, time.Second}, nil)
		impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := g.Next(impatient, "key")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Next returned %v", err)
				}
			})
		}
		wg.Wait()
		p := next(t, g, "key")
		shut(t, g)
		if p.Number > 1 { // those of the three that were sent
			wantVoids(t, memory, "key", 1, span{1, p.Number - 1, certain})
		}
		if s := g.Stats(); p.Number < 2 || s.CertainVoids != p.Number-1 || s.Single != 1 {
			t.Errorf("Next returned %v, the counters are %+v", p, s)
		}
	})
}

func TestCallerThatGaveUpWaitingForABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		g := newGenerator(t, slow{memory, time.Second}, blocksOf(5))
		impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := g.Next(impatient, "key")
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, seqgen.ErrUnavailable) {
			t.Errorf("a caller that gave up was told %v", err)
		}
		wantNext(t, g, "key", 1, 1)
		shut(t, g)
		wantVoids(t, memory, "key", 1)
	})
}

// A store that hangs is given up, and no caller's own deadline is reported to
// another.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &patched{Store: seqgen.NewMemory()}
		store.reserve = func(ctx context.Context, _ seqgen.Params, _ []seqgen.Ask) ([]seqgen.Grant, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for _, opts := range []*seqgen.Options{nil, block} {
			g := newGenerator(t, store, opts)
			began := time.Now()
			wantNextErr(t, g, "key", seqgen.ErrUnavailable)
			if d := time.Since(began); d != 10*time.Second {
				t.Errorf("it took %v", d)
			}
			shut(t, g)
		}
	})
}

// What a store answers is not believed blindly.
func TestAnswersThatAreNone(t *testing.T) {
	answers := map[string][]seqgen.Grant{
		"none":       {},
		"two":        {{Epoch: 1, Lo: 1, Hi: 1}, {Epoch: 1, Lo: 2, Hi: 2}},
		"zero":       {{}},
		"no epoch":   {{Lo: 1, Hi: 1}},
		"backwards":  {{Epoch: 1, Lo: 2, Hi: 1}},
		"too many":   {{Epoch: 1, Lo: 1, Hi: 1 << 40}},
		"above 2^63": {{Epoch: 1, Lo: 1 << 63, Hi: 1 << 63}},
	}
	for name, grants := range answers {
		for _, opts := range []*seqgen.Options{nil, block} {
			store := &patched{Store: seqgen.NewMemory()}
			store.reserve = func(context.Context, seqgen.Params, []seqgen.Ask) ([]seqgen.Grant, error) { return grants, nil }
			g := newGenerator(t, store, opts)
			if _, err := g.Next(ctx, "key"); !errors.Is(err, seqgen.ErrUnavailable) {
				t.Errorf("%s: Next returned %v", name, err)
			}
			shut(t, g)
		}
	}
	store := &patched{Store: seqgen.NewMemory()}
	store.settle = func(context.Context, seqgen.Params, []seqgen.Change) ([]seqgen.Outcome, error) { return nil, nil }
	g := newGenerator(t, store, &seqgen.Options{SettleTimeout: time.Millisecond})
	if _, err := g.Bump(ctx, "key"); !errors.Is(err, seqgen.ErrUnavailable) {
		t.Errorf("Bump returned %v", err)
	}
}
