package whatsapp_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

func FuzzDecode(f *testing.F) {
	for _, b := range webhooktest.Own(f, "meta-") {
		f.Add(b.Data)
	}
	for _, v := range []string{"", "{}", `{"entry":[{}]}`, `{"field":"\u0000","value":{"messages":[{"id":1},{"id":"\ud800"},{}]}}`, "\xef\xbb\xbf{\"field\":\"f\"}"} {
		f.Add([]byte(v))
	}
	s := source(f)
	f.Fuzz(func(t *testing.T, body []byte) {
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

func FuzzVerify(f *testing.F) {
	f.Add("sha256="+mac(secret, "{}"), []byte("{}"))
	f.Add("sha256=", []byte(""))
	f.Add("", []byte("{}"))
	s := source(f)
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		d := &inbox.Delivery{Header: map[string][]string{"X-Hub-Signature-256": {header}}, Body: body, Received: now}
		got, err := s.Verify(d)
		want := strings.EqualFold(header, "sha256="+mac(secret, string(body))) && strings.HasPrefix(header, "sha256=")
		if (err == nil) != want || err == nil && !bytes.Equal(got, body) {
			t.Errorf("Verify of %q: %v", header, err)
		}
	})
}
