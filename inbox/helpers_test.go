package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A provider is a source for tests. Its bodies are JSON arrays of elements with
// an id, a key and anything else; its signature is the word "signed".
type provider struct {
	horizon time.Duration
}

func (provider) Provider() string         { return "test" }
func (p provider) Horizon() time.Duration { return p.horizon }

func (provider) Verify(d *inbox.Delivery) ([]byte, error) {
	switch sig := d.Header.Values("X-Signature"); {
	case len(sig) == 0:
		return nil, &inbox.RejectError{Reason: inbox.NoSignature}
	case len(sig) > 1:
		return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: "more than one"}
	case sig[0] == "old":
		return nil, &inbox.RejectError{Reason: inbox.TooOld}
	case sig[0] == "odd":
		return nil, errors.New("not a rejection")
	case sig[0] != "signed":
		return nil, &inbox.RejectError{Reason: inbox.WrongSignature}
	}
	return d.Body, nil
}

func (provider) Decode(body []byte) ([]inbox.Event, error) {
	if bytes.Contains(body, []byte("panic")) {
		panic("cannot decode " + string(body))
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(body, &elements); err != nil {
		return nil, err
	}
	var events []inbox.Event
	var bad error
	for _, raw := range elements {
		var e struct{ ID, Key, Provider string }
		if err := json.Unmarshal(raw, &e); err != nil {
			bad = err
			continue
		}
		if e.Provider == "" {
			e.Provider = "test"
		}
		events = append(events, inbox.Event{ID: e.Provider + "/" + e.ID, Provider: e.Provider, Type: "t", Key: e.Key, Payload: raw})
	}
	return events, bad
}

func (provider) Handshake(d *inbox.Delivery) ([]byte, error) {
	if d.Query.Get("token") != "token" {
		return nil, &inbox.RejectError{Reason: inbox.BadHandshake}
	}
	return []byte(d.Query.Get("challenge")), nil
}

// withoutHandshake has none, and replies.
type withoutHandshake struct{ provider }

func (withoutHandshake) Handshake() {} // not the method of a Handshaker

func (withoutHandshake) ContentTypes() []string                   { return []string{"text/xml", "application/xml"} }
func (withoutHandshake) Reply() (string, []byte)                  { return "text/plain", []byte("success") }
func (withoutHandshake) Verify(d *inbox.Delivery) ([]byte, error) { return provider{}.Verify(d) }

func newBox(t testing.TB, s inbox.Store, opts *inbox.Options) *inbox.Box {
	t.Helper()
	b, err := inbox.New(s, overheard(opts))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newHandler(t testing.TB, b *inbox.Box, s inbox.Source, opts *inbox.HandlerOptions) http.Handler {
	t.Helper()
	h, err := inbox.Handler(b, s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// post delivers a signed body and returns the answer.
func post(h http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/hook", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Signature", "signed")
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Add(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// events makes events of one key.
func events(key string, ids ...string) []inbox.Event {
	var es []inbox.Event
	for _, id := range ids {
		es = append(es, inbox.Event{ID: "test/" + id, Provider: "test", Type: "t", Key: key, Payload: []byte("payload of " + id)})
	}
	return es
}

func accept(t testing.TB, b *inbox.Box, es ...inbox.Event) {
	t.Helper()
	if _, err := b.Accept(context.Background(), es...); err != nil {
		t.Fatal(err)
	}
}

func totals(t testing.TB, b *inbox.Box) inbox.Totals {
	t.Helper()
	got, err := b.Totals(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantTotals checks the numbers of records, without their ages.
func wantTotals(t testing.TB, b *inbox.Box, want inbox.Totals) {
	t.Helper()
	got := totals(t, b)
	if got.Oldest = want.Oldest; got != want {
		t.Errorf("the totals are %+v, want %+v", got, want)
	}
}

// A worker runs Work in the background.
type worker struct {
	stop func() error
}

func work(t testing.TB, b *inbox.Box, opts *inbox.WorkOptions, handle func(context.Context, inbox.Record) inbox.Outcome) worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Work(ctx, handle, opts) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return worker{stop}
}

// A journal notes what handlers were given.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.entries, " ")
}

// logged returns a logger and a function that returns what was logged.
func logged() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var b strings.Builder
	w := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	})
	return slog.New(slog.NewTextHandler(w, nil)), func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func short(r inbox.Record) string { return strings.TrimPrefix(r.ID, "test/") }
