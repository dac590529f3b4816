package boltdedup

import (
	"bytes"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// This file is the specification of [dedup.Store] as functions of a record and
// the time, without any database.

// open says whether a settlement is still to come.
func (r *record) open() bool { return r.state == claimed || r.state == held }

// unknown says whether nobody may run the effect until a settlement.
func (r *record) unknown(now int64) bool {
	return r.state == held || r.state == claimed && r.hold && now >= r.until
}

// forever says whether the record stays until a settlement, whatever the time:
// it is Unknown or may become so.
func (r *record) forever() bool {
	return r.state == held || r.state == claimed && r.hold
}

// expired says whether the record may be forgotten.
func (r *record) expired(now int64) bool {
	running := r.state == claimed && now < r.until
	return !r.forever() && !running && now >= r.expires
}

// ask answers a and says whether the record was changed. The rules are those of
// [dedup.Store.Claim], in their order.
func (r *record) ask(now int64, p dedup.Params, a *dedup.Ask) (c dedup.Claim, changed bool) {
	if r.state == absent || r.expired(now) { // rule 1
		r.attempt, r.fingerprint = 0, [32]byte{}
		return r.grant(now, p, a), true
	}
	c = dedup.Claim{ID: a.ID, Attempt: int(r.attempt)}
	if r.conflicts(a) { // rule 2
		c.State = dedup.Conflict
		return c, false
	}
	sameAsk := r.nonce == a.Nonce
	switch {
	case r.state == done && r.ownAsk && p.Complete && sameAsk: // rule 3
		c.State, c.Token = dedup.Acquired, r.token
	case r.state == done:
		c.State, c.Age = dedup.Done, micros(now-r.since)
		c.Result = append([]byte{}, r.result...)
	case r.unknown(now): // rule 4
		c.State, c.Token, c.Age = dedup.Unknown, r.token, micros(now-r.since)
	case r.state == claimed && now < r.until && sameAsk: // rule 5
		c.State, c.Token, c.Left = dedup.Acquired, r.token, micros(r.until-now)
	case r.state == claimed && now < r.until:
		c.State, c.Left, c.Age = dedup.InFlight, micros(r.until-now), micros(now-r.since)
	case r.state == released && sameAsk: // rule 6
		c.State = dedup.InFlight
	default:
		return r.grant(now, p, a), true
	}
	return c, false
}

func (r *record) conflicts(a *dedup.Ask) bool {
	none := [32]byte{}
	return r.fingerprint != none && a.Fingerprint != none && r.fingerprint != a.Fingerprint
}

// grant makes the ask the owner.
func (r *record) grant(now int64, p dedup.Params, a *dedup.Ask) dedup.Claim {
	g := record{
		state: claimed, hold: p.OnLapse == dedup.Hold,
		since: now, until: now + p.Lease.Microseconds(),
		token: max(r.token+1, uint64(now)), attempt: r.attempt + 1,
		nonce: a.Nonce, fingerprint: r.fingerprint,
	}
	c := dedup.Claim{State: dedup.Acquired, ID: a.ID, Token: g.token, Attempt: int(g.attempt), Left: p.Lease}
	if p.Complete {
		g.state, g.hold, g.ownAsk, g.until = done, false, true, 0
		c.Left = 0
	}
	if !g.forever() {
		g.expires = now + p.Retention.Microseconds()
	}
	if a.Fingerprint != [32]byte{} {
		g.fingerprint = a.Fingerprint
	}
	*r = g
	return c
}

// settle applies t, unless it is a KindForget, and says whether the record was
// changed. The rules are those of [dedup.Store.Settle].
func (r *record) settle(now int64, p dedup.Params, t *dedup.Settlement) (changed bool, err error) {
	if t.Kind == dedup.KindRetain {
		until := now + t.Retention.Microseconds()
		if r.state != done || r.expired(now) || until <= r.expires {
			return false, nil
		}
		r.expires = until
		return true, nil
	}
	if r.state == absent || r.expired(now) || r.token != t.Token {
		return false, dedup.ErrStale
	}
	switch {
	case t.Kind == dedup.KindComplete && r.open():
		r.end(done, now, p)
		r.nonce, r.result = [16]byte{}, bytes.Clone(t.Result)
	case t.Kind == dedup.KindRelease && r.open():
		r.end(released, now, p)
	case t.Kind == dedup.KindHold && r.state == claimed:
		r.state, r.hold, r.until, r.expires = held, false, 0, 0
	case t.Kind == dedup.KindExtend && r.state == claimed:
		r.until = now + t.Lease.Microseconds()
		if !r.forever() {
			r.expires = max(r.expires, r.until+p.Retention.Microseconds())
		}
	case t.Kind == dedup.KindComplete && r.state == done,
		t.Kind == dedup.KindRelease && r.state == released,
		t.Kind == dedup.KindHold && r.state == held:
		return false, nil // it was applied before
	default:
		return false, dedup.ErrStale
	}
	return true, nil
}

// end makes the record done or released; its retention begins.
func (r *record) end(s state, now int64, p dedup.Params) {
	r.state, r.hold, r.until = s, false, 0
	r.since, r.expires = now, now+p.Retention.Microseconds()
}

// micros is a span as a duration. It is never negative, also when the clock was
// set back.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
