package ordertest

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/order"
)

// A model is the specification once more, as plainly as it can be written: a map
// from numbers to what is known of them, and nothing that is counted in advance.
// It shares no code with any store.
type model struct {
	p    order.Params
	now  time.Duration // since the history began, by the sleeps in it
	keys map[string]*modelKey
	ids  map[string]modelPlace
}

type modelPlace struct {
	key      string
	position order.Position
}

type modelKey struct {
	name     string
	epochs   []*modelEpoch // ascending
	arrivals order.Arrivals
	records  []*modelRecord

	token   uint64
	nonce   [16]byte
	until   time.Duration // zero: not claimed
	run     []uint64      // what the last claim began
	settled bool          // since the last claim
}

type modelEpoch struct {
	epoch, base, cursor, head uint64
	ended                     bool
	numbers                   map[uint64]*modelNumber // those that are not missing

	ready        time.Duration // when the message at the cursor can be begun
	gap          bool          // one is open; what follows is of it, or of the last one
	above        uint64        // the number behind it
	opened, look time.Duration // its age counts from opened
	since        time.Duration // when the cursor came to its first number, or it opened
	resent       time.Duration // the same, or when a person said later that it is sent again
	alerted      bool
	asked        int
}

type modelNumber struct {
	state      order.State
	arrival    order.Arrival // zero where no message was ever stored
	verifiable bool          // the digest is known
	open       bool          // the digest may be known or not
	outside    bool          // delivered outside of the buffer
	pushed     time.Duration
	attempts   int
	failure    string

	waits, parked bool // of a late one
	due           time.Duration
	noted         uint64
}

type modelRecord struct {
	order.Gap
	opened  time.Duration
	outside uint64 // of its numbers, reported as delivered: Arrived may count them
}

func newModel(p order.Params) *model {
	return &model{p: p, keys: map[string]*modelKey{}, ids: map[string]modelPlace{}}
}

// active returns the lowest epoch that has not ended.
func (k *modelKey) active() *modelEpoch {
	for _, e := range k.epochs {
		if !e.ended {
			return e
		}
	}
	return nil
}

func (k *modelKey) epoch(no uint64) *modelEpoch {
	for _, e := range k.epochs {
		if e.epoch == no {
			return e
		}
	}
	return nil
}

func (k *modelKey) waiting() (n int) {
	for _, e := range k.epochs {
		if !e.ended {
			n++
		}
	}
	return n
}

// state is the state of a number.
func (e *modelEpoch) state(n uint64) order.State {
	switch x := e.numbers[n]; {
	case n < e.base || n >= e.head:
		return order.StateUnknown
	case x == nil:
		return order.StateMissing
	default:
		return x.state
	}
}

// count counts the numbers of a state in [from, to).
func (e *modelEpoch) count(state order.State, from, to uint64) (n uint64) {
	for i := from; i < to; i++ {
		if e.state(i) == state {
			n++
		}
	}
	return n
}

func (k *modelKey) buffered() (n uint64) {
	for _, e := range k.epochs {
		if !e.ended {
			n += e.count(order.StateBuffered, e.cursor, e.head)
		}
	}
	return n
}

// ledger counts everything anew.
func (e *modelEpoch) ledger() order.Ledger {
	l := order.Ledger{
		Epoch: e.epoch, Base: e.base, Cursor: e.cursor, Head: e.head, Ended: e.ended,
		Delivered: e.count(order.StateDelivered, e.base, e.cursor), Void: e.count(order.StateVoid, e.base, e.cursor),
		Skipped: e.count(order.StateSkipped, e.base, e.cursor), Late: e.count(order.StateLate, e.base, e.cursor),
		Buffered: e.count(order.StateBuffered, e.cursor, e.head), Parked: e.count(order.StateParked, e.cursor, e.head),
		Unordered: e.count(order.StateUnordered, e.cursor, e.head), VoidAhead: e.count(order.StateVoid, e.cursor, e.head),
		Missing: e.count(order.StateMissing, e.cursor, e.head),
	}
	for n := e.base; n < e.cursor; n++ {
		if x := e.numbers[n]; x != nil && x.outside {
			l.OutOfOrder++
		}
	}
	return l
}

// moveTo moves the cursor one number after another: the messages before to are
// delivered, or skipped with all that is missing if drop is set.
func (m *model) moveTo(k *modelKey, e *modelEpoch, to uint64, drop bool, reason order.Reason) {
	start := e.cursor
	var record *modelRecord
	for e.cursor < e.head {
		n := e.cursor
		switch s := e.state(n); {
		case s == order.StateVoid:
			record = nil
		case s == order.StateUnordered:
			e.numbers[n].state = order.StateDelivered
			record = nil
		case n >= to:
			m.moved(e, start)
			return
		case s == order.StateBuffered && !drop:
			e.numbers[n].state = order.StateDelivered
			record = nil
		default:
			if e.numbers[n] == nil {
				e.numbers[n] = &modelNumber{}
			}
			x := e.numbers[n]
			x.state, x.verifiable = order.StateSkipped, false
			if record == nil {
				record = m.record(k, e, n, reason, n == start)
			}
			record.To = n + 1
		}
		e.cursor++
	}
	m.moved(e, start)
}

func (m *model) moved(e *modelEpoch, from uint64) {
	if e.cursor != from {
		e.ready, e.gap = m.now, false
	}
}

func (m *model) record(k *modelKey, e *modelEpoch, from uint64, reason order.Reason, first bool) *modelRecord {
	r := &modelRecord{Gap: order.Gap{Key: k.name, Epoch: e.epoch, From: from, Reason: reason}, opened: m.now}
	if first && e.gap {
		r.opened, r.Alerted, r.Asked = e.opened, e.alerted, e.asked
	}
	k.records = append(k.records, r)
	return r
}

// settleDown brings about what follows from a step.
func (m *model) settleDown(k *modelKey) {
	for i, e := range k.epochs {
		if !e.ended && i < len(k.epochs)-1 && e == k.active() && e.cursor == e.head {
			e.ended = true
			k.active().ready = max(k.active().ready, m.now)
		}
	}
	e := k.active()
	above := e.gapEnd()
	if e.state(e.cursor) != order.StateMissing || above == e.head && e == k.epochs[len(k.epochs)-1] {
		e.gap = false
		return
	}
	if !e.gap {
		e.gap, e.since, e.resent = true, m.now, m.now
		if e.above != above {
			e.opened, e.alerted, e.asked = m.now, false, 0
			if x := e.numbers[above]; x != nil && x.state != order.StateUnordered {
				e.opened = x.pushed
			}
			e.look = e.opened + m.p.GapLook
		}
	}
	e.above = above
}

// gapEnd is the lowest number above the cursor that is known to exist.
func (e *modelEpoch) gapEnd() uint64 {
	for n := e.cursor; n < e.head; n++ {
		switch e.state(n) {
		case order.StateBuffered, order.StateParked, order.StateUnordered:
			return n
		}
	}
	return e.head
}

// next is the message that is to be delivered next.
func (k *modelKey) next() *modelNumber {
	for _, e := range k.epochs {
		for n := e.cursor; n < e.head; n++ {
			if s := e.state(n); s == order.StateBuffered || s == order.StateParked {
				return e.numbers[n]
			}
		}
	}
	return nil
}

// push answers an arrival. With unsure set, the answer may also be the other of
// verified and unverified, or, of other content, duplicate in place of conflict.
func (m *model) push(p order.Params, a order.Arrival) (answer order.Answer, unsure bool) {
	k, at := m.keys[a.Key], a.Position
	if a.Assign {
		if found, ok := m.ids[a.ID]; ok {
			return order.Answer{State: order.Duplicate, Key: found.key, Position: found.position}, false
		}
		at = order.Position{Epoch: max(a.Position.Epoch, 1), Number: max(p.Start, 1)}
		if k != nil && k.epochs[len(k.epochs)-1].epoch >= at.Epoch {
			last := k.epochs[len(k.epochs)-1]
			at = order.Position{Epoch: last.epoch, Number: last.head}
		}
	}
	state, unverified, unsure := m.place(p, a, at)
	if k = m.keys[a.Key]; k != nil {
		m.countArrival(k, state)
		m.settleDown(k)
	}
	return order.Answer{State: state, Key: a.Key, Position: at, Unverified: unverified}, unsure
}

func (m *model) place(p order.Params, a order.Arrival, at order.Position) (state order.Arrived, unverified, unsure bool) {
	k, n := m.keys[a.Key], at.Number
	e, refused, begins := m.epochFor(p, k, at)
	if refused != 0 {
		return refused, false, false
	}
	if n < e.base {
		return order.StaleEpoch, false, false
	}
	stored := a
	stored.Position, stored.Assign = at, false
	x := e.numbers[n]
	switch s := e.state(n); {
	case n < e.cursor && (s == order.StateSkipped || s == order.StateVoid) && p.Late && len(k.lateWaiting()) >= p.MaxBuffered:
		return order.Full, false, false
	case n < e.cursor && (s == order.StateSkipped || s == order.StateVoid):
		m.becomesLate(k, e, n, true)
		x = e.numbers[n]
		x.arrival, x.verifiable, x.open, x.pushed = stored, true, false, m.now
		if x.waits = p.Late; x.waits {
			x.due, x.attempts, x.failure, x.parked, x.noted = m.now, 0, "", false, 0
			m.note(a, at)
		} else {
			x.arrival.ID = "" // the digest alone is kept, for the window
		}
		return order.Late, false, false
	case n < e.cursor || s == order.StateBuffered || s == order.StateParked:
		forgotten := n < e.cursor && e.cursor-n >= uint64(p.Window) && x.arrival.ID == "" && !x.waits
		switch {
		case !x.verifiable && !x.open:
			return order.Duplicate, true, false
		case x.arrival.Digest == a.Digest:
			return order.Duplicate, false, forgotten || x.open
		}
		return order.Conflict, false, forgotten || x.open
	case s == order.StateUnordered:
		return order.Duplicate, true, false
	case n-e.cursor >= p.MaxAhead && a.Assign:
		return order.Full, false, false
	case n-e.cursor >= p.MaxAhead:
		return order.TooFar, false, false
	case m.full(p, k, e, begins, n):
		return order.Full, false, false
	}
	m.begin(p, a.Key, k, e, begins)
	e.numbers[n] = &modelNumber{state: order.StateBuffered, arrival: stored, verifiable: true, pushed: m.now}
	e.head = max(e.head, n+1)
	if n == e.cursor {
		e.ready = m.now
	}
	m.note(a, at)
	return order.Buffered, false, false
}

func (m *model) note(a order.Arrival, at order.Position) {
	if _, ok := m.ids[a.ID]; a.ID != "" && !ok {
		m.ids[a.ID] = modelPlace{a.Key, at}
	}
}

func (m *model) epochFor(p order.Params, k *modelKey, at order.Position) (e *modelEpoch, refused order.Arrived, begins bool) {
	if k != nil {
		if at.Epoch < k.active().epoch {
			return nil, order.StaleEpoch, false
		}
		if e := k.epoch(at.Epoch); e != nil {
			return e, 0, false
		}
		if k.waiting() >= order.MaxEpochs {
			return nil, order.Full, false
		}
	}
	base := p.Start
	if base == 0 {
		base = at.Number
	}
	return &modelEpoch{epoch: at.Epoch, base: base, cursor: base, head: base, numbers: map[uint64]*modelNumber{}}, 0, true
}

func (m *model) full(p order.Params, k *modelKey, e *modelEpoch, begins bool, n uint64) bool {
	if k == nil {
		return false
	}
	buffered, active := k.buffered(), k.active() == e
	if begins && e.epoch > k.epochs[len(k.epochs)-1].epoch {
		old := k.active()
		active = p.Abandon || old.cursor == old.head
		if p.Abandon {
			buffered = 0
		}
	}
	return buffered >= uint64(p.MaxBuffered) && (!active || n != e.cursor)
}

// begin makes an epoch exist.
func (m *model) begin(p order.Params, name string, k *modelKey, e *modelEpoch, begins bool) *modelKey {
	if !begins {
		return k
	}
	if k == nil {
		k = &modelKey{name: name}
		m.keys[name] = k
	}
	highest := len(k.epochs) == 0 || e.epoch > k.epochs[len(k.epochs)-1].epoch
	if highest && p.Abandon {
		k.settled = true
		for _, lower := range k.epochs {
			if !lower.ended {
				m.moveTo(k, lower, lower.head, true, order.ReasonAbandoned)
			}
		}
	}
	k.epochs = append(k.epochs, e)
	slices.SortFunc(k.epochs, func(a, b *modelEpoch) int { return int(a.epoch) - int(b.epoch) })
	return k
}

// becomesLate makes a skipped or void number late.
func (m *model) becomesLate(k *modelKey, e *modelEpoch, n uint64, arrived bool) {
	if e.numbers[n] == nil {
		e.numbers[n] = &modelNumber{}
	}
	e.numbers[n].state = order.StateLate
	for _, r := range k.records {
		if r.Epoch == e.epoch && r.From <= n && n < r.To {
			if arrived {
				r.Arrived++
			} else {
				r.outside++
			}
		}
	}
}

func (m *model) countArrival(k *modelKey, s order.Arrived) {
	k.arrivals.Pushed++
	*map[order.Arrived]*uint64{
		order.Buffered: &k.arrivals.Accepted, order.Duplicate: &k.arrivals.Duplicate, order.Conflict: &k.arrivals.Conflict,
		order.Late: &k.arrivals.Late, order.StaleEpoch: &k.arrivals.Stale, order.Full: &k.arrivals.Full, order.TooFar: &k.arrivals.TooFar,
	}[s]++
}
