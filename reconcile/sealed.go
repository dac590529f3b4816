package reconcile

import (
	"fmt"
	"log/slog"

	"github.com/pawl-go/pawl/internal/seal"
)

// A Key seals payloads and results at rest: AES-256-GCM under a subkey of each row, bound
// to kind and key of the operation. ID is [A-Za-z0-9._-]{1,64} and stands in the row;
// Secret is 32 random bytes.
type Key seal.Key

// String hides the secret.
func (Key) String() string { return seal.Redacted }

// GoString hides the secret.
func (Key) GoString() string { return seal.Redacted }

// LogValue hides the secret.
func (Key) LogValue() slog.Value { return slog.StringValue(seal.Redacted) }

// MarshalText hides the secret.
func (Key) MarshalText() ([]byte, error) { return []byte(seal.Redacted), nil }

// ErrSealed says that a payload or a result cannot be opened: its key is not among
// Options.Keys, or it was changed. It is still in the store.
var ErrSealed = seal.ErrSealed

func newRing(keys []Key) (*seal.Ring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	own := make([]seal.Key, len(keys))
	for i, k := range keys {
		own[i] = seal.Key(k)
	}
	ring, err := seal.NewRing(own)
	if err != nil {
		return nil, invalid("keys: %v", err)
	}
	return ring, nil
}

// What is sealed says what it is, so that a payload cannot stand for a result.
const (
	sealPayload = "reconcile payload "
	sealResult  = "reconcile result "
)

// seal returns a text as it is stored. Nothing stays nothing.
func (l *Ledger) seal(what, key string, text []byte) []byte {
	if l.ring == nil || len(text) == 0 {
		return text
	}
	return l.ring.Seal(what+l.opts.Kind, key, text)
}

// open opens payload and result of an entry. What cannot be opened is nil then.
func (l *Ledger) open(e *Entry) error {
	if l.ring == nil {
		return nil
	}
	var failed error
	for what, text := range map[string]*[]byte{sealPayload: &e.Payload, sealResult: &e.Result} {
		if len(*text) == 0 {
			continue
		}
		plain, err := l.ring.Open(what+l.opts.Kind, e.Key, *text)
		if err != nil {
			failed = fmt.Errorf("reconcile: %s: %w", short(e.Key), err)
		}
		*text = plain
	}
	return failed
}
