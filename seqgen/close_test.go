package seqgen_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// A key that the store gave no answer for is not closed: it hands out numbers as
// soon as the store answers again, and what it had left is not lost.
func TestCloseWithoutAnAnswerLeavesTheKeyOpen(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for name, closing := range map[string]func(*seqgen.Generator) error{
			"idle": func(g *seqgen.Generator) error { _, err := g.CloseIdle(ctx, 0); return err },
			"handle": func(g *seqgen.Generator) error {
				s, err := g.Key("key")
				if err != nil {
					return err
				}
				return s.Close(ctx)
			},
		} {
			t.Run(fmt.Sprintf("%s/%t", name, applied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := seqgen.NewMemory()
					store := &patched{Store: memory}
					g := newGenerator(t, store, blocksOf(10))
					s, _ := g.Key("key")
					wantNext(t, g, "key", 1, 1)
					synctest.Wait()
					store.fail(applied)
					wantErr(t, closing(g), seqgen.ErrUnavailable)
					wantNextErr(t, g, "key", seqgen.ErrUnavailable)
					store.mend()
					wantNext(t, g, "key", 1, 2)
					if p, err := s.Next(ctx); err != nil || p.Number != 3 {
						t.Errorf("the handle returned %v, %v", p, err)
					}
					if err := closing(g); err != nil {
						t.Fatal(err)
					}
					_, err := s.Next(ctx)
					wantErr(t, err, seqgen.ErrClosed)
					if err := g.Open(ctx, "key"); err != nil {
						t.Fatal(err)
					}
					wantNext(t, g, "key", 1, 4)
					shut(t, g)
					wantVoids(t, memory, "key", 1)
				})
			})
		}
	}
}

// After a Close of the generator that had no answer, its keys stay closed.
func TestClosedGeneratorWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		store := &patched{Store: memory}
		g := newGenerator(t, store, blocksOf(10))
		s, _ := g.Key("key")
		wantNext(t, g, "key", 1, 1)
		store.fail(false)
		wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
		store.mend()
		_, err := s.Next(ctx)
		wantErr(t, err, seqgen.ErrClosed)
		shut(t, g)
		wantVoids(t, memory, "key", 1)
		wantNext(t, newGenerator(t, memory, blocksOf(1)), "key", 1, 2)
	})
}

// Who needs a key while it is being closed waits, and then takes it anew.
func TestCallsDuringAClosing(t *testing.T) {
	calls := map[string]func(*seqgen.Generator) error{
		"next": func(g *seqgen.Generator) error { _, err := g.Next(ctx, "key"); return err },
		"open": func(g *seqgen.Generator) error { return g.Open(ctx, "key") },
		"bump": func(g *seqgen.Generator) error { _, err := g.Bump(ctx, "key"); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := seqgen.NewMemory()
				store := &patched{Store: memory}
				g := newGenerator(t, store, blocksOf(10))
				wantNext(t, g, "key", 1, 1)
				synctest.Wait()
				store.set(func(p *patched) {
					p.settle = func(ctx context.Context, params seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
						time.Sleep(time.Second)
						return memory.Settle(ctx, params, changes)
					}
				})
				var wg sync.WaitGroup
				wg.Go(func() {
					if n, err := g.CloseIdle(ctx, 0); n != 1 || err != nil {
						t.Errorf("CloseIdle returned %d, %v", n, err)
					}
				})
				synctest.Wait()
				if err := call(g); err != nil {
					t.Errorf("during a closing: %v", err)
				}
				wg.Wait()
				impatient, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				wg.Go(func() { _ = g.Close(ctx) })
				synctest.Wait()
				if _, err := g.Next(impatient, "key"); !errors.Is(err, seqgen.ErrClosed) {
					t.Errorf("while the generator is closed Next returned %v", err)
				}
				wg.Wait()
				wantVoids(t, memory, "key", 1)
			})
		})
	}
}

// Closings at the same time do not wait for each other for ever.
func TestClosingsAtTheSameTime(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			memory := seqgen.NewMemory()
			g := newGenerator(t, memory, blocksOf(10))
			const keys = 30
			for n := range keys {
				wantNext(t, g, fmt.Sprint(n), 1, 1)
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := g.CloseIdle(ctx, 0); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if err := g.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			for n := range keys {
				wantVoids(t, memory, fmt.Sprint(n), 1)
			}
		})
	}
}

// Close waits for the reservation of mode Single that is under way, so that a number
// whose caller has given up is recorded. Callers behind it get none.
func TestCloseWithAReservationUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		slow := &patched{Store: memory}
		slow.reserve = func(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
			defer time.Sleep(2 * time.Second) // it is applied, and the answer takes a while
			return memory.Reserve(ctx, p, asks)
		}
		g := newGenerator(t, slow, nil)
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if p, err := g.Next(impatient, "key"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Next returned %v, %v", p, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if p, err := g.Next(ctx, "key"); !errors.Is(err, seqgen.ErrClosed) { // behind it
				t.Errorf("Next returned %v, %v", p, err)
			}
		})
		synctest.Wait()
		shut(t, g)
		wg.Wait()
		wantVoids(t, memory, "key", 1, span{1, 1, certain})
		if s, _ := memory.Look(ctx, "default", []string{"key"}); s[0].Last != 1 {
			t.Errorf("after Close the store is at %+v", s[0])
		}
	})
}

// A reservation that takes longer than SettleTimeout is reported, and the next Close
// waits for it.
func TestCloseThatWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		g := newGenerator(t, slow{memory, 3 * time.Second}, &seqgen.Options{SettleTimeout: 2 * time.Second})
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.Next(impatient, "key") })
		synctest.Wait()
		wantErr(t, g.Close(ctx), seqgen.ErrUnavailable)
		shut(t, g)
		wg.Wait()
		wantVoids(t, memory, "key", 1, span{1, 1, certain})
	})
}
