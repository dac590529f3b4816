package order

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
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
// somebody is told, a re-send is asked for, and when it is time the gap is skipped,
// but not before somebody had the chance to send its numbers.
// What was done is recorded afterwards, in one step with the next look.
func (r *run) gap() {
	o, g := &r.w.buf.opts, *r.claim.Gap
	r.verdict = r.settlement(KindWait) // also when a hook ends the goroutine
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
	skip := over && o.AfterTimeout == Skip
	var reprieve time.Duration
	if skip {
		reprieve = o.reprieve(g)
	}
	if !g.Alerted && (over || g.Age >= o.AlertAfter) {
		r.alert(g)
		g.Alerted, r.verdict.Alerted = true, true
	}
	if skip && reprieve == 0 {
		s := r.settlement(KindSkip)
		s.From, s.To, s.Reason = g.From, g.To, ReasonTimeout
		s.Alerted, s.Asked = g.Alerted, g.Asked
		r.pending = append(append(r.pending, ahead...), s)
		r.verdict = Settlement{}
		return
	}
	if o.Resend != nil {
		next = min(next, r.resend(&g, skip))
		r.verdict.Asked = g.Asked
	}
	if !g.Alerted {
		next = min(next, o.AlertAfter-g.Age)
	}
	if timesOut && !over {
		next = min(next, o.GapTimeout-g.Age)
	}
	if reprieve > 0 {
		next = reprieve // nothing else is looked for, so that the next look is the one that skips
	}
	r.verdict.Delay = max(next, time.Millisecond)
}

// reprieve is for how much longer a gap that has timed out is waited for: one step of
// ResendBackoff, at most GapTimeout, if it was nobody's turn before, because no worker
// ran or the cursor stood at a lower number. Its age is that of the message behind it.
func (o *Options) reprieve(g Gap) time.Duration {
	step := min(o.askAt(1, spread(g.Key)), o.GapTimeout)
	switch {
	case o.Resend != nil && g.Asked == 0, o.Resend == nil && !g.Alerted && o.AlertAfter < o.GapTimeout:
		return step
	case o.Resend == nil && !g.Alerted: // it is told of at its end
		return max(step-g.Since, 0)
	}
	return 0
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

// resend asks for a gap again if it is time, or if it was never asked for and is
// about to be skipped, and says when it is next.
func (r *run) resend(g *Gap, last bool) (next time.Duration) {
	b := r.w.buf
	spread := spread(g.Key)
	at := b.opts.askAt(g.Asked+1, spread)
	if g.Age < at && !(last && g.Asked == 0) {
		return at - g.Age
	}
	err := r.callback("Resend", func(ctx context.Context) error { return b.opts.Resend(ctx, *g) })
	b.gapAsked(r, *g, err)
	g.Asked++
	// After a time in which nobody looked, what was missed is not made up for at once.
	return max(b.opts.askAt(g.Asked+1, spread)-g.Age, b.opts.ResendBackoff.Delay(g.Asked+1, spread))
}

// spread is what the jitter of a key is made of: the same at each look.
func spread(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
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
// error, and so is the end of its goroutine, which is therefore one of its own.
func (r *run) callback(name string, f func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(r, r.w.buf.opts.StoreTimeout)
	defer cancel()
	err = errExited
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: %v", errPanic, p)
				r.w.buf.warn(r, "Options."+name+" panicked", "key", short(r.claim.Key), "stack", string(debug.Stack()))
			}
		}()
		err = f(ctx)
	}()
	<-done
	if err != nil {
		r.w.buf.counts.callbacks.Add(1)
		if !errors.Is(err, errPanic) {
			r.w.buf.warn(r, "Options."+name+" failed", "key", short(r.claim.Key))
		}
	}
	return err
}
