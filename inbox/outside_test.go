package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/retry"
)

// files are a payload store for tests. Its errors hold an address, as those of HTTP
// clients do.
type files struct {
	mu     sync.Mutex
	bodies map[string][]byte
	fail   string // the call that fails
	stuck  string // the body of which every call fails
	calls  []string
}

func (f *files) begin(call, ref string) error {
	f.calls = append(f.calls, call)
	if f.bodies == nil {
		f.bodies = map[string][]byte{}
	}
	if f.fail == "panic" {
		panic("topsecret")
	}
	if f.fail == call || f.fail == "all" || f.stuck == ref {
		return &url.Error{Op: call, URL: "https://bucket/" + ref + "?signature=topsecret", Err: errors.New("refused")}
	}
	return nil
}

func (f *files) Put(_ context.Context, ref string, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("put", ref); err != nil {
		return err
	}
	f.bodies[ref] = slices.Clone(body)
	return nil
}

func (f *files) Get(_ context.Context, ref string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("get", ref); err != nil {
		return nil, err
	}
	body, ok := f.bodies[ref]
	if !ok {
		return nil, errors.New("no such body: https://bucket/" + ref)
	}
	return slices.Clone(body), nil
}

func (f *files) Delete(_ context.Context, ref string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("delete", ref); err != nil {
		return err
	}
	delete(f.bodies, ref)
	return nil
}

func (f *files) set(fail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.calls = fail, nil
}

func (f *files) count(call string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *files) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.bodies)
}

func (f *files) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("%q", slices.Collect(maps.Values(f.bodies)))
}

func TestBodiesOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, out := inbox.NewMemory(), &files{}
		b := newBox(t, store, &inbox.Options{Payloads: out, OutsideOver: 20})
		large := around("large")
		large.Payload = []byte("payload of a large event")
		got, err := b.Accept(t.Context(), around("small"), large, large)
		if err != nil || fmt.Sprint(got) != "[accepted accepted duplicate]" {
			t.Fatalf("the answers are %v, %v", got, err)
		}
		if r := stored(t, store, "test/small")[0]; string(r.Payload) != "payload of small" || r.Form != 0 {
			t.Errorf("the small one is stored as %+v", r)
		}
		r := stored(t, store, "test/large")[0]
		if len(r.Payload) != 129 || r.Form != inbox.FormOutside || string(r.Context) != `"around large"` || strings.Contains(string(r.Payload), "large") {
			t.Errorf("the large one is stored as %+v", r)
		}
		if out.len() != 1 || !strings.Contains(out.text(), "payload of a large event") {
			t.Errorf("outside are %s", out.text())
		}
		rs, err := b.Get(t.Context(), "test/large")
		if err != nil || len(rs) != 1 || string(rs[0].Payload) != string(large.Payload) || rs[0].Form != 0 {
			t.Errorf("Get returns %+v, %v", rs, err)
		}
		var j journal
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s/%d", r.Payload, r.Form)
			return inbox.Done()
		})
		synctest.Wait()
		if got, want := j.String(), "payload of small/0 payload of a large event/0"; got != want {
			t.Errorf("the handler got %q, want %q", got, want)
		}
	})
}

func TestBodiesOutsideAreSealedFirst(t *testing.T) {
	store, out := inbox.NewMemory(), &files{}
	b := newBox(t, store, &inbox.Options{Payloads: out, Keys: keys("a")})
	accept(t, b, around("1"), around("2"))
	if out.len() != 2 || strings.Contains(out.text(), "payload of") {
		t.Errorf("outside are %s", out.text())
	}
	if r := stored(t, store, "test/1")[0]; r.Form != inbox.FormOutside|inbox.FormSealed || strings.Contains(string(r.Context), "around") {
		t.Errorf("stored is %+v", r)
	}
	if rs, err := b.Get(t.Context(), "test/1"); err != nil || string(rs[0].Payload) != "payload of 1" || rs[0].Form != 0 {
		t.Errorf("Get returns %+v, %v", rs, err)
	}
	// Whoever exchanges two bodies outside is found out.
	one, two := string(stored(t, store, "test/1")[0].Payload), string(stored(t, store, "test/2")[0].Payload)
	out.bodies[one], out.bodies[two] = out.bodies[two], out.bodies[one]
	if rs, err := b.Get(t.Context(), "test/1"); err != nil || rs[0].Payload != nil || rs[0].Form != inbox.FormOutside|inbox.FormSealed {
		t.Errorf("with bodies exchanged Get returns %+v, %v", rs, err)
	}
}

// An event is answered when its body is outside and its record inside, and not
// before: wherever either fails, the delivery is refused and comes again.
func TestNothingIsAcknowledgedWhoseBodyIsNotOutside(t *testing.T) {
	const body = `[{"id":"1","key":"a"},{"id":"2","key":"b"}]`
	for _, fail := range []string{"put", "panic", "store", "store, lost answer"} {
		t.Run(fail, func(t *testing.T) {
			memory, out := inbox.NewMemory(), &files{fail: fail}
			broken := true
			fault := func(when string) func(inboxtest.Step) error {
				return func(s inboxtest.Step) error {
					if s.Arrivals != nil && broken && fail == when {
						return inboxtest.ErrFault
					}
					return nil
				}
			}
			b := newBox(t, &inboxtest.Faulty{Store: memory, Before: fault("store"), After: fault("store, lost answer")}, &inbox.Options{Payloads: out})
			h := newHandler(t, b, provider{}, nil)
			for range 2 {
				if w := post(h, body); w.Code != 503 {
					t.Fatalf("answered %d, want 503", w.Code)
				}
			}
			if n := totals(t, b).Pending; n != 0 && (fail != "store, lost answer" || out.len() != 2) {
				t.Errorf("%d events are stored, and %d bodies outside", n, out.len())
			}
			broken = false
			out.set("")
			if w := post(h, body); w.Code != 200 {
				t.Fatalf("answered %d when all was well again", w.Code)
			}
			for _, id := range []string{"test/1", "test/2"} {
				if rs, err := b.Get(t.Context(), id); err != nil || len(rs) != 1 || rs[0].Form != 0 {
					t.Errorf("%s is %+v, %v", id, rs, err)
				}
			}
			_, err := b.Accept(t.Context(), events("k", "3")...)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPayloadStoreThatFailsIsNotQuoted(t *testing.T) {
	out := &files{fail: "put"}
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Payloads: out})
	_, err := b.Accept(t.Context(), events("k", "1")...)
	if !errors.Is(err, inbox.ErrOutside) || !errors.Is(err, inbox.ErrUnavailable) || !errors.As(err, new(*url.Error)) {
		t.Errorf("the error is %v", err)
	}
	if s := secretIn(err.Error()); s != "" {
		t.Errorf("the error says %q: %v", s, err)
	}
}

// A body that cannot be had is no reason to give up at once.
func TestWorkWhenABodyCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &files{}
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Payloads: out})
		accept(t, b, events("k", "1")...)
		out.set("get")
		var j journal
		work(t, b, &inbox.WorkOptions{Backoff: retry.Constant(time.Minute)}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s/%d", short(r), r.Attempts)
			return inbox.Done()
		})
		time.Sleep(90 * time.Second)
		out.set("panic")
		time.Sleep(time.Minute)
		out.set("get")
		rs, err := b.Get(t.Context(), "test/1")
		if err != nil || len(rs) != 1 || rs[0].Form != inbox.FormOutside || rs[0].Payload != nil || rs[0].Attempts != 3 || len(rs[0].Failures) != 3 {
			t.Fatalf("meanwhile the record is %+v, %v", rs, err)
		}
		for _, f := range rs[0].Failures {
			if !strings.Contains(f.Error, inbox.ErrOutside.Error()) || secretIn(f.Error) != "" {
				t.Errorf("a failure says %q", f.Error)
			}
		}
		out.set("")
		time.Sleep(time.Minute)
		if got := j.String(); got != "1/4" {
			t.Errorf("handed over was %q", got)
		}
	})
}

func TestSweepOfBodiesOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, out := inbox.NewMemory(), &files{}
		b := newBox(t, store, &inbox.Options{Payloads: out, BodyRetention: time.Hour, Streams: func(e inbox.Event) []string {
			if e.ID == "test/shared" {
				return []string{"default", "later"}
			}
			return []string{"default"}
		}})
		accept(t, b, events("", "1", "2", "3", "shared")...)
		done := func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() }
		w := work(t, b, nil, done)
		synctest.Wait()
		w.stop()
		time.Sleep(2 * time.Hour)
		sweep := func(want int, fails bool) {
			t.Helper()
			removed, err := b.Sweep(t.Context(), 2)
			if (err != nil) != fails || removed != want || fails && (!errors.Is(err, inbox.ErrOutside) || secretIn(err.Error()) != "") {
				t.Errorf("Sweep returned %d, %v", removed, err)
			}
		}
		out.set("delete")
		sweep(0, true)
		if r := stored(t, store, "test/1")[0]; r.Form != inbox.FormOutside {
			t.Errorf("a record whose body could not be deleted is %+v", r)
		}
		out.set("")
		for range 4 { // two records each; the first one failed and comes again
			sweep(0, false)
		}
		for _, id := range []string{"test/1", "test/2", "test/3"} {
			if r := stored(t, store, id)[0]; r.Form != inbox.FormRedacted || len(r.Payload) != 0 {
				t.Errorf("%s is %+v", id, r)
			}
		}
		if out.len() != 1 {
			t.Fatalf("outside are %s, want the body that a stream has not worked", out.text())
		}
		if got := out.count("delete"); got != 3 {
			t.Errorf("%d bodies were deleted", got)
		}
		rs, err := b.Get(t.Context(), "test/shared")
		if err != nil || len(rs) != 2 || rs[0].Form|rs[1].Form != inbox.FormRedacted || string(rs[0].Payload)+string(rs[1].Payload) != "payload of shared" {
			t.Errorf("the shared event is %+v, %v", rs, err)
		}
		if got, err := b.Accept(t.Context(), events("", "1", "shared")...); err != nil || got[0] != inbox.Duplicate || got[1] != inbox.Duplicate {
			t.Errorf("known events were answered %v, %v", got, err)
		}
		if out.len() != 1 {
			t.Errorf("a redelivery has brought a deleted body back: %s", out.text())
		}
		w = work(t, b, &inbox.WorkOptions{Stream: "later"}, done)
		synctest.Wait()
		w.stop()
		time.Sleep(2 * time.Hour)
		sweep(0, false)
		sweep(0, false)
		if out.len() != 0 {
			t.Errorf("in the end %s is outside", out.text())
		}
		time.Sleep(9 * 24 * time.Hour)
		total := 0
		for range 5 {
			n, err := b.Sweep(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		if total != 5 {
			t.Errorf("%d records were removed, want 5", total)
		}
	})
}

// A body that cannot be deleted does not keep those behind it.
func TestSweepGoesPastABodyThatCannotBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, out := inbox.NewMemory(), &files{}
		b := worked(t, store, &inbox.Options{Payloads: out, BodyRetention: time.Hour}, "1", "2", "3", "4", "5")
		out.stuck = string(stored(t, store, "test/1")[0].Payload)
		time.Sleep(2 * time.Hour)
		failed := 0
		for range 6 {
			if _, err := b.Sweep(t.Context(), 1); err != nil {
				failed++
			}
		}
		if out.len() != 1 || failed != 1 {
			t.Errorf("after a round %d bodies are outside, and %d sweeps failed", out.len(), failed)
		}
		if r := stored(t, store, "test/1")[0]; r.Form != inbox.FormOutside {
			t.Errorf("the first record is %+v", r)
		}
	})
}

// A delivery that comes again costs no second Put of what was worked, and does put
// what may be missing.
func TestKnownBodiesAreNotPutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &files{}
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Payloads: out})
		accept(t, b, events("k", "1")...)
		work(t, b, nil, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
		synctest.Wait()
		out.set("")
		accept(t, b, events("k", "1")...)
		if n := out.count("put"); n != 0 {
			t.Errorf("a body that was worked was put %d times", n)
		}
		other := events("k", "1")
		other[0].Payload = []byte("payload of another")
		for range 2 {
			if got, err := b.Accept(t.Context(), other...); err != nil || got[0] != inbox.Conflict {
				t.Errorf("a conflict was answered %v, %v", got, err)
			}
		}
		rs, err := b.Get(t.Context(), "test/1")
		if err != nil || len(rs) != 2 || string(rs[1].Payload) != "payload of another" {
			t.Errorf("the records are %+v, %v", rs, err)
		}
	})
}

// An event that is forgotten between the look at the store and its acceptance is new:
// its body is put before it is answered.
func TestAnEventThatIsForgottenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, out := inbox.NewMemory(), &files{}
		var b *inbox.Box
		race := false
		store := &inboxtest.Faulty{Store: memory, Before: func(s inboxtest.Step) error {
			if s.Arrivals != nil && race {
				race = false
				op := operator(t, b, "alice")
				if err := op.Forget(t.Context(), "test/1", "asked to"); err != nil {
					t.Error(err)
				}
			}
			return nil
		}}
		b = newBox(t, store, &inbox.Options{Payloads: out})
		accept(t, b, events("k", "1")...)
		w := work(t, b, nil, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
		synctest.Wait()
		w.stop()
		race = true
		got, err := b.Accept(t.Context(), events("k", "1")...)
		if err != nil || got[0] != inbox.Accepted {
			t.Fatalf("it was answered %v, %v", got, err)
		}
		if rs, err := b.Get(t.Context(), "test/1"); err != nil || len(rs) != 1 || string(rs[0].Payload) != "payload of 1" {
			t.Errorf("the record is %+v, %v", rs, err)
		}
	})
}
