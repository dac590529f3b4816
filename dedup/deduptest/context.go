package deduptest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Callers that give up.
var contextCases = []testCase{
	{name: "CancelledContext", run: cancelledContext, once: true},
	{name: "ExpiredContext", run: expiredContext, once: true},
	{name: "CancelledDuringTheCall", run: cancelledDuringTheCall, once: true},
}

func cancelledContext(e *env) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.givenUp(ctx, context.Canceled)
}

func expiredContext(e *env) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
	defer cancel()
	e.givenUp(ctx, context.DeadlineExceeded)
}

// givenUp calls with a context that has ended. Whatever the store did, asking or
// settling again tells.
func (e *env) givenUp(ctx context.Context, cause error) {
	e.Helper()
	a := newAsk("given-up")
	if _, err := e.store.Claim(ctx, e.p, []dedup.Ask{a}); !errors.Is(err, cause) {
		e.Fatalf("Claim with an ended context returned the error %v, want %v", err, cause)
	}
	c := e.wantAcquired(e.ask(e.p, a), 1)
	if _, err := e.store.Settle(ctx, e.p, []dedup.Settlement{c.Complete([]byte("r"))}); !errors.Is(err, cause) {
		e.Fatalf("Settle with an ended context returned the error %v, want %v", err, cause)
	}
	e.applied(c.Complete([]byte("r")))
	e.wantDone(e.probe("given-up"), []byte("r"))
	if _, err := e.store.Held(ctx, e.p.Scope, "", 1); !errors.Is(err, cause) {
		e.Fatalf("Held with an ended context returned the error %v, want %v", err, cause)
	}
}

// cancelledDuringTheCall cancels at some moment of a call, and finds out by
// asking again, as the caller would.
func cancelledDuringTheCall(e *env) {
	for i := range 30 {
		ctx, cancel := context.WithCancel(context.Background())
		if i%2 == 0 {
			go cancel()
		} else {
			time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel)
		}
		asks := []dedup.Ask{newAsk(fmt.Sprintf("one-%d", i)), newAsk(fmt.Sprintf("two-%d", i))}
		cs, err := e.store.Claim(ctx, e.p, asks)
		cancel()
		if err == nil && len(cs) != len(asks) {
			e.Fatalf("Claim of %d asks returned %d claims and no error", len(asks), len(cs))
		}
		for k, a := range asks {
			again := e.wantAcquired(e.askUntilKnown(a), 1)
			if err == nil && cs[k].Err == nil {
				e.wantSame(again, cs[k])
			}
			e.applied(again.Complete([]byte("r")))
			e.wantDone(e.askUntilKnown(newAsk(a.ID)), []byte("r"))
		}
	}
}

// askUntilKnown asks again while the answer is that another transaction is about
// to claim: the cancelled call may still be under way in the server.
func (e *env) askUntilKnown(a dedup.Ask) dedup.Claim {
	e.Helper()
	for range 1000 {
		if c := e.ask(e.p, a); c.State != dedup.InFlight || c.Left != 0 {
			return c
		}
		e.sleep(10 * time.Millisecond)
	}
	return e.ask(e.p, a)
}
