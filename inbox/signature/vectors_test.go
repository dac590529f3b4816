package signature_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

// schemeOf gives the scheme of a vector and the moment at which it was signed.
func schemeOf(t *testing.T, v *webhooktest.Vector) (s signature.Scheme, at time.Time, ok bool) {
	second := func(name, prefix string) time.Time {
		value := v.Headers[name]
		for item := range strings.SplitSeq(value, ",") {
			if text, found := strings.CutPrefix(item, prefix); found {
				d, err := time.ParseDuration(text + "s")
				if err != nil {
					t.Fatal(err)
				}
				return time.Unix(0, 0).Add(d)
			}
		}
		t.Fatalf("vector %s has no time", v.ID)
		return time.Time{}
	}
	switch v.Scheme {
	case "github", "meta":
		return github(), time.Unix(0, 0), true
	case "slack":
		return slack(), second("X-Slack-Request-Timestamp", ""), true
	case "stripe":
		return stripe(), second("Stripe-Signature", "t="), true
	case "ycloud":
		return ycloud(), second("YCloud-Signature", "t="), true
	case "standard-webhooks":
		return standard(), second("webhook-timestamp", ""), true
	case "twilio-form":
		return twilioForm(v.Origin()), time.Unix(0, 0), true
	case "twilio-json":
		return twilioJSON(v.Origin()), time.Unix(0, 0), true
	}
	return s, at, false
}

func TestVectors(t *testing.T) {
	for _, v := range webhooktest.Kept(t, "") {
		t.Run(v.ID, func(t *testing.T) {
			s, at, ok := schemeOf(t, &v)
			if !ok {
				t.Fatalf("no scheme %q", v.Scheme)
			}
			verifier, err := signature.New(s, signature.Secret{Value: v.Secret})
			if err != nil {
				t.Fatal(err)
			}
			d := v.Delivery(at)
			body, err := verifier.Verify(d)
			switch v.Expected {
			case "valid":
				if err != nil || string(body) != string(d.Body) {
					t.Fatalf("rejected: %v", err)
				}
			case "invalid":
				wantReason(t, err, inbox.WrongSignature)
			case "invalid header":
				wantReason(t, err, inbox.BadSignature)
			default:
				t.Fatalf("expected %q is not known", v.Expected)
			}
			if !v.Valid() {
				return
			}
			// The same vector with one bit of the body changed is refused.
			d.Body[len(d.Body)/2] ^= 1
			if _, err := verifier.Verify(d); !errors.Is(err, inbox.ErrRejected) {
				t.Errorf("a changed body: %v", err)
			}
		})
	}
}

// Every vector beside the shared bodies has its row: here, or in the package of its
// provider.
func TestNoSchemeWithoutVectors(t *testing.T) {
	elsewhere := map[string]bool{ // in inbox/wechat
		"wechat-signature": true, "wechat-msg-signature": true, "wechat-aes": true, "sha1-sorted-concat": true,
		"wechat-mini-rawdata": true, "wechat-mini-encrypteddata": true,
	}
	var have []string
	for _, v := range webhooktest.Kept(t, "") {
		have = append(have, v.ID)
	}
	for scheme, ids := range webhooktest.SharedSchemes(t) {
		for _, id := range ids {
			if !elsewhere[scheme] && !slices.Contains(have, id) {
				t.Errorf("vector %s of scheme %s has no row", id, scheme)
			}
		}
	}
}

func TestSharedVectors(t *testing.T) {
	for scheme := range webhooktest.SharedSchemes(t) {
		for _, v := range webhooktest.Vectors(t, scheme) {
			s, at, ok := schemeOf(t, &v)
			if !ok {
				continue // TestNoSchemeWithoutVectors says where it is
			}
			verifier, err := signature.New(s, signature.Secret{Value: v.Secret})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verifier.Verify(v.Delivery(at)); (err == nil) != v.Valid() {
				t.Errorf("%s: %v, expected %s", v.ID, err, v.Expected)
			}
		}
	}
}

// The examples' decoders on published bodies; a url_verification is no event.
func TestSharedBodies(t *testing.T) {
	for prefix, decode := range map[string]func([]byte) ([]inbox.Event, error){"stripe-": decodeStripe, "slack-": decodeSlack} {
		for _, b := range webhooktest.Shared(t, prefix) {
			want := map[string]string{
				"stripe-event-01.json": "stripe/evt_test_webhook", "slack-event-callback-01.json": "slack/Ev00000001",
				"slack-url-verification-01.json": "",
			}[b.Name]
			events, err := decode(b.Data)
			if want == "" && err == nil || want != "" && (err != nil || len(events) != 1 || events[0].ID != want) {
				t.Errorf("%s: %+v, %v; want %q", b.Name, events, err, want)
			}
		}
	}
}

func wantReason(t *testing.T, err error, want inbox.Reason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		return
	}
	r, ok := errors.AsType[*inbox.RejectError](err)
	if !ok || r.Reason != want || !errors.Is(err, inbox.ErrRejected) {
		t.Errorf("got %v, want a RejectError: %s", err, want)
	}
}
