package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Do sends an operation unless it was sent before, and returns nil only if it is
// Confirmed, now or before. It is recorded before the call. What to do with an error:
//
//   - A [*StateError] says how the operation stands. [ErrAccepted] and [ErrUnknown]: it is in
//     the queue of [Ledger.Run], which finds out; do not send it another way.
//     [ErrStarted]: somebody else is at work on it, who may find that it was not sent: call
//     Do again later. [ErrFailed]: it certainly did not happen; another Do sends it again if
//     StateError.Again says so, and not otherwise.
//   - [ErrConflict]: the key is known with another fingerprint. Nothing was sent.
//   - [ErrUnavailable] before the call: nothing was sent, but the operation may be recorded
//     as if it had been. After the call, which the text says: what became of it is not
//     recorded, and it is Unknown once its lease has lapsed. [ErrFull], [ErrInvalid] and the
//     context's error: nothing was sent.
//   - [ErrStale]: the lease was lost while the call ran, and somebody else has taken the
//     operation over. What the call returned is not recorded.
//
// An operation that is Accepted or Unknown, and due, is looked at: if probe is not nil the
// remote is asked, and call is used only where the rules of the compensation queue allow
// it to be sent again (see the package). Before it is due, and without either, Do
// returns how it stands.
//
// The lease is renewed for as long as call runs; bound it by a deadline of its own. A
// panic in call leaves the operation Unknown and goes on; so does one in probe. The
// outcome is recorded even when ctx has ended.
func (l *Ledger) Do(ctx context.Context, op Op, call CallFunc, probe ProbeFunc) error {
	_, err := l.DoResult(ctx, op, call, probe)
	if _, confirmed := err.(*resultError); confirmed { // and not one that it wraps
		return nil
	}
	return err
}

// DoResult is [Ledger.Do] and returns the stored result of a Confirmed operation, which is
// what the call or the receipt that confirmed it brought. A result larger than
// Options.ResultSize is returned by the call that made it, with a [*ResultSizeError]: the
// operation is Confirmed then, without its result, and so it is with [ErrSealed], when the
// stored result cannot be opened.
func (l *Ledger) DoResult(ctx context.Context, op Op, call CallFunc, probe ProbeFunc) ([]byte, error) {
	if call == nil {
		return nil, invalid("nil call")
	}
	if l.bound {
		return nil, errBound
	}
	if err := op.validate(l.opts.PayloadSize); err != nil {
		return nil, err
	}
	asked := time.Now()
	a, err := l.beginOne(ctx, op)
	if err != nil {
		return nil, err
	}
	e := &a.Entry
	e.Err = l.open(e)
	switch a.Grant {
	case Conflict:
		return nil, fmt.Errorf("%w: %s, recorded as %v; nothing was sent", ErrConflict, short(op.Key), e.State)
	case AsIs:
		return l.outcome(l.asItIs(e))
	}
	t := l.turn(*e, call, probe)
	t.entry.Op = op // what the caller has now; the fingerprint says that it is the same
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.lease.Unit, t.lease.Cancel = t, cancel
	l.leases.Add(&t.lease, asked.Add(l.opts.Lease))
	defer l.leases.Remove(&t.lease)
	if a.Grant == Send {
		t.resent = e.Attempts > 1
		l.call(own, t, true)
	} else {
		l.look(own, t)
	}
	return l.outcome(t)
}

// asItIs is an operation that nobody was granted.
func (l *Ledger) asItIs(e *Entry) *turn {
	t := l.turn(*e, nil, nil)
	switch {
	case e.Left > 0:
		t.wait = e.Left
		if e.State != Accepted && !e.State.Ended() {
			t.state = Started // somebody is at work
		}
	case e.State == Started:
		t.state = Unknown
		fallthrough
	default:
		t.wait = max(e.Due.Sub(e.Read), 0)
		if e.Due.IsZero() {
			t.wait = 0
		}
	}
	return t
}

// outcome is what Do returns of a turn.
func (l *Ledger) outcome(t *turn) ([]byte, error) {
	switch {
	case t.err != nil:
		if errors.Is(t.err, ErrStale) {
			return nil, joined(fmt.Errorf("%w: %s was taken over while it was worked here; what came of that is not recorded", t.err, short(t.entry.Key)), t.cause)
		}
		return nil, joined(fmt.Errorf("%w; it is Unknown once its lease has lapsed", unavailable("record what became of "+short(t.entry.Key), t.err)), t.cause)
	case t.state == Confirmed && t.lost != nil:
		return t.result, &resultError{t.entry.Key, t.lost}
	case t.state == Confirmed:
		return t.result, nil
	}
	return nil, &StateError{State: t.state, Key: t.entry.Key, Wait: t.wait, Review: t.review, Again: t.state == Failed && t.again,
		Age: t.entry.Age(), Cause: t.cause}
}

// A resultError says of an operation that is Confirmed why its result is not to be had.
type resultError struct {
	key string
	err error
}

func (e *resultError) Error() string {
	return fmt.Sprintf("reconcile: %s is confirmed, but its result is not to be had: %v", short(e.key), e.err)
}

func (e *resultError) Unwrap() error { return e.err }

func joined(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// beginOne asks for one operation, and once more if no answer came.
func (l *Ledger) beginOne(ctx context.Context, op Op) (Answer, error) {
	q := Ask{Op: op, Nonce: newNonce()}
	q.Payload = l.seal(sealPayload, op.Key, op.Payload)
	a, err := l.begins.Do(ctx, q)
	if err == nil {
		err = a.Err
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrFull) {
		if a, err = l.begins.Do(ctx, q); err == nil {
			err = a.Err
		}
	}
	switch {
	case err == nil && (a.Grant < AsIs || a.Grant > Look || a.Entry.State == 0):
		err = fmt.Errorf("the store answered with grant %d", a.Grant)
	case err == nil:
		return a, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return Answer{}, fmt.Errorf("reconcile: begin %s: given up, nothing was sent: %w", short(op.Key), err)
	}
	l.counts.errors.Add(1)
	return Answer{}, unavailable("begin "+short(op.Key)+", nothing was sent", err)
}

// begin answers the joined calls of many goroutines.
func (l *Ledger) begin(ctx context.Context, asks []Ask, _ func(int) bool) ([]Answer, error) {
	return l.store.Begin(ctx, l.params(), asks)
}

// orphan gives back what was granted to a caller that gave up, and sent nothing.
func (l *Ledger) orphan(q Ask, a Answer, err error) {
	if err != nil || a.Err != nil || a.Grant != Send && a.Grant != Look {
		return // nobody knows; a grant lapses
	}
	s := Settlement{Verb: VerbFail, Again: true, Key: q.Key, Token: a.Entry.Token, By: "call", Note: "given up before it was sent"}
	if a.Grant == Look {
		s.Verb, s.Again = VerbDefer, false
	}
	go l.settler.Settle(s)
}

// send settles a batch, and takes an answer that is none for what it is.
func (l *Ledger) send(ctx context.Context, s []Settlement) ([]error, error) {
	errs, err := l.store.Settle(ctx, l.params(), s)
	if err == nil && errs != nil && len(errs) != len(s) {
		return nil, fmt.Errorf("the store answered %d of %d settlements", len(errs), len(s))
	}
	return errs, err
}

// extend renews the leases of turns.
func (l *Ledger) extend(ctx context.Context, turns []*turn) ([]error, error) {
	s := make([]Settlement, len(turns))
	for i, t := range turns {
		s[i] = Settlement{Verb: VerbExtend, Key: t.entry.Key, Token: t.entry.Token, Lease: l.opts.Lease}
	}
	return l.send(ctx, s)
}

func newNonce() (n [16]byte) {
	a, b := rand.Uint64(), rand.Uint64() // ChaCha8, seeded by the system: unique, not secret
	for i := range 8 {
		n[i], n[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return n
}
