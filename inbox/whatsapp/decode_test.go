package whatsapp_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

// message is a body with one change of field messages.
func message(value string) string {
	return `{"object":"whatsapp_business_account","entry":[{"id":"W","changes":[{"field":"messages","value":{"metadata":{"display_phone_number":"+1 555-000-8000","phone_number_id":"N"},` + value + `}}]}]}`
}

func decode(t *testing.T, body string) ([]inbox.Event, error) {
	t.Helper()
	return webhooktest.CheckEvents(t, source(t), []byte(body))
}

func decodeOne(t *testing.T, body string) inbox.Event {
	t.Helper()
	events, err := decode(t, body)
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	return events[0]
}

func TestEventFields(t *testing.T) {
	body := `{"object":"whatsapp_business_account","entry":[{"id":"410","time":1760000100,"changes":[{"value":{"messaging_product":"whatsapp",` +
		`"metadata":{"display_phone_number":"15550008000","phone_number_id":"310"},` +
		`"statuses":[{"id":"wamid.a/b+c=","status":"sent","timestamp":"1760000000","recipient_id":"15550003001","biz_opaque_callback_data":"order-1"}]},"field":"messages"}]}]}`
	got := decodeOne(t, body)
	want := inbox.Event{
		ID:         "meta/messages/statuses/wamid.a/b+c=/sent/-",
		Provider:   "meta",
		Type:       "messages.statuses.sent",
		Key:        "meta/15550008000/15550003001",
		Occurred:   time.Unix(1760000000, 0).UTC(),
		Account:    "410",
		Phone:      "15550008000",
		MessageID:  "wamid.a/b+c=",
		ExternalID: "order-1",
		Payload:    []byte(`{"id":"wamid.a/b+c=","status":"sent","timestamp":"1760000000","recipient_id":"15550003001","biz_opaque_callback_data":"order-1"}`),
		Context: []byte(`{"object":"whatsapp_business_account","entry":[{"id":"410","time":1760000100,"changes":[{"field":"messages",` +
			`"value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550008000","phone_number_id":"310"}}}]}]}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What a body may write in two ways is read alike.
func TestNumbersAndTexts(t *testing.T) {
	for _, test := range []struct{ a, b string }{
		{`"statuses":[{"id":"1234567890123456789012","status":"sent","timestamp":"1760000000","recipient_id":"15550003001"}]`,
			`"statuses":[{"id":1234567890123456789012,"status":"sent","timestamp":1760000000,"recipient_id":15550003001}]`},
		{`"messages":[{"id":"a","from":"+1 (555) 000-3001","timestamp":"1760000000","type":"text"}]`,
			`"messages":[{"type":"text","from":"15550003001","id":"\u0061","timestamp":1760000000}]`},
		{`"statuses":[{"id":"g","status":"read","timestamp":"1","recipient_id":"G","recipient_participant_id":"15550003001"}]`,
			`"statuses":[{"id":"g","status":"read","timestamp":"1","recipient_id":"G","participant_recipient_id":"15550003001"}]`},
	} {
		a, b := decodeOne(t, message(test.a)), decodeOne(t, message(test.b))
		a.Payload, b.Payload = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%+v\n%+v", a, b)
		}
	}
	if e := decodeOne(t, message(`"statuses":[{"id":1234567890123456789012,"status":"sent"}]`)); e.MessageID != "1234567890123456789012" {
		t.Errorf("a long number lost digits: %s", e.MessageID)
	}
	for _, stamp := range []string{`"soon"`, `1.5`, `1e9`, `-1`, `"99999999999999"`, `null`, `{}`, `0`} {
		if e := decodeOne(t, message(`"messages":[{"id":"a","timestamp":`+stamp+`}]`)); !e.Occurred.IsZero() {
			t.Errorf("timestamp %s is %v", stamp, e.Occurred)
		}
	}
}

func TestKeys(t *testing.T) {
	const business = `"15550008000"`
	for _, test := range []struct{ name, value, want string }{
		{"sender", `"messages":[{"id":"a","from":"15550003001","from_user_id":"US.1"}]`, "15550003001"},
		{"sender with signs", `"messages":[{"id":"a","from":"+1 555-000-3001"}]`, "15550003001"},
		{"user ID", `"messages":[{"id":"a","from_user_id":"US.1","from_parent_user_id":"US.ENT.2"}]`, "US.1"},
		{"user ID in from", `"messages":[{"id":"a","from":"US.1"}]`, "US.1"},
		{"parent's user ID", `"messages":[{"id":"a","from_parent_user_id":"US.ENT.2"}]`, "US.ENT.2"},
		{"number from the contact", `"contacts":[{"wa_id":"15550003002","user_id":"US.2"},{"wa_id":"15550003001","user_id":"US.1"}],"messages":[{"id":"a","from_user_id":"US.1"}]`, "15550003001"},
		{"only contact", `"contacts":[{"wa_id":"15550003001"}],"messages":[{"id":"a"}]`, "15550003001"},
		{"the business writes", `"messages":[{"id":"a","from":` + business + `,"to":"15550003001"}]`, "15550003001"},
		{"echo", `"message_echoes":[{"id":"a","from":` + business + `,"to":"15550003001"}]`, "15550003001"},
		{"echo, swapped", `"message_echoes":[{"id":"a","to":` + business + `,"from":"15550003001"}]`, "15550003001"},
		{"echo to a user ID", `"message_echoes":[{"id":"a","from":` + business + `,"to_user_id":"US.1"}]`, "US.1"},
		{"call from the person", `"calls":[{"id":"a","from":"15550003001","to":` + business + `}]`, "15550003001"},
		{"call to the person", `"calls":[{"id":"a","direction":"BUSINESS_INITIATED","to":"15550003001","from":` + business + `}]`, "15550003001"},
		{"status", `"statuses":[{"id":"a","status":"sent","recipient_id":"15550003001","recipient_user_id":"US.1"}]`, "15550003001"},
		{"status, user ID", `"statuses":[{"id":"a","status":"sent","recipient_user_id":"US.1"}]`, "US.1"},
		{"status in a group", `"statuses":[{"id":"a","status":"sent","recipient_id":"R/1=","recipient_participant_id":"15550003001"}]`, "15550003001"},
		{"status of a whole group", `"statuses":[{"id":"a","status":"sent","recipient_id":"R/1="}]`, "R%2F1="},
		{"history", `"history":[{"threads":[{"id":"15550003001","messages":[{"id":"a","from":` + business + `}]}]}]`, "15550003001"},
		{"state", `"state_sync":[{"type":"contact","contact":{"phone_number":"+15550003001"}}]`, "15550003001"},
		{"preferences", `"contacts":[{"wa_id":"15550003001"}],"user_preferences":[]`, "15550003001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if e := decodeOne(t, message(test.value)); e.Key != "meta/15550008000/"+test.want {
				t.Errorf("key %s, want person %s", e.Key, test.want)
			}
		})
	}
	for _, value := range []string{
		`"messages":[{"id":"a"}]`, `"groups":[{"type":"group_create","group_id":"G"}]`, `"errors":[{}]`,
		`"contacts":[{"wa_id":"1"},{"wa_id":"2"}],"messages":[{"id":"a"}]`,
	} {
		if e := decodeOne(t, message(value)); e.Key != "meta/W" {
			t.Errorf("key %s without a person, want the account", e.Key)
		}
	}
	for body, want := range map[string]string{
		`{"field":"f","value":{}}`: "meta/-",
		`{"field":"messages","value":{"messages":[{"id":"a","from":"1"}]}}`:                                    "meta/-/1",
		`{"field":"messages","value":{"metadata":{"phone_number_id":"N"},"messages":[{"id":"a","from":"1"}]}}`: "meta/N/1",
	} {
		if e := decodeOne(t, body); e.Key != want {
			t.Errorf("key %s, want %s", e.Key, want)
		}
	}
}

// Different events never have one identity, and one event has one however its
// JSON is written.
func TestIdentities(t *testing.T) {
	long := strings.Repeat("x", 600)
	values := []string{
		`"messages":[{"id":"a"}]`,
		`"message_echoes":[{"id":"a"}]`,
		`"calls":[{"id":"a"}]`,
		`"history":[{"threads":[{"messages":[{"id":"a"}]}]}]`,
		`"statuses":[{"id":"a","status":"sent"}]`,
		`"statuses":[{"id":"a","status":"read"}]`,
		`"statuses":[{"id":"a","status":"read","recipient_participant_id":"-"}]`,
		`"statuses":[{"id":"a","status":"read","recipient_participant_id":"1"}]`,
		`"statuses":[{"id":"a","status":"read","recipient_participant_id":"2"}]`,
		`"statuses":[{"id":"a","status":"read","recipient_participant_user_id":"US.1"}]`,
		`"statuses":[{"id":"a/read","status":"sent"}]`,
		`"statuses":[{"id":"a","status":"read/sent"}]`,
		`"statuses":[{"id":"a","status":"read%2Fsent"}]`,
		`"statuses":[{"id":"a","status":"-"}]`,
		`"statuses":[{"id":"a"}]`,
		`"statuses":[{"id":"b"}]`,
		`"messages":[{"id":"a/sent/-"}]`,
		`"messages":[{"id":"` + long + `1"}]`,
		`"messages":[{"id":"` + long + `2"}]`,
		`"messages":[{"id":"a\u0000"}]`,
		`"messages":[{"id":"a\u0001"}]`,
		`"messages":[{"id":"a\ud800"}]`,
		`"messages":[{"id":"a\ud801"}]`,
		"\"messages\":[{\"id\":\"a\xff\"}]",
		"\"messages\":[{\"id\":\"a\xfe\"}]",
		`"messages":[{"text":1}]`,
		`"messages":[{"text":2}]`,
		`"messages":[{"id":null,"text":2}]`,
		`"messages":[{"id":"","text":2}]`,
		`"groups":[{"text":2}]`,
		`"state_sync":[{"text":2}]`,
		`"text":2`,
	}
	seen := make(map[string]string)
	for _, v := range values {
		e := decodeOne(t, message(v))
		if other, ok := seen[e.ID]; ok {
			t.Errorf("%q and %q have one identity", v, other)
		}
		seen[e.ID] = v
		if again := decodeOne(t, message(v)); again.ID != e.ID {
			t.Errorf("%q has two identities", v)
		}
	}
	for _, bodies := range [][2]string{
		{`{"field":"messages","value":{"messages":[{"id":"x"}]}}`, `{"field":"messages/messages","value":{"messages":[{"id":"x"}]}}`},
		{`{"field":"a","value":{"messages":[{"id":"messages/x"}]}}`, `{"field":"a/messages","value":{"messages":[{"id":"x"}]}}`},
		{`{"entry":[{"id":"1","time":1,"changes":[{"field":"f","value":{}}]}]}`, `{"entry":[{"id":"1","time":2,"changes":[{"field":"f","value":{}}]}]}`},
		{`{"entry":[{"id":"1","time":1,"changes":[{"field":"f","value":{}}]}]}`, `{"entry":[{"id":"2","time":1,"changes":[{"field":"f","value":{}}]}]}`},
		{`{"entry":[{"id":"11","time":1,"changes":[{"field":"f","value":{}}]}]}`, `{"entry":[{"id":"1","time":11,"changes":[{"field":"f","value":{}}]}]}`},
	} {
		if a, b := decodeOne(t, bodies[0]), decodeOne(t, bodies[1]); a.ID == b.ID {
			t.Errorf("%s and %s have one identity", bodies[0], bodies[1])
		}
	}
	if e := decodeOne(t, message(`"statuses":[{"id":"a"}]`)); !e.Fingerprinted || e.MessageID != "a" {
		t.Errorf("a status without a status is %s", e.ID)
	}
	if e := decodeOne(t, message(`"messages":[{"id":"`+long+`"}]`)); e.Fingerprinted || !strings.HasPrefix(e.ID, "meta/fp/") || e.MessageID != "" {
		t.Errorf("a message with a long ID is %s, fingerprinted %v", e.ID, e.Fingerprinted)
	}
	// A call's events share the call's ID; the box lists the second as a conflict.
	connect, terminate := decodeOne(t, message(`"calls":[{"id":"a","event":"connect"}]`)), decodeOne(t, message(`"calls":[{"id":"a","event":"terminate"}]`))
	if connect.ID != terminate.ID || bytes.Equal(connect.Payload, terminate.Payload) {
		t.Error("the package doc says that the events of a call share an identity")
	}
}

// The context is the body without its other elements.
func TestContext(t *testing.T) {
	body := `{"new":1,"object":"whatsapp_business_account","entry":[{"id":"W","later":[2],"changes":[{"extra":{},"field":"messages","value":{` +
		`"metadata":{"phone_number_id":"N"},"contacts":[{"wa_id":"1"},{"wa_id":"2"},{"wa_id":"9"}],"errors":[{"code":5}],` +
		`"messages":[{"id":"a","from":"1"},{"id":"b","from":"2"},{"id":"c","from":"3"}],` +
		`"history":[{"metadata":{"phase":0},"threads":[{"id":"1","x":0,"messages":[{"id":"d"}]},{"id":"2","messages":[]}]},{"errors":[6]}]}}]}]}`
	events, err := decode(t, body)
	if err != nil || len(events) != 4 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	around := `{"new":1,"object":"whatsapp_business_account","entry":[{"id":"W","later":[2],"changes":[{"extra":{},"field":"messages","value":{"metadata":{"phone_number_id":"N"},"errors":[{"code":5}],"contacts":[%s{"wa_id":"9"}],"history":[%s{"threads":[{"id":"2","messages":[]}]},{"errors":[6]}]}}]}]}`
	for i, want := range []string{
		fmt.Sprintf(around, `{"wa_id":"1"},`, ""),
		fmt.Sprintf(around, `{"wa_id":"2"},`, ""),
		fmt.Sprintf(around, "", ""),
		fmt.Sprintf(around, `{"wa_id":"1"},`, `{"metadata":{"phase":0},"threads":[{"id":"1","x":0}]},`),
	} {
		if got := string(events[i].Context); got != want {
			t.Errorf("event %d:\ngot  %s\nwant %s", i, got, want)
		}
	}

	e := decodeOne(t, `{"object":"whatsapp_business_account","entry":[{"id":"W","time":1,"changes":[{"field":"flows","value":{}}]}]}`)
	if got := string(e.Context); got != `{"object":"whatsapp_business_account","entry":[{"id":"W","time":1}]}` {
		t.Errorf("context of a change: %s", got)
	}
	if got := string(e.Payload); got != `{"field":"flows","value":{}}` {
		t.Errorf("payload of a change: %s", got)
	}
	e = decodeOne(t, `{"field":"messages","value":{"x":1,"messages":[{"id":"a"}]}}`)
	if got := string(e.Context); got != `{"field":"messages","value":{"x":1}}` {
		t.Errorf("context without an envelope: %s", got)
	}
}

// Contexts do not multiply a body without bound, and what they lack is reported.
func TestContextIsBounded(t *testing.T) {
	var elements []string
	for i := range 1000 {
		elements = append(elements, fmt.Sprintf(`{"id":"%d"}`, i))
	}
	body := message(`"unknown":"` + strings.Repeat("x", 100<<10) + `","messages":[` + strings.Join(elements, ",") + `]`)
	events, err := decode(t, body)
	total := 0
	for _, e := range events {
		total += len(e.Context)
	}
	if len(events) != 1000 || total > 4<<20 || err == nil {
		t.Errorf("%d events, contexts of %d bytes, %v", len(events), total, err)
	}
	if e := decodeOne(t, message(`"unknown":"`+strings.Repeat("x", 2<<20)+`","messages":[{"id":"a"}]`)); len(e.Context) < 2<<20 {
		t.Error("the context of a single event was left out")
	}
}

func TestUnknown(t *testing.T) {
	for _, body := range []string{
		message(`"messages":[{"id":"a","type":"hologram"}]`),
		message(`"messages":[{"id":"a"}]`),
		message(`"statuses":[{"id":"a","status":"pondered"}]`),
		message(`"thoughts":[{"id":"a"}]`),
		`{"field":"moods","value":{}}`,
		`{"field":"messages","value":null}`,
		`{"field":"messages","value":7}`,
		`{"field":"messages"}`,
		`{"field":"\u0000 x","value":{}}`,
		`{"object":"page","entry":[{"id":"1","changes":[{"field":"flows","value":{}}]}]}`,
	} {
		if e := decodeOne(t, body); !e.Unknown {
			t.Errorf("%s is known as %s", body, e.Type)
		}
	}
	if e := decodeOne(t, message(`"errors":[{"code":1}]`)); e.Unknown {
		t.Error("errors alone are unknown")
	}
}

// A part that cannot be decoded is reported and costs nothing of the rest.
func TestBadInput(t *testing.T) {
	good := `{"id":"good","from":"1","type":"text"}`
	change := `{"field":"messages","value":{"messages":[` + good + `]}}`
	for _, test := range []struct {
		name, body string
		events     int
	}{
		{"nothing", "", 0},
		{"space", " \n", 0},
		{"truncated", change[:len(change)-1], 0},
		{"more behind", change + "{}", 0},
		{"array", "[" + change + "]", 0},
		{"null", "null", 0},
		{"number", "1", 0},
		{"NUL", change + "\x00", 0},
		{"deep", strings.Repeat("[", 1<<20), 0},
		{"deep and closed", `{"field":"f","value":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}", 0},
		{"empty object", "{}", 0},
		{"neither", `{"value":{}}`, 0},
		{"other case", `{"Field":"messages","Value":{}}`, 0},
		{"empty entry", `{"object":"whatsapp_business_account","entry":[]}`, 0},
		{"null entry", `{"entry":null}`, 0},
		{"entry no array", `{"entry":{}}`, 0},
		{"entry of nothing", `{"entry":[{}]}`, 0},
		{"no changes", `{"entry":[{"id":"1","changes":[]}]}`, 0},
		{"changes no array", `{"entry":[{"id":"1","changes":{}}]}`, 0},
		{"field no text", `{"field":{},"value":{}}`, 0},
		{"an entry that is no object", `{"entry":[null,{"changes":[` + change + `]}]}`, 1},
		{"an entry without changes", `{"entry":[{"id":"1"},{"changes":[` + change + `]}]}`, 1},
		{"a change that is no object", `{"entry":[{"changes":["x",` + change + `,7]}]}`, 1},
		{"a change without a field", `{"entry":[{"changes":[{"value":{}},` + change + `]}]}`, 1},
		{"an element that is no object", message(`"messages":[null,` + good + `,"x",[]]`), 1},
		{"an ID that is no text", message(`"messages":[{"id":{}},` + good + `,{"id":true}]`), 1},
		{"an array that is none", message(`"statuses":{"id":"a"},"messages":[` + good + `]`), 1},
		{"only an array that is none", message(`"statuses":"x"`), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, err := decode(t, test.body)
			if err == nil || len(events) != test.events {
				t.Fatalf("%d events, %v", len(events), err)
			}
			if strings.Contains(err.Error(), "good") || len(err.Error()) > 1000 {
				t.Errorf("the error quotes the body: %v", err)
			}
			if test.events == 1 && events[0].MessageID != "good" {
				t.Error("the wrong event was kept")
			}
		})
	}
	for name, body := range map[string]string{
		"byte order mark": "\xef\xbb\xbf" + change,
		"space around":    "\n " + change + "\r\n\t",
		"null array":      message(`"statuses":null,"messages":[` + good + `]`),
		"empty array":     message(`"statuses":[],"messages":[` + good + `]`),
		"a name twice":    `{"entry":[{"changes":[` + change + `]}],"entry":[{"changes":[` + change + `]}]}`,
		"escaped names":   `{"f\u0069eld":"messages","\u0076alue":{"mess\u0061ges":[{"\u0069d":"good"}]}}`,
	} {
		if events, err := decode(t, body); err != nil || len(events) == 0 || events[0].MessageID != "good" {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
	for _, value := range []string{`"statuses":[]`, `"statuses":null`, `"history":[]`, `"history":[{"threads":[{"messages":[]}]}]`, `"history":["x"]`} {
		if e := decodeOne(t, message(value)); !e.Fingerprinted || !bytes.HasPrefix(e.Payload, []byte(`{"field"`)) {
			t.Errorf("%s is not one event of the change", value)
		}
	}
}

func TestManyUpdates(t *testing.T) {
	body := many(5000)
	events, err := decode(t, string(body))
	if err != nil || len(events) != 5000 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	ids := make(map[string]bool)
	for _, e := range events {
		ids[e.ID] = true
	}
	if len(ids) != 5000 {
		t.Errorf("%d identities", len(ids))
	}
	// Each of many persons costs its own contact, not everybody's.
	var contacts, messages []string
	for i := range 2000 {
		contacts = append(contacts, fmt.Sprintf(`{"wa_id":"1555%07d"}`, i))
		messages = append(messages, fmt.Sprintf(`{"id":"%d","from":"1555%07d"}`, i, i))
	}
	events, err = decode(t, message(`"contacts":[`+strings.Join(contacts, ",")+`],"messages":[`+strings.Join(messages, ",")+`]`))
	if err != nil || len(events) != 2000 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		if len(e.Context) > 300 || !strings.Contains(string(e.Context), contacts[i]) {
			t.Fatalf("event %d has the context %.400s", i, e.Context)
		}
	}
	// Faults are named up to a bound and counted beyond it.
	bad := message(`"messages":[` + strings.Repeat("null,", 4000) + `{"id":"good"}]`)
	events, err = decode(t, bad)
	if len(events) != 1 || err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "3992 more") {
		t.Errorf("%d events, %v", len(events), err)
	}
}
