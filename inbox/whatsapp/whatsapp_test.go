package whatsapp_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
)

const (
	secret = "app-secret-of-the-tests"
	token  = "verify-token-of-the-tests"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func source(t testing.TB) *whatsapp.Source {
	t.Helper()
	s, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: secret}}, VerifyToken: token})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mac is computed without the package under test.
func mac(key, body string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(body))
	return hex.EncodeToString(h.Sum(nil))
}

func TestVerify(t *testing.T) {
	const body = `{"object":"x","text":"\u00e4 \/ é"}`
	good := mac(secret, body)
	for _, test := range []struct {
		name   string
		header []string
		body   string
		want   inbox.Reason
	}{
		{"good", []string{"sha256=" + good}, body, ""},
		{"upper case digits", []string{"sha256=" + strings.ToUpper(good)}, body, ""},
		{"empty body", []string{"sha256=" + mac(secret, "")}, "", ""},
		{"none", nil, body, inbox.NoSignature},
		{"empty", []string{""}, body, inbox.BadSignature},
		{"no scheme", []string{good}, body, inbox.BadSignature},
		{"other scheme", []string{"sha1=" + good}, body, inbox.BadSignature},
		{"scheme in upper case", []string{"SHA256=" + good}, body, inbox.BadSignature},
		{"short", []string{"sha256=" + good[:62]}, body, inbox.BadSignature},
		{"long", []string{"sha256=" + good + "00"}, body, inbox.BadSignature},
		{"not hexadecimal", []string{"sha256=" + good[:62] + "zz"}, body, inbox.BadSignature},
		{"space behind", []string{"sha256=" + good + " "}, body, inbox.BadSignature},
		{"twice the same", []string{"sha256=" + good, "sha256=" + good}, body, inbox.BadSignature},
		{"a wrong one first", []string{"sha256=" + mac("x", body), "sha256=" + good}, body, inbox.BadSignature},
		{"two in a line", []string{"sha256=" + good + ",sha256=" + good}, body, inbox.BadSignature},
		{"other secret", []string{"sha256=" + mac("x", body)}, body, inbox.WrongSignature},
		{"other body", []string{"sha256=" + good}, body + " ", inbox.WrongSignature},
		{"body decoded and encoded again", []string{"sha256=" + good}, `{"object":"x","text":"ä / é"}`, inbox.WrongSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &inbox.Delivery{Header: http.Header{}, Body: []byte(test.body), Received: now}
			for _, h := range test.header {
				d.Header.Add("x-hub-signature-256", h)
			}
			got, err := source(t).Verify(d)
			checkReason(t, err, test.want)
			if err == nil && string(got) != test.body {
				t.Error("Verify returned another body")
			}
			if err != nil && got != nil {
				t.Error("Verify returned a body with an error")
			}
		})
	}
}

func checkReason(t *testing.T, err error, want inbox.Reason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		return
	}
	r, ok := errors.AsType[*inbox.RejectError](err)
	if !ok {
		t.Fatalf("got %v, want a RejectError: %s", err, want)
	}
	if r.Reason != want || !errors.Is(err, inbox.ErrRejected) {
		t.Errorf("reason %q, want %q", r.Reason, want)
	}
	for _, s := range []string{secret, token} {
		if strings.Contains(err.Error(), s) {
			t.Errorf("the error names a secret")
		}
	}
}

func TestVerifySecretsInTurn(t *testing.T) {
	day := 24 * time.Hour
	s, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{
		{Value: "old", NotAfter: now},
		{Value: "new", NotBefore: now.Add(-day)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		secret string
		at     time.Time
		want   inbox.Reason
	}{
		{"old", now.Add(-2 * day), ""},
		{"new", now.Add(-2 * day), inbox.WrongSignature},
		{"old", now.Add(-day), ""},
		{"new", now.Add(-day), ""},
		{"old", now, ""},
		{"old", now.Add(1), inbox.WrongSignature},
		{"new", now.Add(1), ""},
		{"other", now, inbox.WrongSignature},
	} {
		d := &inbox.Delivery{Header: http.Header{}, Body: []byte("{}"), Received: test.at}
		d.Header.Set("X-Hub-Signature-256", "sha256="+mac(test.secret, "{}"))
		_, err := s.Verify(d)
		checkReason(t, err, test.want)
	}
}

func TestSign(t *testing.T) {
	if got, want := whatsapp.Sign(secret, []byte("{}")), "sha256="+mac(secret, "{}"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHandshake(t *testing.T) {
	good := "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=" + token
	for _, test := range []struct{ name, query, want string }{
		{"good", good, "1158201444"},
		{"a challenge that is no number", strings.Replace(good, "1158201444", "a%2Fb%0A", 1), "a/b\n"},
		{"other parameters", good + "&x=1", "1158201444"},
		{"wrong token", good + "x", ""},
		{"empty token", "hub.mode=subscribe&hub.challenge=1&hub.verify_token=", ""},
		{"no token", "hub.mode=subscribe&hub.challenge=1", ""},
		{"token twice", good + "&hub.verify_token=" + token, ""},
		{"no challenge", "hub.mode=subscribe&hub.verify_token=" + token, ""},
		{"endless challenge", strings.Replace(good, "1158201444", strings.Repeat("1", 2000), 1), ""},
		{"other mode", strings.Replace(good, "subscribe", "unsubscribe", 1), ""},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, err := url.ParseQuery(test.query)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := source(t).Handshake(&inbox.Delivery{Query: q})
			if test.want == "" {
				checkReason(t, err, inbox.BadHandshake)
			} else if err != nil {
				t.Error(err)
			}
			if string(answer) != test.want {
				t.Errorf("answer %q, want %q", answer, test.want)
			}
		})
	}

	none, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: secret}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = none.Handshake(&inbox.Delivery{Query: url.Values{
		"hub.mode": {"subscribe"}, "hub.challenge": {"1"}, "hub.verify_token": {""}}})
	checkReason(t, err, inbox.BadHandshake)
}

func TestNew(t *testing.T) {
	many := make([]whatsapp.Secret, 17)
	for i := range many {
		many[i].Value = "s"
	}
	for name, o := range map[string]*whatsapp.Options{
		"nil options":      nil,
		"no secret":        {VerifyToken: token},
		"an empty secret":  {Secrets: []whatsapp.Secret{{Value: secret}, {}}},
		"ends too soon":    {Secrets: []whatsapp.Secret{{Value: secret, NotBefore: now, NotAfter: now.Add(-1)}}},
		"too many secrets": {Secrets: many},
	} {
		if s, err := whatsapp.New(o); !errors.Is(err, inbox.ErrInvalid) || s != nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	o := whatsapp.Options{Secrets: []whatsapp.Secret{{Value: secret}}}
	s, err := whatsapp.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	o.Secrets[0].Value = "changed later"
	d := &inbox.Delivery{Header: http.Header{"X-Hub-Signature-256": {whatsapp.Sign(secret, nil)}}}
	if _, err := s.Verify(d); err != nil {
		t.Errorf("the options were not copied: %v", err)
	}
	if s.Provider() != "meta" || s.Horizon() != 7*24*time.Hour {
		t.Errorf("provider %q, horizon %v", s.Provider(), s.Horizon())
	}
}

func TestNothingPrintsTheSecret(t *testing.T) {
	s := source(t)
	var b strings.Builder
	x := whatsapp.Secret{Value: secret}
	fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %s", s, s, s, s, x, x, x, []whatsapp.Secret{x})
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "source", s, "secret", x, "options", whatsapp.Options{Secrets: []whatsapp.Secret{x}})
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "source", s, "secret", x, "options", whatsapp.Options{Secrets: []whatsapp.Secret{x}})
	if strings.Contains(b.String(), secret) || strings.Contains(b.String(), token) {
		t.Errorf("printed a secret: %s", b.String())
	}
}
