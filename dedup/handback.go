package dedup

import (
	"context"
	"errors"
	"time"
)

// What a Failover does behind its callers: after an outage it tells the primary
// what was completed without it, and always the standby what the primary has
// completed. There is no goroutine while there is nothing to tell.

const (
	tellTimeout = 5 * time.Second
	tellBatch   = 500
)

// Why a store could not be told of a completion although it answered.
var (
	errBusy     = errors.New("dedup: another owner is at work")
	errDone     = errors.New("dedup: another owner has completed it")
	errOtherOne = errors.New("dedup: another message has this ID there")
)

type told struct {
	owned
	*completion
}

// background starts what is due, unless it is under way.
func (f *Failover) background() {
	if f.begin() {
		go f.catchUp()
	}
}

// begin says whether something is due, and reserves it for the caller.
func (f *Failover) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy || !f.handBackDue() && !f.mirrorDue() {
		return false
	}
	f.busy = true
	return true
}

// handBackDue and mirrorDue say whether the primary, or the standby, should be
// told something. f.mu is held.
func (f *Failover) handBackDue() bool {
	return (f.down || len(f.learnt) > 0) && time.Since(f.tried) >= f.opts.RetryEvery
}

func (f *Failover) mirrorDue() bool {
	return len(f.mirrors) > 0 && time.Since(f.deaf) >= f.opts.RetryEvery
}

func (f *Failover) catchUp() {
	ctx := context.Background()
	for {
		f.mu.Lock()
		back, mirror := f.handBackDue(), f.mirrorDue()
		if !back && !mirror {
			f.busy = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		if back {
			f.handBack(ctx)
		} else {
			f.mirror(ctx)
		}
	}
}

// handBack writes back everything learnt. The primary is trusted when each
// completion was written, or met an owner there: what is left then is answered
// from here until that owner has ended.
func (f *Failover) handBack(ctx context.Context) {
	f.mu.Lock()
	f.tried = time.Now()
	all := make([]told, 0, len(f.learnt))
	for id, c := range f.learnt {
		all = append(all, told{id, c})
	}
	f.mu.Unlock()
	if len(all) == 0 && !f.primaryAnswers(ctx) {
		return
	}
	for len(all) > 0 {
		n := min(len(all), tellBatch)
		if !f.writeBack(ctx, all[:n]) {
			return
		}
		all = all[n:]
	}
	f.mu.Lock()
	back := f.down
	if back {
		f.down, f.since, f.failures = false, time.Now(), 0
		f.stats.HandBacks++
	}
	f.mu.Unlock()
	if back && f.opts.OnTransition != nil {
		f.opts.OnTransition(false, nil)
	}
}

// primaryAnswers sends a settlement that cannot be applied, since its token is of
// no claim, for the ID at which the primary failed.
func (f *Failover) primaryAnswers(ctx context.Context) bool {
	f.mu.Lock()
	p := f.probe
	f.mu.Unlock()
	if p.id == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	errs := make([]error, 1)
	settleAt(ctx, f.primary, p.params, []Settlement{{Kind: KindRelease, ID: p.id, Token: 1}}, []int{0}, errs)
	return final(errs[0])
}

// writeBack tells the primary what it missed, and says whether it answered.
func (f *Failover) writeBack(ctx context.Context, batch []told) bool {
	f.telling.Lock()
	defer f.telling.Unlock()
	batch = f.still(batch, f.learnt)
	errs := f.tell(ctx, true, batch)
	f.mu.Lock()
	defer f.mu.Unlock()
	answered := true
	for i, err := range errs {
		switch {
		case err == nil:
			f.stats.WrittenBack++
		case errors.Is(err, errDone):
			f.stats.Twice++
		case errors.Is(err, errOtherOne):
			f.stats.Conflicts++
		case errors.Is(err, errBusy):
			continue
		default:
			answered = false
			continue
		}
		if f.learnt[batch[i].owned] == batch[i].completion {
			delete(f.learnt, batch[i].owned)
		}
	}
	return answered
}

// mirror tells the standby what it does not know yet.
func (f *Failover) mirror(ctx context.Context) {
	f.mu.Lock()
	batch := make([]told, 0, min(len(f.mirrors), tellBatch))
	for id, c := range f.mirrors {
		if len(batch) == tellBatch {
			break
		}
		batch = append(batch, told{id, c})
	}
	f.mu.Unlock()

	f.telling.Lock()
	defer f.telling.Unlock()
	batch = f.still(batch, f.mirrors)
	errs := f.tell(ctx, false, batch)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, err := range errs {
		if err != nil && !errors.Is(err, errDone) && !errors.Is(err, errOtherOne) {
			f.deaf = time.Now() // it stays, and is answered from here during an outage
			continue
		}
		f.stats.Mirrored++
		if f.mirrors[batch[i].owned] == batch[i].completion {
			delete(f.mirrors, batch[i].owned)
		}
	}
}

// still drops from a batch what was forgotten meanwhile. f.telling is held.
func (f *Failover) still(batch []told, in map[owned]*completion) []told {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := batch[:0]
	for _, t := range batch {
		if in[t.owned] == t.completion {
			kept = append(kept, t)
		}
	}
	return kept
}

// tell makes a store know that effects have happened: one error for each, nil
// also where the store knew it. f.telling is held.
func (f *Failover) tell(ctx context.Context, toPrimary bool, batch []told) []error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	store := f.standby
	if toPrimary {
		store = f.primary
	}
	errs := make([]error, len(batch))
	type group struct {
		params Params
		stored bool // with a result
		own    bool // the store's own claim is settled
	}
	groups := make(map[group][]int)
	for i, t := range batch {
		g := group{params: t.params, stored: len(t.result) > 0, own: toPrimary && t.primary}
		groups[g] = append(groups[g], i)
	}
	for g, places := range groups {
		if g.own {
			places = settleOwn(ctx, store, g.params, batch, places, errs)
		}
		p := g.params
		p.OnLapse, p.Complete = Rerun, !g.stored
		claimAndComplete(ctx, store, p, batch, places, errs)
	}
	return errs
}

// settleOwn completes claims of the store's own, and returns the places of those
// that it does not know any more.
func settleOwn(ctx context.Context, store Store, p Params, batch []told, places []int, errs []error) (rest []int) {
	s := make([]Settlement, len(batch))
	for _, i := range places {
		s[i] = Settlement{Kind: KindComplete, ID: batch[i].id, Token: batch[i].token, Result: batch[i].result}
	}
	settleAt(ctx, store, p, s, places, errs)
	for _, i := range places {
		if errors.Is(errs[i], ErrStale) {
			errs[i] = nil
			rest = append(rest, i)
		}
	}
	return rest
}

// claimAndComplete claims in the store's name, and completes what has a result.
func claimAndComplete(ctx context.Context, store Store, p Params, batch []told, places []int, errs []error) {
	if len(places) == 0 {
		return
	}
	asks := make([]Ask, len(places))
	for n, i := range places {
		asks[n] = Ask{Request: Request{ID: batch[i].id, Fingerprint: batch[i].fingerprint}, Nonce: batch[i].nonce}
	}
	claims, err := store.Claim(ctx, p, asks)
	s := make([]Settlement, len(batch))
	var open []int
	for n, i := range places {
		if err != nil {
			errs[i] = err
			continue
		}
		c := claims[n]
		switch {
		case c.Err != nil:
			errs[i] = c.Err
		case c.State == InFlight:
			errs[i] = errBusy
		case c.State == Conflict:
			errs[i] = errOtherOne
		case c.State == Done:
			errs[i] = errDone
		case c.State == Unknown, !p.Complete: // held there: this says what happened
			s[i] = c.Complete(batch[i].result)
			open = append(open, i)
		}
	}
	settleAt(ctx, store, p, s, open, errs)
}
