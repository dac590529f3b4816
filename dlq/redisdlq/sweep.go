package redisdlq

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/pawl-go/pawl/dlq"
)

//go:embed sweep.lua
var sweepText string

var sweepScript = script(sweepText)

// Sweep implements [dlq.Sweeper]. Of up to n things whose time has come it removes what
// it may, and it looks at nothing else. It asks one partition after another, at most
// each once, and at most 512 things in a call; the next Sweep goes on with the partition
// in which this one stopped. Processes may sweep at once.
//
// When it fails, removed is what was removed before.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("redisdlq: sweep of %d things: %w", n, dlq.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return 0, failed(ctx, "sweep", err)
	}
	s.sweep.Lock()
	defer s.sweep.Unlock()
	for visited := 0; visited < len(s.keys) && n > 0; {
		budget := min(n, maxBatch)
		r, err := s.callPart(ctx, sweepScript, s.next, decimal(int64(budget)))
		if err != nil {
			return removed, failed(ctx, "sweep", err)
		}
		looked := int(r.int())
		removed += int(r.int())
		if r.bad || looked < 0 {
			return removed, failed(ctx, "sweep", errReply)
		}
		n -= looked
		if looked < budget {
			s.next = (s.next + 1) % len(s.keys)
			visited++
		}
	}
	return removed, nil
}
