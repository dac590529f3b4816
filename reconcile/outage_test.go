package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A remote that hangs until the time is up gives no answer either: that is an outage, too.
func TestARemoteThatHangsIsAnOutage(t *testing.T) {
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, w := range map[string]struct {
		call  reconcile.CallFunc
		probe reconcile.ProbeFunc
	}{
		"probe": {nil, func(ctx context.Context, op reconcile.Op) (reconcile.Evidence, error) {
			if op.Key == "0" {
				return reconcile.Evidence{Seen: reconcile.SeenDone}, nil // so that the streak is not that of the calls above
			}
			return reconcile.Evidence{}, hang(ctx)
		}},
		"call": {func(ctx context.Context, _ reconcile.Op) ([]byte, error) { return nil, hang(ctx) }, nil},
	} {
		bubble(t, func(t *testing.T) {
			l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: 20 * 24 * time.Hour})
			r := newRemote()
			r.lose = 20
			for i := range 20 {
				_ = l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint(i)}, r.call, nil)
			}
			call := w.call
			if call == nil {
				call = r.call
			}
			var answered atomic.Int32 // as above
			stop := run(t, l, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
				if answered.Add(1) == 1 && w.call != nil {
					return nil, nil
				}
				return call(ctx, op)
			}, w.probe)
			time.Sleep(6 * time.Hour)
			if st := l.Stats(); st.Outage < 5*time.Hour || st.Reviews != 0 || st.Sent+st.Probes > 250 {
				t.Errorf("%s: during the outage %+v", name, st)
			}
			stop()
		})
	}
}

// What a process does to itself, by ending, is no outage of the remote.
func TestAnEndOfRunIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), nil)
		for i := range 4 {
			if err := l.Record(t.Context(), reconcile.Op{Key: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		stop := run(t, l, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil)
		time.Sleep(15 * time.Second)
		stop()
		if st := l.Stats(); st.Sent != 4 || st.Unanswered != 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A remote that answers, and does not do it yet, has no outage, however many it says that of.
func TestNotYetIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), nil)
		short := errors.New("not enough in stock")
		for i := range 10 {
			err := l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint(i)}, func(context.Context, reconcile.Op) ([]byte, error) {
				return nil, fmt.Errorf("reserve: %w", reconcile.NotYet(short))
			}, nil)
			if e := stateOf(t, err); e.State != reconcile.Failed || !e.Again || !errors.Is(err, short) || strings.Contains(err.Error(), "marked") {
				t.Fatalf("Do: %v", err)
			}
		}
		if st := l.Stats(); st.Outage != 0 || st.Streak != 0 || st.Unanswered != 0 {
			t.Errorf("stats %+v", st)
		}
		if reconcile.NotYet(nil) != nil {
			t.Error("no error was marked")
		}
		r := newRemote()
		if err := l.Do(t.Context(), reconcile.Op{Key: "0"}, r.call, nil); err != nil || r.did("0") != 1 {
			t.Errorf("sent again: %v, done %d times", err, r.did("0"))
		}
	})
}

// Sent again without knowing what became of the first attempt, NotYet says nothing of the first.
func TestNotYetOfASecondAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: 24 * time.Hour})
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		run(t, l, func(context.Context, reconcile.Op) ([]byte, error) { return nil, reconcile.NotYet(errLost) }, nil)
		time.Sleep(10 * time.Minute)
		if want(t, l, "k", reconcile.Unknown); l.Stats().Streak != 0 {
			t.Errorf("stats %+v", l.Stats())
		}
	})
}
