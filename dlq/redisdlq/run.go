package redisdlq

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed lib.lua
var libText string

// script returns a script behind what all of them share.
func script(text string) *redispart.Script { return redispart.NewScript(libText + text) }

// maxBatch is how many items, and maxBytes how many bytes of bodies and details, go in
// one round trip: a script stops its server while it runs.
const (
	maxBatch = 512
	maxBytes = 8 << 20
)

// A batch is items on their way to the partitions of their streams.
type batch[T any] struct {
	step   string
	script *redispart.Script
	header []any // in front of the items
	stream func(item *T) string
	size   func(item *T) int               // of its bodies and details
	encode func(args []any, item *T) []any // appends the values of an item
	answer func(i int, letter byte) error  // reads what the script says of an item
}

// send sends items in as many round trips as they need, one after the other, so that
// the items of a stream take effect in order. An error means that not all have an answer.
func send[T any](ctx context.Context, s *Store, items []T, b batch[T]) error {
	if err := ctx.Err(); err != nil {
		return failed(ctx, b.step, err)
	}
	for from := 0; from < len(items); {
		until, bytes := from, 0
		for until < len(items) && until-from < maxBatch && (until == from || bytes+b.size(&items[until]) <= maxBytes) {
			bytes += b.size(&items[until])
			until++
		}
		if err := sendSome(ctx, s, items[from:until], from, b); err != nil {
			return failed(ctx, b.step, err)
		}
		from = until
	}
	return nil
}

// sendSome sends items in one round trip; the first of them is the one with this number.
func sendSome[T any](ctx context.Context, s *Store, items []T, first int, b batch[T]) error {
	lists := make([][]int, len(s.keys))
	for i := range items {
		part := s.parts.Of(b.stream(&items[i]))
		lists[part] = append(lists[part], i)
	}
	var calls []redispart.Call
	var called []int
	for part, list := range lists {
		if len(list) == 0 {
			continue
		}
		args := append([]any(nil), b.header...)
		for _, i := range list {
			args = b.encode(args, &items[i])
		}
		calls = append(calls, redispart.Call{Keys: s.keys[part], Args: args})
		called = append(called, part)
	}
	if err := s.parts.Run(ctx, b.script, calls); err != nil {
		return err
	}
	for c, part := range called {
		if calls[c].Err != nil {
			return calls[c].Err
		}
		list, reply := lists[part], calls[c].Reply
		if len(reply) != 1 || len(reply[0]) != len(list) {
			return errReply
		}
		for n, i := range list {
			if err := b.answer(first+i, reply[0][n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// call runs a script in the partition of a stream.
func (s *Store) call(ctx context.Context, script *redispart.Script, stream string, args ...any) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.callPart(ctx, script, s.parts.Of(stream), args...)
}

func (s *Store) callPart(ctx context.Context, script *redispart.Script, part int, args ...any) (*reader, error) {
	calls := []redispart.Call{{Keys: s.keys[part], Args: args}}
	if err := s.parts.Run(ctx, script, calls); err != nil {
		return nil, known(err)
	}
	return &reader{values: calls[0].Reply}, nil
}

// everywhere runs a script in each partition, with the same arguments, all in one round
// trip.
func (s *Store) everywhere(ctx context.Context, script *redispart.Script, args ...any) ([]*reader, error) {
	calls := make([]redispart.Call, len(s.keys))
	for i := range calls {
		calls[i] = redispart.Call{Keys: s.keys[i], Args: args}
	}
	if err := s.parts.Run(ctx, script, calls); err != nil {
		return nil, known(err)
	}
	replies := make([]*reader, len(calls))
	for i := range calls {
		if calls[i].Err != nil {
			return nil, known(calls[i].Err)
		}
		replies[i] = &reader{values: calls[i].Reply}
	}
	return replies, nil
}

// known recognises the error of a script that has met a row of another version.
func known(err error) error {
	if strings.Contains(err.Error(), "PAWLROW") {
		return errRow
	}
	return err
}

// failed wraps an error once. When ctx has ended, the client may say so in words of its
// own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisdlq: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisdlq: %s: %w", step, err)
}

var (
	// errRow is the answer to an item whose rows are something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored is not of this version; it was not changed")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
