package redisinbox

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed sweep.lua
var sweepText string

//go:embed verify.lua
var verifyText string

var (
	sweepScript  = script(sweepText)
	verifyScript = script(verifyText)
)

// Sweep implements [inbox.Sweeper]. Of up to n records whose time has come it removes
// or redacts what it may. It also forgets keys that have been idle for the retention,
// and looks after the rows of IDs: at most n of each kind in a partition. It asks one
// partition after another, at most each once. Processes may sweep at once.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("redisinbox: sweep of %d records: %w", n, inbox.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return 0, failed(ctx, "sweep", err)
	}
	s.sweep.Lock()
	defer s.sweep.Unlock()
	for visited := 0; visited < len(s.keys) && n > 0; {
		budget := min(n, maxBatch)
		found, err := s.sweepPart(ctx, s.next, budget)
		removed += found.removed
		if err != nil {
			return removed, failed(ctx, "sweep", err)
		}
		n -= found.looked
		if found.looked < budget {
			s.next = (s.next + 1) % len(s.keys)
			visited++
		}
	}
	return removed, nil
}

// swept is what a sweep of a partition found.
type swept struct {
	looked, removed int
	void            []string // time, nonce and ID of void nonces that have served their time
	rows            []string // nonce, partition and ID of rows of IDs that nobody has looked at
}

const timeSize = 16

// sweepPart sweeps a partition. Each of its steps can be the last: what it has not
// come to is found again by the next sweep.
func (s *Store) sweepPart(ctx context.Context, part, budget int) (found swept, err error) {
	err = s.run(ctx, sweepScript, []any{decimal(int64(budget)), micros(abandoned)}, []int{part}, func(int) int { return part },
		func(args []any, _ int) []any { return args },
		func(_ int, _ []int, reply []string) error {
			r := &reader{values: reply}
			found.looked, found.removed = int(r.int()), int(r.int())
			n := int(r.int())
			if r.bad || n < 0 || n > len(r.values) {
				return errReply
			}
			found.void, found.rows = r.values[:n], r.values[n:]
			return nil
		})
	if err != nil {
		return found, err
	}
	if err := s.clearVoid(ctx, part, found.void); err != nil {
		return found, err
	}
	return found, s.verify(ctx, found.rows)
}

// clearVoid removes the rows of IDs that have void nonces, and then the nonces:
// whoever has read such a row, and could come with its nonce, is gone by now.
func (s *Store) clearVoid(ctx context.Context, part int, void []string) error {
	for _, v := range void {
		if len(v) <= timeSize+nonceSize {
			return errReply
		}
	}
	id := func(i int) string { return void[i][timeSize+nonceSize:] }
	err := s.eachRow(ctx, "d", len(void), func(i int) (string, string) { return id(i), void[i][timeSize : timeSize+nonceSize] })
	if err != nil {
		return err
	}
	_, err = s.look(ctx, len(void), func(int) int { return part }, func(i int) (what, of, nonce string) { return "u", id(i), void[i][:timeSize+nonceSize] })
	return err
}

// verify looks whether rows of IDs lead to an event. A row whose event was never
// stored, because the process died before, is removed, and so is one whose event is
// gone.
func (s *Store) verify(ctx context.Context, rows []string) error {
	parts := make([]int, len(rows))
	for i, row := range rows {
		if len(row) <= nonceSize+3 {
			return errReply
		}
		var err error
		if parts[i], err = strconv.Atoi(row[nonceSize : nonceSize+3]); err != nil || parts[i] < 0 || parts[i] >= len(s.keys) {
			return errRow
		}
	}
	id, nonce := func(i int) string { return rows[i][nonceSize+3:] }, func(i int) string { return rows[i][:nonceSize] }
	letters, err := s.look(ctx, len(rows), func(i int) int { return parts[i] }, func(i int) (what, of, n string) { return "v", id(i), nonce(i) })
	if err != nil {
		return err
	}
	for what, letter := range map[string]byte{"c": 'y', "d": 'n'} {
		var list []int
		for i := range letters {
			if letters[i] == letter {
				list = append(list, i)
			}
		}
		if err := s.eachRow(ctx, what, len(list), func(n int) (string, string) { return id(list[n]), nonce(list[n]) }); err != nil {
			return err
		}
	}
	return nil
}

// look runs verify.lua for n items in the partitions of their events.
func (s *Store) look(ctx context.Context, n int, of func(i int) int, item func(i int) (what, id, nonce string)) ([]byte, error) {
	letters := make([]byte, n)
	err := s.run(ctx, verifyScript, nil, upTo(n), of,
		func(args []any, i int) []any {
			what, id, nonce := item(i)
			return append(args, what, id, nonce)
		},
		func(_ int, items []int, reply []string) error {
			if len(reply) != 1 || len(reply[0]) != len(items) {
				return errReply
			}
			for k, i := range items {
				letters[i] = reply[0][k]
			}
			return nil
		})
	return letters, err
}
