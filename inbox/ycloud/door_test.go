package ycloud_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/ycloud"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

func sign(body []byte) http.Header {
	h := make(http.Header)
	h.Set("YCloud-Signature", ycloud.Sign(secret, time.Now(), body))
	return h
}

func TestBehindTheHandler(t *testing.T) {
	body := `{"id":"evt_1","type":"whatsapp.inbound_message.received","whatsappInboundMessage":{"id":"own","wamid":"wamid.1","from":"+1","to":"+2","text":{"body":"secret"}}}`
	webhooktest.TestDoor(t, source(t), "YCloud-Signature", []byte(body), sign)
}

// The age of a signature is a reason of its own.
func TestAgeBehindTheHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		at     time.Duration
		status int
		reason inbox.Reason
	}{
		"the last re-send":   {-5 * time.Hour, 200, ""},
		"beyond the horizon": {-6*time.Hour - time.Minute, 401, inbox.TooOld},
		"in the future":      {6 * time.Minute, 401, inbox.TooEarly},
	} {
		d := webhooktest.NewDoor(t, source(t), func(body []byte) http.Header {
			h := make(http.Header)
			h.Set("YCloud-Signature", ycloud.Sign(secret, time.Now().Add(tt.at), body))
			return h
		})
		status := d.Post([]byte(`{"id":"evt_1","type":"t"}`))
		if st := d.Box.Stats(); status != tt.status || tt.reason != "" && st.Rejected[tt.reason] != 1 {
			t.Errorf("%s: answered %d, counted %v", name, status, st.Rejected)
		}
	}
}

// One envelope is one event, or it lies in quarantine.
func TestEnvelopesOfAllSorts(t *testing.T) {
	statuses := strings.Repeat(`{"id":"wamid.1","status":"read"},`, 5000)
	for name, tt := range map[string]struct {
		body     string
		accepted int
	}{
		"numbers for texts":       {`{"id":7,"type":8,"apiVersion":2,"createTime":1760000000,"whatsappMessage":{"id":1,"from":2,"to":3,"externalId":4}}`, 1},
		"texts for numbers":       {`{"id":"a","type":"t","whatsappGroup":{"statuses":[{"id":"w","timestamp":"1760000000"}]}}`, 1},
		"no ID":                   {`{"type":"t","whatsappMessage":{"from":"+1"}}`, 1},
		"a null ID":               {`{"id":null,"type":"t"}`, 1},
		"no type":                 {`{"id":"a"}`, 1},
		"neither":                 {`{"apiVersion":"v2","whatsappMessage":{"id":"w"}}`, 0},
		"an ID of another kind":   {`{"id":["a"],"type":"t"}`, 0},
		"an object of no kind":    {`{"id":"a","type":"t","whatsappMessage":[1]}`, 1},
		"an ID of control":        {`{"id":"\u0000\n","type":"t"}`, 1},
		"a long ID":               {`{"id":"` + strings.Repeat("x", 5000) + `","type":"t"}`, 1},
		"empty statuses":          {`{"id":"a","type":"t","whatsappGroup":{"statuses":[]}}`, 1},
		"several thousand":        {`{"id":"a","type":"t","whatsappGroup":{"statuses":[` + statuses + `{}]}}`, 1},
		"an unknown type":         {`{"id":"a","type":"whatsapp.moon.risen"}`, 1},
		"an unknown version":      {`{"id":"a","type":"t","apiVersion":"v9"}`, 1},
		"an array of envelopes":   {`[{"id":"a","type":"t"}]`, 0},
		"names in other letters":  {`{"ID":"a","Type":"t"}`, 0},
		"an envelope in envelope": {`{"event":{"id":"a","type":"t"}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := webhooktest.NewDoor(t, source(t), sign)
			if status := d.Post([]byte(tt.body)); status != http.StatusOK {
				t.Fatalf("answered %d", status)
			}
			totals, err := d.Box.Totals(context.Background())
			if err != nil || totals.Pending != tt.accepted || totals.Quarantined != 1-tt.accepted {
				t.Errorf("%d events wait and %d bodies are in quarantine, %v; want %d events", totals.Pending, totals.Quarantined, err, tt.accepted)
			}
			state := inbox.StatePending
			if tt.accepted == 0 {
				state = inbox.StateQuarantined
			}
			kept, err := d.Box.List(context.Background(), state, 0, 10)
			if err != nil || len(kept) != 1 || string(kept[0].Payload) != tt.body {
				t.Errorf("stored are %d records, %v; want the envelope", len(kept), err)
			}
		})
	}
}
