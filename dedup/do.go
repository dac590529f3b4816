package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// Do runs fn unless the effect of the message has happened before, and returns
// nil only if the effect is known to have happened, now or before. Acknowledge the
// message then. What to do with an error:
//
//   - Deliver again later: [ErrInFlight], another owner is at work, for
//     ClaimError.Claim.Left at most if that is known; [ErrUnavailable], the store
//     gave no answer; [ErrFull], it has no room; [ErrStale]; the context's error;
//     and what fn returned.
//   - Ask a person first: [ErrHeld], an owner vanished, or failed without knowing,
//     under Hold. Put the message where it can be found by its ID, and settle the
//     ID: see [Guard.Held].
//   - Put the message aside, since delivering again is of no use: [ErrConflict],
//     the ID is known with another fingerprint; [ErrInvalid], the request is
//     outside its range.
//
// The first three kinds of refusal are [*ClaimError]s. ErrStale means that fn ran,
// but the lease was lost meanwhile, or the ID was settled or forgotten by somebody
// else: the effect may have happened more than once. When fn ran and its
// completion could not be recorded, ErrUnavailable says so in its text; a
// redelivery runs it again under Rerun, and finds it held under Hold. What fn
// returned is joined to either.
//
// When fn returns an error, the claim is released under Rerun. Under Hold it is
// held, because a call that failed may have had its effect all the same, unless
// the error is wrapped in [NotDone], which releases. That includes an fn that
// fails because its context has ended: at shutdown, stop taking messages and let
// effects end, or return NotDone(ctx.Err()) where nothing was sent yet.
//
// fn's context carries the fencing token ([TokenFrom]). Do renews the lease for
// as long as fn runs, without limit, and waits for fn to return also when its
// context has ended: bound fn by a deadline of its own. When the lease is lost,
// the context is cancelled with a cause that wraps ErrStale. A panic in fn settles
// the claim as an error would and goes on. The claim is settled even when ctx has
// ended.
func (g *Guard) Do(ctx context.Context, r Request, fn func(context.Context) error) error {
	if fn == nil {
		return invalid("nil function")
	}
	_, err := g.do(ctx, r, fn, nil)
	return err
}

// DoValue is [Guard.Do] for an effect with a result, which is stored as JSON:
// a duplicate gets the value that the first call returned, decoded from it.
//
// A value that cannot be stored, because it does not encode or is larger than
// Options.ResultSize, is returned together with [ErrResult] or
// [*ResultSizeError]; the effect has then happened and is recorded, without the
// value. A duplicate whose stored result does not decode into T gets ErrResult;
// fn is not run again. After these two errors, and no others, acknowledge the
// message: another delivery would get ErrResult again.
func DoValue[T any](ctx context.Context, g *Guard, r Request, fn func(context.Context) (T, error)) (T, error) {
	var value T
	if fn == nil {
		return value, invalid("nil function")
	}
	var result []byte
	var lost error // why the value could not be stored
	stored, err := g.do(ctx, r, func(ctx context.Context) (err error) {
		if value, err = fn(ctx); err == nil {
			result, lost = encode(value, g.opts.ResultSize)
		}
		return err
	}, &result)
	switch {
	case err != nil:
		return value, err
	case lost != nil:
		return value, fmt.Errorf("dedup: %s: the effect has happened, but its value is not stored: %w", short(r.ID), lost)
	case stored == nil:
		return value, nil // fn has run
	}
	if err := json.Unmarshal(stored, &value); err != nil {
		var none T
		return none, fmt.Errorf("dedup: %s: the effect has happened before: %w: %w", short(r.ID), ErrResult, err)
	}
	return value, nil
}

// NotDone marks an error under the policy Hold: the effect certainly did not
// happen, so the claim may be released. NotDone(nil) is nil.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDone{err}
}

// TokenFrom returns the fencing token of the claim under which ctx was handed to
// an effect. Pass it to systems that can compare it with the last one they saw
// for the same ID and refuse a smaller one.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(uint64)
	return token, ok
}

type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

type tokenKey struct{}

// A run is one call of Do. It is the context that fn gets, too, so that a call
// costs few allocations.
type run struct {
	context.Context // cancelled when the lease is lost
	claim           Claim
	settlement      [1]Settlement
	lease           work.Lease[*run]
}

func (r *run) Value(key any) any {
	if key == (tokenKey{}) {
		return r.claim.Token
	}
	return r.Context.Value(key)
}

// do claims, runs fn and settles. When the effect had happened before, it
// returns the stored result, which is not nil. result points to what fn leaves
// to be stored.
func (g *Guard) do(ctx context.Context, r Request, fn func(context.Context) error, result *[]byte) (stored []byte, err error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	run := &run{}
	sent, err := g.acquire(ctx, r, run)
	if err != nil {
		return nil, err
	}
	if run.claim.State == Done {
		return append([]byte{}, run.claim.Result...), nil
	}
	run.Context, run.lease.Cancel = context.WithCancelCause(ctx)
	defer run.lease.Cancel(nil)
	if !g.bound {
		run.lease.Unit = run
		g.leases.Add(&run.lease, sent.Add(g.opts.Lease)) // no ask is granted before it is sent
		defer g.leases.Remove(&run.lease)
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or ended its goroutine
			if err := g.finish(ctx, run, errPanic, nil); err != nil {
				g.warn(ctx, "could not settle after a panic", r.ID, err)
			}
		}
	}()
	fnErr := fn(run)
	returned = true
	return nil, g.outcome(ctx, run, fnErr, g.finish(ctx, run, fnErr, result))
}

var errPanic = errors.New("panic")

// acquire claims for a run, and waits for a duplicate that is under way as long
// as the options say. It returns when the ask that was answered was first sent.
func (g *Guard) acquire(ctx context.Context, r Request, run *run) (sent time.Time, err error) {
	start, wait := time.Now(), 50*time.Millisecond
	for {
		sent = time.Now()
		ask := Ask{Request: r, Nonce: newNonce()}
		if run.claim, err = g.claimOne(ctx, &ask, false); err != nil {
			return sent, err
		}
		c := &run.claim
		if c.State == Acquired || c.State == Done {
			return sent, nil
		}
		left := g.opts.Wait - time.Since(start)
		if c.State != InFlight || left <= 0 || g.bound {
			return sent, &ClaimError{Claim: *c}
		}
		if err := pause(ctx, min(left, wait)); err != nil {
			return sent, fmt.Errorf("%w while waiting: %w", &ClaimError{Claim: *c}, err)
		}
		wait = min(2*wait, time.Second)
	}
}

// finish settles a run by what fn returned. Its error is the settlement's.
func (g *Guard) finish(ctx context.Context, run *run, fnErr error, result *[]byte) error {
	switch {
	case fnErr == nil && result != nil:
		run.settlement[0] = run.claim.Complete(*result)
	case fnErr == nil:
		run.settlement[0] = run.claim.Complete(nil)
	case g.opts.OnLapse == Hold && !errors.As(fnErr, new(*notDone)):
		run.settlement[0] = run.claim.Hold()
	default:
		run.settlement[0] = run.claim.Release()
	}
	if !g.bound {
		g.leases.Settling(&run.lease)
	}
	if errs := g.settle(ctx, run.settlement[:]); errs != nil {
		return errs[0]
	}
	return nil
}

// outcome is what Do returns after an effect and its settlement.
func (g *Guard) outcome(ctx context.Context, run *run, fnErr, err error) error {
	switch {
	case err == nil:
		return fnErr
	case fnErr == nil && errors.Is(err, ErrStale):
		g.warn(ctx, "an effect ran after its lease was lost; it may have happened more than once", run.claim.ID, err)
		return fmt.Errorf("dedup: the effect ran, but its lease was lost meanwhile: it may have happened more than once: %w", err)
	case fnErr == nil:
		g.warn(ctx, "an effect ran, but its completion is not known to be recorded", run.claim.ID, err)
		return fmt.Errorf("dedup: the effect ran, but its completion is not known to be recorded: %w", err)
	case g.bound:
		return fnErr // the transaction failed with it, and its rollback is the release
	}
	return errors.Join(fnErr, err)
}

// encode makes the result that duplicates will decode. A value that panics while
// it is encoded has had its effect all the same.
func encode(value any, most int) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("%w: the value panicked while it was encoded", ErrResult)
		}
	}()
	if result, err = json.Marshal(value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	if len(result) > most {
		return nil, &ResultSizeError{Size: len(result), Limit: most}
	}
	return result, nil
}
