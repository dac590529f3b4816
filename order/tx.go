package order

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// A TxHandler delivers messages of one key in a transaction of the database that
// also holds the key's cursor: the effects and the cursor move commit together,
// which is what makes an effect happen once. Backends make one from a function
// for a single message: the method InTx of pgorder and of boltorder. [Buffer.RunTx]
// calls it.
//
// One call is one transaction, or several. In each, the handler works a few of
// run.Messages in order, each through [TxRun.Do], calls [TxRun.Settle] with the
// view of the store that is bound to the transaction, and commits. When a message
// fails, its own effects are rolled back to a savepoint, and those before it are
// settled and committed. When Settle fails, all is rolled back. When none was
// delivered, nothing is settled, and the transaction is rolled back. It rolls back
// by defer, since Settle may panic with the store.
//
// It returns how many of the messages, from the first on, are committed, and why
// it went no further: the error of Do, of Settle, or of the transaction. A commit
// whose fate is not known is an error, and its messages are not counted: the
// buffer asks the store what became of them. Fewer than all without an error mean
// that it is to be called again for the rest.
type TxHandler func(ctx context.Context, run *TxRun) (delivered int, err error)

// A TxRun is what a [TxHandler] delivers. It belongs to the call it is made for.
type TxRun struct {
	// Messages are at least one and at most RunOptions.PerTx, of one key, unbroken.
	Messages []Message

	run      *run
	last     bool // the claim has nothing behind Messages
	settled  int  // how many messages a transaction has settled, committed or not
	released bool // that transaction has released the key, too
}

// Do hands Messages[i] to fn, with the context of a handler ([TokenFrom]) and
// within RunOptions.Timeout, and returns its error. A panic of fn is an error. When
// fn ends the goroutine, so does Do, and the transaction has to be rolled back.
func (t *TxRun) Do(i int, fn func(ctx context.Context) error) error {
	return t.run.call(&t.Messages[i], func(ctx context.Context, _ Message) error { return fn(ctx) }, t.run.w.opts.Timeout)
}

// Settle records within the transaction that s is bound to that the first n of
// Messages are delivered. An error means that the transaction has to be rolled
// back: [ErrStale] if the key is no longer this worker's, or its epoch was abandoned.
func (t *TxRun) Settle(ctx context.Context, s Store, n int) error {
	if n < 1 || n > len(t.Messages) || isNil(s) {
		return invalid("settlement of %d of %d messages, or on a nil store", n, len(t.Messages))
	}
	r := t.run
	batch := make([]Settlement, 1, 2)
	batch[0] = r.settlement(KindDeliver)
	batch[0].From, batch[0].To = t.Messages[0].Position.Number, t.Messages[n-1].Position.Number+1
	release := t.last && n == len(t.Messages)
	if release { // saves a step of its own
		batch = append(batch, r.settlement(KindRelease))
		r.settling()
	}
	errs, err := r.w.buf.sendTo(ctx, s, batch)
	for _, e := range errs {
		err = orErr(err, e)
	}
	gone := false
	if err == nil {
		gone, err = r.abandoned(s, t.Messages[n-1].Position)
	}
	switch {
	case gone:
		r.gone = true
		return fmt.Errorf("order: settle %d messages of key %s: their epoch was abandoned: %w; roll back", n, short(batch[0].Key), ErrStale)
	case err == nil:
		t.settled, t.released = n, release
		return nil
	case errors.Is(err, ErrStale):
		r.stale = true
		return fmt.Errorf("order: settle %d messages of key %s: %w; roll back", n, short(batch[0].Key), err)
	}
	return unavailable(ctx, "settle messages of key "+short(batch[0].Key), err)
}

// deliverTx hands the messages of a run to a TxHandler, one transaction's worth
// after another, as deliver does.
func (r *run) deliverTx() {
	var t *TxRun
	var aged time.Duration // what was added to the ages
	defer func() {
		if t != nil { // the handler ends the goroutine
			r.committed(t, 0, errExited)
		}
	}()
	for r.next < len(r.claim.Run) && !r.stop() {
		rest := r.claim.Run[r.next:]
		if rest[0].Attempt > r.w.opts.MaxAttempts {
			r.park(&rest[0], errLost)
			return
		}
		n, rests := 0, false
		for n < min(len(rest), r.w.opts.PerTx) && !rests {
			if rests = r.paced(&rest[n]); !rests {
				n++
			}
		}
		if n == 0 {
			return
		}
		since := time.Since(r.begun)
		for i := range rest {
			rest[i].Age += since - aged
		}
		aged = since
		t = &TxRun{Messages: rest[:n:n], run: r, last: n == len(rest) && r.lates == len(r.claim.Late)}
		delivered, err := r.callTx(t)
		tx := t
		t = nil
		if !r.committed(tx, delivered, err) || rests {
			return
		}
	}
}

// callTx calls the handler. A panic is an error.
func (r *run) callTx(t *TxRun) (delivered int, err error) {
	defer func() {
		if p := recover(); p != nil {
			delivered, err = 0, fmt.Errorf("%w: %v", errPanic, p)
			r.w.buf.counts.panics.Add(1)
			r.w.buf.warn(r, "a transaction panicked", "key", short(r.claim.Key), "stack", string(debug.Stack()))
		}
	}()
	delivered, err = r.w.tx(r, t)
	if delivered < 0 || delivered > t.settled {
		return 0, invalid("a transaction of which %d messages were settled says that it delivered %d", t.settled, delivered)
	}
	if delivered == 0 && err == nil {
		err = errNothing
	}
	return delivered, err
}

var errNothing = errors.New("order: the transaction delivered nothing, and does not say why")

// committed notes what a call of the handler delivered, and says whether the run
// goes on.
func (r *run) committed(t *TxRun, delivered int, err error) bool {
	if delivered < t.settled {
		// A transaction was settled and is not known to be committed.
		switch inDoubt, ferr := r.wasDelivered(t.Messages[delivered].Position); {
		case ferr != nil:
			r.stale = true // nobody knows: the lease lapses
			r.w.buf.counts.errors.Add(1)
			r.w.buf.warn(r, "it is not known whether a transaction was committed; its key waits for the lease to lapse",
				"key", short(r.claim.Key), "error", ferr)
		case inDoubt:
			delivered = t.settled
		default:
			t.released = false
			r.stale = r.stale && errors.Is(err, ErrStale)
		}
	}
	r.next += delivered
	r.count()
	if t.released && delivered == t.settled {
		r.given = true
		return false
	}
	if err == nil {
		return true
	}
	if r.gone {
		return false // but the key is still ours, and is given back
	}
	if r.stale || errors.Is(err, ErrStale) {
		r.stale = true
		r.w.buf.counts.stale.Add(1)
		return false
	}
	if r.next < len(r.claim.Run) && delivered < len(t.Messages) {
		r.failed(&r.claim.Run[r.next], err)
		return false
	}
	return true
}

// wasDelivered asks the store whether a message has ended.
func (r *run) wasDelivered(p Position) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r), r.w.buf.opts.StoreTimeout)
	defer cancel()
	found, err := r.w.buf.findIn(ctx, r.w.buf.store, []Place{{Key: r.claim.Key, Position: p}})
	if err != nil {
		return false, err
	}
	return found[0].State == StateDelivered || found[0].State == StateSettled, nil
}
