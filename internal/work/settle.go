package work

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
)

// A Settler sends settlements for many goroutines at once, and sends them again
// until they are answered. All fields are set before the first call.
type Settler[S any] struct {
	// Send settles a batch and may be repeated. It returns one error for each
	// settlement, in order, or nil when all were applied; the second error means
	// that nothing is known of any of them.
	Send func(ctx context.Context, s []S) ([]error, error)

	// Final says that an error is an answer, which sending again would not change.
	Final func(err error) bool

	// Timeout is for how long settlements are sent again.
	Timeout time.Duration

	// Width is how many batches are sent side by side; zero means one.
	Width int

	// Direct sends at once and not together with others: for stores in memory.
	Direct bool

	once   sync.Once
	merger merge.Merger[[]S, []error]
}

// Settle sends a few settlements, in their order and next to each other, and
// returns one error for each, or nil when all were applied. An error that is not
// final means that its fate is not known.
func (s *Settler[S]) Settle(batch ...S) []error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		errs, err := s.send(ctx, batch)
		if err != nil {
			errs = all(err, len(batch))
		}
		if s.answered(errs) {
			return errs
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errs
		}
	}
}

func (s *Settler[S]) send(ctx context.Context, batch []S) ([]error, error) {
	if s.Direct {
		return s.Send(ctx, batch)
	}
	s.once.Do(func() { s.merger.Call, s.merger.Timeout, s.merger.Width = s.merged, s.Timeout, s.Width })
	return s.merger.Do(ctx, batch)
}

// merged sends groups of many goroutines in one batch, once: whoever has no
// answer sends again on its own account, so that nobody waits for its luck.
func (s *Settler[S]) merged(ctx context.Context, groups [][]S, _ func(int) bool) ([][]error, error) {
	if len(groups) == 1 {
		errs, err := s.Send(ctx, groups[0])
		return [][]error{errs}, err
	}
	batch := slices.Concat(groups...)
	errs, err := s.Send(ctx, batch)
	if err != nil {
		return nil, err
	}
	answers := make([][]error, len(groups))
	if errs == nil {
		return answers, nil
	}
	if len(errs) != len(batch) {
		return nil, fmt.Errorf("%d answers to %d settlements", len(errs), len(batch))
	}
	for i, g := range groups {
		answers[i], errs = errs[:len(g):len(g)], errs[len(g):]
	}
	return answers, nil
}

func (s *Settler[S]) answered(errs []error) bool {
	for _, err := range errs {
		if err != nil && !s.Final(err) {
			return false
		}
	}
	return true
}

func all(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
