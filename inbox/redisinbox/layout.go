package redisinbox

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A record's Seq is the number x that its rows have, and its partition in the
// lowest eight bits: so two partitions never give the same.
const partBits = 8

func seqOf(part int, x uint64) uint64 { return x<<partBits | uint64(part) }

// lowest is the lowest number of a partition whose Seq is above after; ok is false
// if there is none.
func lowest(part int, after uint64) (x uint64, ok bool) {
	x = after >> partBits
	if after&(1<<partBits-1) >= uint64(part) {
		x++
	}
	if after == 0 {
		x = 0
	}
	return x, x <= maxNumber
}

// maxNumber is the highest number that a row can name, which has 16 digits.
const maxNumber = 9_999_999_999_999_999

func digits(n uint64) string { return fmt.Sprintf("%016d", n) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// micros rounds up, so that nothing ends early.
func micros(d time.Duration) string {
	return decimal(int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond))
}

func flag(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}

var base = base64.RawURLEncoding

func hexadecimal(nonce [16]byte) string { return hex.EncodeToString(nonce[:]) }

// fieldsRow is what does not change of an event, in the row r of lib.lua.
func fieldsRow(e *inbox.Event) []byte {
	b := make([]byte, 0, 128)
	b = fmt.Appendf(b, "1%04d%04d%s%s", len(e.MessageID), len(e.ExternalID), e.MessageID, e.ExternalID)
	var flags byte
	for i, set := range []bool{e.Fingerprinted, e.Unknown, !e.Occurred.IsZero()} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, e.Occurred.Unix()) // in two numbers, since a provider may name any year
	b = binary.AppendUvarint(b, uint64(e.Occurred.Nanosecond()))
	for _, text := range []string{e.Provider, e.Type, e.Version, e.Account, e.Phone} {
		b = appendText(b, text)
	}
	return b
}

// bodyRow is payload, context and trace, in the row b of lib.lua.
func bodyRow(e *inbox.Event) []byte {
	b := make([]byte, 0, 12+len(e.Trace)+len(e.Context)+len(e.Payload))
	b = fmt.Appendf(b, "%08d%04d%s", len(e.Context), len(e.Trace), e.Trace)
	return append(append(b, e.Context...), e.Payload...)
}

// failedRow is the last error and the failures, in the row l of lib.lua.
func failedRow(text string, failures []inbox.Failure) []byte {
	b := appendText([]byte{'1'}, text)
	for _, f := range failures {
		b = binary.AppendUvarint(b, uint64(f.Attempt))
		b = binary.AppendVarint(b, f.At.Unix())
		b = binary.AppendUvarint(b, uint64(f.At.Nanosecond()))
		b = appendText(b, f.Error)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// rowsOf is how many values a script returns for a record: its number and rows.
const rowsOf = 6

// readRecord reads a record from them. now is the server's time.
func readRecord(part int, now int64, v []string) (r inbox.Record, err error) {
	x, err := strconv.ParseUint(v[0], 10, 64)
	if err != nil || v[1] == "" || v[2] == "" {
		return r, errRow
	}
	r.Seq = seqOf(part, x)
	if !readState(&r, now, v[1]) || !readFields(&r.Event, v[2]) || !readBody(&r.Event, v[3]) || !readFailed(&r, v[4]) || !readActions(&r, v[5]) {
		return r, errRow
	}
	return r, nil
}

// readState reads the row s of lib.lua.
func readState(r *inbox.Record, now int64, row string) bool {
	w := words(row, 17)
	if w.text() != "1" {
		return false
	}
	r.State, r.Attempts = inbox.State(w.int()), int(w.int())
	_, _ = w.text(), w.text() // begun and ended by
	r.Form = inbox.Form(w.int())
	r.Received = at(w.int())
	r.Age = span(now - w.int())
	r.Next, r.Settled, r.Expires, r.Erases, r.Deleted = at(w.int()), at(w.int()), at(w.int()), at(w.int()), at(w.int())
	_ = w.text() // changed by
	if r.Stream = w.text(); r.Stream == noStream {
		r.Stream = ""
	}
	n, rest := w.int(), w.text()
	if w.bad || n < 0 || n > int64(len(rest)) {
		return false
	}
	r.Key, r.ID = rest[:n], rest[n:]
	return true
}

// noStream stands for the empty name, and is none itself.
const noStream = "*"

func readFields(e *inbox.Event, row string) bool {
	if len(row) < 9 || row[0] != '1' {
		return false
	}
	m, err1 := strconv.Atoi(row[1:5])
	x, err2 := strconv.Atoi(row[5:9])
	if err1 != nil || err2 != nil || m < 0 || x < 0 || len(row) < 10+m+x {
		return false
	}
	e.MessageID, e.ExternalID = row[9:9+m], row[9+m:9+m+x]
	flags := row[9+m+x]
	d := decoder{rest: row[10+m+x:]}
	e.Fingerprinted, e.Unknown = flags&1 != 0, flags&2 != 0
	occurred := d.time()
	if flags&4 != 0 {
		e.Occurred = occurred
	}
	for _, text := range []*string{&e.Provider, &e.Type, &e.Version, &e.Account, &e.Phone} {
		*text = d.text()
	}
	return !d.bad && d.rest == ""
}

func readBody(e *inbox.Event, row string) bool {
	if row == "" { // it was redacted
		return true
	}
	if len(row) < 12 {
		return false
	}
	c, err1 := strconv.Atoi(row[:8])
	t, err2 := strconv.Atoi(row[8:12])
	if err1 != nil || err2 != nil || c < 0 || t < 0 || c+t > len(row)-12 {
		return false
	}
	e.Trace = row[12 : 12+t]
	e.Context, e.Payload = []byte(row[12+t:12+t+c]), []byte(row[12+t+c:])
	return true
}

func readFailed(r *inbox.Record, row string) bool {
	if row == "" {
		return true
	}
	if row[0] != '1' {
		return false
	}
	d := decoder{rest: row[1:]}
	r.LastError = d.text()
	for d.rest != "" && !d.bad {
		r.Failures = append(r.Failures, inbox.Failure{Attempt: int(d.uint()), At: d.time(), Error: d.text()})
	}
	return !d.bad
}

// readActions reads what change.lua writes: for each a digit, the time, the lengths
// of actor and reason, and these two.
func readActions(r *inbox.Record, row string) bool {
	for row != "" {
		if len(row) < 25 {
			return false
		}
		t, err1 := strconv.ParseInt(row[1:17], 10, 64)
		n, err2 := strconv.Atoi(row[17:21])
		m, err3 := strconv.Atoi(row[21:25])
		if err1 != nil || err2 != nil || err3 != nil || n < 0 || m < 0 || len(row) < 25+n+m {
			return false
		}
		r.Actions = append(r.Actions, inbox.Action{Kind: inbox.ChangeKind(row[0] - '0'), At: at(t), Actor: row[25 : 25+n], Reason: row[25+n : 25+n+m]})
		row = row[25+n+m:]
	}
	return true
}

// at is one of the server's times; zero is none.
func at(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// span is the time between two of the server's times. A server whose clock went
// back can make it negative.
func span(micros int64) time.Duration { return time.Duration(max(micros, 0)) * time.Microsecond }

// A reader takes values from a reply, or words from a row, in turn. The first that
// is not what it should be spoils it.
type reader struct {
	values []string
	bad    bool
}

// words is a reader of what is separated by spaces; the last of n has the rest.
func words(row string, n int) *reader {
	values := strings.SplitN(row, " ", n)
	return &reader{values, len(values) != n}
}

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

// A decoder takes apart what was appended to a row.
type decoder struct {
	rest string
	bad  bool
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		d.bad, d.rest = true, ""
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) time() time.Time {
	n, size := binary.Varint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		d.bad, d.rest = true, ""
		return time.Time{}
	}
	d.rest = d.rest[size:]
	return time.Unix(n, int64(d.uint())).UTC()
}

func (d *decoder) text() string {
	n := d.uint()
	if d.bad || n > uint64(len(d.rest)) {
		d.bad, d.rest = true, ""
		return ""
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}
