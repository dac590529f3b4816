package inbox

import (
	"fmt"
	"time"
)

// An Outcome is what a handler says became of an event. Functions make them;
// the zero Outcome says that the handler did not know, and is a failure.
//
// The example named Dedup says which outcome each error of a dedup guard means.
type Outcome struct {
	kind  outcome
	after time.Duration
	err   error
}

type outcome uint8

const (
	failed outcome = iota
	done
	retried
	dead
	quarantined
	unknown
)

// Done says that the event is worked to its end.
func Done() Outcome { return Outcome{kind: done} }

// Failed says that the event was not worked, and may be tried again after the
// backoff of the options. After the last attempt it is dead.
func Failed(err error) Outcome { return Outcome{kind: failed, err: err} }

// OutcomeOf is Done if err is nil, and Failed otherwise.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done()
	}
	return Failed(err)
}

// Retry is Failed with a time of its own in place of the backoff: a server said
// when to come back. The attempt counts like any other. A negative time counts as
// zero.
func Retry(after time.Duration, err error) Outcome {
	return Outcome{kind: retried, after: min(max(after, 0), MaxDuration), err: err}
}

// Dead says that trying again is of no use. The event is kept, and its key goes
// on with the next.
func Dead(err error) Outcome { return Outcome{kind: dead, err: err} }

// Quarantine says that the handler does not understand the event: an unknown
// type, a version it has not been taught. The event is kept, and its key goes on
// with the next.
func Quarantine(err error) Outcome { return Outcome{kind: quarantined, err: err} }

// Unknown says that the handler cannot tell whether the effect happened, and that
// trying again could make it happen twice: a payment whose answer was lost. The
// event is kept until a person has looked and replays it or resolves it
// ([Operator]), however long that takes, and its key goes on with the next.
func Unknown(err error) Outcome { return Outcome{kind: unknown, err: err} }

// Err returns the error that the outcome was made with.
func (o Outcome) Err() error { return o.err }

// String returns the outcome's name, one of "done", "failed", "retry", "dead",
// "quarantine" and "unknown".
func (o Outcome) String() string {
	switch o.kind {
	case done:
		return "done"
	case retried:
		return "retry"
	case dead:
		return "dead"
	case quarantined:
		return "quarantine"
	case unknown:
		return "unknown"
	}
	return "failed"
}

// text is the outcome's error as it is stored.
func (o Outcome) text() (s string) {
	if o.err == nil {
		return "the handler gave no reason"
	}
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("an error of type %T whose text cannot be had", o.err)
		}
	}()
	return cut(o.err.Error())
}
