package seqgen

import (
	"cmp"
	"slices"
	"time"
)

// A record is what [Memory] keeps of one key: the rules of [Store], in their
// order.
type record struct {
	epoch, last uint64
	mode        Mode
	token       uint64
	owned       bool
	used        uint64
	log         []logEntry // the newest last
	voids       map[uint64][]voidRecord
}

// A logEntry is a step that carried a nonce. Without numbers and without an epoch
// it is spent; with an epoch alone it is a bump.
type logEntry struct {
	nonce         [16]byte
	epoch, lo, hi uint64
	token         uint64 // in mode Block
}

// A voidRecord is a void; those of one epoch lie in ascending order.
type voidRecord struct {
	Void
	token   uint64 // that owned what is orphaned
	expires time.Time
}

func newRecord() *record { return &record{epoch: 1} }

func (r *record) position() Position { return Position{r.epoch, r.last} }

func (r *record) reserve(now time.Time, p Params, a *Ask) Grant {
	e := r.logged(a.Nonce)
	switch {
	case e != nil && e.lo == 0: // rule 1
		return Grant{Err: ErrStale}
	case e != nil:
		return Grant{Epoch: e.epoch, Lo: e.lo, Hi: e.hi, Token: e.token}
	case r.position().Compare(a.Seen) < 0: // rule 2
		return Grant{Err: ErrRolledBack, Stored: r.position()}
	case r.mode != 0 && r.mode != a.Mode: // rule 3
		return Grant{Err: ErrMode, Mode: r.mode}
	case a.Mode == Block && !a.Open && (!r.owned || r.token != a.Token): // rule 4
		return Grant{Err: ErrStale}
	case r.last == MaxNumber: // rule 5
		return Grant{Err: ErrExhausted}
	}
	g := Grant{Epoch: r.epoch} // rule 6
	if a.Mode == Block {
		if a.Open {
			g.Orphaned = r.orphan(now, p, TakenOver)
			r.token, r.owned, r.used = r.nextToken(now), true, r.last
		} else {
			r.used = max(r.used, min(a.Used, r.last))
		}
		g.Token = r.token
	}
	g.Lo = r.last + 1
	g.Hi = r.last + min(uint64(a.N), MaxNumber-r.last)
	r.last, r.mode = g.Hi, a.Mode
	r.note(logEntry{nonce: a.Nonce, epoch: g.Epoch, lo: g.Lo, hi: g.Hi, token: g.Token})
	return g
}

func (r *record) settle(now time.Time, p Params, c *Change) Outcome {
	switch c.Kind {
	case KindReturn:
		return r.giveBack(now, p, c.Epoch, c.Token, c.Lo, c.Reason)
	case KindVoid:
		return r.void(now, p, Range{c.Epoch, c.Lo, c.Hi}, c.Reason)
	case KindAbandon:
		return r.abandon(now, p, c)
	case KindBump:
		return r.bump(now, p, c)
	case KindRaise:
		if at := (Position{c.Epoch, c.Hi}); at.Compare(r.position()) >= 0 {
			r.epoch, r.last = c.Epoch, c.Hi
			r.token, r.owned, r.used = c.Token, c.Token != 0, 0
		}
		return Outcome{}
	}
	return Outcome{Err: invalid("change of kind %d", c.Kind)}
}

// giveBack is the rules of KindReturn.
func (r *record) giveBack(now time.Time, p Params, epoch, token, lo uint64, reason Reason) Outcome {
	switch {
	case r.epoch == epoch && r.token == token && r.owned:
		if lo > r.last+1 {
			return Outcome{Err: ErrRolledBack, Stored: r.position()}
		}
		if lo <= r.used {
			return Outcome{Err: ErrStale}
		}
		r.last, r.used, r.owned = lo-1, lo-1, false
		for i := range r.log {
			if e := &r.log[i]; e.epoch == epoch && e.hi >= lo {
				e.spend()
			}
		}
		return Outcome{}
	case r.epoch == epoch && r.token == token:
		return Outcome{}
	case r.epoch < epoch, r.epoch == epoch && r.token < token:
		return Outcome{Err: ErrRolledBack, Stored: r.position()}
	}
	list := r.voids[epoch]
	for i, v := range list {
		if v.Kind != Orphaned || v.token != token || v.Hi < lo {
			continue
		}
		known := Range{epoch, max(lo, v.Lo), v.Hi}
		if known.Lo == v.Lo {
			r.voids[epoch] = slices.Delete(list, i, i+1)
		} else {
			list[i].Hi = known.Lo - 1
		}
		return Outcome{Void: r.certain(now, p, known, reason)}
	}
	return Outcome{}
}

func (r *record) void(now time.Time, p Params, what Range, reason Reason) Outcome {
	if r.position().Compare(Position{what.Epoch, what.Hi}) < 0 {
		return Outcome{Err: ErrRolledBack, Stored: r.position()}
	}
	return Outcome{Void: r.certain(now, p, what, reason)}
}

func (r *record) abandon(now time.Time, p Params, c *Change) (o Outcome) {
	e := r.logged(c.Nonce)
	switch {
	case e == nil:
		r.note(logEntry{nonce: c.Nonce})
		return Outcome{}
	case e.lo == 0:
		return Outcome{}
	case e.token != 0:
		o = r.giveBack(now, p, e.epoch, e.token, e.lo, c.Reason)
	default:
		o = r.void(now, p, Range{e.epoch, e.lo, e.hi}, c.Reason)
	}
	if o.Err == nil {
		e.spend()
	}
	return o
}

func (r *record) bump(now time.Time, p Params, c *Change) Outcome {
	if e := r.logged(c.Nonce); e != nil {
		return Outcome{Epoch: e.epoch}
	}
	epoch := max(r.epoch, c.Epoch)
	if epoch == MaxNumber {
		return Outcome{Err: ErrExhausted}
	}
	o := Outcome{Epoch: epoch + 1, Void: r.orphan(now, p, Bumped)}
	r.epoch, r.last, r.mode = epoch+1, 0, 0
	r.token, r.owned, r.used = r.nextToken(now), false, 0
	r.note(logEntry{nonce: c.Nonce, epoch: r.epoch})
	return o
}

func (r *record) nextToken(now time.Time) uint64 {
	return max(r.token+1, uint64(max(now.UnixMicro(), 0)))
}

// orphan records what the owner has not accounted for.
func (r *record) orphan(now time.Time, p Params, reason Reason) Range {
	if !r.owned || r.used >= r.last {
		return Range{}
	}
	lost := Range{r.epoch, r.used + 1, r.last}
	r.insert(lost, voidRecord{token: r.token, expires: now.Add(p.Retention),
		Void: Void{Lo: lost.Lo, Hi: lost.Hi, Kind: Orphaned, Reason: reason, At: micros(now)}})
	return lost
}

// certain records a certain void, joined with those that it touches.
func (r *record) certain(now time.Time, p Params, what Range, reason Reason) Range {
	joined := what
	r.voids[what.Epoch] = slices.DeleteFunc(r.voidsOf(what.Epoch), func(v voidRecord) bool {
		if v.Kind != Certain || v.Hi+1 < joined.Lo || v.Lo > joined.Hi+1 {
			return false
		}
		joined.Lo, joined.Hi = min(joined.Lo, v.Lo), max(joined.Hi, v.Hi)
		return true
	})
	r.insert(joined, voidRecord{expires: now.Add(p.Retention),
		Void: Void{Lo: joined.Lo, Hi: joined.Hi, Kind: Certain, Reason: reason, At: micros(now)}})
	return what
}

func (r *record) voidsOf(epoch uint64) []voidRecord {
	if r.voids == nil {
		r.voids = map[uint64][]voidRecord{}
	}
	return r.voids[epoch]
}

func (r *record) insert(at Range, v voidRecord) {
	list := r.voidsOf(at.Epoch)
	i, _ := slices.BinarySearchFunc(list, at.Lo, func(v voidRecord, lo uint64) int { return cmp.Compare(v.Lo, lo) })
	r.voids[at.Epoch] = slices.Insert(list, i, v)
}

func (r *record) logged(nonce [16]byte) *logEntry {
	for i := range r.log {
		if r.log[i].nonce == nonce {
			return &r.log[i]
		}
	}
	return nil
}

func (r *record) note(e logEntry) {
	if len(r.log) == LogSize {
		r.log = append(r.log[:0], r.log[1:]...)
	}
	r.log = append(r.log, e)
}

func (e *logEntry) spend() { *e = logEntry{nonce: e.nonce} }

// micros is a time as stores keep it.
func micros(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }
