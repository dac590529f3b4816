package dlqtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What must not end during a subtest lasts longer than any of them takes.
const (
	longLease     = time.Hour
	longRetention = 24 * time.Hour
	longAudit     = 48 * time.Hour
)

// stream is the stream of all subtests but those about streams.
const stream = "orders"

// Fingerprints of failures.
const (
	printA = "aaaa"
	printB = "bbbb"
)

// An env is what one subtest works with: an empty store and its clock. Its helpers
// end the subtest when the store does not answer.
type env struct {
	*testing.T
	c       Config
	store   dlq.Store
	p       dlq.Params
	short   time.Duration       // a lease, delay or retention that wait outlasts
	sleep   func(time.Duration) // moves the store's clock
	virtual bool                // sleeping takes no time, and nothing else does
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{
		T: t, c: c, store: c.New(t), p: dlq.Params{Retention: longRetention, Audit: longAudit, Capacity: 10_000},
		short: 100 * time.Millisecond, sleep: c.Sleep, virtual: c.Bubble || c.Sleep != nil,
	}
	if e.store == nil {
		t.Fatal("dlqtest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if e.virtual {
		e.short = time.Minute
	}
	if twice {
		e.store = &twiceStore{Store: e.store, t: t, virtual: e.virtual}
	}
	return e
}

// wait outlasts a lease or a delay of e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on, so that what comes next is later even where
// virtual time stands still between two calls.
func (e *env) tick() { e.sleep(time.Millisecond) }

// many is how many letters large batches have: a multiple of twelve.
func (e *env) many() int {
	n := min(cmp.Or(e.c.Many, 1200), 2400)
	return max(n-n%12, 12)
}

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// sweep removes all that has expired, and says how much; false: the store is no Sweeper.
func (e *env) sweep() (removed int, ok bool) {
	e.Helper()
	s := e.store
	if twice, is := s.(*twiceStore); is {
		s = twice.Store
	}
	sweeper, is := s.(dlq.Sweeper)
	if !is {
		return 0, false
	}
	for range 3 { // it goes on where the last one stopped
		n, err := sweeper.Sweep(context.Background(), 100_000)
		if err != nil {
			e.Fatalf("Sweep: %v", err)
		}
		removed += n
	}
	return removed, true
}
