package deduptest

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A model is the specification of [dedup.Store] as a sequential program: a map
// of records and the rules, in the order in which the comments of the interface
// give them. Stores are compared to it by random histories, and it shares no
// code with any of them.
type model struct {
	recs map[key]*record
}

type key struct{ scope, id string }

type phase uint8

const (
	claimed phase = iota
	held
	done
	released
)

type record struct {
	phase       phase
	nonce       [16]byte
	fingerprint [32]byte
	onLapse     dedup.Lapse
	token       uint64
	attempt     int
	result      []byte
	granted     time.Time
	completed   time.Time
	leaseEnd    time.Time
	changed     time.Time
	retention   time.Duration
}

func newModel() *model { return &model{recs: map[key]*record{}} }

func (r *record) lapsed(now time.Time) bool { return !now.Before(r.leaseEnd) }

// unknown says that only a settlement can end the record.
func (r *record) unknown(now time.Time) bool {
	return r.phase == held || r.phase == claimed && r.onLapse == dedup.Hold && r.lapsed(now)
}

// expired says that the record's retention has passed.
func (r *record) expired(now time.Time) bool {
	stays := r.phase == held || r.phase == claimed && r.onLapse == dedup.Hold
	return !stays && !now.Before(r.changed.Add(r.retention))
}

// live returns the record of an ID, or nil where there is none any more.
func (m *model) live(now time.Time, k key) *record {
	r := m.recs[k]
	if r == nil || r.expired(now) {
		return nil
	}
	return r
}

// claim answers one ask.
func (m *model) claim(now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
	k := key{p.Scope, a.ID}
	r := m.live(now, k)
	c := dedup.Claim{ID: a.ID}
	var none [32]byte
	switch {
	case r == nil:
		r = &record{}
		m.recs[k] = r
		return r.grant(now, p, a)
	case a.Fingerprint != none && r.fingerprint != none && a.Fingerprint != r.fingerprint:
		c.State = dedup.Conflict
	case r.phase == done && p.Complete && r.nonce == a.Nonce:
		c.State, c.Token, c.Attempt = dedup.Acquired, r.token, r.attempt
	case r.phase == done:
		c.State, c.Result, c.Age = dedup.Done, slices.Clone(r.result), now.Sub(r.completed)
	case r.unknown(now):
		return r.asUnknown(now, a.ID)
	case r.phase == claimed && !r.lapsed(now) && r.nonce == a.Nonce:
		c.State, c.Token, c.Attempt, c.Left = dedup.Acquired, r.token, r.attempt, r.leaseEnd.Sub(now)
	case r.phase == claimed && !r.lapsed(now):
		c.State, c.Left, c.Age = dedup.InFlight, r.leaseEnd.Sub(now), now.Sub(r.granted)
	case r.phase == released && r.nonce == a.Nonce:
		c.State = dedup.InFlight
	default:
		return r.grant(now, p, a)
	}
	return c
}

// grant makes the ask the record's next owner.
func (r *record) grant(now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
	r.phase, r.nonce, r.onLapse, r.result = claimed, a.Nonce, p.OnLapse, nil
	if a.Fingerprint != [32]byte{} {
		r.fingerprint = a.Fingerprint
	}
	r.token = max(r.token+1, uint64(now.UnixMicro()))
	r.attempt++
	r.granted, r.leaseEnd = now, now.Add(p.Lease)
	r.change(now, p)
	if p.Complete {
		r.phase, r.completed = done, now
	}
	return dedup.Claim{State: dedup.Acquired, ID: a.ID, Token: r.token, Attempt: r.attempt, Left: p.Lease}
}

func (r *record) change(now time.Time, p dedup.Params) {
	r.changed, r.retention = now, p.Retention
}

func (r *record) asUnknown(now time.Time, id string) dedup.Claim {
	return dedup.Claim{State: dedup.Unknown, ID: id, Token: r.token, Attempt: r.attempt, Age: now.Sub(r.granted)}
}

// settle applies one settlement.
func (m *model) settle(now time.Time, p dedup.Params, s dedup.Settlement) error {
	k := key{p.Scope, s.ID}
	if s.Kind == dedup.KindForget {
		delete(m.recs, k)
		return nil
	}
	r := m.live(now, k)
	if s.Kind == dedup.KindRetain {
		if r != nil && r.phase == done {
			r.retention = max(r.retention, now.Add(s.Retention).Sub(r.changed))
		}
		return nil
	}
	if r == nil || r.token != s.Token {
		return dedup.ErrStale
	}
	ends := map[dedup.Kind]phase{dedup.KindComplete: done, dedup.KindRelease: released, dedup.KindHold: held}
	switch end, ok := ends[s.Kind]; {
	case ok && r.phase == end: // applied before
		return nil
	case ok && (r.phase == claimed || r.phase == held):
		r.phase = end
	case s.Kind == dedup.KindExtend && r.phase == claimed:
		r.leaseEnd = now.Add(s.Lease)
	default:
		return dedup.ErrStale
	}
	if r.phase == done {
		r.result, r.completed = slices.Clone(s.Result), now
	}
	r.change(now, p)
	return nil
}

// held lists what only a settlement can end.
func (m *model) held(now time.Time, scope, after string, n int) []dedup.Claim {
	var page []dedup.Claim
	for k, r := range m.recs {
		if k.scope == scope && k.id > after && r.unknown(now) {
			page = append(page, r.asUnknown(now, k.id))
		}
	}
	slices.SortFunc(page, func(a, b dedup.Claim) int { return strings.Compare(a.ID, b.ID) })
	return page[:min(n, len(page))]
}
