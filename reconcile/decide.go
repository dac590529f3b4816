package reconcile

import (
	"fmt"
	"time"
)

// An action is what a look at an operation comes to.
type action struct {
	verb   Verb
	clean  bool // VerbSend: nothing that was sent before has happened
	looked bool
	delay  time.Duration
	note   string
}

// decide says what to do about a due operation, of which a probe found ev, if there is
// one. It is pure: what it knows of time are the store's readings in the entry.
func (o *Options) decide(e *Entry, probed bool, ev Evidence) action {
	if e.State == Failed { // it certainly did not happen, and somebody wants it sent again
		return action{verb: VerbSend, clean: true}
	}
	switch ev.Seen {
	case SeenDone:
		return action{verb: VerbConfirm}
	case SeenFailed:
		return action{verb: VerbFail}
	case SeenPending:
		if age := e.Read.Sub(e.Sent); age > o.Patience {
			return ask("the remote has it, and says no outcome for %v", age.Round(time.Second))
		}
		if e.State == Accepted {
			return action{verb: VerbDefer, delay: o.patient(e)}
		}
		return action{verb: VerbAccept, delay: o.patient(e)}
	case SeenNothing:
		return o.absent(e)
	}
	switch {
	case o.Horizon > 0 && !o.expired(e):
		return action{verb: VerbSend}
	case o.Horizon > 0 && !probed:
		return ask("the remote may have forgotten the key, and nobody can ask it")
	case !probed:
		return ask("the remote knows no keys, and nobody can ask it")
	case e.Looks+1 >= o.MaxLooks:
		return ask("the remote answered %d times, and never so that it can be told what happened", e.Looks+1)
	}
	return action{verb: VerbDefer, looked: true, delay: o.pause(e.Looks + 1)}
}

// absent says what "not found" comes to. It counts when it was asked a settle time after
// the token had moved: e was read, by the claim, before the probe.
func (o *Options) absent(e *Entry) action {
	switch since := e.Read.Sub(e.Fenced); {
	case since < o.SettleTime:
		return action{verb: VerbDefer, delay: o.SettleTime - since, note: "not found, which does not count yet"}
	case o.Horizon > 0 && o.expired(e):
		return ask("the remote does not have it, and may have forgotten the key")
	case e.Attempts >= o.MaxSends:
		return ask("sent %d times, and the remote does not have it", e.Attempts)
	}
	return action{verb: VerbSend, clean: true}
}

// expired says that the remote may forget the key before a call that begins now has
// reached it.
func (o *Options) expired(e *Entry) bool { return e.Read.Sub(e.First)+o.Lease >= o.Horizon }

// pause is the time until the look that follows n of them.
func (o *Options) pause(n int) time.Duration { return max(o.Backoff.Delay(n, 0), time.Millisecond) }

// patient is the time until the next look at what is pending: the longer it is, the less
// often somebody asks.
func (o *Options) patient(e *Entry) time.Duration {
	return max(min(e.Read.Sub(e.Sent)/4, o.Backoff.Max()), o.pause(1))
}

func ask(format string, args ...any) action {
	return action{verb: VerbAsk, note: fmt.Sprintf(format, args...)}
}
