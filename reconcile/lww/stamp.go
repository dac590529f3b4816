package lww

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Stamp says when a write was made, by the Lamport clock of the region that made
// it: a counter that is above every stamp the region had seen. A write that saw
// another has the greater stamp, therefore; of two that did not see each other
// either may have it, whatever the clocks on the wall say. The zero Stamp is no
// write's.
//
// Lamport, Time, Clocks, and the Ordering of Events in a Distributed System, 1978
// (https://lamport.azurewebsites.net/pubs/time-clocks.pdf).
type Stamp struct {
	Lamport uint64
	Region  uint8
}

// Compare is negative if s is less than t, positive if it is greater, and zero if
// they are the same: by Lamport, and then by region.
func (s Stamp) Compare(t Stamp) int {
	return cmp.Or(cmp.Compare(s.Lamport, t.Lamport), cmp.Compare(s.Region, t.Region))
}

// IsZero says whether it is no write's.
func (s Stamp) IsZero() bool { return s.Lamport == 0 }

// String has the form "17@3": Lamport 17 in region 3.
func (s Stamp) String() string { return fmt.Sprintf("%d@%d", s.Lamport, s.Region) }

// A Vector says what was seen: for each region the Lamport up to which all of its
// writes were. The zero Vector has seen nothing. Vectors do not change; each is safe
// for concurrent use.
type Vector struct {
	at []Stamp // by region, none zero; never written again
}

// NewVector returns the least vector that covers the stamps.
func NewVector(stamps ...Stamp) Vector {
	var v Vector
	for _, s := range stamps {
		v = v.with(s)
	}
	return v
}

// At returns the Lamport up to which a region's writes were seen, zero if none was.
func (v Vector) At(region uint8) uint64 {
	if i, found := v.find(region); found {
		return v.at[i].Lamport
	}
	return 0
}

// Covers says whether a write with the stamp was seen, or is the zero Stamp.
func (v Vector) Covers(s Stamp) bool { return s.Lamport <= v.At(s.Region) }

// CoversAll says whether everything that w has seen was seen.
func (v Vector) CoversAll(w Vector) bool {
	for _, s := range w.at {
		if !v.Covers(s) {
			return false
		}
	}
	return true
}

// Equal says whether the two have seen the same.
func (v Vector) Equal(w Vector) bool { return slices.Equal(v.at, w.at) }

// Join returns the vector that has seen what either has.
func (v Vector) Join(w Vector) Vector {
	if v.CoversAll(w) {
		return v
	}
	if w.CoversAll(v) {
		return w
	}
	for _, s := range w.at {
		v = v.with(s)
	}
	return v
}

// Stamps returns the latest stamp of each region that was seen, by region.
func (v Vector) Stamps() []Stamp { return slices.Clone(v.at) }

// String has the form "[17@3 4@9]".
func (v Vector) String() string {
	parts := make([]string, len(v.at))
	for i, s := range v.at {
		parts[i] = s.String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// highest is the greatest stamp in it.
func (v Vector) highest() (h Stamp) {
	for _, s := range v.at {
		if s.Compare(h) > 0 {
			h = s
		}
	}
	return h
}

// with returns a vector that covers s, too.
func (v Vector) with(s Stamp) Vector {
	if v.Covers(s) {
		return v
	}
	i, found := v.find(s.Region)
	at := make([]Stamp, 0, len(v.at)+1)
	at = append(append(at, v.at[:i]...), s)
	if found {
		i++
	}
	return Vector{append(at, v.at[i:]...)}
}

func (v Vector) find(region uint8) (int, bool) {
	return slices.BinarySearchFunc(v.at, region, func(s Stamp, r uint8) int { return cmp.Compare(s.Region, r) })
}
