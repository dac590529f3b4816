package retry

import (
	"cmp"
	"sync"
	"time"
)

// A Budget keeps retries from becoming a load of their own when much fails at
// once. In any window, retries may cost a share of the calls of the window and a
// floor besides; what is not used expires with it. Make one for each dependency
// and share it among all policies that call it. It is local to the process. Its
// methods are safe for concurrent use.
type Budget struct {
	share, floor float64 // floor is for a whole window
	costs        [ClassPermanent]float64
	width        time.Duration // of a slot
	start        time.Time

	mu      sync.Mutex
	slots   [slots]slot
	current int64 // the number of the newest slot; it never falls
	refused uint64
}

// slots is how many parts a window has: it moves on by one at a time.
const slots = 10

type slot struct{ calls, spent float64 }

// BudgetOptions set up a [Budget]. The zero value of each field is a working
// default.
type BudgetOptions struct {
	// Share is what retries may cost for each call: 0.2 is one retry for five
	// calls. Zero means 0.2; the most is 10.
	Share float64

	// Floor is what they may cost each second besides, so that a caller with few
	// calls can retry at all. Zero means 1; the most is a million.
	Floor float64

	// Window is how long a call counts, to a tenth of it. The floor of a whole
	// window can be spent at once. Zero means 10 seconds; the least is 10 ms, the
	// most an hour.
	Window time.Duration

	// Cost is what a retry of each class costs. Zero means 1; the most is a million.
	Cost Cost
}

// Cost is what a retry costs, by the class of the failure before it.
type Cost struct{ Unknown, Transient, Throttled float64 }

// NewBudget returns a budget. Nil options mean defaults. It fails with
// [ErrInvalid] on an option outside its range, NaN and infinities included.
func NewBudget(opts *BudgetOptions) (*Budget, error) {
	var o BudgetOptions
	if opts != nil {
		o = *opts
	}
	share, floor := or(o.Share, 0.2), or(o.Floor, 1)
	window := cmp.Or(o.Window, 10*time.Second)
	costs := [...]float64{
		ClassUnknown: or(o.Cost.Unknown, 1), ClassTransient: or(o.Cost.Transient, 1), ClassThrottled: or(o.Cost.Throttled, 1),
	}
	switch {
	case !within(share, maxShare):
		return nil, invalid("budget with a share of %v, not up to %v", share, maxShare)
	case !within(floor, maxRate):
		return nil, invalid("budget with a floor of %v per second, not up to %v", floor, maxRate)
	case window < minWindow || window > maxWindow:
		return nil, invalid("budget with a window of %v, not %v to %v", window, minWindow, maxWindow)
	}
	for class, c := range costs {
		if !within(c, maxRate) {
			return nil, invalid("budget with a cost of %v for %v failures, not up to %v", c, Class(class), maxRate)
		}
	}
	return &Budget{share: share, floor: floor * window.Seconds(), costs: costs, width: window / slots, start: time.Now()}, nil
}

const (
	maxShare  = 10.0
	maxRate   = 1e6
	minWindow = 10 * time.Millisecond
	maxWindow = time.Hour
)

// or stands in for zero alone; cmp.Or would do so for NaN as well.
func or(v, otherwise float64) float64 {
	if v == 0 {
		return otherwise
	}
	return v
}

func within(v, most float64) bool { return v > 0 && v <= most } // false for NaN

// BudgetStats is what a budget holds at one moment.
type BudgetStats struct {
	Calls   uint64  // in the window, retries not included
	Spent   float64 // in the window
	Allowed float64 // to be spent in the window
	Refused uint64  // retries refused since NewBudget
}

// Stats returns a snapshot.
func (b *Budget) Stats() BudgetStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(time.Since(b.start))
	calls, spent := b.sums()
	return BudgetStats{Calls: uint64(calls), Spent: spent, Allowed: b.allowed(calls), Refused: b.refused}
}

// called counts a first attempt.
func (b *Budget) called() {
	b.mu.Lock()
	b.turn(time.Since(b.start))
	b.slots[b.current%slots].calls++
	b.mu.Unlock()
}

// spend takes what a retry costs, if it is there, and says in which slot.
func (b *Budget) spend(c Class) (at int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(time.Since(b.start))
	cost := b.costs[c]
	if calls, spent := b.sums(); spent+cost > b.allowed(calls) {
		b.refused++
		return 0, false
	}
	b.slots[b.current%slots].spent += cost
	return b.current, true
}

// giveBack undoes a spend whose retry did not begin, unless it has expired.
func (b *Budget) giveBack(c Class, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(time.Since(b.start))
	if at > b.current-slots {
		b.slots[at%slots].spent -= b.costs[c]
	}
}

// turn empties the slots that lie between the newest and now. A clock that goes
// back changes nothing.
func (b *Budget) turn(now time.Duration) {
	n := int64(now / b.width)
	for i := max(b.current+1, n-slots+1); i <= n; i++ {
		b.slots[i%slots] = slot{}
	}
	b.current = max(b.current, n)
}

func (b *Budget) sums() (calls, spent float64) {
	for _, s := range b.slots {
		calls += s.calls
		spent += s.spent
	}
	return calls, spent
}

// allowed is rounded up a little, since 0.29 times 100 is less than 29.
func (b *Budget) allowed(calls float64) float64 {
	return (b.share*calls + b.floor) * (1 + 1e-12)
}
