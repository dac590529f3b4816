package order

import (
	"bytes"
)

// An epochRow is one epoch of a key. The counts of its ledger are kept by every
// step, but Missing, which is what the others leave.
type epochRow struct {
	Ledger
	key    *keyRow
	pages  numberPages
	ranges numberRanges            // void anywhere, skipped below the cursor
	kept   map[uint64]*keptMessage // ended messages with an ID, and late ones; nil until there is one

	ready    int64  // when the message at the cursor can be begun
	attempts int    // how often it was begun
	begun    uint64 // all that are held below this number were begun
	parked   bool   // the message at the cursor is parked
	failure  string // the error of its last failed attempt
	gap      gapRow
}

// A gapRow is the gap at the cursor of an epoch. While it is closed, it is the last
// one: what is left of it goes on with what is noted here.
type gapRow struct {
	gapNotes
	open  bool
	look  int64  // when it is to be looked at next
	since int64  // when the cursor came to its first number with the gap open
	above uint64 // the number behind it, while it was open
}

// gapNotes are what a gap hands on to its record.
type gapNotes struct {
	opened  int64 // its age counts from here
	alerted bool
	asked   int
}

// A keptMessage is one that has ended, or a late one.
type keptMessage struct {
	heldMessage
	epoch  *epochRow
	number uint64
	digest [16]byte
	ended  int64 // zero: it waits to be handed over late
	bare   bool  // KeepBody has passed: it is remembered for the window alone
	gone   bool  // forgotten

	// What follows is of a late one that waits.

	late     bool
	parked   bool
	due      int64
	order    uint64 // of arrival
	place    int    // in keyRow.late; negative: not there
	attempts int
	begunBy  uint64 // the token of the claim that carried it last
	noted    uint64 // the token under which it was retried or parked last
	failure  string
}

// ledger returns the ledger with what is missing.
func (e *epochRow) ledger() Ledger {
	l := e.Ledger
	l.Missing = l.Head - l.Cursor - l.Buffered - l.Parked - l.Unordered - l.VoidAhead
	return l
}

// known raises the head above a number.
func (e *epochRow) known(n uint64) { e.Head = max(e.Head, n+1) }

// atCursor returns the message at the cursor, nil if there is none.
func (e *epochRow) atCursor() *heldMessage { return e.pages.message(e.Cursor) }

// gapEnd returns where the open gap ends: at the lowest number that is held or
// unordered.
func (e *epochRow) gapEnd() uint64 {
	if to, ok := e.pages.next(e.Cursor, aheadSet); ok {
		return to
	}
	return e.Head
}

// state says what is known of a number.
func (e *epochRow) state(n uint64, p *Params) State {
	i, inRange := e.ranges.find(n)
	switch {
	case n < e.Base || n >= e.Head:
		return StateUnknown
	case inRange && e.ranges[i].skipped:
		return StateSkipped
	case inRange:
		return StateVoid
	case n >= e.Cursor && e.pages.has(n, unorderedSet):
		return StateUnordered
	case n == e.Cursor && e.parked:
		return StateParked
	case n >= e.Cursor && e.pages.has(n, heldSet):
		return StateBuffered
	case n >= e.Cursor:
		return StateMissing
	case e.pages.has(n, lateSet), e.kept[n] != nil && e.kept[n].late:
		return StateLate
	case e.remembers(n, p), e.kept[n] != nil:
		return StateDelivered
	}
	return StateSettled
}

// remembers says whether a number is within the window, or not below the cursor.
// An epoch that has ended has no window: nobody pushes into it.
func (e *epochRow) remembers(n uint64, p *Params) bool {
	return !e.Ended && (n >= e.Cursor || e.Cursor-n < uint64(max(p.Window, 0)))
}

// digest returns the digest of a number, if it is remembered.
func (e *epochRow) digest(n uint64) ([16]byte, bool) {
	if d, ok := e.pages.digest(n); ok {
		return d, true
	}
	if m := e.kept[n]; m != nil {
		return m.digest, true
	}
	return [16]byte{}, false
}

// A crossing is a move of the cursor. What is held below its end is delivered, or
// skipped with the missing numbers.
type crossing struct {
	to     uint64
	drop   bool
	reason Reason // of what is skipped
	notes  gapNotes
}

// deliverable says whether all from the cursor to below a number can be delivered.
func (e *epochRow) deliverable(to uint64) bool {
	if to > e.Head || e.parked {
		return false
	}
	for n := e.Cursor; n < to; {
		if i, ok := e.ranges.find(n); ok {
			n = e.ranges[i].to
			continue
		}
		if !e.pages.has(n, aheadSet) {
			return false
		}
		n++
	}
	return true
}

// cross moves the cursor, and on over all void and unordered numbers that follow.
func (m *Memory) cross(e *epochRow, now int64, p *Params, c crossing) {
	from := e.Cursor
	for n := from; ; {
		page := e.pages.of(n)
		off, bit := pageOffset(n)
		i, isVoid := e.ranges.find(n)
		switch {
		case isVoid:
			to := e.ranges[i].to
			e.Void, e.VoidAhead = e.Void+to-n, e.VoidAhead-(to-n)
			n = to
			continue
		case page != nil && page.unordered&bit != 0:
			page.unordered &^= bit
			e.Delivered, e.Unordered, e.OutOfOrder = e.Delivered+1, e.Unordered-1, e.OutOfOrder+1
			n++
			continue
		case page != nil && page.held&bit != 0 && n < c.to && !c.drop:
			m.end(e, page, n, now, &page.messages[off-page.first])
			e.Delivered, e.Buffered = e.Delivered+1, e.Buffered-1
			n++
			continue
		case n < c.to:
			to := e.skipEnd(n, c)
			m.skip(e, now, n, to, &c)
			n = to
			continue
		}
		e.Cursor = n
		break
	}
	e.arrived(now, from)
	e.pages.forget(e.Cursor-min(e.Cursor, uint64(max(p.Window, 1))-1), func(page *numberPage) { m.outOfWindow(e, page) })
}

// arrived sets what is noted of the cursor after it moved.
func (e *epochRow) arrived(now int64, from uint64) {
	if e.Cursor == from {
		return
	}
	e.attempts, e.parked, e.failure, e.ready, e.gap.open = 0, false, "", now, false
	if e.Cursor < e.begun {
		e.attempts = 1
	}
}

// skipEnd returns the end of the unbroken range to skip that begins at n.
func (e *epochRow) skipEnd(n uint64, c crossing) uint64 {
	set := aheadSet
	if c.drop {
		set = unorderedSet
	}
	to := c.to
	if next, ok := e.pages.next(n, set); ok {
		to = min(to, next)
	}
	if i, _ := e.ranges.find(n); i < len(e.ranges) {
		to = min(to, e.ranges[i].from)
	}
	return to
}

// skip skips [from, to) at the cursor, with what is held in it, and keeps a record.
func (m *Memory) skip(e *epochRow, now int64, from, to uint64, c *crossing) {
	for n, ok := e.pages.next(from, heldSet); ok && n < to; n, ok = e.pages.next(n+1, heldSet) {
		page := e.pages.of(n)
		off, bit := pageOffset(n)
		m.end(e, page, n, now, &page.messages[off-page.first])
		page.known &^= bit
		if n == e.Cursor && e.parked {
			e.Parked--
			e.parked = false
		} else {
			e.Buffered--
		}
	}
	e.Skipped += to - from
	e.ranges.add(numberRange{from, to, true})
	notes := gapNotes{opened: now}
	if e.gap.open && from == e.Cursor {
		notes = e.gap.gapNotes
		notes.alerted, notes.asked = notes.alerted || c.notes.alerted, max(notes.asked, c.notes.asked)
	}
	m.record(e, from, to, c.reason, notes)
}

// end takes a message out of those that are held. With an ID it is kept.
func (m *Memory) end(e *epochRow, page *numberPage, n uint64, now int64, h *heldMessage) {
	if h.id != "" {
		off, _ := pageOffset(n)
		k := &keptMessage{heldMessage: *h, epoch: e, number: n, digest: page.digests[off-page.first], ended: now}
		k.payload = bytes.Clone(h.payload)
		e.keep(k)
		e.key.scope.ended = append(e.key.scope.ended, k)
	}
	e.pages.drop(page, n)
}

func (e *epochRow) keep(k *keptMessage) {
	if e.kept == nil {
		e.kept = map[uint64]*keptMessage{}
	}
	e.kept[k.number] = k
}

// outOfWindow forgets what was remembered for the window alone.
func (m *Memory) outOfWindow(e *epochRow, page *numberPage) {
	if len(e.kept) == 0 {
		return
	}
	for n := page.no * pageSize; n < (page.no+1)*pageSize; n++ {
		if k := e.kept[n]; k != nil && k.bare {
			e.key.scope.forget(k)
		}
	}
}

// watch opens the gap at the cursor, or closes it, after a step. The number below
// the head is never missing, so a missing number at the cursor has one above it.
func (e *epochRow) watch(now int64, p *Params) {
	if e.Cursor == e.Head || e.pages.has(e.Cursor, heldSet) {
		e.gap.open = false
		return
	}
	above := e.gapEnd()
	if !e.gap.open {
		if e.gap.above != above { // otherwise it is what is left of the last one
			e.gap = gapRow{gapNotes: gapNotes{opened: now}}
			if h := e.pages.message(above); h != nil {
				e.gap.opened = h.pushed
			}
			e.gap.look = e.gap.opened + p.GapLook.Microseconds()
		}
		e.gap.open, e.gap.since = true, now
	}
	e.gap.above = above
}

// endEpoch ends an epoch: of its numbers, the ranges and the messages with an ID stay.
func (m *Memory) endEpoch(e *epochRow) {
	e.Ended = true
	for _, page := range e.pages.list {
		m.outOfWindow(e, page)
	}
	e.pages.list, e.gap = nil, gapRow{}
}

// nextMissing returns the first unbroken range of missing numbers in [from, to).
func (e *epochRow) nextMissing(from, to uint64) (uint64, uint64, bool) {
	to = min(to, e.Head)
	for n := max(from, e.Cursor); n < to; {
		if i, isVoid := e.ranges.find(n); isVoid {
			n = e.ranges[i].to
		} else if e.pages.has(n, aheadSet) {
			n++
		} else {
			return n, e.skipEnd(n, crossing{to: to}), true
		}
	}
	return to, to, false
}

// missing says whether any number of [from, to) is missing.
func (e *epochRow) missing(from, to uint64) bool {
	_, _, any := e.nextMissing(from, to)
	return any
}

// makeVoid makes the missing numbers of [from, to) void.
func (e *epochRow) makeVoid(from, to uint64) {
	for from, end, any := e.nextMissing(from, to); any; from, end, any = e.nextMissing(end, to) {
		e.ranges.add(numberRange{from, end, false})
		e.VoidAhead += end - from
	}
}
