package redisreconcile

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/reconcile"
)

//go:embed sweep.lua
var sweepText string

//go:embed forget.lua
var forgetText string

//go:embed prune.lua
var pruneText string

var (
	sweepScript  = script(ledgerText, sweepText)
	forgetScript = script(timelineText, forgetText)
	pruneScript  = script(checksText, pruneText)
)

// A room is a script that sweeps, and its keys in each partition.
type room struct {
	script *redispart.Script
	keys   [][]string
}

// Sweep implements [reconcile.Sweeper], for operations, observations, findings and counts. Of
// up to n things whose time has come it removes what it may, and it looks at nothing else. It
// asks one partition after another, at most each once, and at most 512 things in a
// call; the next Sweep goes on where this one stopped. Processes may sweep at once.
//
// When it fails, removed is what was removed before.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	return s.sweepRooms(ctx, n, &s.next, room{sweepScript, s.ledger}, room{forgetScript, s.timeline}, room{pruneScript, s.checks})
}

// SweepChecks implements [reconcile.CheckSweeper]: it is [Store.Sweep], for findings and counts
// alone.
func (c *CheckStore) SweepChecks(ctx context.Context, n int) (removed int, err error) {
	next := 0
	return c.store.sweepRooms(ctx, n, &next, room{pruneScript, c.store.checks})
}

// sweepRooms begins at next, and leaves there where it has stopped.
func (s *Store) sweepRooms(ctx context.Context, n int, next *int, rooms ...room) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("redisreconcile: sweep of %d things: %w", n, reconcile.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return 0, failed(ctx, "sweep", err)
	}
	places := len(rooms) * s.parts.Len()
	for visited := 0; visited < places && n > 0; {
		budget := min(n, maxBatch)
		room := rooms[*next%len(rooms)]
		r, err := s.call(ctx, room.script, room.keys[*next/len(rooms)], decimal(int64(budget)))
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
			*next = (*next + 1) % places
			visited++
		}
	}
	return removed, nil
}
