package main

import "github.com/pawl-go/pawl/reconcile/lww"

// The same writes, stamped by counters: each region counts its own writes, and does
// not go on from what it merges. The greater (counter, region) stays all the same.

// naive makes a write, which is lost at once if a write that the region has counts
// higher.
func (x *simulation) naive(at int, key string) {
	r := x.regions[at]
	r.counter++
	s := lww.Stamp{Lamport: r.counter, Region: uint8(at + 1)}
	if s.Compare(r.counters[key]) < 0 {
		x.row.counterLost++
		return
	}
	r.counters[key] = s
}

// naiveMerge merges what the other region has of a key. It is taken as it is now and
// not as it was when it was sent, which makes no difference to speak of.
func (x *simulation) naiveMerge(to int, key string) {
	if s := x.regions[1-to].counters[key]; s.Compare(x.regions[to].counters[key]) > 0 {
		x.regions[to].counters[key] = s
	}
}
