// Package webhooktest is what the tests of the provider adapters share: bodies,
// signature vectors, and what holds for every decoded event.
package webhooktest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/pawl-go/pawl/inbox"
)

// A Body is one file of a folder of bodies.
type Body struct {
	Name string
	Data []byte
}

// Own returns the project's own sample bodies whose names begin with the prefix.
func Own(t testing.TB, prefix string) []Body {
	bodies := read(t, filepath.Join(root(), "examples", "pipeline", "bodies"), prefix)
	if len(bodies) == 0 {
		t.Fatalf("no sample body %s*.json", prefix)
	}
	return bodies
}

// Shared returns the bodies of a folder outside the project, which need not be
// there: that of PAWL_BODIES, else one beside the work tree. Without it the test
// is skipped.
func Shared(t testing.TB, prefix string) []Body {
	bodies := read(t, sharedFolder(t), prefix)
	if len(bodies) == 0 {
		t.Fatalf("the folder of bodies has no %s*.json", prefix)
	}
	return bodies
}

// A Vector is a signature and what a verifier must say to it.
type Vector struct {
	ID, Scheme, Secret string
	Body               string
	BodyFile           string `json:"body_file"`
	Headers            map[string]string
	URL                string            // where the provider sent it
	Params             map[string]string // of a form
	Expected           string            // "valid" or "invalid", with or without more
}

// Vectors returns the vectors of a scheme that lie beside the shared bodies, with
// their bodies read. Without the folder the test is skipped.
func Vectors(t testing.TB, scheme string) (vectors []Vector) {
	folder := sharedFolder(t)
	data, err := os.ReadFile(filepath.Join(folder, "vectors.json"))
	if err != nil {
		t.Skip("the folder of bodies has no vectors.json")
	}
	var all struct{ Vectors []Vector }
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all.Vectors {
		if v.Scheme != scheme {
			continue
		}
		if v.BodyFile != "" {
			data, err := os.ReadFile(filepath.Join(folder, v.BodyFile))
			if err != nil {
				t.Fatal(err)
			}
			v.Body = string(data)
		}
		vectors = append(vectors, v)
	}
	if len(vectors) == 0 {
		t.Fatalf("vectors.json has none of scheme %q", scheme)
	}
	return vectors
}

// CheckEvents decodes a body twice and checks what holds for every body, sound or
// not: the same events each time, identities and keys that a store takes,
// payloads that lie in the body, contexts that are JSON, an error that quotes
// nothing. It returns the events.
func CheckEvents(t testing.TB, s inbox.Source, body []byte) ([]inbox.Event, error) {
	t.Helper()
	before := bytes.Clone(body)
	events, err := s.Decode(body)
	again, _ := s.Decode(body)
	if !reflect.DeepEqual(events, again) {
		t.Error("a second Decode gave other events")
	}
	if !bytes.Equal(before, body) {
		t.Error("Decode changed the body")
	}
	if len(events) == 0 && err == nil {
		t.Error("no event and no error: the body is lost")
	}
	for i, e := range events {
		checkText(t, "ID", e.ID)
		checkText(t, "Key", e.Key)
		for _, s := range []string{e.Account, e.Phone, e.MessageID, e.ExternalID, e.Version} {
			if s != "" {
				checkText(t, "a field", s)
			}
		}
		if !strings.HasPrefix(e.ID, s.Provider()+"/") || !strings.HasPrefix(e.Key, s.Provider()+"/") || e.Provider != s.Provider() {
			t.Errorf("event %d is not of provider %q", i, s.Provider())
		}
		if e.Type == "" || strings.ContainsAny(e.Type, "/ \n") {
			t.Errorf("event %d: type %q", i, e.Type)
		}
		if !within(e.Payload, body) {
			t.Errorf("event %d: the payload is not a part of the body", i)
		}
		if !json.Valid(e.Payload) || e.Context != nil && !json.Valid(e.Context) {
			t.Errorf("event %d: payload or context is not JSON", i)
		}
	}
	return events, err
}

func checkText(t testing.TB, name, s string) {
	t.Helper()
	if s == "" || len(s) > 512 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		t.Errorf("%s of %d bytes is no 1 to 512 bytes of UTF-8 without NUL", name, len(s))
	}
}

// within reports whether part lies in the memory of whole.
func within(part, whole []byte) bool {
	if len(part) == 0 || len(whole) == 0 {
		return false
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	return at >= first && at+uintptr(len(part)) <= first+uintptr(len(whole))
}

func read(t testing.TB, folder, prefix string) (bodies []Body) {
	files, err := filepath.Glob(filepath.Join(folder, prefix+"*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, Body{Name: filepath.Base(f), Data: data})
	}
	return bodies
}

func sharedFolder(t testing.TB) string {
	folder := os.Getenv("PAWL_BODIES")
	if folder == "" {
		folder = filepath.Join(root(), "..", "shared", "data", "webhooks")
	}
	if _, err := os.Stat(folder); err != nil {
		t.Skip("no folder of shared bodies; name one in PAWL_BODIES to test with it")
	}
	return folder
}

// root is the module's folder.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
