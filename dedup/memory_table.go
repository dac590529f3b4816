package dedup

import (
	"hash/maphash"
	"sync"
)

// A shard is a table of records. The map holds no pointers and the records lie
// in pages, so a million IDs cost the garbage collector little and no single
// call has to move them all when the table grows. What few records need (a
// fingerprint, a result, the ID itself) lies beside the table.
type shard struct {
	mu     sync.Mutex
	index  map[key]uint32 // place of a record in pages
	pages  []*[pageSize]record
	free   []uint32
	used   uint32 // places handed out so far
	cursor uint32 // the place dropExpired looks at next
	extras map[key]*extra
}

const pageSize = 256

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

func (s *shard) init() {
	s.index = make(map[key]uint32)
	s.extras = make(map[key]*extra)
}

func (s *shard) find(k key) *record {
	if i, ok := s.index[k]; ok {
		return s.at(i)
	}
	return nil
}

func (s *shard) at(i uint32) *record { return &s.pages[i/pageSize][i%pageSize] }

// add makes an empty record for a key that has none.
func (s *shard) add(k key) *record {
	var i uint32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = s.used
		s.used++
		if int(i/pageSize) == len(s.pages) {
			s.pages = append(s.pages, new([pageSize]record))
		}
	}
	s.index[k] = i
	r := s.at(i)
	*r = record{key: k}
	return r
}

func (s *shard) remove(k key) {
	i := s.index[k]
	*s.at(i) = record{}
	s.free = append(s.free, i)
	delete(s.index, k)
	delete(s.extras, k)
}

// extra returns what lies beside the record of k, and makes it if need be.
func (s *shard) extra(k key) *extra {
	x := s.extras[k]
	if x == nil {
		x = new(extra)
		s.extras[k] = x
	}
	return x
}

// unlist takes the record off the list of Held.
func (s *shard) unlist(k key) {
	if x := s.extras[k]; x != nil {
		x.list("", "")
		if x.fingerprint == zero && x.result == nil {
			delete(s.extras, k)
		}
	}
}

// dropExpired looks at the next n places and removes the records that have
// expired there.
func (s *shard) dropExpired(now int64, n int) (dropped int) {
	for range min(n, int(s.used)) {
		s.cursor = (s.cursor + 1) % s.used
		if r := s.at(s.cursor); r.state != absent && r.expired(now) {
			s.remove(r.key)
			dropped++
		}
	}
	return dropped
}

// seeds key the hash that stands for an ID: two 64-bit hashes with seeds that
// are drawn anew in every process.
type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) key(scope, id string) key {
	return key{s.hash(0, scope, id), s.hash(1, scope, id)}
}

func (s *seeds) hash(i int, scope, id string) uint64 {
	var h maphash.Hash
	h.SetSeed(s[i])
	h.WriteString(scope)
	h.WriteByte(0) // no scope and no ID has it, so the pair is told apart
	h.WriteString(id)
	return h.Sum64()
}
