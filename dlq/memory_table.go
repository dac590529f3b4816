package dlq

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
	size    int // letters
	streams map[string]*streamRows
	things  list.List     // of sweepable, all there are
	sweep   *list.Element // where the next Sweep goes on
}

// A streamRows is what is known of a stream.
type streamRows struct {
	name       string
	seq        uint64
	letters    map[uint64]*stored
	order      []*stored            // by Seq; those that were removed stay until there are many
	ids        map[string][]*stored // by ID, and for each by Seq
	unresolved list.List            // of *stored, by Seq
	ended      [StateRejected + 1]int
	lanes      map[string]*lane
	claimed    map[*lane]struct{} // lapsed ones included
	due        dueLanes           // the lanes whose first letter waits
	groups     map[string]*Group
	entries    []*entryRow
	applied    map[[16]byte]struct{} // the nonces of entries
	entrySeq   uint64
	jobs       map[string]*jobRow
	alarms     map[string]*alarmRow
}

// stored is a letter with what the store alone needs to know.
type stored struct {
	Record
	stream    *streamRows
	putBy     [16]byte // the nonce of the last Put
	putAs     Answer
	begunBy   uint64 // the token under which it is being tried; zero: it is not
	settledBy uint64 // the token of its last settlement
	settledAs Kind
	counted   bool // its job waits for what becomes of it
	gone      bool // removed
	unlisted  *list.Element
	at        *list.Element
}

// A lane is the unresolved letters of a key.
type lane struct {
	name   string
	stream *streamRows
	queue  []*stored // by Seq
	token  uint64
	nonce  [16]byte // of the ask that claimed it
	until  int64    // the end of the lease; zero: not claimed
	since  int64    // when it was last released, or its first letter became the first

	place   int // in due; negative: not there
	expires int64
	thing   *list.Element
}

func (t *table) init() {
	t.limit = DefaultLimit
	t.streams = map[string]*streamRows{}
}

// stream returns the rows of a stream, new ones if there are none.
func (t *table) stream(name string) *streamRows {
	s := t.look(name)
	t.streams[name] = s
	return s
}

// look is stream for those who store nothing.
func (t *table) look(name string) *streamRows {
	s := t.streams[name]
	if s == nil {
		s = &streamRows{
			name: name, letters: map[uint64]*stored{}, ids: map[string][]*stored{}, lanes: map[string]*lane{},
			claimed: map[*lane]struct{}{}, groups: map[string]*Group{}, applied: map[[16]byte]struct{}{},
			jobs: map[string]*jobRow{}, alarms: map[string]*alarmRow{},
		}
	}
	return s
}

// newest is the letter of an ID with the greatest Seq, or nil.
func (s *streamRows) newest(id string) *stored {
	all := s.ids[id]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// add stores a letter.
func (t *table) add(s *streamRows, l *Put, now int64) {
	s.seq++
	r := &stored{stream: s, putBy: l.Nonce, putAs: Added, Record: Record{
		Stream: l.Stream, ID: l.ID, Key: l.Key, Seq: s.seq, State: StateWaiting, Body: bytes.Clone(l.Body), Digest: l.Digest,
		Put: time.UnixMicro(now), Next: time.UnixMicro(now + l.Delay.Microseconds()),
	}}
	t.size++
	s.letters[r.Seq] = r
	s.ids[r.ID] = append(s.ids[r.ID], r)
	s.order = append(s.order, r)
	r.unlisted = s.unresolved.PushBack(r)
	r.at = t.things.PushBack(r)
	if l.Failure.Fingerprint != "" {
		s.fail(r, bytesOwned(l.Failure), now)
	}
	t.enter(r, now)
}

// enter puts an unresolved letter into its lane.
func (t *table) enter(r *stored, now int64) {
	s := r.stream
	k := s.lanes[r.Lane()]
	if k == nil {
		k = &lane{name: r.Lane(), stream: s, place: -1}
		s.lanes[k.name] = k
		k.thing = t.things.PushBack(k)
	}
	k.queue = append(k.queue, r) // the newest of them, or alone
	if len(k.queue) == 1 {
		k.since = now
	}
	s.schedule(k)
}

// leave takes a letter out of its lane.
func (s *streamRows) leave(r *stored, now, expires int64) {
	k := s.lanes[r.Lane()]
	first := k.queue[0] == r
	k.queue = slices.DeleteFunc(k.queue, func(q *stored) bool { return q == r })
	k.expires = expires
	if first {
		k.since = now
	}
	s.schedule(k)
}

// fail adds a failure to the log of an unresolved letter.
func (s *streamRows) fail(r *stored, f Failure, now int64) {
	r.Log.Add(f)
	if r.Fingerprint != f.Fingerprint {
		s.count(r, -1, now)
		r.Fingerprint = f.Fingerprint
		s.count(r, 1, now)
	}
	s.groups[r.Fingerprint].Last = time.UnixMicro(now)
}

// interrupt takes a letter that is begun from its worker. It is due at next.
func (s *streamRows) interrupt(r *stored, next int64) {
	if r.begunBy == 0 {
		return
	}
	r.begunBy, r.Next = 0, time.UnixMicro(next)
	s.schedule(s.lanes[r.Lane()])
}

// move changes the state of a letter that stays unresolved.
func (s *streamRows) move(r *stored, to State, now int64) {
	if g := s.groups[r.Fingerprint]; g != nil && r.State != to {
		s.tally(g, r.State, -1)
		s.tally(g, to, 1)
	}
	r.State = to
	if to == StateReview {
		r.Next = time.Time{}
	}
	s.schedule(s.lanes[r.Lane()])
}

// end ends a letter.
func (t *table) end(s *streamRows, r *stored, to State, p Params, now int64) {
	s.count(r, -1, now)
	s.leave(r, now, now+p.Retention.Microseconds())
	s.unresolved.Remove(r.unlisted)
	s.ended[to]++
	r.State, r.Next = to, time.Time{}
	r.Settled, r.Expires = time.UnixMicro(now), time.UnixMicro(now+p.Retention.Microseconds())
}

// count adds a letter to its group, or takes it out.
func (s *streamRows) count(r *stored, n int, now int64) {
	if r.Fingerprint == "" {
		return
	}
	g := s.groups[r.Fingerprint]
	if g == nil {
		g = &Group{Stream: s.name, Fingerprint: r.Fingerprint, First: time.UnixMicro(now), Last: time.UnixMicro(now)}
		s.groups[g.Fingerprint] = g
	}
	s.tally(g, r.State, n)
	if g.Waiting+g.Review == 0 {
		delete(s.groups, g.Fingerprint)
	}
}

func (s *streamRows) tally(g *Group, state State, n int) {
	if state == StateReview {
		g.Review += n
	} else {
		g.Waiting += n
	}
}

// remove forgets a letter.
func (t *table) remove(r *stored) {
	s := r.stream
	t.size--
	r.gone = true
	delete(s.letters, r.Seq)
	s.ids[r.ID] = slices.DeleteFunc(s.ids[r.ID], func(other *stored) bool { return other == r })
	if len(s.ids[r.ID]) == 0 {
		delete(s.ids, r.ID)
	}
	t.unlink(r.at)
	if len(s.order) > 2*len(s.letters)+64 {
		s.order = slices.DeleteFunc(s.order, func(r *stored) bool { return r.gone })
	}
}

// unlink takes a thing out of the order in which Sweep looks at them.
func (t *table) unlink(e *list.Element) {
	if t.sweep == e {
		t.sweep = e.Next()
	}
	t.things.Remove(e)
}

// release makes a lane claimable again.
func (s *streamRows) release(k *lane, now, expires int64) {
	k.until, k.since, k.expires = 0, now, expires
	delete(s.claimed, k)
	s.schedule(k)
}

// schedule puts a lane where it belongs after a change.
func (s *streamRows) schedule(k *lane) {
	waits := len(k.queue) > 0 && k.queue[0].State == StateWaiting
	switch {
	case !waits && k.place >= 0:
		heap.Remove(&s.due, k.place)
	case waits && k.place >= 0:
		heap.Fix(&s.due, k.place)
	case waits:
		heap.Push(&s.due, k)
	}
}

// empty says whether a lane, which may be nil, has no unresolved letter.
func (k *lane) empty() bool { return k == nil || len(k.queue) == 0 }

// begun is the letter that is tried under the lane's token, or nil.
func (k *lane) begun() *stored {
	if len(k.queue) > 0 && k.queue[0].begunBy == k.token {
		return k.queue[0]
	}
	return nil
}

// at is when the lane can be claimed, if its first letter waits.
func (k *lane) at() int64 { return max(k.until, k.since, k.queue[0].Next.UnixMicro()) }

// claim is a claimed lane as its owner gets it.
func (k *lane) claim(now int64) Claim {
	return Claim{Record: k.queue[0].copy(), Lane: k.name, Token: k.token, Left: micros(k.until - now)}
}

func (r *stored) copy() Record {
	c := r.Record
	c.Body, c.Original = bytes.Clone(r.Body), bytes.Clone(r.Original)
	c.Log.First = bytesOwned(c.Log.First)
	c.Log.Last, c.Log.Folds = slices.Clone(c.Log.Last), slices.Clone(c.Log.Folds)
	for i, f := range c.Log.Last {
		c.Log.Last[i] = bytesOwned(f)
	}
	return c
}

// dueLanes is a heap of lanes: the one that can be claimed first is the first.
type dueLanes struct{ lanes []*lane }

func (d *dueLanes) Len() int { return len(d.lanes) }

func (d *dueLanes) Less(i, j int) bool {
	a, b := d.lanes[i], d.lanes[j]
	if x, y := a.at(), b.at(); x != y {
		return x < y
	}
	return a.queue[0].Seq < b.queue[0].Seq
}

func (d *dueLanes) Swap(i, j int) {
	d.lanes[i], d.lanes[j] = d.lanes[j], d.lanes[i]
	d.lanes[i].place, d.lanes[j].place = i, j
}

func (d *dueLanes) Push(x any) {
	k := x.(*lane)
	k.place = len(d.lanes)
	d.lanes = append(d.lanes, k)
}

func (d *dueLanes) Pop() any {
	k := d.lanes[len(d.lanes)-1]
	d.lanes = d.lanes[:len(d.lanes)-1]
	k.place = -1
	return k
}
