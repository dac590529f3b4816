package webhook

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxID is the length of the longest identity, key or other text of an event, in
// bytes.
const MaxID = 512

// Plain reports whether a text can stand for itself in an event: 1 to MaxID
// bytes, no control characters, and no U+FFFD, which would make one text of all
// that is not valid UTF-8.
func Plain(s string) bool {
	if s == "" || len(s) > MaxID || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// Keep returns the text if it is [Plain], and nothing otherwise.
func Keep(s string) string {
	if Plain(s) {
		return s
	}
	return ""
}

// Part returns a text as one part of an identity between slashes: % and / are
// written as %25 and %2F, a missing part as -, and a part that is a - as %2D.
func Part(s string) string {
	switch s {
	case "":
		return "-"
	case "-":
		return "%2D"
	}
	return escaper.Replace(s)
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

// Key returns an ordering key of parts. A part that is not [Plain] is replaced by
// a digest, and so is all behind the provider when the key would be too long.
func Key(provider string, parts ...string) string {
	b := []byte(provider)
	for _, p := range parts {
		b = append(b, '/')
		switch {
		case p == "" || Plain(p):
			b = append(b, Part(p)...)
		default:
			b = append(append(b, '%', '-'), Digest([]byte(p))...)
		}
	}
	if len(b) > MaxID {
		return provider + "/%-" + Digest(b)
	}
	return string(b)
}

// Digest returns 32 hexadecimal digits of the SHA-256 of the fields, each with
// its length, so that moving a byte from one field to the next changes it.
func Digest(fields ...[]byte) string {
	h := sha256.New()
	var n [8]byte
	for _, f := range fields {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write(f)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Phone returns the digits of a phone number, or nothing if the text is none: a
// number is digits with the signs that people write between them.
func Phone(s string) string {
	digits := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
		case strings.IndexByte("+ -().", c) < 0:
			return ""
		}
	}
	switch digits {
	case 0:
		return ""
	case len(s):
		return s
	}
	b := make([]byte, 0, digits)
	for i := range len(s) {
		if c := s[i]; c >= '0' && c <= '9' {
			b = append(b, c)
		}
	}
	return string(b)
}

// A Party is one side of a message: a number, which may also hold a user ID, a
// user ID and that of its parent.
type Party struct{ Number, User, Parent string }

// Name is how the party appears in ordering keys: the digits of its number, else
// its user ID, else its parent's.
func (p Party) Name() string {
	return cmp.Or(Phone(p.Number), p.User, p.Number, p.Parent)
}

// Word is a provider's name for a type as it appears in metrics: the name itself,
// "-" if there is none, and "?" if it is longer than 128 bytes or has other
// characters than A-Z, a-z, 0-9, point, hyphen and underscore.
func Word(s string) string {
	switch {
	case s == "":
		return "-"
	case len(s) > 128:
		return "?"
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.') {
			return "?"
		}
	}
	return s
}

// Seconds reads a Unix time in decimal digits. Anything else, and a time outside
// the years that RFC 3339 can write, is false.
func Seconds(s string) (t time.Time, ok bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return time.Time{}, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n >= endOfTime {
		return time.Time{}, false
	}
	return time.Unix(n, 0).UTC(), true
}

// Time reads a time of RFC 3339. Anything else, and a time outside the years 1 to
// 9999, which an event cannot have, is no time.
func Time(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

const endOfTime = 253402300800 // the first second of the year 10000

// Set returns a set of names.
func Set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
