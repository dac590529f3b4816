package order

import (
	"bytes"
	"cmp"
	"container/heap"
	"container/list"
	"math"
	"slices"
)

// never is later than every time.
const never = math.MaxInt64

// A scopeRow is the data of a scope. Times are microseconds.
type scopeRow struct {
	name    string
	keys    map[string]*keyRow
	due     dueKeys              // keys that are due, or will be
	busy    []*keyRow            // keys with something that has not ended
	asks    map[[16]byte]*askRow // by nonce, those that have keys which are claimed
	ids     map[string]messagePlace
	ended   []*keptMessage // in the order in which they ended, some of them gone
	records list.List      // of *gapRecord, of all keys
	sweep   *list.Element  // where the next Sweep goes on in records
	floor   uint64         // above every token of a key that was forgotten
}

// A messagePlace is where the message with an ID is.
type messagePlace struct {
	epoch  *epochRow
	number uint64
}

// A keyRow is a key. A key that is idle costs this, its epochs, and a digest for
// each number within the window.
type keyRow struct {
	name   string
	scope  *scopeRow
	epochs []*epochRow // ascending: those that have ended, the active one, those that wait
	active int

	arrivals    Arrivals
	late        lateQueue // late messages that wait and are not parked
	lateWaiting int       // those that wait, with parked ones
	records     []*gapRecord

	token  uint64
	ask    *askRow  // that claimed it; nil: not claimed
	until  int64    // the end of the lease; zero: not claimed
	freed  int64    // when it was released
	runEnd Position // behind the run of the last claim

	at    int64 // when it can be claimed
	order uint64
	place int // in scopeRow.due; negative: not there
	busy  int // in scopeRow.busy; negative: not there
}

// An askRow is an ask and the keys that it claimed.
type askRow struct {
	nonce   [16]byte
	keys    []*keyRow
	claimed int // of keys, those that are still claimed by it, lapsed ones included
}

// A gapRecord is the record of numbers that were skipped.
type gapRecord struct {
	key      *keyRow
	epoch    uint64
	from, to uint64
	gapNotes
	reason     Reason
	arrived    uint64
	resolution Resolution
	resolved   int64
	actor      string
	note       string
	at         *list.Element
}

func newScopeRow(name string) *scopeRow {
	return &scopeRow{
		name: name, keys: map[string]*keyRow{}, asks: map[[16]byte]*askRow{}, ids: map[string]messagePlace{},
	}
}

// epoch returns where an epoch is, or where it would be.
func (k *keyRow) epoch(no uint64) (int, bool) {
	if e := k.now(); e.Epoch == no {
		return k.active, true
	}
	return slices.BinarySearchFunc(k.epochs, no, func(e *epochRow, no uint64) int { return cmp.Compare(e.Epoch, no) })
}

// now returns the active epoch.
func (k *keyRow) now() *epochRow { return k.epochs[k.active] }

// last returns the highest epoch.
func (k *keyRow) last() *epochRow { return k.epochs[len(k.epochs)-1] }

// begin adds an epoch to a key, a new one if k is nil, and abandons lower ones.
func (m *Memory) begin(s *scopeRow, name string, k *keyRow, e *epochRow, now int64, p *Params) {
	if k == nil {
		k = &keyRow{name: name, scope: s, place: -1, busy: -1, freed: now}
		s.keys[name] = k
	}
	e.key = k
	i := 0
	if len(k.epochs) > 0 {
		i, _ = k.epoch(e.Epoch)
	}
	k.epochs = slices.Insert(k.epochs, i, e)
	if p.Abandon && i == len(k.epochs)-1 {
		for _, lower := range k.epochs[k.active:i] {
			m.cross(lower, now, p, crossing{to: lower.Head, drop: true, reason: ReasonAbandoned})
		}
	}
}

// buffered counts the messages that wait in the order of a key.
func (k *keyRow) buffered() (n uint64) {
	for _, e := range k.epochs[k.active:] {
		n += e.Buffered
	}
	return n
}

// changed brings all that follows from the epochs of a key up to date: every step
// ends with it.
func (m *Memory) changed(k *keyRow, now int64, p *Params) {
	s := k.scope
	for k.active < len(k.epochs)-1 && k.now().Cursor == k.now().Head {
		m.endEpoch(k.now())
		k.active++
		k.now().ready = max(k.now().ready, now)
	}
	e := k.now()
	e.watch(now, p)
	at := int64(never)
	if len(k.late) > 0 {
		at = k.late[0].due
	}
	switch {
	case e.parked:
	case e.gap.open:
		at = min(at, e.gap.look)
	case e.Buffered > 0:
		at = min(at, e.ready)
	}
	if at != never {
		at = max(at, k.freed, k.until)
	}
	s.schedule(k, at)
	switch busy := e.Cursor < e.Head || k.lateWaiting > 0 || len(k.epochs) > k.active+1; {
	case busy && k.busy < 0:
		k.busy = len(s.busy)
		s.busy = append(s.busy, k)
	case !busy && k.busy >= 0:
		s.rest(k)
	}
}

// schedule puts a key where it belongs among those that are due.
func (s *scopeRow) schedule(k *keyRow, at int64) {
	if at == k.at && k.place >= 0 {
		return
	}
	s.due.order++
	k.at, k.order = at, s.due.order
	switch {
	case at == never && k.place >= 0:
		heap.Remove(&s.due, k.place)
	case at == never:
	case k.place >= 0:
		heap.Fix(&s.due, k.place)
	default:
		heap.Push(&s.due, k)
	}
}

// rest takes a key out of the busy ones.
func (s *scopeRow) rest(k *keyRow) {
	last := len(s.busy) - 1
	s.busy[k.busy] = s.busy[last]
	s.busy[k.busy].busy = k.busy
	s.busy[last] = nil
	s.busy = s.busy[:last]
	k.busy = -1
}

// release makes a key claimable.
func (s *scopeRow) release(k *keyRow, now int64) {
	s.unask(k)
	k.until, k.freed = 0, now
}

// unask takes a key out of those of the ask that claimed it.
func (s *scopeRow) unask(k *keyRow) {
	if k.ask == nil {
		return
	}
	if k.ask.claimed--; k.ask.claimed == 0 && s.asks[k.ask.nonce] == k.ask {
		delete(s.asks, k.ask.nonce)
	}
	k.ask = nil
}

// note notes where a message with an ID is, if it is the first.
func (s *scopeRow) note(id string, e *epochRow, n uint64) {
	if _, ok := s.ids[id]; id != "" && !ok {
		s.ids[id] = messagePlace{e, n}
	}
}

// unname forgets the ID of a message.
func (s *scopeRow) unname(id string, e *epochRow, n uint64) {
	if id != "" && s.ids[id] == (messagePlace{e, n}) {
		delete(s.ids, id)
	}
}

// forget forgets a message that has ended.
func (s *scopeRow) forget(m *keptMessage) {
	s.unname(m.id, m.epoch, m.number)
	m.gone = true
	m.payload, m.context = nil, nil
	if m.epoch.kept[m.number] == m {
		delete(m.epoch.kept, m.number)
	}
}

// addLate stores a late message.
func (s *scopeRow) addLate(e *epochRow, n uint64, a *Arrival, now int64) {
	if old := e.kept[n]; old != nil { // dropped, and sent again
		s.forget(old)
	}
	s.due.order++
	l := &keptMessage{
		heldMessage: heldMessage{id: a.ID, payload: bytes.Clone(a.Payload), context: bytes.Clone(a.Context), pushed: now},
		epoch:       e, number: n, digest: a.Digest, late: true, due: now, order: s.due.order, place: -1,
	}
	e.keep(l)
	s.note(a.ID, e, n)
	e.key.lateWaiting++
	heap.Push(&e.key.late, l)
}

// endLate ends a late message.
func (s *scopeRow) endLate(l *keptMessage, now int64) {
	k := l.epoch.key
	k.lateWaiting--
	if l.place >= 0 {
		heap.Remove(&k.late, l.place)
	}
	l.ended, l.parked = now, false
	if l.id == "" {
		s.forget(l) // what is remembered for the window is in the pages
		return
	}
	s.ended = append(s.ended, l)
}

// record keeps the record of numbers that were skipped.
func (m *Memory) record(e *epochRow, from, to uint64, reason Reason, notes gapNotes) {
	r := &gapRecord{key: e.key, epoch: e.Epoch, from: from, to: to, gapNotes: notes, reason: reason}
	r.at = e.key.scope.records.PushBack(r)
	i, _ := e.key.recordAt(e.Epoch, from)
	e.key.records = slices.Insert(e.key.records, i, r)
}

// recordAt returns where the record is in which a number lies, or would be.
func (k *keyRow) recordAt(epoch, n uint64) (int, bool) {
	i, _ := slices.BinarySearchFunc(k.records, n, func(r *gapRecord, n uint64) int {
		if r.epoch < epoch || r.epoch == epoch && r.to <= n {
			return -1
		}
		return 1
	})
	return i, i < len(k.records) && k.records[i].epoch == epoch && k.records[i].from <= n
}

// dropRecord forgets a record.
func (s *scopeRow) dropRecord(r *gapRecord) {
	if s.sweep == r.at {
		s.sweep = r.at.Next()
	}
	s.records.Remove(r.at)
	r.key.records = slices.DeleteFunc(r.key.records, func(other *gapRecord) bool { return other == r })
}

// erase forgets a key.
func (s *scopeRow) erase(k *keyRow) {
	s.floor = max(s.floor, k.token)
	s.unask(k)
	if k.place >= 0 {
		heap.Remove(&s.due, k.place)
	}
	if k.busy >= 0 {
		s.rest(k)
	}
	for len(k.records) > 0 {
		s.dropRecord(k.records[0])
	}
	for _, e := range k.epochs {
		for _, m := range e.kept {
			s.forget(m)
		}
		for n, ok := e.pages.next(0, heldSet); ok; n, ok = e.pages.next(n+1, heldSet) {
			s.unname(e.pages.message(n).id, e, n)
		}
	}
	delete(s.keys, k.name)
}

// dueKeys is a heap of keys: the one that can be claimed first is the first.
type dueKeys struct {
	keys  []*keyRow
	order uint64
}

func (d *dueKeys) Len() int { return len(d.keys) }

func (d *dueKeys) Less(i, j int) bool {
	a, b := d.keys[i], d.keys[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
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
	last := len(d.keys) - 1
	k := d.keys[last]
	d.keys[last] = nil
	d.keys = d.keys[:last]
	k.place = -1
	return k
}

// lateQueue is a heap of late messages: the one that is due first is the first.
type lateQueue []*keptMessage

func (q lateQueue) Len() int { return len(q) }

func (q lateQueue) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].order < q[j].order
}

func (q lateQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *lateQueue) Push(x any) {
	l := x.(*keptMessage)
	l.place = len(*q)
	*q = append(*q, l)
}

func (q *lateQueue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	l.place = -1
	return l
}
