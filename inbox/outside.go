package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A PayloadStore keeps bodies outside of the [Store]: in object storage, in files.
// It must be safe for concurrent use. A reference is 129 bytes of [0-9a-f-], made of
// hashes of the event's ID and of its content; the same reference always stands for
// the same content, though a sealed body is other bytes each time.
//
// The context of each call ends after Options.StoreTimeout at the latest, and the call
// must return then: the delivery or the key waits for it. A call that panics has failed.
type PayloadStore interface {
	// Put keeps a body, in place of one with the same reference. When it returns nil,
	// the body is durable. It does not keep the slice.
	Put(ctx context.Context, ref string, body []byte) error
	// Get returns a body.
	Get(ctx context.Context, ref string) ([]byte, error)
	// Delete removes a body. That there is none is no error.
	Delete(ctx context.Context, ref string) error
}

// A parcel is a body on its way outside.
type parcel struct {
	at      int // the arrival
	id, ref string
	body    []byte
	put     bool
}

// putAll keeps bodies outside before their events are accepted. A body is not put
// again when a record has it that was worked: its deletion may be under way. Nor is
// it when a record of the event was redacted: nothing should be left of that.
func (b *Box) putAll(ctx context.Context, parcels []*parcel) error {
	return b.eachParcel(parcels, func(p *parcel) error {
		known, err := b.store.List(ctx, Query{ID: p.id, N: maxPage})
		if err != nil {
			return err
		}
		for _, r := range known {
			worked := r.State != StatePending && r.State != StateConflict
			if r.Form&FormRedacted != 0 || worked && r.Form&FormOutside != 0 && string(r.Payload) == p.ref {
				return nil
			}
		}
		p.put = true
		return b.putOutside(ctx, p)
	})
}

// putRest keeps the bodies outside that putAll took for known, and that the store
// has taken all the same: the event was forgotten in between, or its content is
// another. Nothing is answered before that.
func (b *Box) putRest(ctx context.Context, parcels []*parcel, answers []Answer) error {
	return b.eachParcel(parcels, func(p *parcel) error {
		if p.put || answers[p.at] == Duplicate {
			return nil
		}
		return b.putOutside(ctx, p)
	})
}

func (b *Box) eachParcel(parcels []*parcel, do func(*parcel) error) error {
	errs := make([]error, len(parcels))
	b.each(len(parcels), func(i int) { errs[i] = do(parcels[i]) })
	for _, err := range errs {
		if err != nil {
			return err // one says enough
		}
	}
	return nil
}

func (c *core) putOutside(ctx context.Context, p *parcel) error {
	err := c.outside(ctx, func(ctx context.Context) error { return c.opts.Payloads.Put(ctx, p.ref, p.body) })
	if err != nil {
		return fmt.Errorf("%w: event %s: put: %w", ErrOutside, short(p.id), err)
	}
	return nil
}

func (c *core) fetch(ctx context.Context, ref string) (body []byte, err error) {
	if c.opts.Payloads == nil {
		return nil, errors.New("Options.Payloads is nil")
	}
	err = c.outside(ctx, func(ctx context.Context) (err error) {
		body, err = c.opts.Payloads.Get(ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// outside calls the payload store.
func (c *core) outside(ctx context.Context, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.StoreTimeout)
	defer cancel()
	defer func() {
		if recover() != nil {
			err = errors.New("the payload store panicked")
			c.warn(ctx, "the payload store panicked", "stack", stack())
		}
	}()
	if err := call(ctx); err != nil {
		return &payloadError{err}
	}
	return nil
}

// A payloadError keeps an error of the payload store without saying what it says,
// which may be an address with its query.
type payloadError struct{ err error }

func (e *payloadError) Error() string { return fmt.Sprintf("the payload store failed (%T)", e.err) }

func (e *payloadError) Unwrap() error { return e.err }

// Sweep looks at up to n records whose bodies are kept outside and whose time has
// come (Options.BodyRetention): it deletes those bodies and redacts their records. Then
// it lets the store sweep up to n records, if it is a [Sweeper], and returns how many
// the store removed. Call it now and then, from one place: nothing else removes what
// the retention has left behind. An error says what could not be done this time; the
// rest was, and the next call tries again.
func (b *Box) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, invalid("sweep of %d records", n)
	}
	if b.opts.Payloads != nil {
		err = b.sweepOutside(ctx, min(n, maxPage))
	}
	s, ok := b.store.(Sweeper)
	if !ok || ctx.Err() != nil {
		return 0, err
	}
	removed, swept := s.Sweep(ctx, n)
	if swept != nil {
		err = errors.Join(err, unavailable(ctx, "sweep", swept))
	}
	return removed, err
}

func (b *Box) sweepOutside(ctx context.Context, n int) error {
	b.sweeping.Lock()
	defer b.sweeping.Unlock()
	found, err := b.store.List(ctx, Query{Outside: true, After: b.swept, N: n})
	if err != nil {
		return unavailable(ctx, "list bodies to delete", err)
	}
	b.swept = 0
	if len(found) == n {
		b.swept = found[n-1].Seq // what fails does not hold up the others
	}
	errs := make([]error, len(found))
	b.each(len(found), func(i int) {
		r := &found[i]
		c := Change{Kind: ChangeRedact, Nonce: newNonce(), ID: r.ID, Seq: r.Seq, Actor: "inbox", Reason: "the retention has passed"}
		if err := b.redact(ctx, c); !errors.Is(err, ErrNotFound) {
			errs[i] = err
		}
	})
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	return errors.Join(errs[:min(len(errs), 3)]...)
}

// redact deletes the bodies outside of the records that a change is about, unless
// another record of the event needs them, and then redacts the records: what breaks
// off in between can be done again.
func (b *Box) redact(ctx context.Context, c Change) error {
	kept, err := b.deleteOutside(ctx, &c, nil)
	if err != nil {
		return err
	}
	if err := b.change(ctx, c); err != nil || len(kept) == 0 {
		return err
	}
	_, err = b.deleteOutside(ctx, &c, kept) // two at once may each have left it to the other
	return err
}

// forget deletes the bodies outside of an event, and then its records.
func (b *Box) forget(ctx context.Context, c Change) error {
	if _, err := b.deleteOutside(ctx, &c, nil); err != nil {
		return err
	}
	return b.change(ctx, c)
}

// deleteOutside deletes the bodies outside of the records that a change is about,
// and those named, if no other record of the event needs them. It returns those
// that one does.
func (b *Box) deleteOutside(ctx context.Context, c *Change, named []string) (kept []string, err error) {
	if b.opts.Payloads == nil {
		return nil, nil
	}
	records, err := b.store.List(ctx, Query{ID: c.ID, N: maxPage})
	if err != nil {
		return nil, unavailable(ctx, "list an event", err)
	}
	needed := map[string]bool{}
	for _, r := range records {
		switch {
		case r.Form&FormOutside == 0:
		case touches(c, &r):
			named = append(named, string(r.Payload))
		default:
			needed[string(r.Payload)] = true
		}
	}
	slices.Sort(named)
	for _, ref := range slices.Compact(named) {
		if needed[ref] {
			kept = append(kept, ref)
			continue
		}
		if err := b.outside(ctx, func(ctx context.Context) error { return b.opts.Payloads.Delete(ctx, ref) }); err != nil {
			return nil, fmt.Errorf("%w: event %s: delete: %w; the records are as they were", ErrOutside, short(c.ID), err)
		}
	}
	return kept, nil
}

// touches says whether a redaction or a forgetting takes the body of a record.
func touches(c *Change, r *Record) bool {
	return c.Kind == ChangeForget || (c.Seq == 0 || c.Seq == r.Seq) && r.State != StatePending
}

// each calls do for 0 to n-1: side by side, but in a transaction, which is for one
// goroutine.
func (b *Box) each(n int, do func(i int)) {
	if !b.bound {
		sideBySide(n, do)
		return
	}
	for i := range n {
		do(i)
	}
}

// sideBySide calls do for 0 to n-1, at most sixteen at once, and returns when all
// have returned.
func sideBySide(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 16)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			do(i)
		})
	}
	wg.Wait()
}
