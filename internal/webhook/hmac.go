package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Secret is a shared secret and the time in which it is valid.
type Secret struct {
	Value     string
	NotBefore time.Time
	NotAfter  time.Time
}

// MaxSecrets bounds the work that a forged delivery can cause.
const MaxSecrets = 16

// CheckSecrets refuses what no delivery could be checked with.
func CheckSecrets(secrets []Secret) error {
	switch {
	case len(secrets) == 0:
		return errors.New("no secret; with none, anyone could send")
	case len(secrets) > MaxSecrets:
		return fmt.Errorf("%d secrets, at most %d", len(secrets), MaxSecrets)
	}
	for i, s := range secrets {
		switch {
		case s.Value == "":
			return fmt.Errorf("secret %d is empty", i+1)
		case !s.NotAfter.IsZero() && s.NotAfter.Before(s.NotBefore):
			return fmt.Errorf("secret %d ends before it begins", i+1)
		}
	}
	return nil
}

// A Match is what a check against several secrets has found.
type Match int

// The matches.
const (
	NoMatch   Match = iota // none of the secrets made it
	NotLive                // a secret made it that is not valid at that time
	LiveMatch              // a valid secret made it
)

// Check compares an HMAC-SHA256 of the parts with that of every secret, each in
// constant time.
func Check(secrets []Secret, at time.Time, mac []byte, parts ...[]byte) Match {
	best := NoMatch
	for _, s := range secrets {
		if hmac.Equal(Sum(s.Value, parts...), mac) {
			best = max(best, s.match(at))
		}
	}
	return best
}

func (s *Secret) match(at time.Time) Match {
	if at.Before(s.NotBefore) || !s.NotAfter.IsZero() && at.After(s.NotAfter) {
		return NotLive
	}
	return LiveMatch
}

// Sum returns the HMAC-SHA256 of the parts, one after another.
func Sum(secret string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Hex decodes an HMAC-SHA256 of 64 hexadecimal digits in either case.
func Hex(s string) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == sha256.Size
}

// Redacted is what secrets print instead of themselves.
const Redacted = "[secret]"

// RedactedLog is [Redacted] for slog.
func RedactedLog() slog.Value { return slog.StringValue(Redacted) }

// Copy returns the secrets of another type with the same fields.
func Copy[S ~struct {
	Value     string
	NotBefore time.Time
	NotAfter  time.Time
}](secrets []S) []Secret {
	all := make([]Secret, 0, len(secrets))
	for _, s := range secrets {
		all = append(all, Secret(s))
	}
	return all
}
