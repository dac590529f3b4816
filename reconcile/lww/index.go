package lww

import (
	"cmp"
	"slices"
)

// An index finds the entries that a vector does not cover without looking at the
// others. Each region has a run of its stamps in their order. What was overwritten
// stays in its run until half of the run is.
type index [256]run

type run struct {
	items []item
	stale int
}

type item struct {
	lamport uint64
	key     string
}

// add enters a stamp; most come in their order and go to the end.
func (x *index) add(key string, s Stamp) {
	r := &x[s.Region]
	i := len(r.items)
	if i > 0 && r.items[i-1].lamport > s.Lamport {
		i = r.after(s.Lamport)
	}
	r.items = slices.Insert(r.items, i, item{s.Lamport, key})
}

// dropped says that an entry with the stamp is gone, and clears the run if half of
// it is.
func (x *index) dropped(s Stamp, entries map[string]Register) {
	if s.IsZero() {
		return
	}
	r := &x[s.Region]
	r.stale++
	if r.stale < 32 || r.stale <= len(r.items)/2 {
		return
	}
	kept := make([]item, 0, len(r.items)-r.stale)
	for _, i := range r.items {
		if entries[i.key].stamp == (Stamp{i.lamport, s.Region}) {
			kept = append(kept, i)
		}
	}
	r.items, r.stale = kept, 0
}

// since returns the entries that a vector does not cover, least stamp first.
func (x *index) since(v Vector, entries map[string]Register) []Entry {
	var found []Entry
	for region := range x {
		r := &x[region]
		for _, i := range r.items[r.after(v.At(uint8(region))):] {
			if e := entries[i.key]; e.stamp == (Stamp{i.lamport, uint8(region)}) {
				found = append(found, Entry{i.key, e})
			}
		}
	}
	slices.SortFunc(found, func(a, b Entry) int {
		return cmp.Or(a.Register.stamp.Compare(b.Register.stamp), cmp.Compare(a.Key, b.Key))
	})
	// A key that was forgotten and came back can be in its run twice.
	return slices.CompactFunc(found, func(a, b Entry) bool { return a.Key == b.Key })
}

// after is the place of the first item above a Lamport.
func (r *run) after(lamport uint64) int {
	i, _ := slices.BinarySearchFunc(r.items, lamport, func(i item, l uint64) int {
		if i.lamport <= l {
			return -1
		}
		return 1
	})
	return i
}
