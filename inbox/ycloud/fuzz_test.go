package ycloud_test

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/ycloud"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

// Any header and any body: only what was signed is let in, and of any body the
// decoder keeps its promises.
func FuzzSource(f *testing.F) {
	const another = "whsec_of_nobody" // so that no seed opens the door
	for _, b := range webhooktest.Own(f, "ycloud-") {
		f.Add(ycloud.Sign(another, now, b.Data), b.Data)
	}
	f.Add("t=1,s=2", []byte(`{"id":"fp/","x":{"from":"US.1","statuses":[1]}}`))
	f.Add("s=,t=,", []byte(`{"id":"raw/1"}`))
	s := source(f)
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		d := &inbox.Delivery{Header: http.Header{"Ycloud-Signature": {header}}, Body: body, Received: now}
		if got, err := s.Verify(d); got != nil || !errors.Is(err, inbox.ErrRejected) {
			t.Errorf("what nobody signed gives %q, %v", got, err)
		}
		if at, ok := ycloud.SignedAt(d.Header); !ok && !at.IsZero() {
			t.Errorf("no time is %v", at)
		}
		d.Header.Set("YCloud-Signature", ycloud.Sign(secret, now, body))
		if got, err := s.Verify(d); err != nil || !bytes.Equal(got, body) {
			t.Errorf("what was signed gives %q, %v", got, err)
		}
		events, err := webhooktest.CheckEvents(t, s, body)
		if len(events) > 1 || (err == nil) != (len(events) == 1) {
			t.Errorf("%d events, %v", len(events), err)
		}
	})
}
