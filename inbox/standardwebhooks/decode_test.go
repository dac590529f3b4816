package standardwebhooks_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/standardwebhooks"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

func TestEventFields(t *testing.T) {
	const body = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52"}}`
	s := with(t, standardwebhooks.Options{Key: func(e inbox.Event) string { return e.Type + "/1" }})
	events, err := decode(t, s, "msg_1", "\n"+body+"\n")
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	want := inbox.Event{
		ID: "shop/msg_1", Provider: "shop", Type: "contact.created", Key: "shop/contact.created%2F1",
		Occurred: time.Date(2022, 11, 3, 20, 26, 10, 344522000, time.UTC), Payload: []byte(body),
	}
	if !reflect.DeepEqual(events[0], want) {
		t.Errorf("got  %+v\nwant %+v", events[0], want)
	}
}

// Published bodies of two providers. OpenAI's has another time than the
// specification's, which stays in the payload.
func TestPublishedBodies(t *testing.T) {
	for _, tt := range []struct {
		body, kind string
		occurred   bool
	}{
		{`{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1","type":"contact"}}`, "contact.created", true},
		{`{"id":"evt_1","object":"event","created_at":1750861210,"type":"response.completed","data":{"id":"resp_123"}}`, "response.completed", false},
	} {
		events, err := decode(t, source(t), "msg_1", tt.body)
		if err != nil || len(events) != 1 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		e := events[0]
		if e.ID != "shop/msg_1" || e.Key != e.ID || e.Type != tt.kind || e.Unknown || e.Occurred.IsZero() == tt.occurred || string(e.Payload) != tt.body {
			t.Errorf("%+v", e)
		}
	}
}

func TestSharedBodies(t *testing.T) {
	for prefix, kind := range map[string]string{"stdwebhooks-": "contact.created", "openai-": "response.completed"} {
		for _, b := range webhooktest.Shared(t, prefix) {
			events, err := decode(t, source(t), "msg_1", string(b.Data))
			if err != nil || len(events) != 1 || events[0].ID != "shop/msg_1" || events[0].Type != kind {
				t.Errorf("%s: %+v, %v", b.Name, events, err)
			}
		}
	}
}

// Different IDs are different events, whatever they look like, and one ID is one.
func TestIdentities(t *testing.T) {
	long := strings.Repeat("x", 600)
	seen := make(map[string]string)
	for _, id := range []string{"a", "a/b", "a.b", "A", " a b", "fp/0123", "raw/0123", "\xff", "\xfe", long + "1", long + "2", "ä", "\t\x01x"} {
		events, err := decode(t, source(t), id, "{}")
		if err != nil || len(events) != 1 {
			t.Fatalf("ID %q: %d events, %v", id, len(events), err)
		}
		e := events[0]
		if other, ok := seen[e.ID]; ok {
			t.Errorf("%q and %q have one identity", id, other)
		}
		seen[e.ID] = id
		if e.Fingerprinted {
			t.Errorf("the identity of %q is said to be a fingerprint of the body", id)
		}
		if again, _ := decode(t, source(t), id, `{"x":1}`); again[0].ID != e.ID {
			t.Errorf("ID %q has two identities", id)
		}
	}
	if _, err := source(t).Verify(signed(t, secret, "a\nb", "{}", now)); err == nil {
		t.Error("an ID with a line break was accepted")
	}
	if _, ok := seen["shop/fp/0123"]; ok {
		t.Error("an ID can pose as a fingerprint")
	}
	if _, ok := seen["shop/raw/0123"]; ok {
		t.Error("an ID can pose as a body in quarantine")
	}
}

func TestUnusualBodies(t *testing.T) {
	for body, want := range map[string]inbox.Event{
		`{}`:                                {Type: "-", Unknown: true},
		`{"type":null}`:                     {Type: "-", Unknown: true},
		`{"type":{}}`:                       {Type: "-", Unknown: true},
		`{"type":7}`:                        {Type: "7"},
		`{"type":"a b"}`:                    {Type: "?"},
		`{"type":"a","type":"b"}`:           {Type: "b"},
		`{"Type":"a"}`:                      {Type: "-", Unknown: true},
		`{"type":"a","timestamp":"noon"}`:   {Type: "a"},
		`{"type":"a","timestamp":17000000}`: {Type: "a"},
		`{"type":"a","timestamp":{}}`:       {Type: "a"},
		`{"type":"a","timestamp":"2022-11-03T20:26:10+02:00"}`: {Type: "a", Occurred: time.Date(2022, 11, 3, 18, 26, 10, 0, time.UTC)},
	} {
		events, err := decode(t, source(t), "msg_1", body)
		if err != nil || len(events) != 1 {
			t.Errorf("%s: %d events, %v", body, len(events), err)
			continue
		}
		if e := events[0]; e.Type != want.Type || e.Unknown != want.Unknown || !e.Occurred.Equal(want.Occurred) {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// Decode takes what Verify returned, and nothing without an ID.
func TestDecodeNeedsTheID(t *testing.T) {
	for _, body := range []string{"", "{}", "webhook-id: ", "webhook-id: a\n{}", "webhook-id: a", "webhook-id: \n\n{}", "webhook-id: a\nb\n\n{}", "\n\n{}"} {
		if events, err := source(t).Decode([]byte(body)); err == nil || events != nil {
			t.Errorf("%q: %d events, %v", body, len(events), err)
		}
	}
	// A body that looks like the line does not replace it.
	if events, err := decode(t, source(t), "real", "webhook-id: forged\n\n{}"); err == nil {
		t.Errorf("%+v", events)
	}
}

// An ID with a period in it can be divided differently, with the signature still
// right: then the body is not JSON, and no event has the false ID.
func TestDividedID(t *testing.T) {
	d := signed(t, secret, "a.1772366400", `{"type":"a"}`, now)
	if now.Unix() != 1772366400 {
		t.Fatalf("the ID needs the time %d", now.Unix())
	}
	d.Header.Set("webhook-id", "a")
	d.Body = []byte("1772366400." + string(d.Body))
	verified, err := source(t).Verify(d)
	if err != nil {
		t.Fatalf("the package doc says that it verifies: %v", err)
	}
	if events, err := source(t).Decode(verified); err == nil || events != nil {
		t.Errorf("decoded to %+v", events)
	}
}

func TestKey(t *testing.T) {
	for key, want := range map[string]string{"": "shop/msg_1", "c1": "shop/c1", "a/b": "shop/a%2Fb"} {
		s := with(t, standardwebhooks.Options{Key: func(e inbox.Event) string {
			if e.ID != "shop/msg_1" || string(e.Payload) != "{}" {
				t.Errorf("the function was given %+v", e)
			}
			return key
		}})
		if events, err := decode(t, s, "msg_1", "{}"); err != nil || events[0].Key != want {
			t.Errorf("key %q became %q, %v", key, events[0].Key, err)
		}
	}
	panics := with(t, standardwebhooks.Options{Key: func(inbox.Event) string { panic("no") }})
	d := webhooktest.NewDoor(t, panics, sign(t))
	if status := d.Post([]byte("{}")); status != 200 || d.Box.Stats().Quarantined != 1 {
		t.Errorf("answered %d, %+v", status, d.Box.Stats())
	}
	// What lies in quarantine has its ID, for the source that is mended.
	kept, err := d.Box.List(context.Background(), inbox.StateQuarantined, 0, 10)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d bodies in quarantine, %v", len(kept), err)
	}
	if events, err := source(t).Decode(kept[0].Payload); err != nil || len(events) != 1 || events[0].ID != "shop/msg_1" || string(events[0].Payload) != "{}" {
		t.Errorf("decoded later: %+v, %v", events, err)
	}
}

func sign(t *testing.T) func(body []byte) http.Header {
	return func(body []byte) http.Header {
		return signed(t, secret, "msg_1", string(body), time.Now()).Header
	}
}

func TestBehindTheHandler(t *testing.T) {
	body := []byte(`{"type":"contact.created","data":{"name":"secret"}}`)
	webhooktest.TestDoor(t, source(t), "webhook-signature", body, sign(t))
}
