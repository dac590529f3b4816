package order

import (
	"container/heap"
	"slices"
)

// claim is a claimed key as its owner gets it: with what is due, which begins, or,
// when the ask was sent again, with what began then and has not ended.
func (k *keyRow) claim(now int64, a *Ask, begin bool) Claim {
	e := k.now()
	c := Claim{Key: k.name, Token: k.token, Left: micros(k.until - now), Epoch: e.Epoch}
	if begin {
		k.runEnd = Position{e.Epoch, e.Cursor}
		if e.Buffered > 0 && !e.parked && !e.gap.open && e.ready <= now {
			k.runEnd.Number = e.begin(a)
		}
	}
	if k.runEnd.Epoch == e.Epoch && e.Cursor < k.runEnd.Number {
		c.Run = e.run(now, k.runEnd.Number)
	}
	if e.gap.open && e.gap.look <= now {
		g := k.openGap(now)
		c.Gap = &g
	}
	var more bool
	c.Late, more = k.lateDue(now, a, begin)
	c.More = more || len(c.Run) > 0 && k.moreBehind(e.Cursor+uint64(len(c.Run)))
	return c
}

// moreBehind says whether anything becomes due when the cursor comes to n: the
// message there, or those of the next epoch.
func (k *keyRow) moreBehind(n uint64) bool {
	e := k.now()
	return e.pages.has(n, heldSet) || n >= e.Head && e != k.last() && k.epochs[k.active+1].Buffered > 0
}

// begin begins the run at the cursor and returns its end: one message if it was
// begun before, and otherwise as many as the ask allows.
func (e *epochRow) begin(a *Ask) (end uint64) {
	e.attempts++
	if e.attempts > 1 {
		e.begun = max(e.begun, e.Cursor+1)
		return e.Cursor + 1
	}
	size := 0
	for end = e.Cursor; end < e.Cursor+uint64(max(a.Messages, 1)); end++ {
		h := e.pages.message(end)
		if h == nil || end > e.Cursor && size >= a.Bytes {
			break
		}
		size += len(h.payload)
	}
	e.begun = end
	return end
}

// run copies the messages from the cursor to below end. They share one array, so
// that a run costs two allocations.
func (e *epochRow) run(now int64, end uint64) []Message {
	size := 0
	for n := e.Cursor; n < end; n++ {
		h := e.pages.message(n)
		if h == nil { // reported as delivered outside of the buffer
			end = n
			break
		}
		size += len(h.payload) + len(h.context)
	}
	run, space := make([]Message, end-e.Cursor), make([]byte, 0, size)
	for i := range run {
		h := e.pages.message(e.Cursor + uint64(i))
		r := &run[i]
		r.Key, r.Position, r.ID = e.key.name, Position{e.Epoch, e.Cursor + uint64(i)}, h.id
		r.Attempt, r.Age = 1, micros(now-h.pushed)
		r.Payload, space = carve(space, h.payload)
		r.Context, space = carve(space, h.context)
	}
	if len(run) > 0 {
		run[0].Attempt, run[0].Error = e.attempts, e.failure
	}
	return run
}

// carve copies b into the free part of space.
func carve(space, b []byte) (copied, rest []byte) {
	if len(b) == 0 {
		return nil, space
	}
	at := len(space)
	space = append(space, b...)
	return space[at:len(space):len(space)], space
}

// lateDue returns the late messages that are due, and whether there are more.
func (k *keyRow) lateDue(now int64, a *Ask, begin bool) (late []Message, more bool) {
	var taken []*keptMessage
	most := max(a.Messages, 1)
	if a.Late > 0 {
		most = min(most, a.Late)
	}
	for len(k.late) > 0 && k.late[0].due <= now && len(taken) < most {
		taken = append(taken, heap.Pop(&k.late).(*keptMessage))
	}
	more = len(k.late) > 0 && k.late[0].due <= now
	for _, l := range taken {
		heap.Push(&k.late, l)
		if begin {
			l.attempts++
			l.begunBy = k.token
		}
		if l.begunBy == k.token {
			late = append(late, l.message(now))
		}
	}
	return late, more
}

// message is a kept message as it is handed out.
func (l *keptMessage) message(now int64) Message {
	return Message{
		Key: l.epoch.key.name, Position: Position{l.epoch.Epoch, l.number}, ID: l.id,
		Payload: slices.Clone(l.payload), Context: slices.Clone(l.context),
		Attempt: l.attempts, Age: micros(now - l.pushed), Late: l.late, Error: l.failure,
	}
}

// openGap is the gap at the cursor of the active epoch.
func (k *keyRow) openGap(now int64) Gap {
	e := k.now()
	return Gap{
		Key: k.name, Epoch: e.Epoch, From: e.Cursor, To: e.gapEnd(), Age: micros(now - e.gap.opened), Since: micros(now - e.gap.since),
		Open: true, Old: e != k.last(), Alerted: e.gap.alerted, Asked: e.gap.asked,
	}
}
