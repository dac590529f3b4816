package redisorder

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

//go:embed settle.lua
var settleText string

var settleScript = script(settleText)

// Settle implements [order.Store]. It is a script call for each partition, in one
// round trip for up to 1024 settlements; KindForget takes another, for the IDs.
func (s *Store) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
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
	answered := func(err error) bool {
		return err == nil || errors.Is(err, order.ErrStale) || errors.Is(err, order.ErrNotFound) || errors.Is(err, order.ErrTooFar)
	}
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
func (s *Store) settle(ctx context.Context, p order.Params, settlements []order.Settlement, errs []error) error {
	_, parts := s.parts.Split(len(settlements), func(i int) string { return settlements[i].Key })
	keys := s.keys(p.Scope)
	header := []any{number(p.Start), decimal(int64(p.Window)), number(min(p.MaxAhead, order.MaxNumber)),
		string(flag(p.Abandon)), decimal(micros(p.GapLook))}
	var calls []redispart.Call
	var called [][]int
	for part, places := range parts {
		if len(places) == 0 {
			continue
		}
		args := append(make([]any, 0, len(header)+4*len(places)), header...)
		for _, i := range places {
			args = encode(args, &settlements[i])
		}
		calls = append(calls, redispart.Call{Keys: keys[part], Args: args})
		called = append(called, places)
	}
	if err := s.parts.Run(ctx, settleScript, calls); err != nil {
		return failed(ctx, "settle", err)
	}
	var gone []string
	for c := range calls {
		err := calls[c].Err
		if err == nil {
			err = readSettled(errs, called[c], calls[c].Reply)
		}
		if err != nil {
			err = failed(ctx, "settle", err)
			for _, i := range called[c] {
				errs[i] = err
			}
		} else {
			gone = append(gone, calls[c].Reply[1:]...)
		}
	}
	if err := s.unindex(ctx, p.Scope, gone); err != nil { // the caller asks again
		err = fmt.Errorf("redisorder: settle: IDs of a key that was erased are not all erased: %w", err)
		for i := range settlements {
			if settlements[i].Kind == order.KindForget && errs[i] == nil {
				errs[i] = err
			}
		}
	}
	return nil
}

// encode appends the four values that settle.lua takes for a settlement.
func encode(args []any, s *order.Settlement) []any {
	meta := make([]byte, 0, 120)
	meta = append(meta, 'a'+byte(s.Kind)-1)
	meta = digits(meta, s.Token, 20)
	meta = digits(meta, s.Epoch, 19)
	meta = digits(meta, s.From, 19)
	meta = digits(meta, s.To, 19)
	meta = digits(meta, uint64(micros(max(s.Delay, 0))), 16)
	meta = digits(meta, uint64(micros(max(s.Lease, 0))), 16)
	meta = append(meta, flag(s.Alerted), flag(s.Unbegun), '0'+byte(s.Reason), '0'+byte(s.Resolution))
	meta = strconv.AppendInt(meta, int64(s.Asked), 10)
	text := s.Error
	if s.Kind == order.KindDrop || s.Kind == order.KindResolve {
		text = s.Actor
	}
	return append(args, s.Key, meta, text, s.Note)
}

// readSettled reads the letters of a reply into the errors of these places.
func readSettled(errs []error, places []int, reply []string) error {
	if len(reply) == 0 || len(reply[0]) != len(places) {
		return errReply
	}
	for n, i := range places {
		switch reply[0][n] {
		case '.':
			errs[i] = nil
		case 's':
			errs[i] = order.ErrStale
		case 'n':
			errs[i] = order.ErrNotFound
		case 't':
			errs[i] = order.ErrTooFar
		case 'x':
			errs[i] = failed(context.Background(), "settle", errRow)
		default:
			return errReply
		}
	}
	return nil
}
