package order

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"
)

// Between the looks at a gap for voids: twice as long each time.
const (
	firstVoids = 20 * time.Millisecond // so that what is only out of order asks nobody
	voidsEvery = 5 * time.Second       // at most
)

// idleLook is when to look again at a gap that nothing is due for.
const idleLook = time.Hour

// firstLook is when a gap is looked at first.
func (o *Options) firstLook() time.Duration {
	d := min(o.AlertAfter, o.GapTimeout)
	if o.Resend != nil {
		d = min(d, o.ResendBackoff.Delay(1, 0))
	}
	if o.Voids != nil {
		d = min(d, firstVoids)
	}
	return d
}

// gap looks at the gap at the cursor and does what is due: voids are crossed,
// somebody is told, a re-send is asked for, and when it is time the gap is skipped.
// What was done is recorded afterwards, in one step with the next look.
func (r *run) gap() {
	o, g := &r.w.buf.opts, *r.claim.Gap
	r.verdict = r.settlement(KindWait) // also when a function of the options ends the goroutine
	r.verdict.Delay = time.Second
	r.verdict.From, r.verdict.To = g.From, g.To
	r.verdict.Alerted, r.verdict.Asked = g.Alerted, g.Asked

	next := idleLook
	if o.Voids != nil {
		crossed, wait := r.voids(g)
		if crossed {
			r.verdict = Settlement{} // the cursor moves, and what is there now is looked at anew
			r.w.buf.gapBegun(r, g)
			return
		}
		next = min(next, wait)
	}
	timesOut := !(g.Old && o.OldEpoch == Keep)
	over := timesOut && g.Age >= o.GapTimeout
	if !g.Alerted && (over || g.Age >= o.AlertAfter) {
		r.alert(g)
		g.Alerted, r.verdict.Alerted = true, true
	}
	if over && o.AfterTimeout == Skip {
		s := r.settlement(KindSkip)
		s.From, s.To, s.Reason = g.From, g.To, ReasonTimeout
		r.pending = append(r.pending, s)
		r.verdict = Settlement{}
		return
	}
	if o.Resend != nil {
		next = min(next, r.resend(&g))
		r.verdict.Asked = g.Asked
	}
	if !g.Alerted {
		next = min(next, o.AlertAfter-g.Age)
	}
	if timesOut && !over {
		next = min(next, o.GapTimeout-g.Age)
	}
	r.verdict.Delay = max(next, time.Millisecond)
}

// alert tells whoever is to be told.
func (r *run) alert(g Gap) {
	b := r.w.buf
	b.gapAlerted(r, g)
	if b.opts.Alert != nil {
		r.callback("Alert", func(ctx context.Context) error {
			b.opts.Alert(ctx, g)
			return nil
		})
	}
}

// resend asks for a gap again if it is time, and says when it is next.
func (r *run) resend(g *Gap) (next time.Duration) {
	b := r.w.buf
	sum := sha256.Sum256([]byte(g.Key))
	spread := binary.BigEndian.Uint64(sum[:]) // the same at each look
	at := b.opts.askAt(g.Asked+1, spread)
	if g.Age < at {
		return at - g.Age
	}
	err := r.callback("Resend", func(ctx context.Context) error { return b.opts.Resend(ctx, *g) })
	b.gapAsked(r, *g, err)
	g.Asked++
	// After a time in which nobody looked, what was missed is not made up for at once.
	return max(b.opts.askAt(g.Asked+1, spread)-g.Age, b.opts.ResendBackoff.Delay(g.Asked+1, spread))
}

// askAt is the age of a gap at which it is asked for the n-th time.
func (o *Options) askAt(n int, spread uint64) (age time.Duration) {
	for i := 1; i <= n && age < MaxDuration; i++ {
		age += max(o.ResendBackoff.Delay(i, spread), time.Millisecond)
	}
	return min(age, MaxDuration)
}

// voids asks which numbers were never used, and notes those that can be crossed.
// It says whether the cursor moves by that, and if not, when to ask again.
func (r *run) voids(g Gap) (crossed bool, next time.Duration) {
	o := &r.w.buf.opts
	next = min(max(g.Age, firstVoids), voidsEvery)
	var voids []Void
	err := r.callback("Voids", func(ctx context.Context) (err error) {
		voids, err = o.Voids(ctx, g.Key, g.Epoch, g.From, g.To)
		return err
	})
	if err != nil {
		return false, next
	}
	for _, v := range voids[:min(len(voids), maxVoids)] {
		from, to := max(v.From, g.From), min(v.To, g.To)
		if from >= to {
			continue
		}
		if v.Orphaned {
			if quiet := r.quiet(g, v); quiet < o.OrphanWait {
				next = min(next, o.OrphanWait-quiet)
				continue
			}
		}
		s := r.settlement(KindVoid)
		s.From, s.To = from, to
		r.pending = append(r.pending, s)
		crossed = crossed || from == g.From
	}
	return crossed, next
}

// maxVoids is how many ranges are noted at one look.
const maxVoids = 1000

// quiet is for how long a gap was open, and nothing of an orphaned range arrived:
// the message below the gap may be of it, and those from its end on.
func (r *run) quiet(g Gap, v Void) (d time.Duration) {
	const above = 64
	d = g.Age
	places := make([]Place, 0, above+1)
	if g.From > 1 {
		places = append(places, Place{Key: g.Key, Position: Position{g.Epoch, g.From - 1}})
	}
	for n := g.To; n <= MaxNumber && (n == g.To || n < min(v.To, g.To+above)); n++ {
		places = append(places, Place{Key: g.Key, Position: Position{g.Epoch, n}})
	}
	ctx, cancel := context.WithTimeout(r, r.w.buf.opts.StoreTimeout)
	defer cancel()
	found, err := r.w.buf.store.Find(ctx, r.w.buf.params(), places)
	if err != nil {
		r.w.buf.counts.errors.Add(1)
		return 0
	}
	for _, f := range found {
		if f.Message != nil && f.Message.Age > 0 { // of one that has ended it may be forgotten
			d = min(d, f.Message.Age)
		}
	}
	return d
}

// callback calls a function of the options with a bounded context. A panic is an
// error.
func (r *run) callback(name string, f func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(r, r.w.buf.opts.StoreTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
			r.w.buf.warn(r, "Options."+name+" panicked", "key", short(r.claim.Key), "stack", string(debug.Stack()))
		} else if err != nil {
			r.w.buf.warn(r, "Options."+name+" failed; it is asked again later", "key", short(r.claim.Key))
		}
		if err != nil {
			r.w.buf.counts.callbacks.Add(1)
		}
	}()
	return f(ctx)
}
