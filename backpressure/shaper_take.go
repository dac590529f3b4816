package backpressure

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A share says how much of its tokens a line leaves to more important ones.
type share uint8

const (
	keepNone share = iota
	keepHalf       // a more important line was short lately
	keepAll        // one has callers that wait
)

// shortFor is how long a line counts as short after it was.
const shortFor = time.Second

// keeps says what a line leaves at the moment. When no line is short, that is one
// look at two counters.
func (l *Line) keeps(at time.Duration) share {
	if l.s.waits.Load() == 0 && l.s.short.Load() <= int64(at) {
		return keepNone
	}
	k := keepNone
	for _, g := range l.greater {
		switch {
		case g.oldest.Load() != 0:
			return keepAll
		case g.shortUntil.Load() > int64(at):
			k = keepHalf
		}
	}
	return k
}

// take takes the tokens of a call out of the line's own buckets, or says how long
// it would be until they hold as many.
func (l *Line) take(at time.Duration, cost int, k share) (ok bool, wait time.Duration) {
	if cost == 1 {
		if wait := time.Duration(l.empty.Load()) - at; wait > 0 {
			return false, wait
		}
	}
	l.mu.Lock()
	now := l.clock(at)
	if k == keepNone && l.rest.AllowN(now, cost) || l.takeMore(now, cost, k) {
		l.counts.Admitted++
		l.mu.Unlock()
		return true, 0
	}
	wait = l.wait(now, cost)
	if cost == 1 && wait > 0 {
		l.empty.Store(int64(l.last + min(wait, math.MaxInt64-l.last)))
	}
	l.mu.Unlock()
	return false, wait
}

// takeMore tries what others may take, as far as it is not kept for them, then the
// floor, which is there for when it is needed, and then both together.
func (l *Line) takeMore(now time.Time, cost int, k share) bool {
	if k == keepNone && l.floor == nil {
		return false
	}
	rest := 0
	switch k {
	case keepNone:
		rest = int(l.rest.TokensAt(now))
	case keepHalf:
		rest = int(l.rest.TokensAt(now)) - l.keep
	}
	if rest >= cost && l.rest.AllowN(now, cost) {
		return true
	}
	if l.floor == nil {
		return false
	}
	if l.floor.AllowN(now, cost) {
		return true
	}
	more := cost - rest
	return rest > 0 && more > 0 && l.floor.TokensAt(now) >= float64(more) &&
		l.floor.AllowN(now, more) && l.rest.AllowN(now, rest)
}

// borrow takes the tokens of a call of that importance from a lesser line, and notes
// that the line is short.
func (l *Line) borrow(at time.Duration, cost int, k share, importance int) bool {
	if len(l.lesser) == 0 {
		return false
	}
	until := int64(at + shortFor)
	raise(&l.shortUntil, until)
	raise(&l.s.short, until)
	if k == keepAll { // what a lesser line could lend is not for this one
		return false
	}
	for _, from := range l.lesser {
		if from.lend(at, cost, k, importance) {
			l.mu.Lock()
			l.counts.Admitted++
			l.counts.Borrowed += uint64(cost)
			l.mu.Unlock()
			return true
		}
	}
	return false
}

// lend gives tokens above the floor to a line of that importance, unless callers
// of its own have waited until they are as important.
func (l *Line) lend(at time.Duration, cost int, k share, importance int) bool {
	if l.importance(at) >= importance {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock(at)
	if k == keepHalf && int(l.rest.TokensAt(now))-l.keep < cost {
		return false
	}
	if !l.rest.AllowN(now, cost) {
		return false
	}
	l.counts.Lent += uint64(cost)
	return true
}

// importance is that of the line's first waiter, which grows with its age.
func (l *Line) importance(at time.Duration) int {
	oldest := l.oldest.Load()
	if oldest == 0 {
		return l.opts.Importance
	}
	return l.opts.Importance + int(max(at-time.Duration(oldest), 0)/l.s.opts.Age)
}

// until is how long it will be until the line's own buckets hold so many tokens.
func (l *Line) until(at time.Duration, tokens int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Not earlier than take has it, to the nanosecond.
	return max(l.wait(l.clock(at), tokens), time.Duration(l.empty.Load())-at)
}

// untilLent is until for what other lines may take.
func (l *Line) untilLent(at time.Duration, tokens int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tokens > l.rest.Burst() {
		return math.MaxInt64
	}
	return untilTokens(float64(tokens)-l.rest.TokensAt(l.clock(at)), l.rest.Limit())
}

func (l *Line) wait(now time.Time, tokens int) time.Duration {
	have := l.rest.TokensAt(now)
	if l.floor == nil {
		return untilTokens(float64(tokens)-have, l.rest.Limit())
	}
	// Parts of a token do not add up, so both are counted in whole ones, and the
	// slower bucket may be the one that is waited for.
	floor := l.floor.TokensAt(now)
	missing := float64(tokens) - math.Floor(have) - math.Floor(floor)
	if missing <= 0 {
		return 0
	}
	return min(nextToken(have, l.rest), nextToken(floor, l.floor))
}

// nextToken is how long it will be until a bucket holds one whole token more.
func nextToken(have float64, b *rate.Limiter) time.Duration {
	if have >= float64(b.Burst()) {
		return math.MaxInt64
	}
	return untilTokens(math.Floor(have)+1-have, b.Limit())
}

func untilTokens(missing float64, perSecond rate.Limit) time.Duration {
	if missing <= 0 {
		return 0
	}
	if perSecond <= 0 {
		return math.MaxInt64
	}
	ns := math.Ceil(missing / float64(perSecond) * 1e9)
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// clock is the time for a limiter. It does not go back: goroutines read the clock
// before they take the lock, and a limiter that is told an earlier time than before
// makes tokens of nothing.
func (l *Line) clock(at time.Duration) time.Time {
	if at > l.last {
		l.last = at
	}
	return l.s.start.Add(l.last)
}
