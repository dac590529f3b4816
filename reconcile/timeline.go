package reconcile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/authz"
)

// A Timeline keeps what was said about messages, as it was said: observations, in whichever
// order they arrive, contradictions included. What a message's status is follows from
// them by a [Projection], at any time and again.
//
// Appending the same observation again changes nothing. Nothing is overwritten: statuses
// are not guaranteed to arrive in order, and delivered and failed may both arrive
// (https://docs.ycloud.com/reference-link/whatsapp-message-updated-webhook-examples).
//
// What is not guaranteed: that what was said is true, or that all has arrived.
//
// Its methods are safe for concurrent use. Make one for each provider and keep many in a
// store: Kind tells them apart.
type Timeline struct {
	opts   TimelineOptions
	store  TimelineStore
	counts *[Overflow + 1]atomic.Uint64
}

// TimelineOptions set up a [Timeline]. The zero value of each field is a working default.
type TimelineOptions struct {
	// Kind separates this provider's observations from others: [A-Za-z0-9._-]{1,64}.
	// Empty means "default".
	Kind string
	// Project is the projection that [Timeline.Project] uses. Nil means MostInformative
	// of [WhatsAppStatuses].
	Project Projection
	// Ahead and Behind bound what a source may say of when something happened, against the
	// time of arrival: beyond them the time of arrival stands for it, and Observation.Absurd
	// is set. Zero means 5 minutes and 30 days.
	Ahead, Behind time.Duration
	// Most is how many observations of a message are kept. Zero means 256; the most is
	// 10,000. More are counted and not kept.
	Most int
	// Retention is for how long a message is kept after the last observation of it. Zero
	// means 90 days.
	Retention time.Duration
	// Authorize says who acts, before Forget is begun, or refuses. Nil: nobody may forget.
	Authorize func(ctx context.Context, a Action) (actor string, err error)
}

// NewTimeline returns a timeline over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range.
func NewTimeline(s TimelineStore, opts *TimelineOptions) (*Timeline, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	var o TimelineOptions
	if opts != nil {
		o = *opts
	}
	o.Kind = cmp.Or(o.Kind, "default")
	o.Ahead = cmp.Or(o.Ahead, 5*time.Minute)
	o.Behind = cmp.Or(o.Behind, 30*24*time.Hour)
	o.Most = cmp.Or(o.Most, 256)
	o.Retention = cmp.Or(o.Retention, 90*24*time.Hour)
	if o.Project == nil {
		o.Project = MostInformative(WhatsAppStatuses()...)
	}
	switch {
	case !validKind(o.Kind):
		return nil, invalid("kind of %d bytes, not [A-Za-z0-9._-]{1,64}", len(o.Kind))
	case o.Ahead < 0 || o.Ahead > MaxDuration || o.Behind < 0 || o.Behind > MaxDuration:
		return nil, invalid("ahead %v or behind %v, not 0 to %v", o.Ahead, o.Behind, MaxDuration)
	case o.Most < 1 || o.Most > 10_000:
		return nil, invalid("%d observations of a message, not 1 to 10000", o.Most)
	case o.Retention < minLease || o.Retention > MaxDuration:
		return nil, invalid("retention %v, not %v to %v", o.Retention, minLease, MaxDuration)
	}
	return &Timeline{opts: o, store: s, counts: new([Overflow + 1]atomic.Uint64)}, nil
}

// With returns a view of the timeline on another store, which is bound to a transaction of
// the caller, such as that in which a webhook is worked: what is appended through it is kept
// if the transaction commits. The view is for one goroutine, like the transaction. It shares
// options and counters, which also count what is rolled back. On a nil store, every call of
// the view fails with [ErrInvalid].
func (t *Timeline) With(s TimelineStore) *Timeline {
	if isNil(s) {
		s = noTimeline{}
	}
	return &Timeline{opts: t.opts, store: s, counts: t.counts}
}

// noTimeline stands for a nil store.
type noTimeline struct{}

func (noTimeline) Append(context.Context, TimelineParams, []Observation) ([]Appending, error) {
	return nil, errNoStore
}
func (noTimeline) Read(context.Context, TimelineParams, Ref) (History, error) {
	return History{}, errNoStore
}

// Append keeps observations, and says of each what became of it, in order. Each needs a
// Message or an Own, and a Status. One without an Event gets an ID made of what it says: two
// that say the same at the same second are then one.
//
// [ErrInvalid] fails the call before anything is stored; [ErrUnavailable] and the
// context's error mean that each may be stored or not: append them again.
func (t *Timeline) Append(ctx context.Context, os ...Observation) ([]Appending, error) {
	if len(os) == 0 {
		return nil, nil
	}
	kept := make([]Observation, len(os))
	for i, o := range os {
		if err := o.validate(); err != nil {
			return nil, fmt.Errorf("%w (observation %d of %d); nothing was stored", err, i+1, len(os))
		}
		o.Received, o.At, o.Absurd = time.Time{}, time.Time{}, false
		if y := o.Said.UTC().Year(); y < 1 || y > 9999 { // no store can keep it
			o.Said = time.Time{}
		}
		o.Said = o.Said.Truncate(time.Microsecond)
		o.Digest = o.digest()
		if o.Event == "" {
			o.Event = "said:" + hex.EncodeToString(o.Digest[:16])
		}
		kept[i] = o
	}
	as, err := t.store.Append(ctx, t.params(), kept)
	if err == nil && len(as) != len(os) {
		err = fmt.Errorf("the store answered %d of %d observations", len(as), len(os))
	}
	if err != nil {
		return nil, unavailable(fmt.Sprintf("append %d observations", len(os)), err)
	}
	for _, a := range as {
		t.counts[min(a, Overflow)].Add(1)
	}
	return as, nil
}

// Read returns all that is known of a message. A reference that nothing was said of has no
// observations.
func (t *Timeline) Read(ctx context.Context, ref Ref) (History, error) {
	if ref.Event == "" && ref.Message == "" && ref.Own == "" {
		return History{}, invalid("empty reference")
	}
	if err := ref.validate(); err != nil {
		return History{}, err
	}
	h, err := t.store.Read(ctx, t.params(), ref)
	if err != nil {
		return History{}, unavailable("read a message", err)
	}
	return h, nil
}

// Forget erases what [Timeline.Read] returns of a message, for a person's right to be
// forgotten, and says how many observations that were. What is said of it later is kept as
// if it were new. TimelineOptions.Authorize is asked first; without it the error is
// [ErrUnauthorized]. It fails with [ErrInvalid] if the store is no [TimelineForgetter].
func (t *Timeline) Forget(ctx context.Context, ref Ref) (n int, err error) {
	f, ok := t.store.(TimelineForgetter)
	switch {
	case !ok:
		return 0, invalid("the store %T cannot forget", t.store)
	case ref.Event == "" && ref.Message == "" && ref.Own == "":
		return 0, invalid("empty reference")
	}
	if err := ref.validate(); err != nil {
		return 0, err
	}
	if _, err := authz.Check(ctx, t.opts.Authorize, Action{Name: "forget", Kind: t.opts.Kind, Ref: ref}); err != nil {
		return 0, fmt.Errorf("reconcile: forget a message: %w", err)
	}
	if n, err = f.Forget(ctx, t.params(), ref); err != nil {
		return n, unavailable("forget a message", err)
	}
	return n, nil
}

// Project reads a message and applies Options.Project to what is known of it.
func (t *Timeline) Project(ctx context.Context, ref Ref) (Projected, error) {
	h, err := t.Read(ctx, ref)
	if err != nil {
		return Projected{}, err
	}
	p := t.opts.Project(h.Observations)
	p.Settled = p.Settled && h.Dropped == 0 && !h.More // what is not here might say otherwise
	return p, nil
}

// TimelineStats are what a timeline has counted since it was made.
type TimelineStats struct{ Appended, Repeated, Differs, Overflow uint64 }

// Stats returns a snapshot.
func (t *Timeline) Stats() TimelineStats {
	c := t.counts
	return TimelineStats{Appended: c[Appended].Load(), Repeated: c[Repeated].Load(), Differs: c[Differs].Load(), Overflow: c[Overflow].Load()}
}

func (t *Timeline) params() TimelineParams {
	return TimelineParams{Kind: t.opts.Kind, Ahead: t.opts.Ahead, Behind: t.opts.Behind, Most: t.opts.Most, Retention: t.opts.Retention}
}

func (o *Observation) validate() error {
	if err := o.Ref.validate(); err != nil {
		return err
	}
	switch {
	case o.Message == "" && o.Own == "":
		return invalid("observation of no message")
	case o.Status == "" || !validText(o.Status, 64):
		return invalid("status of %d bytes, not 1 to 64 of UTF-8 without NUL", len(o.Status))
	case !validText(o.Source, 64) || !validText(o.Code, 64) || !validText(o.Participant, MaxKey):
		return invalid("source, code or participant too long, or not UTF-8 without NUL")
	case phoneNumber(o.Participant):
		return invalid("a phone number as participant")
	}
	return nil
}

func (r *Ref) validate() error {
	for _, id := range []string{r.Event, r.Message, r.Own} {
		switch {
		case !validText(id, MaxKey):
			return invalid("ID of %d bytes, not 1 to %d of UTF-8 without NUL", len(id), MaxKey)
		case phoneNumber(id):
			return invalid("a phone number as reference")
		}
	}
	return nil
}

// phoneNumber finds numbers in international form, a plus and 7 to 15 digits
// (https://www.itu.int/rec/T-REC-E.164). Digits alone may be anything.
func phoneNumber(s string) bool {
	if len(s) < 8 || len(s) > 16 || s[0] != '+' {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// digest is of what is said, not of who heard it when.
func (o *Observation) digest() (sum [32]byte) {
	var b []byte
	for _, s := range []string{o.Message, o.Own, o.Status, o.Participant, o.Code} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, o.Said.Unix())
	return sha256.Sum256(b)
}
