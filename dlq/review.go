package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pawl-go/pawl/internal/authz"
)

// A Review does what a person decides about letters. Everything it does is first put
// to the application's Authorize function, then done, and then logged and told to the
// hook with actor and reason; what it does is also kept in the audit, which nothing
// changes, except that somebody listed. Its methods are safe for concurrent use.
//
// A decision about a letter takes it from the worker that is trying it. That handler is
// not stopped, and holds the key until it returns; what comes of its try is not
// recorded, so a letter that was edited or approved meanwhile is tried once more.
//
// It guards what goes through it. Who has the [Queue] or the [Store] does not need it,
// so hand out the Review, to an admin page or a command, and keep those.
//
// A change is sent again under the same nonce when the store does not answer, until
// Options.StoreTimeout. [ErrUnavailable] then means that it may have been made: look
// again. [ErrNotFound], [ErrState] and [ErrChanged] are the store's: see
// [Store].Change.
type Review struct {
	queue     *Queue
	authorize Authorize
	logger    *slog.Logger
}

// Authorize says who wants to do what, and whether they may: it returns the actor's
// name, 1 to 256 bytes of UTF-8 that are stored and logged, or an error, which
// refuses. No name and a panic refuse, too. It is called once for every call of a
// Review, with its context, and nothing has been read or changed before.
type Authorize func(ctx context.Context, a Action) (actor string, err error)

// An Action is what somebody wants to do. Fields that the verb does not need are zero.
type Action struct {
	Verb   Verb
	Stream string // empty for VerbList of totals
	ID     string // of the letter
	Seq    uint64 // its number
	Job    string
	Query  Query  // of VerbList of letters, and of VerbRedrive: what it selects
	Reason string // the caller's words
}

// A Verb is what a [Review] can do.
type Verb string

// The verbs.
const (
	VerbList    Verb = "list" // letters without their contents, groups, totals, jobs
	VerbAudit   Verb = "audit"
	VerbReveal  Verb = "reveal"
	VerbEdit    Verb = "edit"
	VerbApprove Verb = "approve"
	VerbReject  Verb = "reject"
	VerbDiscard Verb = "discard"
	VerbSkip    Verb = "skip"
	VerbForget  Verb = "forget"
	VerbRedrive Verb = "redrive"
	VerbPause   Verb = "pause"
	VerbResume  Verb = "resume"
	VerbCancel  Verb = "cancel"
)

// A Ref names a letter, as somebody has seen it.
type Ref struct {
	Stream, ID string
	Seq        uint64
	// Digest is that of the content that was seen. If it is no longer the letter's, since
	// somebody has edited it, decisions about it are refused with [ErrChanged]: nobody
	// approves what he has not seen. Zero: whatever the content is; [Review.Edit] needs
	// it. Reveal and Forget do not look at it.
	Digest [32]byte
}

// Ref names the letter as it is here.
func (l *Letter) Ref() Ref { return Ref{l.Stream, l.ID, l.Seq, l.Digest} }

// ReviewOptions set up a [Review]. The zero value of each field is a working default.
type ReviewOptions struct {
	// Logger receives every action and every refusal. Nil: the queue's Logger does.
	Logger *slog.Logger
}

// NewReview returns a review of a queue. Nil options mean defaults. It fails with
// [ErrInvalid] without a queue or without authorize: there is no reviewer whom nobody
// checks.
func NewReview(q *Queue, authorize Authorize, opts *ReviewOptions) (*Review, error) {
	switch {
	case q == nil:
		return nil, invalid("nil queue")
	case authorize == nil:
		return nil, invalid("nil authorize function: say who may do this")
	}
	r := &Review{queue: q, authorize: authorize, logger: q.opts.Logger}
	if opts != nil && opts.Logger != nil {
		r.logger = opts.Logger
	}
	return r, nil
}

// A LetterPage is a part of a list of letters.
type LetterPage struct {
	Letters []Letter
	Next    uint64 // where to go on (Query.After); zero: there are no more
}

// List returns the letters that a query selects, at most 1,000, by ascending Seq,
// without payload and headers: see Reveal. What it shows is personal data all the
// same: IDs, keys, and the texts of errors.
func (r *Review) List(ctx context.Context, q Query) (LetterPage, error) {
	if err := q.validate(); err != nil {
		return LetterPage{}, err
	}
	q.Heads = true
	var page LetterPage
	err := r.act(ctx, Action{Verb: VerbList, Stream: q.Stream, ID: q.ID, Query: q}, func(string) error {
		p, err := r.queue.store.List(ctx, q)
		if err != nil {
			return unavailable(ctx, "list", err)
		}
		page.Next = p.Next
		for i := range p.Records {
			p.Records[i].Body, p.Records[i].Original = nil, nil
			page.Letters = append(page.Letters, r.queue.letter(&p.Records[i]))
		}
		return nil
	})
	return page, err
}

// Groups returns at most n groups of unresolved letters by fingerprint, ascending,
// beginning behind the fingerprint after; fewer than n mean that there are no more.
// List with Query.Fingerprint shows what failed.
func (r *Review) Groups(ctx context.Context, stream, after string, n int) ([]Group, error) {
	if err := errors.Join(validName("stream", stream), validPrint(after), validPage(n)); err != nil {
		return nil, err
	}
	var groups []Group
	err := r.act(ctx, Action{Verb: VerbList, Stream: stream}, func(string) (err error) {
		groups, err = r.queue.store.Groups(ctx, stream, after, n)
		return maybe(ctx, "list groups", err)
	})
	return groups, err
}

// Totals is [Queue.Totals] for persons.
func (r *Review) Totals(ctx context.Context, after string, n int) ([]Totals, error) {
	if err := errors.Join(validAfter("stream", after), validPage(n)); err != nil {
		return nil, err
	}
	var totals []Totals
	err := r.act(ctx, Action{Verb: VerbList}, func(string) (err error) {
		totals, err = r.queue.Totals(ctx, after, n)
		return err
	})
	return totals, err
}

// Audit returns the entries that a query selects, at most 1,000, in the order in which
// they were appended. The second result is where to go on (AuditQuery.After); zero:
// there are no more.
func (r *Review) Audit(ctx context.Context, q AuditQuery) (entries []Entry, next uint64, err error) {
	if err := errors.Join(validName("stream", q.Stream), validPage(q.N), validOptional("ID", q.ID), validAfter("job", q.Job)); err != nil {
		return nil, 0, err
	}
	err = r.act(ctx, Action{Verb: VerbAudit, Stream: q.Stream, ID: q.ID, Job: q.Job}, func(string) (err error) {
		entries, next, err = r.queue.store.Audit(ctx, q)
		return maybe(ctx, "read the audit", err)
	})
	return entries, next, err
}

// Reveal returns a letter with its content. That somebody looked, and why, is in the
// audit before the content is read.
func (r *Review) Reveal(ctx context.Context, ref Ref, reason string) (Letter, error) {
	if err := ref.validate(reason); err != nil {
		return Letter{}, err
	}
	var l Letter
	err := r.act(ctx, Action{Verb: VerbReveal, Stream: ref.Stream, ID: ref.ID, Seq: ref.Seq, Reason: reason}, func(actor string) error {
		c := ref.change(ChangeNote, actor, reason)
		c.Verb = string(VerbReveal)
		if err := r.queue.change(ctx, c); err != nil {
			return err
		}
		record, err := r.queue.find(ctx, ref.Stream, ref.ID, ref.Seq)
		if err == nil {
			l = r.queue.letter(&record)
		}
		return err
	})
	return l, err
}

// Edit replaces the content of an unresolved letter, payload and headers. The first
// content stays beside it (Letter.Original). An edited letter that waits is tried when
// it is due; one in review stays there, since editing does not approve.
func (r *Review) Edit(ctx context.Context, ref Ref, content Content, reason string) error {
	if err := r.queue.validContent(content); err != nil {
		return err
	}
	if ref.Digest == [32]byte{} {
		return invalid("no digest of the content that is edited")
	}
	return r.change(ctx, VerbEdit, ref, reason, func(c *Change) {
		c.Kind = ChangeEdit
		c.Body, c.After = r.queue.encode(ref.Stream, ref.ID, content)
	})
}

// Approve makes an unresolved letter due at once, with its failures at zero. It still
// waits for letters of its key that are before it.
func (r *Review) Approve(ctx context.Context, ref Ref, reason string) error {
	err := r.change(ctx, VerbApprove, ref, reason, func(c *Change) { c.Kind = ChangeApprove })
	if err == nil {
		r.queue.Wake()
	}
	return err
}

// Reject ends a letter that must not be worked. What is behind it of its key goes on.
func (r *Review) Reject(ctx context.Context, ref Ref, reason string) error {
	return r.end(ctx, VerbReject, ChangeReject, ref, reason)
}

// Discard ends a letter that is not wanted, or was dealt with otherwise. What is behind
// it of its key goes on.
func (r *Review) Discard(ctx context.Context, ref Ref, reason string) error {
	return r.end(ctx, VerbDiscard, ChangeDiscard, ref, reason)
}

// Forget removes a letter, in whichever state, for a person's right to be forgotten.
// The audit keeps that there was one, with its ID.
func (r *Review) Forget(ctx context.Context, ref Ref, reason string) error {
	return r.end(ctx, VerbForget, ChangeForget, ref, reason)
}

// Skip puts an unresolved letter aside, into review: what is behind it of its key goes
// on, and the letter, when it is approved, is worked beside the others and not in
// order.
func (r *Review) Skip(ctx context.Context, ref Ref, reason string) error {
	err := r.change(ctx, VerbSkip, ref, reason, func(c *Change) { c.Kind = ChangeSkip })
	if err == nil {
		r.queue.Wake()
	}
	return err
}

func (r *Review) end(ctx context.Context, v Verb, k ChangeKind, ref Ref, reason string) error {
	err := r.change(ctx, v, ref, reason, func(c *Change) { c.Kind = k })
	if err == nil {
		r.queue.unpin(ctx, ref.Stream, ref.ID)
		r.queue.Wake()
	}
	return err
}

func (r *Review) change(ctx context.Context, v Verb, ref Ref, reason string, set func(*Change)) error {
	if err := ref.validate(reason); err != nil {
		return err
	}
	return r.act(ctx, Action{Verb: v, Stream: ref.Stream, ID: ref.ID, Seq: ref.Seq, Reason: reason}, func(actor string) error {
		c := ref.change(0, actor, reason)
		if set(&c); c.Kind != ChangeForget {
			c.Before = ref.Digest
		}
		return r.queue.change(ctx, c)
	})
}

func (ref *Ref) change(k ChangeKind, actor, reason string) Change {
	return Change{Kind: k, Nonce: newNonce(), Stream: ref.Stream, ID: ref.ID, Seq: ref.Seq, Actor: actor, Reason: reason}
}

func (ref *Ref) validate(reason string) error {
	if ref.Seq == 0 {
		return invalid("a letter without number")
	}
	return errors.Join(validName("stream", ref.Stream), validID("ID", ref.ID), validReason(reason))
}

// change makes one change, or says that it was not or may have been made.
func (q *Queue) change(ctx context.Context, c Change) error {
	errs, err := q.changeAll(ctx, []Change{c})
	if err == nil && errs != nil {
		err = errs[0]
	}
	if err != nil {
		return unavailable(ctx, fmt.Sprintf("%v letter %s", c.Kind, short(c.ID)), err)
	}
	return nil
}

func (q *Queue) changeAll(ctx context.Context, changes []Change) (errs []error, err error) {
	err = q.again(ctx, func(ctx context.Context) (err error) {
		errs, err = q.store.Change(ctx, q.params(), changes)
		if err == nil && errs != nil && len(errs) != len(changes) {
			err = fmt.Errorf("%d answers to %d changes", len(errs), len(changes))
		}
		return err
	})
	return errs, err
}

// act does what the application allows, and tells of it.
func (r *Review) act(ctx context.Context, a Action, do func(actor string) error) error {
	q := r.queue
	actor, err := authz.Check(ctx, func(ctx context.Context, a Action) (string, error) { return r.authorize(ctx, a) }, a)
	if err != nil {
		err = fmt.Errorf("dlq: %s: %w", a.Verb, err)
		q.counts.unauthorized.Add(1)
	} else {
		err = do(actor)
		q.counts.actions.Add(1)
	}
	r.tell(ctx, &a, actor, err)
	if h := q.opts.Hooks; h != nil && h.Acted != nil {
		h.Acted(ctx, a, actor, err)
	}
	return err
}

func (r *Review) tell(ctx context.Context, a *Action, actor string, err error) {
	if r.logger == nil {
		return
	}
	args := []any{"verb", string(a.Verb), "stream", a.Stream, "actor", actor, "reason", a.Reason}
	if a.ID != "" {
		args = append(args, "id", short(a.ID), "seq", a.Seq)
	}
	if a.Job != "" {
		args = append(args, "job", a.Job)
	}
	var panicked *authz.Panic
	walk(err, func(e error) (more bool) {
		panicked, _ = e.(*authz.Panic)
		return panicked == nil
	})
	switch {
	case err == nil:
		r.logger.InfoContext(ctx, "dlq: a reviewer acted", args...)
	case panicked != nil:
		r.logger.WarnContext(ctx, "dlq: a reviewer was refused, since the authorize function panicked", append(args, "stack", string(panicked.Stack))...)
	case errors.Is(err, ErrUnauthorized): // its own words are the application's
		r.logger.WarnContext(ctx, "dlq: a reviewer was refused", args...)
	default:
		r.logger.WarnContext(ctx, "dlq: a reviewer's action failed", append(args, "error", err)...)
	}
}

// maybe wraps an error of the store.
func maybe(ctx context.Context, step string, err error) error {
	if err == nil {
		return nil
	}
	return unavailable(ctx, step, err)
}

func (q *Query) validate() error {
	if q.State > StateRejected {
		return invalid("state %d", q.State)
	}
	return errors.Join(validName("stream", q.Stream), validPage(q.N), validPrint(q.Fingerprint), validAfter("job", q.Job), validOptional("ID", q.ID),
		validOptional("key", q.Key), validTime("From", q.From), validTime("Until", q.Until))
}

func validOptional(what, id string) error {
	if id == "" {
		return nil
	}
	return validID(what, id)
}
