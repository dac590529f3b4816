package seqgentest

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/seqgen"
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
	a := single("key", 3)
	if _, err := e.store.Reserve(ctx, e.p, []seqgen.Ask{a}); !errors.Is(err, cause) {
		e.Fatalf("Reserve with an ended context returned the error %v, want %v", err, cause)
	}
	e.grant(a, 1, 1, 3)
	b := bump("key", 0)
	if _, err := e.store.Settle(ctx, e.p, []seqgen.Change{b}); !errors.Is(err, cause) {
		e.Fatalf("Settle with an ended context returned the error %v, want %v", err, cause)
	}
	if o := e.apply(b); o.Epoch != 2 {
		e.Fatalf("a bump sent again opened epoch %d, want 2", o.Epoch)
	}
	if _, err := e.store.Look(ctx, e.p.Scope, []string{"key"}); !errors.Is(err, cause) {
		e.Fatalf("Look with an ended context returned the error %v, want %v", err, cause)
	}
	q := seqgen.VoidQuery{Scope: e.p.Scope, Key: "key", Epoch: 1, From: 1, To: 9, Limit: 9}
	if _, err := e.store.Voids(ctx, q); !errors.Is(err, cause) {
		e.Fatalf("Voids with an ended context returned the error %v, want %v", err, cause)
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
		a := single("key", 2)
		gs, err := e.store.Reserve(ctx, e.p, []seqgen.Ask{a})
		cancel()
		again := e.reserve(a)[0]
		e.wantGrant(again, 1, uint64(2*i+1), uint64(2*i+2))
		if err == nil && gs[0].Err == nil && gs[0].Lo != again.Lo {
			e.Fatalf("an ask was granted %d, and again %d", gs[0].Lo, again.Lo)
		}
	}
}
