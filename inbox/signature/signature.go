// Package signature verifies webhooks that are signed with an HMAC, so that the
// source of one more provider is a description of what it signs and a function
// that decodes its bodies.
//
// What [Verifier.Verify] accepts was signed with one of your secrets over exactly
// the parts that the [Scheme] lists, and, where the scheme has a time, near enough
// to the arrival. Nothing is guessed: [New] refuses a scheme that does not say how
// a secret becomes a key, that does not cover the body, or that reads a time which
// is not signed.
//
// What is not guaranteed: a scheme without a time (GitHub, Twilio) verifies an old
// delivery that somebody has kept for ever, and within the tolerance every scheme
// does; only the identity of its event tells it from a new one, so take the
// identity from what is signed. A delivery ID in an unsigned header, as GitHub's
// X-GitHub-Delivery, can be changed by whoever sends the delivery again.
//
// # Several signatures, several secrets
//
// A header may carry several signatures while the provider changes its secret, and
// signatures of several versions. One that matches is enough. What is not well
// formed, or of a version that the scheme does not name, is passed over, as
// Stripe's and the Standard Webhooks' own libraries do; when nothing is left the
// delivery is rejected with [inbox.BadSignature]. The header itself must be there
// once.
//
// On your side, several secrets may be live at a time, each from NotBefore to
// NotAfter, judged by d.Received: a delivery that waited in a queue of yours is
// judged by when it came.
//
// # The public URL
//
// Twilio signs the URL to which it sends. Behind a proxy your program sees another
// scheme, host or path than the one the provider was given, so the scheme has to
// state it: [URL] takes the public beginning, such as "https://hooks.example.com",
// and adds the target of the request line, path and query as they came. If the
// proxy takes a prefix off the path, the beginning has it:
// "https://example.com/hooks". Host and X-Forwarded-* headers are never read. Where
// the provider may write the URL in two ways, as Twilio does with the standard
// port, list both.
//
// # Sources
//
// Stripe: https://docs.stripe.com/webhooks/signature.
// GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries.
// Slack: https://docs.slack.dev/authentication/verifying-requests-from-slack.
// Twilio: https://www.twilio.com/docs/usage/webhooks/webhooks-security.
// Repeated form fields and the port: github.com/twilio/twilio-node, src/webhooks/webhooks.ts.
// The examples show each of them.
package signature

import (
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"hash"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// A Scheme says what a provider signs, how, and where the signature stands.
type Scheme struct {
	// Header is the header with the signature or signatures.
	Header string
	// Separator stands between the items of the header: "," or " ". Empty: the
	// header is one item.
	Separator string
	// Prefix is what an item begins with that is a signature of the version to be
	// checked: "sha256=", "v1=", "v1,". Other items are passed over. Empty: every
	// item is a signature.
	Prefix string
	// TimePrefix is what the item begins with that is the time: "t=". Empty: the
	// time, if any, stands in TimeHeader.
	TimePrefix string
	// TimeHeader is the header with the time, in Unix seconds. Empty with an empty
	// TimePrefix: the provider signs no time.
	TimeHeader string

	// Signed are the parts that are signed, one after another.
	Signed []Part
	// Key is how a secret becomes a key. There is no default.
	Key KeyRule
	// Hash is the hash of the HMAC. Zero means SHA-256.
	Hash Hash
	// Encoding is how the signature is written. Zero means hexadecimal digits.
	Encoding Encoding

	// Tolerance is how long ago a delivery may have been signed, by the time of its
	// arrival. Zero means 5 minutes. It has to be longer than what the provider
	// takes to re-send, unless each re-send is signed anew, as by Stripe and the
	// Standard Webhooks.
	Tolerance time.Duration
	// Skew is how far in the future it may have been signed, since clocks differ.
	// Zero means 5 minutes.
	Skew time.Duration
}

// A Hash is the hash function of an HMAC.
type Hash int

// The hashes. An HMAC-SHA1 is not broken by what breaks SHA-1, but use it only
// where the provider has nothing else.
const (
	SHA256 Hash = iota
	SHA1
)

// An Encoding is how the bytes of a signature are written.
type Encoding int

// The encodings: hexadecimal digits in either case, and standard base64 with
// padding.
const (
	Hex Encoding = iota
	Base64
)

// A Verifier checks deliveries by a scheme and secrets. It has the Verify method
// of an [inbox.Source], and can be embedded in one of your own; [NewSource] makes
// one with less. It is safe for concurrent use.
type Verifier struct {
	scheme  Scheme
	secrets []webhook.Secret // Value is the key
	newHash func() hash.Hash
}

// New returns a verifier with 1 to 16 secrets. It fails with [inbox.ErrInvalid] on
// a scheme that is incomplete or contradicts itself, on a secret that the key rule
// cannot read, and on one that is empty or ends before it begins. Scheme and secrets are
// copied. It does no I/O.
func New(s Scheme, secrets ...Secret) (*Verifier, error) {
	s, err := s.checked()
	if err != nil {
		return nil, fmt.Errorf("signature: new: %w: %w", inbox.ErrInvalid, err)
	}
	v := &Verifier{scheme: s, secrets: webhook.Copy(secrets), newHash: s.Hash.new()}
	if err := webhook.CheckSecrets(v.secrets); err != nil {
		return nil, fmt.Errorf("signature: new: %w: %w", inbox.ErrInvalid, err)
	}
	for i := range v.secrets {
		if v.secrets[i].Value, err = s.Key.key(v.secrets[i].Value); err != nil {
			return nil, fmt.Errorf("signature: new: %w: secret %d %w", inbox.ErrInvalid, i+1, err)
		}
	}
	return v, nil
}

// Verify checks the delivery over its raw bytes and returns d.Body. The error is
// an [*inbox.RejectError] with one of these reasons:
//
//   - [inbox.NoSignature]: the header with the signature, the time or another part is missing
//   - [inbox.BadSignature]: such a header is there more than once or is longer than
//     4 KiB, or there is no signature or no time in it that is well formed
//   - [inbox.BadBody]: the parts cannot be read from the body, which is no form
//   - [inbox.WrongSignature]: none of the signatures was made with a secret that was
//     valid when the delivery was received
//   - [inbox.TooOld], [inbox.TooEarly]: authentic, and signed too long ago or in the future
func (v *Verifier) Verify(d *inbox.Delivery) (body []byte, err error) {
	h, err := v.scheme.read(d)
	if err != nil {
		return nil, err
	}
	best := webhook.NoMatch
	for i := range v.scheme.forms() {
		parts, err := v.scheme.parts(d, h.stamp, i)
		if err != nil {
			return nil, err
		}
		best = max(best, webhook.CheckAny(v.newHash, v.secrets, d.Received, h.macs, parts...))
	}
	switch best {
	case webhook.NoMatch:
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: v.scheme.mismatch()}
	case webhook.NotLive:
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with a secret that was not valid when it was received"}
	}
	if !v.scheme.timed() {
		return d.Body, nil
	}
	switch age := d.Received.Sub(h.signed); {
	case age > v.scheme.Tolerance:
		return nil, &inbox.RejectError{Reason: inbox.TooOld, Detail: fmt.Sprintf("%v before it was received, tolerated are %v", age.Round(time.Second), v.scheme.Tolerance)}
	case -age > v.scheme.Skew:
		return nil, &inbox.RejectError{Reason: inbox.TooEarly, Detail: fmt.Sprintf("%v after it was received, tolerated are %v; is the clock right?", -age.Round(time.Second), v.scheme.Skew)}
	}
	return d.Body, nil
}

// mismatch says what may be wrong when no signature matches.
func (s *Scheme) mismatch() string {
	for _, p := range s.Signed {
		if p.kind == partURL {
			return "made with none of the secrets or for another public URL, or the delivery was changed on the way"
		}
	}
	return "made with none of the secrets, or the delivery was changed on the way"
}

// String hides the secrets.
func (v *Verifier) String() string { return "signature.Verifier" }

// GoString hides the secrets.
func (v *Verifier) GoString() string { return "signature.Verifier" }

func (h Hash) new() func() hash.Hash {
	if h == SHA1 {
		return sha1.New
	}
	return sha256.New
}
