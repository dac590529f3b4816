package redisreconcile

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

// script returns a script behind what all of them share, and the text of its room.
func script(room, text string) *redispart.Script { return redispart.NewScript(libText + room + text) }

// maxBatch is how many items, and maxBytes how many bytes of them, go in one round trip:
// a script stops its server while it runs.
const (
	maxBatch = 512
	maxBytes = 8 << 20
)

// A batch is items on their way to their partitions.
type batch[T any] struct {
	script *redispart.Script
	keys   [][]string // of each partition
	header []any      // in front of the items
	part   func(item *T) int
	size   func(item *T) int               // of what it brings along
	encode func(args []any, item *T) []any // appends the values of an item

	// read reads the reply of a partition to the items with these places. answered says how
	// many of them have an answer; the others are sent again.
	read func(reply []string, places []int) (answered int, err error)

	enough func() bool // if there is one: whether no more answers are wanted
}

// send sends items in as many round trips as they need, one after the other, so that
// items with the same key take effect in order. An error means that not all have an
// answer.
func send[T any](ctx context.Context, s *Store, items []T, b batch[T]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for from := 0; from < len(items); {
		until, bytes := from, 0
		for until < len(items) && until-from < maxBatch && (until == from || bytes+b.size(&items[until]) <= maxBytes) {
			bytes += b.size(&items[until])
			until++
		}
		places := make([]int, until-from)
		for i := range places {
			places[i] = from + i
		}
		for len(places) > 0 {
			left, err := sendSome(ctx, s, items, places, b)
			if err != nil {
				return known(err)
			}
			if len(left) >= len(places) {
				return errReply
			}
			places = left
			if b.enough != nil && b.enough() {
				return nil
			}
		}
		from = until
	}
	return nil
}

// sendSome sends the items with these places in one round trip, and returns the places of
// those that have no answer yet.
func sendSome[T any](ctx context.Context, s *Store, items []T, places []int, b batch[T]) (left []int, err error) {
	lists := make([][]int, len(b.keys))
	for _, i := range places {
		part := b.part(&items[i])
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
		calls = append(calls, redispart.Call{Keys: b.keys[part], Args: args})
		called = append(called, part)
	}
	if err := s.parts.Run(ctx, b.script, calls); err != nil {
		return nil, err
	}
	for c, part := range called {
		if calls[c].Err != nil {
			return nil, calls[c].Err
		}
		answered, err := b.read(calls[c].Reply, lists[part])
		if err != nil {
			return nil, err
		}
		left = append(left, lists[part][answered:]...)
	}
	return left, nil
}

// letters is a batch's read for scripts that return a string with a letter for each item.
func letters(answer func(i int, letter byte) error) func([]string, []int) (int, error) {
	return func(reply []string, places []int) (int, error) {
		if len(reply) != 1 || len(reply[0]) != len(places) {
			return 0, errReply
		}
		for n, i := range places {
			if err := answer(i, reply[0][n]); err != nil {
				return 0, err
			}
		}
		return len(places), nil
	}
}

// call runs a script with keys of one partition.
func (s *Store) call(ctx context.Context, script *redispart.Script, keys []string, args ...any) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	calls := []redispart.Call{{Keys: keys, Args: args}}
	if err := s.parts.Run(ctx, script, calls); err != nil {
		return nil, known(err)
	}
	return &reader{values: calls[0].Reply}, nil
}

// everywhere runs a script in each partition, with the same arguments, all in one round
// trip.
func (s *Store) everywhere(ctx context.Context, script *redispart.Script, keys [][]string, args ...any) ([]*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	calls := make([]redispart.Call, len(keys))
	for i := range calls {
		calls[i] = redispart.Call{Keys: keys[i], Args: args}
	}
	return s.all(ctx, script, calls)
}

// all runs calls, each of which has to have a reply.
func (s *Store) all(ctx context.Context, script *redispart.Script, calls []redispart.Call) ([]*reader, error) {
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
		return fmt.Errorf("redisreconcile: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisreconcile: %s: %w", step, err)
}

var (
	// errRow is the answer to an item whose rows are something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored is not of this version; it was not changed")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
