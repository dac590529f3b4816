package pginbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
)

// The kinds of rows of the type inbox_row in schema/0001_tables.sql.
const (
	rowRecord = 1 + iota // of a claimed key
	rowKey               // a claimed key without a record
	rowEnd               // of a claim
	rowListed
)

// rowColumns is how many columns the type has.
const rowColumns = 42

// whatIs reads the kind of a row, in the binary format and in the text format.
func whatIs(rows pgx.Rows) int { raw := rows.RawValues()[0]; return int(raw[len(raw)-1] & 0x0f) }

// A row is a record as it is read.
type row struct {
	dest [rowColumns]any

	what            int16
	token, left     int64
	more            *bool
	seq             int64
	state, form     int16
	nanos           int16
	received, age   int64
	occurred, next  *int64
	settled         *int64
	expires, erases *int64
	deleted         *int64
	failures        []byte
	kinds           []int16
	times           []int64
	actors, notes   []string
	record          inbox.Record
}

// newRow returns a row that is scanned into again and again.
func newRow() *row {
	w := &row{}
	r := &w.record
	w.dest = [rowColumns]any{
		&w.what, nil, nil, nil, nil, nil, nil, nil,
		&w.seq, &r.Stream, &r.Key, &r.ID, &w.state, &r.Attempts, &w.form, &w.received, &w.age, &w.occurred, &w.nanos, &w.next, &w.settled,
		&w.expires, &w.erases, &w.deleted, &r.Fingerprinted, &r.Unknown, &r.Provider, &r.Type, &r.Version, &r.Account, &r.Phone,
		&r.MessageID, &r.ExternalID, &r.Trace, &r.LastError, &w.failures, &w.kinds, &w.times, &w.actors, &w.notes, &r.Context, &r.Payload,
	}
	return w
}

// scan reads a row with a record. With claimed, what it says of the key, too.
func (w *row) scan(rows pgx.Rows, claimed bool) (inbox.Record, error) {
	if claimed {
		w.dest[1], w.dest[2], w.dest[3] = &w.token, &w.left, &w.more
	}
	w.record = inbox.Record{}
	if err := rows.Scan(w.dest[:]...); err != nil {
		return inbox.Record{}, err
	}
	r := w.record
	r.Seq, r.State, r.Form = uint64(w.seq), inbox.State(w.state), inbox.Form(w.form)
	r.Received, r.Age = time.UnixMicro(w.received), micros(w.age)
	if w.occurred != nil {
		r.Occurred = time.UnixMicro(*w.occurred).Add(time.Duration(w.nanos))
	}
	r.Next, r.Settled = at(w.next), at(w.settled)
	r.Expires, r.Erases, r.Deleted = at(w.expires), at(w.erases), at(w.deleted)
	for i, kind := range w.kinds {
		if i >= len(w.times) || i >= len(w.actors) || i >= len(w.notes) {
			break
		}
		r.Actions = append(r.Actions, inbox.Action{
			Kind: inbox.ChangeKind(kind), At: time.UnixMicro(w.times[i]), Actor: w.actors[i], Reason: w.notes[i]})
	}
	var err error
	r.Failures, err = unpackFailures(w.failures)
	return r, err
}

// key reads a row with a claimed key and no record.
func (w *row) key(rows pgx.Rows) (string, error) {
	var key string
	dest := [rowColumns]any{0: &w.what, 1: &w.token, 2: &w.left, 10: &key}
	err := rows.Scan(dest[:]...)
	return key, err
}

func at(micro *int64) time.Time {
	if micro == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micro)
}

// failure is an [inbox.Failure] as it is stored. The server never looks at it.
type failure struct {
	Attempt int    `json:"n"`
	At      int64  `json:"at"`
	Error   string `json:"error"`
}

func packFailures(list []inbox.Failure) []byte {
	if len(list) == 0 {
		return nil
	}
	packed := make([]failure, len(list))
	for i, f := range list {
		packed[i] = failure{f.Attempt, f.At.UnixMicro(), f.Error}
	}
	text, err := json.Marshal(packed)
	if err != nil {
		panic(err) // numbers and strings
	}
	return text
}

func unpackFailures(text []byte) ([]inbox.Failure, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var packed []failure
	if err := json.Unmarshal(text, &packed); err != nil {
		return nil, fmt.Errorf("the failures of a record are not as this program writes them: %w", err)
	}
	list := make([]inbox.Failure, len(packed))
	for i, f := range packed {
		list[i] = inbox.Failure{Attempt: f.Attempt, At: time.UnixMicro(f.At), Error: f.Error}
	}
	return list, nil
}
