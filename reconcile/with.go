package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// With returns a view of the ledger on another store, which is bound to a transaction of
// the caller: store.Tx(tx). What is recorded through it is recorded if the transaction
// commits, and otherwise not: [Ledger.Record], [Ledger.Confirm], [Ledger.Receipt],
// [Ledger.Resolve] and [Ledger.Forget]. It also reads what the transaction sees.
//
// [Ledger.Do] and [Ledger.Run] of a view fail with [ErrInvalid]: what is sent has to be
// recorded before, and a transaction that is still open records nothing.
//
// Nothing is joined and nothing sent again; like the transaction, the view is for one
// goroutine. It shares options, counters and hooks, which therefore also count what is
// rolled back. On a nil store, every call of the view fails with ErrInvalid.
func (l *Ledger) With(s Store) *Ledger {
	if isNil(s) {
		s = noStore{}
	}
	return &Ledger{core: l.core, store: s, bound: true}
}

var errBound = fmt.Errorf("%w: a view that is bound to a transaction sends nothing: Record the operation, or Confirm it", ErrInvalid)

// noStore stands for a nil store.
type noStore struct{}

var errNoStore = fmt.Errorf("%w: nil store in With", ErrInvalid)

func (noStore) Begin(context.Context, Params, []Ask) ([]Answer, error) { return nil, errNoStore }
func (noStore) Claim(context.Context, Params, ClaimAsk) ([]Entry, time.Duration, error) {
	return nil, 0, errNoStore
}
func (noStore) Settle(context.Context, Params, []Settlement) ([]error, error) { return nil, errNoStore }
func (noStore) List(context.Context, Query) ([]Entry, error)                  { return nil, errNoStore }
func (noStore) Counts(context.Context, string, string, bool, int) ([]Counts, error) {
	return nil, errNoStore
}

// Record writes an operation down for [Ledger.Run] to send, and sends nothing itself: in a
// view, together with the rest of the caller's transaction, so that an order and the message
// about it are both there or neither (https://microservices.io/patterns/data/transactional-outbox.html).
// Until it is sent it is Failed with Again and Attempts 0: it certainly did not happen. A Do
// with its key sends it, too.
//
// Nil means that the operation is recorded, by this call or another before, however it
// stands. [ErrConflict]: the key is known with another fingerprint. [ErrFull], [ErrInvalid]:
// nothing was recorded. [ErrUnavailable]: it may be recorded or not; record it again. In a
// view, roll back.
func (l *Ledger) Record(ctx context.Context, op Op) error {
	if err := op.validate(l.opts.PayloadSize); err != nil {
		return err
	}
	q := Ask{Op: op, Nonce: newNonce(), Later: true}
	q.Payload = l.seal(sealPayload, op.Key, op.Payload)
	a, err := l.later(ctx, q)
	if err == nil {
		err = a.Err
	}
	switch {
	case err == nil && a.Grant == Conflict:
		return fmt.Errorf("%w: %s, recorded as %v; nothing was changed", ErrConflict, short(op.Key), a.Entry.State)
	case err == nil && (a.Grant != AsIs || a.Entry.State == 0):
		err = fmt.Errorf("the store answered with grant %d", a.Grant)
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("reconcile: record %s: given up: %w", short(op.Key), err)
	}
	l.counts.errors.Add(1)
	return unavailable("record "+short(op.Key), err)
}

func (l *Ledger) later(ctx context.Context, q Ask) (Answer, error) {
	if !l.bound {
		return l.begins.Do(ctx, q)
	}
	as, err := l.store.Begin(ctx, l.params(), []Ask{q})
	if err == nil && len(as) != 1 {
		err = fmt.Errorf("the store answered %d of 1 asks", len(as))
	}
	if err != nil {
		return Answer{}, err
	}
	return as[0], nil
}

// Confirm records from within a call that its operation has happened, in the transaction
// that a view is bound to: an effect that is a write to the same database then happens
// exactly once. ctx is the call's.
//
//	call := func(ctx context.Context, op reconcile.Op) ([]byte, error) {
//		tx, err := begin(ctx)
//		... // the effect
//		if err := ledger.With(store.Tx(tx)).Confirm(ctx, nil); err != nil {
//			return nil, err // and roll back
//		}
//		return nil, tx.Commit(ctx)
//	}
//
// After nil, commit; the call returns nil only if it has committed. Where it cannot tell, it
// returns the error: the ledger then finds out whether the confirmation is recorded.
// [ErrStale]: the lease was lost, and another may do it; [*EndedError]: a receipt came
// first; roll back. It fails with [ErrInvalid] outside a call, with Options.Receipt, and on a
// result larger than Options.ResultSize.
func (l *Ledger) Confirm(ctx context.Context, result []byte) error {
	t, ok := ctx.Value(turnKey{}).(*turn)
	switch {
	case !ok:
		return invalid("confirmation outside a call; nothing was recorded")
	case !l.bound:
		return invalid("confirmation without a transaction: return nil from the call instead")
	case l.opts.Receipt:
		return invalid("confirmation of an operation that only its receipt confirms; nothing was recorded")
	case len(result) > l.opts.ResultSize:
		return invalid("result of %d bytes, at most %d; nothing was recorded", len(result), l.opts.ResultSize)
	case t.of != l.core:
		return invalid("confirmation of another ledger's operation; nothing was recorded")
	}
	err := l.settleOnce(ctx, Settlement{Verb: VerbConfirm, Key: t.entry.Key, Token: t.entry.Token, By: "call",
		Result: l.seal(sealResult, t.entry.Key, result)})
	if err == nil {
		t.confirmed.Store(true)
		return nil
	}
	if final(err) {
		return fmt.Errorf("%w: confirm %s; roll back", err, short(t.entry.Key))
	}
	return unavailable("confirm "+short(t.entry.Key), err)
}

// settleOnce settles through a view.
func (l *Ledger) settleOnce(ctx context.Context, s Settlement) error {
	errs, err := l.send(ctx, []Settlement{s})
	if err == nil && errs != nil {
		err = errs[0]
	}
	return err
}
