package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pawl-go/pawl/internal/authz"
)

// An Operator does what a person decides about events that wait for one: those that
// are dead, quarantined, in conflict or unknown. Everything it does is first put to
// the application's Authorize function, then done, and then logged and told to the
// hook with actor and reason; what changes a record is kept with it too
// ([Record].Actions). Its methods are safe for concurrent use.
//
// It guards what goes through it. Who has the [Box] or the [Store] does not need it,
// so hand out the Operator, to an admin page or a command, and keep those.
//
// A change is sent again under the same nonce when the store does not answer, until
// Options.StoreTimeout. [ErrUnavailable] then means that it may have been made: to
// do it again is harmless, except that a replay of what was worked in between works
// it once more. [ErrNotFound] and [ErrState] are the store's: see [Store].Change.
type Operator struct {
	box       *Box
	authorize Authorize
	logger    *slog.Logger
}

// Authorize says who wants to do what, and whether they may: it returns the actor's
// name, 1 to 256 bytes of UTF-8 that are stored and logged, or an error, which
// refuses. No name and a panic refuse, too. It is called once for every call of an
// Operator, with its context, and nothing has been read or changed before.
type Authorize func(ctx context.Context, i Intent) (actor string, err error)

// An Intent is what somebody wants to do. Fields that the verb does not need are
// zero.
type Intent struct {
	Verb   Verb
	ID     string // of the event
	Seq    uint64 // of one of its records; zero: all
	Query  Query  // of VerbInspect
	State  State  // of VerbReplayState
	Stream string // of VerbReplayState; empty: all
	Reason string // why; the caller's words
}

// A Verb is what an [Operator] can do.
type Verb string

// The verbs.
const (
	VerbInspect     Verb = "inspect"
	VerbReveal      Verb = "reveal"
	VerbReplay      Verb = "replay"
	VerbReplayState Verb = "replay state"
	VerbResolve     Verb = "resolve"
	VerbRedact      Verb = "redact"
	VerbForget      Verb = "forget"
	VerbRedecode    Verb = "redecode"
)

// ErrUnauthorized says that Authorize refused. Nothing was read or changed.
var ErrUnauthorized = authz.ErrUnauthorized

// OperatorOptions set up an [Operator]. The zero value of each field is a working
// default.
type OperatorOptions struct {
	// Logger receives every action and every refusal. Nil: the box's Logger does.
	Logger *slog.Logger
}

// NewOperator returns an operator of a box. Nil options mean defaults. It fails with
// [ErrInvalid] without a box or without authorize: there is no operator whom nobody
// checks.
func NewOperator(b *Box, authorize Authorize, opts *OperatorOptions) (*Operator, error) {
	switch {
	case b == nil:
		return nil, invalid("nil box")
	case authorize == nil:
		return nil, invalid("nil authorize function: say who may do this")
	}
	o := &Operator{box: b, authorize: authorize, logger: b.opts.Logger}
	if opts != nil && opts.Logger != nil {
		o.logger = opts.Logger
	}
	return o, nil
}

// Inspect returns the records that a query selects, at most 1,000, in the order of
// acceptance. Begin behind the last one's Seq for the next page; fewer than q.N mean
// that there are no more. Payload and Context are empty: see Reveal. What it shows
// is personal data all the same: IDs, and the texts of errors.
func (o *Operator) Inspect(ctx context.Context, q Query) ([]Record, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	var records []Record
	err := o.act(ctx, Intent{Verb: VerbInspect, ID: q.ID, Query: q}, func(string) (err error) {
		records, err = o.box.closed(ctx, q)
		for i := range records {
			records[i].Payload, records[i].Context = nil, nil
		}
		return err
	})
	return records, err
}

// Reveal returns the records of an event with their bodies, as [Box.Get] does. The
// reason is logged and not kept with the event. None is [ErrNotFound].
func (o *Operator) Reveal(ctx context.Context, id, reason string) ([]Record, error) {
	i := Intent{Verb: VerbReveal, ID: id, Reason: reason}
	if err := i.validate(); err != nil {
		return nil, err
	}
	var records []Record
	err := o.act(ctx, i, func(string) (err error) {
		records, err = o.box.Get(ctx, id)
		if err == nil && len(records) == 0 {
			return fmt.Errorf("reveal event %s: %w", short(id), ErrNotFound)
		}
		return err
	})
	return records, err
}

// Replay makes records of an event that have ended pending again, under the event's
// own identity, so that the guards of its effects still know it: all of them, or the
// one with the number seq if that is not zero. Its attempts begin anew, it is worked
// behind all others of its key, and its failures stay. One that was done is worked again,
// too. Conflicts, bodies that were not decoded and redacted records cannot be replayed.
func (o *Operator) Replay(ctx context.Context, id string, seq uint64, reason string) error {
	return o.change(ctx, Intent{Verb: VerbReplay, ID: id, Seq: seq, Reason: reason})
}

// Resolve closes records that a person has dealt with otherwise: they are done, and
// are removed after the retention.
func (o *Operator) Resolve(ctx context.Context, id string, seq uint64, reason string) error {
	return o.change(ctx, Intent{Verb: VerbResolve, ID: id, Seq: seq, Reason: reason})
}

// Redact removes the bodies of records that have ended, wherever they are kept, and
// what was said about them. The identity stays, so that duplicates are known. Bodies
// that are outside go first, so a replay at the same moment may find none.
func (o *Operator) Redact(ctx context.Context, id string, seq uint64, reason string) error {
	return o.change(ctx, Intent{Verb: VerbRedact, ID: id, Seq: seq, Reason: reason})
}

// Forget removes an event with all its records, pending ones included, and its
// bodies, which go first. The event is new again if the provider sends it again. A
// handler that is at it is not stopped. What is kept of the action is in the log and
// with the hook. It succeeds when there is no such event.
func (o *Operator) Forget(ctx context.Context, id, reason string) error {
	return o.change(ctx, Intent{Verb: VerbForget, ID: id, Reason: reason})
}

// change makes the change that an intent is.
func (o *Operator) change(ctx context.Context, i Intent) error {
	if err := i.validate(); err != nil {
		return err
	}
	return o.act(ctx, i, func(actor string) error {
		c := Change{Nonce: newNonce(), ID: i.ID, Seq: i.Seq, Actor: actor, Reason: i.Reason}
		switch i.Verb {
		case VerbReplay:
			c.Kind = ChangeReplay
			return o.box.change(ctx, c)
		case VerbResolve:
			c.Kind = ChangeResolve
			return o.box.change(ctx, c)
		case VerbRedact:
			c.Kind = ChangeRedact
			return o.box.redact(ctx, c)
		}
		c.Kind = ChangeForget
		return o.box.forget(ctx, c)
	})
}

// act does what the application allows, and tells of it.
func (o *Operator) act(ctx context.Context, i Intent, do func(actor string) error) error {
	actor, err := authz.Check(ctx, func(ctx context.Context, i Intent) (string, error) { return o.authorize(ctx, i) }, i)
	if err != nil {
		err = fmt.Errorf("inbox: %s: %w", i.Verb, err)
		o.box.counts.unauthorized.Add(1)
	} else {
		err = do(actor)
		o.box.counts.actions.Add(1)
	}
	o.tell(ctx, &i, actor, err)
	if h := o.box.opts.Hooks; h != nil && h.Acted != nil {
		h.Acted(ctx, i, actor, err)
	}
	return err
}

func (o *Operator) tell(ctx context.Context, i *Intent, actor string, err error) {
	if o.logger == nil {
		return
	}
	args := []any{"verb", string(i.Verb), "actor", actor, "reason", i.Reason}
	if i.ID != "" {
		args = append(args, "id", short(i.ID), "seq", i.Seq)
	}
	if i.State != 0 {
		args = append(args, "state", i.State.String(), "stream", i.Stream)
	}
	switch panicked := (*authz.Panic)(nil); {
	case err == nil:
		o.logger.InfoContext(ctx, "inbox: an operator acted", args...)
	case errors.As(err, &panicked):
		o.logger.WarnContext(ctx, "inbox: an operator was refused, since the authorize function panicked", append(args, "stack", string(panicked.Stack))...)
	case errors.Is(err, ErrUnauthorized): // its own words are the application's
		o.logger.WarnContext(ctx, "inbox: an operator was refused", args...)
	default:
		o.logger.WarnContext(ctx, "inbox: an operator's action failed", append(args, "error", err)...)
	}
}

// change asks the store for a change until it answers.
func (b *Box) change(ctx context.Context, c Change) error {
	errs, err := b.changeAll(ctx, []Change{c})
	switch {
	case err != nil:
		return unavailable(ctx, c.Kind.String()+" event "+short(c.ID), err)
	case errs != nil && errs[0] != nil:
		return fmt.Errorf("%s event %s: %w", c.Kind, short(c.ID), errs[0])
	}
	return nil
}

func (b *Box) changeAll(ctx context.Context, changes []Change) (errs []error, err error) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		errs, err = b.store.Change(bounded, b.params(), changes)
		if err == nil && errs != nil && len(errs) != len(changes) {
			errs, err = nil, fmt.Errorf("%d answers to %d changes", len(errs), len(changes))
		}
		if err == nil || b.bound || errors.Is(err, ErrInvalid) {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-bounded.Done():
			timer.Stop()
			return nil, err
		}
	}
	if err == nil && !b.bound && changes[0].Kind == ChangeReplay {
		b.Wake()
	}
	return errs, err
}

// validate says what is wrong with an intent about one event.
func (i *Intent) validate() error {
	if err := validID("ID", i.ID); err != nil {
		return err
	}
	return validReason(i.Reason)
}

func validReason(reason string) error {
	if reason == "" || !validText(reason, MaxError) {
		return invalid("reason of %d bytes, not 1 to %d bytes of UTF-8 without NUL", len(reason), MaxError)
	}
	return nil
}

func (q *Query) validate() error {
	err := validPage(q.N)
	switch {
	case err != nil:
	case q.ID != "":
		err = validID("ID", q.ID)
	case q.MessageID != "":
		err = validField("message ID", q.MessageID)
	case q.ExternalID != "":
		err = validField("external ID", q.ExternalID)
	case q.State > StateUnknown || q.State == 0 && !q.Outside:
		err = invalid("a query that selects nothing: state %d", q.State)
	}
	return err
}
