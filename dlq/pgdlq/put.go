package pgdlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// maxBytes is how many bytes of bodies and failures one call carries, unless a single
// letter is larger: a message to the server is limited to 1 GB. maxLetters is how
// many letters.
const (
	maxBytes   = 32 << 20
	maxLetters = 2_000
)

// put sends letters in as few calls as it can. Each is a transaction of its own.
func (s *Store) put(ctx context.Context, r pgcall.Route, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	answers := make([]dlq.Answer, len(letters))
	for from := 0; from < len(letters); {
		to := from + chunk(letters[from:])
		if err := s.putChunk(ctx, r, p, letters[from:to], answers[from:to]); err != nil {
			return nil, err // what was stored is known by its nonce when it is sent again
		}
		from = to
	}
	return answers, nil
}

// chunk returns how many letters go into the next call.
func chunk(letters []dlq.Put) int {
	bytes := 0
	for i := range letters {
		l := &letters[i]
		if bytes += len(l.Body) + len(l.Failure.Detail); i > 0 && (bytes > maxBytes || i >= maxLetters) {
			return i
		}
	}
	return len(letters)
}

// The ways of dlq_put.
const (
	wayTogether = 1
	wayAlone    = 2
)

func (s *Store) putChunk(ctx context.Context, r pgcall.Route, p dlq.Params, letters []dlq.Put, answers []dlq.Answer) error {
	n := len(letters)
	nonces, bodies, digests, details := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	streams, ids, keys, prints := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	times, delays := make([]int64, n), make([]int64, n)
	blocked := make([]bool, n)
	order, ways := arrange(letters)
	places := make([]int32, n)
	for i, place := range order {
		l := &letters[place]
		places[i] = int32(place + 1)
		nonces[i], streams[i], ids[i], keys[i], bodies[i], digests[i] = l.Nonce[:], l.Stream, l.ID, l.Key, l.Body, l.Digest[:]
		if f := &l.Failure; f.Fingerprint != "" {
			times[i], prints[i], details[i] = f.At.UnixMicro(), f.Fingerprint, f.Detail
		}
		delays[i], blocked[i] = l.Delay.Microseconds(), l.IfBlocked
	}
	send := func(mode int) error {
		together, read := -1, 0
		err := r.Call(ctx, func(rows pgx.Rows) error {
			var i, answer int
			if err := rows.Scan(&i, &answer); err != nil {
				return err
			}
			if i == 0 {
				together = answer
				return nil
			}
			if i > n || answer < int(dlq.Added) || answer > int(dlq.Full) {
				return fmt.Errorf("answer %d to letter %d of %d", answer, i, n)
			}
			answers[order[i-1]] = dlq.Answer(answer)
			read++
			return nil
		}, s.sql.put, mode, p.Capacity, places, ways, nonces, streams, ids, keys, bodies, digests, times, prints, details, delays, blocked)
		switch {
		case err != nil:
			return err
		case together == n && read == 0:
			for i := range answers {
				answers[i] = dlq.Added
			}
		case read != n:
			return fmt.Errorf("%d answers to %d letters", read, n)
		}
		return nil
	}
	err := again(r, mode(r), send)
	if !r.Bound && pgcall.HasCode(err, pgcall.Locked) { // a commit may take its time
		err = again(r, mode(r), send)
	}
	return err
}

// arrange returns the places of letters in the order in which they lock, and of each, in
// that order, whether it can be stored in one statement with others: if no other before
// it in the batch has its ID or its lane. That one statement comes first, so it must
// not matter to them whether it does.
func arrange(letters []dlq.Put) (order []int, ways []int16) {
	type name struct{ stream, name string }
	lanes := make([]string, len(letters))
	order = make([]int, len(letters))
	seen := make(map[name]bool, len(letters))
	laneOf := make(map[name]string, len(letters)) // of an ID
	inOrder := false
	way := make([]int16, len(letters))
	for i := range letters {
		l := &letters[i]
		lanes[i] = dlq.LaneOf(l.ID, l.Key, false)
		id, lane := name{l.Stream, l.ID}, name{l.Stream, lanes[i]}
		other, known := laneOf[id]
		way[i] = wayTogether
		if l.IfBlocked || known || seen[lane] {
			way[i] = wayAlone
		}
		inOrder = inOrder || known && other != lanes[i]
		laneOf[id], seen[lane] = lanes[i], true
		order[i] = i
	}
	if !inOrder { // else an ID has several lanes, and all stay as they are
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Or(strings.Compare(letters[i].Stream, letters[j].Stream), strings.Compare(lanes[i], lanes[j]))
		})
	}
	for _, place := range order {
		ways = append(ways, way[place])
	}
	return order, ways
}

// alert asks about alarms in one call.
func (s *Store) alert(ctx context.Context, r pgcall.Route, alarms []dlq.Alarm) ([]bool, error) {
	n := len(alarms)
	if n == 0 {
		return nil, nil
	}
	nonces, streams, prints, windows := make([][]byte, n), make([]string, n), make([]string, n), make([]int64, n)
	for i := range alarms {
		a := &alarms[i]
		nonces[i], streams[i], prints[i], windows[i] = a.Nonce[:], a.Stream, a.Fingerprint, a.Window.Microseconds()
	}
	first := make([]bool, 0, n)
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var i int
		var is bool
		err := rows.Scan(&i, &is)
		first = append(first, is)
		return err
	}, s.sql.alert, nonces, streams, prints, windows)
	if err == nil && len(first) != n {
		err = fmt.Errorf("%d answers to %d alarms", len(first), n)
	}
	return slices.Clip(first), err
}
