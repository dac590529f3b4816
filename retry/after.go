package retry

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// After marks an error with how long the other side asked to wait. The next
// attempt begins no earlier; when that is longer than Options.MaxServerWait, there
// is none. Nil stays nil, a negative wait counts as zero, and of several the
// longest holds.
func After(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &afterError{err, wait}
}

type afterError struct {
	error
	after time.Duration
}

func (a *afterError) Unwrap() error { return a.error }

// A StatusError is an HTTP answer that is not a success.
type StatusError struct {
	Code  int
	After time.Duration // from Retry-After; zero if there was none that makes sense
}

func (e *StatusError) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("HTTP status %d, to be tried again after %v", e.Code, e.After)
	}
	return fmt.Sprintf("HTTP status %d", e.Code)
}

// Status returns a [*StatusError] for an HTTP answer from 400 on, with the wait
// that its Retry-After asks for, and nil for any other:
//
//	err := retry.Status(resp.StatusCode, resp.Header)
//
// The names in header are spelt as http.Header spells them. A Retry-After that is a
// date counts from the answer's own Date, if it has one, so that a wrong clock here
// does no harm. One that makes no sense is as none.
func Status(code int, header map[string][]string) error {
	if code < 400 {
		return nil
	}
	e := &StatusError{Code: code}
	if value := header["Retry-After"]; len(value) > 0 {
		now := time.Now()
		if date := header["Date"]; len(date) > 0 {
			if t, ok := parseDate(strings.TrimSpace(date[0])); ok {
				now = t
			}
		}
		e.After, _ = ParseRetryAfter(value[0], now)
	}
	return e
}

// ParseRetryAfter reads the value of a Retry-After field: a number of seconds, or
// a date in one of the three forms of HTTP, which counts from now
// (https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3). A date that has passed
// is a wait of zero; more seconds than a Duration holds are the longest there is.
// Anything else is [ErrInvalid]: signs, fractions, exponents, other zones than GMT.
func ParseRetryAfter(value string, now time.Time) (time.Duration, error) {
	value = strings.Trim(value, " \t")
	if seconds, ok := parseSeconds(value); ok {
		return seconds, nil
	}
	if t, ok := parseDate(value); ok {
		return max(t.Sub(now), 0), nil
	}
	return 0, invalid("Retry-After of %d bytes, neither seconds nor an HTTP date", len(value))
}

func parseSeconds(digits string) (wait time.Duration, ok bool) {
	const most = math.MaxInt64 / int64(time.Second)
	var n int64
	for i := range len(digits) {
		d := digits[i]
		if d < '0' || d > '9' {
			return 0, false
		}
		n = min(10*n+int64(d-'0'), most+1) // ten times that still fits
	}
	if n > most {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, len(digits) > 0
}

// dateForms are those of RFC 9110, section 5.6.7. Its second has a year of two
// digits, of which time.Parse takes 69 and above as 19xx.
var dateForms = [...]string{
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Monday, 02-Jan-06 15:04:05 GMT",
	"Mon Jan _2 15:04:05 2006",
}

func parseDate(value string) (time.Time, bool) {
	for _, form := range dateForms {
		if t, err := time.Parse(form, value); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
