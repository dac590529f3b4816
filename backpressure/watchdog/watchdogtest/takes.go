package watchdogtest

import (
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// Who may restart a worker.
var takeCases = []testCase{
	{name: "TakeGrantsOneAttempt", run: takeOnce},
	{name: "RepeatedTakeGetsTheSameAnswer", run: repeatedTake, once: true},
	{name: "NotBeforeItIsTime", run: notBefore},
	{name: "TakeNeedsTheHeartbeatSeen", run: takeNeedsSeq},
	{name: "TakeNeedsTheInstanceSeen", run: takeNeedsToken},
	{name: "TakeNeedsTheTimeSeen", run: takeNeedsTime},
	{name: "NoTakeOfWhoHasLeft", run: takeLeft},
	{name: "AfterTheLastAttemptItIsGivenUp", run: givenUp},
	{name: "NoRecordNoAction", run: noRecord},
}

func takeOnce(e *env) {
	e.join("w")
	e.tick()
	o := e.granted(e.take("w", time.Hour, 5), 1)
	r := e.look("w")
	if r.Claim != o.Claim || r.Attempts != 1 || r.GivenUp || r.NextAt.Sub(r.ActedAt) != time.Hour || r.ActedAt.Before(r.BeatAt) || r.ActedAt.After(e.list("", 1).Now) {
		e.Fatalf("a take answered %+v made the record %+v", o, r)
	}
	if o.Claim < uint64(r.ActedAt.UnixMicro()) {
		e.Fatalf("the claim %d is below the store's time", o.Claim)
	}
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrBusy)
}

func repeatedTake(e *env) {
	e.join("w")
	a := e.take("w", time.Millisecond, 5)
	o := e.granted(a, 1)
	before := e.look("w")
	e.tick() // the next would be due
	if again := e.granted(a, 1); again != o {
		e.Fatalf("a take sent again was answered %+v, want %+v", again, o)
	}
	if after := e.look("w"); after != before {
		e.Fatalf("a take sent again changed the record from %+v to %+v", before, after)
	}
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Millisecond})
	e.tick()
	if again := e.granted(a, 1); again != o {
		e.Fatalf("a take sent again after its end was answered %+v, want %+v", again, o)
	}
	// A reply that is lost, of the take that gives up.
	last := e.take("w", time.Hour, 1)
	for range 2 {
		if o := e.act(last)[0]; !o.First || o.Err == nil {
			e.Fatalf("the take that gives up was answered %+v", o)
		}
	}
	if o := e.act(e.take("w", time.Hour, 1))[0]; o.First || o.Err == nil {
		e.Fatalf("the one after it was answered %+v", o)
	}
}

func notBefore(e *env) {
	e.join("w")
	first := e.granted(e.take("w", 20*time.Millisecond, 5), 1)
	e.sleep(25 * time.Millisecond) // whoever took it has died
	second := e.granted(e.take("w", time.Hour, 5), 2)
	if second.Claim <= first.Claim {
		e.Fatalf("the second claim is %d, and the first was %d", second.Claim, first.Claim)
	}
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrBusy)
	e.unchanged(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: first.Claim, Wait: time.Microsecond}, watchdog.ErrChanged)
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: second.Claim, Wait: 20 * time.Millisecond})
	e.sleep(25 * time.Millisecond)
	third := e.granted(e.take("w", time.Microsecond, 5), 3)
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: third.Claim, Wait: time.Hour})
	e.tick()
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrBusy)
}

func takeNeedsSeq(e *env) {
	w := e.join("w")
	a := e.take("w", time.Hour, 5)
	w.next()
	e.unchanged(a, watchdog.ErrChanged)
	a.Seq = 0
	e.granted(a, 1)
}

func takeNeedsToken(e *env) {
	e.join("w")
	a := e.take("w", time.Hour, 5)
	a.Seq = 0
	e.join("w")
	e.unchanged(a, watchdog.ErrChanged)
	a.Token = e.look("w").Token
	e.granted(a, 1)
}

func takeNeedsTime(e *env) {
	w := e.join("w", func(b *watchdog.Beat) { b.Turns = 1 })
	r := w.next()
	a := e.take("w", time.Hour, 5)
	a.Seq, a.Stalled = 0, r.Stalled+time.Microsecond
	e.unchanged(a, watchdog.ErrChanged)
	a.Stalled, a.Quiet = 0, r.Quiet+time.Microsecond
	e.unchanged(a, watchdog.ErrChanged)
	a.Stalled, a.Quiet = r.Stalled, r.Quiet
	w.next() // it stands still for longer
	e.granted(a, 1)

	w = e.join("v", func(b *watchdog.Beat) { b.Turns = 1 })
	r = w.next()
	a = e.take("v", time.Hour, 5)
	a.Seq, a.Stalled = 0, r.Stalled
	w.next(func(b *watchdog.Beat) { b.Position++ })
	e.unchanged(a, watchdog.ErrChanged)
}

func takeLeft(e *env) {
	w := e.join("w")
	w.next(func(b *watchdog.Beat) { b.Leave = true })
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrChanged)
}

func givenUp(e *env) {
	e.join("w")
	for n := range 2 {
		o := e.granted(e.take("w", time.Hour, 2), n+1)
		e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Microsecond})
		e.tick()
	}
	claim := e.look("w").Claim
	o := e.act(e.take("w", time.Hour, 2))[0]
	e.refused("the third of two attempts", o.Err, watchdog.ErrGivenUp)
	r := e.look("w")
	if !o.First || !r.GivenUp || r.Attempts != 2 || r.Claim != claim {
		e.Fatalf("the take that gives up was answered %+v and made the record %+v", o, r)
	}
	e.tick()
	o = e.act(e.take("w", time.Hour, 99))[0]
	e.refused("an attempt at a worker that was given up", o.Err, watchdog.ErrGivenUp)
	again := e.look("w")
	if o.First || !again.ActedAt.After(r.ActedAt) {
		e.Fatalf("it was answered %+v, and ActedAt is %v, after %v", o, again.ActedAt, r.ActedAt)
	}
	if again.ActedAt = r.ActedAt; again != r {
		e.Fatalf("it changed the record from %+v to %+v", r, again)
	}
}

func noRecord(e *env) {
	for _, kind := range []watchdog.Kind{watchdog.KindTake, watchdog.KindDone, watchdog.KindClear, watchdog.KindResume} {
		a := watchdog.Action{Kind: kind, Name: "nobody", Nonce: newNonce(), Token: 1, Claim: 1, Wait: time.Hour, Most: 1}
		e.refused(kind.String()+" without a record", e.act(a)[0].Err, watchdog.ErrGone)
	}
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "nobody"})
	if n := len(e.list("", 10).Records); n != 0 {
		e.Fatalf("actions without a record made %d", n)
	}
}
