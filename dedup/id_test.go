package dedup_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/dedup"
)

func TestMessageID(t *testing.T) {
	for _, row := range []struct {
		biz, account string
		seq          uint64
		want         string
	}{
		{"wa", "acct-1", 7, "wa:acct-1:7"},
		{"a:b", "c", 1, "a%3Ab:c:1"},
		{"a", "b:c", 1, "a:b%3Ac:1"},
		{"100%", "%3A", 1<<64 - 1, "100%25:%253A:18446744073709551615"},
	} {
		if got := dedup.MessageID(row.biz, row.account, row.seq); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
	// The first 24 digits of the SHA-256 of "wa:acct-1:7", by sha256sum.
	if got, want := dedup.ShortID("wa:acct-1:7"), "303ca99276cb782d430f9c17"; got != want {
		t.Errorf("ShortID is %q, want %q", got, want)
	}
	for _, bad := range []string{"", "a", "a:b", "a:b:", "a:b:x", "a:b:-1", "a:b:01", "a:b:+1", "a:b:0", ":b:1", "a::1", "a:b:c:1",
		"a%:b:1", "a%3a:b:1", "a%41:b:1", "a:b:18446744073709551616", strings.Repeat("x", 512) + ":b:1"} {
		if _, _, _, err := dedup.ParseMessageID(bad); !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("ParseMessageID(%q): %v", bad, err)
		}
	}
}

func TestMessageIDParsesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a-zA-Z0-9%:3A25é-]{1,40}`)
		biz, account := part.Draw(t, "biz"), part.Draw(t, "account")
		seq := rapid.Uint64Min(1).Draw(t, "seq")
		b, a, s, err := dedup.ParseMessageID(dedup.MessageID(biz, account, seq))
		if err != nil || b != biz || a != account || s != seq {
			t.Fatalf("%q %q %d came back as %q %q %d, %v", biz, account, seq, b, a, s, err)
		}
	})
}

func TestFingerprint(t *testing.T) {
	seen := map[[32]byte]int{}
	for i, fields := range [][][]byte{{}, {{}}, {[]byte("ab")}, {[]byte("a"), []byte("b")}, {[]byte("b"), []byte("a")}, {[]byte("ab"), {}}} {
		f := dedup.Fingerprint(fields...)
		if j, ok := seen[f]; ok || f == ([32]byte{}) {
			t.Errorf("fields %d and %d have one fingerprint", i, j)
		}
		seen[f] = i
	}
	id := dedup.FingerprintID("meta", []byte("entry"), []byte("value"))
	if !strings.HasPrefix(id, "meta/fp/") || len(id) != len("meta/fp/")+32 {
		t.Errorf("got %q", id)
	}
}
