package backpressure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// ask asks the store, or does what the policy says.
func (l *SharedLine) ask(ctx context.Context, cost int) Verdict {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	s := l.s
	if !s.trusted(time.Now()) {
		return l.down(cost)
	}
	short, cancel := context.WithTimeout(ctx, s.opts.Timeout) // a client may not look at the one of its call
	defer cancel()
	a, err := s.merger.Do(short, Ask{l.place, cost})
	switch {
	case err == nil:
		s.answered()
		if a.Borrowed {
			atomic.AddUint64(&s.counts.Borrowed, 1)
		}
		if a.Admit {
			return Verdict{Admit: true}
		}
		return Verdict{Reason: NoTokens, RetryAfter: a.RetryAfter}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // the caller's own
		s.mu.Lock()
		s.probing = false
		s.mu.Unlock()
		return ended(ctx)
	}
	s.failed(time.Now(), err)
	return l.down(cost)
}

func (l *SharedLine) down(cost int) Verdict {
	s := l.s
	atomic.AddUint64(&s.counts.Down, 1)
	switch s.opts.OnDown {
	case Open:
		return Verdict{Admit: true}
	case Closed:
		s.mu.Lock()
		defer s.mu.Unlock()
		return Verdict{Reason: StoreDown, RetryAfter: max(time.Until(s.until), 0)}
	}
	line := s.local.lines[l.opts.Name]
	if cost > line.opts.Burst {
		return Verdict{Reason: StoreDown, RetryAfter: storeRetry}
	}
	return line.allow(s.local.now(), cost)
}

// storeBackoff is how long the store is left alone after it gave no answer; then one
// call at a time asks again.
var storeBackoff = retry.Exponential(100*time.Millisecond, 5*time.Second, retry.EqualJitter)

// storeRetry is what those are told whom only the store can serve.
const storeRetry = time.Second

// trusted says whether to ask the store.
func (s *Shared) trusted(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return true
	}
	if s.probing || now.Before(s.until) {
		return false
	}
	s.probing = true
	return true
}

func (s *Shared) answered() {
	s.mu.Lock()
	was := s.failures
	s.failures, s.probing = 0, false
	s.mu.Unlock()
	if was > 0 && s.opts.Logger != nil {
		s.opts.Logger.Warn("backpressure: the shared store answers again", "failures", was)
	}
}

func (s *Shared) failed(now time.Time, err error) {
	s.mu.Lock()
	first := s.failures == 0
	if first || s.probing { // not for each of those that asked together
		s.failures++
		s.until = now.Add(storeBackoff.Delay(s.failures, rand.Uint64()))
	}
	s.probing = false
	s.mu.Unlock()
	atomic.AddUint64(&s.counts.Errors, 1)
	if first && s.opts.Logger != nil {
		s.opts.Logger.Error("backpressure: the shared store gives no answer", "policy", s.opts.OnDown.String(), "error", err)
	}
}

// String returns the name of the policy.
func (o OnDown) String() string {
	switch o {
	case LocalShare:
		return "local share"
	case Open:
		return "open"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("policy %d", uint8(o))
}

// SharedStats are what a [Shared] has counted since it was made.
type SharedStats struct {
	Admitted, Refused uint64
	// Borrowed are calls admitted with the tokens of lesser lines.
	Borrowed uint64
	// Down are calls that the policy decided, Errors calls of the store without an
	// answer.
	Down, Errors uint64
	// IsDown says that the store is not asked at present, but for one call at a time.
	IsDown bool
}

// Stats returns a snapshot.
func (s *Shared) Stats() SharedStats {
	n := &s.counts
	s.mu.Lock()
	down := s.failures > 0
	s.mu.Unlock()
	return SharedStats{
		Admitted: atomic.LoadUint64(&n.Admitted), Refused: atomic.LoadUint64(&n.Refused),
		Borrowed: atomic.LoadUint64(&n.Borrowed), Down: atomic.LoadUint64(&n.Down),
		Errors: atomic.LoadUint64(&n.Errors), IsDown: down,
	}
}

func (l *SharedLine) counted(v Verdict) Verdict {
	if v.Admit {
		atomic.AddUint64(&l.s.counts.Admitted, 1)
	} else {
		atomic.AddUint64(&l.s.counts.Refused, 1)
	}
	return v
}
