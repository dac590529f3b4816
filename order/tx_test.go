package order_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// A ledger plays a database beside the store: a transaction buffers its effects and
// its settlement, and a commit applies both.
type ledger struct {
	store order.Store

	mu      sync.Mutex
	effects []uint64
	commit  func(n int) (apply bool, err error) // what becomes of the n-th commit
	commits int
}

// A bound store buffers a settlement until the commit.
type bound struct {
	order.Store
	p       order.Params
	pending []order.Settlement
}

func (s *bound) Settle(_ context.Context, p order.Params, t []order.Settlement) ([]error, error) {
	s.p, s.pending = p, slices.Clone(t)
	return nil, nil
}

// inTx is a TxHandler as a backend would make it.
func (l *ledger) inTx(fn func(ctx context.Context, m order.Message) error) order.TxHandler {
	return func(ctx context.Context, run *order.TxRun) (int, error) {
		var effects []uint64
		var failure error
		for i, m := range run.Messages {
			if failure = run.Do(i, func(ctx context.Context) error { return fn(ctx, m) }); failure != nil {
				break
			}
			effects = append(effects, m.Position.Number)
		}
		n := len(effects)
		if n == 0 {
			return 0, failure
		}
		tx := &bound{Store: l.store}
		if err := run.Settle(ctx, tx, n); err != nil {
			return 0, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.commits++
		apply, err := true, error(nil)
		if l.commit != nil {
			apply, err = l.commit(l.commits)
		}
		if apply {
			errs, serr := l.store.Settle(context.Background(), tx.p, tx.pending)
			for _, e := range errs {
				serr = errors.Join(serr, e)
			}
			if serr != nil {
				return 0, serr
			}
			l.effects = append(l.effects, effects...)
		}
		if err != nil {
			return 0, err
		}
		return n, failure
	}
}

func (l *ledger) want(t *testing.T, want ...uint64) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.effects, want) {
		t.Errorf("effects %v, want %v", l.effects, want)
	}
}

func startTx(t *testing.T, b *order.Buffer, h order.TxHandler, opts *order.RunOptions) (stop func()) {
	return startRun(t, func(ctx context.Context) error { return b.RunTx(ctx, h, opts) })
}

func TestTxDelivers(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		l := &ledger{store: s}
		push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4, 5)...)
		stop := startTx(t, b, l.inTx(func(ctx context.Context, m order.Message) error {
			if _, ok := order.TokenFrom(ctx); !ok {
				t.Error("no token")
			}
			return nil
		}), &order.RunOptions{PerTx: 2})
		l.want(t, 1, 2, 3, 4, 5)
		push(t, b, order.Buffered, msgs("a", 6)...)
		l.want(t, 1, 2, 3, 4, 5, 6)
		stop()
		wantCursor(t, b, "a", 7, 6)
		if l.commits != 4 {
			t.Errorf("%d commits, want 3 and 1", l.commits)
		}
		if n := b.Stats().Delivered; n != 6 {
			t.Errorf("%d are counted as delivered", n)
		}
		if account(t, b, "a").Claimed {
			t.Error("the key is still claimed")
		}
	})
}

// What precedes a failure commits; the failed message is tried again alone.
func TestTxFailure(t *testing.T) {
	for name, bad := range map[string]func() error{
		"error":  func() error { return errBroken },
		"panic":  func() error { panic("boom") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				b := newBuffer(t, s, nil)
				l := &ledger{store: s}
				var tried record
				push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4)...)
				stop := startTx(t, b, l.inTx(func(_ context.Context, m order.Message) error {
					if tried.add(m); m.Position.Number == 3 {
						return bad()
					}
					return nil
				}), &order.RunOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Second)})
				later(time.Minute)
				l.want(t, 1, 2)
				list, err := b.Parked(t.Context(), order.Query{})
				if err != nil || len(list) != 1 || list[0].Position.Number != 3 {
					t.Fatalf("parked %+v, %v", list, err)
				}
				wantErr(t, b.Drop(t.Context(), "a", list[0].Position, "ops", ""), nil)
				later(time.Minute)
				l.want(t, 1, 2, 4)
				stop()
				wantCursor(t, b, "a", 5, 3)
			})
		})
	}
}

// A commit whose answer is lost: the store is asked, and no effect happens twice.
func TestTxCommitInDoubt(t *testing.T) {
	for _, applied := range []bool{true, false} {
		for _, perTx := range []int{2, 64} {
			t.Run(fmt.Sprintf("applied=%v,perTx=%d", applied, perTx), func(t *testing.T) {
				bubble(t, func(t *testing.T, s order.Store) {
					b := newBuffer(t, s, nil)
					l := &ledger{store: s, commit: func(n int) (bool, error) {
						if n == 1 {
							return applied, errBroken
						}
						return true, nil
					}}
					push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4)...)
					stop := startTx(t, b, l.inTx(func(context.Context, order.Message) error { return nil }),
						&order.RunOptions{PerTx: perTx, Backoff: retry.Constant(time.Second)})
					later(10 * time.Second)
					l.want(t, 1, 2, 3, 4)
					stop()
					wantCursor(t, b, "a", 5, 4)
					if n := b.Stats(); (n.Failed > 0) == applied || n.Delivered != 4 {
						t.Errorf("stats %+v", n)
					}
				})
			})
		}
	}
}

// When the store cannot say either, the key waits for its lease.
func TestTxCommitInDoubtAndStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		s.before = fail("find")
		b := newBuffer(t, s, nil)
		l := &ledger{store: s, commit: func(n int) (bool, error) { return n > 1, map[bool]error{true: nil, false: errBroken}[n > 1] }}
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		stop := startTx(t, b, l.inTx(func(context.Context, order.Message) error { return nil }), nil)
		later(20 * time.Second)
		l.want(t)
		later(20 * time.Second)
		l.want(t, 1, 2)
		stop()
	})
}

// The owner of a key that was lost rolls back.
func TestTxStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		b := newBuffer(t, newFaulty(mem), nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		var settled error
		stop := startTx(t, b, func(ctx context.Context, run *order.TxRun) (int, error) {
			if err := b.Forget(ctx, "a"); err != nil { // the worst that can happen
				t.Error(err)
			}
			settled = run.Settle(ctx, mem, 1)
			return 0, settled
		}, nil)
		later(time.Minute)
		stop()
		wantErr(t, settled, order.ErrStale)
		if n := b.Stats(); n.Delivered != 0 || n.Stale != 1 {
			t.Errorf("stats %+v", n)
		}
	})
}

// A handler that breaks the rules is a failure, and not a delivery.
func TestTxHandlerThatLies(t *testing.T) {
	for name, h := range map[string]order.TxHandler{
		"nothing": func(context.Context, *order.TxRun) (int, error) { return 0, nil },
		"lies":    func(context.Context, *order.TxRun) (int, error) { return 2, nil },
		"panics":  func(context.Context, *order.TxRun) (int, error) { panic("boom") },
		"settles too much": func(ctx context.Context, run *order.TxRun) (int, error) {
			err := run.Settle(ctx, order.NewMemory(), 3)
			return 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				b := newBuffer(t, s, nil)
				push(t, b, order.Buffered, msgs("a", 1, 2)...)
				stop := startTx(t, b, h, &order.RunOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Second)})
				later(time.Minute)
				stop()
				wantCursor(t, b, "a", 1, 0)
				if a := account(t, b, "a"); !a.Parked || a.Claimed {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// The age of a message is right also when it was behind others in a transaction
// that was committed in part.
func TestTxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		b := newBuffer(t, mem, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4)...)
		var ages []time.Duration
		stop := startRun(t, func(ctx context.Context) error {
			return b.RunTx(ctx, func(ctx context.Context, run *order.TxRun) (int, error) {
				ages = append(ages, run.Messages[0].Age)
				time.Sleep(time.Second)
				if err := run.Settle(ctx, mem, 1); err != nil {
					return 0, err
				}
				return 1, nil
			}, nil)
		})
		later(10 * time.Second)
		stop()
		if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(ages, want) {
			t.Errorf("ages %v, want %v", ages, want)
		}
	})
}

// A transaction whose epoch was abandoned meanwhile is rolled back, and the key goes
// on at once.
func TestTxOfAnAbandonedEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		b := newBuffer(t, mem, &order.Options{OldEpoch: order.Abandon})
		var got []order.Position
		stop := startRun(t, func(ctx context.Context) error {
			return b.RunTx(ctx, func(ctx context.Context, run *order.TxRun) (int, error) {
				m := run.Messages[0]
				if m.Position.Epoch == 1 {
					time.Sleep(time.Second)
				}
				if err := run.Settle(ctx, mem, 1); err != nil {
					wantErr(t, err, order.ErrStale)
					return 0, err
				}
				got = append(got, m.Position)
				return 1, nil
			}, nil)
		})
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		later(500 * time.Millisecond)
		second := msg("a", 1)
		second.Position.Epoch = 2
		push(t, b, order.Buffered, second)
		later(2 * time.Second) // less than the lease
		stop()
		if want := []order.Position{second.Position}; !slices.Equal(got, want) || b.Stats().Delivered != 1 {
			t.Errorf("committed %v, want %v; %d counted", got, want, b.Stats().Delivered)
		}
	})
}
