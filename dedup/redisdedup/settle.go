package redisdedup

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed settle.lua
var settleText string

var settleScript = redispart.NewScript(settleText)

// Settle implements [dedup.Store]. It is a script call for each partition, in the
// round trips that Claim takes, and a part without an answer is treated as there.
func (s *Store) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	errs := make([]error, len(settlements))
	for from := 0; from < len(settlements); from += maxBatch {
		to := min(from+maxBatch, len(settlements))
		if err := s.settle(ctx, p, settlements[from:to], errs[from:to]); err != nil {
			for i := range errs[from:] {
				errs[from+i] = err
			}
			break
		}
	}
	answered := func(err error) bool { return err == nil || errors.Is(err, dedup.ErrStale) }
	if len(errs) > 0 && !slices.ContainsFunc(errs, answered) {
		return nil, errs[0]
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil, nil
	}
	return errs, nil
}

// settle sends one pipeline's worth of settlements. An error means that none has
// an answer.
func (s *Store) settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement, errs []error) error {
	b := s.newBatch(p.Scope, len(settlements), func(i int) string { return settlements[i].ID })
	for c, places := range b.places {
		args := make([]any, 0, 3*len(places))
		for _, i := range places {
			op, ttl, value := encode(p, &settlements[i])
			args = append(args, op, ttl, value)
		}
		b.calls[c].Args = args
	}
	if err := s.run(ctx, "settle", settleScript, b); err != nil {
		return err
	}
	for c := range b.calls {
		call, places := &b.calls[c], b.places[c]
		err := call.Err
		if err == nil {
			err = readSettled(errs, places, call.Reply)
		}
		if err != nil {
			err = failed(ctx, "settle", err)
			for _, i := range places {
				errs[i] = err
			}
		}
	}
	return nil
}

// encode returns the three values that settle.lua takes for a settlement.
func encode(p dedup.Params, s *dedup.Settlement) (op, ttl string, value []byte) {
	ttl = decimal(millis(p.Retention))
	switch s.Kind {
	case dedup.KindComplete:
		return fmt.Sprintf("c%016d", s.Token), ttl, s.Result
	case dedup.KindRelease:
		return fmt.Sprintf("r%016d", s.Token), ttl, nil
	case dedup.KindHold:
		return fmt.Sprintf("h%016d", s.Token), "0", nil
	case dedup.KindRetain:
		return "t", decimal(millis(s.Retention)), nil
	case dedup.KindExtend:
		ttl = decimal(millis(max(p.Retention, s.Lease)))
		return fmt.Sprintf("e%016d", s.Token), ttl, []byte(decimal(micros(s.Lease)))
	}
	return "f", "0", nil
}

// readSettled reads the reply of a partition into the errors of these places.
func readSettled(errs []error, places []int, reply []string) error {
	if len(reply) < 1 {
		return errReply
	}
	return answers(reply[1:], reply[0], len(places), func(place int, answer string) error {
		switch answer {
		case "s":
			errs[places[place]] = dedup.ErrStale
		case "x":
			errs[places[place]] = failed(context.Background(), "settle", errRow)
		default:
			return errReply
		}
		return nil
	})
}
