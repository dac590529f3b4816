package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// A worker is one call of Work.
type worker struct {
	box    *Box
	opts   WorkOptions
	handle func(context.Context, Record) Outcome

	unanswered bool // the last claim had no answer, and is sent again as it was
	ask        Ask

	letters atomic.Int64 // calls of the dead-letter function that have not returned
}

// claim takes at most n keys. It is called by the loop alone, one call at a time.
func (w *worker) claim(ctx context.Context, n int) ([]Claim, time.Duration, error) {
	if !w.unanswered {
		w.ask = Ask{Nonce: newNonce(), Stream: w.opts.Stream, Events: w.opts.Batch, Bytes: claimBytes, Lease: w.opts.Lease}
	}
	w.ask.Keys = n
	claimed, err := w.box.store.Claim(ctx, w.ask)
	w.unanswered = err != nil
	if err != nil {
		return nil, 0, err
	}
	w.box.counts.running.Add(int64(len(claimed.Claims)))
	return claimed.Claims, claimed.Next, nil
}

// claimBytes is how much payload of a key is taken at once.
const claimBytes = 1 << 20

func (w *worker) claimFailed(err error) {
	w.box.counts.errors.Add(1)
	w.box.warn(context.Background(), "could not look for work; trying again", "stream", w.opts.Stream, "error", err)
}

func (w *worker) extend(ctx context.Context, claims []Claim) ([]error, error) {
	s := make([]Settlement, len(claims))
	for i, c := range claims {
		s[i] = Settlement{Kind: KindExtend, Stream: c.Stream, Key: c.Key, Token: c.Token, Lease: w.opts.Lease}
	}
	return w.box.send(ctx, s)
}

// A run is a record in the hands of a handler. It is the handler's context, too.
type run struct {
	context.Context
	traced  context.Context // the same with the trace of the event; nil: without
	claim   *Claim
	record  *Record // opened, unless that failed
	last    bool    // of the claim
	outcome Outcome

	settling func() // of the loop
}

type runKey struct{}

func (r *run) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	if r.traced != nil {
		if v := r.traced.Value(key); v != nil {
			return v
		}
	}
	return r.Context.Value(key)
}

func (r *run) settlement(k Kind) Settlement {
	return Settlement{Kind: k, Stream: r.claim.Stream, Key: r.claim.Key, Token: r.claim.Token, ID: r.record.ID, Seq: r.record.Seq}
}

// run works the records of a claimed key, one after another, until one fails, or
// the worker drains, or there are no more.
func (w *worker) run(ctx context.Context, c Claim, draining <-chan struct{}, settling func()) (again time.Duration) {
	defer w.box.counts.running.Add(-1)
	if len(c.Records) == 0 || closed(draining) {
		settling()
		w.release(&c)
		return work.Never
	}
	claimed := time.Now()
	for i := range c.Records {
		record := &c.Records[i]
		if record.Form != 0 { // its opened body is not kept for the whole claim
			own := *record
			record = &own
		}
		r := &run{Context: ctx, claim: &c, record: record, last: i == len(c.Records)-1, settling: settling}
		if i > 0 {
			r.record.Attempts++ // it was begun in one step with the end of the one before
			r.record.Age += time.Since(claimed)
		}
		w.box.waited(*r.record)
		var next *Record
		if i+1 < len(c.Records) {
			next = &c.Records[i+1]
		}
		goOn := false
		if goOn, again = w.attempt(r, next, draining); !goOn {
			return again
		}
	}
	return work.Never
}

// attempt hands a record to the handler and settles it. It says whether the next
// record was begun, and if not, when the key may be due again.
func (w *worker) attempt(r *run, next *Record, draining <-chan struct{}) (goOn bool, again time.Duration) {
	start := time.Now()
	r.outcome = Failed(errExited)
	returned := false
	defer func() { // also when the handler panics or ends its goroutine
		if p := recover(); p != nil {
			returned = true
			r.outcome = Failed(fmt.Errorf("%w: %v", errPanic, p))
			w.box.counts.panics.Add(1)
			w.box.warn(r, "a handler panicked", "provider", r.record.Provider, "type", r.record.Type,
				"id", short(r.record.ID), "attempt", r.record.Attempts, "stack", stack())
		}
		took := time.Since(start)
		s := w.verdict(r)
		w.bury(r, &s)
		if !returned || closed(draining) || r.Err() != nil {
			next = nil
		}
		goOn, again = w.settle(r, s, next, took)
	}()
	err := w.box.open(r, r.record)
	switch {
	case r.record.Attempts > w.opts.MaxAttempts:
		r.outcome = w.overdue(r)
	case err != nil:
		r.outcome = Failed(err)
	default:
		r.traced = w.box.extract(r.Context, r.record.Trace) // not r, which asks it for its values
		r.outcome = w.handle(r, *r.record)
	}
	returned = true
	return
}

var errExited = errors.New("inbox: the handler ended its goroutine")

// settle records the outcome of a run, and in the same step begins the next
// record, or releases the key if there is none.
func (w *worker) settle(r *run, s Settlement, next *Record, took time.Duration) (goOn bool, again time.Duration) {
	batch := make([]Settlement, 1, 2)
	batch[0] = s
	follow := Settlement{Kind: KindRelease, Stream: s.Stream, Key: s.Key, Token: s.Token}
	if ends := s.Kind != KindRetry && s.Kind != KindRelease; ends {
		if next != nil {
			follow.Kind, follow.ID, follow.Seq = KindBegin, next.ID, next.Seq
		}
		batch = append(batch, follow)
	}
	if follow.Kind == KindRelease { // also when a retry releases the key
		r.settling()
	}
	errs := w.box.settler.Settle(batch...)
	if errs == nil {
		errs = make([]error, 2)
	}
	w.box.worked(r, *r.record, r.outcome, s, took, errs[0])
	switch {
	case errors.Is(errs[0], ErrStale):
		if w.release(r.claim) == nil { // it was the record that had ended, and not the lease
			return false, 0
		}
		return false, work.Never
	case errs[0] != nil:
		return false, work.Never
	case s.Kind == KindRetry:
		return false, s.Delay
	case s.Kind == KindRelease:
		return false, work.Never
	case follow.Kind == KindBegin && errors.Is(errs[1], ErrStale):
		if w.release(r.claim) == nil { // the next record was forgotten, or another one is before it now
			return false, 0
		}
		return false, work.Never
	case follow.Kind == KindBegin:
		return errs[1] == nil, work.Never
	case r.claim.More || !r.last:
		return false, 0
	}
	return false, work.Never
}

// verdict is what an outcome means for the record.
func (w *worker) verdict(r *run) Settlement {
	s := r.settlement(KindDone)
	switch o := r.outcome; o.kind {
	case done:
		return s
	case dead:
		s.Kind, s.Error = KindDead, o.text()
	case quarantined:
		s.Kind, s.Error = KindQuarantine, o.text()
	case unknown:
		s.Kind, s.Error = KindUnknown, o.text()
	default:
		s.Kind, s.Error, s.Delay = KindRetry, o.text(), w.backoff(r.record.Attempts)
		if o.kind == retried {
			s.Delay = o.after
		}
		switch {
		case errors.Is(context.Cause(r), ErrDraining): // it was interrupted: the next worker takes it at once
			return Settlement{Kind: KindRelease, Stream: s.Stream, Key: s.Key, Token: s.Token}
		case r.record.Attempts >= w.opts.MaxAttempts:
			s.Kind, s.Delay = KindDead, 0
		}
	}
	if s.Failures = r.record.Failures; r.record.Attempts <= w.opts.MaxAttempts { // otherwise this was no attempt
		s.Failures = failures(r.record, r.record.Attempts, s.Error)
	}
	return s
}

func (w *worker) backoff(attempts int) time.Duration {
	return w.opts.Backoff.Delay(attempts, rand.Uint64())
}

// release gives a key back, and returns nil if it was this worker's.
func (w *worker) release(c *Claim) error {
	errs := w.box.settler.Settle(Settlement{Kind: KindRelease, Stream: c.Stream, Key: c.Key, Token: c.Token})
	if errs == nil {
		return nil
	}
	return errs[0]
}

// send is one step of settling.
func (b *Box) send(ctx context.Context, s []Settlement) ([]error, error) {
	errs, err := b.store.Settle(ctx, b.params(), s)
	if err == nil && errs != nil && len(errs) != len(s) {
		return nil, fmt.Errorf("%d answers to %d settlements", len(errs), len(s))
	}
	return errs, err
}

// final says whether an error of a settlement is an answer.
func final(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) }

func (b *Box) enlist(l waker, in bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in {
		b.loops[l] = struct{}{}
	} else {
		delete(b.loops, l)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func newNonce() (n [16]byte) {
	a, b := rand.Uint64(), rand.Uint64() // ChaCha8, seeded by the system: unique, not secret
	for i := range 8 {
		n[i], n[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return n
}
