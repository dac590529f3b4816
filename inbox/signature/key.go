package signature

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/webhook"
)

// A Secret is one of the provider's secrets, as the provider shows it. It prints
// as "[secret]".
type Secret struct {
	Value string
	// Deliveries received before NotBefore or after NotAfter are not checked with
	// it. Zero: no such limit.
	NotBefore, NotAfter time.Time
}

// A KeyRule is how a secret becomes the key of the HMAC. The same prefix means
// different things: "whsec_" is part of the key at Stripe and YCloud, and marks
// base64 in Standard Webhooks. So the rule is stated and never guessed; the zero
// rule is refused.
type KeyRule struct {
	kind   keyKind
	prefix string
}

// KeyUTF8 uses the whole secret as it stands, any prefix included.
func KeyUTF8() KeyRule { return KeyRule{kind: keyUTF8} }

// KeyBase64AfterPrefix takes the prefix off and decodes the rest as standard
// base64 with padding. A secret without the prefix is refused.
func KeyBase64AfterPrefix(prefix string) KeyRule { return KeyRule{kind: keyBase64, prefix: prefix} }

type keyKind int

const (
	keyUTF8 keyKind = iota + 1
	keyBase64
)

// key applies the rule. The error names nothing of the secret.
func (r KeyRule) key(secret string) (key string, err error) {
	if r.kind == keyUTF8 {
		return secret, nil
	}
	rest, ok := strings.CutPrefix(secret, r.prefix)
	if !ok {
		return "", errors.New("does not begin with " + r.prefix)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) == 0 {
		return "", errors.New("is not base64 behind its prefix")
	}
	return string(b), nil
}

// String hides the secret.
func (Secret) String() string { return webhook.Redacted }

// GoString hides the secret.
func (Secret) GoString() string { return webhook.Redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return webhook.RedactedLog() }

// MarshalText hides the secret, also from those who log options as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(webhook.Redacted), nil }
