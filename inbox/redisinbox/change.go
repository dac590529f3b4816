package redisinbox

import (
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed change.lua
var changeText string

var changeScript = script(changeText)

// Change implements [inbox.Store]. It is one round trip for up to 512 changes, and
// asks every partition, because a change does not say which the event is in. What is
// replayed takes another before, and what was forgotten another behind.
func (s *Store) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "change", err)
	}
	errs := make([]error, len(changes))
	wrong := false
	for from := 0; from < len(changes); from += maxBatch {
		items := changes[from:min(from+maxBatch, len(changes))]
		letters, err := s.change(ctx, p, items)
		if err != nil {
			return nil, failed(ctx, "change", err)
		}
		for i, letter := range letters {
			switch {
			case letter == '.' || letter == '-' && items[i].Kind == inbox.ChangeForget:
				continue
			case letter == 's':
				errs[from+i] = inbox.ErrState
			case letter == 'n' || letter == '-':
				errs[from+i] = inbox.ErrNotFound
			default:
				errs[from+i] = failed(ctx, "change", errRow)
			}
			wrong = true
		}
	}
	if !wrong {
		return nil, nil
	}
	return errs, nil
}

// change returns a letter for each change, as change.lua does.
func (s *Store) change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]byte, error) {
	letters := make([]byte, len(changes))
	for i := range letters {
		letters[i] = '-'
	}
	floor, err := s.replayed(ctx, changes)
	if err != nil {
		return nil, err
	}
	var forgotten []string
	err = s.run(ctx, changeScript, []any{micros(p.Retention), micros(p.Keep), micros(p.Bodies)}, upTo(len(s.keys)),
		func(part int) int { return part },
		func(args []any, part int) []any {
			for i := range changes {
				c := &changes[i]
				args = append(args, changeLetter(c.Kind), hexadecimal(c.Nonce), c.ID, only(c.Seq, part), digits(floor+uint64(i)*maxRecords), c.Actor, c.Reason)
			}
			return args
		},
		func(_ int, _ []int, reply []string) error {
			if len(reply) == 0 || len(reply[0]) != len(changes) {
				return errReply
			}
			for i := range letters {
				if rank(reply[0][i]) > rank(letters[i]) {
					letters[i] = reply[0][i]
				}
			}
			forgotten = append(forgotten, reply[1:]...)
			return nil
		})
	if err != nil {
		return nil, err
	}
	for _, row := range forgotten {
		if len(row) <= nonceSize {
			return nil, errReply
		}
	}
	// A row that stays because this fails leads nowhere, and its nonce is void: the
	// next arrival of the ID replaces it, and the next sweeps remove it.
	err = s.eachRow(ctx, "d", len(forgotten), func(i int) (id, nonce string) { return forgotten[i][nonceSize:], forgotten[i][:nonceSize] })
	if err != nil {
		return nil, err
	}
	return letters, nil
}

// maxRecords is more than one event has: of 16 streams, and 16 in conflict.
const maxRecords = 64

// replayed returns the lowest number that a record may have which the first of these
// changes replays; each further one has the next maxRecords. The time is that of one
// partition, so that the order of the batch is that of the numbers in all of them.
func (s *Store) replayed(ctx context.Context, changes []inbox.Change) (floor uint64, err error) {
	if !slices.ContainsFunc(changes, func(c inbox.Change) bool { return c.Kind == inbox.ChangeReplay }) {
		return 0, nil
	}
	now, err := s.now(ctx)
	if err != nil {
		return 0, err
	}
	return s.ahead(now, uint64(len(changes))*maxRecords), nil
}

// now is the time of the first partition's server.
func (s *Store) now(ctx context.Context) (now uint64, err error) {
	err = s.run(ctx, listScript, []any{"r", "", ""}, []int{0}, func(part int) int { return part },
		func(args []any, _ int) []any { return args },
		func(_ int, _ []int, reply []string) error {
			if len(reply) != 1 {
				return errReply
			}
			now, err = strconv.ParseUint(reply[0], 10, 64)
			return err
		})
	return now, err
}

// rank orders the answers of partitions: of those that have the event, and there is
// more than one only when the server has lost what was written, the best counts.
func rank(letter byte) int {
	switch letter {
	case '.':
		return 4
	case 's':
		return 3
	case 'n':
		return 2
	case '-':
		return 0
	}
	return 1
}

// only is the record of a partition that a change is about.
func only(seq uint64, part int) string {
	switch {
	case seq == 0:
		return ""
	case int(seq&(1<<partBits-1)) != part || seq>>partBits > maxNumber:
		return "-"
	}
	return digits(seq >> partBits)
}

func changeLetter(k inbox.ChangeKind) string {
	switch k {
	case inbox.ChangeReplay:
		return "r"
	case inbox.ChangeResolve:
		return "s"
	case inbox.ChangeRedact:
		return "d"
	case inbox.ChangeForget:
		return "f"
	}
	return "?"
}

// eachRow removes the rows of n IDs (d), or notes that they lead to an event (c).
func (s *Store) eachRow(ctx context.Context, what string, n int, item func(i int) (id, nonce string)) error {
	ids, nonces := make([]string, n), make([]string, n)
	for i := range n {
		ids[i], nonces[i] = item(i)
	}
	return s.run(ctx, rowsScript, nil, upTo(n), func(i int) int { return s.parts.Of(ids[i]) },
		func(args []any, i int) []any { return append(args, what, ids[i], nonces[i], "") },
		func(_ int, items []int, reply []string) error {
			if len(reply) != 1+len(items) {
				return errReply
			}
			return nil
		})
}
