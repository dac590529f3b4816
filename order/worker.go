package order

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// A worker is one call of Run or RunTx.
type worker struct {
	buf    *Buffer
	opts   RunOptions
	handle func(context.Context, Message) error // of Run
	tx     TxHandler                            // of RunTx

	unanswered bool // the last claim had no answer, and is sent again as it was
	ask        Ask
}

// work runs the loop until ctx ends.
func (w *worker) work(ctx context.Context) error {
	o := &w.opts
	loop := work.New(work.Config[Claim]{
		Claim: w.claim, Left: func(c Claim) time.Duration { return c.Left },
		Run: w.run, Extend: w.extend, Lost: ErrStale, OnLost: w.buf.leaseLost, OnError: w.claimFailed, Draining: ErrDraining,
		Concurrency: o.Concurrency, Lease: o.Lease, Poll: o.Poll, Grace: o.Grace, Timeout: w.buf.opts.StoreTimeout,
	})
	w.buf.enlist(loop, true)
	defer w.buf.enlist(loop, false)
	if n := loop.Work(ctx); n > 0 {
		return fmt.Errorf("%w: %d of them, %v after their contexts had ended; their keys stay claimed until the leases lapse",
			ErrAbandoned, n, o.Grace)
	}
	return nil
}

// claim takes at most n keys. It is called by the loop alone, one call at a time.
func (w *worker) claim(ctx context.Context, n int) ([]Claim, time.Duration, error) {
	w.buf.reportSoon()
	if !w.unanswered {
		w.ask = Ask{Nonce: newNonce(), Messages: w.opts.Batch, Late: 1, Bytes: claimBytes, Lease: w.opts.Lease}
	}
	w.ask.Keys = n
	claimed, err := w.buf.store.Claim(ctx, w.buf.params(), w.ask)
	w.unanswered = err != nil
	if err != nil {
		return nil, 0, err
	}
	w.buf.counts.running.Add(int64(len(claimed.Claims)))
	return claimed.Claims, claimed.Next, nil
}

// claimBytes is how much payload of a key is taken at once.
const claimBytes = 1 << 20

func (w *worker) claimFailed(err error) {
	w.buf.counts.errors.Add(1)
	w.buf.warn(context.Background(), "could not look for work; trying again", "error", err)
}

func (w *worker) extend(ctx context.Context, claims []Claim) ([]error, error) {
	s := make([]Settlement, len(claims))
	for i, c := range claims {
		s[i] = Settlement{Kind: KindExtend, Key: c.Key, Token: c.Token, Epoch: c.Epoch, Lease: w.opts.Lease}
	}
	return w.buf.send(ctx, s)
}

// A run is a claimed key in the hands of a worker: it delivers, looks at the gap,
// hands over what is late, and then gives the key back with the last of its
// settlements. It is the handlers' context, too.
type run struct {
	context.Context
	w        *worker
	claim    *Claim
	draining <-chan struct{}
	settling func() // of the loop
	begun    time.Time

	pending []Settlement  // not sent yet, a cursor move at most once and first
	sent    time.Duration // from begun to when something was last recorded
	next    int           // the message of claim.Run that is to be delivered
	counted int           // those before it whose delivery is recorded
	stale   bool          // the key is not ours, or it is not known: nothing more is settled
	gone    bool          // the epoch was abandoned: nothing more of it is begun
	refused bool          // a settlement was answered with ErrStale
	given   bool          // the key was given back
	verdict Settlement    // how it is given back; no kind: released
	drop    []Settlement  // at most one, behind the verdict: see giveUp
	lates   int           // late messages that were handed over or are done with
}

type runKey struct{}

func (r *run) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// TokenFrom returns the fencing token under which a message was handed to a
// handler. Pass it to systems that can compare it with the last one they saw for
// the same key and refuse a smaller one.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	if r, is := ctx.Value(runKey{}).(*run); is {
		return r.claim.Token, true
	}
	return 0, false
}

// run works a claimed key. What follows a handler is deferred, because the
// handler may end its goroutine.
func (w *worker) run(ctx context.Context, c Claim, draining <-chan struct{}, settling func()) (again time.Duration) {
	defer w.buf.counts.running.Add(-1)
	r := &run{Context: ctx, w: w, claim: &c, draining: draining, settling: settling, begun: time.Now()}
	defer func() { again = r.giveBack() }()
	if closed(draining) {
		return
	}
	defer r.late()
	switch {
	case len(c.Run) == 0 && c.Gap != nil:
		r.gap()
	case w.tx != nil:
		r.deliverTx()
	default:
		r.deliver()
	}
	return
}

// stop says that nothing more may be begun.
func (r *run) stop() bool { return r.stale || r.gone || closed(r.draining) || r.Err() != nil }

func (r *run) settlement(k Kind) Settlement {
	return Settlement{Kind: k, Key: r.claim.Key, Token: r.claim.Token, Epoch: r.claim.Epoch}
}

// giveBack sends what is pending with the settlement that ends the claim, and says
// when there may be more to do.
func (r *run) giveBack() (again time.Duration) {
	if r.given {
		return r.whenNext()
	}
	if r.verdict.Kind == 0 {
		r.verdict = r.settlement(KindRelease)
		r.verdict.Unbegun = r.next < len(r.claim.Run)
	}
	r.settling()
	if r.flush(append([]Settlement{r.verdict}, r.drop...)...) {
		return r.whenNext()
	}
	if r.verdict.Kind == KindRelease || !r.refused {
		return work.Never
	}
	// It may be the message that has ended, outside of the buffer or by a person, and
	// not the lease.
	if errs := r.w.buf.settleAll([]Settlement{r.settlement(KindRelease)}); errs != nil && errs[0] != nil {
		return work.Never
	}
	return 0
}

// whenNext says when a key that was given back may be due again.
func (r *run) whenNext() time.Duration {
	switch {
	case r.lates < len(r.claim.Late):
		return 0
	case r.verdict.Delay > 0:
		return r.verdict.Delay
	case len(r.drop) > 0:
		return 0
	case r.verdict.Kind == KindPark && !r.claim.More:
		return work.Never
	case r.claim.More || r.next < len(r.claim.Run) || r.claim.Gap != nil:
		return 0
	}
	return r.w.buf.opts.firstLook() // at a gap that the cursor may have come to
}

// flush sends what is pending and then last, if it has a kind, in one step. It
// says whether all was applied; if not, nothing more is sent.
func (r *run) flush(last ...Settlement) bool {
	if r.lost() {
		return false
	}
	batch := append(r.pending, last...)
	r.pending = nil
	if len(batch) == 0 {
		return true
	}
	errs := r.w.buf.settleAll(batch)
	for i, s := range batch {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if s.Kind != KindPark || len(r.drop) == 0 { // it does not stay parked
			r.w.buf.settled(r, s, err)
		}
		switch {
		case s.Kind == KindDeliver:
			r.recorded(err)
		case s.Kind == KindSkip && err == nil:
			r.w.buf.skipped(r, s, batch[:i])
		case s.Kind == KindSkip && errors.Is(err, ErrStale):
			continue // the gap has changed; if the key is lost, the other answers say so
		}
		r.stale = r.stale || err != nil
		r.refused = r.refused || errors.Is(err, ErrStale)
	}
	if !r.stale { // otherwise it may still be on its way
		r.pending = batch[:0]
	}
	return !r.stale
}

// recorded counts the messages before r.next, unless their record failed or the
// store has another one of them.
func (r *run) recorded(err error) {
	if err != nil || r.counted == r.next {
		return
	}
	if gone, _ := r.abandoned(r.w.buf.store, r.claim.Run[r.next-1].Position); gone {
		r.gone, r.counted = true, r.next
		return
	}
	r.count()
}

// count counts the messages before r.next as delivered.
func (r *run) count() {
	r.w.buf.delivered(r, r.claim.Run[r.counted:r.next])
	r.counted = r.next
}

// abandoned says whether a message whose delivery the store has accepted is skipped
// in truth, because a new epoch abandoned its own: the cursor had passed it, and so
// the store took the delivery for one that was sent again.
func (r *run) abandoned(s Store, p Position) (bool, error) {
	b := r.w.buf
	if b.opts.OldEpoch != Abandon {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r), b.opts.StoreTimeout)
	defer cancel()
	found, err := b.findIn(ctx, s, []Place{{Key: r.claim.Key, Position: p}})
	if err != nil {
		b.counts.errors.Add(1)
		return false, err
	}
	if gone := found[0].State == StateSkipped || found[0].State == StateLate; !gone {
		return false, nil
	}
	b.warn(r, "an epoch was abandoned while its messages were handed over; they are recorded as skipped",
		"key", short(r.claim.Key), "epoch", p.Epoch, "number", p.Number)
	return true, nil
}

// lost says whether the key is not this worker's any more. What is pending is
// then not sent.
func (r *run) lost() bool {
	if !r.stale && r.Err() != nil && errors.Is(context.Cause(r), ErrStale) {
		r.stale = true
	}
	return r.stale
}

// settleAll sends settlements until they are answered, or the time for it is over.
func (b *Buffer) settleAll(s []Settlement) []error {
	if b.local {
		if errs, err := b.send(context.Background(), s); err == nil {
			return errs
		}
	}
	return b.settler.Settle(s...)
}

// send is one step of settling.
func (b *Buffer) send(ctx context.Context, s []Settlement) ([]error, error) {
	return b.sendTo(ctx, b.store, s)
}

func (b *Buffer) sendTo(ctx context.Context, store Store, s []Settlement) ([]error, error) {
	errs, err := store.Settle(ctx, b.params(), s)
	if err == nil && errs != nil && len(errs) != len(s) {
		return nil, fmt.Errorf("%d answers to %d settlements", len(errs), len(s))
	}
	return errs, err
}

// final says whether an error of a settlement is an answer.
func final(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrTooFar) || errors.Is(err, ErrInvalid)
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
