package whatsapp_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

// Any header, any query and any body: only what was signed is let in, only the
// token opens the endpoint, and of any body the decoder keeps its promises.
func FuzzSource(f *testing.F) {
	for _, b := range webhooktest.Own(f, "meta-") {
		f.Add("sha256="+mac(secret, string(b.Data)), "hub.mode=subscribe&hub.challenge=1&hub.verify_token="+token, b.Data)
	}
	for _, v := range []string{"", "{}", `{"entry":[{}]}`, `{"field":"\u0000","value":{"messages":[{"id":1},{"id":"\ud800"},{}]}}`, "\xef\xbb\xbf{\"field\":\"f\"}"} {
		f.Add("sha256=", "hub.challenge", []byte(v))
	}
	s := source(f)
	f.Fuzz(func(t *testing.T, header, query string, body []byte) {
		fuzzVerify(t, s, header, body)
		fuzzHandshake(t, s, query)
		events, err := webhooktest.CheckEvents(t, s, body)
		if !json.Valid(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))) && (err == nil || events != nil) {
			t.Error("decoded what is not JSON")
		}
		for _, e := range events {
			if e.Fingerprinted && !strings.HasPrefix(e.ID, "meta/fp/") {
				t.Errorf("a fingerprint has the form %s", e.ID)
			}
		}
	})
}

func fuzzVerify(t *testing.T, s inbox.Source, header string, body []byte) {
	d := &inbox.Delivery{Header: map[string][]string{"X-Hub-Signature-256": {header}}, Body: body, Received: now}
	got, err := s.Verify(d)
	want := strings.EqualFold(header, "sha256="+mac(secret, string(body))) && strings.HasPrefix(header, "sha256=")
	if (err == nil) != want || err == nil && !bytes.Equal(got, body) {
		t.Errorf("Verify of %q: %v", header, err)
	}
}

func fuzzHandshake(t *testing.T, s inbox.Handshaker, query string) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return
	}
	answer, err := s.Handshake(&inbox.Delivery{Query: q})
	if err == nil && (q.Get("hub.verify_token") != token || string(answer) != q.Get("hub.challenge")) {
		t.Errorf("the handshake of %q is answered with %q", query, answer)
	}
}
