// Package backpressure keeps a service that is asked for too much doing what it
// can do: it admits at a rate, sheds the least important, degrades in steps and
// tells callers when to come back.
//
// There are four layers, each of use alone:
//
//  1. [Client] is for whoever calls: it waits as long as the other side asks.
//  2. [Shaper] has a token bucket for each line of business. An important line
//     takes the tokens of a lesser one, down to that line's floor. [Keyed] bounds
//     each of many customers, [Shared] one rate over many processes.
//  3. [Gate] admits by queueing time: when calls wait too long for a worker, the
//     least important are refused on arrival, so that the others are answered.
//  4. [Levels] watches a backlog and turns work down: slow clients, then smaller
//     media, then no writes but the core's.
//
// # What is promised
//
//   - A line admits at most its burst and its rate in any second, what it takes
//     from lesser lines included in theirs: the sum over all lines holds always.
//   - A line that has a floor is never denied it by a more important one.
//   - Callers that wait are served by importance, and first come first served
//     within a line. A caller that gives up leaves no debt.
//   - A gate that is not overloaded refuses nobody. Under overload, a call of a
//     class is refused before any of a more important class, apart from the time
//     it takes to find out: some tenths of a second.
//   - A user who is admitted is admitted to all calls of a task, as long as load
//     and capacity do not change.
//   - A level is left only when every signal is below its leave mark and has been
//     for the dwell. Every change is one event with its reason.
//   - Everything refused is counted. Every queue and table has a cap.
//
// # What is not
//
// A bucket is no queue: after idleness a line may admit its burst at once, and a
// rate is exact only over time longer than burst divided by rate. The gate needs
// something to queue: where requests never wait, as behind an unbounded pool of
// goroutines, it sees no overload. Its state is that of one process. Work that was
// admitted is not taken back.
//
// # Verdicts
//
// All layers answer with a [Verdict], which is a value: no is an expected answer.
// [Verdict.Err] makes an error of it. [Handler] answers HTTP with 429 or 503 and
// a Retry-After.
//
// # Sources
//
// Admission by queueing time, business and user priority: Zhou et al., Overload
// Control for Scaling WeChat Microservices, SoCC 2018 (https://arxiv.org/abs/1806.04075).
// The control law is another: it sets the rate that is admitted from the rate that
// is served, where the paper takes steps of a fixed size.
package backpressure

import (
	"fmt"
	"time"
)

// A Verdict is the answer to one call. The zero Verdict refuses.
type Verdict struct {
	// Admit says whether the call may go on.
	Admit bool
	// Level is that of the [Levels] asked, 0 to 3; 0 where none was.
	Level int
	// Degrade says what the call has to do without.
	Degrade Degrade
	// RetryAfter is when to ask again: no promise that it will be admitted then.
	// Zero: not known.
	RetryAfter time.Duration
	// Reason says why the call was refused. A gate in shadow mode admits and says
	// here why it would not have.
	Reason Reason
}

// Err returns nil if the call may go on, and a [*RefusedError] otherwise.
func (v Verdict) Err() error {
	if v.Admit {
		return nil
	}
	return &RefusedError{v}
}

// A Reason says why a call was refused.
type Reason uint8

const (
	// NoReason: it was not.
	NoReason Reason = iota
	// NoTokens: the line, or the key, has used up its rate.
	NoTokens
	// Queued: others of the line wait already, and nobody overtakes them.
	Queued
	// QueueFull: as many wait as may.
	QueueFull
	// CostInvalid: the cost is below one, or above the burst and so never admitted.
	CostInvalid
	// KeyInvalid: the key is empty, or longer than [MaxKey] bytes.
	KeyInvalid
	// Overload: calls wait too long for a worker, and this one is of the least
	// important.
	Overload
	// Expired: the deadline has passed, or would before the call's turn.
	Expired
	// GivenUp: the caller's context was cancelled.
	GivenUp
	// NonCore: the backlog leaves room for core writes only.
	NonCore
	// Paused: the host has asked not to be called for longer than the request may wait.
	Paused
	// StoreDown: the shared store gives no answer, and the policy is Closed.
	StoreDown
)

// String says the reason in words.
func (r Reason) String() string {
	switch r {
	case NoReason:
		return "not refused"
	case NoTokens:
		return "the rate is used up"
	case Queued:
		return "others wait already"
	case QueueFull:
		return "too many wait already"
	case CostInvalid:
		return "the cost is below one or above the burst"
	case KeyInvalid:
		return "the key is empty or too long"
	case Overload:
		return "overloaded"
	case Expired:
		return "too late for the deadline"
	case GivenUp:
		return "the caller has given up"
	case NonCore:
		return "closed for all but core writes"
	case Paused:
		return "the host wants no calls for too long a time"
	case StoreDown:
		return "the shared store gives no answer"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
