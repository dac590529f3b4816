// Package seal encrypts what is stored, so that whoever can read the store cannot
// read the bodies in it, and whoever can write it cannot make up or exchange them.
//
// A sealed text is bound to what it is (the kind) and to where it belongs (the
// row): opened as another kind or for another row, it is refused. AES-256-GCM under
// a subkey of each kind and row, which HKDF-SHA256 (RFC 5869) derives from a key of
// the ring; the nonce is random, and a subkey seals so few texts that 96 bits of it
// do not repeat.
//
// What is not hidden: the length of the text, and which key sealed it. An old text
// of the same kind and row can be put in place of a newer one.
//
// The format, which begins with its version:
//
//	1 | length of the key's ID | key's ID | nonce (12) | ciphertext and tag (16)
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
)

// A Key is a secret of 32 random bytes and the name by which sealed texts refer to
// it, which is stored in clear: 1 to 64 bytes of [A-Za-z0-9._-]. It prints as
// [Redacted].
type Key struct {
	ID     string
	Secret []byte
}

// Redacted is what keys print instead of themselves.
const Redacted = "[secret]"

// String hides the key.
func (Key) String() string { return Redacted }

// GoString hides the key.
func (Key) GoString() string { return Redacted }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalText hides the key.
func (Key) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// A Ring is the keys that are in use: the first seals, all of them open, and the
// last makes digests. It is safe for concurrent use.
type Ring struct {
	keys []*derived
}

// derived is what is kept of a key: the secret of HKDF's first half.
type derived struct {
	id  string
	prk []byte
}

const (
	version = 1
	// MaxKeys is how many keys a ring has at most.
	MaxKeys = 16
	// SecretSize is the length of a key in bytes.
	SecretSize = 32
	// Overhead is how much longer a sealed text is at most.
	Overhead = 2 + maxName + nonceSize + 16

	maxName   = 64
	nonceSize = 12
)

// NewRing returns a ring of 1 to [MaxKeys] keys with names of their own. It copies
// the secrets. Its errors name keys and no secrets.
func NewRing(keys []Key) (*Ring, error) {
	if len(keys) < 1 || len(keys) > MaxKeys {
		return nil, fmt.Errorf("%d keys, not 1 to %d", len(keys), MaxKeys)
	}
	r := &Ring{}
	for i, k := range keys {
		switch {
		case !validName(k.ID):
			return nil, fmt.Errorf("key %d has an ID of %d bytes, not [A-Za-z0-9._-]{1,%d}", i+1, len(k.ID), maxName)
		case len(k.Secret) != SecretSize:
			return nil, fmt.Errorf("key %s has %d bytes, not %d random ones", k.ID, len(k.Secret), SecretSize)
		case r.key(k.ID) != nil:
			return nil, fmt.Errorf("two keys have the ID %s", k.ID)
		}
		prk, err := hkdf.Extract(sha256.New, k.Secret, []byte("pawl/seal/1"))
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, &derived{k.ID, prk})
	}
	return r, nil
}

// Seal encrypts a text under the first key.
func (r *Ring) Seal(kind, row string, text []byte) []byte {
	k := r.keys[0]
	head := header(k.id)
	out := make([]byte, len(head)+nonceSize, len(head)+nonceSize+len(text)+16)
	copy(out, head)
	nonce := out[len(head):]
	rand.Read(nonce) // never fails, says its documentation
	return k.aead(kind, row).Seal(out, nonce, text, bound(head, kind, row))
}

// Open decrypts what Seal has made for the same kind and row, under whichever key
// of the ring. The error is a [*OpenError].
func (r *Ring) Open(kind, row string, sealed []byte) ([]byte, error) {
	if len(sealed) < 2 || sealed[0] != version {
		return nil, &OpenError{Why: Malformed}
	}
	n := 2 + int(sealed[1])
	if len(sealed) < n+nonceSize+16 || !validName(string(sealed[2:n])) {
		return nil, &OpenError{Why: Malformed}
	}
	head, nonce, text := sealed[:n], sealed[n:n+nonceSize], sealed[n+nonceSize:]
	k := r.key(string(head[2:]))
	if k == nil {
		return nil, &OpenError{Why: UnknownKey, KeyID: string(head[2:])}
	}
	plain, err := k.aead(kind, row).Open(nil, nonce, text, bound(head, kind, row))
	if err != nil {
		return nil, &OpenError{Why: Forged, KeyID: k.id}
	}
	return plain, nil
}

// Digest is an HMAC-SHA256 of a text under the last key of the ring, which is the
// one that changes last: equal texts have equal digests until it does, and nobody
// without it can tell by trying which text a digest is of.
func (r *Ring) Digest(kind string, text []byte) (d [32]byte) {
	h := hmac.New(sha256.New, r.keys[len(r.keys)-1].subkey("digest", kind, ""))
	h.Write(text)
	h.Sum(d[:0])
	return d
}

// Why says why a text could not be opened.
type Why uint8

// The reasons.
const (
	Malformed  Why = iota + 1 // it is not a sealed text, or one of a later version
	UnknownKey                // its key is not in the ring
	Forged                    // it was changed, or belongs elsewhere
)

// An OpenError says why a text could not be opened. It holds nothing of the text.
type OpenError struct {
	Why   Why
	KeyID string // empty if Malformed
}

func (e *OpenError) Error() string {
	switch e.Why {
	case UnknownKey:
		return fmt.Sprintf("sealed under the key %s, which is not in the ring: put it back behind the others", e.KeyID)
	case Forged:
		return fmt.Sprintf("sealed under the key %s, and was changed since or belongs to another row", e.KeyID)
	}
	return "not a sealed text of a known version"
}

// Is reports whether target is [ErrSealed].
func (e *OpenError) Is(target error) bool { return target == ErrSealed }

// ErrSealed is what every [OpenError] is.
var ErrSealed = errors.New("sealed text cannot be opened")

func (r *Ring) key(id string) *derived {
	for _, k := range r.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}

func header(id string) []byte { return append([]byte{version, byte(len(id))}, id...) }

// bound is what is authenticated beside the text.
func bound(head []byte, kind, row string) []byte {
	return appendText(appendText(append([]byte(nil), head...), kind), row)
}

func (k *derived) aead(kind, row string) cipher.AEAD {
	block, err := aes.NewCipher(k.subkey("seal", kind, row))
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block has 16 bytes
	}
	return aead
}

func (k *derived) subkey(use, kind, row string) []byte {
	info := appendText(appendText(appendText(nil, use), kind), row)
	sub, err := hkdf.Expand(sha256.New, k.prk, string(info), 32)
	if err != nil {
		panic(err) // 32 bytes are never too many
	}
	return sub
}

// appendText appends a text so that no two lists of texts look alike.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func validName(s string) bool {
	if len(s) < 1 || len(s) > maxName {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
