package boltorder

import (
	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// watch opens and closes the gap at the cursor, where no message is.
func (k *key) watch(p *order.Params, e *epoch, next waiting, found bool) error {
	above, pushed, err := k.above(e, next, found)
	switch {
	case err != nil:
		return err
	case above == 0:
		e.due = 0
		return k.closeGap(e)
	case e.gap.open:
		e.gap.above = above
		return nil
	case above != e.gap.above: // not the rest of the gap before
		e.gap = gapState{opened: pushed, above: above}
		if pushed == 0 {
			e.gap.opened = k.now
		}
		e.gap.look = e.gap.opened + p.GapLook.Microseconds()
	}
	e.gap.open, e.gap.since = true, k.now
	e.due = max(e.gap.look, 1)
	row := gapRow{open: true}
	k.count(&k.totals.open, 1)
	return k.put(k.gaps, placeKey(e.prefix, e.cursor), row.append(nil))
}

// above is the number behind the gap at the cursor, and when its message was
// pushed, if there is one. It is zero if there is no gap.
func (k *key) above(e *epoch, next waiting, found bool) (number uint64, pushed int64, err error) {
	if found {
		number, pushed = next.number, next.pushed
	}
	if e.unordered > 0 {
		n, err := k.firstOutside(e)
		if err != nil || number != 0 && number < n {
			return number, pushed, err
		}
		return n, 0, nil
	}
	if number == 0 && len(k.row.live) > 1 && e.cursor < e.head {
		return e.head, 0, nil
	}
	return number, pushed, nil
}

// firstOutside is the lowest number above the cursor that was delivered outside.
func (k *key) firstOutside(e *epoch) (number uint64, err error) {
	c := k.ranges.Cursor()
	for b, v := c.Seek(placeKey(e.prefix, e.cursor)); b != nil; b, v = c.Next() {
		from, ok := numberIn(e.prefix, b)
		if !ok {
			break
		}
		s, err := decodeSpan(from, v)
		if err != nil || s.kind == unordered {
			return from, err
		}
	}
	return 0, boltrow.ErrRecord // the counts do not fit the ranges
}

// closeGap notes that there is no gap at the cursor, which still stands before it.
func (k *key) closeGap(e *epoch) error {
	if !e.gap.open {
		return nil
	}
	e.gap.open = false
	k.count(&k.totals.open, -1)
	return k.delete(k.gaps, placeKey(e.prefix, e.cursor))
}
