package watchdogtest

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// How attempts end.
var settleCases = []testCase{
	{name: "DoneSaysWhenTheNextMayBe", run: done},
	{name: "RepeatedDoneChangesNothing", run: repeatedDone, once: true},
	{name: "DoneOfAnOldAttempt", run: doneOld},
	{name: "ClearNeedsTimeAndTheClaim", run: clearAttempts},
	{name: "ClearEndsGivenUp", run: clearGivenUp},
	{name: "ResumeAtOnce", run: resume},
	{name: "ResumeKeepsAnAttemptUnderWay", run: resumeUnderWay},
	{name: "ForgetWhatWasSeen", run: forget},
	{name: "ActionsInOrder", run: actBatch},
}

func done(e *env) {
	e.join("w")
	o := e.granted(e.take("w", 2*time.Hour, 5), 1)
	before := e.look("w")
	e.tick()
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Hour})
	r := e.look("w")
	if r.NextAt.Sub(r.ActedAt) != time.Hour || !r.ActedAt.After(before.ActedAt) || r.Attempts != 1 || r.Claim != o.Claim {
		e.Fatalf("the end of an attempt made the record %+v", r)
	}
}

func repeatedDone(e *env) {
	e.join("w")
	o := e.granted(e.take("w", time.Hour, 5), 1)
	a := watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Hour}
	e.applied(a)
	before := e.look("w")
	e.tick()
	e.applied(a)
	if after := e.look("w"); after != before {
		e.Fatalf("the end of an attempt, sent again, changed the record from %+v to %+v", before, after)
	}
}

func doneOld(e *env) {
	e.join("w")
	a := watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: 1, Wait: time.Hour}
	e.unchanged(a, watchdog.ErrChanged)
	a.Claim = e.granted(e.take("w", time.Microsecond, 5), 1).Claim
	e.tick()
	e.granted(e.take("w", time.Hour, 5), 2)
	e.unchanged(a, watchdog.ErrChanged)
}

func clearAttempts(e *env) {
	e.join("w")
	o := e.granted(e.take("w", time.Hour, 5), 1)
	a := watchdog.Action{Kind: watchdog.KindClear, Name: "w", Claim: o.Claim, Wait: time.Hour}
	e.unchanged(a, watchdog.ErrChanged)
	e.sleep(25 * time.Millisecond)
	e.unchanged(a, watchdog.ErrChanged)
	a.Wait = 20 * time.Millisecond
	a.Claim--
	e.unchanged(a, watchdog.ErrChanged)
	a.Claim++
	e.applied(a)
	if r := e.look("w"); r.Attempts != 0 || r.GivenUp || r.Claim != o.Claim {
		e.Fatalf("a worker that is well again has the record %+v", r)
	}
}

// giveUp makes a worker that was given up.
func (e *env) giveUp(name string) (claim uint64) {
	e.Helper()
	e.join(name)
	claim = e.granted(e.take(name, time.Hour, 1), 1).Claim
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: name, Claim: claim, Wait: time.Microsecond})
	e.tick()
	e.refused("the second of one attempt", e.act(e.take(name, time.Hour, 1))[0].Err, watchdog.ErrGivenUp)
	return claim
}

func clearGivenUp(e *env) {
	claim := e.giveUp("w")
	a := watchdog.Action{Kind: watchdog.KindClear, Name: "w", Claim: claim, Wait: time.Hour}
	e.unchanged(a, watchdog.ErrChanged)
	e.sleep(25 * time.Millisecond)
	a.Wait = 20 * time.Millisecond
	e.applied(a)
	if r := e.look("w"); r.Attempts != 0 || r.GivenUp {
		e.Fatalf("a worker that is well again has the record %+v", r)
	}
	e.granted(e.take("w", time.Hour, 1), 1)
}

func resume(e *env) {
	e.giveUp("w")
	e.applied(watchdog.Action{Kind: watchdog.KindResume, Name: "w"})
	if r := e.look("w"); r.Attempts != 0 || r.GivenUp || !r.NextAt.IsZero() {
		e.Fatalf("a worker that was resumed has the record %+v", r)
	}
	o := e.granted(e.take("w", time.Hour, 1), 1)
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Hour})
	e.applied(watchdog.Action{Kind: watchdog.KindResume, Name: "w"})
	e.granted(e.take("w", time.Hour, 1), 1)
}

func resumeUnderWay(e *env) {
	e.join("w")
	e.granted(e.take("w", time.Hour, 5), 1)
	e.applied(watchdog.Action{Kind: watchdog.KindResume, Name: "w"})
	if r := e.look("w"); r.Attempts != 0 || r.NextAt.IsZero() {
		e.Fatalf("the record is %+v, with an attempt under way", r)
	}
	e.unchanged(e.take("w", time.Hour, 5), watchdog.ErrBusy)
}

func forget(e *env) {
	w := e.join("w")
	w.next()
	r := e.look("w")
	a := watchdog.Action{Kind: watchdog.KindForget, Name: "w", Token: r.Token - 1, Seq: r.Seq}
	e.unchanged(a, watchdog.ErrChanged)
	a.Token, a.Seq = r.Token, r.Seq-1
	e.unchanged(a, watchdog.ErrChanged)
	a.Seq = r.Seq
	e.applied(a)
	if _, found := e.find("w"); found {
		e.Fatalf("a worker that was forgotten is listed")
	}
	e.applied(a)
	e.join("w")
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "w", Token: e.look("w").Token})
	e.join("w")
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "w"})
	if n := len(e.list("", 10).Records); n != 0 {
		e.Fatalf("%d records are left", n)
	}
}

func actBatch(e *env) {
	var batch []watchdog.Action
	for i := range 10 {
		name := fmt.Sprint(i)
		a := watchdog.Action{Kind: watchdog.KindTake, Name: name, Nonce: newNonce(), Token: 1, Wait: time.Hour, Most: 5}
		if i%2 == 0 {
			e.join(name)
			a = e.take(name, time.Hour, 5)
		}
		batch = append(batch, a)
	}
	e.join("w")
	a, b := e.take("w", time.Hour, 5), e.take("w", time.Hour, 5)
	outcomes := e.act(append(batch, a, b, watchdog.Action{Kind: watchdog.KindForget, Name: "w"}, b)...)
	for i, o := range outcomes[:10] {
		if i%2 == 0 && (o.Err != nil || o.Attempt != 1) {
			e.Fatalf("action %d of a batch was answered %+v", i, o)
		}
		if i%2 == 1 {
			e.refused("the action without a record", o.Err, watchdog.ErrGone)
		}
	}
	if outcomes[10].Err != nil || outcomes[12].Err != nil {
		e.Fatalf("the actions on one worker were answered %+v", outcomes[10:])
	}
	e.refused("the second take of one worker", outcomes[11].Err, watchdog.ErrBusy)
	e.refused("the take of one that was forgotten", outcomes[13].Err, watchdog.ErrGone)
}
