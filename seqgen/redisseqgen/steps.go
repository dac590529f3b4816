package redisseqgen

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/seqgen"
)

var (
	//go:embed reserve.lua
	reserveText string
	//go:embed settle.lua
	settleText string
	//go:embed look.lua
	lookText string
	//go:embed voids.lua
	voidsText string
	//go:embed sweep.lua
	sweepText string

	reserveScript = script(reserveText)
	settleScript  = script(settleText)
	lookScript    = redispart.NewScript(lookText)
	voidsScript   = script(voidsText)
	sweepScript   = script(sweepText)
)

// maxBatch is how many items go into one pipeline. Larger batches take several,
// one after another.
const maxBatch = 1024

// Reserve implements [seqgen.Store]. It is one round trip for up to 1024 asks. Where
// only a part is answered, the grants of the rest carry the error, and the rest of a
// larger batch is not sent.
func (s *Store) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	grants := make([]seqgen.Grant, len(asks))
	err := s.each(ctx, batch{
		step: "reserve", script: reserveScript, n: len(asks), header: []any{decimal(micros(p.Retention))},
		key:    func(i int) string { return asks[i].Key },
		encode: func(args []any, i int) []any { return append(args, field(p.Scope, asks[i].Key), encodeAsk(&asks[i])) },
		read:   func(i int, answer string) bool { return readGrant(&grants[i], answer) },
		fail:   func(i int, err error) { grants[i] = seqgen.Grant{Err: err} },
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Settle implements [seqgen.Store], in the round trips that Reserve takes.
func (s *Store) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	outcomes := make([]seqgen.Outcome, len(changes))
	err := s.each(ctx, batch{
		step: "settle", script: settleScript, n: len(changes), header: []any{decimal(micros(p.Retention))},
		key: func(i int) string { return changes[i].Key },
		encode: func(args []any, i int) []any {
			return append(args, field(p.Scope, changes[i].Key), encodeChange(&changes[i]))
		},
		read: func(i int, answer string) bool { return readOutcome(&outcomes[i], answer) },
		fail: func(i int, err error) { outcomes[i] = seqgen.Outcome{Err: err} },
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Look implements [seqgen.Store]. It is not one atomic step over several keys.
func (s *Store) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	states := make([]seqgen.State, len(keys))
	err := s.each(ctx, batch{
		step: "look", script: lookScript, n: len(keys),
		key:    func(i int) string { return keys[i] },
		encode: func(args []any, i int) []any { return append(args, field(scope, keys[i])) },
		read: func(i int, answer string) bool {
			states[i].Key = keys[i]
			if answer != "" && !readState(&states[i], answer) {
				states[i] = seqgen.State{Key: keys[i], Err: fmt.Errorf("redisseqgen: look: %w", errRow)}
			}
			return true
		},
		fail: func(i int, err error) { states[i] = seqgen.State{Key: keys[i], Err: err} },
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// Voids implements [seqgen.Store].
func (s *Store) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	call := []redispart.Call{{Keys: s.keys[s.parts.Of(q.Key)],
		Args: []any{field(q.Scope, q.Key), number(q.Epoch), number(q.From), number(q.To), q.Limit}}}
	if err := s.parts.Run(ctx, voidsScript, call); err != nil {
		return nil, failed(ctx, "voids", err)
	}
	var list []seqgen.Void
	for _, answer := range call[0].Reply {
		v := seqgen.Void{Key: q.Key, Epoch: q.Epoch}
		if !readVoid(&v, answer) {
			return nil, failed(ctx, "voids", errReply)
		}
		list = append(list, v)
	}
	return list, nil
}

// Sweep drops voids whose retention has passed, at most n, and returns how many it
// dropped. It asks one partition after another, at most each once.
func (s *Store) Sweep(ctx context.Context, n int) (dropped int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("redisseqgen: sweep: %w: of %d voids", seqgen.ErrInvalid, n)
	}
	for range s.keys {
		if dropped == n {
			break
		}
		part := int(uint64(s.next.Load()) % uint64(len(s.keys)))
		most := min(n-dropped, maxBatch)
		call := []redispart.Call{{Keys: s.keys[part], Args: []any{most}}}
		if err := s.parts.Run(ctx, sweepScript, call); err != nil {
			return dropped, failed(ctx, "sweep", err)
		}
		gone := 0
		if len(call[0].Reply) == 1 {
			gone, err = strconv.Atoi(call[0].Reply[0])
		}
		if err != nil {
			return dropped, failed(ctx, "sweep", errReply)
		}
		if dropped += gone; gone < most {
			s.next.Add(1)
		}
	}
	return dropped, nil
}

// A batch is one step for n items, each with an answer of its own.
type batch struct {
	step   string
	script *redispart.Script
	n      int
	header []any
	key    func(i int) string
	encode func(args []any, i int) []any
	read   func(i int, answer string) bool
	fail   func(i int, err error)
}

// each sends a batch. An error means that no item has an answer.
func (s *Store) each(ctx context.Context, b batch) error {
	if err := ctx.Err(); err != nil {
		return failed(ctx, b.step, err)
	}
	answered := 0
	var last error
	for from := 0; from < b.n && last == nil; from += maxBatch {
		to := min(from+maxBatch, b.n)
		var n int
		if n, last = s.send(ctx, b, from, to); n == 0 && last != nil {
			for i := from; i < b.n; i++ {
				b.fail(i, last)
			}
			break
		}
		answered += n
		last = nil
	}
	if answered > 0 {
		return nil
	}
	return last
}

// send sends the items from one to below another and returns how many have an
// answer.
func (s *Store) send(ctx context.Context, b batch, from, to int) (answered int, err error) {
	_, parts := s.parts.Split(to-from, func(i int) string { return b.key(from + i) })
	var calls []redispart.Call
	var called [][]int
	for part, list := range parts {
		if len(list) == 0 {
			continue
		}
		args := append(make([]any, 0, len(b.header)+2*len(list)), b.header...)
		for _, i := range list {
			args = b.encode(args, from+i)
		}
		calls = append(calls, redispart.Call{Keys: s.keys[part], Args: args})
		called = append(called, list)
	}
	if err := s.parts.Run(ctx, b.script, calls); err != nil {
		return 0, failed(ctx, b.step, err)
	}
	for c := range calls {
		failure := calls[c].Err
		if failure == nil && len(calls[c].Reply) != len(called[c]) {
			failure = errReply
		}
		for n, i := range called[c] {
			switch {
			case failure != nil:
				err = failed(ctx, b.step, failure)
				b.fail(from+i, err)
			case !b.read(from+i, calls[c].Reply[n]):
				err = failed(ctx, b.step, errReply)
				b.fail(from+i, err)
			default:
				answered++
			}
		}
	}
	return answered, err
}

// micros rounds up, so that nothing ends early.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
