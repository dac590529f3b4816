package redisdedup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/redispart"
)

// maxBatch is how many items go into one pipeline. Larger batches take several,
// one after another, so that no script keeps the server from others for longer
// than a few milliseconds.
const maxBatch = 1024

// A batch is the calls of one pipeline.
type batch struct {
	calls  []redispart.Call
	places [][]int // places[c] are the items of calls[c] in the caller's slice
}

// newBatch makes a call for each partition that has items: its keys are a row for
// each item, and behind them the index of the scope.
func (s *Store) newBatch(scope string, n int, id func(i int) string) batch {
	of, places := s.parts.Split(n, id)
	places = slices.DeleteFunc(places, func(items []int) bool { return len(items) == 0 })
	b := s.newCalls(scope, of, places, id)
	for c := range b.calls {
		call := &b.calls[c]
		call.Keys = append(call.Keys, s.index(of[places[c][0]], scope))
	}
	return b
}

// newRowBatch makes the calls of a script that needs no index: one alone where
// all partitions lie on one server, otherwise one for each partition.
func (s *Store) newRowBatch(ctx context.Context, scope string, n int, id func(i int) string) batch {
	of, places := s.parts.Split(n, id)
	if s.parts.OneServer(ctx) {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		places = [][]int{all}
	}
	places = slices.DeleteFunc(places, func(items []int) bool { return len(items) == 0 })
	return s.newCalls(scope, of, places, id)
}

// newCalls makes a call for each element of places, with the rows of its items.
// All keys share one string, for the sake of allocations.
func (s *Store) newCalls(scope string, of []int, places [][]int, id func(i int) string) batch {
	size := 0
	for i, k := range of {
		size += len(s.parts.Tag(k)) + len(scope) + len(id(i)) + 2
	}
	var text strings.Builder
	text.Grow(size)
	b := batch{make([]redispart.Call, len(places)), places}
	keys := make([]string, 0, len(of)+len(places))
	for c, items := range places {
		from := len(keys)
		for _, i := range items {
			start := text.Len()
			text.WriteString(s.parts.Tag(of[i]))
			text.WriteByte(':')
			text.WriteString(scope)
			text.WriteByte(':')
			text.WriteString(id(i))
			keys = append(keys, text.String()[start:])
		}
		b.calls[c].Keys = keys[from : len(keys) : len(keys)+1]
		keys = keys[:len(keys)+1] // room for an index
	}
	return b
}

// index returns the key of the index of a partition and scope.
func (s *Store) index(partition int, scope string) string {
	return s.parts.Tag(partition) + "!" + scope
}

// run runs the script in all partitions. An error means that none has answered.
func (s *Store) run(ctx context.Context, step string, script *redispart.Script, b batch) error {
	if err := s.parts.Run(ctx, script, b.calls); err != nil {
		return failed(ctx, step, err)
	}
	return nil
}

// answers calls use for each pair of place and answer in a reply. counted is how
// many of the n items the script counted instead of naming them.
func answers(reply []string, counted string, n int, use func(place int, answer string) error) error {
	total, err := strconv.Atoi(counted)
	if err != nil || len(reply)%2 != 0 || total+len(reply)/2 != n {
		return errReply
	}
	for ; len(reply) > 0; reply = reply[2:] {
		place, err := strconv.Atoi(reply[0])
		if err != nil || place < 1 || place > n {
			return errReply
		}
		if err := use(place-1, reply[1]); err != nil {
			return err
		}
	}
	return nil
}

// fields reads the numbers of an answer, which are separated by spaces, and
// returns what is behind them.
func fields(answer string, into ...*int64) (rest string, err error) {
	rest = answer
	for _, n := range into {
		var word string
		word, rest, _ = strings.Cut(strings.TrimPrefix(rest, " "), " ")
		if *n, err = strconv.ParseInt(word, 10, 64); err != nil {
			return "", fmt.Errorf("%w: %q is not a number", errReply, word)
		}
	}
	return rest, nil
}
