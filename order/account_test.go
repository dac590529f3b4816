package order_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

func TestWhereAndLookup(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{Window: 1, AfterTimeout: order.Stop})
		var got record
		stop := start(t, b, got.handle, slowly)
		m := msg("a", 1)
		m.ID = "wamid.1"
		push(t, b, order.Buffered, m, msg("a", 3))
		synctest.Wait()
		found, err := b.Where(t.Context(), "a", order.Position{Epoch: 1, Number: 1}, order.Position{Epoch: 1, Number: 2},
			order.Position{Epoch: 1, Number: 3}, order.Position{Epoch: 1, Number: 4}, order.Position{Epoch: 2, Number: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []order.State{order.StateDelivered, order.StateMissing, order.StateBuffered, order.StateUnknown, order.StateUnknown} {
			if found[i].State != want {
				t.Errorf("place %d is %v, want %v", i, found[i].State, want)
			}
		}
		found, err = b.Lookup(t.Context(), "wamid.1", "wamid.2")
		if err != nil || found[0].State != order.StateDelivered || found[0].Position.Number != 1 || found[0].Message == nil ||
			string(found[0].Message.Payload) != "a1" || found[1].State != order.StateUnknown {
			t.Errorf("found %+v, %v", found, err)
		}
		later(8 * 24 * time.Hour)
		if n, err := b.Sweep(t.Context(), 100); n < 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		if found, _ = b.Lookup(t.Context(), "wamid.1"); found[0].State != order.StateUnknown {
			t.Errorf("found %+v after eight days", found)
		}
		stop()
		for _, call := range []func() error{
			func() error { _, err := b.Where(t.Context(), "", order.Position{Number: 1}); return err },
			func() error { _, err := b.Where(t.Context(), "a", order.Position{}); return err },
			func() error { _, err := b.Lookup(t.Context(), ""); return err },
			func() error { _, err := b.Account(t.Context(), "a\x00"); return err },
			func() error { _, err := b.Gaps(t.Context(), order.Query{N: 1001}); return err },
			func() error { _, err := b.Parked(t.Context(), order.Query{N: -1}); return err },
			func() error { _, err := b.Sweep(t.Context(), 0); return err },
			func() error { return b.Forget(t.Context(), strings.Repeat("k", 513)) },
			func() error { return b.ResolveGap(t.Context(), order.Gap{Key: "a", From: 2, To: 3}, 0, "ops", "") },
			func() error {
				return b.ResolveGap(t.Context(), order.Gap{Key: "a", From: 3, To: 3}, order.ResolutionLost, "ops", "")
			},
			func() error {
				return b.Drop(t.Context(), "a", order.Position{Number: 1}, "ops", strings.Repeat("n", 1025))
			},
		} {
			wantErr(t, call(), order.ErrInvalid)
		}
	})
}

func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		wantErr(t, b.Forget(t.Context(), "a"), nil)
		if a := account(t, b, "a"); len(a.Ledgers) != 0 {
			t.Errorf("%+v", a)
		}
		total, err := b.Totals(t.Context())
		if err != nil || total != (order.Totals{}) {
			t.Errorf("%+v, %v", total, err)
		}
		push(t, b, order.Buffered, msgs("a", 1)...)
	})
}

// What a store does not answer is ErrUnavailable, counted, and names no key.
func TestUnavailableCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, down{}, nil)
		ctx := t.Context()
		calls := []func() error{
			func() error { _, err := b.Push(ctx, msg("secret", 1)); return err },
			func() error { _, err := b.Account(ctx, "secret"); return err },
			func() error { _, err := b.Where(ctx, "secret", order.Position{Number: 1}); return err },
			func() error { _, err := b.Lookup(ctx, "secret"); return err },
			func() error { _, err := b.Gaps(ctx, order.Query{}); return err },
			func() error { _, err := b.Parked(ctx, order.Query{}); return err },
			func() error { _, err := b.Totals(ctx); return err },
			func() error { return b.Forget(ctx, "secret") },
			func() error { return b.Resume(ctx, "secret", order.Position{Number: 1}, "ops", "") },
			func() error { return b.Settled(ctx, "secret", order.Position{Number: 1}) },
			func() error { _, err := b.With(down{}).Push(ctx, msg("secret", 1)); return err },
			func() error { return b.With(down{}).Forget(ctx, "secret") },
		}
		for i, call := range calls {
			err := call()
			if !errors.Is(err, order.ErrUnavailable) || !errors.Is(err, errBroken) || strings.Contains(err.Error(), "secret") {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if n := b.Stats().Errors; n < uint64(len(calls)) {
			t.Errorf("%d errors are counted", n)
		}
	})
}

type down struct{}

func (down) Push(context.Context, order.Params, []order.Arrival) ([]order.Answer, error) {
	return nil, errBroken
}
func (down) Claim(context.Context, order.Params, order.Ask) (order.Claimed, error) {
	return order.Claimed{}, errBroken
}
func (down) Settle(context.Context, order.Params, []order.Settlement) ([]error, error) {
	return nil, errBroken
}
func (down) Account(context.Context, string, string) (order.Account, error) {
	return order.Account{}, errBroken
}
func (down) Find(context.Context, order.Params, []order.Place) ([]order.Found, error) {
	return nil, errBroken
}
func (down) Gaps(context.Context, string, order.Query) ([]order.Gap, error) { return nil, errBroken }
func (down) Parked(context.Context, string, order.Query) ([]order.Message, error) {
	return nil, errBroken
}
func (down) Totals(context.Context, string) (order.Totals, error) { return order.Totals{}, errBroken }

// Logs hold hashes in place of keys, and no payload and no handler's error.
func TestLogsHoldNoPersonalData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBuffer(t, order.NewMemory(), &order.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const key = "+491701234567"
		stop := start(t, b, func(context.Context, order.Message) error {
			return errors.New("cannot send to +491701234567")
		}, &order.RunOptions{MaxAttempts: 1, Poll: time.Minute})
		push(t, b, order.Buffered, order.Message{Key: key, Position: order.Position{Number: 1}, Payload: []byte("hello")})
		later(time.Second)
		push(t, b, order.Conflict, order.Message{Key: key, Position: order.Position{Number: 1}, Payload: []byte("bye")})
		push(t, b, order.Buffered, order.Message{Key: "gap " + key, Position: order.Position{Number: 2}})
		later(time.Hour)
		stop()
		text := log.String()
		if strings.Contains(text, "4917") || strings.Contains(text, "hello") || strings.Contains(text, "bye") {
			t.Errorf("logged:\n%s", text)
		}
		for _, want := range []string{"parked", "another content", "missing", "skipped"} {
			if !strings.Contains(text, want) {
				t.Errorf("nothing about %q in:\n%s", want, text)
			}
		}
	})
}

// Numbers around 2^53 and at the end of the range stay exact.
func TestLargeNumbers(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		for key, first := range map[string]uint64{"2-53": 1<<53 - 1, "2-63": order.MaxNumber - 2} {
			b := newBuffer(t, s, &order.Options{Scope: key, FromFirst: true})
			var got record
			stop := start(t, b, got.handle, nil)
			push(t, b, order.Buffered, msg("a", first))
			push(t, b, order.Buffered, msg("a", first+2), msg("a", first+1))
			later(time.Second)
			stop()
			got.want(t, names("a", first, first+2)...)
			wantCursor(t, b, "a", first+3, 3)
		}
	})
}

// A view pushes and settles on the store it is bound to, and counts with the
// buffer.
func TestWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, newFaulty(order.NewMemory()), &order.Options{OnUnavailable: func(context.Context, []order.Message) []error {
			t.Error("it was asked for a view")
			return nil
		}})
		tx := order.NewMemory()
		push(t, b.With(tx), order.Buffered, msg("a", 1))
		if a := account(t, b.With(tx), "a"); len(a.Ledgers) != 1 {
			t.Errorf("%+v", a)
		}
		if a := account(t, b, "a"); len(a.Ledgers) != 0 {
			t.Errorf("%+v", a)
		}
		if n := b.Stats().Buffered; n != 1 {
			t.Errorf("%d buffered", n)
		}
		if _, err := b.With(down{}).Push(t.Context(), msg("a", 2)); !errors.Is(err, order.ErrUnavailable) {
			t.Error(err)
		}
	})
}

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		var seen []string
		note := func(what string) { seen = append(seen, what) }
		b := newBuffer(t, s, &order.Options{Hooks: &order.Hooks{
			Pushed:     func(_ context.Context, _ order.Message, a order.Answer) { note("pushed") },
			Delivered:  func(_ context.Context, m order.Message) { note("delivered after " + m.Age.Round(time.Second).String()) },
			GapOpened:  func(context.Context, order.Gap) { note("opened") },
			GapAlerted: func(context.Context, order.Gap) { note("alerted") },
			GapAsked:   func(context.Context, order.Gap, error) { note("asked") },
			GapSkipped: func(context.Context, string, uint64, uint64, uint64) { note("skipped") },
			Settled:    func(_ context.Context, s order.Settlement, err error) { note(s.Kind.String()) },
		}, Resend: func(context.Context, order.Gap) error { return nil }, AlertAfter: time.Minute, GapTimeout: 2 * time.Second})
		stop := start(t, b, func(context.Context, order.Message) error { return nil }, slowly)
		push(t, b, order.Buffered, msg("a", 2))
		later(time.Hour)
		stop()
		want := "pushed opened asked wait alerted skip skipped release deliver delivered after 2s release"
		if got := strings.Join(seen, " "); got != want && got != strings.Replace(want, "skip skipped", "skipped skip", 1) {
			t.Errorf("seen %q", got)
		}
	})
}

// What a person decides, and what is reported, waits for the store no longer than
// the caller does.
func TestDecisionsObeyTheirContext(t *testing.T) {
	p := order.Position{Epoch: 1, Number: 1}
	for name, decide := range map[string]func(context.Context, *order.Buffer) error{
		"Resume":  func(ctx context.Context, b *order.Buffer) error { return b.Resume(ctx, "a", p, "ops", "") },
		"Drop":    func(ctx context.Context, b *order.Buffer) error { return b.Drop(ctx, "a", p, "ops", "") },
		"Settled": func(ctx context.Context, b *order.Buffer) error { return b.Settled(ctx, "a", p) },
		"Forget":  func(ctx context.Context, b *order.Buffer) error { return b.Forget(ctx, "a") },
		"ResolveGap": func(ctx context.Context, b *order.Buffer) error {
			return b.ResolveGap(ctx, order.Gap{Key: "a", Epoch: 1, From: 1, To: 2}, order.ResolutionLost, "ops", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty(order.NewMemory())
				s.hang = func(step) bool { return true }
				b := newBuffer(t, s, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				begin := time.Now()
				err := decide(ctx, b)
				if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, order.ErrUnavailable) || took != 10*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(20*time.Millisecond, cancel)
				if err = decide(ctx, b); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				begin = time.Now()
				wantErr(t, decide(t.Context(), b), order.ErrUnavailable) // the others wait for StoreTimeout
				if took := time.Since(begin); took != 5*time.Second {
					t.Errorf("it took %v", took)
				}
				later(time.Minute)
			})
		})
	}
}

// A gap that is open has no reason, and says so.
func TestReasonOfAnOpenGap(t *testing.T) {
	for r, want := range map[order.Reason]string{0: "none", order.ReasonTimeout: "timeout", order.ReasonResolved: "resolved", 9: "reason 9"} {
		if got := r.String(); got != want {
			t.Errorf("reason %d is %q, want %q", r, got, want)
		}
	}
}
