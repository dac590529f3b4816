package wechat_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write testdata/events.txt anew; read the difference before you keep it")

// The sample bodies' events, one line each, are a file that a person has read.
func TestSampleBodies(t *testing.T) {
	var got bytes.Buffer
	seen := make(map[string]string)
	for _, b := range webhooktest.Files(t, "testdata/bodies", "", ".xml", ".json") {
		events, err := checkEvents(t, source(t), b.Data)
		if err != nil {
			t.Fatalf("%s: %v", b.Name, err)
		}
		e := events[0]
		fmt.Fprintf(&got, "%s\n\t%s\n\t%s\t%s\t%s\t%s\t%s%s\n", b.Name, e.ID, e.Key, e.Type, or(e.MessageID), or(e.ExternalID),
			e.Occurred.Format(time.RFC3339Nano), marks(e))
		if other, ok := seen[e.ID]; ok {
			t.Errorf("%s and %s have one identity", b.Name, other)
		}
		seen[e.ID] = b.Name
		checkBothModes(t, b.Data)
	}
	const golden = "testdata/events.txt"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the events differ from %s; got\n%s", golden, got.String())
	}
}

func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func marks(e inbox.Event) (s string) {
	if e.Fingerprinted {
		s += "\tfingerprinted"
	}
	if e.Unknown {
		s += "\tunknown"
	}
	return s
}

// checkBothModes sends a body as WeChat would, in plaintext and sealed.
func checkBothModes(t *testing.T, body []byte) {
	t.Helper()
	s := open(t)
	query, sealed, err := wechat.Seal(secret, appID, now, nonce, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []inbox.Delivery{
		{Query: wechat.Sign(token, now, nonce), Body: body, Received: now},
		{Query: query, Body: sealed, Received: now},
	} {
		got, err := s.Verify(&d)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("verified %q, %v", got, err)
		}
	}
}

// One row for each of the shared bodies. The person and the account are the same in
// all that have them.
func TestSharedBodies(t *testing.T) {
	const (
		person = "oTEST-0000000000000000000001"
		key    = "gh_000000000001/" + person
		fp     = "fp/"
	)
	rows := map[string]struct{ id, key, kind, message, marks string }{
		"wechat-text-01.xml":                           {"1234567890123456", key, "text", "1234567890123456", ""},
		"wechat-image-01.xml":                          {"1234567890123457", key, "image", "1234567890123457", ""},
		"wechat-voice-01.xml":                          {"1234567890123458", key, "voice", "1234567890123458", ""},
		"wechat-video-01.xml":                          {"1234567890123459", key, "video", "1234567890123459", ""},
		"wechat-location-01.xml":                       {"1234567890123460", key, "location", "1234567890123460", ""},
		"wechat-link-01.xml":                           {"1234567890123461", key, "link", "1234567890123461", ""},
		"wechat-unknown-type-01.xml":                   {"1234567890123462", key, "notsure", "1234567890123462", "\tunknown"},
		"wechat-text-millisecond-createtime-01.xml":    {"123456", key, "text", "123456", ""},
		"wechat-text-no-msgid-01.xml":                  {fp, key, "text", "", "\tfingerprinted"},
		"wechat-event-subscribe-01.xml":                {person + "/123456789/subscribe/", key, "event.subscribe", "", ""},
		"wechat-event-unsubscribe-01.xml":              {person + "/123456790/unsubscribe/", key, "event.unsubscribe", "", ""},
		"wechat-event-subscribe-scan-01.xml":           {person + "/123456791/subscribe/qrscene_123123", key, "event.subscribe", "", ""},
		"wechat-event-scan-01.xml":                     {person + "/123456792/SCAN/123123", key, "event.SCAN", "", ""},
		"wechat-event-location-01.xml":                 {person + "/123456793/LOCATION/", key, "event.LOCATION", "", ""},
		"wechat-mini-event-subscribe-msg-sent-02.json": {person + "/1620963428/subscribe_msg_sent_event/", key, "event.subscribe_msg_sent_event", "1864323726461255680", ""},
		"wechat-mini-event-express-path-01.xml":        {person + "/1642658087/add_express_path/", key, "event.add_express_path", "", ""},
		"wechat-mini-container-check-02.xml":           {fp, "-", "action.CheckContainerPath", "", "\tfingerprinted"},
		"wechat-mini-encrypted-02.xml": {"o9AgO5Kd5ggOC-bXrbNODIiE3bGY/1714112445/debug_demo/",
			"gh_97417a04a28d/o9AgO5Kd5ggOC-bXrbNODIiE3bGY", "event.debug_demo", "", ""},
	}
	bodies := webhooktest.SharedFiles(t, "wechat-", ".xml", ".json")
	for _, b := range bodies {
		t.Run(b.Name, func(t *testing.T) {
			want, ok := rows[b.Name]
			if !ok {
				t.Fatal("no row for this body")
			}
			data := b.Data
			if b.Name == "wechat-mini-encrypted-02.xml" {
				data = openPublished(t, data)
			}
			events, err := checkEvents(t, source(t), data)
			if err != nil {
				t.Fatal(err)
			}
			e := events[0]
			id := e.ID
			if e.Fingerprinted {
				id = "wechat/fp/"
			}
			if id != "wechat/"+want.id || e.Key != "wechat/"+want.key || e.Type != want.kind || e.MessageID != want.message || marks(e) != want.marks {
				t.Errorf("got %s, %s, %s, %q%s\nwant %+v", e.ID, e.Key, e.Type, e.MessageID, marks(e), want)
			}
			if e.Occurred.IsZero() != (b.Name == "wechat-mini-container-check-02.xml") {
				t.Errorf("occurred %v", e.Occurred)
			}
			if strings.Contains(b.Name, "express") != (e.ExternalID == "01234567894") {
				t.Errorf("external ID %q", e.ExternalID)
			}
			checkBothModes(t, data)
		})
	}
	if len(bodies) != len(rows) {
		t.Errorf("%d bodies, %d rows", len(bodies), len(rows))
	}
}

// openPublished verifies the body of WeChat's own documentation, which is encrypted
// with a published key.
func openPublished(t *testing.T, body []byte) []byte {
	t.Helper()
	v := vector(t, "wechat-post-aes-1")
	s := newSource(t, wechat.Options{AppID: v.ReceiveID, Secrets: []wechat.Secret{{Token: v.Token, AESKey: v.AESKey}}})
	q := v.query()
	at, _ := wechat.SignedAt(q)
	plain, err := s.Verify(&inbox.Delivery{Query: q, Body: body, Received: at})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := wechat.SignSealed(v.Token, at, q.Get("nonce"), body); err != nil || again.Get("msg_signature") != q.Get("msg_signature") {
		t.Errorf("signed again as %v, %v", again, err)
	}
	return plain
}
