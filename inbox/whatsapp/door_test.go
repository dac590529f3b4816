package whatsapp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

func sign(body []byte) http.Header {
	return http.Header{"X-Hub-Signature-256": {whatsapp.Sign(secret, body)}}
}

func TestBehindTheHandler(t *testing.T) {
	body := message(`"messages":[{"id":"wamid.1","from":"15550003001","type":"text","text":{"body":"secret"}}],` +
		`"statuses":[{"id":"wamid.2","status":"sent","recipient_id":"15550003001"}]`)
	webhooktest.TestDoor(t, source(t), "X-Hub-Signature-256", []byte(body), sign)
}

// What is sound in a body is stored and what is not is kept beside it.
func TestPartsThatCannotBeDecoded(t *testing.T) {
	good := `{"id":"wamid.good","from":"1","type":"text"}`
	change := `{"field":"messages","value":{"messages":[` + good + `]}}`
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"id":"wamid.%d","from":%d,"timestamp":"1760000000","type":"text"}`, i, i)
	}
	for name, tt := range map[string]struct {
		body        string
		accepted    int
		quarantined int
	}{
		"entry of another kind":     {`{"entry":[7,{"id":"1","changes":[` + change + `]}]}`, 1, 1},
		"change of another kind":    {`{"entry":[{"id":"1","changes":[[],` + change + `]}]}`, 1, 1},
		"message of another kind":   {message(`"messages":["x",` + good + `]`), 1, 1},
		"ID of another kind":        {message(`"messages":[{"id":[]},` + good + `]`), 1, 1},
		"array of another kind":     {message(`"messages":{},"statuses":[{"id":"wamid.good","status":"sent"}]`), 1, 1},
		"no ID":                     {message(`"messages":[{"from":"1","type":"text"},` + good + `]`), 2, 0},
		"a null ID":                 {message(`"messages":[{"id":null,"from":"1"},` + good + `]`), 2, 0},
		"a status without status":   {message(`"statuses":[{"id":"wamid.good"}]`), 1, 0},
		"numbers for texts":         {message(`"messages":[{"id":7,"from":1555,"timestamp":1760000000,"type":1}]`), 1, 0},
		"texts for numbers":         {`{"entry":[{"id":410,"time":"1760000000","changes":[{"field":"account_update","value":{"event":1}}]}]}`, 1, 0},
		"an ID of control":          {message(`"messages":[{"id":"wamid.\u0000\n"},` + good + `]`), 2, 0},
		"a long ID":                 {message(`"messages":[{"id":"` + strings.Repeat("x", 5000) + `"},` + good + `]`), 2, 0},
		"empty messages":            {message(`"messages":[]`), 1, 0},
		"empty entry":               {`{"object":"whatsapp_business_account","entry":[]}`, 0, 1},
		"empty changes":             {`{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[]}]}`, 0, 1},
		"several thousand":          {message(`"messages":[` + strings.Join(many, ",") + `]`), 3000, 0},
		"several thousand, one bad": {message(`"messages":[` + strings.Join(many, ",") + `,null]`), 3000, 1},
		"an unknown field":          {`{"entry":[{"id":"1","changes":[{"field":"moods","value":[1]}]}]}`, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := webhooktest.NewDoor(t, source(t), sign)
			if status := d.Post([]byte(tt.body)); status != http.StatusOK {
				t.Fatalf("answered %d", status)
			}
			totals, err := d.Box.Totals(context.Background())
			if err != nil || totals.Pending != tt.accepted || totals.Quarantined != tt.quarantined {
				t.Errorf("%d events wait and %d bodies are in quarantine, %v; want %d and %d",
					totals.Pending, totals.Quarantined, err, tt.accepted, tt.quarantined)
			}
			kept, err := d.Box.List(context.Background(), inbox.StateQuarantined, 0, 10)
			if err != nil || len(kept) > 0 && string(kept[0].Payload) != tt.body {
				t.Errorf("in quarantine is another body, %v", err)
			}
		})
	}
}

// The App Dashboard's test button sends the same ID every time, for messages and
// for echoes: none of it hides a real event, or a test of another field.
func TestDashboardTestHidesNothing(t *testing.T) {
	test := func(entry, field, array, id string) []byte {
		return fmt.Appendf(nil, `{"object":"whatsapp_business_account","entry":[{"id":%q,"time":1504902988,"changes":[{"field":%q,"value":{`+
			`"metadata":{"display_phone_number":"16505551111","phone_number_id":"123456123"},`+
			`%q:[{"from":"16315551181","id":%q,"timestamp":"1504902988","type":"text","text":{"body":"this is a text message"}}]}}]}]}`,
			entry, field, array, id)
	}
	account := func(entry string) []byte {
		return fmt.Appendf(nil, `{"object":"whatsapp_business_account","entry":[{"id":%q,"time":1504902988,"changes":[{"field":"account_update",`+
			`"value":{"phone_number":"16505551111","event":"VERIFIED_ACCOUNT"}}]}]}`, entry)
	}
	const testID = "ABGGFlA5Fpa"
	d := webhooktest.NewDoor(t, source(t), sign)
	for i, body := range [][]byte{
		test("0", "messages", "messages", testID),
		test("0", "smb_message_echoes", "message_echoes", testID),
		test("0", "message_echoes", "message_echoes", testID),
		account("0"),
		// Real ones of the same number, person, second and content.
		test("410", "messages", "messages", "wamid.HBgLMTYzMTU1NTExODE="),
		test("410", "smb_message_echoes", "message_echoes", "wamid.HBgLMTYzMTU1NTExODE="),
		account("410"),
	} {
		if status := d.Post(body); status != http.StatusOK {
			t.Fatalf("body %d was answered %d", i, status)
		}
		if st := d.Box.Stats(); st.Accepted != uint64(i+1) || st.Conflicts != 0 {
			t.Errorf("body %d is hidden by one before it: %+v", i, st)
		}
	}
	// The second press is a duplicate of the first.
	d.Post(test("0", "messages", "messages", testID))
	if st := d.Box.Stats(); st.Accepted != 7 || st.Duplicates != 1 {
		t.Errorf("the second press: %+v", st)
	}
}

// A message of the history comes first as a placeholder and later with its media,
// under one message ID: two events, both found by it.
func TestHistoryPlaceholderAndItsMedia(t *testing.T) {
	d := webhooktest.NewDoor(t, source(t), sign)
	bodies := make(map[string][]byte)
	for _, b := range webhooktest.Own(t, "meta-history") {
		bodies[b.Name] = b.Data
	}
	seen := make(map[string][]inbox.Event) // by message ID
	for _, name := range []string{"meta-history-1-threads.json", "meta-history-2-media.json"} {
		if status := d.Post(bodies[name]); status != http.StatusOK {
			t.Fatalf("%s was answered %d", name, status)
		}
		events, err := source(t).Decode(bodies[name])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			seen[e.MessageID] = append(seen[e.MessageID], e)
		}
	}
	pairs := 0
	for id, events := range seen {
		if len(events) != 2 {
			continue
		}
		pairs++
		if events[0].ID == events[1].ID || events[0].Type != "history.history.media_placeholder" || events[0].Key != events[1].Key {
			t.Errorf("message %s: %+v", id, events)
		}
	}
	st := d.Box.Stats()
	if pairs != 1 || st.Conflicts != 0 || st.Duplicates != 0 {
		t.Errorf("%d pairs of placeholder and media, %+v", pairs, st)
	}
}

// The handshake and the signature are refused for reasons that tell them apart.
func TestHandshakeBehindTheHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		query  string
		status int
		reason inbox.Reason
	}{
		"good":        {"hub.mode=subscribe&hub.challenge=115&hub.verify_token=" + token, 200, ""},
		"wrong token": {"hub.mode=subscribe&hub.challenge=115&hub.verify_token=x", 403, inbox.BadHandshake},
		"other mode":  {"hub.mode=x&hub.challenge=115&hub.verify_token=" + token, 403, inbox.BadHandshake},
		"nothing":     {"", 403, inbox.BadHandshake},
	} {
		d := webhooktest.NewDoor(t, source(t), sign)
		status := d.Post(nil, func(r *http.Request) { r.Method, r.URL.RawQuery = http.MethodGet, tt.query })
		if st := d.Box.Stats(); status != tt.status || st.Rejected[tt.reason] != 1 && tt.reason != "" || len(st.Rejected) > 1 {
			t.Errorf("%s: answered %d, counted %v", name, status, st.Rejected)
		}
	}
}
