package order

import "slices"

// A numberRange is a row of numbers that are void, or were skipped. To is not
// included.
type numberRange struct {
	from, to uint64
	skipped  bool
}

// numberRanges are ascending and apart. Neighbours of one kind are joined.
type numberRanges []numberRange

// find returns the first range that ends behind n, and whether n is in it.
func (r numberRanges) find(n uint64) (int, bool) {
	if len(r) == 0 || r[len(r)-1].to <= n { // nearly always
		return len(r), false
	}
	i, _ := slices.BinarySearchFunc(r, n, func(x numberRange, n uint64) int {
		if x.to <= n {
			return -1
		}
		return 1
	})
	return i, i < len(r) && r[i].from <= n
}

// add adds numbers that are in no range.
func (r *numberRanges) add(x numberRange) {
	i, _ := r.find(x.from)
	if i < len(*r) && (*r)[i].from == x.to && (*r)[i].skipped == x.skipped {
		x.to = (*r)[i].to
		*r = slices.Delete(*r, i, i+1)
	}
	if i > 0 && (*r)[i-1].to == x.from && (*r)[i-1].skipped == x.skipped {
		(*r)[i-1].to = x.to
		return
	}
	*r = slices.Insert(*r, i, x)
}

// remove takes a number out of the range in which it is.
func (r *numberRanges) remove(n uint64) {
	i, ok := r.find(n)
	if !ok {
		return
	}
	x := (*r)[i]
	var rest []numberRange
	if x.from < n {
		rest = append(rest, numberRange{x.from, n, x.skipped})
	}
	if n+1 < x.to {
		rest = append(rest, numberRange{n + 1, x.to, x.skipped})
	}
	*r = slices.Replace(*r, i, i+1, rest...)
}
