package pgorder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

// maxBytes is how many bytes of payload one call carries, unless a single one is
// larger: a message to the server is limited to 1 GB.
const maxBytes = 16 << 20

// push sends arrivals, sorted by key, in as few calls as it can.
func (s *Store) push(ctx context.Context, r pgcall.Route, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers := make([]order.Answer, len(arrivals))
	for from := 0; from < len(arrivals); {
		to := from + chunk(arrivals[from:])
		if err := s.pushChunk(ctx, r, p, arrivals[from:to], answers[from:to]); err != nil {
			if from == 0 || r.Bound {
				return nil, err
			}
			for i := from; i < len(answers); i++ {
				answers[i] = order.Answer{Err: s.wrap("push", err)}
			}
			return answers, nil
		}
		from = to
	}
	return answers, nil
}

// chunk returns how many arrivals go into the next call. Sorting by key would
// change which of two messages with one ID comes first, so an ID that another key
// has in the call begins the next one.
func chunk(arrivals []order.Arrival) int {
	bytes, keys := 0, map[string]string{} // by ID
	for i := range arrivals {
		a := &arrivals[i]
		if bytes += len(a.Payload) + len(a.Context); bytes > maxBytes && i > 0 {
			return i
		}
		if a.ID == "" {
			continue
		}
		if key, ok := keys[a.ID]; ok && key != a.Key {
			return i
		}
		keys[a.ID] = a.Key
	}
	return len(arrivals)
}

func (s *Store) pushChunk(ctx context.Context, r pgcall.Route, p order.Params, arrivals []order.Arrival, answers []order.Answer) error {
	sorted := make([]int, len(arrivals))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int {
		return cmp.Or(strings.Compare(arrivals[a].Key, arrivals[b].Key), a-b)
	})
	n := len(sorted)
	keys, ids := make([]string, n), make([]string, n)
	epochs, places := make([]int64, n), make([]int64, n)
	digests, payloads := make([][]byte, n), make([][]byte, n)
	var contexts [][]byte // nil while all are
	var assign []bool     // likewise
	for k, i := range sorted {
		a := &arrivals[i]
		keys[k], ids[k] = a.Key, a.ID
		epochs[k], places[k] = int64(a.Position.Epoch), place(a.Position.Number)
		digests[k], payloads[k] = a.Digest[:], a.Payload
		if len(a.Context) > 0 {
			if contexts == nil {
				contexts = make([][]byte, n)
			}
			contexts[k] = a.Context
		}
		if a.Assign {
			if assign == nil {
				assign = make([]bool, n)
			}
			assign[k] = true
		}
	}
	read := 0
	err := r.CallLocking(ctx, func(rows pgx.Rows) error {
		var k int
		var state int16
		var epoch, at int64
		var key *string
		if err := rows.Scan(&k, &state, &epoch, &at, &key); err != nil {
			return err
		}
		a := &arrivals[sorted[k-1]]
		answer := order.Answer{Key: a.Key, Position: order.Position{Epoch: uint64(epoch), Number: number(at)}}
		if key != nil {
			answer.Key = *key
		}
		switch state {
		case 20:
			answer.State, answer.Unverified = order.Duplicate, true
		case 21:
			answer = order.Answer{Key: a.Key, Position: a.Position, Err: fmt.Errorf("pgorder: push: %w", ErrBusy)}
		default:
			answer.State = order.Arrived(state)
		}
		answers[sorted[k-1]] = answer
		read++
		return nil
	}, s.sql.push, p.Scope, place(p.Start), int64(p.MaxBuffered), bigint(p.MaxAhead), p.Abandon, p.Late,
		p.GapLook.Microseconds(), p.KeepBody.Microseconds(), keys, epochs, places, ids, digests, payloads, contexts, assign)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d arrivals", read, n)
	}
	return err
}
