package seal_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/seal"
)

func key(id string) seal.Key {
	return seal.Key{ID: id, Secret: bytes.Repeat([]byte(id[:1]), seal.SecretSize)}
}

func ring(t *testing.T, ids ...string) *seal.Ring {
	t.Helper()
	var keys []seal.Key
	for _, id := range ids {
		keys = append(keys, key(id))
	}
	r, err := seal.NewRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func why(t *testing.T, err error) seal.Why {
	t.Helper()
	e := (*seal.OpenError)(nil)
	if !errors.As(err, &e) || !errors.Is(err, seal.ErrSealed) {
		t.Fatalf("the error is %v, not an OpenError", err)
	}
	return e.Why
}

func TestSealAndOpen(t *testing.T) {
	r := ring(t, "a")
	for _, text := range []string{"", "x", strings.Repeat("hello ", 10_000)} {
		sealed := r.Seal("payload", "row 1", []byte(text))
		if len(text) > 1 && bytes.Contains(sealed, []byte("hello")) {
			t.Error("the sealed text can be read")
		}
		if n := len(sealed) - len(text); n > seal.Overhead {
			t.Errorf("sealing %d bytes added %d, more than Overhead", len(text), n)
		}
		got, err := r.Open("payload", "row 1", sealed)
		if err != nil || string(got) != text {
			t.Errorf("opening gave %d bytes, %v", len(got), err)
		}
		if again := r.Seal("payload", "row 1", []byte(text)); bytes.Equal(again, sealed) {
			t.Error("equal texts can be recognised by their sealed form")
		}
	}
}

// What was sealed stays readable: this text was made by version 1.
func TestTheFormatDoesNotChange(t *testing.T) {
	const made = "01016171495815335142aaf5d63e9645ce84d87bb845d0135dc3ba28511619c63217b48f"
	sealed, err := hex.DecodeString(made)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ring(t, "a").Open("payload", "row 1", sealed)
	if err != nil || string(got) != "hello" {
		t.Errorf("a text of version 1 opens as %q, %v (now: %x)", got, err, ring(t, "a").Seal("payload", "row 1", []byte("hello")))
	}
	const digest = "c6615b7f3f46169cb21b4de6021c083f1e99ceeccd4529797b01eb1069ba640a"
	if d := ring(t, "a").Digest("payload", []byte("hello")); hex.EncodeToString(d[:]) != digest {
		t.Errorf("the digest is %x", d)
	}
}

func TestATextIsBoundToItsKindAndRow(t *testing.T) {
	r := ring(t, "a")
	sealed := r.Seal("payload", "row 1", []byte("hello"))
	for _, c := range [][2]string{{"payload", "row 2"}, {"context", "row 1"}, {"payloadr", "ow 1"}, {"", "payloadrow 1"}} {
		if got, err := r.Open(c[0], c[1], sealed); got != nil || why(t, err) != seal.Forged {
			t.Errorf("as %q of %q it opens: %q, %v", c[0], c[1], got, err)
		}
	}
}

func TestEveryChangedBitIsFound(t *testing.T) {
	r := ring(t, "a", "b")
	sealed := r.Seal("payload", "row", []byte("hello"))
	for i := range sealed {
		for bit := range 8 {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1 << bit
			if got, err := r.Open("payload", "row", bad); got != nil || err == nil {
				t.Fatalf("with bit %d of byte %d changed it opens: %q", bit, i, got)
			}
		}
	}
	for n := range sealed {
		if got, err := r.Open("payload", "row", sealed[:n]); got != nil || err == nil {
			t.Fatalf("cut to %d bytes it opens: %q", n, got)
		}
	}
}

func TestKeysAreRotated(t *testing.T) {
	old := ring(t, "old")
	sealed := old.Seal("payload", "row", []byte("hello"))
	both := ring(t, "new", "old")
	if got, err := both.Open("payload", "row", sealed); err != nil || string(got) != "hello" {
		t.Errorf("with the new key in front the old text opens as %q, %v", got, err)
	}
	fresh := both.Seal("payload", "row", []byte("hello"))
	if _, err := old.Open("payload", "row", fresh); why(t, err) != seal.UnknownKey || !strings.Contains(err.Error(), "new") {
		t.Errorf("without its key the new text opens: %v", err)
	}
	if _, err := ring(t, "new").Open("payload", "row", sealed); why(t, err) != seal.UnknownKey {
		t.Errorf("without its key the old text opens: %v", err)
	}
	if old.Digest("k", []byte("x")) != both.Digest("k", []byte("x")) {
		t.Error("a new key in front changes the digests")
	}
	if old.Digest("k", []byte("x")) == ring(t, "new").Digest("k", []byte("x")) {
		t.Error("digests do not depend on the key")
	}
	if old.Digest("k", []byte("x")) == old.Digest("l", []byte("x")) {
		t.Error("digests do not depend on the kind")
	}
	other, err := seal.NewRing([]seal.Key{{ID: "old", Secret: bytes.Repeat([]byte("z"), 32)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open("payload", "row", sealed); why(t, err) != seal.Forged {
		t.Errorf("with another secret of the same ID it opens: %v", err)
	}
}

func TestWhatIsNoSealedText(t *testing.T) {
	r := ring(t, "a")
	for _, s := range []string{"", "\x01", "\x02\x01a" + strings.Repeat("x", 100), `{"json":true}` + strings.Repeat("x", 100), "\x01\x00" + strings.Repeat("x", 100), "\x01\xff" + strings.Repeat("x", 100)} {
		if _, err := r.Open("k", "r", []byte(s)); why(t, err) != seal.Malformed {
			t.Errorf("%.10q: %v", s, err)
		}
	}
}

func TestRingsAreRefused(t *testing.T) {
	many := make([]seal.Key, seal.MaxKeys+1)
	for i := range many {
		many[i] = key(fmt.Sprint("a", i))
	}
	for name, keys := range map[string][]seal.Key{
		"none":         nil,
		"too many":     many,
		"no ID":        {{Secret: key("a").Secret}},
		"an odd ID":    {{ID: "a b", Secret: key("a").Secret}},
		"a short one":  {{ID: "a", Secret: []byte("topsecret")}},
		"a long one":   {{ID: "a", Secret: make([]byte, 33)}},
		"one ID twice": {key("a"), key("a")},
	} {
		r, err := seal.NewRing(keys)
		if r != nil || err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// The ring has its own copy of the secrets.
func TestSecretsAreCopied(t *testing.T) {
	k := key("a")
	r, err := seal.NewRing([]seal.Key{k})
	if err != nil {
		t.Fatal(err)
	}
	sealed := r.Seal("k", "r", []byte("hello"))
	clear(k.Secret)
	if _, err := ring(t, "a").Open("k", "r", sealed); err != nil {
		t.Error(err)
	}
	if _, err := r.Open("k", "r", r.Seal("k", "r", nil)); err != nil {
		t.Error(err)
	}
}

func TestKeysDoNotPrint(t *testing.T) {
	k := seal.Key{ID: "kid", Secret: bytes.Repeat([]byte("s"), 32)}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k, "keys", []seal.Key{k})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", k, "keys", []seal.Key{k})
	asJSON, err := json.Marshal(map[string]any{"k": k})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := seal.NewRing([]seal.Key{k})
	all := fmt.Sprintf("%v %+v %#v %s %q %x %v %+v", k, k, k, k, k, k, []seal.Key{k}, r) + log.String() + string(asJSON)
	for _, s := range []string{"ssss", "115 115", "7373", "0x73", "c3Nz"} {
		if strings.Contains(all, s) {
			t.Errorf("a key prints as %s", all)
		}
	}
}
