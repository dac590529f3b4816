// Package standardwebhooks is the inbox source for every provider that sends by the
// Standard Webhooks specification, such as OpenAI and those that send through Svix
// under the names of the specification.
//
// What [Source.Verify] accepts was signed with one of your endpoint's secrets over
// webhook-id, webhook-timestamp and exactly these bytes, at a time that is near
// enough, and [Source.Decode] makes one event of it, whatever its type.
//
// What is not guaranteed: the specification promises no order. Within the tolerance
// an old delivery can be sent again by whoever has kept it; only the identity of its
// event tells it from a new one. Signatures with ed25519 (v1a) are passed over: a
// delivery that has no other is rejected.
//
// # Identities
//
//	<provider>/<webhook-id>
//
// The specification makes webhook-id the idempotency key: it is signed, names the
// event and stays the same however often a delivery is repeated. An ID that would
// make the identity longer than 512 bytes, that has control characters or is not
// UTF-8, or that begins with "fp/" or "raw/", is replaced by a digest of it,
// <provider>/fp/<32 hex digits>.
//
// The same ID with another body is a conflict, and the box keeps and lists it.
//
// ID, time and body are signed with periods between them, so an ID with a period in
// it can be divided differently by whoever sends an authentic delivery again: what
// he moves to the body stands before its JSON, which is then not decoded but kept in
// quarantine. The specification asks providers for IDs without periods.
//
// # The ID on its way
//
// [Source.Verify] hands the ID to [Source.Decode] as a first line, "webhook-id: "
// and the ID, before an empty line and the body. So the body in quarantine has it
// too, and can be decoded later. The payload of an event is the provider's body
// without it.
//
// # Age
//
// The time is that of the attempt and is new with every re-send, so a tolerance of 5
// minutes loses nothing. The event's own time is the "timestamp" in the body.
//
// # Source
//
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
package standardwebhooks

import (
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
)

// Horizon is how long a provider that follows the example of the specification
// re-sends a delivery that was not answered with 2xx: the last of ten attempts is
// made after 75 hours, 35 minutes and 5 seconds; rounded up.
const Horizon = 76 * time.Hour

// A Source is the webhook of one provider: an [inbox.Source]. It is safe for
// concurrent use if Options.Key is.
type Source struct {
	verifier *signature.Verifier
	provider string
	horizon  time.Duration
	key      func(inbox.Event) string
}

// Options set up a [Source].
type Options struct {
	// Provider is the provider's name, "openai", and the first part of every
	// identity: A-Z, a-z, 0-9, point, hyphen and underscore, at most 64 bytes. It
	// never changes, since identities are stored.
	Provider string

	// Secrets are those of the webhook endpoint, 1 to 16: the present one and, while
	// it is being changed, the next or the last.
	Secrets []Secret

	// Horizon is how long the provider re-sends; see its documentation. Zero means
	// the constant Horizon.
	Horizon time.Duration

	// Tolerance is how long ago a delivery may have been signed, and Skew how far in
	// the future, by the time of its arrival. Zero means 5 minutes.
	Tolerance, Skew time.Duration

	// Key returns what an event is ordered by, such as the customer in its data. It
	// gets the event without a key, and must not change it. The ordering key is the
	// provider and what it returns. Nil or "": the event is ordered with no other.
	// When it panics, the body is kept in quarantine.
	Key func(inbox.Event) string
}

// A Secret is one endpoint's secret, "whsec_" and base64. It prints as "[secret]".
type Secret = signature.Secret

// New returns a source. It fails with [inbox.ErrInvalid] on a provider's name
// outside its range, without a secret, on a secret that is not "whsec_" and base64
// or ends before it begins, and on negative durations. The options are copied. It
// does no I/O.
func New(opts *Options) (*Source, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := &Source{provider: o.Provider, horizon: o.Horizon, key: o.Key}
	if s.horizon == 0 {
		s.horizon = Horizon
	}
	if !validName(o.Provider) || o.Horizon < 0 {
		return nil, fmt.Errorf("standardwebhooks: new: %w: provider of %d bytes, not [A-Za-z0-9._-]{1,64}, or negative horizon %v",
			inbox.ErrInvalid, len(o.Provider), o.Horizon)
	}
	scheme := scheme
	scheme.Tolerance, scheme.Skew = o.Tolerance, o.Skew
	v, err := signature.New(scheme, o.Secrets...)
	if err != nil {
		return nil, fmt.Errorf("standardwebhooks: new: %w", err)
	}
	s.verifier = v
	return s, nil
}

// scheme is the specification's.
var scheme = signature.Scheme{
	Header: "webhook-signature", Separator: " ", Prefix: "v1,", TimeHeader: "webhook-timestamp",
	Signed: []signature.Part{
		signature.Header(header), signature.Text("."), signature.Time(), signature.Text("."), signature.Body(),
	},
	Key:      signature.KeyBase64AfterPrefix("whsec_"),
	Encoding: signature.Base64,
}

const header = "webhook-id"

// Provider returns Options.Provider.
func (s *Source) Provider() string { return s.provider }

// Horizon returns Options.Horizon or its default.
func (s *Source) Horizon() time.Duration { return s.horizon }

// Verify checks webhook-signature, a list of "v1," and the HMAC-SHA256 in base64 of
// webhook-id, webhook-timestamp and the raw body, with every secret that is valid at
// d.Received. One signature that matches is enough; what is malformed and other
// versions are passed over. It returns the ID and the body, for [Source.Decode]. The
// error is that of [signature.Verifier.Verify].
func (s *Source) Verify(d *inbox.Delivery) (body []byte, err error) {
	if body, err = s.verifier.Verify(d); err != nil {
		return nil, err
	}
	return seal(d.Header.Get(header), body)
}

// Sign puts the headers on a delivery that the provider would send with it under an
// ID at that time, for tests and for whoever plays the provider's part.
func Sign(secret, id string, at time.Time, d *inbox.Delivery) error {
	if d.Header == nil {
		d.Header = make(http.Header)
	}
	d.Header.Set(header, id)
	return scheme.Sign(secret, at, d)
}

// String hides the secrets.
func (s *Source) String() string { return "standardwebhooks.Source" }

// GoString hides the secrets.
func (s *Source) GoString() string { return "standardwebhooks.Source" }

var _ inbox.Source = (*Source)(nil)
