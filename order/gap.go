package order

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"slices"
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
	var ahead []Settlement
	if o.Voids != nil {
		crossed, wait, rest := r.voids(g)
		if crossed {
			r.verdict = Settlement{} // the cursor moves, and what is there now is looked at anew
			r.w.buf.gapBegun(r, g)
			return
		}
		next, ahead = min(next, wait), rest
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
		s.Alerted, s.Asked = g.Alerted, g.Asked
		r.pending = append(append(r.pending, ahead...), s)
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

// voids asks which numbers were never used, and notes those that the cursor can
// cross. It says whether it moves by that, and if not, when to ask again. Those
// further ahead it returns: they are noted only with the skip of the numbers before
// them, and asked for again if those arrive.
func (r *run) voids(g Gap) (crossed bool, next time.Duration, ahead []Settlement) {
	o := &r.w.buf.opts
	next = min(max(g.Age, firstVoids), voidsEvery)
	var voids []Void
	err := r.callback("Voids", func(ctx context.Context) (err error) {
		voids, err = o.Voids(ctx, g.Key, g.Epoch, g.From, g.To)
		return err
	})
	if err != nil {
		return false, next, nil
	}
	voids = slices.Clone(voids[:min(len(voids), maxVoids)])
	slices.SortFunc(voids, func(a, b Void) int { return cmp.Compare(a.From, b.From) })
	cursor := g.From
	for _, v := range voids {
		from, to := max(v.From, g.From), min(v.To, g.To)
		if from >= to {
			continue
		}
		if v.Orphaned {
			quiet, looked := r.quiet(g, v)
			if quiet < o.OrphanWait {
				if from <= cursor {
					next = min(next, o.OrphanWait-quiet)
				}
				continue
			}
			to = max(to, looked)
		}
		s := r.settlement(KindVoid)
		s.From, s.To = from, to
		if from > cursor {
			ahead = append(ahead, s)
			continue
		}
		cursor = max(cursor, to)
		r.pending = append(r.pending, s)
	}
	return cursor > g.From, next, ahead
}

const (
	// maxVoids is how many ranges are noted at one look.
	maxVoids = 1000

	// orphanLook is how far above a gap is looked for arrivals of an orphaned range.
	orphanLook = 256
)

// quiet is for how long nothing of an orphaned range arrived: the gap was open, the
// cursor stood at its first number, and no message above it in the range is younger.
// The range was looked at to below the number looked.
func (r *run) quiet(g Gap, v Void) (d time.Duration, looked uint64) {
	b := r.w.buf
	d, looked = min(g.Age, g.Since), min(v.To, g.To+orphanLook, MaxNumber)
	if d < b.opts.OrphanWait || looked <= g.To {
		return d, looked
	}
	places := make([]Place, 0, orphanLook)
	for n := g.To; n < looked; n++ {
		places = append(places, Place{Key: g.Key, Position: Position{g.Epoch, n}})
	}
	ctx, cancel := context.WithTimeout(r, b.opts.StoreTimeout)
	defer cancel()
	found, err := b.findIn(ctx, b.store, places)
	if err != nil {
		b.counts.errors.Add(1)
		return 0, looked
	}
	for _, f := range found {
		if f.Message != nil {
			d = min(d, f.Message.Age)
		}
	}
	return d, looked
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
