package order

import (
	"math/rand/v2"
	"testing"
)

// TestMemoryPagesAgreeWithAMap holds, remembers and drops numbers near each other
// and far apart, and compares with a map.
func TestMemoryPagesAgreeWithAMap(t *testing.T) {
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s, want := numberPages{pool: &rowPool{}}, map[uint64]byte{}
		base := uint64(1) << rnd.IntN(62)
		span := uint64(1) << (4 + rnd.IntN(12))
		low := base
		for range 500 {
			n := low + rnd.Uint64N(span)
			switch rnd.IntN(8) {
			case 0:
				low += rnd.Uint64N(100)
				for p := range s.list {
					for m := range want {
						if m/pageSize == s.list[p].no && m < low && want[m] != 0 {
							s.drop(s.list[p], m)
							delete(want, m)
						}
					}
				}
				s.forget(low, func(*numberPage) {})
			case 1:
				if h := s.message(n); h != nil {
					s.drop(s.of(n), n)
					delete(want, n)
				}
			default:
				if want[n] == 0 {
					b := byte(1 + rnd.IntN(255))
					s.hold(n, &Arrival{Message: Message{Payload: []byte{b}}, Digest: [16]byte{b}}, int64(b))
					want[n] = b
				}
			}
		}
		count := 0
		for n, ok := s.next(0, heldSet); ok; n, ok = s.next(n+1, heldSet) {
			h := s.message(n)
			digest, known := s.digest(n)
			if want[n] == 0 || h.payload[0] != want[n] || !known || digest[0] != want[n] || h.pushed != int64(want[n]) {
				t.Fatalf("seed %d: number %d holds %v, want %d", seed, n, h, want[n])
			}
			count++
		}
		if count != len(want) {
			t.Fatalf("seed %d: %d numbers are held, want %d", seed, count, len(want))
		}
	}
}

// TestMemoryRangesAgreeWithAMap adds and removes numbers of both kinds and
// compares with a map.
func TestMemoryRangesAgreeWithAMap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var r numberRanges
		want := map[uint64]int{}
		for range 300 {
			from := rnd.Uint64N(200)
			if rnd.IntN(3) == 0 {
				r.remove(from)
				delete(want, from)
				continue
			}
			to := from
			for to < from+1+rnd.Uint64N(10) && want[to] == 0 {
				to++
			}
			if to > from {
				skipped := rnd.IntN(2) == 0
				r.add(numberRange{from, to, skipped})
				for n := from; n < to; n++ {
					want[n] = 1
					if skipped {
						want[n] = 2
					}
				}
			}
		}
		for n := range uint64(220) {
			got := 0
			if i, ok := r.find(n); ok {
				got = 1
				if r[i].skipped {
					got = 2
				}
			}
			if got != want[n] {
				t.Fatalf("seed %d: number %d is in %d, want %d: %v", seed, n, got, want[n], r)
			}
		}
		for i := 1; i < len(r); i++ {
			if r[i-1].to > r[i].from || r[i-1].to == r[i].from && r[i-1].skipped == r[i].skipped {
				t.Fatalf("seed %d: the ranges %v are not joined, or overlap", seed, r)
			}
		}
	}
}
