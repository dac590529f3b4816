package dedup

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
)

// A shard is a table of records. The records lie in pages without pointers and
// never move, so a million IDs cost the garbage collector little and no call has
// to wait until a large table has been copied. What few records need (a
// fingerprint, a result, the ID itself) lies beside the table.
type shard struct {
	mu     sync.Mutex
	slots  []slot // where records lie: open addressing with linear probing
	pages  []*[pageSize]record
	soon   []int64  // of each page: no record of it expires before; see dropExpired
	free   []uint32 // places without a record
	used   uint32   // places handed out so far
	cursor uint32   // the place that dropExpired looks at next
	floor  uint64   // the greatest token of a record that was removed
	extras map[uint32]*extra

	counted int64 // of its records, in the store's count
	_       [64]byte
}

const pageSize = 64

// A key stands for a scope and an ID.
type key [2]uint64

type record struct {
	key     key
	nonce   [16]byte
	token   uint64
	until   int64 // end of the lease, in microseconds
	expires int64 // end of the retention; of no meaning while unknown can hold
	since   int64 // of the grant, or of the completion or release
	attempt uint32
	state   uint8
	hold    bool // the policy under which it was claimed
}

// The states of a record. A place without record is absent.
const (
	absent uint8 = iota
	claimed
	held
	done
	released
)

// unknown says whether nobody may run the record's effect until a settlement.
func (r *record) unknown(now int64) bool {
	return r.state == held || r.state == claimed && r.hold && now >= r.until
}

func (r *record) expired(now int64) bool {
	return r.state != held && !(r.state == claimed && (r.hold || now < r.until)) && now >= r.expires
}

type extra struct {
	fingerprint [32]byte
	result      []byte
	scope, id   string // set while the record can be listed by Held
}

var zero [32]byte

func (x *extra) list(scope, id string) { x.scope, x.id = scope, id }

func (x *extra) copyResult() []byte {
	if x == nil {
		return []byte{}
	}
	return append([]byte{}, x.result...)
}

// find returns the record of k and its place, or nil.
func (s *shard) find(k key) (*record, uint32) {
	if i, ok := s.slot(k); ok {
		place := s.slots[i].place()
		return s.at(place), place
	}
	return nil, 0
}

func (s *shard) at(place uint32) *record { return &s.pages[place/pageSize][place%pageSize] }

func (s *shard) len() int { return int(s.used) - len(s.free) }

// add makes an empty record for a key that has none.
func (s *shard) add(k key) (*record, uint32) {
	var place uint32
	if n := len(s.free); n > 0 {
		place, s.free = s.free[n-1], s.free[:n-1]
	} else {
		place = s.used
		s.used++
		if int(place/pageSize) == len(s.pages) {
			s.pages = append(s.pages, new([pageSize]record))
			s.soon = append(s.soon, math.MaxInt64)
		}
	}
	if 4*s.len() > 3*len(s.slots) {
		s.grow()
	}
	s.put(makeSlot(k, place))
	r := s.at(place)
	*r = record{key: k} // all of it, so that no part is read before it is written: see grow
	return r, place
}

func (s *shard) remove(k key) {
	i, ok := s.slot(k)
	if !ok {
		return
	}
	place := s.slots[i].place()
	s.floor = max(s.floor, s.at(place).token)
	*s.at(place) = record{}
	s.free = append(s.free, place)
	delete(s.extras, place)
	s.vacate(i)
}

// extra returns what lies beside a record, and makes it if need be.
func (s *shard) extra(place uint32) *extra {
	x := s.extras[place]
	if x == nil {
		x = new(extra)
		if s.extras == nil {
			s.extras = make(map[uint32]*extra)
		}
		s.extras[place] = x
	}
	return x
}

// unlist takes a record off the list of Held.
func (s *shard) unlist(place uint32) {
	if x := s.extras[place]; x != nil {
		x.list("", "")
		if x.fingerprint == zero && x.result == nil {
			delete(s.extras, place)
		}
	}
}

// expireAt sets when a record expires.
func (s *shard) expireAt(r *record, place uint32, at int64) {
	r.expires = at
	if page := &s.soon[place/pageSize]; at < *page {
		*page = at
	}
}

// dropExpired looks at the next places and removes the records that have expired
// there. It looks at n places, and at one more for each that it could remove, up
// to most. A page in which none can have expired counts as one place. While the cursor
// is in a page, soon knows only of the records that it has passed there.
func (s *shard) dropExpired(now int64, n, most int) (dropped int) {
	for looked := 0; looked < min(n+dropped, most, int(s.used)); looked++ {
		s.cursor = (s.cursor + 1) % s.used
		if s.cursor%pageSize == 0 {
			page := &s.soon[s.cursor/pageSize]
			if now < *page {
				s.cursor = min(s.cursor+pageSize, s.used) - 1
				continue
			}
			*page = math.MaxInt64 // until they have been looked at
		}
		r := s.at(s.cursor)
		switch {
		case r.state == absent:
		case r.expired(now):
			s.remove(r.key)
			dropped++
		default:
			s.expireAt(r, s.cursor, r.expires)
		}
	}
	return dropped
}

// A slot is empty, or holds 32 bits of a key's hash and the place of its record
// plus one. Those bits give the slot where a search begins, so that the records
// themselves are touched only for a likely match.
type slot uint64

func makeSlot(k key, place uint32) slot { return slot(k[1]<<32) | slot(place+1) }

func (t slot) place() uint32 { return uint32(t) - 1 }
func (t slot) bits() uint32  { return uint32(t >> 32) }

// slot returns the place in slots of a key.
func (s *shard) slot(k key) (int, bool) {
	if len(s.slots) == 0 {
		return 0, false
	}
	mask, b := len(s.slots)-1, uint32(k[1])
	for i := int(b) & mask; s.slots[i] != 0; i = (i + 1) & mask {
		if s.slots[i].bits() == b && s.at(s.slots[i].place()).key == k {
			return i, true
		}
	}
	return 0, false
}

// put fills the first empty slot from where the search for it begins.
func (s *shard) put(t slot) {
	mask := len(s.slots) - 1
	i := int(t.bits()) & mask
	for s.slots[i] != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = t
}

// vacate empties a slot and moves up those behind it that a search would no
// longer reach.
func (s *shard) vacate(i int) {
	mask := len(s.slots) - 1
	s.slots[i] = 0
	for j := (i + 1) & mask; s.slots[j] != 0; j = (j + 1) & mask {
		begin := int(s.slots[j].bits()) & mask
		if (j-begin)&mask >= (j-i)&mask { // the search from begin passes i
			s.slots[i], s.slots[j] = s.slots[j], 0
			i = j
		}
	}
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]slot, max(16, 2*len(old)))
	// New memory that is read before it is written is mapped twice, and the second time
	// other processors have to be told.
	clear(s.slots)
	for _, t := range old {
		if t != 0 {
			s.put(t)
		}
	}
}

// seeds key the hash that stands for an ID: two 64-bit hashes with seeds that
// are drawn anew in every process.
type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) key(scope, id string) (k key) {
	for i, seed := range s {
		k[i] = maphash.String(seed, id) ^ bits.RotateLeft64(maphash.String(seed, scope), 32)
	}
	return k
}
