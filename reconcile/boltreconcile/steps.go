package boltreconcile

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// The steps of [reconcile.Store] within a transaction, whosever it is.

func (st *step) begin(p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	answers := make([]reconcile.Answer, len(asks))
	for i := range asks {
		var err error
		if answers[i], err = st.beginOne(&p, &asks[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (st *step) beginOne(p *reconcile.Params, a *reconcile.Ask) (reconcile.Answer, error) {
	before, err := st.operation(p.Kind, a.Key)
	if err == nil && before != nil && before.expired(st.now) {
		err = st.remove(before)
		before = nil
	}
	if err != nil {
		return reconcile.Answer{}, err
	}
	var after operation
	if before == nil {
		after = operation{
			kind: p.Kind, key: a.Key, account: a.Account, fingerprint: a.Fingerprint, created: st.now, token: st.operations.Sequence(),
		}
		if a.Payload != nil {
			if err := st.write(st.payloads, nameKey(p.Kind, a.Key), blob(a.Payload)); err != nil {
				return reconcile.Answer{}, err
			}
		}
	} else {
		after = *before
	}
	grant := after.begin(st.now, p, a)
	if err := st.rewrite(before, &after); err != nil {
		return reconcile.Answer{}, err
	}
	e, err := st.entry(&after)
	return reconcile.Answer{Grant: grant, Entry: e}, err
}

// claimed is the answer to a Claim.
type claimed struct {
	entries []reconcile.Entry
	next    time.Duration
}

func (st *step) claim(p reconcile.Params, a *reconcile.ClaimAsk) (c claimed, err error) {
	taken, err := st.claimedBefore(p.Kind, a.Nonce)
	if err == nil && len(taken) == 0 {
		taken, c.next, err = st.take(&p, a)
	}
	if err != nil {
		return claimed{}, err
	}
	c.entries = make([]reconcile.Entry, len(taken))
	for i, o := range taken {
		if c.entries[i], err = st.entry(o); err != nil {
			return claimed{}, err
		}
	}
	return c, nil
}

// claimedBefore is what an earlier sending of the ask was granted and still has.
func (st *step) claimedBefore(kind string, nonce [16]byte) (mine []*operation, err error) {
	for key := range behind(st.claims, claimKey(nonce, kind, ""), nil) {
		o, err := st.listed(kind, string(key))
		if err != nil {
			return nil, err
		}
		if o.granted(st.now) {
			mine = append(mine, o)
		}
	}
	slices.SortFunc(mine, func(a, b *operation) int { return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.key, b.key)) })
	return mine, nil
}

// take grants what is due, in the order of Due. Those that somebody has a lease of are
// listed, too, and passed over.
func (st *step) take(p *reconcile.Params, a *reconcile.ClaimAsk) (taken []*operation, next time.Duration, err error) {
	var keys []string
	var soonest int64
	for place, lease := range behind(st.due, nameKey(p.Kind), nil) {
		if len(keys) == a.N {
			soonest = 0
			break
		}
		at := int64(binary.BigEndian.Uint64(place))
		if free := max(at, int64(binary.BigEndian.Uint64(lease))); free <= st.now {
			keys = append(keys, string(place[8:]))
		} else if soonest == 0 || free < soonest {
			soonest = free
		}
		if at > st.now {
			break
		}
	}
	for _, key := range keys {
		before, err := st.listed(p.Kind, key)
		if err != nil {
			return nil, 0, err
		}
		after := *before
		after.look(st.now, p, a.Nonce)
		after.claimed = true
		if err := st.rewrite(before, &after); err != nil {
			return nil, 0, err
		}
		taken = append(taken, &after)
	}
	if soonest != 0 {
		next = micros(soonest - st.now)
	}
	return taken, next, nil
}

func (st *step) settle(p reconcile.Params, settlements []reconcile.Settlement) (errs []error, err error) {
	for i := range settlements {
		refused, err := st.settleOne(&p, &settlements[i])
		if err != nil {
			return nil, err
		}
		if refused != nil {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = refused
		}
	}
	return errs, nil
}

// settleOne applies a settlement, or says why it was refused.
func (st *step) settleOne(p *reconcile.Params, s *reconcile.Settlement) (refused, err error) {
	before, err := st.operation(p.Kind, s.Key)
	if err != nil {
		return nil, err
	}
	switch gone := before == nil || before.expired(st.now); {
	case s.Verb == reconcile.VerbForget:
		if before == nil {
			return nil, nil
		}
		return nil, st.remove(before)
	case gone && (s.Verb == reconcile.VerbReceipt || s.Verb == reconcile.VerbResolve):
		return reconcile.ErrNotFound, nil
	case gone:
		return reconcile.ErrStale, nil
	}
	after := *before
	refused = after.settle(st.now, p, s)
	return refused, st.rewrite(before, &after)
}
