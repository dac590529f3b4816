package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// RunOptions set up [Queue.Run]. The zero value of each field is a working default;
// Stream is required.
type RunOptions struct {
	// Stream is what is worked.
	Stream string

	// Concurrency is how many letters are worked at once. Zero means 4: dead letters
	// have time, and what failed may be short of breath.
	Concurrency int

	// Timeout is the deadline of a handler. Zero means 1 minute.
	Timeout time.Duration

	// Return puts a message back into the normal flow under its original ID. With it,
	// the handler's run is a rehearsal ([Sandbox].Rehearsal), and when that passes, Return
	// is called and the letter is resolved: return nil only when the flow has the
	// message as safely as the letter is kept. It may be called more than once for a
	// letter, after a crash, so the normal flow must know the ID again, as it does for
	// redeliveries. The letter has the header [HeaderReturned], which lets it pass
	// [Queue.Park]. Whatever the flow does with the message, Put it again when it fails
	// there. Its ctx has the trace of the letter. An error or a panic is a failure of
	// the try. Nil: the handler's run is real, and resolves the letter.
	Return func(ctx context.Context, l Letter) error

	// Sandbox runs rehearsals within something that is undone. Nil: effects that are not
	// under [Effect] happen in them.
	Sandbox Wrap

	// Alert is told of a try that failed, once for each fingerprint of the stream and
	// AlertWindow, whichever process it failed in. The letter comes without payload and
	// headers. It must not block. It may be missed, by a crash: the log of the letter and
	// the groups of a [Review] have all. Nil: nobody is told.
	Alert func(ctx context.Context, l Letter, a Attempt)

	// AlertWindow is the time in which one alert is enough. Zero means 1 hour.
	AlertWindow time.Duration

	// Hold is asked before a redrive job releases letters: a reason that is not empty
	// lets all jobs of the stream wait, such as a level of backpressure. JobStatus.Why
	// shows it. It must not block; a panic holds, too. Nil: nothing holds them.
	Hold func() (reason string)

	// Lease is how long a key is held without renewal; it is renewed at every third.
	// Zero means 30 seconds; the least is one millisecond.
	Lease time.Duration

	// Poll is how often the store is asked for due letters when nothing wakes the worker,
	// and how often a running redrive job is looked at; a new one, made by another
	// process, is found within 10 seconds or Poll. Zero means 1 second.
	Poll time.Duration

	// Grace is how long running handlers have to end when ctx has ended. Zero means
	// 10 seconds.
	Grace time.Duration
}

// Run retries the letters of a stream as they become due, drives its redrive jobs and
// renews its pins, until ctx ends. Any number of processes may run at the same stream.
//
// The try is counted before handle runs, each in a sandbox: its context has a deadline,
// says so ([InSandbox]), and ends when the lease is lost, with a cause that wraps
// [ErrStale]; a panic is a failure. On success the letter is resolved. On failure it is
// due again after the next delay, or goes to review when its failures exceed
// Options.MaxFailures, or at once with [GiveUp].
//
// When ctx ends, nothing new is begun. Running handlers have Grace to end; then their
// contexts are cancelled with [ErrDraining], and their tries do not count. Run then
// returns nil, or [ErrAbandoned] if a handler has not returned after Grace once more.
// [ErrInvalid] is returned at once.
func (q *Queue) Run(ctx context.Context, handle HandlerFunc, opts *RunOptions) error {
	if handle == nil {
		return invalid("nil handler")
	}
	if q.bound {
		return invalid("run in a transaction")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	w := &worker{queue: q, opts: o, handle: handle}
	loop := work.New(work.Config[Claim]{
		Claim: w.claim, Left: func(c Claim) time.Duration { return c.Left },
		Run: w.run, Extend: w.extend, Lost: ErrStale, OnLost: q.leaseLost, OnError: w.claimFailed, Draining: ErrDraining,
		Concurrency: o.Concurrency, Lease: o.Lease, Poll: o.Poll, Grace: o.Grace, Timeout: q.opts.StoreTimeout,
	})
	q.enlist(loop, true)
	defer q.enlist(loop, false)
	var tending sync.WaitGroup
	defer tending.Wait()
	nudge := make(chan struct{}, 1)
	q.register(nudge, true)
	defer q.register(nudge, false)
	tending.Go(func() { q.driveJobs(ctx, &o, nudge) })
	if q.opts.Pin != nil {
		tending.Go(func() { q.keepPins(ctx, o.Stream) })
	}
	if n := loop.Work(ctx); n > 0 {
		return fmt.Errorf("%w: %d of them, %v after their contexts had ended; their keys stay claimed until the leases lapse",
			ErrAbandoned, n, o.Grace)
	}
	return nil
}

// Complete records the letter whose handler ctx was handed to as resolved, before the
// handler returns. On a queue that is bound to a transaction ([Queue.With]) the
// resolution commits with the effect, which is then not repeated: the handler returns
// nil after the commit, at once, since the key is free for others from then on, and the
// error of the transaction if it failed.
//
// The error is [ErrStale] if the lease of the key was lost, or a person changed the
// letter: roll back. [ErrInvalid] means that ctx is no handler's, or a rehearsal's.
func (q *Queue) Complete(ctx context.Context) error {
	b, ok := ctx.Value(boxKey{}).(*box)
	if !ok || b.claim == nil || b.rehearsal {
		return invalid("the context is not one that Run handed to a handler, or that of a rehearsal")
	}
	errs, err := q.send(ctx, []Settlement{settlementOf(KindResolve, b.claim)})
	if err == nil && errs != nil {
		err = errs[0]
	}
	return maybe(ctx, "complete letter "+short(b.claim.Record.ID), err)
}

// register lets nudge reach a call of Run.
func (q *Queue) register(nudge chan struct{}, in bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if in {
		q.nudges[nudge] = struct{}{}
	} else {
		delete(q.nudges, nudge)
	}
}

// nudge says that a redrive job has something to do.
func (q *Queue) nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.nudges {
		select {
		case n <- struct{}{}:
		default: // it will look anyway
		}
	}
}

func (q *Queue) enlist(l *loop, in bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if in {
		q.loops[l] = struct{}{}
	} else {
		delete(q.loops, l)
	}
}

// withDefaults returns a validated copy.
func (o *RunOptions) withDefaults() (RunOptions, error) {
	var c RunOptions
	if o != nil {
		c = *o
	}
	c.Concurrency = or(c.Concurrency, 4)
	c.Timeout = or(c.Timeout, time.Minute)
	c.AlertWindow = or(c.AlertWindow, time.Hour)
	c.Lease = or(c.Lease, 30*time.Second)
	c.Poll = or(c.Poll, time.Second)
	c.Grace = or(c.Grace, 10*time.Second)
	if err := validName("stream", c.Stream); err != nil {
		return c, err
	}
	switch {
	case c.Concurrency < 1 || c.Concurrency > maxPage:
		return c, invalid("concurrency %d, not 1 to %d", c.Concurrency, maxPage)
	case c.Timeout < 0 || c.Timeout > MaxDuration:
		return c, invalid("timeout %v", c.Timeout)
	case c.AlertWindow < time.Millisecond || c.AlertWindow > MaxDuration:
		return c, invalid("alert window %v, not %v to %v", c.AlertWindow, time.Millisecond, MaxDuration)
	case c.Lease < time.Millisecond || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, time.Millisecond, MaxDuration)
	case c.Poll < time.Millisecond || c.Grace < 0:
		return c, invalid("poll %v or grace %v", c.Poll, c.Grace)
	}
	return c, nil
}

// A worker is one call of Run.
type worker struct {
	queue  *Queue
	opts   RunOptions
	handle HandlerFunc

	unanswered bool // the last claim had no answer, and is sent again as it was
	ask        Ask
}

// claim takes at most n letters. It is called by the loop alone, one call at a time.
func (w *worker) claim(ctx context.Context, n int) ([]Claim, time.Duration, error) {
	if !w.unanswered {
		w.ask = Ask{Nonce: newNonce(), Stream: w.opts.Stream, Bytes: claimBytes, Lease: w.opts.Lease}
	}
	w.ask.N = n
	c, err := w.queue.store.Claim(ctx, w.ask)
	w.unanswered = err != nil
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for _, k := range c.Claims {
		size += len(k.Record.Body) + len(k.Record.Original)
	}
	if size >= claimBytes && len(c.Claims) < n {
		c.Next = 1 // there may be more at once
	}
	w.queue.counts.running.Add(int64(len(c.Claims)))
	return c.Claims, c.Next, nil
}

// claimBytes is how much body is taken at once.
const claimBytes = 4 << 20

func (w *worker) claimFailed(err error) {
	w.queue.counts.errors.Add(1)
	w.queue.warn(context.Background(), "could not look for due letters; trying again", "stream", w.opts.Stream, "error", err)
}

func (w *worker) extend(ctx context.Context, claims []Claim) ([]error, error) {
	s := make([]Settlement, len(claims))
	for i := range claims {
		s[i] = settlementOf(KindExtend, &claims[i])
		s[i].Lease = w.opts.Lease
	}
	return w.queue.send(ctx, s)
}

func settlementOf(k Kind, c *Claim) Settlement {
	return Settlement{Kind: k, Stream: c.Record.Stream, Lane: c.Lane, Token: c.Token, Seq: c.Record.Seq}
}

// run tries a claimed letter, and settles it.
func (w *worker) run(ctx context.Context, c Claim, draining <-chan struct{}, settling func()) (again time.Duration) {
	q := w.queue
	defer q.counts.running.Add(-1)
	select {
	case <-draining:
		settling()
		q.settler.Settle(settlementOf(KindRelease, &c))
		return work.Never
	default:
	}
	l := q.letter(&c.Record)
	start := time.Now()
	err := w.try(ctx, &c, l)
	took := time.Since(start)
	s := settlementOf(KindResolve, &c)
	var a Attempt
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), ErrDraining): // it was interrupted: the next worker takes it at once
		s.Kind = KindRelease
	default:
		a = q.attempt(err, nil)
		s.Failure = a.failure()
		s.Kind, s.Delay = KindRetry, q.delay(l.Tries+1, l.ID)
		if l.Tries > q.opts.MaxFailures || givenUp(err) {
			s.Kind, s.Delay = KindReview, 0
		}
	}
	settling()
	var fate error
	if errs := q.settler.Settle(s); errs != nil {
		fate = errs[0]
	}
	q.tried(ctx, l, s.Kind, took, err, fate)
	switch {
	case errors.Is(fate, ErrStale):
		if errs := q.settler.Settle(settlementOf(KindRelease, &c)); errs == nil || errs[0] == nil {
			return 0 // a person took the letter, and the lane was still ours
		}
		return work.Never
	case fate != nil:
		return work.Never
	case s.Kind == KindResolve:
		q.unpin(ctx, l.Stream, l.ID)
		return 0 // the next of the key
	case s.Kind == KindRelease:
		return work.Never
	}
	w.alert(ctx, l, a)
	if s.Kind == KindRetry {
		return s.Delay
	}
	return work.Never
}

// try hands a letter to the handler, unless its tries are spent, and puts it back if
// that was a rehearsal.
func (w *worker) try(ctx context.Context, c *Claim, l Letter) error {
	if l.Tries-1 > w.queue.opts.MaxFailures {
		return fmt.Errorf("dlq: the last of %d tries was interrupted and left no error", l.Tries-1)
	}
	b := &box{try: l.Tries, token: c.Token, claim: c, rehearsal: w.opts.Return != nil}
	err := w.queue.play(ctx, w.handle, l, b, w.opts.Timeout, w.opts.Sandbox)
	if err != nil || w.opts.Return == nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("dlq: not put back: %w", cause)
	}
	headers := map[string]string{HeaderReturned: fmt.Sprint(l.Seq)}
	for k, v := range l.Headers {
		if k != HeaderReturned {
			headers[k] = v
		}
	}
	l.Headers = headers
	bounded, cancel := context.WithTimeoutCause(ctx, w.opts.Timeout, errDeadline)
	defer cancel()
	traced := w.queue.extract(bounded, l.Headers)
	return apart(func() error { return w.opts.Return(traced, l) })
}

// alert tells of a failure, if it is the first of its kind in the window.
func (w *worker) alert(ctx context.Context, l Letter, a Attempt) {
	if w.opts.Alert == nil {
		return
	}
	q := w.queue
	alarm := []Alarm{{Nonce: newNonce(), Stream: l.Stream, Fingerprint: a.Fingerprint, Window: w.opts.AlertWindow}}
	var first []bool
	ctx = context.WithoutCancel(ctx)
	err := q.again(ctx, func(ctx context.Context) (err error) {
		first, err = q.store.Alert(ctx, alarm)
		return err
	})
	switch {
	case err != nil:
		q.counts.errors.Add(1)
		q.warn(ctx, "whether somebody was told of a failure is not known, so nobody is", "stream", l.Stream, "id", short(l.ID), "error", err)
		return
	case len(first) != 1 || !first[0]:
		return
	}
	q.counts.alerts.Add(1)
	l.Payload, l.Headers, l.Original = nil, nil, nil
	if err := guarded(func() error { w.opts.Alert(ctx, l, a); return nil }); err != nil {
		q.warn(ctx, "RunOptions.Alert panicked", "stream", l.Stream)
	}
}

// send is one step of settling.
func (q *Queue) send(ctx context.Context, s []Settlement) ([]error, error) {
	errs, err := q.store.Settle(ctx, q.params(), s)
	if err == nil && errs != nil && len(errs) != len(s) {
		return nil, fmt.Errorf("%d answers to %d settlements", len(errs), len(s))
	}
	return errs, err
}
