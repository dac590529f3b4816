package order

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// recordEvery is how long a delivery of a run may wait for its record while the
// run goes on.
const recordEvery = 100 * time.Millisecond

// deliver hands over the messages of a run, in order, until one fails, or the
// worker drains, or there are no more.
func (r *run) deliver() {
	calling := false
	defer func() {
		if calling { // the handler ends the goroutine
			r.failed(&r.claim.Run[r.next], errExited)
		}
	}()
	for at := time.Duration(0); r.next < len(r.claim.Run) && !r.stop(); {
		m := &r.claim.Run[r.next]
		if m.Attempt > r.w.opts.MaxAttempts {
			r.park(m, errLost)
			return
		}
		if r.paced(m) {
			return
		}
		if r.w.opts.Mode == AtMostOnce {
			r.deliverAtMostOnce(m)
			continue
		}
		m.Age += at
		calling = true
		err := r.call(m, r.w.handle, r.w.opts.Timeout)
		calling = false
		if err != nil {
			r.failed(m, err)
			return
		}
		r.next++
		r.move(m.Position.Number + 1)
		if at = time.Since(r.begun); at-r.sent >= recordEvery {
			r.sent = at
			r.flush()
		}
	}
}

// paced says whether the key has to rest before its next message, and arranges
// it.
func (r *run) paced(m *Message) bool {
	if r.w.opts.pace == nil {
		return false
	}
	d := r.w.opts.pace(m)
	if d <= 0 {
		r.verdict = Settlement{}
		return false
	}
	r.verdict = r.settlement(KindRelease)
	r.verdict.Unbegun, r.verdict.Delay = true, d
	return true
}

// deliverAtMostOnce moves the cursor first. What fails is lost, and the run goes
// on.
func (r *run) deliverAtMostOnce(m *Message) {
	m.Age += time.Since(r.begun)
	r.next++
	r.move(m.Position.Number + 1)
	if !r.flush() || r.gone {
		return
	}
	err := errExited
	defer func() {
		if err != nil {
			r.w.buf.failedOnce(r, m, err)
		}
	}()
	err = r.call(m, r.w.handle, r.w.opts.Timeout)
}

// call runs a handler for a message, with a bounded context unless timeout is 0. A
// panic is an error.
func (r *run) call(m *Message, handle func(context.Context, Message) error, timeout time.Duration) (err error) {
	ctx := context.Context(r)
	if timeout > 0 {
		bounded, cancel := context.WithTimeout(r, timeout)
		defer cancel()
		ctx = bounded
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
			r.w.buf.counts.panics.Add(1)
			r.w.buf.warn(r, "a handler panicked", "key", short(m.Key), "number", m.Position.Number, "attempt", m.Attempt, "stack", string(debug.Stack()))
		}
	}()
	return handle(ctx, *m)
}

// move notes that the cursor is to be moved.
func (r *run) move(to uint64) {
	if n := len(r.pending); n > 0 && r.pending[n-1].Kind == KindDeliver {
		r.pending[n-1].To = to
		return
	}
	s := r.settlement(KindDeliver)
	s.From, s.To = to-1, to
	r.pending = append(r.pending, s)
}

// failed decides what becomes of the message at the cursor.
func (r *run) failed(m *Message, err error) {
	if r.lost() {
		return
	}
	if g, ok := errors.AsType[*givenUp](err); ok {
		r.giveUp(m, g)
		return
	}
	drained := errors.Is(context.Cause(r), ErrDraining)
	if m.Attempt >= r.w.opts.MaxAttempts && !drained {
		r.park(m, err)
		return
	}
	s := r.settlement(KindRetry)
	s.From, s.To, s.Error = m.Position.Number, m.Position.Number+1, text(err)
	if !drained { // it was interrupted: the next worker takes it at once
		s.Delay = r.w.opts.Backoff.Delay(m.Attempt, rand.Uint64())
	}
	r.verdict = s
	r.w.buf.failed(r, m, err, false)
}

// park sets the message at the cursor aside, with its key.
func (r *run) park(m *Message, err error) {
	s := r.settlement(KindPark)
	s.From, s.To, s.Error = m.Position.Number, m.Position.Number+1, r.lastWords(m, err)
	r.verdict = s
	r.w.buf.failed(r, m, err, true)
}

// A givenUp is the error of a handler of Lanes for a message that leaves its lane
// without having been sent.
type givenUp struct {
	cause    Cause
	resolved bool // somebody has taken it over
}

func (g *givenUp) Error() string { return "order: given up: " + g.cause.String() }

// giveUp skips the message at the cursor, with a record that says why: it is parked
// and dropped in one step.
func (r *run) giveUp(m *Message, g *givenUp) {
	s := r.settlement(KindPark)
	s.From, s.To, s.Error = m.Position.Number, m.Position.Number+1, g.cause.String()
	drop := Settlement{Kind: KindDrop, Key: s.Key, Epoch: s.Epoch, From: s.From, To: s.To, Actor: laneActor, Note: g.cause.String()}
	if g.resolved {
		drop.Resolution = ResolutionIgnore
	}
	r.verdict, r.drop = s, []Settlement{drop}
}

// lastWords is the error of a message that is parked.
func (r *run) lastWords(m *Message, err error) string {
	if err == errLost && m.Error != "" {
		return text(fmt.Errorf("%w; the error before: %s", err, m.Error))
	}
	return text(err)
}

// late hands over the late messages of the claim, each once. It is one, from a
// store that knows Ask.Late: the key is given back before the next, so that what is
// in order waits for one of them at most.
func (r *run) late() {
	for ; r.lates < len(r.claim.Late) && !r.stop(); r.lates++ {
		r.handLate(&r.claim.Late[r.lates])
		if at := time.Since(r.begun); at-r.sent >= recordEvery {
			r.sent = at
			r.flush()
		}
	}
}

// errNoLate is why a late message failed that was stored under other options.
var errNoLate = errors.New("order: there is no Options.OnLate")

func (r *run) handLate(m *Message) {
	err := errExited
	defer func() { r.ended(m, err) }()
	m.Late = true
	m.Age += time.Since(r.begun)
	switch {
	case m.Attempt > r.w.opts.MaxAttempts:
		err = errLost
	case r.w.buf.opts.OnLate == nil:
		err = errNoLate
	default:
		m.Gap = r.gapOf(m)
		err = r.call(m, r.w.buf.opts.OnLate, cmp.Or(r.w.opts.Timeout, r.w.buf.opts.StoreTimeout))
	}
}

// gapOf returns the record of the gap that a late message belonged to, if the store
// has it among the first thousands of its key: late messages are rare, and so are
// keys with more.
func (r *run) gapOf(m *Message) *Gap {
	b := r.w.buf
	ctx, cancel := context.WithTimeout(r, b.opts.StoreTimeout)
	defer cancel()
	q := Query{Key: m.Key, N: 1000}
	for range 10 {
		gaps, err := b.store.Gaps(ctx, b.opts.Scope, q)
		if err != nil {
			b.counts.errors.Add(1)
			return nil
		}
		for i := range gaps {
			g := &gaps[i]
			if !g.Open && g.Epoch == m.Position.Epoch && g.From <= m.Position.Number && m.Position.Number < g.To {
				return g
			}
		}
		if len(gaps) < q.N {
			return nil
		}
		last := &gaps[len(gaps)-1]
		q.After = Cursor{Key: last.Key, Position: Position{last.Epoch, last.From}}
	}
	return nil
}

// ended notes what became of a late message.
func (r *run) ended(m *Message, err error) {
	if r.lost() {
		return
	}
	s := r.settlement(KindLate)
	s.Epoch, s.From, s.To = m.Position.Epoch, m.Position.Number, m.Position.Number+1
	drained := errors.Is(context.Cause(r), ErrDraining)
	switch {
	case err == nil:
	case m.Attempt >= r.w.opts.MaxAttempts && !drained:
		s.Kind, s.Error = KindLatePark, r.lastWords(m, err)
	default:
		if s.Kind, s.Error = KindLateRetry, text(err); !drained {
			s.Delay = r.w.opts.Backoff.Delay(m.Attempt, rand.Uint64())
		}
	}
	r.pending = append(r.pending, s)
	if err != nil {
		r.w.buf.failed(r, m, err, s.Kind == KindLatePark)
	}
}
