package order_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

func TestRunDeliversInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		var got record
		stop := start(t, b, got.handle, nil)
		push(t, b, order.Buffered, msgs("a", 3, 2, 5)...)
		got.want(t)
		push(t, b, order.Buffered, msgs("a", 1)...)
		got.want(t, names("a", 1, 3)...)
		push(t, b, order.Buffered, msgs("a", 4)...)
		got.want(t, names("a", 1, 5)...)
		stop()
		wantCursor(t, b, "a", 6, 5)
		m := got.messages()[4]
		if m.Attempt != 1 || m.Late || string(m.Payload) != "a5" {
			t.Errorf("got %+v", m)
		}
		if n := b.Stats().Delivered; n != 5 {
			t.Errorf("%d are counted as delivered", n)
		}
	})
}

// More messages than are taken at once, of several keys: one key at a time goes to
// the end of the line.
func TestRunLetsKeysTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		for _, key := range []string{"a", "b"} {
			for n := range uint64(6) {
				push(t, b, order.Buffered, msg(key, n+1))
			}
		}
		var got record
		stop := start(t, b, got.handle, &order.RunOptions{Concurrency: 1, Batch: 2})
		got.want(t, "a:1", "a:2", "b:1", "b:2", "a:3", "a:4", "b:3", "b:4", "a:5", "a:6", "b:5", "b:6")
		stop()
	})
}

// A message that fails is tried again in its place, and no other key waits.
func TestFailureHoldsUpItsKeyAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		var got record
		fails := 3
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			got.add(m)
			if m.Key == "a" && m.Position.Number == 2 && fails > 0 {
				fails--
				return errBroken
			}
			return nil
		}, &order.RunOptions{Backoff: retry.Constant(time.Minute)})
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		got.want(t, "a:1", "a:2")
		push(t, b, order.Buffered, msgs("b", 1, 2, 3)...)
		got.want(t, "a:1", "a:2", "b:1", "b:2", "b:3")
		later(59 * time.Second)
		got.want(t, "a:1", "a:2", "b:1", "b:2", "b:3")
		later(2 * time.Second)
		got.want(t, "a:1", "a:2", "b:1", "b:2", "b:3", "a:2")
		later(2 * time.Minute)
		got.want(t, "a:1", "a:2", "b:1", "b:2", "b:3", "a:2", "a:2", "a:2", "a:3")
		stop()
		ms := got.messages()
		if m := ms[7]; m.Attempt != 4 || m.Error != errBroken.Error() || m.Age < 3*time.Minute {
			t.Errorf("the fourth attempt was %+v", m)
		}
		if m := ms[8]; m.Attempt != 1 {
			t.Errorf("the message behind it was begun before it was handed over: %+v", m)
		}
		wantCursor(t, b, "a", 4, 3)
	})
}

// Handlers that panic or end their goroutine have failed, and the worker goes on.
func TestHandlerThatDoesNotReturn(t *testing.T) {
	for name, bad := range map[string]func(){
		"panic":       func() { panic("boom") },
		"Goexit":      runtime.Goexit,
		"nil pointer": func() { var p *int; *p = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				b := newBuffer(t, s, nil)
				var got record
				stop := start(t, b, func(ctx context.Context, m order.Message) error {
					if got.add(m); m.Position.Number == 2 && m.Attempt < 3 {
						bad()
					}
					return nil
				}, &order.RunOptions{Concurrency: 1, Backoff: retry.Constant(time.Second)})
				push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
				later(5 * time.Second)
				got.want(t, "a:1", "a:2", "a:2", "a:2", "a:3")
				stop()
				wantCursor(t, b, "a", 4, 3)
				if n := b.Stats(); n.Failed != 2 || n.Retried != 2 {
					t.Errorf("stats %+v", n)
				}
			})
		})
	}
}

func TestPoisonParksItsKey(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		var parked []order.Message
		b := newBuffer(t, s, &order.Options{Hooks: &order.Hooks{Failed: func(_ context.Context, m order.Message, err error, p bool) {
			if p {
				parked = append(parked, m)
			}
		}}})
		var got record
		broken := atomic.Bool{}
		broken.Store(true)
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			got.add(m)
			if m.Position.Number == 2 && broken.Load() {
				return errBroken
			}
			return nil
		}, &order.RunOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Second), Poll: time.Minute})
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		later(time.Hour)
		got.want(t, "a:1", "a:2", "a:2", "a:2")
		if len(parked) != 1 || parked[0].Attempt != 3 {
			t.Errorf("parked %v", parked)
		}
		list, err := b.Parked(t.Context(), order.Query{})
		if err != nil || len(list) != 1 || list[0].Position.Number != 2 || list[0].Error != errBroken.Error() {
			t.Fatalf("parked: %+v, %v", list, err)
		}
		if a := account(t, b, "a"); !a.Parked || a.Claimed {
			t.Errorf("account %+v", a)
		}
		wantErr(t, b.Resume(t.Context(), "a", order.Position{Epoch: 1, Number: 2}, "", ""), order.ErrInvalid)
		wantErr(t, b.Resume(t.Context(), "a", order.Position{Epoch: 1, Number: 9}, "ops", ""), order.ErrNotFound)
		wantErr(t, b.Resume(t.Context(), "a", order.Position{Epoch: 1, Number: 2}, "ops", "it is mended"), nil)
		later(time.Hour)
		got.want(t, "a:1", "a:2", "a:2", "a:2", "a:2", "a:2", "a:2")
		wantErr(t, b.Drop(t.Context(), "a", order.Position{Epoch: 1, Number: 2}, "ops", "nobody needs it"), nil)
		got.want(t, "a:1", "a:2", "a:2", "a:2", "a:2", "a:2", "a:2", "a:3")
		gaps, err := b.Gaps(t.Context(), order.Query{})
		if err != nil || len(gaps) != 1 || gaps[0].Reason != order.ReasonDropped || gaps[0].Actor != "ops" {
			t.Errorf("gaps %+v, %v", gaps, err)
		}
		stop()
		wantCursor(t, b, "a", 4, 2)
	})
}

// The context of a handler ends when its lease is lost, and what it did is not
// recorded: the key belongs to somebody else.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		s := newFaulty(mem)
		var lost []string
		b := newBuffer(t, s, &order.Options{Hooks: &order.Hooks{LeaseLost: func(c order.Claim, _ error) { lost = append(lost, c.Key) }}})
		entered, cause := make(chan uint64, 10), error(nil)
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if m.Position.Number == 2 && m.Attempt == 1 {
				token, _ := order.TokenFrom(ctx)
				entered <- token
				<-ctx.Done()
				cause = context.Cause(ctx)
			}
			return nil
		}, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		first := <-entered
		s.set(func(f *faulty) { // it is cut off from its store
			f.before = func(step) error { return errBroken }
		})
		later(31 * time.Second)
		if !errors.Is(cause, order.ErrStale) || !slices.Equal(lost, []string{"a"}) {
			t.Errorf("the handler was told %v, lost %v", cause, lost)
		}
		if l := account(t, newBuffer(t, mem, nil), "a").Ledgers[0]; l.Cursor != 1 {
			t.Errorf("a worker that lost its lease moved the cursor to %d", l.Cursor)
		}
		other := newBuffer(t, mem, nil)
		var got record
		var second uint64
		stopOther := start(t, other, func(ctx context.Context, m order.Message) error {
			got.add(m)
			second, _ = order.TokenFrom(ctx)
			return nil
		}, nil)
		later(time.Second)
		got.want(t, names("a", 1, 3)...)
		if second <= first {
			t.Errorf("the second owner has the token %d, the first had %d", second, first)
		}
		stopOther()
		s.set(func(f *faulty) { f.before = nil })
		stop()
	})
}

// A worker that was paused for longer than its lease and wakes up changes nothing.
func TestPausedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		s := newFaulty(mem)
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		var slow, got record
		stop := start(t, b, func(_ context.Context, m order.Message) error {
			time.Sleep(2 * time.Hour) // and ignores its context
			slow.add(m)
			return nil
		}, &order.RunOptions{Grace: 3 * time.Hour, Poll: 10 * time.Second})
		synctest.Wait()
		s.set(func(f *faulty) { f.hang = func(step) bool { return true } })
		later(time.Minute)
		other := newBuffer(t, mem, nil)
		stopOther := start(t, other, got.handle, nil)
		later(time.Minute)
		got.want(t, names("a", 1, 3)...)
		s.set(func(f *faulty) { f.hang = nil })
		later(3 * time.Hour)
		slow.want(t, "a:1")
		got.want(t, names("a", 1, 3)...)
		wantCursor(t, other, "a", 4, 3)
		if n := b.Stats(); n.Delivered != 0 || n.LeasesLost != 1 {
			t.Errorf("stats %+v", n)
		}
		stopOther()
		stop()
	})
}

// A handler of one key that blocks and ignores its context holds up no other key,
// and Run says that it did not return.
func TestHandlerIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, order.NewMemory(), nil)
		release := make(chan bool)
		var got record
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- b.Run(ctx, func(ctx context.Context, m order.Message) error {
				if m.Key == "stuck" {
					<-release
				}
				got.add(m)
				return nil
			}, &order.RunOptions{Concurrency: 2})
		}()
		push(t, b, order.Buffered, msg("stuck", 1))
		push(t, b, order.Buffered, msgs("b", 1, 2)...)
		later(time.Hour)
		got.want(t, "b:1", "b:2")
		cancel()
		wantErr(t, <-done, order.ErrAbandoned)
		close(release)
		synctest.Wait()
	})
}

func TestDrainGivesKeysBack(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		var got record
		causes := make(chan error, 1)
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if got.add(m); m.Position.Number == 2 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}
			return nil
		}, nil)
		synctest.Wait()
		stop()
		if cause := <-causes; !errors.Is(cause, order.ErrDraining) {
			t.Errorf("the handler was told %v", cause)
		}
		wantCursor(t, b, "a", 2, 1)
		if account(t, b, "a").Claimed {
			t.Error("the key is still claimed")
		}
		stop = start(t, b, got.handle, nil)
		got.want(t, "a:1", "a:2", "a:2", "a:3")
		stop()
		ms := got.messages()
		if ms[2].Attempt != 2 || ms[3].Attempt != 1 {
			t.Errorf("attempts %d and %d, want 2 for what was interrupted and 1 for what was behind it", ms[2].Attempt, ms[3].Attempt)
		}
	})
}

// What was taken and not handed over when the drain began is as if it had not been
// taken.
func TestDrainUnbeginsTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		var got record
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			got.add(m)
			time.Sleep(time.Second)
			return nil
		}, nil)
		synctest.Wait()
		stop()
		got.want(t, "a:1")
		wantCursor(t, b, "a", 2, 1)
		stop = start(t, b, got.handle, nil)
		got.want(t, "a:1", "a:2", "a:3")
		stop()
		for _, m := range got.messages() {
			if m.Attempt != 1 {
				t.Errorf("number %d is at attempt %d", m.Position.Number, m.Attempt)
			}
		}
	})
}

func TestHandlerTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		var got record
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if got.add(m); m.Attempt == 1 && m.Position.Number == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			if _, ok := order.TokenFrom(ctx); !ok {
				t.Error("no token")
			}
			return nil
		}, &order.RunOptions{Timeout: 10 * time.Second, Backoff: retry.Constant(time.Second)})
		later(12 * time.Second)
		got.want(t, "a:1", "a:1", "a:2")
		stop()
		if _, ok := order.TokenFrom(t.Context()); ok {
			t.Error("a token in a context of nobody's")
		}
	})
}

// Deliveries of a long run are recorded while it goes on.
func TestRunIsRecordedInBetween(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)...)
		stop := start(t, b, func(context.Context, order.Message) error {
			time.Sleep(40 * time.Millisecond)
			return nil
		}, nil)
		later(130 * time.Millisecond)
		wantCursor(t, b, "a", 4, 3)
		later(120 * time.Millisecond)
		wantCursor(t, b, "a", 7, 6)
		later(time.Second)
		wantCursor(t, b, "a", 11, 10)
		stop()
	})
}

func TestAtMostOnceMovesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3, 4)...)
		var got record
		var cursors []uint64
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			got.add(m)
			cursors = append(cursors, account(t, b, "a").Ledgers[0].Cursor)
			switch m.Position.Number {
			case 2:
				return errBroken
			case 3:
				panic("boom")
			}
			return nil
		}, &order.RunOptions{Mode: order.AtMostOnce, Poll: time.Minute})
		later(time.Hour)
		got.want(t, names("a", 1, 4)...)
		stop()
		if !slices.Equal(cursors, []uint64{2, 3, 4, 5}) {
			t.Errorf("the cursors while the messages were handled: %v", cursors)
		}
		if n := b.Stats(); n.Lost != 2 || n.Failed != 2 || n.Delivered != 4 {
			t.Errorf("stats %+v", n)
		}
	})
}

// A poison message kills the process three times, and is then parked without
// having been handed over a fourth time; the messages taken with it are not
// blamed.
func TestPoisonThatKillsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		var got record
		opts := &order.RunOptions{MaxAttempts: 3}
		push(t, newBuffer(t, mem, nil), order.Buffered, msgs("a", 1, 2, 3, 4)...)
		for range 10 {
			s := newFaulty(mem)
			b := newBuffer(t, s, nil)
			died := make(chan bool, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go b.Run(ctx, func(ctx context.Context, m order.Message) error {
				if got.add(m); m.Position.Number == 3 {
					s.set(func(f *faulty) { f.before = func(step) error { return errBroken } }) // dead
					died <- true
					<-ctx.Done()
				}
				return nil
			}, opts)
			later(time.Minute)
			select {
			case <-died:
			default:
				cancel()
				synctest.Wait()
				goto parked
			}
			cancel()
			later(time.Minute) // the lease lapses
		}
		t.Fatalf("it was never parked: %v", got.got())
	parked:
		n := 0
		for _, name := range got.got() {
			if name == "a:3" {
				n++
			}
		}
		if n != 3 {
			t.Errorf("the poison was handed over %d times, want 3: %v", n, got.got())
		}
		b := newBuffer(t, mem, nil)
		list, err := b.Parked(t.Context(), order.Query{})
		if err != nil || len(list) != 1 || list[0].Position.Number != 3 {
			t.Fatalf("parked %+v, %v", list, err)
		}
		wantErr(t, b.Drop(t.Context(), "a", list[0].Position, "ops", ""), nil)
		stop := start(t, b, got.handle, opts)
		later(time.Second)
		stop()
		wantCursor(t, b, "a", 5, 3)
	})
}

// Two workers share the keys, and no key is in two hands.
func TestOneHandlerPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		var busy [10]atomic.Int32
		var next [10]uint64
		handle := func(_ context.Context, m order.Message) error {
			k := int(m.Key[0] - '0')
			if busy[k].Add(1) != 1 {
				t.Error("two handlers of one key")
			}
			if next[k]++; m.Position.Number != next[k] {
				t.Errorf("key %d: number %d, want %d", k, m.Position.Number, next[k])
			}
			time.Sleep(time.Millisecond)
			busy[k].Add(-1)
			return nil
		}
		b1, b2 := newBuffer(t, newFaulty(mem), nil), newBuffer(t, newFaulty(mem), nil)
		stop1 := start(t, b1, handle, &order.RunOptions{Batch: 3, Concurrency: 4})
		stop2 := start(t, b2, handle, &order.RunOptions{Batch: 5, Concurrency: 4})
		for n := uint64(1); n <= 200; n += 2 {
			for k := range 10 {
				push(t, b1, order.Buffered, msg(fmt.Sprint(k), n+1))
				push(t, b2, order.Buffered, msg(fmt.Sprint(k), n))
			}
		}
		later(10 * time.Second)
		stop1()
		stop2()
		for k := range 10 {
			wantCursor(t, b1, fmt.Sprint(k), 201, 200)
		}
	})
}

// Nothing is lost when the answer to a claim is.
func TestClaimWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		failed := false
		s.after = func(st step) error {
			if st.op == "claim" && !failed {
				failed = true
				return errBroken
			}
			return nil
		}
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		var got record
		stop := start(t, b, got.handle, nil)
		later(time.Second) // and not a whole lease
		got.want(t, "a:1", "a:2")
		stop()
		if m := got.messages()[0]; m.Attempt != 1 {
			t.Errorf("attempt %d", m.Attempt)
		}
	})
}

// A message that was reported as delivered, or dropped, while it is worked: its
// worker finds that out when it fails, and gives the key back.
func TestMessageThatEndsWhileItIsWorked(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		var got record
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if got.add(m); m.Position.Number == 1 {
				if err := b.Settled(ctx, "a", m.Position); err != nil {
					t.Error(err)
				}
				return errBroken
			}
			return nil
		}, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		later(time.Second)
		got.want(t, "a:1", "a:2")
		stop()
		if l := wantCursor(t, b, "a", 3, 2); l.OutOfOrder != 1 {
			t.Errorf("%+v", l)
		}
	})
}

// After the loss of a lease nothing more is sent for it, although nobody else has
// taken the key yet and the store would accept it.
func TestNothingIsSettledAfterTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		var tokens []uint64 // of moves
		s.before = func(st step) error {
			if st.op != "settle" {
				return nil
			}
			if st.s[0].Kind == order.KindExtend {
				return errBroken
			}
			tokens = append(tokens, st.s[0].Token)
			return nil
		}
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
		var got record
		first := uint64(0)
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if got.add(m); m.Attempt == 1 && m.Position.Number == 2 {
				first, _ = order.TokenFrom(ctx)
				<-ctx.Done()
			}
			return nil
		}, &order.RunOptions{Concurrency: 1})
		later(time.Minute)
		stop()
		got.want(t, "a:1", "a:2", "a:1", "a:2", "a:3")
		if len(tokens) == 0 || slices.Contains(tokens, first) {
			t.Errorf("settled under the tokens %v, lost was %d", tokens, first)
		}
	})
}
