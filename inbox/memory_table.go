package inbox

import (
	"bytes"
	"container/heap"
	"container/list"
	"slices"
	"time"
)

// A table is the data of a [Memory]. Times are microseconds.
type table struct {
	limit   int
	seq     uint64
	order   uint64
	events  map[string]*entry
	keys    map[keyName]*keyRow
	due     map[string]*dueKeys  // by stream: the keys that have pending records
	claimed map[*keyRow]struct{} // lapsed ones included
	records list.List            // of *stored, all of them, by Seq
	pending list.List            // of *stored, those that are pending, by Seq
	idle    list.List            // of *keyRow, those that are neither claimed nor due
	sweep   *list.Element        // where the next Sweep goes on
	counts  [StateUnknown + 1]int
}

// An entry is what is known of an event ID.
type entry struct {
	digest  [32]byte  // of the first arrival
	records []*stored // of its streams, then of conflicts
}

// stored is a record with what the store alone needs to know.
type stored struct {
	Record
	digest     [32]byte
	begunBy    uint64   // the token under which it was last begun
	endedBy    uint64   // the token under which it ended
	since      int64    // when it was stored or replayed
	changedBy  [16]byte // the nonce of the last change
	at, waited *list.Element
}

type keyName struct{ stream, key string }

// A keyRow is the ordering key of a stream.
type keyRow struct {
	keyName
	queue []*stored // its pending records, by Seq
	token uint64
	nonce [16]byte // of the ask that claimed it
	until int64    // the end of the lease; zero: not claimed
	next  int64    // when it is due if it is not claimed

	place   int // in due; negative: not there
	order   uint64
	idle    *list.Element
	expires int64
}

// at is when the key can be claimed.
func (k *keyRow) at() int64 {
	if k.until != 0 {
		return k.until
	}
	return k.next
}

func (t *table) init() {
	t.limit = DefaultLimit
	t.events = map[string]*entry{}
	t.keys = map[keyName]*keyRow{}
	t.due = map[string]*dueKeys{}
	t.claimed = map[*keyRow]struct{}{}
}

// room is how many records arrivals may need.
func (t *table) room(arrivals []Arrival) (n int) {
	for i := range arrivals {
		a := &arrivals[i]
		switch e := t.events[a.ID]; {
		case e == nil:
			n += max(len(a.Streams), 1)
		case e.digest != a.Digest:
			n++
		}
	}
	return n
}

// keeps says whether an arrival with another digest is kept.
func (e *entry) keeps(digest [32]byte) bool {
	conflicts := 0
	for _, r := range e.records {
		if r.State == StateConflict {
			conflicts++
		}
		if r.digest == digest {
			return false
		}
	}
	return conflicts < MaxConflicts
}

// add stores a record.
func (t *table) add(e *entry, a *Arrival, stream string, s State, now, expires int64) {
	t.seq++
	r := &stored{digest: a.Digest, since: now, Record: Record{
		Event: a.Event, Seq: t.seq, Stream: stream, State: s, Form: a.Form, LastError: a.Reason, Received: time.UnixMicro(now),
	}}
	r.Payload, r.Context = bytes.Clone(a.Payload), bytes.Clone(a.Context)
	e.records = append(e.records, r)
	r.at = t.records.PushBack(r)
	t.counts[s]++
	if s != StatePending {
		r.Settled, r.Expires, r.Erases = time.UnixMicro(now), time.UnixMicro(expires), time.UnixMicro(expires)
		return
	}
	t.wait(r, now)
}

// wait puts a pending record behind all others of its key.
func (t *table) wait(r *stored, now int64) {
	r.waited = t.pending.PushBack(r)
	k := t.key(keyName{r.Stream, r.Key})
	k.queue = append(k.queue, r)
	if len(k.queue) == 1 {
		k.next = now
		t.schedule(k)
	}
}

// key returns the row of a key, a new one if there is none.
func (t *table) key(name keyName) *keyRow {
	k := t.keys[name]
	if k == nil {
		k = &keyRow{keyName: name, place: -1}
		t.keys[name] = k
	}
	return k
}

// schedule puts a key where it belongs after a change.
func (t *table) schedule(k *keyRow) {
	due := t.due[k.stream]
	if due == nil {
		due = &dueKeys{}
		t.due[k.stream] = due
	}
	t.order++
	k.order = t.order
	switch {
	case len(k.queue) == 0 && k.place >= 0:
		heap.Remove(due, k.place)
	case len(k.queue) > 0 && k.place >= 0:
		heap.Fix(due, k.place)
	case len(k.queue) > 0:
		heap.Push(due, k)
	}
	if k.idle != nil {
		t.idle.Remove(k.idle)
		k.idle = nil
	}
	if len(k.queue) == 0 && k.until == 0 {
		k.idle = t.idle.PushBack(k)
	}
}

// begin counts an attempt of the first record of a claimed key.
func (t *table) begin(k *keyRow) {
	if r := k.queue[0]; r.begunBy != k.token {
		r.begunBy = k.token
		r.Attempts++
	}
}

// end takes the first record of a key out of its queue.
func (t *table) end(k *keyRow, r *stored, s *Settlement, p Params, now int64) {
	k.queue[0] = nil
	k.queue = k.queue[1:]
	t.pending.Remove(r.waited)
	r.endedBy, r.Next, r.waited = s.Token, time.Time{}, nil
	if s.Kind != KindDone {
		r.LastError, r.Failures = s.Error, slices.Clone(s.Failures)
	}
	t.conclude(r, s.Kind.state(), p, now)
	k.expires = now + p.Retention.Microseconds()
	t.schedule(k)
}

// conclude leaves a record in a state in which it has ended.
func (t *table) conclude(r *stored, s State, p Params, now int64) {
	t.counts[r.State]--
	t.counts[s]++
	r.State, r.Settled = s, time.UnixMicro(now)
	switch s {
	case StateDone:
		r.Expires = time.UnixMicro(now + p.Retention.Microseconds())
		r.Erases = r.Expires
		if p.Bodies > 0 {
			r.Erases = time.UnixMicro(now + p.Bodies.Microseconds())
		}
	case StateUnknown:
		r.Expires, r.Erases = time.Time{}, time.Time{}
	default:
		r.Expires = time.UnixMicro(now + p.Keep.Microseconds())
		r.Erases = r.Expires
	}
}

// release makes a key claimable at a time.
func (t *table) release(k *keyRow, at, expires int64) {
	k.until, k.next, k.expires = 0, at, expires
	delete(t.claimed, k)
	t.schedule(k)
}

// find returns the record that a settlement is about.
func (t *table) find(s *Settlement) *stored {
	if e := t.events[s.ID]; e != nil {
		for _, r := range e.records {
			if r.Stream == s.Stream && r.Key == s.Key && (s.Seq == 0 || s.Seq == r.Seq) {
				return r
			}
		}
	}
	return nil
}

// remove forgets a record, and the event with its last one.
func (t *table) remove(r *stored) {
	t.unlink(r)
	t.counts[r.State]--
	e := t.events[r.ID]
	e.records = slices.DeleteFunc(e.records, func(other *stored) bool { return other == r })
	if len(e.records) == 0 {
		delete(t.events, r.ID)
	}
}

// unlink takes a record out of the order of all records.
func (t *table) unlink(r *stored) {
	if t.sweep == r.at {
		t.sweep = r.at.Next()
	}
	t.records.Remove(r.at)
}

// drop forgets a key that has nothing pending.
func (t *table) drop(k *keyRow) {
	if k.idle != nil {
		t.idle.Remove(k.idle)
	}
	delete(t.claimed, k)
	delete(t.keys, k.keyName)
}

// claim is a claimed key as its owner gets it.
func (k *keyRow) claim(now int64, a *Ask) Claim {
	c := Claim{Stream: k.stream, Key: k.key, Token: k.token, Left: micros(k.until - now)}
	size := 0
	for _, r := range k.queue {
		if len(c.Records) >= a.Events || len(c.Records) > 0 && size >= a.Bytes {
			c.More = true
			break
		}
		size += len(r.Payload) + len(r.Context)
		c.Records = append(c.Records, r.copy(now))
	}
	return c
}

func (r *stored) copy(now int64) Record {
	c := r.Record
	c.Payload, c.Context = bytes.Clone(r.Payload), bytes.Clone(r.Context)
	c.Failures, c.Actions = slices.Clone(r.Failures), slices.Clone(r.Actions)
	c.Age = micros(now - r.since)
	return c
}

// dueKeys is a heap of keys: the one that can be claimed first is the first.
type dueKeys struct{ keys []*keyRow }

func (d *dueKeys) Len() int { return len(d.keys) }

func (d *dueKeys) Less(i, j int) bool {
	a, b := d.keys[i], d.keys[j]
	if a.at() != b.at() {
		return a.at() < b.at()
	}
	return a.order < b.order
}

func (d *dueKeys) Swap(i, j int) {
	d.keys[i], d.keys[j] = d.keys[j], d.keys[i]
	d.keys[i].place, d.keys[j].place = i, j
}

func (d *dueKeys) Push(x any) {
	k := x.(*keyRow)
	k.place = len(d.keys)
	d.keys = append(d.keys, k)
}

func (d *dueKeys) Pop() any {
	k := d.keys[len(d.keys)-1]
	d.keys = d.keys[:len(d.keys)-1]
	k.place = -1
	return k
}
