package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

// newer is a source that has learnt to read what provider cannot.
type newer struct {
	provider
	name string
}

func (n newer) Provider() string { return n.name }

func (newer) Decode(body []byte) ([]inbox.Event, error) {
	return provider{}.Decode([]byte(strings.ReplaceAll(string(body), `{"id":2}`, `{"id":"2"}`)))
}

func quarantined(t *testing.T, b *inbox.Box) inbox.Record {
	t.Helper()
	rs, err := b.List(context.Background(), inbox.StateQuarantined, 0, 10)
	if err != nil || len(rs) != 1 {
		t.Fatalf("in quarantine are %+v, %v", rs, err)
	}
	return rs[0]
}

func TestRedecode(t *testing.T) {
	for _, opts := range []*inbox.Options{{}, {Keys: keys("a"), Payloads: &files{}}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBox(t, inbox.NewMemory(), opts)
			if w := post(newHandler(t, b, provider{}, nil), `[{"id":"1"},{"id":2},{"id":"3"}]`); w.Code != 200 {
				t.Fatal(w.Code)
			}
			wantTotals(t, b, inbox.Totals{Pending: 2, Quarantined: 1})
			raw := quarantined(t, b)
			op := operator(t, b, "alice")

			// The old source has learnt nothing.
			got, err := op.Redecode(t.Context(), raw.ID, provider{}, "try")
			if !errors.Is(err, inbox.ErrUndecoded) || fmt.Sprint(got) != "[duplicate duplicate]" || secretIn(err.Error()) != "" {
				t.Errorf("with the old source: %v, %v", got, err)
			}
			wantTotals(t, b, inbox.Totals{Pending: 2, Quarantined: 1})

			got, err = op.Redecode(t.Context(), raw.ID, newer{name: "test"}, "it has learnt")
			if err != nil || fmt.Sprint(got) != "[duplicate accepted duplicate]" {
				t.Errorf("with the new source: %v, %v", got, err)
			}
			wantTotals(t, b, inbox.Totals{Pending: 3, Done: 1})
			rs, err := b.Get(t.Context(), raw.ID)
			if err != nil || len(rs) != 1 || len(rs[0].Actions) != 1 || rs[0].Actions[0].Kind != inbox.ChangeResolve || rs[0].Actions[0].Reason != "it has learnt" {
				t.Errorf("the body is kept as %+v, %v", rs, err)
			}
			if _, err := op.Redecode(t.Context(), raw.ID, newer{name: "test"}, "again"); !errors.Is(err, inbox.ErrState) {
				t.Errorf("a second time: %v", err)
			}
			var j journal
			work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
				j.add("%s", r.ID)
				return inbox.Done()
			})
			synctest.Wait()
			if !strings.Contains(j.String(), "test/2") {
				t.Errorf("worked were %q", j.String())
			}
		})
	}
}

func TestRedecodeOfOtherRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worked(t, inbox.NewMemory(), nil, "quarantined", "done")
		post(newHandler(t, b, provider{}, nil), `["panic"]`)
		rs, err := b.List(t.Context(), inbox.StateQuarantined, 0, 10)
		if err != nil || len(rs) != 2 {
			t.Fatal(rs, err)
		}
		raw := rs[1].ID
		op := operator(t, b, "alice")
		for id, want := range map[string]error{"test/quarantined": inbox.ErrState, "test/done": inbox.ErrState, "test/nothing": inbox.ErrNotFound} {
			if _, err := op.Redecode(t.Context(), id, newer{name: "test"}, "x"); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
		}
		if _, err := op.Redecode(t.Context(), raw, newer{name: "other"}, "x"); !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("another provider's source: %v", err)
		}
		if _, err := op.Redecode(t.Context(), raw, provider{}, "x"); !errors.Is(err, inbox.ErrUndecoded) {
			t.Errorf("a source that panics: %v", err)
		}
		if err := op.Redact(t.Context(), raw, 0, "asked to"); err != nil {
			t.Error(err)
		}
		if _, err := op.Redecode(t.Context(), raw, newer{name: "test"}, "x"); !errors.Is(err, inbox.ErrState) {
			t.Errorf("a redacted body: %v", err)
		}
	})
}

// It can break off anywhere, and be repeated.
func TestRedecodeThatBreaksOff(t *testing.T) {
	for _, at := range []string{"accept", "change"} {
		synctest.Test(t, func(t *testing.T) {
			memory := inbox.NewMemory()
			fails := false
			store := changing{&inboxtest.Faulty{Store: memory, After: func(s inboxtest.Step) error {
				if fails && at == "accept" && s.Arrivals != nil {
					return inboxtest.ErrFault
				}
				return nil
			}}, func() error {
				if fails && at == "change" {
					return inboxtest.ErrFault
				}
				return nil
			}}
			b := newBox(t, store, nil)
			post(newHandler(t, b, provider{}, nil), `[{"id":2}]`)
			raw := quarantined(t, b)
			op := operator(t, b, "alice")
			fails = true
			if _, err := op.Redecode(t.Context(), raw.ID, newer{name: "test"}, "x"); !errors.Is(err, inbox.ErrUnavailable) {
				t.Errorf("%s: %v", at, err)
			}
			fails = false
			_, err := op.Redecode(t.Context(), raw.ID, newer{name: "test"}, "x")
			if err != nil && !(at == "change" && errors.Is(err, inbox.ErrState)) { // it had been resolved
				t.Errorf("%s, again: %v", at, err)
			}
			wantTotals(t, b, inbox.Totals{Pending: 1, Done: 1})
		})
	}
}
