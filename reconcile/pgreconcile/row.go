package pgreconcile

import (
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A row is an operation as it is read, of the type reconcile_row in
// schema/0001_tables.sql.
type row struct {
	dest [23]any

	n                            *int32
	answer, state                *int16
	now, token                   *int64
	created, first, sent, fenced *int64
	due, until, expires          *int64
	attempts, looks, dropped     *int32
	again                        *bool
	key, account, review         *string
	fingerprint, payload, result []byte
	log                          []string
}

// newRow returns a row that is scanned into again and again.
func newRow() *row {
	w := &row{}
	w.dest = [...]any{
		&w.n, &w.answer, &w.now, &w.token, &w.created, &w.first, &w.sent, &w.fenced, &w.due, &w.until, &w.expires, &w.attempts, &w.looks,
		&w.dropped, &w.state, &w.again, &w.key, &w.account, &w.review, &w.fingerprint, &w.log, &w.payload, &w.result,
	}
	return w
}

func (w *row) entry(kind string) reconcile.Entry {
	e := reconcile.Entry{
		Op:   reconcile.Op{Key: value(w.key), Account: value(w.account), Payload: w.payload},
		Kind: kind, State: reconcile.State(value(w.state)), Token: uint64(value(w.token)), Attempts: int(value(w.attempts)), Looks: int(value(w.looks)),
		Review: value(w.review), Again: value(w.again), Result: w.result,
		Read: at(w.now), Created: at(w.created), First: at(w.first), Sent: at(w.sent), Fenced: at(w.fenced), Due: at(w.due), Expires: at(w.expires),
		Left: micros(value(w.until) - value(w.now)), Dropped: int(value(w.dropped)),
	}
	copy(e.Fingerprint[:], w.fingerprint)
	e.Log = make([]reconcile.Transition, len(w.log))
	for i, line := range w.log {
		e.Log[i] = transition(line)
		e.Note = e.Log[i].Note
	}
	return e
}

// transition reads what reconcile_line wrote. What it cannot read it leaves out.
func transition(line string) (t reconcile.Transition) {
	var n [5]uint64
	for i := range n {
		number, rest, _ := strings.Cut(line, " ")
		n[i], _ = strconv.ParseUint(number, 10, 64)
		line = rest
	}
	t.At, t.Verb, t.State, t.Token = time.UnixMicro(int64(n[0])), reconcile.Verb(n[1]), reconcile.State(n[2]), n[3]
	by := min(n[4], uint64(len(line)))
	t.By, t.Note = line[:by], line[by:]
	return t
}

func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

func at(micro *int64) time.Time {
	if micro == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micro)
}
