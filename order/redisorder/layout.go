package redisorder

import (
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/order"
)

// digits appends n in a fixed width; lib.lua says why.
func digits(b []byte, n uint64, width int) []byte {
	from := len(b)
	b = append(b, "00000000000000000000"[:width]...)
	for i := len(b) - 1; i >= from; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func number(n uint64) string { return string(digits(nil, n, 19)) }

func position(p order.Position) string {
	return string(digits(digits(make([]byte, 0, 38), p.Epoch, 19), p.Number, 19))
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// micros rounds up, so that nothing ends early.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func flag(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}

// A reader takes values from a reply, or numbers from a row, in turn. The first
// that is not what it should be spoils it.
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

func (r *reader) uint() uint64 {
	n, err := strconv.ParseUint(r.text(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) int() int64 {
	n, err := strconv.ParseInt(r.text(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) flag() bool { return r.text() == "1" }

// readPlace reads epoch and number, 19 digits each.
func readPlace(s string) (p order.Position, ok bool) {
	if len(s) != 38 {
		return p, false
	}
	epoch, err1 := strconv.ParseUint(s[:19], 10, 64)
	n, err2 := strconv.ParseUint(s[19:], 10, 64)
	return order.Position{Epoch: epoch, Number: n}, err1 == nil && err2 == nil
}

// age is the time from one of the server's times to another. A server whose clock
// went back can make it negative.
func age(now, then int64) time.Duration { return time.Duration(max(now-then, 0)) * time.Microsecond }

// readMessage fills a message from its row and its body, which may be gone; see
// lib.lua.
func readMessage(m *order.Message, now int64, row, body string) bool {
	if len(row) < 34 || row[0] != '1' {
		return false
	}
	came, err := strconv.ParseInt(row[1:17], 10, 64)
	if err != nil {
		return false
	}
	m.Age = age(now, came)
	m.Late = row[17] != 'b'
	m.ID = row[34:]
	if body == "" {
		return true
	}
	if len(body) < 4 {
		return false
	}
	n, err := strconv.Atoi(body[:4])
	if err != nil || n > len(body)-4 {
		return false
	}
	if n > 0 {
		m.Context = []byte(body[4 : 4+n])
	}
	m.Payload = []byte(body[4+n:])
	return true
}

// readAttempts reads attempts and error.
func readAttempts(m *order.Message, s string) bool {
	count, text, found := strings.Cut(s, " ")
	n, err := strconv.Atoi(count)
	m.Attempt, m.Error = n, text
	return found && err == nil
}

// readOpen fills a gap that is open from what list.lua and claim.lua say of it.
func readOpen(g *order.Gap, now int64, s string) bool {
	r := words(s, 6)
	g.To, g.Age, g.Since = r.uint(), age(now, r.int()), age(now, r.int())
	g.Alerted, g.Asked, g.Old, g.Open = r.flag(), int(r.int()), r.flag(), true
	return !r.bad
}

// readRecord fills a gap from its record.
func readRecord(g *order.Gap, now int64, row string) bool {
	r := words(row, 11)
	version := r.text()
	g.To, g.Age = r.uint(), age(now, r.int())
	g.Alerted, g.Asked, g.Reason, g.Arrived = r.flag(), int(r.int()), order.Reason(r.uint()), r.uint()
	g.Resolution = order.Resolution(r.uint())
	_ = r.int() // when it was resolved
	n, text := int(r.int()), r.text()
	if r.bad || version != "1" || n < 0 || n > len(text) {
		return false
	}
	g.Actor, g.Note = text[:n], text[n:]
	return true
}
