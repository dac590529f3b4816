package whatsapp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write the files in testdata anew; read the difference before you keep it")

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
	checkGolden(t, "testdata/events.txt", got.Bytes())
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

// The shared bodies' events with all that they are found and ordered by, one row
// each below the name of the file, are a file that a person has read.
func TestSharedBodiesRowByRow(t *testing.T) {
	var got bytes.Buffer
	for _, b := range webhooktest.Shared(t, "meta-") {
		events, err := source(t).Decode(b.Data)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		fmt.Fprintln(&got, b.Name)
		for _, e := range events {
			fmt.Fprintf(&got, "\t%s\tkey %s\taccount %s\tphone %s\tmessage %s\texternal %s\t%s%s\n",
				e.ID, e.Key, e.Account, e.Phone, e.MessageID, e.ExternalID, e.Type, marks(e))
		}
	}
	checkGolden(t, "testdata/shared.txt", got.Bytes())
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

// Decode is compared with a second, slow reading by encoding/json, which knows
// nothing but the rules for identities.
func testReference(t *testing.T, bodies []webhooktest.Body) {
	for _, b := range bodies {
		t.Run(b.Name, func(t *testing.T) {
			events, err := webhooktest.CheckEvents(t, source(t), b.Data)
			if err != nil {
				t.Fatal(err)
			}
			var got []row
			for _, e := range events {
				id := e.ID
				if e.Fingerprinted {
					id = "meta/fp/"
				}
				got = append(got, row{id, e.Account, e.MessageID, e.ExternalID})
			}
			if want := reference(t, b.Data); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// A row is what the reference says of an event.
type row struct{ id, account, message, external string }

func reference(t *testing.T, body []byte) (rows []row) {
	var top map[string]any
	if err := json.Unmarshal(body, &top); err != nil {
		t.Fatal(err)
	}
	entries, ok := top["entry"].([]any)
	if !ok {
		entries = []any{map[string]any{"changes": []any{top}}}
	}
	for _, e := range entries {
		account, _ := e.(map[string]any)["id"].(string)
		for _, c := range e.(map[string]any)["changes"].([]any) {
			rows = append(rows, referenceRows(c.(map[string]any), account)...)
		}
	}
	return rows
}

func referenceRows(c map[string]any, account string) (rows []row) {
	value := c["value"].(map[string]any)
	add := func(array string, list any) {
		elements, _ := list.([]any)
		for _, el := range elements {
			e := el.(map[string]any)
			message, _ := e["id"].(string)
			external, _ := e["biz_opaque_callback_data"].(string)
			rows = append(rows, row{referenceID(c["field"].(string), array, e), account, message, external})
		}
	}
	// The order within a change is compared only where it has one array.
	for _, array := range []string{"messages", "statuses", "message_echoes", "calls", "groups", "state_sync"} {
		add(array, value[array])
	}
	history, _ := value["history"].([]any)
	for _, h := range history {
		threads, _ := h.(map[string]any)["threads"].([]any)
		for _, th := range threads {
			add("history", th.(map[string]any)["messages"])
		}
	}
	if len(rows) == 0 {
		rows = append(rows, row{id: "meta/fp/", account: account})
	}
	return rows
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

func TestVectors(t *testing.T) {
	testVectors(t, webhooktest.Kept(t, "meta"))
}

func TestSharedVectors(t *testing.T) {
	testVectors(t, webhooktest.Vectors(t, "meta"))
}

func testVectors(t *testing.T, vectors []webhooktest.Vector) {
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			s, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: v.Secret}}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Verify(v.Delivery(now))
			if v.Valid() {
				checkReason(t, err, "")
			} else {
				checkReason(t, err, inbox.WrongSignature)
			}
		})
	}
}
