// Package ycloud is the inbox source for YCloud's webhook.
//
// What [Source.Verify] accepts was signed with one of your endpoint's secrets over
// exactly these bytes, at a time that is near enough, and [Source.Decode] makes
// one event of it: YCloud sends one envelope per delivery, and an envelope that
// holds several statuses of a group is one event all the same. Types that this
// package does not know are kept.
//
// What is not guaranteed: YCloud promises no order, says that delivered can come
// after failed, and delivers at least once. Within the tolerance an old delivery
// can be sent again by whoever has kept it; only the identity of its event tells
// it from a new one.
//
// # Identities
//
//	ycloud/<event id>
//	ycloud/fp/<32 hex digits>   an envelope without an ID
//
// Each status of a message has an event ID of its own. Two of your endpoints that
// subscribe to one type get the same event ID: in one box that is one event.
//
// The digest of an envelope without an ID covers its type and its bytes
// (Fingerprinted is set): two such envelopes that are alike are taken for one. An
// ID that would make the identity longer than 512 bytes, that has control
// characters or is not UTF-8, or that begins with "fp/" or "raw/", is replaced by a
// digest of the ID in the same form.
//
// # Ordering keys
//
//	ycloud/<business number>/<person>   digits; the person's user ID where there is no number
//	ycloud/<account>                    events about no person
//
// # Age
//
// The signature covers a time, and a receiver should refuse old ones. YCloud's
// guide shows 5 minutes as an example, and does not say whether a re-send is
// signed with a new time. If it is not, 5 minutes would refuse every re-send from
// the third on, which comes after 340 seconds: an event lost. So the default is
// [Horizon]. Measure with [SignedAt] what arrives before you set
// Options.Tolerance to less.
//
// # Sources
//
// https://docs.ycloud.com/en/api-reference/guides/api-fundamentals/configure-webhooks
// (envelope, re-sends),
// https://docs.ycloud.com/en/api-reference/guides/api-fundamentals/implement-a-webhook-receiver
// (signature), https://docs.ycloud.com/reference/webhook-events-payloads (types).
package ycloud

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Horizon is how long YCloud re-sends a delivery that was not answered with 2xx:
// after 10 s, 30 s, 5 min, 30 min, 1 h, 2 h and 2 h, together 5 h 36 min, rounded
// up.
const Horizon = 6 * time.Hour

// A Source is YCloud's webhook: an [inbox.Source]. It is safe for concurrent use.
type Source struct {
	secrets         []webhook.Secret
	tolerance, skew time.Duration
}

// Options set up a [Source].
type Options struct {
	// Secrets are those of the webhook endpoint, 1 to 16: the present one and,
	// while it is being changed, the next or the last.
	Secrets []Secret

	// Tolerance is how long ago a delivery may have been signed, by the time of
	// its arrival. Zero means Horizon; see the package's "Age".
	Tolerance time.Duration

	// Skew is how far in the future it may have been signed, since clocks differ.
	// Zero means 5 minutes.
	Skew time.Duration
}

// A Secret is one endpoint's secret. It prints as "[secret]".
type Secret struct {
	// Value is the whole secret, "whsec_" included. It is used as it stands and
	// is not the base64 key that the same prefix means in Standard Webhooks.
	Value string
	// Deliveries received before NotBefore or after NotAfter are not checked with
	// it. Zero: no such limit.
	NotBefore, NotAfter time.Time
}

// New returns a source. It fails with [inbox.ErrInvalid] without a secret, on an
// empty secret, on a secret that ends before it begins and on negative durations.
// The options are copied. It does no I/O.
func New(opts *Options) (*Source, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := &Source{secrets: webhook.Copy(o.Secrets), tolerance: o.Tolerance, skew: o.Skew}
	if err := webhook.CheckSecrets(s.secrets); err != nil {
		return nil, fmt.Errorf("ycloud: new: %w: %w", inbox.ErrInvalid, err)
	}
	if s.tolerance < 0 || s.skew < 0 {
		return nil, fmt.Errorf("ycloud: new: %w: negative tolerance %v or skew %v", inbox.ErrInvalid, s.tolerance, s.skew)
	}
	if s.tolerance == 0 {
		s.tolerance = Horizon
	}
	if s.skew == 0 {
		s.skew = 5 * time.Minute
	}
	return s, nil
}

// Provider returns "ycloud".
func (s *Source) Provider() string { return provider }

const provider = "ycloud"

// Horizon returns [Horizon].
func (s *Source) Horizon() time.Duration { return Horizon }

// Verify checks YCloud-Signature, "t=" and the Unix time of the signature, "s="
// and 64 hexadecimal digits: the HMAC-SHA256 of the time as written, a period and
// the raw body, with every secret that is valid at d.Received. It returns d.Body.
// The error is an [*inbox.RejectError]: no signature, a malformed one (also when
// the header, t or s comes twice), a wrong one, or an authentic one that is too
// old or from the future. Other parts of the header are passed over.
func (s *Source) Verify(d *inbox.Delivery) (body []byte, err error) {
	lines := d.Header.Values(header)
	if len(lines) == 0 {
		return nil, &inbox.RejectError{Reason: inbox.NoSignature, Detail: header + " is missing"}
	}
	t, mac, ok := parse(lines)
	if !ok {
		return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: header + " is not one line of t= and a Unix time, s= and 64 hexadecimal digits"}
	}
	signed, _ := webhook.Seconds(t)
	switch webhook.Check(s.secrets, d.Received, mac, []byte(t), []byte("."), d.Body) {
	case webhook.NoMatch:
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with none of the secrets, or the body was changed on the way"}
	case webhook.NotLive:
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with a secret that was not valid when it was received"}
	}
	switch age := d.Received.Sub(signed); {
	case age > s.tolerance:
		return nil, &inbox.RejectError{Reason: inbox.TooOld, Detail: fmt.Sprintf("%v before it was received, tolerated are %v", age.Round(time.Second), s.tolerance)}
	case -age > s.skew:
		return nil, &inbox.RejectError{Reason: inbox.TooEarly, Detail: fmt.Sprintf("%v after it was received, tolerated are %v; is the clock right?", -age.Round(time.Second), s.skew)}
	}
	return d.Body, nil
}

const header = "YCloud-Signature"

// SignedAt returns the time in the signature's header, which says something only
// of a delivery that Verify has accepted: the age of what arrives, to be measured
// before a Tolerance is chosen.
func SignedAt(h http.Header) (at time.Time, ok bool) {
	t, _, ok := parse(h.Values(header))
	if !ok {
		return time.Time{}, false
	}
	return webhook.Seconds(t)
}

// Sign returns the value of YCloud-Signature that YCloud would send with the body
// at that time, for tests and for whoever plays YCloud's part.
func Sign(secret string, at time.Time, body []byte) (value string) {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",s=" + hex.EncodeToString(webhook.Sum(secret, []byte(t), []byte("."), body))
}

// parse returns the time as it is written, since that is what was signed.
func parse(lines []string) (t string, mac []byte, ok bool) {
	if len(lines) != 1 || len(lines[0]) > maxHeader {
		return "", nil, false
	}
	var s string
	for part := range strings.SplitSeq(lines[0], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "t" && t == "":
			t = value
		case name == "s" && s == "":
			s = value
		case name == "t" || name == "s":
			return "", nil, false
		}
	}
	mac, ok = webhook.Hex(s)
	_, isTime := webhook.Seconds(t)
	return t, mac, ok && isTime
}

const maxHeader = 1024

// String hides the secret.
func (Secret) String() string { return webhook.Redacted }

// GoString hides the secret.
func (Secret) GoString() string { return webhook.Redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return webhook.RedactedLog() }

// MarshalText hides the secret, also from those who log options as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(webhook.Redacted), nil }

// String hides the secrets.
func (s *Source) String() string { return "ycloud.Source" }

// GoString hides the secrets.
func (s *Source) GoString() string { return "ycloud.Source" }

var _ inbox.Source = (*Source)(nil)
