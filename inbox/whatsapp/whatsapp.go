// Package whatsapp is the inbox source for the WhatsApp Business webhook of
// Meta's Cloud API.
//
// What [Source.Verify] accepts was signed with one of your app secrets over
// exactly these bytes, and [Source.Decode] makes one event of every update in
// the body: each element of messages, statuses, message_echoes, calls, groups,
// state_sync and of the messages in the threads of history, in every change of
// every entry; a change without any of them is one event. Types and fields that
// this package does not know are kept. A part that cannot be decoded costs
// nothing of the rest: the events come with an error, and the box keeps the body.
//
// What is not guaranteed: Meta signs no time, so an old delivery that somebody
// has kept verifies for ever, and only the identities of its events tell it from
// a new one. Meta promises no order; the order within a key is that of arrival.
// The timestamp of a status is when the notification was made, in whole seconds.
//
// # Identities
//
//	meta/<field>/<array>/<id>                                messages, echoes, calls, history
//	meta/<field>/statuses/<id>/<status>/<participant or ->   statuses
//	meta/fp/<32 hex digits>                                  everything without an ID
//
// A message ID alone is not enough: the same one comes with every status, once
// per participant of a group, and in history first as a placeholder (array
// history) and later with its media (array messages). IDs stand as they are,
// slashes included; in field, status and participant % and / are written %25 and
// %2F, so that different events never share an identity. A status without its
// status has no identity of its own, and is treated as an event without an ID.
//
// The digest of an event without ID covers the entry's ID and time, the field,
// the array and the element's bytes (Fingerprinted is set): two such events with
// the same bytes in the same second are taken for one. Account, template, phone
// number, preference, group and contact events are of this kind. An ID that would
// make the identity longer than 512 bytes, or that has control characters or is
// not UTF-8, is replaced by a digest of the ID in the same form.
//
// All events of a call carry the call's one ID. The box therefore takes a call's
// terminate, which has the ID of its connect, for a conflict: it is kept and
// listed, and no handler ever sees it. List the conflicts to learn how calls ended.
//
// The test button of the App Dashboard sends the same message ID every time,
// ABGGFlA5Fpa, under the entry 0, so the second press is a duplicate of the first.
// It hides no real event, whose ID or entry is another, and no test of another
// field.
//
// # Ordering keys
//
//	meta/<business number>/<person>   digits; the person's user ID where there is no number
//	meta/<account>                    events about no person
//
// The person is the one of sender and recipient who is not the business. Someone
// whose number is hidden has the business-scoped user ID (BSUID) as key; when a
// body shows a number where an earlier one did not, the key changes.
//
// # Sources
//
// Handshake, signature, batches and re-sends:
// https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/create-webhook-endpoint.
// Statuses: https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/status.
// User IDs: https://developers.facebook.com/documentation/business-messaging/whatsapp/business-scoped-user-ids.
// The identities are this package's own, since Meta gives none.
package whatsapp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Horizon is how long Meta re-sends a delivery that was not answered with 200:
// "with decreasing frequency over the next 7 days". Older pages of Meta say 36
// hours.
const Horizon = 7 * 24 * time.Hour

// A Source is Meta's webhook: an [inbox.Source] and [inbox.Handshaker]. It is
// safe for concurrent use.
type Source struct {
	secrets []webhook.Secret
	token   string
}

// Options set up a [Source].
type Options struct {
	// Secrets are the app secrets, 1 to 16: the present one and, while it is being
	// changed, the next or the last.
	Secrets []Secret

	// VerifyToken is the token that you enter in the App Dashboard beside the URL.
	// Empty: the handshake is refused.
	VerifyToken string
}

// A Secret is one app secret. It prints as "[secret]".
type Secret struct {
	Value string
	// Deliveries received before NotBefore or after NotAfter are not checked with
	// it. Zero: no such limit.
	NotBefore, NotAfter time.Time
}

// New returns a source. It fails with [inbox.ErrInvalid] without a secret, on an
// empty secret and on a secret that ends before it begins. The options are copied.
// It does no I/O.
func New(opts *Options) (*Source, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := &Source{secrets: webhook.Copy(o.Secrets), token: o.VerifyToken}
	if err := webhook.CheckSecrets(s.secrets); err != nil {
		return nil, fmt.Errorf("whatsapp: new: %w: %w", inbox.ErrInvalid, err)
	}
	return s, nil
}

// Provider returns "meta".
func (s *Source) Provider() string { return provider }

const provider = "meta"

// Horizon returns [Horizon].
func (s *Source) Horizon() time.Duration { return Horizon }

// Verify checks X-Hub-Signature-256, "sha256=" and the 64 hexadecimal digits of
// the HMAC-SHA256 of the raw body, with every secret that is valid at
// d.Received. It returns d.Body. The error is an [*inbox.RejectError]: no
// signature, a malformed one (also when the header comes twice, since nothing
// says which one counts) or a wrong one.
//
// Meta signs the body with its characters outside ASCII escaped. They are escaped
// on the wire, too, so hand over the bytes as they came.
func (s *Source) Verify(d *inbox.Delivery) (body []byte, err error) {
	lines := d.Header.Values(header)
	if len(lines) == 0 {
		return nil, &inbox.RejectError{Reason: inbox.NoSignature, Detail: header + " is missing"}
	}
	if len(lines) > 1 {
		return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: header + " is there more than once"}
	}
	digits, found := strings.CutPrefix(lines[0], scheme)
	mac, ok := webhook.Hex(digits)
	if !found || !ok {
		return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: header + " is not sha256= and 64 hexadecimal digits"}
	}
	switch webhook.Check(s.secrets, d.Received, mac, d.Body) {
	case webhook.LiveMatch:
		return d.Body, nil
	case webhook.NotLive:
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with a secret that was not valid when it was received"}
	}
	return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with none of the app secrets, or the body was changed on the way"}
}

const (
	header = "X-Hub-Signature-256"
	scheme = "sha256="
)

// Sign returns the value of X-Hub-Signature-256 that Meta would send with the
// body, for tests and for whoever plays Meta's part.
func Sign(secret string, body []byte) (value string) {
	return scheme + hex.EncodeToString(webhook.Sum(secret, body))
}

// Handshake answers Meta's GET request, which proves that the endpoint is yours:
// the value of hub.challenge, byte for byte, when hub.mode is "subscribe" and
// hub.verify_token is the configured token. The error is an
// [*inbox.RejectError] with the reason [inbox.BadHandshake]; answer it with 403.
func (s *Source) Handshake(d *inbox.Delivery) (answer []byte, err error) {
	mode, modeOK := one(d.Query, "hub.mode")
	token, tokenOK := one(d.Query, "hub.verify_token")
	challenge, challengeOK := one(d.Query, "hub.challenge")
	var detail string
	switch {
	case s.token == "":
		detail = "no verify token is configured"
	case !modeOK || mode != "subscribe":
		detail = "hub.mode is not subscribe"
	case !tokenOK || !equal(token, s.token):
		detail = "hub.verify_token is not the configured one"
	case !challengeOK || challenge == "" || len(challenge) > maxChallenge:
		detail = "hub.challenge is missing, repeated or too long"
	default:
		return []byte(challenge), nil
	}
	return nil, &inbox.RejectError{Reason: inbox.BadHandshake, Detail: detail}
}

const maxChallenge = 1024 // Meta's is an integer

func one(q url.Values, name string) (value string, ok bool) {
	if v := q[name]; len(v) == 1 {
		return v[0], true
	}
	return "", false
}

// equal compares in a time that does not depend on the texts or their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// String hides the secret.
func (Secret) String() string { return webhook.Redacted }

// GoString hides the secret.
func (Secret) GoString() string { return webhook.Redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return webhook.RedactedLog() }

// MarshalText hides the secret, also from those who log options as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(webhook.Redacted), nil }

// String hides the secrets.
func (s *Source) String() string { return "whatsapp.Source" }

// GoString hides the secrets.
func (s *Source) GoString() string { return "whatsapp.Source" }

var (
	_ inbox.Source     = (*Source)(nil)
	_ inbox.Handshaker = (*Source)(nil)
)
