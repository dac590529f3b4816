package redisreconcile

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// span is a duration in microseconds, rounded up, so that nothing ends early.
func span(d time.Duration) string {
	d = min(max(d, 0), reconcile.MaxDuration)
	return decimal(int64((d + time.Microsecond - 1) / time.Microsecond))
}

// micros is a span between two of the server's times. A server whose clock went back can
// make it negative.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func hexadecimal(nonce [16]byte) string { return hex.EncodeToString(nonce[:]) }

// none stands for a digest or a time that is not there.
const none = "*"

var base = base64.RawURLEncoding

// digest is a digest as it stands in rows; a zero one is none.
func digest(d [32]byte) string {
	if d == [32]byte{} {
		return none
	}
	return base.EncodeToString(d[:])
}

// row is bytes as they are stored: behind the version of the layout. Nil is no row.
func row(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{'1'}, b...)
}

// A reader takes values from a reply, or words from a row, in turn. The first that is not
// what it should be spoils it.
type reader struct {
	values []string
	bad    bool
}

// words is a reader of what is separated by spaces; the last of n has the rest. The first
// is the version of the row, and is taken.
func words(row string, n int) *reader {
	values := strings.SplitN(row, " ", n)
	if len(values) != n || values[0] != "1" {
		return &reader{bad: true}
	}
	return &reader{values: values[1:]}
}

func (r *reader) more() bool { return len(r.values) > 0 && !r.bad }

func (r *reader) text() string {
	if len(r.values) == 0 {
		r.bad = true
		return ""
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *reader) int() int64 {
	n, err := strconv.ParseInt(r.text(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) uint() uint64 {
	n, err := strconv.ParseUint(r.text(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

// at reads one of the server's times; zero is none.
func (r *reader) at() time.Time {
	n := r.int()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

func (r *reader) flag() bool { return r.text() == "1" }

func (r *reader) digest() (d [32]byte) {
	if s := r.text(); s != none {
		n, err := base.Decode(d[:], []byte(s[:min(len(s), base.EncodedLen(len(d)))]))
		r.bad = r.bad || err != nil || n != len(d) || len(s) != base.EncodedLen(len(d))
	}
	return d
}

// cut takes the first n bytes of the last value.
func (r *reader) cut(n int64) string {
	if len(r.values) != 1 || n < 0 || n > int64(len(r.values[0])) {
		r.bad = true
		return ""
	}
	s := r.values[0][:n]
	r.values[0] = r.values[0][n:]
	return s
}

// body reads a row that may not be there.
func (r *reader) body() []byte {
	row := r.text()
	if row == "" {
		return nil
	}
	r.bad = r.bad || row[0] != '1'
	return []byte(row[1:])
}

// entry reads an operation from a reply: its rows s, p, r and l. There is none if the first
// is empty.
func (r *reader) entry(kind, key string, now int64) (e reconcile.Entry, found bool, err error) {
	row := r.text()
	e.Kind, e.Key = kind, key
	e.Payload, e.Result = r.body(), r.body()
	log := r.text()
	if row == "" && !r.bad {
		return e, false, nil
	}
	if r.bad || !readOperation(&e, row, now) || !readLog(&e, log) {
		return reconcile.Entry{}, false, errRow
	}
	return e, true, nil
}

// readOperation reads the row s of ledger.lua.
func readOperation(e *reconcile.Entry, row string, now int64) bool {
	w := words(row, 23)
	e.State = reconcile.State(w.int())
	flags := w.text()
	e.Token, e.Attempts, e.Looks = w.uint(), int(w.int()), int(w.int())
	e.Created, e.First, e.Sent, e.Fenced, e.Due = w.at(), w.at(), w.at(), w.at(), w.at()
	if lease := w.int(); lease > now {
		e.Left = micros(lease - now)
	}
	e.Expires = w.at()
	for range 6 { // the grant, what ended it, its nonce; the nonce and the answer of who was outside; how long the log is
		_ = w.text()
	}
	e.Dropped, e.Fingerprint = int(w.int()), w.digest()
	size := w.int()
	e.Review = w.cut(size)
	e.Account = w.text()
	e.Read, e.Again = time.UnixMicro(now), strings.HasPrefix(flags, "1")
	return !w.bad && len(flags) == 2
}

// readLog reads the row l of ledger.lua.
func readLog(e *reconcile.Entry, row string) bool {
	entries, ok := logEntries(row)
	for _, entry := range entries {
		w := words("1 "+entry, 6)
		t := reconcile.Transition{At: w.at(), Verb: reconcile.Verb(w.int()), State: reconcile.State(w.int()), Token: w.uint()}
		t.By = w.sized()
		t.Note = w.text()
		if w.bad {
			return false
		}
		e.Log = append(e.Log, t)
		e.Note = t.Note
	}
	return ok
}

// sized reads a size and takes so much of the value behind it, which is the last.
func (r *reader) sized() string {
	value := r.text()
	size, rest, found := strings.Cut(value, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if !found || err != nil {
		r.bad = true
		return ""
	}
	r.values = []string{rest}
	return r.cut(n)
}

// logEntries are the entries of a log; see lib.lua.
func logEntries(row string) (entries []string, ok bool) {
	if row == "" || row[0] != '1' {
		return nil, false
	}
	for rest := row[1:]; rest != ""; {
		size, behind, found := strings.Cut(rest, " ")
		n, err := strconv.Atoi(size)
		if !found || err != nil || n < 0 || n > len(behind) {
			return nil, false
		}
		entries, rest = append(entries, behind[:n]), behind[n:]
	}
	return entries, true
}
