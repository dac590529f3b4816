package ycloud_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write the files in testdata anew; read the difference before you keep it")

// The sample bodies' events, one line each, are a file that a person has read.
func TestSampleBodies(t *testing.T) {
	var got bytes.Buffer
	for _, b := range webhooktest.Own(t, "ycloud-") {
		events, err := webhooktest.CheckEvents(t, source(t), b.Data)
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %d events, %v", b.Name, len(events), err)
		}
		e := events[0]
		fmt.Fprintf(&got, "%s\n\t%s\t%s\t%s\t%s\t%s\t%s\t%v %v\n", b.Name, e.ID, e.Key, e.Type, e.MessageID, e.ExternalID,
			e.Occurred.Format(time.RFC3339), e.Fingerprinted, e.Unknown)
	}
	checkGolden(t, "testdata/events.txt", got.Bytes())
}

func checkGolden(t *testing.T, golden string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the events differ from %s; got\n%s", golden, got)
	}
}

// The shared bodies' events with all that they are found and ordered by, one row
// each below the name of the file, are a file that a person has read.
func TestSharedBodiesRowByRow(t *testing.T) {
	var got bytes.Buffer
	for _, b := range webhooktest.Shared(t, "ycloud-") {
		events, err := source(t).Decode(b.Data)
		if err != nil || len(events) != 1 {
			t.Errorf("%s: %d events, %v", b.Name, len(events), err)
			continue
		}
		e := events[0]
		fmt.Fprintf(&got, "%s\n\t%s\tkey %s\taccount %s\tphone %s\tmessage %s\texternal %s\t%s\tfingerprinted %v, unknown %v\n",
			b.Name, e.ID, e.Key, e.Account, e.Phone, e.MessageID, e.ExternalID, e.Type, e.Fingerprinted, e.Unknown)
	}
	checkGolden(t, "testdata/shared.txt", got.Bytes())
}

func TestSharedBodies(t *testing.T) {
	for _, b := range webhooktest.Shared(t, "ycloud-") {
		t.Run(b.Name, func(t *testing.T) {
			var envelope struct{ ID, Type string }
			if err := json.Unmarshal(b.Data, &envelope); err != nil {
				t.Fatal(err)
			}
			events, err := webhooktest.CheckEvents(t, source(t), b.Data)
			if err != nil || len(events) != 1 {
				t.Fatalf("%d events, %v", len(events), err)
			}
			e := events[0]
			if envelope.ID == "" {
				if !e.Fingerprinted || !strings.HasPrefix(e.ID, "ycloud/fp/") {
					t.Errorf("identity %s without an event ID", e.ID)
				}
			} else if e.Fingerprinted || e.ID != "ycloud/"+envelope.ID {
				t.Errorf("identity %s of event %s", e.ID, envelope.ID)
			}
			if e.Type != envelope.Type || e.Unknown {
				t.Errorf("type %s, unknown %v", e.Type, e.Unknown)
			}
		})
	}
}

func decodeOne(t *testing.T, body string) inbox.Event {
	t.Helper()
	events, err := webhooktest.CheckEvents(t, source(t), []byte(body))
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	return events[0]
}

func TestEventFields(t *testing.T) {
	body := ` {"id":"evt_1","type":"whatsapp.message.updated","apiVersion":"v2","createTime":"2025-10-09T09:00:15.120Z",` +
		`"whatsappMessage":{"id":"own","wamid":"wamid.1","wabaId":"410","from":"+15550008100","to":"+15550003001","externalId":"order-1","status":"sent","updateTime":"2025-10-09T09:00:15.000Z"}} `
	want := inbox.Event{
		ID: "ycloud/evt_1", Provider: "ycloud", Type: "whatsapp.message.updated", Version: "v2",
		Key: "ycloud/15550008100/15550003001", Occurred: time.Date(2025, 10, 9, 9, 0, 15, 0, time.UTC),
		Account: "410", Phone: "15550008100", MessageID: "wamid.1", ExternalID: "order-1",
		Payload: []byte(strings.TrimSpace(body)),
	}
	if got := decodeOne(t, body); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestKeysAndMessageIDs(t *testing.T) {
	for _, test := range []struct{ name, object, key, message string }{
		{"inbound", `"whatsappInboundMessage":{"id":"own","wamid":"w","from":"+1","to":"+2","wabaId":"W"}`, "2/1", "w"},
		{"inbound without signs", `"whatsappInboundMessage":{"id":"own","wamid":"w","from":"1","to":"2"}`, "2/1", "w"},
		{"inbound user ID", `"whatsappInboundMessage":{"wamid":"w","fromUserId":"US.1","to":"+2"}`, "2/US.1", "w"},
		{"inbound without a receiver", `"whatsappInboundMessage":{"from":"+1"}`, "-/1", ""},
		{"outbound", `"whatsappMessage":{"id":"own","wamid":"w","from":"+2","to":"+1"}`, "2/1", "w"},
		{"not yet accepted", `"whatsappMessage":{"id":"own","from":"+2","to":"+1"}`, "2/1", "own"},
		{"outbound user ID", `"whatsappMessage":{"id":"own","from":"+2","toUserId":"US.1"}`, "2/US.1", "own"},
		{"without a receiver", `"whatsappMessage":{"id":"own","from":"+2","wabaId":"W"}`, "W", "own"},
		{"sms", `"smsInbound":{"id":"own","from":"+1","to":"+2"}`, "2/1", "own"},
		{"call in", `"callingConnect":{"id":"own","wacid":"c","from":"+1","to":"+2","direction":"USER_INITIATED"}`, "2/1", "c"},
		{"call out", `"callingConnect":{"id":"own","wacid":"c","from":"+2","to":"+1","direction":"BUSINESS_INITIATED"}`, "2/1", "c"},
		{"group", `"whatsappGroup":{"wabaId":"W","displayPhoneNumber":"2","statuses":[{"id":"w"},{"id":"w"}]}`, "W", "w"},
		{"group, two messages", `"whatsappGroup":{"wabaId":"W","statuses":[{"id":"w"},{"id":"v"}]}`, "W", ""},
		{"template", `"whatsappTemplate":{"wabaId":"W","officialTemplateId":"9"}`, "W", ""},
		{"account", `"whatsappBusinessAccount":{"id":"W"}`, "W", ""},
		{"phone number", `"whatsappPhoneNumber":{"id":"9","phoneNumber":"+2","wabaId":"W"}`, "W", ""},
		{"unsubscribed", `"unsubscriberChanged":{"id":"9","phoneNumber":"+1"}`, "-/1", ""},
		{"nothing", `"phase":1`, "-", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := decodeOne(t, `{"id":"evt_1","type":"t",`+test.object+`}`)
			if e.Key != "ycloud/"+test.key || e.MessageID != test.message {
				t.Errorf("key %s, message %q; want %s, %q", e.Key, e.MessageID, test.key, test.message)
			}
		})
	}
}

func TestIdentities(t *testing.T) {
	long := strings.Repeat("x", 600)
	seen := make(map[string]string)
	for _, body := range []string{
		`{"id":"evt_1"}`, `{"id":"evt/1"}`, `{"id":1}`, `{"id":12345678901234567890123}`, `{"id":12345678901234567890124}`,
		`{"id":"` + long + `1"}`, `{"id":"` + long + `2"}`, `{"id":"a\u0000"}`, `{"id":"a\u0001"}`, `{"id":"a\ud800"}`, `{"id":"a\ud801"}`,
		`{"id":"fp/1"}`, `{"type":"a"}`, `{"type":"b"}`, `{"type":"a","x":1}`, `{"id":null,"type":"a"}`, `{"id":"","type":"a"}`,
	} {
		e := decodeOne(t, body)
		if other, ok := seen[e.ID]; ok {
			t.Errorf("%s and %s have one identity", body, other)
		}
		seen[e.ID] = body
	}
	fp := decodeOne(t, `{"type":"a"}`).ID
	if e := decodeOne(t, `{"id":"`+strings.TrimPrefix(fp, "ycloud/")+`"}`); e.ID == fp {
		t.Error("an event ID can pose as a fingerprint")
	}
	if e := decodeOne(t, `{"id":"raw/1"}`); e.ID == "ycloud/raw/1" {
		t.Error("an event ID can pose as a body in quarantine")
	}
}

func TestBadInput(t *testing.T) {
	for _, body := range []string{
		"", " ", "{", `{"id":"good"`, `{"id":"good"}{}`, `[{"id":"good"}]`, "null", "7", "{}", `{"apiVersion":"v2"}`,
		`{"id":{},"type":"good"}`, `{"id":true,"type":"good"}`, `{"ID":"good"}`, "{\"id\":\"good\"}\x00", strings.Repeat("[", 1<<20),
	} {
		events, err := webhooktest.CheckEvents(t, source(t), []byte(body))
		if err == nil || len(events) != 0 || strings.Contains(err.Error(), "good") {
			t.Errorf("%.40q: %d events, %v", body, len(events), err)
		}
	}
	for _, body := range []string{"\xef\xbb\xbf{\"id\":\"good\"}", "\n{ \"id\" : \"good\" }\t", `{"\u0069d":"good"}`, `{"id":"x","id":"good"}`} {
		if e := decodeOne(t, body); e.ID != "ycloud/good" {
			t.Errorf("%q: %s", body, e.ID)
		}
	}
	for _, created := range []string{`"yesterday"`, `null`, `{}`, `"2025-13-40T00:00:00Z"`, `-1`, `""`} {
		if e := decodeOne(t, `{"id":"a","createTime":`+created+`}`); !e.Occurred.IsZero() {
			t.Errorf("created at %s: %v", created, e.Occurred)
		}
	}
	if e := decodeOne(t, `{"id":"a","createTime":1760000000}`); e.Occurred.Unix() != 1760000000 {
		t.Errorf("a time in seconds: %v", e.Occurred)
	}
}
