package webhook

import (
	"crypto/hmac"
	"hash"
	"strings"
	"time"
)

// CheckAny compares several MACs, of which one has to match, with the HMAC that
// every secret makes of the parts. Each comparison takes constant time, and all of
// them are made, so that the time says nothing about which one matched.
func CheckAny(newHash func() hash.Hash, secrets []Secret, at time.Time, macs [][]byte, parts ...[]byte) Match {
	best := NoMatch
	for _, s := range secrets {
		sum := SumWith(newHash, s.Value, parts...)
		for _, mac := range macs {
			if hmac.Equal(sum, mac) {
				best = max(best, s.match(at))
			}
		}
	}
	return best
}

// SumWith returns the HMAC of the parts, one after another, with a hash.
func SumWith(newHash func() hash.Hash, key string, parts ...[]byte) []byte {
	h := hmac.New(newHash, []byte(key))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Identity is the identity of an event whose provider gives it an ID. An ID that
// cannot stand for itself, or that could pose as a fingerprint or as a body in
// quarantine, is replaced by a digest.
func Identity(provider, id string) string {
	identity := provider + "/" + id
	if Plain(identity) && id != "" && !strings.HasPrefix(id, "fp/") && !strings.HasPrefix(id, "raw/") {
		return identity
	}
	return provider + "/fp/" + Digest([]byte("id"), []byte(id))
}
