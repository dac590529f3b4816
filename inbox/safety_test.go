package inbox_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/retry"
)

// An encoded body is refused and never unpacked: 64 MiB of zeros have 300 KB here.
func TestHandlerOfAGzipBomb(t *testing.T) {
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, inbox.NewMemory(), nil)
	h := newHandler(t, b, provider{}, nil)
	for _, encoding := range []string{"gzip", "x-gzip", "GZIP", "deflate", "br", "identity, gzip", "gzip, gzip"} {
		if w := post(h, bomb.String(), "Content-Encoding", encoding); w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("encoded as %s it is answered %d", encoding, w.Code)
		}
	}
	// Without the header it is bytes like any others: not understood, and kept as they
	// came.
	if w := post(h, bomb.String()); w.Code != 200 {
		t.Errorf("without the header it is answered %d", w.Code)
	}
	rs, err := b.List(t.Context(), inbox.StateQuarantined, 0, 10)
	if err != nil || len(rs) != 1 || len(rs[0].Payload) != bomb.Len() {
		t.Errorf("in quarantine are %d records, %v", len(rs), err)
	}
}

// Whatever the store does at whichever of its steps, what was answered with 200 is
// stored, whole and readable, and what was not is stored in the end, since the
// provider sends it again.
func TestNothingIsAcknowledgedThatIsNotStored(t *testing.T) {
	bodies := []string{
		`[{"id":"1","key":"a"}]`,
		`[{"id":"2","key":"a"},{"id":"3","key":"b"},{"id":4}]`, // with a part that is not understood
		`[{"id":"1","key":"a"},{"id":"5","key":"c"}]`,          // with a duplicate
		`[{"id":"1","key":"a","more":1}]`,                      // a conflict
		`not decoded`,
	}
	const records = 4 + 1 + 2 // events, a conflict, bodies
	for name, opts := range map[string]func(*files) *inbox.Options{
		"plain":   func(*files) *inbox.Options { return nil },
		"sealed":  func(*files) *inbox.Options { return &inbox.Options{Keys: keys("a")} },
		"outside": func(f *files) *inbox.Options { return &inbox.Options{Keys: keys("a"), Payloads: f} },
	} {
		for _, after := range []bool{false, true} {
			for failing := range 12 {
				t.Run(fmt.Sprint(name, " step ", failing, " after ", after), func(t *testing.T) {
					var mu sync.Mutex
					steps := 0
					fail := func(inboxtest.Step) error {
						mu.Lock()
						defer mu.Unlock()
						if steps++; steps-1 == failing {
							return inboxtest.ErrFault
						}
						return nil
					}
					memory, out := inbox.NewMemory(), &files{}
					store := &inboxtest.Faulty{Store: memory}
					if after {
						store.After = fail
					} else {
						store.Before = fail
					}
					h := newHandler(t, newBox(t, store, opts(out)), provider{}, nil)
					witness := newBox(t, memory, opts(out))
					refused := 0
					for _, body := range bodies {
						before := numbers(t, witness)
						for {
							w := post(h, body)
							if w.Code == 200 {
								break
							}
							if w.Code != 503 {
								t.Fatalf("answered %d", w.Code)
							}
							if refused++; !after && numbers(t, witness) != before {
								t.Error("a step that was not applied has stored something")
							}
						}
						for _, id := range idsOf(body) {
							rs, err := witness.Get(t.Context(), "test/"+id)
							if err != nil || len(rs) == 0 || rs[0].Form != 0 || !strings.Contains(string(rs[0].Payload), id) {
								t.Errorf("%s was acknowledged and is stored as %+v, %v", id, rs, err)
							}
						}
					}
					if got := totals(t, witness); got.Pending+got.Conflicts+got.Quarantined != records {
						t.Errorf("the totals are %+v, want %d records", got, records)
					}
					if steps > failing != (refused > 0) {
						t.Errorf("after %d steps %d deliveries were refused", steps, refused)
					}
				})
			}
		}
	}
}

// numbers are the totals without their ages.
func numbers(t *testing.T, b *inbox.Box) inbox.Totals {
	got := totals(t, b)
	got.Oldest = 0
	return got
}

// idsOf are the IDs in a body for tests.
func idsOf(body string) (ids []string) {
	for _, id := range []string{"1", "2", "3", "5"} {
		if strings.Contains(body, `"id":"`+id+`"`) {
			ids = append(ids, id)
		}
	}
	return ids
}

// No error that a caller gets says what the event was about, whose it was, or what
// the secrets are.
func TestErrorsTellNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		note := func(err error) {
			t.Helper()
			if err == nil {
				t.Error("there is no error")
				return
			}
			errs = append(errs, err)
		}
		e := around("49123")
		e.MessageID, e.ExternalID = "wamid.49123", "order 49123"
		ctx := context.Background()

		// Stores that fail, at every call.
		store := &inboxtest.Faulty{Store: inbox.NewMemory()}
		out := &files{}
		b := newBox(t, changing{store, func() error { return nil }}, &inbox.Options{Payloads: out, Keys: keys("a")})
		accept(t, b, e)
		op := operator(t, b, "alice")
		store.Before = func(inboxtest.Step) error { return inboxtest.ErrFault }
		note(second(b.Accept(ctx, e)))
		note(second(b.Get(ctx, e.ID)))
		note(second(b.List(ctx, inbox.StatePending, 0, 1)))
		note(second(b.FindByMessage(ctx, e.MessageID, 0, 1)))
		note(second(b.FindByExternal(ctx, e.ExternalID, 0, 1)))
		note(second(b.Totals(ctx)))
		note(second(op.Inspect(ctx, inbox.Query{ID: e.ID, N: 1})))
		note(second(op.Reveal(ctx, e.ID, "x")))
		note(op.Redact(ctx, e.ID, 0, "x"))
		note(op.Forget(ctx, e.ID, "x"))
		note(second(op.Redecode(ctx, e.ID, provider{}, "x")))
		note(second(op.ReplayState(ctx, inbox.StateDead, "", 0, 1, "x")))
		store.Before = nil
		// Records that do not allow it, and bodies that cannot be had.
		note(op.Replay(ctx, e.ID, 0, "x"))
		note(op.Resolve(ctx, e.ID, 0, "x"))
		note(op.Redact(ctx, e.ID, 0, "x"))
		note(op.Replay(ctx, e.ID+"x", 0, "x"))
		note(second(op.Reveal(ctx, e.ID+"x", "x")))
		note(second(op.Redecode(ctx, e.ID, provider{}, "x")))
		out.set("all")
		fresh := around("49124")
		note(second(b.Accept(ctx, fresh)))
		note(op.Forget(ctx, e.ID, "x"))
		work(t, b, &inbox.WorkOptions{Backoff: retry.Constant(time.Second)}, func(context.Context, inbox.Record) inbox.Outcome {
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		rs, err := b.Get(ctx, e.ID)
		if err != nil || len(rs) != 1 || len(rs[0].Failures) == 0 {
			t.Fatalf("the record is %+v, %v", rs, err)
		}
		for _, f := range rs[0].Failures { // of the box, not of a handler
			note(errors.New(f.Error))
		}
		// Arguments that are not valid.
		for _, spoil := range []func(*inbox.Event){
			func(e *inbox.Event) { e.ID += "\x00" }, func(e *inbox.Event) { e.ID = "other/49123" },
			func(e *inbox.Event) { e.Key = "49123\xff" }, func(e *inbox.Event) { e.MessageID = "49123\x00" },
			func(e *inbox.Event) { e.Payload = bytes.Repeat([]byte("49123"), 4<<20) },
			func(e *inbox.Event) { e.Provider = "49123 " }, func(e *inbox.Event) { e.Trace = "49123\x00" },
		} {
			bad := e
			spoil(&bad)
			note(second(b.Accept(ctx, bad)))
		}
		note(second(b.Get(ctx, "49123\x00")))
		note(second(b.FindByMessage(ctx, "49123\x00", 0, 1)))
		note(op.Replay(ctx, "49123\xff", 0, "x"))
		note(op.Replay(ctx, e.ID, 0, "49123\xff"))
		note(second(inbox.New(inbox.NewMemory(), &inbox.Options{Keys: []inbox.Key{{ID: "a", Secret: []byte("topsecret")}}})))
		for _, err := range errs {
			if s := secretIn(err.Error()); s != "" && s != "payload of" {
				t.Errorf("an error says %q: %.200s", s, err)
			}
			if strings.Contains(err.Error(), "payload of 4") {
				t.Errorf("an error has a payload: %.200s", err)
			}
		}
	})
}
