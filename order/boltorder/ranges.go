package boltorder

// Void, skipped and unordered numbers are kept as ranges, which do not overlap.

// covering returns the range that a number of an epoch lies in.
func (k *key) covering(e *epoch, number uint64) (s span, ok bool, err error) {
	c := k.ranges.Cursor()
	place := placeKey(e.prefix, number)
	b, v := c.Seek(place)
	if n, here := numberIn(e.prefix, b); !here || n > number {
		if b == nil {
			b, v = c.Last()
		} else {
			b, v = c.Prev()
		}
	}
	from, here := numberIn(e.prefix, b)
	if !here {
		return span{}, false, nil
	}
	if s, err = decodeSpan(from, v); err != nil {
		return span{}, false, err
	}
	return s, s.from <= number && number < s.to, nil
}

// behind returns where the first range begins that begins behind a number, and
// at the most most.
func (k *key) behind(e *epoch, number, most uint64) uint64 {
	if number == most {
		return most
	}
	b, _ := k.ranges.Cursor().Seek(placeKey(e.prefix, number+1))
	if n, ok := numberIn(e.prefix, b); ok {
		return min(n, most)
	}
	return most
}

// mark adds a range of numbers that are in none, and joins it with its neighbours
// of the same kind.
func (k *key) mark(e *epoch, s span) error {
	if s.from > 1 {
		left, ok, err := k.covering(e, s.from-1)
		if err != nil {
			return err
		}
		if ok && left.kind == s.kind {
			s.from = left.from
		}
	}
	right, ok, err := k.covering(e, s.to)
	if err != nil {
		return err
	}
	if ok && right.kind == s.kind {
		s.to = right.to
		if err := k.delete(k.ranges, placeKey(e.prefix, right.from)); err != nil {
			return err
		}
	}
	return k.put(k.ranges, placeKey(e.prefix, s.from), s.append(nil))
}

// unmark takes one number out of its range.
func (k *key) unmark(e *epoch, s span, number uint64) error {
	if err := k.delete(k.ranges, placeKey(e.prefix, s.from)); err != nil {
		return err
	}
	if s.from < number {
		left := span{s.kind, s.from, number}
		if err := k.put(k.ranges, placeKey(e.prefix, left.from), left.append(nil)); err != nil {
			return err
		}
	}
	if number+1 < s.to {
		right := span{s.kind, number + 1, s.to}
		return k.put(k.ranges, placeKey(e.prefix, right.from), right.append(nil))
	}
	return nil
}

// missingIn returns the unbroken ranges of missing numbers in [from, to), which
// lies between the cursor and the head.
func (k *key) missingIn(e *epoch, from, to uint64) (spans []span, err error) {
	for n := from; n < to; {
		s, ok, err := k.covering(e, n)
		if err != nil {
			return nil, err
		}
		if ok {
			n = s.to
			continue
		}
		next := k.behind(e, n, to)
		b, _ := k.messages.Cursor().Seek(placeKey(e.prefix, n))
		if stored, ok := numberIn(e.prefix, b); ok && stored < next {
			next = stored
		}
		if next == n { // it is buffered or parked
			n++
			continue
		}
		spans = append(spans, span{skipped, n, next})
		n = next
	}
	return spans, nil
}

// notMarked returns the unbroken ranges of [from, to) that lie in no range.
func (k *key) notMarked(e *epoch, from, to uint64) (spans []span, err error) {
	for n := from; n < to; {
		s, ok, err := k.covering(e, n)
		if err != nil {
			return nil, err
		}
		if ok {
			n = s.to
			continue
		}
		next := k.behind(e, n, to)
		spans = append(spans, span{skipped, n, next})
		n = next
	}
	return spans, nil
}
