package watchdogtest

import (
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// Two workers with one name.
var instanceCases = []testCase{
	{name: "NewInstanceTakesTheName", run: newInstance},
	{name: "OldInstanceIsFenced", run: oldInstance},
	{name: "LateJoinOfAnOldInstance", run: lateJoin},
	{name: "JoinKeepsWhatWasDone", run: joinKeeps},
	{name: "TokensRiseAfterForgetting", run: tokensRise},
	{name: "RejoinAfterTheRecordWasLost", run: rejoin},
}

func newInstance(e *env) {
	e.join("w", func(b *watchdog.Beat) { b.Detail = "old" })
	before := e.look("w")
	e.tick()
	e.join("w", func(b *watchdog.Beat) { b.Seq, b.Detail = 3, "new" })
	r := e.look("w")
	if r.Token <= before.Token || r.Seq != 3 || r.Detail != "new" || !r.JoinedAt.After(before.JoinedAt) || !r.StateAt.Equal(r.JoinedAt) {
		e.Fatalf("a new instance made the record %+v of %+v", r, before)
	}
	if n := len(e.list("", 10).Records); n != 1 {
		e.Fatalf("one name has %d records", n)
	}
}

func oldInstance(e *env) {
	old := e.join("w")
	e.join("w")
	before := e.look("w")
	e.tick()
	e.refused("a beat of the older instance", old.beat().Err, watchdog.ErrFenced)
	e.refused("its goodbye", old.beat(func(b *watchdog.Beat) { b.Leave = true }).Err, watchdog.ErrFenced)
	if after := e.look("w"); after != before {
		e.Fatalf("the older instance changed the record from %+v to %+v", before, after)
	}
}

// lateJoin is a join that was sent long ago and arrives, or arrives again, when others
// have had the name since.
func lateJoin(e *env) {
	old := e.join("w")
	old.last.Join = true
	for range watchdog.PastInstances {
		e.join("w")
	}
	before := e.look("w")
	e.tick()
	e.refused("a late join", e.beat(old.last).Err, watchdog.ErrFenced)
	e.refused("a late join with a newer beat", old.beat().Err, watchdog.ErrFenced)
	if after := e.look("w"); after != before {
		e.Fatalf("a late join changed the record from %+v to %+v", before, after)
	}
}

func joinKeeps(e *env) {
	e.join("w")
	o := e.granted(e.take("w", time.Hour, 5), 1)
	before := e.look("w")
	e.tick()
	e.join("w")
	r := e.look("w")
	if r.Attempts != 1 || r.Claim != o.Claim || !r.NextAt.Equal(before.NextAt) || !r.ActedAt.Equal(before.ActedAt) {
		e.Fatalf("a new instance changed what was done from %+v to %+v", before, r)
	}
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrBusy)
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Microsecond})
	e.tick()
	e.act(e.take("w", time.Hour, 1))
	e.join("w")
	if !e.look("w").GivenUp {
		e.Fatalf("a new instance is not given up any more")
	}
}

func tokensRise(e *env) {
	e.join("w")
	before := e.look("w")
	o := e.granted(e.take("w", time.Hour, 5), 1)
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "w"})
	e.tick()
	e.join("w")
	if after := e.look("w"); after.Token <= before.Token {
		e.Fatalf("a token after forgetting is %d, and was %d", after.Token, before.Token)
	}
	if again := e.granted(e.take("w", time.Hour, 5), 1); again.Claim <= o.Claim {
		e.Fatalf("a claim after forgetting is %d, and was %d", again.Claim, o.Claim)
	}
}

func rejoin(e *env) {
	w := e.join("w")
	w.next()
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "w"})
	e.refused("a beat without a record", w.beat().Err, watchdog.ErrGone)
	w.last.Join = true
	w.ok(w.beat())
	if r := e.look("w"); r.Seq != 4 {
		e.Fatalf("a worker that joined again has the record %+v", r)
	}
}
