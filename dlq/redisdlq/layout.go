package redisdlq

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// maxNumber is the highest number that a row can name, which has 16 digits.
const maxNumber = 9_999_999_999_999_999

func digits(n uint64) string { return fmt.Sprintf("%016d", n) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// span is a duration in microseconds, rounded up, so that nothing ends early.
func span(d time.Duration) string {
	return decimal(int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond))
}

// instant is a time in microseconds, rounded up, and as near as a row can name.
func instant(t time.Time) string {
	switch {
	case t.Before(time.UnixMicro(0)):
		return digits(0)
	case t.After(time.UnixMicro(maxNumber)):
		return digits(maxNumber)
	}
	micros := uint64(t.UnixMicro())
	if t.After(time.UnixMicro(int64(micros))) {
		micros++
	}
	return digits(min(micros, maxNumber))
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// none stands for a fingerprint, a job or a digest that is not there.
const none = "*"

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func hexadecimal(nonce [16]byte) string { return hex.EncodeToString(nonce[:]) }

var base = base64.RawURLEncoding

func digest(d [32]byte) string { return base.EncodeToString(d[:]) }

// digestOrNone is digest, but that of nothing for a zero one.
func digestOrNone(d [32]byte) string {
	if d == [32]byte{} {
		return none
	}
	return digest(d)
}

// failureRow is a failure in the row f of lib.lua; nil if nothing has failed.
func failureRow(f *dlq.Failure) []byte {
	if f.Fingerprint == "" {
		return nil
	}
	b := make([]byte, 0, 24+len(f.Fingerprint)+len(f.Detail))
	b = fmt.Appendf(b, "1 %d %s ", f.At.UnixMicro(), f.Fingerprint)
	return append(b, f.Detail...)
}

// A reader takes values from a reply, or words from a row, in turn. The first that is
// not what it should be spoils it.
type reader struct {
	values []string
	bad    bool
}

// words is a reader of what is separated by spaces; the last of n has the rest. The
// first is the version of the row, unless that is none of this package's.
func words(row string, n int) *reader {
	values := strings.SplitN(row, " ", n)
	return &reader{values, len(values) != n || values[0] != "1"}
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
	micros := r.int()
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// named reads what may be none.
func (r *reader) named() string {
	if s := r.text(); s != none {
		return s
	}
	return ""
}

func (r *reader) digest() (d [32]byte) {
	if s := r.named(); s != "" {
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

// letter reads a letter from a reply: its number and the rows s, b, o, g and f.
func (r *reader) letter(stream string) (l dlq.Record, err error) {
	l.Stream, l.Seq = stream, r.uint()
	ok := readLetter(&l, r.text())
	l.Body, l.Original = r.body(), r.body()
	ok = readLog(&l.Log, r) && ok
	if !ok || r.bad {
		return dlq.Record{}, errRow
	}
	return l, nil
}

// body reads a row b or o, which may not be there.
func (r *reader) body() []byte {
	row := r.text()
	if row == "" {
		return nil
	}
	r.bad = r.bad || row[0] != '1'
	return []byte(row[1:])
}

// readLetter reads the row s of lib.lua.
func readLetter(l *dlq.Record, row string) bool {
	w := words(row, 18)
	_ = w.text() // the version
	l.State = dlq.State(w.int())
	flags := w.text()
	l.Tries = int(w.int())
	_ = w.text() // how it was put
	l.Put, l.Next, l.Settled, l.Expires = w.at(), w.at(), w.at(), w.at()
	for range 4 {
		_ = w.text() // by whom it was begun and settled, and how, and by whom it was put
	}
	l.Digest, l.Fingerprint, l.Job = w.digest(), w.named(), w.named()
	size := w.int()
	l.Key = w.cut(size)
	l.ID = w.text()
	if w.bad || len(flags) != 3 {
		return false
	}
	l.Aside = flags[0] == '1'
	return true
}

// readLog reads the rows g and f of lib.lua.
func readLog(l *dlq.Log, r *reader) bool {
	row := r.text()
	var failures [1 + dlq.LogLast]string
	for i := range failures {
		failures[i] = r.text()
	}
	if row == "" { // nothing has failed
		return true
	}
	w := words(row, 4)
	_ = w.text()
	n, others, folds := int(w.int()), int(w.int()), w.text()
	if w.bad || n < 1 || !readFailure(&l.First, failures[0]) || !readFolds(l, folds) {
		return false
	}
	l.Others = others
	for i := max(1, n-dlq.LogLast); i < n; i++ {
		var f dlq.Failure
		if !readFailure(&f, failures[(i-1)%dlq.LogLast+1]) {
			return false
		}
		l.Last = append(l.Last, f)
	}
	return true
}

func readFailure(f *dlq.Failure, row string) bool {
	w := words(row, 4)
	_ = w.text()
	f.At, f.Fingerprint, f.Detail = time.UnixMicro(w.int()), w.text(), []byte(w.text())
	return !w.bad
}

func readFolds(l *dlq.Log, row string) bool {
	for part := range strings.SplitSeq(row, ";") {
		if part == "" {
			continue
		}
		values := strings.Split(part, ",")
		if len(values) != 4 {
			return false
		}
		w := &reader{values: values}
		l.Folds = append(l.Folds, dlq.Fold{Fingerprint: w.text(), Count: int(w.int()), First: time.UnixMicro(w.int()), Last: time.UnixMicro(w.int())})
		if w.bad {
			return false
		}
	}
	return true
}

// readEntry reads the row e of lib.lua.
func readEntry(e *dlq.Entry, row string) bool {
	w := words(row, 12)
	_ = w.text()
	e.At = w.at()
	_ = w.text() // when it may be forgotten
	e.Letter = w.uint()
	_ = w.text() // the nonce
	e.Before, e.After, e.Job = w.digest(), w.digest(), w.named()
	verb, id, actor := w.int(), w.int(), w.int()
	e.Verb, e.ID, e.Actor, e.Reason = w.cut(verb), w.cut(id), w.cut(actor), w.text()
	return !w.bad
}

// readJob reads the row j of lib.lua.
func readJob(j *dlq.Job, row string) bool {
	w := words(row, 8)
	_ = w.text()
	j.Version = w.uint()
	nonce, err := hex.DecodeString(w.text())
	copy(j.Nonce[:], nonce)
	j.Ended = w.text() == "1"
	j.Created, j.Updated = w.at(), w.at()
	_ = w.text() // when it may be forgotten
	j.Data = []byte(w.text())
	return err == nil && len(nonce) == len(j.Nonce) && !w.bad
}

// readGroup reads the row u of lib.lua.
func readGroup(g *dlq.Group, row string) bool {
	w := words(row, 5)
	_ = w.text()
	g.Waiting, g.Review, g.First, g.Last = int(w.int()), int(w.int()), w.at(), w.at()
	return !w.bad
}
