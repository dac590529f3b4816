package redisseqgen

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/seqgen"
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

// encodeAsk returns what reserve.lua takes for an ask, behind its field.
func encodeAsk(a *seqgen.Ask) []byte {
	b := make([]byte, 0, 101)
	b = append(b, '0'+byte(a.Mode))
	b = digits(b, uint64(a.N), 6)
	b = append(b, a.Nonce[:]...)
	b = digits(b, a.Seen.Epoch, 19)
	b = digits(b, a.Seen.Number, 19)
	open := byte('0')
	if a.Open {
		open = '1'
	}
	b = append(b, open)
	b = digits(b, a.Token, 20)
	return digits(b, min(a.Used, seqgen.MaxNumber), 19)
}

// encodeChange returns what settle.lua takes for a change, behind its field.
func encodeChange(c *seqgen.Change) []byte {
	b := make([]byte, 0, 95)
	b = append(b, '0'+byte(c.Kind))
	b = digits(b, c.Epoch, 19)
	b = digits(b, c.Token, 20)
	b = digits(b, c.Lo, 19)
	b = digits(b, c.Hi, 19)
	b = append(b, '0'+byte(c.Reason))
	return append(b, c.Nonce[:]...)
}

// A scanner takes numbers of a fixed width from an answer. The first that is none
// spoils it.
type scanner struct {
	s   string
	bad bool
}

func (s *scanner) number(width int) uint64 {
	if len(s.s) < width {
		s.bad = true
		return 0
	}
	n, err := strconv.ParseUint(s.s[:width], 10, 64)
	s.s, s.bad = s.s[width:], s.bad || err != nil
	return n
}

func (s *scanner) done() bool { return !s.bad && s.s == "" }

func readGrant(g *seqgen.Grant, answer string) bool {
	if answer == "" {
		return false
	}
	s := &scanner{s: answer[1:]}
	switch answer[0] {
	case 'g':
		g.Epoch, g.Lo, g.Hi, g.Token = s.number(19), s.number(19), s.number(19), s.number(20)
		if lo, hi := s.number(19), s.number(19); lo > 0 {
			g.Orphaned = seqgen.Range{Epoch: g.Epoch, Lo: lo, Hi: hi}
		}
		return s.done()
	case 'm':
		g.Err, g.Mode = seqgen.ErrMode, seqgen.Mode(s.number(1))
		return s.done()
	}
	var known bool
	g.Stored, known, g.Err = readRefusal("reserve", answer)
	return known
}

func readOutcome(o *seqgen.Outcome, answer string) bool {
	if answer == "" {
		return false
	}
	if answer[0] == 'o' {
		s := &scanner{s: answer[1:]}
		o.Epoch = s.number(19)
		o.Void = seqgen.Range{Epoch: s.number(19), Lo: s.number(19), Hi: s.number(19)}
		return s.done()
	}
	var known bool
	o.Stored, known, o.Err = readRefusal("settle", answer)
	return known
}

// readRefusal reads an answer that says why nothing was done.
func readRefusal(step, answer string) (stored seqgen.Position, known bool, err error) {
	switch answer[0] {
	case 's':
		return stored, true, seqgen.ErrStale
	case 'e':
		return stored, true, seqgen.ErrExhausted
	case 'r':
		s := &scanner{s: answer[1:]}
		stored.Epoch, stored.Number = s.number(19), s.number(19)
		return stored, s.done(), seqgen.ErrRolledBack
	case 'x':
		return stored, true, fmt.Errorf("redisseqgen: %s: %w", step, errRow)
	}
	return stored, false, nil
}

// readState reads a row without its log.
func readState(st *seqgen.State, row string) bool {
	if len(row) != 80 || row[0] != '1' {
		return false
	}
	s := &scanner{s: row[1:]}
	st.Epoch, st.Last, st.Mode, st.Token = s.number(19), s.number(19), seqgen.Mode(s.number(1)), s.number(20)
	st.Owned, st.Used = s.number(1) == 1, s.number(19)
	return s.done()
}

func readVoid(v *seqgen.Void, answer string) bool {
	if len(answer) < 40 {
		return false
	}
	kind, reason := answer[38], answer[39]
	s := &scanner{s: answer[:38] + answer[40:]}
	v.Lo, v.Hi = s.number(19), s.number(19)
	at := s.number(16)
	v.Kind, v.Reason, v.At = seqgen.Certain, seqgen.Reason(reason-'0'), time.UnixMicro(int64(at)).UTC()
	if kind == 'o' {
		v.Kind = seqgen.Orphaned
	}
	return s.done()
}
