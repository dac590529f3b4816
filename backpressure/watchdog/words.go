package watchdog

import (
	"fmt"
	"time"
)

// A State is what a worker is doing, or why it does nothing. The first are the
// worker's own words; HandlerTooLong, StoppedPolling and Unknown are the
// watchdog's.
type State uint8

const (
	// Unknown says that nobody can tell: the worker has said nothing for too long,
	// or the store gives no answer. It is the zero State.
	Unknown State = iota
	// Idle has nothing to do. It is not stuck, however long it lasts.
	Idle
	// Flowing has work, and works.
	Flowing
	// WaitingGap has work behind a gap that may still be filled. It is no zombie: a
	// restart would not bring the missing message.
	WaitingGap
	// HandlerTooLong has a handler that runs for longer than Options.HandlerLimit.
	// That alone is said, and nothing is done.
	HandlerTooLong
	// Parked has messages that a person has to look at, and nothing else to do.
	Parked
	// LeaseLost has lost what it had claimed to another worker.
	LeaseLost
	// StoppedPolling sends heartbeats, and its loop does not turn any more.
	StoppedPolling

	states
)

var stateNames = [...]string{"unknown", "idle", "flowing", "waiting for a gap", "handler too long", "parked", "lease lost", "stopped polling"}

// String returns the state's name.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// excused says that a worker in this state need not make progress.
func (s State) excused() bool { return s == Idle || s == WaitingGap || s == Parked }

// A Verdict is what a watchdog thinks of a worker.
type Verdict uint8

const (
	// Undecided says that the watchdog cannot tell: the store gave no answer, or it
	// has not watched for long enough. Nothing is done. It is the zero Verdict.
	Undecided Verdict = iota
	// Healthy sends its heartbeats, and stands still without a reason for less than the
	// limits.
	Healthy
	// Late has missed a heartbeat by more than a quarter of its interval, and not more
	// than Options.Missed of them.
	Late
	// Stuck has missed more than Options.Missed heartbeats, or sends them while its
	// loop has not turned for as long.
	Stuck
	// Zombie has had work for longer than Options.Zombie and not moved.
	Zombie
	// Gone has said goodbye.
	Gone

	verdicts
)

var verdictNames = [...]string{"undecided", "healthy", "late", "stuck", "zombie", "gone"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Bad says that the worker needs a restart.
func (v Verdict) Bad() bool { return v == Stuck || v == Zombie }

// A Worker is what a watchdog knows of one worker. Times are the store's.
type Worker struct {
	Name    string
	Verdict Verdict
	State   State         // why
	Silent  time.Duration // since the last heartbeat, as far as this watchdog has watched
	Missed  int           // heartbeats that did not come in that time

	Record // what the worker said last, and what was done about it
}

// Reason says in a sentence why the verdict is what it is. It holds no name, and
// not the worker's detail.
func (w *Worker) Reason() string {
	switch {
	case w.Verdict == Undecided:
		return "not watched for long enough, or the store gave no answer"
	case w.Verdict == Gone:
		return "said goodbye"
	case w.State == Unknown && w.Verdict == Stuck:
		return fmt.Sprintf("%d heartbeats missed in %v; it last said %q at position %d", w.Missed, w.Silent.Round(time.Millisecond), w.Record.Said, w.Position)
	case w.State == StoppedPolling:
		return fmt.Sprintf("the loop has not turned for %v", w.Quiet.Round(time.Millisecond))
	case w.Verdict == Zombie:
		return fmt.Sprintf("at position %d for %v with work to do: %v", w.Position, w.Stalled.Round(time.Millisecond), w.State)
	case w.State == HandlerTooLong:
		return fmt.Sprintf("a handler has run for %v", w.Running.Round(time.Millisecond))
	}
	return w.State.String()
}

// An Incident is one worker that needs a restart, and the one attempt that this
// watchdog was given to restart it.
type Incident struct {
	Worker  Worker
	Attempt int    // counts from 1
	Token   uint64 // rises with every attempt for this worker: who restarts it can refuse a lower one
}
