package inbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/retry"
)

func key(id string) inbox.Key {
	return inbox.Key{ID: id, Secret: bytes.Repeat([]byte(id[:1]), 32)}
}

func keys(ids ...string) (ks []inbox.Key) {
	for _, id := range ids {
		ks = append(ks, key(id))
	}
	return ks
}

// around makes an event with a context.
func around(id string) inbox.Event {
	e := events("k", id)[0]
	e.Context = []byte(`"around ` + id + `"`)
	return e
}

// stored lists what a store itself has of an event.
func stored(t *testing.T, s inbox.Store, id string) []inbox.Record {
	t.Helper()
	rs, err := s.List(context.Background(), inbox.Query{ID: id, N: 100})
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestTheStoreSeesSealedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var digests [][32]byte
		memory := inbox.NewMemory()
		store := &inboxtest.Faulty{Store: memory, Before: func(s inboxtest.Step) error {
			for _, a := range s.Arrivals {
				digests = append(digests, a.Digest)
				if all := fmt.Sprintf("%s%s%s", a.Payload, a.Context, a.ID); a.Form != inbox.FormSealed ||
					strings.Contains(all, "payload of") || strings.Contains(all, "around") {
					t.Errorf("the store gets %q in the form %d", all, a.Form)
				}
			}
			return nil
		}}
		var hooked []inbox.Event
		b := newBox(t, store, &inbox.Options{Keys: keys("a"), Hooks: &inbox.Hooks{Accepted: func(e inbox.Event, _ inbox.Answer) { hooked = append(hooked, e) }}})
		got, err := b.Accept(t.Context(), around("1"), around("2"), around("1"))
		if err != nil || fmt.Sprint(got) != "[accepted accepted duplicate]" {
			t.Fatalf("the answers are %v, %v", got, err)
		}
		if digests[0] != digests[2] || digests[0] == digests[1] || digests[0] == sha256.Sum256([]byte("payload of 1")) {
			t.Error("the digest is not a keyed one of the payload")
		}
		if len(hooked) != 3 || string(hooked[0].Payload) != "payload of 1" || string(hooked[0].Context) != `"around 1"` {
			t.Errorf("the hook was told %+v", hooked)
		}
		rs, err := b.Get(t.Context(), "test/1")
		if err != nil || len(rs) != 1 || string(rs[0].Payload) != "payload of 1" || string(rs[0].Context) != `"around 1"` || rs[0].Form != 0 {
			t.Errorf("Get returns %+v, %v", rs, err)
		}
		var j journal
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s+%s/%d", r.Payload, r.Context, r.Form)
			return inbox.Done()
		})
		synctest.Wait()
		if got, want := j.String(), `payload of 1+"around 1"/0 payload of 2+"around 2"/0`; got != want {
			t.Errorf("the handler got %q, want %q", got, want)
		}
	})
}

// A body that could not be decoded is sealed too, and its ID is not a plain hash.
func TestARawBodyIsSealed(t *testing.T) {
	store := inbox.NewMemory()
	b := newBox(t, store, &inbox.Options{Keys: keys("a")})
	h := newHandler(t, b, provider{}, nil)
	for range 2 {
		if w := post(h, "topsecret"); w.Code != 200 {
			t.Fatalf("answered %d", w.Code)
		}
	}
	rs, err := store.List(t.Context(), inbox.Query{State: inbox.StateQuarantined, N: 10})
	if err != nil || len(rs) != 1 || bytes.Contains(rs[0].Payload, []byte("topsecret")) {
		t.Fatalf("stored are %+v, %v", rs, err)
	}
	if sum := sha256.Sum256([]byte("topsecret")); strings.Contains(rs[0].ID, hex.EncodeToString(sum[:])) {
		t.Error("the ID is a plain hash of the body")
	}
	if rs, err := b.List(t.Context(), inbox.StateQuarantined, 0, 10); err != nil || len(rs) != 1 || string(rs[0].Payload) != "topsecret" {
		t.Errorf("opened it is %+v, %v", rs, err)
	}
}

func TestKeysAreRotated(t *testing.T) {
	store := inbox.NewMemory()
	old := newBox(t, store, &inbox.Options{Keys: keys("old")})
	accept(t, old, around("1"))
	both := newBox(t, store, &inbox.Options{Keys: keys("new", "old")})
	accept(t, both, around("2"))
	for i, want := range []string{"payload of 1", "payload of 2"} {
		rs, err := both.Get(t.Context(), fmt.Sprint("test/", i+1))
		if err != nil || len(rs) != 1 || string(rs[0].Payload) != want {
			t.Errorf("after the rotation event %d is %+v, %v", i+1, rs, err)
		}
	}
	if rs := stored(t, store, "test/2"); !bytes.Contains(rs[0].Payload, []byte("new")) {
		t.Error("the first key does not seal")
	}
	if got, err := both.Accept(t.Context(), around("1")); err != nil || got[0] != inbox.Duplicate {
		t.Errorf("with a new key in front a duplicate is answered %v, %v", got, err)
	}
	// Without the last key, as the documentation says.
	retired := newBox(t, store, &inbox.Options{Keys: keys("new")})
	if got, err := retired.Accept(t.Context(), around("2")); err != nil || got[0] != inbox.Conflict {
		t.Errorf("without the last key a duplicate is answered %v, %v", got, err)
	}
	rs, err := retired.List(t.Context(), inbox.StatePending, 0, 10)
	if err != nil || len(rs) != 2 {
		t.Fatalf("without the old key %d records are listed, %v", len(rs), err)
	}
	if rs[0].Payload != nil || rs[0].Context != nil || rs[0].Form != inbox.FormSealed {
		t.Errorf("without its key a record is listed as %+v", rs[0])
	}
	if string(rs[1].Payload) != "payload of 2" || rs[1].Form != 0 {
		t.Errorf("it keeps another from being opened: %+v", rs[1])
	}
	if s := retired.Stats(); s.Unopened != 1 {
		t.Errorf("%d bodies are counted as not opened", s.Unopened)
	}
}

// swapped exchanges what a store has of two events, as somebody might who writes it.
type swapped struct {
	inbox.Store
	swap func(rs []inbox.Record)
}

func (s swapped) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	rs, err := s.Store.List(ctx, q)
	s.swap(rs)
	return rs, err
}

func (s swapped) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	c, err := s.Store.Claim(ctx, a)
	for _, k := range c.Claims {
		s.swap(k.Records)
	}
	return c, err
}

func TestSwappedBodiesAreFound(t *testing.T) {
	for name, swap := range map[string]func(a, b *inbox.Record){
		"payloads": func(a, b *inbox.Record) { a.Payload, b.Payload = b.Payload, a.Payload },
		"contexts": func(a, b *inbox.Record) { a.Context, b.Context = b.Context, a.Context },
		"payload and context": func(a, b *inbox.Record) {
			a.Payload, a.Context = a.Context, a.Payload
			b.Payload = b.Payload[:len(b.Payload)-1]
		},
		"no context": func(a, b *inbox.Record) { a.Context, b.Context = nil, nil },
		"IDs":        func(a, b *inbox.Record) { a.ID, b.ID = b.ID, a.ID },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := inbox.NewMemory()
				var restored atomic.Bool
				s := swapped{memory, func(rs []inbox.Record) {
					if !restored.Load() && len(rs) == 2 {
						swap(&rs[0], &rs[1])
					}
				}}
				b := newBox(t, s, &inbox.Options{Keys: keys("a")})
				accept(t, b, around("1"), around("2"))
				rs, err := b.List(t.Context(), inbox.StatePending, 0, 10)
				if err != nil || len(rs) != 2 {
					t.Fatal(rs, err)
				}
				for _, r := range rs {
					if r.Payload != nil || r.Context != nil || r.Form != inbox.FormSealed {
						t.Errorf("listed is %+v", r)
					}
				}
				if name == "IDs" {
					return // its settlements would be of an event that was not claimed
				}
				var j journal
				work(t, b, &inbox.WorkOptions{Backoff: retry.Constant(time.Minute)}, func(_ context.Context, r inbox.Record) inbox.Outcome {
					j.add("%s", short(r))
					return inbox.Done()
				})
				time.Sleep(10 * time.Second)
				if got := j.String(); got != "" {
					t.Errorf("handed over were %q", got)
				}
				rs, _ = memory.List(t.Context(), inbox.Query{ID: "test/1", N: 1})
				if rs[0].Attempts != 1 || rs[0].State != inbox.StatePending || !strings.Contains(rs[0].LastError, inbox.ErrSealed.Error()) {
					t.Errorf("the record is %+v, want a failed attempt", rs[0])
				}
				restored.Store(true)
				time.Sleep(time.Hour)
				wantTotals(t, b, inbox.Totals{Done: 2})
			})
		})
	}
}

// An event whose key is not there fails like one whose handler does, and is worked
// when it is back; the dead-letter function hears of one that runs out of attempts.
func TestWorkOfABodyThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		accept(t, newBox(t, store, &inbox.Options{Keys: keys("lost")}), around("1"))
		plain := newBox(t, store, nil)
		var letter inbox.Record
		w := work(t, plain, &inbox.WorkOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Second), DeadLetter: func(_ context.Context, r inbox.Record) error {
			letter = r
			return errors.New("not yet")
		}}, func(context.Context, inbox.Record) inbox.Outcome {
			t.Error("a body that is sealed was handed over")
			return inbox.Done()
		})
		time.Sleep(10 * time.Second)
		w.stop()
		if letter.Form != inbox.FormSealed || letter.Payload != nil || len(letter.Failures) != 2 || !strings.Contains(letter.Failures[0].Error, "Options.Keys is empty") {
			t.Errorf("the letter is %+v", letter)
		}
		var j journal
		work(t, newBox(t, store, &inbox.Options{Keys: keys("new", "lost")}), nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s", r.Payload)
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		if j.String() != "payload of 1" {
			t.Errorf("with the key back %q was handed over", j.String())
		}
	})
}

// What was stored before there were keys stays readable.
func TestBodiesFromBeforeTheKeys(t *testing.T) {
	store := inbox.NewMemory()
	accept(t, newBox(t, store, nil), around("1"))
	rs, err := newBox(t, store, &inbox.Options{Keys: keys("a")}).Get(t.Context(), "test/1")
	if err != nil || len(rs) != 1 || string(rs[0].Payload) != "payload of 1" {
		t.Errorf("it is %+v, %v", rs, err)
	}
}

func TestBodyOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]inbox.Options{
		"short key":      {Keys: []inbox.Key{{ID: "a", Secret: []byte("topsecret")}}},
		"no key ID":      {Keys: []inbox.Key{{Secret: make([]byte, 32)}}},
		"same key ID":    {Keys: keys("a", "a")},
		"nil payloads":   {Payloads: (*files)(nil)},
		"negative size":  {OutsideOver: -1},
		"body retention": {BodyRetention: 9 * 24 * time.Hour},
		"negative":       {BodyRetention: -1},
		"tiny":           {BodyRetention: 1},
	} {
		_, err := inbox.New(inbox.NewMemory(), &o)
		if !errors.Is(err, inbox.ErrInvalid) || strings.Contains(fmt.Sprint(err), "topsecret") {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := inbox.New(inbox.NewMemory(), &inbox.Options{BodyRetention: 8 * 24 * time.Hour}); err != nil {
		t.Errorf("a body retention of the retention: %v", err)
	}
	k := key("a")
	if s := fmt.Sprintf("%v %+v %#v %s %v", k, k, k, k, inbox.Options{Keys: keys("s")}); strings.Contains(s, "97") || strings.Contains(s, "115") || strings.Contains(s, "aaa") {
		t.Errorf("a key prints as %s", s)
	}
}

// A body goes before its event does.
func TestBodyRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), &inbox.Options{BodyRetention: time.Hour, Keys: keys("a")})
		accept(t, b, around("1"))
		w := work(t, b, nil, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
		synctest.Wait()
		w.stop()
		sweep := func() (n int) {
			n, err := b.Sweep(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		time.Sleep(59 * time.Minute)
		sweep()
		if rs, _ := b.Get(t.Context(), "test/1"); len(rs) != 1 || string(rs[0].Payload) != "payload of 1" {
			t.Errorf("before its time the record is %+v", rs)
		}
		time.Sleep(2 * time.Minute)
		sweep()
		rs, _ := b.Get(t.Context(), "test/1")
		if len(rs) != 1 || rs[0].Payload != nil || rs[0].Context != nil || rs[0].Form != inbox.FormRedacted || rs[0].Deleted.IsZero() {
			t.Errorf("after it the record is %+v", rs)
		}
		if got, err := b.Accept(t.Context(), around("1")); err != nil || got[0] != inbox.Duplicate {
			t.Errorf("the event is answered %v, %v", got, err)
		}
		time.Sleep(8 * 24 * time.Hour)
		if n := sweep(); n != 1 {
			t.Errorf("%d records were removed", n)
		}
	})
}
