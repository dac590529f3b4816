package backpressure

import (
	"math/rand/v2"
	"sync/atomic"
)

// A counter spreads its additions, so that processors do not wait for each
// other's cache lines.
type counter [8]struct {
	n atomic.Uint64
	_ [56]byte
}

func (c *counter) Add(n uint64) { c[rand.Uint32()%uint32(len(c))].n.Add(n) }

func (c *counter) Load() (sum uint64) {
	for i := range c {
		sum += c[i].n.Load()
	}
	return sum
}

// raise sets a number to at least v.
func raise(n *atomic.Int64, v int64) {
	for old := n.Load(); old < v; old = n.Load() {
		if n.CompareAndSwap(old, v) {
			return
		}
	}
}
