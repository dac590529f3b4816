package standardwebhooks_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/standardwebhooks"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

var (
	secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of the tests"))
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func source(t testing.TB) *standardwebhooks.Source {
	t.Helper()
	return with(t, standardwebhooks.Options{})
}

func with(t testing.TB, o standardwebhooks.Options) *standardwebhooks.Source {
	t.Helper()
	o.Provider = "shop"
	if o.Secrets == nil {
		o.Secrets = []standardwebhooks.Secret{{Value: secret}}
	}
	s, err := standardwebhooks.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(t testing.TB, key, id, body string, at time.Time) *inbox.Delivery {
	t.Helper()
	d := &inbox.Delivery{Body: []byte(body), Received: now}
	if err := standardwebhooks.Sign(key, id, at, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// decode verifies and decodes a signed body.
func decode(t testing.TB, s *standardwebhooks.Source, id, body string) ([]inbox.Event, error) {
	t.Helper()
	verified, err := s.Verify(signed(t, secret, id, body, now))
	if err != nil {
		t.Fatal(err)
	}
	return webhooktest.CheckEvents(t, s, verified)
}

func wantReason(t *testing.T, err error, want inbox.Reason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		return
	}
	if r, ok := errors.AsType[*inbox.RejectError](err); !ok || r.Reason != want {
		t.Errorf("got %v, want a RejectError: %s", err, want)
	}
}

func TestVerify(t *testing.T) {
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte("another secret"))
	id, stamp, sig := "webhook-id", "webhook-timestamp", "webhook-signature"
	for name, tt := range map[string]struct {
		change func(h http.Header)
		want   inbox.Reason
	}{
		"good":                 {func(h http.Header) {}, ""},
		"the second matches":   {func(h http.Header) { h.Set(sig, "v1,bm8= "+h.Get(sig)) }, ""},
		"one that is v1a":      {func(h http.Header) { h.Set(sig, "v1a,AAAA "+h.Get(sig)) }, ""},
		"spaces":               {func(h http.Header) { h.Set(sig, "  "+h.Get(sig)+" ") }, ""},
		"no signature":         {func(h http.Header) { h.Del(sig) }, inbox.NoSignature},
		"no ID":                {func(h http.Header) { h.Del(id) }, inbox.NoSignature},
		"an empty ID":          {func(h http.Header) { h.Set(id, "") }, inbox.NoSignature},
		"no time":              {func(h http.Header) { h.Del(stamp) }, inbox.NoSignature},
		"two IDs":              {func(h http.Header) { h.Add(id, h.Get(id)) }, inbox.BadSignature},
		"two times":            {func(h http.Header) { h.Add(stamp, h.Get(stamp)) }, inbox.BadSignature},
		"two signature lines":  {func(h http.Header) { h.Add(sig, h.Get(sig)) }, inbox.BadSignature},
		"only v1a":             {func(h http.Header) { h.Set(sig, strings.Replace(h.Get(sig), "v1,", "v1a,", 1)) }, inbox.BadSignature},
		"hexadecimal digits":   {func(h http.Header) { h.Set(sig, "v1,"+strings.Repeat("0", 64)) }, inbox.BadSignature},
		"a time in words":      {func(h http.Header) { h.Set(stamp, "noon") }, inbox.BadSignature},
		"another ID":           {func(h http.Header) { h.Set(id, "msg_2") }, inbox.WrongSignature},
		"another time":         {func(h http.Header) { h.Set(stamp, fmt.Sprint(now.Unix()+1)) }, inbox.WrongSignature},
		"another secret's":     {func(h http.Header) { h.Set(sig, signed(t, other, "msg_1", "{}", now).Header.Get(sig)) }, inbox.WrongSignature},
		"another body's":       {func(h http.Header) { h.Set(sig, signed(t, secret, "msg_1", "{ }", now).Header.Get(sig)) }, inbox.WrongSignature},
		"signed 6 minutes ago": {func(h http.Header) { resign(t, h, now.Add(-6*time.Minute)) }, inbox.TooOld},
		"signed in 6 minutes":  {func(h http.Header) { resign(t, h, now.Add(6*time.Minute)) }, inbox.TooEarly},
		"signed 5 minutes ago": {func(h http.Header) { resign(t, h, now.Add(-5*time.Minute)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := signed(t, secret, "msg_1", "{}", now)
			tt.change(d.Header)
			body, err := source(t).Verify(d)
			wantReason(t, err, tt.want)
			if (err == nil) != strings.HasSuffix(string(body), "{}") {
				t.Errorf("Verify returned %q", body)
			}
		})
	}
	d := signed(t, secret, "msg_1", "{}", now)
	_, err := with(t, standardwebhooks.Options{Tolerance: time.Minute, Skew: time.Second}).Verify(d)
	wantReason(t, err, "")
	d.Received = now.Add(time.Minute + 1)
	_, err = with(t, standardwebhooks.Options{Tolerance: time.Minute}).Verify(d)
	wantReason(t, err, inbox.TooOld)
	d.Received = now.Add(-2 * time.Second)
	_, err = with(t, standardwebhooks.Options{Skew: time.Second}).Verify(d)
	wantReason(t, err, inbox.TooEarly)
	d.Received = now
	_, err = with(t, standardwebhooks.Options{Secrets: []standardwebhooks.Secret{{Value: secret, NotAfter: now.Add(-1)}}}).Verify(d)
	wantReason(t, err, inbox.WrongSignature)
}

func resign(t *testing.T, h http.Header, at time.Time) {
	d := signed(t, secret, h.Get("webhook-id"), "{}", at)
	for name := range d.Header {
		h.Set(name, d.Header.Get(name))
	}
}

func TestVectors(t *testing.T) {
	for _, v := range webhooktest.Kept(t, "standard-webhooks") {
		s, err := standardwebhooks.New(&standardwebhooks.Options{Provider: "p", Secrets: []standardwebhooks.Secret{{Value: v.Secret}}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := s.Verify(v.Delivery(time.Unix(1614265330, 0)))
		if !v.Valid() {
			wantReason(t, err, inbox.WrongSignature)
			continue
		}
		wantReason(t, err, "")
		events, err := webhooktest.CheckEvents(t, s, body)
		if err != nil || len(events) != 1 || events[0].ID != "p/msg_p5jXN8AQM9LWM0D4loKWxJek" {
			t.Errorf("%s: %v, %v", v.ID, events, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	ok := []standardwebhooks.Secret{{Value: secret}}
	for name, o := range map[string]*standardwebhooks.Options{
		"no options":          nil,
		"no provider":         {Secrets: ok},
		"a provider's slash":  {Provider: "a/b", Secrets: ok},
		"a long provider":     {Provider: strings.Repeat("p", 65), Secrets: ok},
		"no secret":           {Provider: "p"},
		"another secret":      {Provider: "p", Secrets: []standardwebhooks.Secret{{Value: "the secret of the tests"}}},
		"negative horizon":    {Provider: "p", Secrets: ok, Horizon: -1},
		"negative tolerance":  {Provider: "p", Secrets: ok, Tolerance: -1},
		"negative skew":       {Provider: "p", Secrets: ok, Skew: -1},
		"ends too soon":       {Provider: "p", Secrets: []standardwebhooks.Secret{{Value: secret, NotBefore: now, NotAfter: now.Add(-1)}}},
		"without its whsec_":  {Provider: "p", Secrets: []standardwebhooks.Secret{{Value: strings.TrimPrefix(secret, "whsec_")}}},
		"not base64 after it": {Provider: "p", Secrets: []standardwebhooks.Secret{{Value: "whsec_the secret of the tests"}}},
	} {
		if s, err := standardwebhooks.New(o); s != nil || !errors.Is(err, inbox.ErrInvalid) || strings.Contains(err.Error(), "the secret of the tests") {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	s := with(t, standardwebhooks.Options{Horizon: time.Hour})
	if s.Provider() != "shop" || s.Horizon() != time.Hour || source(t).Horizon() != standardwebhooks.Horizon {
		t.Errorf("provider %q, horizon %v", s.Provider(), s.Horizon())
	}
	if last := 75*time.Hour + 35*time.Minute + 5*time.Second; standardwebhooks.Horizon <= last {
		t.Errorf("the horizon does not exceed the last attempt's %v", last)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, standardwebhooks.Secret{Value: secret}); strings.Contains(text, secret) {
		t.Errorf("printed a secret: %s", text)
	}
}

func FuzzSource(f *testing.F) {
	f.Add("msg_1", "v1,x", []byte(`{"type":"a","timestamp":"2022-11-03T20:26:10.344522Z"}`))
	f.Add("fp/1", "", []byte("{}"))
	f.Add("a\nb", "v1,"+strings.Repeat("A", 43)+"=", []byte("\n\n{}"))
	s := source(f)
	f.Fuzz(func(t *testing.T, id, header string, body []byte) {
		d := &inbox.Delivery{Body: body, Received: now}
		if err := standardwebhooks.Sign(secret, id, now, d); err != nil {
			return // no ID, or a long one
		}
		if verified, err := s.Verify(d); err == nil {
			events, err := webhooktest.CheckEvents(t, s, verified)
			if len(events) > 1 || (err == nil) != (len(events) == 1) {
				t.Errorf("%d events, %v", len(events), err)
			}
		} else if !strings.ContainsAny(id, "\r\n") {
			t.Errorf("what was signed is rejected: %v", err)
		}
		d.Header.Set("webhook-signature", header)
		if verified, err := s.Verify(d); verified != nil || !errors.Is(err, inbox.ErrRejected) {
			t.Errorf("what nobody signed gives %q, %v", verified, err)
		}
		// Not through Verify: no panic, and no event without an ID.
		if events, _ := s.Decode(body); len(events) > 0 && !strings.HasPrefix(string(body), "webhook-id: ") {
			t.Error("an event without an ID")
		}
	})
}
