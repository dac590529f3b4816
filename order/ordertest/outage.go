package ordertest

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pawl-go/pawl/order"
)

// What broke other systems, where no other subtest is about it, and answers that
// were lost.
var outageCases = []testCase{
	{name: "LostAnswersOfEveryStep", run: outageLost, once: true},
	{name: "CrashBetweenHandlerAndCursor", run: outageCrash},
	{name: "SwitchThereAndBackAgain", run: outageSwitch},
	{name: "SlowTopicIsNoGap", run: outageSlow},
	{name: "LongOutageLosesNothing", run: outageLong},
	{name: "ManyIdleKeys", run: outageIdle, once: true},
	{name: "ContextHasEnded", run: outageContext, once: true},
}

// outageLost runs a message through all its steps, of which every first answer is
// lost: the caller knows only what the second sending says.
func outageLost(e *env) {
	e.p.GapLook = 0
	e.push(at("k", 1, 1), at("k", 1, 3))
	e.wantAnswers(e.push(at("k", 1, 1), at("k", 1, 3)), order.Duplicate, order.Duplicate)
	again := func(s func(order.Claim) []order.Settlement) {
		e.Helper()
		a := newAsk()
		e.ask(a)
		c := e.claimAs("k", a)
		e.settle(s(c)...)
		e.applied(s(c)...)
	}
	again(func(c order.Claim) []order.Settlement { return []order.Settlement{retry(c, 1, 0)} })
	again(func(c order.Claim) []order.Settlement { return []order.Settlement{deliver(c, 2), release(c)} })
	again(func(c order.Claim) []order.Settlement { return []order.Settlement{wait(c, 0)} })
	again(func(c order.Claim) []order.Settlement { return []order.Settlement{skip(c, 3), unbegun(c)} })
	again(func(c order.Claim) []order.Settlement { return []order.Settlement{park(c, 3)} })
	for range 2 {
		e.applied(person(order.KindDrop, "k", 3))
	}
	e.push(at("k", 1, 2))
	e.answered(order.Duplicate, at("k", 1, 2))
	again(func(c order.Claim) []order.Settlement {
		return []order.Settlement{late(order.KindLateRetry, c, 2), release(c)}
	})
	again(func(c order.Claim) []order.Settlement {
		return []order.Settlement{late(order.KindLatePark, c, 2), release(c)}
	})
	for range 2 {
		e.applied(person(order.KindResume, "k", 2))
	}
	again(func(c order.Claim) []order.Settlement {
		return []order.Settlement{late(order.KindLate, c, 2), release(c)}
	})
	e.buffered("k", 6)
	again(func(c order.Claim) []order.Settlement {
		return []order.Settlement{void(c, 4, 6), deliver(c, 7), release(c)}
	})
	for range 2 {
		e.applied(unordered("k", 7))
		e.applied(resolve("k", 2, 3, order.ResolutionIgnore))
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 8, Head: 8, Delivered: 3, OutOfOrder: 1, Skipped: 1, Late: 1, Void: 2})
}

func outageCrash(e *env) {
	e.buffered("k", 1, 2, 3)
	worked := map[uint64]int{}
	a := newAsk()
	a.Lease = e.short
	e.claimAs("k", a)
	worked[1]++ // the handler has run, and the process dies before the cursor moves
	e.wait()
	c := e.claim("k")
	e.wantRun(c, 1)
	e.wantAttempts(c, 2) // so the handler knows
	worked[1]++
	e.applied(deliver(c, 2))
	e.applied(release(c))
	for n := uint64(2); n <= 3; n++ {
		c = e.claim("k")
		e.wantRun(c, n)
		worked[n]++
		e.applied(deliver(c, n+1), release(c))
	}
	if worked[1] != 2 || worked[2] != 1 || worked[3] != 1 {
		e.Fatalf("the handlers ran %v", worked)
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 3})
}

// outageSwitch moves a sender from account a to b and back: each takes up its own
// numbers, in an epoch of its own, and no position is used twice.
func outageSwitch(e *env) {
	e.answered(order.Buffered, at("a", 1, 1))
	e.answered(order.Buffered, at("b", 1, 1)) // another customer of b
	e.answered(order.Buffered, at("b", 1, 2)) // the one who moved
	e.answered(order.Buffered, at("a", 2, 1)) // and came back
	e.answered(order.Buffered, at("a", 1, 2)) // sent before the move
	got := map[string][]order.Position{}
	for range 2 {
		for _, c := range e.claims() {
			for _, m := range c.Run {
				got[c.Key] = append(got[c.Key], m.Position)
			}
			e.applied(deliver(c, c.Run[len(c.Run)-1].Position.Number+1), release(c))
		}
	}
	if s := fmt.Sprint(got); s != "map[a:[{1 1} {1 2} {2 1}] b:[{1 1} {1 2}]]" {
		e.Fatalf("delivered were %s", s)
	}
	e.answered(order.StaleEpoch, at("a", 1, 3))
}

func outageSlow(e *env) {
	if !e.virtual {
		e.Skip("a message a day takes days on a real clock")
	}
	e.p.GapLook = e.short
	for n := uint64(1); n <= 5; n++ {
		e.buffered("k", n)
		e.deliverAll("k", n)
		e.sleep(24 * longLease)
		e.nothing()
		if t := e.totals(); t.OpenGaps != 0 || t.Oldest != 0 {
			e.Fatalf("a slow key is taken for stuck: %+v", t)
		}
	}
}

func outageLong(e *env) {
	if !e.virtual {
		e.Skip("a month takes a month on a real clock")
	}
	e.buffered("k", 1, 2, 4)
	e.sleep(30 * 24 * longLease)
	if s, ok := e.watched.Store.(order.Sweeper); ok {
		if _, err := s.Sweep(context.Background(), e.p, 1000); err != nil {
			e.Fatal(err)
		}
	}
	e.deliverAll("k", 1, 2)
	c := e.claimGap("k")
	if c.Gap.Age != 30*24*longLease {
		e.Fatalf("the gap is %v old", c.Gap.Age)
	}
	e.buffered("k", 3)
	e.applied(wait(c, 0))
	e.deliverAll("k", 3, 4)
}

func outageIdle(e *env) {
	keys := cmp.Or(e.c.Many, 2000)
	arrivals := make([]order.Arrival, keys)
	for i := range arrivals {
		arrivals[i] = at(fmt.Sprint("idle ", i), 1, 1)
	}
	for len(arrivals) > 0 {
		n := min(len(arrivals), 500)
		e.push(arrivals[:n]...)
		arrivals = arrivals[n:]
	}
	for range (keys + 99) / 100 {
		var s []order.Settlement
		for _, c := range e.claims() {
			s = append(s, deliver(c, 2), release(c))
		}
		e.applied(s...)
	}
	e.nothing()
	e.buffered("busy", 1)
	e.deliverAll("busy", 1)
	if t := e.totals(); t.Keys != keys+1 || t.Buffered != 0 || t.OpenGaps != 0 {
		e.Fatalf("the totals are %+v", t)
	}
}

func outageContext(e *env) {
	e.buffered("k", 1)
	c := e.claim("k")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.store.Push(ctx, e.p, []order.Arrival{at("k", 1, 2)}); err == nil {
		e.Error("Push with a context that has ended returned no error")
	}
	if _, err := e.store.Settle(ctx, e.p, []order.Settlement{deliver(c, 2)}); err == nil {
		e.Error("Settle with a context that has ended returned no error")
	}
	if _, err := e.store.Claim(ctx, e.p, newAsk()); err == nil {
		e.Error("Claim with a context that has ended returned no error")
	}
	e.answered(order.Duplicate, at("k", 1, 1))
	e.settle(deliver(c, 2), release(c)) // the store works on
}
