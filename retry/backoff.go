package retry

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// A Backoff says how long to wait before each retry. It is a value without
// state: copy it, share it, keep it in an option. The zero Backoff waits as
// [Gradient] does.
//
// Every delay is between zero and [Backoff.Max], after jitter too, for any number
// of retries; sums and products saturate and never overflow.
type Backoff struct {
	law           law
	first, second time.Duration
	max           time.Duration
	jitter        Jitter
	steps         []time.Duration // of Steps; never changed
}

type law uint8

const (
	unset law = iota
	exponential
	fibonacci
	constant
	stepwise
)

// A Jitter spreads retries, so that callers that failed together do not come
// back together. All jitters shorten a delay and none lengthens it.
type Jitter uint8

const (
	// NoJitter waits for the whole delay.
	NoJitter Jitter = iota
	// FullJitter waits for a time between zero and the delay.
	FullJitter
	// EqualJitter waits for a time between half the delay and the delay.
	EqualJitter
	// Decorrelated is for [Exponential] alone: each delay is between the first
	// and three times the one before, and at most the cap
	// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
	Decorrelated
)

// Exponential waits for first, then for twice as long each time, and at most for
// most. Both are positive, and first is not above most.
func Exponential(first, most time.Duration, j Jitter) Backoff {
	return Backoff{law: exponential, first: first, max: most, jitter: j}
}

// Gradient waits for min(1 s * 2^n, 30 s), with n = 0 for the first retry: 1, 2,
// 4, 8, 16, 30, 30 seconds and so on, without jitter.
func Gradient() Backoff { return Exponential(time.Second, 30*time.Second, NoJitter) }

// Fibonacci waits for first, then for second, then each time for the sum of the
// last two: 5 and 10 minutes go on with 15, 25 and 40. Both are positive, and
// second is not below first. It has no cap of its own: see [Backoff.Capped].
func Fibonacci(first, second time.Duration) Backoff {
	return Backoff{law: fibonacci, first: first, second: second, max: math.MaxInt64}
}

// Constant waits for d each time; d is not negative.
func Constant(d time.Duration) Backoff { return Backoff{law: constant, first: d, max: d} }

// Steps waits for the durations in turn, and for the last of them from then on.
// There is at least one, and none is negative.
func Steps(d ...time.Duration) Backoff {
	b := Backoff{law: stepwise, steps: slices.Clone(d)}
	b.max = b.uncapped()
	return b
}

// WithJitter returns the same backoff with another jitter.
func (b Backoff) WithJitter(j Jitter) Backoff {
	b = b.orGradient()
	b.jitter = j
	return b
}

// Capped returns the same backoff with delays of at most most, which is not
// negative. A cap that is there already and smaller stays.
func (b Backoff) Capped(most time.Duration) Backoff {
	b = b.orGradient()
	b.max = min(b.max, most)
	return b
}

// Delay returns how long to wait before retry n; n counts from 1, the retry after
// the first failure, and less than 1 is taken as 1. It is a pure function: the
// same arguments have the same answer, in any process and at any time.
//
// random decides the jitter. Give it a new random number each time, or the same
// one for all retries of an operation, such as a hash of its ID: the delays are
// spread either way, and in the second the whole schedule can be computed again.
//
// A backoff that does not [Backoff.Validate] has delays in its bounds all the
// same, with negative durations taken as zero.
func (b Backoff) Delay(n int, random uint64) time.Duration {
	b = b.orGradient()
	return b.delay(n, random)
}

func (b *Backoff) delay(n int, random uint64) time.Duration {
	n = max(n, 1)
	if b.jitter == Decorrelated {
		return b.decorrelated(n, random)
	}
	d := max(min(b.whole(n), b.max), 0)
	switch b.jitter {
	case FullJitter:
		return upTo(d, mix(random, n))
	case EqualJitter:
		return d - upTo(d/2, mix(random, n))
	}
	return d
}

// DelayAfter is [Backoff.Delay] for a retry that a server asked to wait for, and
// never less than wait. A backoff with jitter adds up to a tenth of wait, so that
// those who were told the same do not come back together. A negative wait counts
// as zero; Max does not bound it.
func (b Backoff) DelayAfter(n int, random uint64, wait time.Duration) time.Duration {
	b = b.orGradient()
	return b.delayAfter(n, random, wait)
}

// delayAfter is DelayAfter of a backoff that is not the zero one. It takes a
// pointer, as delay does, because copies would cost more than the computation.
func (b *Backoff) delayAfter(n int, random uint64, wait time.Duration) time.Duration {
	d := b.delay(n, random)
	if d >= wait {
		return d
	}
	if b.jitter == NoJitter {
		return wait
	}
	return add(wait, upTo(wait/10, mix(random, -max(n, 1)))) // not what Delay drew
}

// Max returns the longest delay there can be without a server's wish.
func (b Backoff) Max() time.Duration { return max(b.orGradient().max, 0) }

// IsZero reports whether b is the zero Backoff, which an option may take for its
// own default.
func (b Backoff) IsZero() bool { return b.law == unset }

// Validate returns an error that wraps [ErrInvalid] if b was made from arguments
// outside their range. Those who are handed a Backoff call it once.
func (b Backoff) Validate() error {
	switch {
	case b.law == unset:
		return nil
	case b.jitter > Decorrelated:
		return invalid("backoff with jitter %d", b.jitter)
	case b.jitter == Decorrelated && b.law != exponential:
		return invalid("backoff with decorrelated jitter, which is for Exponential alone")
	case b.max < 0:
		return invalid("backoff with a cap of %v", b.max)
	case b.law == exponential && (b.first <= 0 || b.max < b.first):
		return invalid("exponential backoff from %v to %v", b.first, b.max)
	case b.law == fibonacci && (b.first <= 0 || b.second < b.first):
		return invalid("Fibonacci backoff from %v and %v", b.first, b.second)
	case b.law == constant && b.first < 0:
		return invalid("constant backoff of %v", b.first)
	case b.law == stepwise && len(b.steps) == 0:
		return invalid("backoff without steps")
	}
	for _, s := range b.steps {
		if s < 0 {
			return invalid("backoff with a step of %v", s)
		}
	}
	return nil
}

// String describes the backoff for logs: "exponential from 1s, at most 30s".
func (b Backoff) String() string {
	b = b.orGradient()
	var s strings.Builder
	switch b.law {
	case exponential:
		fmt.Fprintf(&s, "exponential from %v", b.first)
	case fibonacci:
		fmt.Fprintf(&s, "Fibonacci from %v, %v", b.first, b.second)
	case constant:
		fmt.Fprintf(&s, "constant %v", b.first)
	case stepwise:
		fmt.Fprintf(&s, "steps %v", b.steps)
	}
	if b.max != b.uncapped() {
		fmt.Fprintf(&s, ", at most %v", b.max)
	}
	if b.jitter != NoJitter {
		fmt.Fprintf(&s, ", %v", b.jitter)
	}
	return s.String()
}

// String returns the jitter's name.
func (j Jitter) String() string {
	switch j {
	case NoJitter:
		return "no jitter"
	case FullJitter:
		return "full jitter"
	case EqualJitter:
		return "equal jitter"
	case Decorrelated:
		return "decorrelated jitter"
	}
	return fmt.Sprintf("jitter %d", uint8(j))
}

func (b Backoff) orGradient() Backoff {
	if b.law == unset {
		return Gradient()
	}
	return b
}

// whole is the delay of retry n before the cap and the jitter.
func (b *Backoff) whole(n int) time.Duration {
	switch b.law {
	case exponential:
		switch {
		case b.first <= 0:
			return 0
		case n > bits.LeadingZeros64(uint64(b.first)): // the product has more than 63 bits
			return math.MaxInt64
		}
		return b.first << (n - 1)
	case fibonacci:
		d, next := b.first, b.second
		for range min(n, 128) - 1 { // the 92nd number is the last of 63 bits
			d, next = next, add(d, next)
		}
		return d
	case stepwise:
		if len(b.steps) == 0 {
			return 0
		}
		return b.steps[min(n, len(b.steps))-1]
	}
	return b.first
}

// uncapped is the longest delay there can be without a cap.
func (b Backoff) uncapped() (longest time.Duration) {
	switch b.law {
	case constant:
		return b.first
	case stepwise:
		for _, s := range b.steps {
			longest = max(longest, s)
		}
		return longest
	}
	return math.MaxInt64
}

// chain is how many delays a decorrelated one is computed from. They grow by half
// on average, so that the last has long forgotten the first.
const chain = 64

func (b *Backoff) decorrelated(n int, random uint64) time.Duration {
	low := max(min(b.first, b.max), 0)
	d := low
	for before := min(n, chain) - 1; before >= 0; before-- { // counts down: there is no n+1 after the last int
		high := max(min(add(d, add(d, d)), b.max), low)
		d = low + upTo(high-low, mix(random, n-before))
	}
	return d
}

// add is the sum of two durations, or the longest there is. A negative one counts
// as zero.
func add(a, b time.Duration) time.Duration {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// upTo returns a duration between zero and d, both included, evenly.
func upTo(d time.Duration, random uint64) time.Duration {
	scaled, _ := bits.Mul64(random, uint64(d)+1)
	return time.Duration(scaled)
}

// mix makes one number for each retry out of one for all, with the finaliser of
// SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
func mix(random uint64, n int) uint64 {
	z := random + uint64(n)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
