package watchdogtest

import (
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// How long what a worker says has stayed the same.
var markCases = []testCase{
	{name: "StalledIsTheTimeAtOnePosition", run: stalled},
	{name: "StalledNeedsWork", run: stalledNeedsWork},
	{name: "QuietIsTheTimeWithoutATurn", run: quiet},
	{name: "QuietNeedsALoopAndNoHandler", run: quietNeeds},
	{name: "RunningIsTheTimeOfOneHandler", run: running},
	{name: "TheTimeBetweenBeatsIsBounded", run: bounded},
	{name: "StateAtIsWhenItBecameSo", run: stateAt},
	{name: "NewInstanceCountsFromZero", run: countsFromZero},
}

// counted checks that a mark has grown by the time between two beats.
func (e *env) counted(what string, mark func(watchdog.Record) time.Duration, before, after watchdog.Record) {
	e.Helper()
	want := mark(before) + min(after.BeatAt.Sub(before.BeatAt), watchdog.MaxCount*after.Interval)
	if got := mark(after); got != want || got <= mark(before) {
		e.Fatalf("%s is %v, want %v: after %v the beat came %v later", what, got, want, mark(before), after.BeatAt.Sub(before.BeatAt))
	}
}

func (e *env) zero(what string, d time.Duration) {
	e.Helper()
	if d != 0 {
		e.Fatalf("%s is %v, want 0", what, d)
	}
}

func stalledOf(r watchdog.Record) time.Duration { return r.Stalled }
func quietOf(r watchdog.Record) time.Duration   { return r.Quiet }
func runningOf(r watchdog.Record) time.Duration { return r.Running }

func stalled(e *env) {
	w := e.join("w")
	before := e.look("w")
	for range 3 {
		after := w.next()
		e.counted("Stalled", stalledOf, before, after)
		before = after
	}
	e.zero("Stalled after a move", w.next(func(b *watchdog.Beat) { b.Position++ }).Stalled)
	w.next()
	e.zero("Stalled after a move back", w.next(func(b *watchdog.Beat) { b.Position-- }).Stalled)
	before = e.look("w")
	e.counted("Stalled", stalledOf, before, w.next(func(b *watchdog.Beat) { b.Pending, b.Turns, b.State = 9, 9, watchdog.LeaseLost }))
}

func stalledNeedsWork(e *env) {
	w := e.join("w")
	busy := func(yes bool) func(*watchdog.Beat) { return func(b *watchdog.Beat) { b.Busy = yes } }
	w.next()
	e.zero("Stalled of a worker that has become idle", w.next(busy(false)).Stalled)
	e.zero("Stalled of one that is idle", w.next().Stalled)
	before := w.next(busy(true))
	e.zero("Stalled of one that was idle", before.Stalled)
	e.counted("Stalled", stalledOf, before, w.next())
}

func quiet(e *env) {
	w := e.join("w", func(b *watchdog.Beat) { b.Turns, b.Busy, b.Pending, b.State = 5, false, 0, watchdog.Idle })
	before := e.look("w")
	for range 3 {
		after := w.next()
		e.counted("Quiet", quietOf, before, after)
		before = after
	}
	e.zero("Quiet after a turn", w.next(func(b *watchdog.Beat) { b.Turns++ }).Quiet)
	w.next()
	e.zero("Quiet after counting from the start again", w.next(func(b *watchdog.Beat) { b.Turns = 1 }).Quiet)
}

func quietNeeds(e *env) {
	w := e.join("w", func(b *watchdog.Beat) { b.Turns = 0 })
	e.zero("Quiet of a worker that never polls", w.next().Quiet)
	e.zero("Quiet of a worker that never polls", w.next().Quiet)
	w.next(func(b *watchdog.Beat) { b.Turns = 1 })
	handler := func(n uint64) func(*watchdog.Beat) { return func(b *watchdog.Beat) { b.Handler = n } }
	if r := w.next(); r.Quiet == 0 {
		e.Fatalf("Quiet is 0 after two beats with one turn")
	}
	e.zero("Quiet of a worker whose handler began", w.next(handler(3)).Quiet)
	e.zero("Quiet of a worker with a handler", w.next().Quiet)
	before := w.next(handler(0))
	e.zero("Quiet of a worker whose handler ended", before.Quiet)
	e.counted("Quiet", quietOf, before, w.next())
}

func running(e *env) {
	handler := func(n uint64) func(*watchdog.Beat) { return func(b *watchdog.Beat) { b.Handler = n } }
	w := e.join("w", handler(4))
	before := e.look("w")
	for range 3 {
		after := w.next()
		e.counted("Running", runningOf, before, after)
		before = after
	}
	e.counted("Running", runningOf, before, w.next(func(b *watchdog.Beat) { b.Position, b.Turns = 99, 99 }))
	e.zero("Running of another handler", w.next(handler(5)).Running)
	w.next()
	e.zero("Running without a handler", w.next(handler(0)).Running)
	e.zero("Running without a handler", w.next().Running)
}

func bounded(e *env) {
	w := e.join("w", func(b *watchdog.Beat) { b.Interval, b.Handler = 10*time.Millisecond, 1 })
	before := e.look("w")
	e.sleep(100 * time.Millisecond)
	after := w.next()
	if after.Stalled != 40*time.Millisecond || after.Running != 40*time.Millisecond {
		e.Fatalf("%v between two beats count as %v and %v, want four intervals, 40ms", after.BeatAt.Sub(before.BeatAt), after.Stalled, after.Running)
	}
	e.sleep(100 * time.Millisecond)
	if r := w.next(func(b *watchdog.Beat) { b.Interval = 5 * time.Millisecond }); r.Stalled != 60*time.Millisecond {
		e.Fatalf("Stalled is %v, want 60ms: the intervals are the beat's own", r.Stalled)
	}
}

func stateAt(e *env) {
	w := e.join("w")
	before := e.look("w")
	if r := w.next(); !r.StateAt.Equal(before.StateAt) {
		e.Fatalf("StateAt of the same state moved from %v to %v", before.StateAt, r.StateAt)
	}
	changed := w.next(func(b *watchdog.Beat) { b.State = watchdog.Parked })
	if !changed.StateAt.Equal(changed.BeatAt) {
		e.Fatalf("StateAt of another state is %v, and the beat came at %v", changed.StateAt, changed.BeatAt)
	}
	if r := w.next(); !r.StateAt.Equal(changed.StateAt) || r.Said != watchdog.Parked {
		e.Fatalf("StateAt is %v, want %v", r.StateAt, changed.StateAt)
	}
}

func countsFromZero(e *env) {
	turns := func(b *watchdog.Beat) { b.Turns, b.Handler = 1, 0 }
	w := e.join("w", turns)
	if r := w.next(); r.Stalled == 0 || r.Quiet == 0 {
		e.Fatalf("the record is %+v after two beats that say the same", r)
	}
	e.tick()
	again := e.join("w", turns)
	r := e.look("w")
	e.zero("Stalled of a new instance", r.Stalled)
	e.zero("Quiet of a new instance", r.Quiet)
	e.counted("Stalled", stalledOf, r, again.next())
}
