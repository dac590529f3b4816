package dedup

import (
	"context"
	"errors"
	"time"
)

// What a Failover does behind its callers: it tells the standby what the primary
// completed, and, after an outage, the primary what the standby did. There is no
// goroutine while there is nothing to tell.

const (
	tellTimeout = 5 * time.Second
	tellBatch   = 500
)

var errBusy = errors.New("dedup: another owner is at work")

// background starts what is due, unless it is under way.
func (f *Failover) background() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.busy && (len(f.mirrors) > 0 || f.handBackDue()) {
		f.busy = true
		go f.catchUp()
	}
}

// handBackDue says whether the primary should be tried again. f.mu is held.
func (f *Failover) handBackDue() bool {
	return (f.down || len(f.learnt) > 0) && time.Since(f.tried) >= f.opts.RetryEvery
}

func (f *Failover) catchUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case len(f.mirrors) > 0:
			n := min(len(f.mirrors), tellBatch)
			batch := f.mirrors[:n:n]
			f.mirrors = f.mirrors[n:]
			f.mu.Unlock()
			f.mirrorBatch(batch)
		case f.handBackDue():
			f.tried = time.Now()
			f.mu.Unlock()
			f.handBack()
		default:
			f.busy = false
			return
		}
		f.mu.Lock()
	}
}

// mirrorBatch tells the standby what the primary completed.
func (f *Failover) mirrorBatch(batch []mirror) {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	errs := f.tell(ctx, f.standby, batch)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			f.stats.Mirrored++
		} else {
			f.stats.Unmirrored++
		}
	}
}

// handBack writes back everything learnt. The primary is trusted when each
// completion was written, or met an owner there: what is left then is answered
// from here until that owner has ended.
func (f *Failover) handBack() {
	f.mu.Lock()
	all := make([]mirror, 0, len(f.learnt))
	for id, c := range f.learnt {
		all = append(all, mirror{id, c})
	}
	f.mu.Unlock()
	if len(all) == 0 && !f.answers() {
		return
	}
	for len(all) > 0 {
		n := min(len(all), tellBatch)
		if !f.writeBack(all[:n]) {
			return
		}
		all = all[n:]
	}
	f.mu.Lock()
	back := f.down
	if back {
		f.down, f.since = false, time.Now()
		f.stats.HandBacks++
	}
	f.mu.Unlock()
	if back && f.opts.OnTransition != nil {
		f.opts.OnTransition(false, nil)
	}
}

// answers reads from the primary.
func (f *Failover) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	_, err := f.primary.Held(ctx, "default", "", 1)
	return err == nil
}

// writeBack tells the primary what it missed, and says whether it answered.
func (f *Failover) writeBack(batch []mirror) bool {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	errs := f.tell(ctx, f.primary, batch)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, err := range errs {
		switch {
		case err == nil:
			delete(f.learnt, batch[i].owned)
			f.stats.WrittenBack++
		case !errors.Is(err, errBusy):
			return false
		}
	}
	return true
}

// tell makes a store know that effects have happened: one error for each.
func (f *Failover) tell(ctx context.Context, store Store, batch []mirror) []error {
	type group struct {
		params Params
		stored bool // with a result
	}
	errs := make([]error, len(batch))
	groups := make(map[group][]int)
	for i, m := range batch {
		if m.token != 0 { // a claim of the primary; the standby will call it stale
			places := []int{0}
			answer := make([]error, 1)
			s := []Settlement{{Kind: KindComplete, ID: m.id, Token: m.token, Result: m.result}}
			if settleAt(ctx, store, m.params, s, places, answer); !errors.Is(answer[0], ErrStale) {
				errs[i] = answer[0]
				continue
			}
		}
		g := group{params: m.params, stored: len(m.result) > 0}
		g.params.OnLapse, g.params.Complete = Rerun, !g.stored
		groups[g] = append(groups[g], i)
	}
	for g, places := range groups {
		f.tellGroup(ctx, store, g.params, batch, places, errs)
	}
	return errs
}

// tellGroup claims, and completes what needs a result.
func (f *Failover) tellGroup(ctx context.Context, store Store, p Params, batch []mirror, places []int, errs []error) {
	asks := make([]Ask, len(places))
	for i, place := range places {
		asks[i] = Ask{Request: Request{ID: batch[place].id}, Nonce: batch[place].nonce}
	}
	claims, err := store.Claim(ctx, p, asks)
	var s []Settlement
	var settled []int
	for i, place := range places {
		switch {
		case err != nil:
			errs[place] = err
		case claims[i].Err != nil:
			errs[place] = claims[i].Err
		case claims[i].State == InFlight:
			errs[place] = errBusy
		case claims[i].State == Acquired && !p.Complete:
			s, settled = append(s, claims[i].Complete(batch[place].result)), append(settled, place)
		case claims[i].State == Done && store == f.primary:
			f.mu.Lock()
			f.stats.Twice++
			f.mu.Unlock()
		}
	}
	if len(s) == 0 {
		return
	}
	answers := make([]error, len(s))
	all := make([]int, len(s))
	for i := range all {
		all[i] = i
	}
	settleAt(ctx, store, p, s, all, answers)
	for i, place := range settled {
		errs[place] = answers[i]
	}
}
