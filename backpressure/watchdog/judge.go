package watchdog

import "time"

// rules are what a watchdog judges by.
type rules struct {
	missed  int           // heartbeats that may be missed
	zombie  time.Duration // at one position, with work
	handler time.Duration // that a handler may run
}

// judge says what to think of a worker that has been silent for some time by the
// store's clock, of which the watchdog has watched a part. It is a pure function.
func (r *rules) judge(e Entry, silent, watched time.Duration) Worker {
	w := Worker{Name: e.Name, Record: e.Record, Silent: min(silent, watched)}
	if silent < 0 { // the store's clock has gone back
		w.Silent = watched
	}
	w.Missed = missed(w.Silent, e.Interval)
	switch {
	case e.Left:
		w.Verdict, w.State = Gone, e.Said
	case w.Missed > r.missed:
		w.Verdict = Stuck
	case missed(silent, e.Interval) > r.missed:
		w.Verdict = Undecided
	case e.Quiet > time.Duration(r.missed+1)*e.Interval:
		w.Verdict, w.State = Stuck, StoppedPolling
	case e.Stalled > r.zombie:
		w.Verdict, w.State = Zombie, r.state(&e)
	default:
		if w.Verdict, w.State = Healthy, r.state(&e); w.Silent > e.Interval+e.Interval/4 {
			w.Verdict = Late
		}
	}
	return w
}

// state is what a worker that speaks is doing.
func (r *rules) state(e *Entry) State {
	if e.Running > r.handler && e.Said != LeaseLost {
		return HandlerTooLong
	}
	return e.Said
}

// missed returns how many heartbeats are overdue. One that is due now is not missed.
func missed(silent, interval time.Duration) int {
	if silent <= 0 || interval <= 0 {
		return 0
	}
	return int((silent - 1) / interval)
}

// A watch measures for how long a watchdog has watched each worker in vain. Only
// time between two answers of the store counts, one right after the other, and only
// as much of it as has passed here as well. So workers that could not send a
// heartbeat, since the store was away, are not called stuck when it comes back; nor
// are they when its clock jumps, or when the watchdog was asleep.
type watch struct {
	total     time.Duration // that counted, since the beginning
	span      time.Duration // of it, between the last two answers
	now       time.Time     // the store's, of the last answer
	asked     time.Time     // before the last answer was asked for, on the monotonic clock
	answered  time.Time     // and when it came
	unbroken  bool          // the last question was answered
	sightings map[string]sighting
}

// A sighting is the last heartbeat of a worker that a watch has seen, and the total
// when it came.
type sighting struct {
	token, seq uint64
	at         time.Duration
	round      uint64
}

// slack is how much the store's clock and this one may differ between two answers.
const slack = time.Second

// answer notes an answer of the store.
func (w *watch) answer(now, asked, answered time.Time) {
	w.span = 0
	if w.unbroken {
		// The store read its clock between asked and answered.
		moved := now.Sub(w.now)
		if least, most := asked.Sub(w.answered), answered.Sub(w.asked); moved >= least-slack && moved <= most+slack {
			w.span = max(moved, 0)
		}
	}
	w.total += w.span
	w.now, w.asked, w.answered, w.unbroken = now, asked, answered, true
}

// broken notes that the store did not answer.
func (w *watch) broken() { w.unbroken = false }

// silent returns for how long the worker was watched without a heartbeat.
func (w *watch) silent(e *Entry, round uint64) time.Duration {
	s, known := w.sightings[e.Name]
	if !known || s.token != e.Token || s.seq != e.Seq {
		s = sighting{token: e.Token, seq: e.Seq, at: w.total - min(max(w.now.Sub(e.BeatAt), 0), w.span)}
	}
	s.round = round
	if w.sightings == nil {
		w.sightings = map[string]sighting{}
	}
	w.sightings[e.Name] = s
	return w.total - s.at
}

// forget drops the sightings of workers that the round did not see.
func (w *watch) forget(round uint64) {
	for name, s := range w.sightings {
		if s.round != round {
			delete(w.sightings, name)
		}
	}
}
