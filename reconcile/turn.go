package reconcile

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// NotDone marks the error of a call: the operation certainly did not happen and may be
// sent again, as when no connection could be made. NotDone(nil) is nil.
func NotDone(err error) error { return mark(err, marked{}) }

// NotYet marks the error of a call as NotDone does, and says that the remote did answer: out
// of stock, say, or locked by somebody else. It is sent again, and is no sign of an outage.
// NotYet(nil) is nil.
func NotYet(err error) error { return mark(err, marked{answered: true}) }

// Refused marks the error of a call: the remote refused the operation, which did not
// happen and is not sent again. Refused(nil) is nil.
func Refused(err error) error { return mark(err, marked{refused: true, answered: true}) }

// TokenFrom returns the fencing token under which a call or a probe runs. Pass it to
// systems that can compare it with the last one they saw for the key and refuse a
// smaller one.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return 0, false
	}
	return t.entry.Token, true
}

// KeyFrom returns the key of the operation that a call or a probe is about.
func KeyFrom(ctx context.Context) (key string, ok bool) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return "", false
	}
	return t.entry.Key, true
}

// ResultFrom returns what is recorded of the remote's answer to the operation that a call or a
// probe is about, nil if nothing is: the remote's own ID of it, say, by which a probe of an
// Accepted operation can ask. It must not be written into.
func ResultFrom(ctx context.Context) []byte {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		return t.entry.Result
	}
	return nil
}

type turnKey struct{}

type marked struct {
	error
	refused  bool // it is not sent again
	answered bool // the remote said so
}

func (m *marked) Unwrap() error { return m.error }

func mark(err error, m marked) error {
	if err == nil {
		return nil
	}
	m.error = err
	return &m
}

// A turn is an operation that was granted, and what became of it.
type turn struct {
	of    *core
	entry Entry
	lease work.Lease[*turn]
	call  CallFunc
	probe ProbeFunc
	quiet bool // in Run: a panic is an error

	queued    bool        // it was due, and is the queue's
	resent    bool        // it was sent before, or may have been
	confirmed atomic.Bool // in a transaction of the call: see Ledger.Confirm

	// What it came to:
	state  State
	review string
	again  bool
	wait   time.Duration
	result []byte
	lost   error // why the result is not stored, or cannot be opened
	cause  error // of the call or the probe
	err    error // of the store
	// settling is called before the lease is given up; nil: nothing is.
	settling func()
}

func (l *Ledger) turn(e Entry, call CallFunc, probe ProbeFunc) *turn {
	return &turn{of: l.core, entry: e, call: call, probe: probe, state: e.State, review: e.Review, again: e.Again, result: e.Result, lost: e.Err}
}

// look finds out about a due operation, and sends it if that is what it comes to.
func (l *Ledger) look(ctx context.Context, t *turn) {
	var ev Evidence
	probed := false
	if t.probe != nil && t.entry.State != Failed {
		var err error
		if ev, err = l.ask(ctx, t); err != nil {
			t.cause = err
			if t.remotes(ctx) {
				l.outage.unanswered(l, ctx)
			}
			l.settle(ctx, t, Settlement{Verb: VerbDefer, By: "probe", Delay: l.opts.pause(t.entry.Looks + 1)})
			return
		}
		probed = true
		l.outage.answered(l, ctx)
	}
	a := l.opts.decide(&t.entry, probed, ev)
	s := Settlement{Verb: a.verb, By: "probe", Delay: a.delay, Looked: a.looked, Note: note(a.note)}
	if ev.Note != "" && a.note == "" {
		s.Note = note(ev.Note)
	}
	switch a.verb {
	case VerbSend:
		s.Lease = l.opts.Lease
		t.queued, t.resent = true, t.entry.Attempts > 0
		if l.settle(ctx, t, s); t.err == nil && t.state == Started {
			l.call(ctx, t, a.clean)
		}
	case VerbConfirm, VerbFail, VerbAccept:
		t.keep(ev.Result, l.opts.ResultSize)
		fallthrough
	default:
		l.settle(ctx, t, s)
	}
}

// call sends an operation, whose sending is recorded, and records what came of it.
// Clean: nothing that was sent before can have happened. Only then does it follow from
// what becomes of this attempt that the operation did not happen.
func (l *Ledger) call(ctx context.Context, t *turn, clean bool) {
	l.counts.sent.Add(1)
	if t.resent {
		l.counts.resent.Add(1)
	}
	returned, begun := false, ctx.Err() == nil
	defer func() {
		if !returned { // a panic, which goes on
			l.settle(ctx, t, Settlement{Verb: VerbDoubt, By: "call", Delay: l.opts.Quiet, Note: "the call panicked"})
		}
	}()
	result, err := l.attempt(ctx, t)
	returned = true
	t.cause = err
	s := Settlement{By: "call"}
	m := (*marked)(nil)
	isMarked := wraps(err, func(e error) (ok bool) { m, ok = e.(*marked); return ok })
	switch {
	case err == nil && t.confirmed.Load():
		s.Verb = VerbConfirm
	case err == nil && l.opts.Receipt, isError(err, ErrAccepted):
		s.Verb, s.Delay = VerbAccept, l.opts.Quiet
		t.cause = nil
	case err == nil:
		s.Verb = VerbConfirm
	case isMarked && clean && m.refused:
		s.Verb, s.Note = VerbFail, "refused"
	case isMarked && clean:
		s.Verb, s.Again, s.Note = VerbFail, true, "not sent, or not taken"
		if t.queued { // nobody but the queue sends it again
			s.Delay = l.opts.pause(t.entry.Attempts + 1)
		}
	case isMarked && m.refused:
		s.Verb, s.Note = VerbAsk, "refused when it was sent again; whether it happened before is not known"
	default:
		s.Verb, s.Delay, s.Note = VerbDoubt, max(l.opts.Quiet, l.opts.pause(t.entry.Attempts)), "no answer that says what happened"
	}
	switch {
	case err == nil || m != nil && m.answered || s.Verb == VerbAccept:
		l.outage.answered(l, ctx)
	case begun && t.remotes(ctx):
		l.outage.unanswered(l, ctx)
	}
	t.keep(result, l.opts.ResultSize)
	l.settle(ctx, t, s)
}

// remotes says that it is the remote's doing if there was no answer, and not that of
// whoever ended the context. In Run, the time that a remote had is its own.
func (t *turn) remotes(ctx context.Context) bool {
	return ctx.Err() == nil || t.quiet && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// keep notes a result, and that it is too large.
func (t *turn) keep(result []byte, most int) {
	if result == nil {
		return
	}
	t.result, t.lost = result, nil
	if len(result) > most {
		t.lost = &ResultSizeError{Size: len(result), Limit: most}
	}
}

// settle records what became of a turn, and what is known of it then.
func (l *Ledger) settle(ctx context.Context, t *turn, s Settlement) {
	s.Key, s.Token = t.entry.Key, t.entry.Token
	switch s.Verb {
	case VerbAccept, VerbConfirm, VerbFail:
		if t.lost == nil {
			s.Result = l.seal(sealResult, s.Key, t.result)
		} else {
			s.Note = t.lost.Error()
		}
	}
	if s.Verb != VerbSend {
		if t.settling != nil {
			t.settling()
		} else {
			l.leases.Settling(&t.lease)
		}
	}
	var err error
	if errs := l.settler.Settle(s); errs != nil {
		err = errs[0]
	}
	if errors.Is(err, ErrStale) && s.Verb != VerbConfirm && t.confirmed.Load() {
		// It may be that the call's transaction was committed, and said otherwise. Under this
		// token a confirmation is answered with nil then, and changes nothing in any case:
		// the token is stale, or has been used.
		c := Settlement{Verb: VerbConfirm, Key: s.Key, Token: s.Token, By: "call"}
		if errs := l.settler.Settle(c); errs == nil {
			s, err, t.cause = c, nil, nil
		}
	}
	ended := (*EndedError)(nil)
	switch {
	case err == nil:
		t.state = after(s, t.state)
		t.again = s.Again
		t.wait = s.Delay
		if s.Verb == VerbAsk {
			t.review = s.Note
		}
	case errors.As(err, &ended): // a receipt came first
		t.state, t.again, t.wait = ended.State, false, 0
		if s.Verb == VerbConfirm || s.Verb == VerbFail {
			l.contradicted(ctx, t, s)
		}
	default:
		t.err = err
	}
	l.settled(ctx, t, s, err)
}

// contradicted records what the owner of an operation says against a receipt, as a
// receipt of its own: contradictions are kept, and a person looks at them.
func (l *Ledger) contradicted(ctx context.Context, t *turn, s Settlement) {
	state := Confirmed
	if s.Verb == VerbFail {
		state = Failed
	}
	r := Settlement{Verb: VerbReceipt, Key: s.Key, Nonce: newNonce(), State: state, By: s.By, Note: s.Note}
	_ = l.settler.Settle(r)
	t.review = Contradicting
	l.counts.contradictions.Add(1)
	l.warn(ctx, "an operation ended in two ways; a person has to resolve it", s.Key, "recorded", t.state, "reported", state)
}

// after is the state that a settlement leads to.
func after(s Settlement, before State) State {
	switch s.Verb {
	case VerbAccept:
		return Accepted
	case VerbConfirm:
		return Confirmed
	case VerbFail:
		return Failed
	case VerbDoubt:
		return Unknown
	case VerbSend:
		return Started
	}
	if before == Started {
		return Unknown
	}
	return before
}

// attempt runs the call of a turn.
func (l *Ledger) attempt(ctx context.Context, t *turn) (result []byte, err error) {
	if ctx.Err() != nil {
		return nil, NotDone(context.Cause(ctx))
	}
	if t.quiet {
		defer recovered(&err)
	}
	return t.call(context.WithValue(ctx, turnKey{}, t), t.entry.Op)
}

// ask runs the probe of a turn.
func (l *Ledger) ask(ctx context.Context, t *turn) (ev Evidence, err error) {
	l.counts.probes.Add(1)
	if t.quiet {
		defer recovered(&err)
	}
	if ev, err = t.probe(context.WithValue(ctx, turnKey{}, t), t.entry.Op); err == nil && ev.Seen > SeenFailed {
		ev.Seen = SeenUnclear
	}
	return ev, err
}

var errPanic = errors.New("reconcile: the function panicked")

func recovered(err *error) {
	if recover() != nil { // what it said may hold anything
		*err = errPanic
	}
}
