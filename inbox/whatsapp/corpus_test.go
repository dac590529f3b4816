package whatsapp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write testdata/events.txt anew; read the difference before you keep it")

// The sample bodies' events, one line each, are a file that a person has read.
func TestSampleBodies(t *testing.T) {
	var got bytes.Buffer
	for _, b := range webhooktest.Own(t, "meta-") {
		events, err := webhooktest.CheckEvents(t, source(t), b.Data)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		fmt.Fprintln(&got, b.Name)
		for _, e := range events {
			fmt.Fprintf(&got, "\t%s\t%s\t%s%s\n", e.ID, e.Key, e.Type, marks(e))
		}
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

func marks(e inbox.Event) (s string) {
	if e.Fingerprinted {
		s += "\tfingerprinted"
	}
	if e.Unknown {
		s += "\tunknown"
	}
	return s
}

func TestSampleBodiesAgainstReference(t *testing.T) {
	testReference(t, webhooktest.Own(t, "meta-"))
}

func TestSharedBodies(t *testing.T) {
	testReference(t, webhooktest.Shared(t, "meta-"))
}

// Decode is compared with a second, slow reading by encoding/json, which knows
// nothing but the rules for identities.
func testReference(t *testing.T, bodies []webhooktest.Body) {
	for _, b := range bodies {
		t.Run(b.Name, func(t *testing.T) {
			events, err := webhooktest.CheckEvents(t, source(t), b.Data)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range events {
				id := e.ID
				if e.Fingerprinted {
					id = "meta/fp/"
				}
				got = append(got, id)
			}
			if want := reference(t, b.Data); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func reference(t *testing.T, body []byte) (ids []string) {
	var top map[string]any
	if err := json.Unmarshal(body, &top); err != nil {
		t.Fatal(err)
	}
	var changes []any
	if entries, ok := top["entry"].([]any); ok {
		for _, e := range entries {
			changes = append(changes, e.(map[string]any)["changes"].([]any)...)
		}
	} else {
		changes = []any{top}
	}
	for _, c := range changes {
		c := c.(map[string]any)
		value := c["value"].(map[string]any)
		found := 0
		// The order within a change is compared only where it has one array.
		for _, array := range []string{"messages", "statuses", "message_echoes", "calls", "groups", "state_sync"} {
			list, _ := value[array].([]any)
			for _, el := range list {
				ids = append(ids, referenceID(c["field"].(string), array, el.(map[string]any)))
				found++
			}
		}
		history, _ := value["history"].([]any)
		for _, h := range history {
			threads, _ := h.(map[string]any)["threads"].([]any)
			for _, th := range threads {
				for _, m := range th.(map[string]any)["messages"].([]any) {
					ids = append(ids, referenceID(c["field"].(string), "history", m.(map[string]any)))
					found++
				}
			}
		}
		if found == 0 {
			ids = append(ids, "meta/fp/")
		}
	}
	return ids
}

func referenceID(field, array string, e map[string]any) string {
	id, _ := e["id"].(string)
	if id == "" {
		return "meta/fp/"
	}
	if array != "statuses" {
		return "meta/" + field + "/" + array + "/" + id
	}
	participant := "-"
	for _, name := range []string{"recipient_participant_user_id", "participant_recipient_id", "recipient_participant_id"} {
		if p, ok := e[name].(string); ok {
			participant = p
		}
	}
	return strings.Join([]string{"meta", field, "statuses", id, e["status"].(string), participant}, "/")
}

// Of one corpus, no two different elements have the same identity, except the
// ones that the provider itself sends under one ID.
func TestSampleIdentitiesAreDistinct(t *testing.T) {
	seen := make(map[string][]byte)
	for _, b := range webhooktest.Own(t, "meta-") {
		events, _ := source(t).Decode(b.Data)
		for _, e := range events {
			if before, ok := seen[e.ID]; ok && !bytes.Equal(before, e.Payload) {
				t.Errorf("%s: two events have one identity", b.Name)
			}
			seen[e.ID] = e.Payload
		}
	}
}

func TestSharedVectors(t *testing.T) {
	for _, v := range webhooktest.Vectors(t, "meta") {
		t.Run(v.ID, func(t *testing.T) {
			s, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: v.Secret}}})
			if err != nil {
				t.Fatal(err)
			}
			h := make(http.Header)
			for name, value := range v.Headers {
				h.Set(name, value)
			}
			_, err = s.Verify(&inbox.Delivery{Header: h, Body: []byte(v.Body)})
			if (err == nil) != (v.Expected == "valid") {
				t.Errorf("%v, expected %s", err, v.Expected)
			}
		})
	}
}
