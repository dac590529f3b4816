// Package lww keeps the same values in several regions, each of which writes without
// asking the others: of two writes to one key the last one stays.
//
// A [Map] is one region's copy. What it guarantees:
//
//  1. Regions that have seen the same writes have the same values, in whatever order
//     the writes came and however often: the greater (Lamport, region) stays.
//  2. A write that saw another never loses to it: a region stamps what it writes
//     above everything it has merged.
//  3. Nothing is lost unseen. Each write that another one replaces, or that comes too
//     late, is returned ([Change].Lost), and whether somebody decided to overwrite it
//     ([Change].Conflict).
//  4. What was deleted stays deleted. A tombstone goes only when every region has
//     passed it ([Map.Collect]), and older writes that come later find no way in.
//  5. A clock that runs away takes no other with it: a write that is stamped too far
//     ahead is set aside ([Map.Quarantined]) until a person releases it.
//
// What is not guaranteed: that no write loses. Of two writes that did not see each
// other one is dropped whole, also where both could have been kept, and which one is
// arbitrary. It is handed to the caller who merged, and kept nowhere: store it if it
// matters. The values of one key are not merged, and several keys do not change
// together: where the sum of two writes is wanted, or a balance that must not go
// below zero, this is the wrong tool. How many writes lose depends on how many
// regions write one key within the time that a write needs to reach the others; this
// package decides such conflicts and does not make them fewer. Writing a key in one
// region does ("home"), see examples/regions.
//
// Nothing is durable: a Map is memory. See [Map.Snapshot], and below, what a copy
// that is older than the region does.
//
//	m, err := lww.New(1, &lww.Options{Regions: []uint8{1, 2}})
//	...
//	change, err := m.Set("session/17", value)
//
// and every 100 ms or so, for every other region:
//
//	deltas, err := m.Delta(2, m.Acknowledged(2), 0) // to be sent, in order
//	...
//	merged, err := m.Apply(received)
//	for _, c := range merged.Changes {
//		if c.Conflict || c.Clash {
//			keepForReview(c.Key, c.Lost)
//		}
//	}
//
// [Register] is one such value without a map around it, for a row of your own.
//
// # The network
//
// Deltas may be lost, delayed, repeated and reordered. They must not be forged: a
// region is believed. Authenticate and encrypt the channel. The package does no I/O.
//
// # Bodies that stay at home
//
// Options.Residency names the values that must not leave. Other regions get the
// stamp and a digest, and know that there is a newer value elsewhere: [Remote]. Keys
// do leave: make them from nothing that must not. The digest is salted, so that a
// value which can be guessed cannot be found by it.
//
// # A region that is put back to an older copy
//
// It would stamp again what it has stamped before, and the others would take its new
// writes for old ones. Before it writes, let it [Map.Apply] a delta from each of the
// others (Merged.Rewound tells that it was needed), or [Map.Raise] its clock above
// what they have of it; best, begin from a peer's [Map.SnapshotFor], since tombstones
// may have been collected meanwhile. If it has written, two writes have one stamp:
// where they meet on a key one stays, and Change.Clash tells; where they do not meet
// the regions differ, and Merged.Diverged tells. [Map.Restamp] mends both.
//
// # The source
//
// Last-writer-wins registers, and that what is deleted may be forgotten when every
// region is known to have seen it, are from Shapiro, Preguiça, Baquero and Zawirski, A
// Comprehensive Study of Convergent and Commutative Replicated Data Types, 2011
// (https://inria.hal.science/inria-00555588), specification 8 and section 4.
package lww

import (
	"cmp"
	"log/slog"
	"math"
	"sync"
)

// A Map is a region's copy of the values. Its methods are safe for concurrent use;
// none does I/O or waits for anything but the others.
type Map struct {
	region uint8
	opts   Options

	mu      sync.RWMutex
	entries map[string]Register
	index   index               // of entries, by stamp
	clock   uint64              // the greatest Lamport that was merged or written
	have    Vector              // what was seen without a hole
	ahead   map[string]struct{} // keys that have a write which have does not cover
	sum     [32]byte            // of the live entries, see sum.go
	bytes   int64               // of keys and values, in quarantine, too
	dead    map[string]struct{} // keys that have a tombstone
	regions map[uint8]*peer
	aside   quarantine
	counts  Stats // of events; what is counted now is added by Stats
}

// Options set up a [Map]. The zero value of each field is a working default.
type Options struct {
	// Regions are all regions that write, this one included or not. No tombstone is
	// collected before each of them has passed it; a write of any other region is
	// refused with ErrRegion. Nil: this one alone. Map.AddRegion and
	// Map.RetireRegion change them.
	Regions []uint8

	// MaxAhead is how far a remote stamp may be above the highest Lamport seen. One
	// above that is set aside. Let it exceed the writes that a region makes while it
	// is cut off. Zero means 2^32: five days at 10,000 writes a second.
	MaxAhead uint64

	// MaxKeys is how many keys there can be, tombstones included. Zero means
	// 1,000,000.
	MaxKeys int

	// MaxValue is the largest value in bytes. Zero means 1 MiB; the most is 16 MiB.
	MaxValue int

	// MaxBytes is how large all keys and values together can be, those in quarantine
	// included. What holds them takes some 300 bytes more for each key. Zero means
	// 1 GiB.
	MaxBytes int64

	// MaxQuarantine is how many writes can be set aside. Zero means 1,000.
	MaxQuarantine int

	// Residency says whether the value of a key that region from wrote must not come
	// to region to, whoever sends it: true gives region to its stamp and digest alone.
	// It must be the same function in all regions. It is called by several goroutines
	// at once and must not call the Map. Nil: all values travel.
	//
	// A region that may have a value, and hears of it first from one that may not, has
	// it as Remote: list those with Map.Keys and fetch them with Map.Export.
	Residency func(from, to uint8, key string) (stays bool)

	// Logger receives what an operator should look at: a region that stamped twice,
	// stamps too far ahead, regions that differ. No keys are logged. Nil: nothing is.
	Logger *slog.Logger
}

// New returns an empty map of a region. Each region has a number of its own; two
// maps that write under one number end in clashes. It fails with [ErrInvalid] on an
// option outside its range. It does no I/O and starts no goroutine.
func New(region uint8, opts *Options) (*Map, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Map{region: region, opts: o, entries: map[string]Register{}, ahead: map[string]struct{}{},
		dead: map[string]struct{}{}, regions: map[uint8]*peer{region: {}}, aside: quarantine{}}
	for _, r := range o.Regions {
		m.regions[r] = &peer{}
	}
	m.opts.Regions = nil // m.regions are
	return m, nil
}

// Region is the number of the map's region.
func (m *Map) Region() uint8 { return m.region }

const (
	maxKey   = 512
	maxValue = 16 << 20
)

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.MaxAhead = cmp.Or(c.MaxAhead, 1<<32)
	c.MaxKeys = cmp.Or(c.MaxKeys, 1_000_000)
	c.MaxValue = cmp.Or(c.MaxValue, 1<<20)
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<30)
	c.MaxQuarantine = cmp.Or(c.MaxQuarantine, 1000)
	switch {
	case c.MaxKeys < 0 || c.MaxKeys > math.MaxInt32:
		return c, invalid("at most %d keys, not 1 to %d", c.MaxKeys, math.MaxInt32)
	case c.MaxValue < 0 || c.MaxValue > maxValue:
		return c, invalid("values of at most %d bytes, not 1 to %d", c.MaxValue, maxValue)
	case c.MaxBytes < 0 || c.MaxQuarantine < 0:
		return c, invalid("negative limit: %d bytes, %d writes in quarantine", c.MaxBytes, c.MaxQuarantine)
	}
	return c, nil
}
