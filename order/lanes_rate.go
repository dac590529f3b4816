package order

import (
	"maps"
	"math"
	"sync"
	"time"
)

// Rate is a rate with a burst. Each process keeps its own count of what a lane has
// sent, that of other processes included, which it knows by the numbers. A lane that
// has used its burst up rests in the store until all of it is there again, for all
// processes. So the average holds across processes; a process that sees a lane for
// the first time begins with a full burst, and what others sent while it did not
// look may be followed by one more. An attempt counts, whatever becomes of it. A
// lane never rests for longer than two bursts take.
type Rate struct {
	PerSecond float64 // zero or less, or infinite: no limit
	Burst     int     // zero: 1
}

// rates are the counts of this process, by account. One that is full, and would
// begin full if it were new, is forgotten when there are many.
type rates struct {
	mu      sync.Mutex
	buckets map[string]*bucket
	most    int // before full ones are looked for
}

// A bucket is what may still be sent.
type bucket struct {
	tokens   float64
	at       time.Time // when they were counted
	full     time.Time // when all of them are there
	position Position  // what was sent last, by anybody
	attempt  int
}

// pace says for how long an account may not send, and takes a token if it may send
// m now.
func (l *Lanes) pace(m *Message) time.Duration {
	if l.opts.Rate == nil {
		return 0
	}
	rate := l.opts.Rate(m.Key)
	if !(rate.PerSecond > 0) || math.IsInf(rate.PerSecond, 1) {
		l.rates.pass(m)
		return 0
	}
	return l.rates.take(m, rate.PerSecond, float64(max(rate.Burst, 1)), time.Now())
}

func (r *rates) take(m *Message, perSecond, burst float64, now time.Time) (rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[m.Key]
	if b == nil {
		b = r.add(m.Key, now)
		b.tokens = burst
	} else {
		b.tokens = min(burst, b.tokens+perSecond*max(now.Sub(b.at).Seconds(), 0)-b.others(m))
		b.tokens = max(b.tokens, -burst) // what was sent at another rate is no debt for hours
	}
	b.at, b.position, b.attempt = now, m.Position, m.Attempt
	if b.tokens+nearly >= 1 {
		b.tokens--
	} else {
		b.attempt-- // this one was not made
		rest = max(after(burst-b.tokens, perSecond), time.Millisecond)
	}
	b.full = now.Add(after(burst-b.tokens, perSecond))
	return rest
}

// pass notes what is sent while there is no limit.
func (r *rates) pass(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.buckets[m.Key]; b != nil {
		b.position, b.attempt = m.Position, m.Attempt
	}
}

// nearly makes up for what rounding takes from the token that a rest has waited for.
const nearly = 1e-5

// others is how many attempts others have made since this process counted, as far
// as it can know: one for each number, and all of the message that comes next.
func (b *bucket) others(m *Message) float64 {
	switch p := m.Position; {
	case p == b.position:
		return float64(max(m.Attempt-1-b.attempt, 0))
	case p.Epoch == b.position.Epoch && p.Number > b.position.Number:
		return float64(p.Number-b.position.Number-1) + float64(m.Attempt-1)
	case p.Epoch > b.position.Epoch:
		return float64(p.Number-1) + float64(m.Attempt-1)
	}
	return 0 // the lane was forgotten
}

// after is how long it takes until there are so many tokens, in whole microseconds,
// as stores keep times.
func after(tokens, perSecond float64) time.Duration {
	seconds := min(tokens/perSecond, MaxDuration.Seconds())
	return time.Duration(math.Ceil(seconds*1e6-nearly)) * time.Microsecond
}

// add adds a bucket. r.mu is held.
func (r *rates) add(account string, now time.Time) *bucket {
	if r.buckets == nil {
		r.buckets, r.most = map[string]*bucket{}, maxLanes
	}
	if len(r.buckets) >= r.most {
		maps.DeleteFunc(r.buckets, func(_ string, b *bucket) bool { return !now.Before(b.full) })
		r.most = max(maxLanes, 2*len(r.buckets))
	}
	b := &bucket{}
	r.buckets[account] = b
	return b
}
