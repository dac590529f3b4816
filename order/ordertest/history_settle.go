package ordertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/order"
)

// settle settles as owners do, and as those do who were owners once.
func (h *history) settle() {
	if len(h.claims) == 0 {
		return
	}
	c := h.claims[len(h.claims)-1-min(h.rnd.IntN(4), h.rnd.IntN(len(h.claims)), len(h.claims)-1)]
	cursor, head := uint64(1), uint64(1)
	if k := h.m.keys[c.Key]; k != nil {
		if e := k.epoch(c.Epoch); e != nil {
			cursor, head = e.cursor, e.head
		}
	}
	near := func() uint64 { return max(1, cursor+h.rnd.Uint64N(5)-min(cursor, 2)) }
	var batch []order.Settlement
	add := func(s order.Settlement) { batch = append(batch, s) }
	switch n := h.rnd.IntN(24); {
	case n < 8 && len(c.Run) > 0:
		add(deliver(c, c.Run[h.rnd.IntN(len(c.Run))].Position.Number+1))
	case n < 8 && c.Gap != nil:
		s := skip(c, c.Gap.To)
		s.Alerted, s.Asked = h.rnd.IntN(2) == 0, h.rnd.IntN(3)
		add(s)
	case n < 10:
		add(deliver(c, near()))
	case n < 11:
		add(skip(c, near()))
	case n < 13:
		from := near()
		add(void(c, from, from+h.rnd.Uint64N(4)))
	case n < 15:
		add(retry(c, cursor, h.delay()))
	case n < 16:
		add(park(c, cursor))
	case n < 17:
		s := wait(c, h.delay())
		s.From, s.Alerted, s.Asked = cursor, h.rnd.IntN(2) == 0, h.rnd.IntN(3)
		add(s)
	case n < 18:
		add(extend(c, max(h.delay(), h.asks[0].Lease)))
	case n < 22:
		s := late([]order.Kind{order.KindLate, order.KindLate, order.KindLateRetry, order.KindLatePark}[h.rnd.IntN(4)], c, near())
		s.Epoch, s.Delay = c.Epoch, h.delay()
		if len(c.Late) > 0 && h.rnd.IntN(4) > 0 {
			at := c.Late[h.rnd.IntN(len(c.Late))].Position
			s.Epoch, s.From = at.Epoch, at.Number
		}
		add(s)
	case n < 23 && head > cursor:
		add(skip(c, head))
	}
	if len(batch) == 0 || h.rnd.IntN(2) == 0 {
		s := release(c)
		if k := h.m.keys[c.Key]; len(batch) == 0 && k != nil && k.active().state(k.active().cursor) == order.StateBuffered && h.rnd.IntN(2) == 0 {
			s.Delay = h.delay() // of the run at the cursor
		}
		if len(c.Run) > 0 && h.rnd.IntN(3) == 0 {
			// Unbegun is for a claim that began the message at the cursor.
			last := c.Run[len(c.Run)-1].Position.Number
			s.Unbegun = last >= cursor && (len(batch) == 0 || last >= batch[0].To)
		}
		add(s)
	}
	if h.rnd.IntN(20) == 0 {
		batch[0].Token++
	}
	h.settled(batch)
}

// person decides as persons do, and reports as a degraded buffer does.
func (h *history) person() {
	key := h.key()
	k := h.m.keys[key]
	epoch, cursor := uint64(1), uint64(1)
	if k != nil {
		e := k.active()
		epoch, cursor = e.epoch, e.cursor
	}
	from := max(1, cursor+h.rnd.Uint64N(5)-min(cursor, 2))
	s := order.Settlement{Key: key, Epoch: epoch, From: from}
	switch n := h.rnd.IntN(20); {
	case n < 3:
		s.Kind, s.From = order.KindResume, h.parkedOr(k, from)
	case n < 6:
		s.Kind, s.From = order.KindDrop, h.parkedOr(k, from)
	case n < 11:
		s = resolve(key, cursor, cursor+1+h.rnd.Uint64N(7), order.Resolution(1+h.rnd.IntN(3)))
		s.Epoch = epoch
		if k != nil && len(k.records) > 0 && h.rnd.IntN(2) == 0 {
			r := k.records[h.rnd.IntN(len(k.records))]
			s.Epoch, s.From, s.To = r.Epoch, r.From, r.To
		}
	case n < 19:
		s.Kind = order.KindUnordered
		if h.rnd.IntN(10) == 0 {
			s.Epoch++
		}
		if k != nil && k.epoch(s.Epoch) != nil {
			// Whether what is left of a message with an ID is the message of its number,
			// when a gap opens below it, is left open.
			if x := k.epoch(s.Epoch).numbers[from]; x != nil && x.state == order.StateBuffered && x.arrival.ID != "" && from > cursor {
				s.From = cursor
			}
		}
	default:
		s.Kind = order.KindForget
	}
	h.settled([]order.Settlement{s})
}

// parkedOr returns the number of a parked message, or another one.
func (h *history) parkedOr(k *modelKey, n uint64) uint64 {
	if k == nil {
		return n
	}
	e := k.active()
	var parked []uint64
	for i, x := range e.numbers {
		if x.state == order.StateParked || x.parked {
			parked = append(parked, i)
		}
	}
	if len(parked) == 0 {
		return n
	}
	slices.Sort(parked)
	return parked[h.rnd.IntN(len(parked))]
}

// settled sends a batch, once in a while a second time after its answer was lost.
func (h *history) settled(batch []order.Settlement) {
	for range 1 + max(0, h.rnd.IntN(6)-4) {
		var names []string
		for _, s := range batch {
			names = append(names, fmt.Sprintf("%s (delay %v, unbegun %t)", settlementName(s), s.Delay, s.Unbegun))
		}
		h.note("settle %q", names)
		errs, err := h.e.store.Settle(context.Background(), h.m.p, batch)
		if err != nil {
			h.fail("%v", err)
		}
		for i, s := range batch {
			want := h.m.settle(h.m.p, s)
			if got := errorAt(errs, i); want != errOpen && !sameError(got, want) {
				h.fail("settlement %d was answered %v, want %v", i, got, want)
			}
		}
		for _, s := range batch {
			h.checkAccount(s.Key)
		}
	}
}

func comparePlaces(key string, at order.Position, other string, than order.Position) int {
	return cmp.Or(strings.Compare(key, other), at.Compare(than))
}

// compare compares all that can be listed and counted.
func (h *history) compare() {
	h.note("compare")
	h.compareNumbers()
	h.compareGaps()
	h.compareParked()
	want := order.Totals{Keys: len(h.m.keys)}
	for _, k := range h.m.keys {
		e := k.active()
		want.Buffered += int(k.buffered())
		want.Parked += int(e.count(order.StateParked, e.cursor, e.head))
		want.LateWaiting += len(k.lateWaiting())
		if e.gap {
			want.OpenGaps++
		}
		for _, r := range k.records {
			if r.Resolution == 0 {
				want.Unresolved++
			}
		}
		if x := k.next(); x != nil {
			want.Oldest = max(want.Oldest, h.m.now-x.pushed)
		}
	}
	got, err := h.e.store.Totals(context.Background(), h.m.p.Scope)
	if !h.e.virtual {
		want.Oldest = got.Oldest
	}
	if err != nil || got != want {
		h.fail("the totals are %+v (%v), want %+v", got, err, want)
	}
}

// compareNumbers looks every number of every epoch up.
func (h *history) compareNumbers() {
	for name, k := range h.m.keys {
		for _, e := range k.epochs {
			var places []order.Place
			for n := max(e.base, 2) - 1; n <= e.head+1; n++ {
				places = append(places, order.Place{Key: name, Position: order.Position{Epoch: e.epoch, Number: n}})
			}
			found, err := h.e.store.Find(context.Background(), h.m.p, places)
			if err != nil || len(found) != len(places) {
				h.fail("Find of %d places returned %d and %v", len(places), len(found), err)
			}
			for _, f := range found {
				h.checkFound(e, f)
			}
		}
	}
}

func (h *history) checkFound(e *modelEpoch, f order.Found) {
	n := f.Position.Number
	want := e.state(n)
	if f.State != want {
		beyond := n < e.cursor && (e.ended || e.cursor-n >= historyWindow) && (want == order.StateDelivered || want == order.StateLate)
		if !beyond || f.State != order.StateSettled {
			h.fail("%s %v is found as %s, want %s", f.Key, f.Position, stateName(f.State), stateName(want))
		}
	}
	x := e.numbers[n]
	waits := want == order.StateBuffered || want == order.StateParked || x != nil && x.waits
	if waits && (f.Message == nil || string(f.Message.Payload) != string(x.arrival.Payload) || f.Message.ID != x.arrival.ID) {
		h.fail("%s %v is found with the message %+v, want %+v", f.Key, f.Position, f.Message, x.arrival.Message)
	}
	if (want == order.StateSkipped) != (f.Gap != nil) {
		h.fail("%s %v is %s and found with the gap %+v", f.Key, f.Position, stateName(want), f.Gap)
	}
}

func (h *history) compareGaps() {
	var want []modelRecord
	for _, k := range h.m.keys {
		if e := k.active(); e.gap {
			want = append(want, modelRecord{Gap: h.openGap(k), opened: e.opened})
		}
		for _, r := range k.records {
			want = append(want, *r)
		}
	}
	slices.SortFunc(want, func(a, b modelRecord) int {
		return comparePlaces(a.Key, order.Position{Epoch: a.Epoch, Number: a.From}, b.Key, order.Position{Epoch: b.Epoch, Number: b.From})
	})
	got, err := h.e.store.Gaps(context.Background(), h.m.p.Scope, order.Query{N: 10_000})
	if err != nil || len(got) != len(want) {
		h.fail("there are %d gaps (%v), want %d:\n%+v, want\n%+v", len(got), err, len(want), got, want)
	}
	for i, g := range got {
		w := want[i]
		if g.Arrived > w.Arrived && g.Arrived <= w.Arrived+w.outside {
			w.Arrived = g.Arrived
		}
		h.checkGap(g, w.Gap, w.opened)
		if g.Open {
			h.checkSince(g, h.m.keys[g.Key].active())
		} else if g.Since != 0 {
			h.fail("the record %+v has a time since", g)
		}
	}
}

func (h *history) compareParked() {
	var names []string
	for name, k := range h.m.keys {
		for _, e := range k.epochs {
			for n, x := range e.numbers {
				if x.state == order.StateParked || x.parked {
					names = append(names, fmt.Sprint(name, " ", e.epoch, " ", n))
				}
			}
		}
	}
	got, err := h.e.store.Parked(context.Background(), h.m.p.Scope, order.Query{N: 10_000})
	if err != nil || len(got) != len(names) {
		h.fail("%d messages are parked (%v), want %q", len(got), err, names)
	}
	for i, m := range got {
		if !slices.Contains(names, fmt.Sprint(m.Key, " ", m.Position.Epoch, " ", m.Position.Number)) {
			h.fail("%s %v is parked, want %q", m.Key, m.Position, names)
		}
		if i > 0 && comparePlaces(got[i-1].Key, got[i-1].Position, m.Key, m.Position) >= 0 {
			h.fail("parked are listed out of order: %+v", got)
		}
		h.checkMessage(m, h.m.keys[m.Key].epoch(m.Position.Epoch).numbers[m.Position.Number])
	}
}
