package redisorder

import (
	"context"
	_ "embed"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

//go:embed sweep.lua
var sweepText string

var sweepScript = script(sweepText)

// Sweep implements [order.Sweeper]: it forgets messages with an ID whose time has
// passed and records of gaps that were resolved, looking at up to n. It asks one
// partition after another, at most each once. Processes may sweep at once, and each
// looks at everything.
func (s *Store) Sweep(ctx context.Context, p order.Params, n int) (forgotten int, err error) {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	keys := s.keys(p.Scope)
	for range keys {
		if n <= 0 {
			break
		}
		part := s.next
		pass := s.pass[part]
		if pass == "" {
			pass = "0"
		}
		budget := min(n, maxBatch)
		call := []redispart.Call{{Keys: keys[part], Args: []any{decimal(int64(p.Window)), decimal(micros(p.KeepBody)),
			decimal(micros(p.KeepGaps)), decimal(int64(budget)), pass}}}
		if err := s.parts.Run(ctx, sweepScript, call); err != nil {
			return forgotten, failed(ctx, "sweep", err)
		}
		r := &reader{values: call[0].Reply}
		looked, gone := int(r.int()), int(r.int())
		pass = r.text()
		if r.bad {
			return forgotten, failed(ctx, "sweep", errReply)
		}
		n -= looked
		forgotten += gone
		s.pass[part] = pass
		if looked < budget || pass == "0" {
			s.next = (part + 1) % len(keys)
		}
		if err := s.unindex(ctx, p.Scope, r.values); err != nil {
			return forgotten, failed(ctx, "sweep", err)
		}
	}
	return forgotten, nil
}
