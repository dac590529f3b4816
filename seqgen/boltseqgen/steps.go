package boltseqgen

import (
	"bytes"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// A key is a key in the hands of a step: its record, which save writes, and its
// voids, which are written at once.
type key struct {
	*step
	p    seqgen.Params
	name string
	record
	known  bool
	stored []byte // the record as it was read
}

func (st *step) key(p seqgen.Params, name string) (*key, error) {
	k := &key{step: st, p: p, name: name, record: record{epoch: 1}}
	b := st.keys.Get([]byte(name))
	if b == nil {
		return k, nil
	}
	k.known, k.stored = true, bytes.Clone(b)
	var err error
	k.record, err = decodeRecord(b)
	return k, err
}

// save writes the record, if it has changed.
func (k *key) save() error {
	b := k.append(nil)
	if bytes.Equal(b, k.stored) {
		return nil
	}
	return k.put(k.keys, []byte(k.name), b)
}

// reserve is [seqgen.Store.Reserve] within a transaction, whosever it is.
func (st *step) reserve(p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	grants := make([]seqgen.Grant, len(asks))
	for i := range asks {
		k, err := st.key(p, asks[i].Key)
		if err != nil {
			grants[i].Err = wrap("reserve", err)
			continue
		}
		if grants[i], err = k.reserve(&asks[i]); err != nil {
			return nil, err
		}
	}
	return grants, nil
}

// reserve answers one ask. The rules are those of [seqgen.Store.Reserve], in their
// order.
func (k *key) reserve(a *seqgen.Ask) (g seqgen.Grant, err error) {
	e := k.logged(a.Nonce)
	switch {
	case !k.known && a.Seen != (seqgen.Position{}):
		return seqgen.Grant{Err: seqgen.ErrRolledBack}, nil
	case e != nil && e.lo == 0: // rule 1
		return seqgen.Grant{Err: seqgen.ErrStale}, nil
	case e != nil:
		return seqgen.Grant{Epoch: e.epoch, Lo: e.lo, Hi: e.hi, Token: e.token}, nil
	case k.position().Compare(a.Seen) < 0: // rule 2
		return seqgen.Grant{Err: seqgen.ErrRolledBack, Stored: k.position()}, nil
	case k.mode != 0 && k.mode != a.Mode: // rule 3
		return seqgen.Grant{Err: seqgen.ErrMode, Mode: k.mode}, nil
	case a.Mode == seqgen.Block && !a.Open && (!k.owned || k.token != a.Token): // rule 4
		return seqgen.Grant{Err: seqgen.ErrStale}, nil
	case k.last == seqgen.MaxNumber: // rule 5
		return seqgen.Grant{Err: seqgen.ErrExhausted}, nil
	}
	g.Epoch = k.epoch // rule 6
	if a.Mode == seqgen.Block {
		if a.Open {
			if g.Orphaned, err = k.orphan(seqgen.TakenOver); err != nil {
				return g, err
			}
			k.token, k.owned, k.used = k.nextToken(), true, k.last
		} else {
			k.used = max(k.used, min(a.Used, k.last))
		}
		g.Token = k.token
	}
	g.Lo = k.last + 1
	g.Hi = k.last + min(uint64(a.N), seqgen.MaxNumber-k.last)
	k.last, k.mode = g.Hi, a.Mode
	k.note(logEntry{nonce: a.Nonce, epoch: g.Epoch, lo: g.Lo, hi: g.Hi, token: g.Token})
	return g, k.save()
}

// settle is [seqgen.Store.Settle] within a transaction.
func (st *step) settle(p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	outcomes := make([]seqgen.Outcome, len(changes))
	for i := range changes {
		c := &changes[i]
		k, err := st.key(p, c.Key)
		if err != nil {
			outcomes[i].Err = wrap("settle", err)
			continue
		}
		outcomes[i], err = k.settle(c)
		if err == nil && outcomes[i].Err == nil {
			err = k.save()
		}
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// settle applies one change. The rules are those of [seqgen.Store.Settle].
func (k *key) settle(c *seqgen.Change) (seqgen.Outcome, error) {
	if !k.known {
		switch c.Kind {
		case seqgen.KindReturn, seqgen.KindVoid:
			return seqgen.Outcome{Err: seqgen.ErrRolledBack}, nil
		case seqgen.KindBump:
			k.epoch = 0
		}
	}
	switch c.Kind {
	case seqgen.KindReturn:
		return k.giveBack(c.Epoch, c.Token, c.Lo, c.Reason)
	case seqgen.KindVoid:
		return k.void(seqgen.Range{Epoch: c.Epoch, Lo: c.Lo, Hi: c.Hi}, c.Reason)
	case seqgen.KindAbandon:
		return k.abandon(c)
	case seqgen.KindBump:
		return k.bump(c)
	case seqgen.KindRaise:
		if at := (seqgen.Position{Epoch: c.Epoch, Number: c.Hi}); at.Compare(k.position()) >= 0 {
			k.epoch, k.last = c.Epoch, c.Hi
			k.token, k.owned, k.used = c.Token, c.Token != 0, 0
		}
		return seqgen.Outcome{}, nil
	}
	return seqgen.Outcome{Err: seqgen.ErrInvalid}, nil
}

// giveBack is the rules of KindReturn.
func (k *key) giveBack(epoch, token, lo uint64, reason seqgen.Reason) (o seqgen.Outcome, err error) {
	switch {
	case k.epoch == epoch && k.token == token && k.owned:
		if lo > k.last+1 {
			return seqgen.Outcome{Err: seqgen.ErrRolledBack, Stored: k.position()}, nil
		}
		if lo <= k.used {
			return seqgen.Outcome{Err: seqgen.ErrStale}, nil
		}
		k.last, k.used, k.owned = lo-1, lo-1, false
		for i := range k.log {
			if e := &k.log[i]; e.epoch == epoch && e.hi >= lo {
				e.spend()
			}
		}
		return o, nil
	case k.epoch == epoch && k.token == token:
		return o, nil
	case k.epoch < epoch, k.epoch == epoch && k.token < token:
		return seqgen.Outcome{Err: seqgen.ErrRolledBack, Stored: k.position()}, nil
	}
	prefix := epochKey(k.name, epoch)
	c := k.voids.Cursor()
	for place, v := c.Seek(prefix); place != nil; place, v = c.Next() {
		from, ok := numberIn(prefix, place)
		if !ok {
			break
		}
		row, err := decodeVoid(v)
		if err != nil {
			return o, err
		}
		if row.kind != seqgen.Orphaned || row.token != token || row.hi < lo {
			continue
		}
		return k.narrow(prefix, from, row, lo, reason)
	}
	return o, nil
}

// narrow makes what is orphaned from lo on certain.
func (k *key) narrow(prefix []byte, from uint64, row voidRow, lo uint64, reason seqgen.Reason) (o seqgen.Outcome, err error) {
	known := seqgen.Range{Epoch: epochOf(prefix), Lo: max(lo, from), Hi: row.hi}
	if known.Lo == from {
		err = k.delete(k.voids, voidKey(prefix, from))
	} else {
		row.hi = known.Lo - 1
		err = k.put(k.voids, voidKey(prefix, from), row.append(nil))
	}
	if err != nil {
		return o, err
	}
	o.Void, err = k.certain(known, reason)
	return o, err
}

func (k *key) void(what seqgen.Range, reason seqgen.Reason) (o seqgen.Outcome, err error) {
	if k.position().Compare(seqgen.Position{Epoch: what.Epoch, Number: what.Hi}) < 0 {
		return seqgen.Outcome{Err: seqgen.ErrRolledBack, Stored: k.position()}, nil
	}
	o.Void, err = k.certain(what, reason)
	return o, err
}

func (k *key) abandon(c *seqgen.Change) (o seqgen.Outcome, err error) {
	e := k.logged(c.Nonce)
	switch {
	case e == nil:
		k.note(logEntry{nonce: c.Nonce})
		return o, nil
	case e.lo == 0:
		return o, nil
	case e.token != 0:
		o, err = k.giveBack(e.epoch, e.token, e.lo, c.Reason)
	default:
		o, err = k.void(seqgen.Range{Epoch: e.epoch, Lo: e.lo, Hi: e.hi}, c.Reason)
	}
	if o.Err == nil {
		e.spend()
	}
	return o, err
}

func (k *key) bump(c *seqgen.Change) (o seqgen.Outcome, err error) {
	if e := k.logged(c.Nonce); e != nil {
		return seqgen.Outcome{Epoch: e.epoch}, nil
	}
	epoch := max(k.epoch, c.Epoch)
	if epoch == seqgen.MaxNumber {
		return seqgen.Outcome{Err: seqgen.ErrExhausted}, nil
	}
	o.Epoch = epoch + 1
	if o.Void, err = k.orphan(seqgen.Bumped); err != nil {
		return o, err
	}
	k.epoch, k.last, k.mode = epoch+1, 0, 0
	k.token, k.owned, k.used = k.nextToken(), false, 0
	k.note(logEntry{nonce: c.Nonce, epoch: k.epoch})
	return o, nil
}

func (k *key) nextToken() uint64 { return max(k.token+1, uint64(max(k.now, 0))) }

// logged returns the entry of a nonce, or nil. It is valid until the next note.
func (k *key) logged(nonce [16]byte) *logEntry {
	for i := range k.log {
		if k.log[i].nonce == nonce {
			return &k.log[i]
		}
	}
	return nil
}

func (k *key) note(e logEntry) {
	if len(k.log) >= seqgen.LogSize {
		k.log = append(k.log[:0], k.log[len(k.log)-seqgen.LogSize+1:]...)
	}
	k.log = append(k.log, e)
}

func (st *step) look(states []seqgen.State) {
	for i := range states {
		b := st.keys.Get([]byte(states[i].Key))
		if b == nil {
			continue
		}
		r, err := decodeRecord(b)
		if err != nil {
			states[i].Err = wrap("look", err)
			continue
		}
		states[i] = seqgen.State{Key: states[i].Key, Epoch: r.epoch, Last: r.last, Mode: r.mode, Token: r.token, Owned: r.owned, Used: r.used}
	}
}

// unknown are the states of keys without a record.
func unknown(keys []string) []seqgen.State {
	states := make([]seqgen.State, len(keys))
	for i, key := range keys {
		states[i].Key = key
	}
	return states
}

func (st *step) list(q *seqgen.VoidQuery) (page []seqgen.Void, err error) {
	prefix := epochKey(q.Key, q.Epoch)
	c := st.voids.Cursor()
	behind, _ := c.Seek(voidKey(prefix, q.From))
	place, v := seekBefore(c, behind) // it may reach into what is asked for
	if _, ok := numberIn(prefix, place); !ok {
		place, v = c.Seek(voidKey(prefix, q.From))
	}
	for ; place != nil && len(page) < q.Limit; place, v = c.Next() {
		lo, ok := numberIn(prefix, place)
		if !ok || lo > q.To {
			break
		}
		row, err := decodeVoid(v)
		if err != nil {
			return nil, err
		}
		if row.hi < q.From {
			continue
		}
		page = append(page, seqgen.Void{Key: q.Key, Epoch: q.Epoch, Lo: lo, Hi: row.hi, Kind: row.kind, Reason: row.reason,
			At: time.UnixMicro(row.at).UTC()})
	}
	return page, nil
}
