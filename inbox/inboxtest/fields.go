package inboxtest

import (
	"bytes"
	"crypto/sha256"
	"reflect"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// What is stored comes back as it was.
var fieldCases = []testCase{
	{name: "EveryFieldIsKept", run: everyFieldIsKept},
	{name: "PayloadsAreBytes", run: payloadsAreBytes},
	{name: "NamesAreExact", run: namesAreExact},
	{name: "SlicesAreNotShared", run: slicesAreNotShared},
	{name: "OccurredMayBeAnyTime", run: occurredMayBeAnyTime},
}

func everyFieldIsKept(e *env) {
	a := inbox.Arrival{
		Event: inbox.Event{
			ID: "p/all", Provider: "p", Type: "messages.messages.text", Version: "v24.0", Key: "p:1555:1666",
			Fingerprinted: true, Unknown: true, Occurred: time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC),
			Account: "account", Phone: "phone", MessageID: "message", ExternalID: "external", Trace: "00-0af7651916cd43dd8448eb211c80319c-01",
			Payload: []byte(`{"id":"x"}`), Context: []byte(`{"entry":"y"}`),
		},
		Digest:  sha256.Sum256([]byte("all")),
		Streams: []string{stream},
	}
	e.accepted(a)
	same := func(where string, got inbox.Event) {
		e.Helper()
		if !got.Occurred.Equal(a.Occurred) {
			e.Fatalf("%s the event occurred at %v, want %v", where, got.Occurred, a.Occurred)
		}
		got.Occurred = a.Occurred
		if !reflect.DeepEqual(got, a.Event) {
			e.Fatalf("%s the event is\n%+v, want\n%+v", where, got, a.Event)
		}
	}
	same("listed by ID", e.record("all").Event)
	same("listed by state", e.list(inbox.Query{State: inbox.StatePending, N: 1})[0].Event)
	c := e.claim(a.Key)
	same("claimed", c.Records[0].Event)
	e.applied(done(c, "all"), release(c))
	same("when it is done", e.record("all").Event)
	e.accepted(arrival("none", "k"))
	if got := e.record("none").Occurred; !got.IsZero() {
		e.Fatalf("an event that names no time occurred at %v", got)
	}
}

func payloadsAreBytes(e *env) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000) // and as much context
	for name, payload := range map[string][]byte{
		"nil":          nil,
		"empty":        {},
		"NUL":          {0},
		"not-UTF-8":    {0xff, 0xfe, 0x80, 0xc0},
		"quotes":       []byte(`'"\$1;--{}[]` + "\r\n\t"),
		"number":       []byte("9007199254740993"),
		"looks-quoted": []byte(`\x00\u0000`),
		"large":        big,
	} {
		a := arrival(name, name)
		a.Payload, a.Context, a.Digest = payload, payload, sha256.Sum256(payload)
		e.accepted(a)
		c := e.claim(name)
		if r := c.Records[0]; !bytes.Equal(r.Payload, payload) || !bytes.Equal(r.Context, payload) {
			e.Fatalf("a payload (%s) of %d bytes came back with %d, and as context with %d", name, len(payload), len(r.Payload), len(r.Context))
		}
		e.applied(done(c, name), release(c))
	}
}

func namesAreExact(e *env) {
	names := []string{
		"a", "A", "ab", "a/b", "a:b", "a\x01", "a\x01b", "a b", " a", "a\n", "{a}", "%", "a%00", "*", "?", "[a]", "\\", "'", `"`,
		"é", "e\u0301", "漢字", "\U0001F600", strings.Repeat("x", 510), strings.Repeat("é", 255), strings.Repeat("x", 509) + "y",
	}
	for _, n := range names {
		e.accepted(arrival(n, n))
	}
	for _, n := range names {
		e.answered(inbox.Duplicate, arrival(n, n))
		if r := e.record(n); r.ID != "p/"+n || r.Key != n {
			e.Fatalf("the event %q of key %q has the record of %q, of key %q", n, n, r.ID, r.Key)
		}
	}
	claims := e.claims()
	if len(claims) != len(names) {
		e.Fatalf("%d of %d keys were claimed: %q", len(claims), len(names), keysOf(claims))
	}
	for _, c := range claims {
		e.wantRecords(c, c.Key)
		e.applied(done(c, c.Key), release(c))
	}
	e.wantTotals(0, len(names), 0, 0, 0, 0)
	if got := e.get("absent"); len(got) != 0 {
		e.Fatalf("an event that is not known has %d records", len(got))
	}
}

func slicesAreNotShared(e *env) {
	a := arrival("a", "k")
	a.Context = []byte("context")
	payload, context, streams := a.Payload, a.Context, a.Streams
	arrivals := []inbox.Arrival{a}
	e.accepted(arrivals...)
	clear(payload)
	clear(context)
	streams[0] = "changed"
	clear(arrivals)
	first := e.record("a")
	if string(first.Payload) != "payload of a" || string(first.Context) != "context" {
		e.Fatalf("the store kept the caller's slices: %q, %q", first.Payload, first.Context)
	}
	clear(first.Payload)
	clear(first.Context)
	c := e.claim("k")
	if r := c.Records[0]; string(r.Payload) != "payload of a" || string(r.Context) != "context" {
		e.Fatalf("the store gave out its own slices: %q, %q", r.Payload, r.Context)
	}
	clear(c.Records[0].Payload)
	if got := e.record("a"); string(got.Payload) != "payload of a" {
		e.Fatalf("the store gave out its own slices: %q", got.Payload)
	}
}

func occurredMayBeAnyTime(e *env) {
	for name, at := range map[string]time.Time{
		"before 1970": time.Date(1901, 2, 3, 4, 5, 6, 0, time.UTC),
		"year 1":      time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		"year 9999":   time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		"1970":        time.Unix(0, 0).UTC(),
	} {
		a := arrival(name, name)
		a.Occurred = at
		e.accepted(a)
		if got := e.record(name).Occurred; !got.Equal(at) {
			e.Fatalf("an event of %v came back as one of %v", at, got)
		}
	}
}
