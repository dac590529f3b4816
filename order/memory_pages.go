package order

import (
	"math/bits"
	"slices"
)

// pageSize is how many numbers share a page.
const pageSize = 64

// A heldMessage is one that waits: buffered, or parked.
type heldMessage struct {
	id      string
	payload []byte
	context []byte
	pushed  int64
}

// A numberPage knows 64 neighbouring numbers. Each of its sets has a bit for each of
// them. A number of the set held has its message in messages, one of the set known
// its digest in digests; both hold the aligned part of the page, of 1, 4, 16 or 64
// numbers, that is in use: a key of few messages stays small.
type numberPage struct {
	no        uint64 // of the page: its numbers divided by 64
	held      uint64 // at or above the cursor: buffered or parked
	unordered uint64 // at or above the cursor: delivered outside of the buffer
	known     uint64 // the digest is remembered
	late      uint64 // below the cursor: came after it was skipped or void

	first    int // offset of digests[0] and messages[0]
	digests  [][16]byte
	messages []heldMessage // nil when no message is held
}

// numberPages are what is known of the numbers of an epoch, ascending. Between them
// there may be any number of pages that hold nothing and do not exist. Finding
// one takes a constant time when there are no such holes.
type numberPages struct {
	list []*numberPage
	pool *rowPool
}

func pageOffset(n uint64) (off int, bit uint64) { return int(n % pageSize), 1 << (n % pageSize) }

// find returns where the page is, or where it would be.
func (s *numberPages) find(no uint64) (int, bool) {
	if len(s.list) == 0 || no < s.list[0].no {
		return 0, false
	}
	if i := no - s.list[0].no; i < uint64(len(s.list)) && s.list[i].no == no {
		return int(i), true
	}
	return slices.BinarySearchFunc(s.list, no, func(p *numberPage, no uint64) int {
		switch {
		case p.no < no:
			return -1
		case p.no > no:
			return 1
		}
		return 0
	})
}

// of returns the page of a number, nil if it does not exist.
func (s *numberPages) of(n uint64) *numberPage {
	if i, ok := s.find(n / pageSize); ok {
		return s.list[i]
	}
	return nil
}

// room returns the page of a number, with room for it.
func (s *numberPages) room(n uint64) *numberPage {
	i, ok := s.find(n / pageSize)
	if !ok {
		p := &numberPage{no: n / pageSize}
		if len(s.list) > 0 { // the key is busy: no need to begin small
			p.digests = make([][16]byte, pageSize)
		}
		s.list = slices.Insert(s.list, i, p)
	}
	p := s.list[i]
	p.grow(int(n % pageSize))
	return p
}

// grow makes room for an offset.
func (p *numberPage) grow(off int) {
	if p.digests == nil {
		p.first, p.digests = off, make([][16]byte, 1)
		return
	}
	for size := len(p.digests); off < p.first || off >= p.first+size; size = len(p.digests) {
		first := p.first / (size * 4) * (size * 4)
		digests := make([][16]byte, size*4)
		copy(digests[p.first-first:], p.digests)
		p.digests = digests
		if p.messages != nil {
			messages := make([]heldMessage, size*4)
			copy(messages[p.first-first:], p.messages)
			p.messages = messages
		}
		p.first = first
	}
}

// has says which of the sets a number is in.
func (s *numberPages) has(n uint64, set func(*numberPage) uint64) bool {
	p := s.of(n)
	return p != nil && set(p)&(1<<(n%pageSize)) != 0
}

func heldSet(p *numberPage) uint64      { return p.held }
func unorderedSet(p *numberPage) uint64 { return p.unordered }
func lateSet(p *numberPage) uint64      { return p.late }
func aheadSet(p *numberPage) uint64     { return p.held | p.unordered }

// next returns the lowest number from n on that is in a set.
func (s *numberPages) next(n uint64, set func(*numberPage) uint64) (uint64, bool) {
	i, ok := s.find(n / pageSize)
	if ok {
		if rest := set(s.list[i]) >> (n % pageSize); rest != 0 {
			return n + uint64(bits.TrailingZeros64(rest)), true
		}
		i++
	}
	for ; i < len(s.list); i++ {
		if all := set(s.list[i]); all != 0 {
			return s.list[i].no*pageSize + uint64(bits.TrailingZeros64(all)), true
		}
	}
	return 0, false
}

// digest returns the digest of a number, if it is remembered.
func (s *numberPages) digest(n uint64) (digest [16]byte, ok bool) {
	p := s.of(n)
	off, bit := pageOffset(n)
	if p == nil || p.known&bit == 0 {
		return digest, false
	}
	return p.digests[off-p.first], true
}

// remember keeps a digest.
func (s *numberPages) remember(n uint64, digest [16]byte) *numberPage {
	p := s.room(n)
	off, bit := pageOffset(n)
	p.known |= bit
	p.digests[off-p.first] = digest
	return p
}

// hold keeps a message.
func (s *numberPages) hold(n uint64, a *Arrival, now int64) {
	p := s.remember(n, a.Digest)
	off, bit := pageOffset(n)
	p.held |= bit
	if p.messages == nil {
		p.messages = s.pool.take(len(p.digests))
	}
	h := &p.messages[off-p.first]
	h.id, h.pushed = a.ID, now
	h.payload = append(h.payload[:0], a.Payload...)
	if len(a.Context) > 0 {
		h.context = slices.Clone(a.Context)
	}
}

// message returns the message that is held at a number, nil if there is none.
func (s *numberPages) message(n uint64) *heldMessage {
	p := s.of(n)
	off, bit := pageOffset(n)
	if p == nil || p.held&bit == 0 {
		return nil
	}
	return &p.messages[off-p.first]
}

// drop ends the holding of a message.
func (s *numberPages) drop(p *numberPage, n uint64) {
	off, bit := pageOffset(n)
	p.held &^= bit
	h := &p.messages[off-p.first]
	h.id, h.context = "", nil
	if cap(h.payload) > maxReused {
		h.payload = nil
	}
	if p.held == 0 {
		s.pool.give(p.messages)
		p.messages = nil
	}
}

// forget drops the pages all of whose numbers are below n.
func (s *numberPages) forget(n uint64, dropped func(*numberPage)) {
	for len(s.list) > 0 && s.list[0].no < n/pageSize {
		dropped(s.list[0])
		s.list[0] = nil
		s.list = s.list[1:]
	}
}

// A rowPool keeps a few rows of messages for use by other pages, with room for small
// payloads.
type rowPool struct{ free [][]heldMessage }

const (
	maxPooled = 64
	maxReused = 1024
)

func (p *rowPool) take(size int) []heldMessage {
	if n := len(p.free); size == pageSize && n > 0 {
		row := p.free[n-1]
		p.free = p.free[:n-1]
		return row
	}
	return make([]heldMessage, size)
}

func (p *rowPool) give(row []heldMessage) {
	if len(row) == pageSize && len(p.free) < maxPooled {
		p.free = append(p.free, row)
	}
}
