package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

func TestAccept(t *testing.T) {
	var hooked []string
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Hooks: &inbox.Hooks{
		Accepted: func(e inbox.Event, a inbox.Answer) { hooked = append(hooked, fmt.Sprint(e.ID, " ", a)) },
	}})
	es := events("k", "a", "b", "a", "a")
	es[3].Payload = []byte("other")
	got, err := b.Accept(t.Context(), es...)
	if want := []inbox.Answer{inbox.Accepted, inbox.Accepted, inbox.Duplicate, inbox.Conflict}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the answers are %v, %v, want %v", got, err, want)
	}
	if want := []string{"test/a accepted", "test/b accepted", "test/a duplicate", "test/a conflict"}; !slices.Equal(hooked, want) {
		t.Errorf("the hook was told %q, want %q", hooked, want)
	}
	if got, err := b.Accept(t.Context()); got != nil || err != nil {
		t.Errorf("no events were answered %v, %v", got, err)
	}
}

// Events without a key are ordered with no other.
func TestEventsWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("", "a", "b", "c")...)
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			if r.Key != r.ID {
				t.Errorf("the event %s has the key %q", r.ID, r.Key)
			}
			time.Sleep(time.Second)
			return inbox.Done()
		})
		time.Sleep(time.Second + time.Millisecond)
		wantTotals(t, b, inbox.Totals{Done: 3})
	})
}

func TestAcceptOfBadEvents(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	good := events("k", "good")[0]
	for name, spoil := range map[string]func(*inbox.Event){
		"no ID":               func(e *inbox.Event) { e.ID = "" },
		"no provider":         func(e *inbox.Event) { e.Provider = "" },
		"odd provider":        func(e *inbox.Event) { e.Provider = "a/b"; e.ID = "a/b/c" },
		"ID of another":       func(e *inbox.Event) { e.ID = "other/1" },
		"ID too long":         func(e *inbox.Event) { e.ID = "test/" + strings.Repeat("x", 508) },
		"ID with NUL":         func(e *inbox.Event) { e.ID = "test/\x00" },
		"ID not UTF-8":        func(e *inbox.Event) { e.ID = "test/\xff" },
		"key too long":        func(e *inbox.Event) { e.Key = strings.Repeat("x", 513) },
		"key with NUL":        func(e *inbox.Event) { e.Key = "\x00" },
		"key not UTF-8":       func(e *inbox.Event) { e.Key = "\xff" },
		"type too long":       func(e *inbox.Event) { e.Type = strings.Repeat("x", 1025) },
		"external with NUL":   func(e *inbox.Event) { e.ExternalID = "a\x00b" },
		"account not UTF-8":   func(e *inbox.Event) { e.Account = "\xff" },
		"payload too large":   func(e *inbox.Event) { e.Payload = make([]byte, 16<<20+1) },
		"context too large":   func(e *inbox.Event) { e.Context = make([]byte, 16<<20+1) },
		"message ID too long": func(e *inbox.Event) { e.MessageID = strings.Repeat("x", 1025) },
	} {
		bad := good
		spoil(&bad)
		got, err := b.Accept(t.Context(), good, bad)
		if !errors.Is(err, inbox.ErrInvalid) || got != nil {
			t.Errorf("%s: %v, %v, want ErrInvalid", name, got, err)
		}
		if err != nil && (len(err.Error()) > 300 || strings.Contains(err.Error(), "\x00") || strings.Contains(err.Error(), "good")) {
			t.Errorf("%s: the error is %q", name, err)
		}
	}
	wantTotals(t, b, inbox.Totals{}) // not even the good one
}

func TestAcceptWithAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range []inbox.Store{inbox.NewMemory(), &inboxtest.Faulty{Store: inbox.NewMemory()}} {
		b := newBox(t, s, nil)
		if got, err := b.Accept(ctx, events("k", "a")...); !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("got %v, %v, want the error of the context", got, err)
		}
		wantTotals(t, b, inbox.Totals{})
	}
}

// Many deliveries at once share a step of the store, and each has its own answers.
func TestConcurrentAcceptsAreJoined(t *testing.T) {
	var steps atomic.Int64
	block := make(chan struct{})
	store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(s inboxtest.Step) error {
		if s.Arrivals != nil && steps.Add(1) == 1 {
			<-block
		}
		return nil
	}}
	b := newBox(t, store, nil)
	const n = 100
	var wg sync.WaitGroup
	accept := func(i int) {
		got, err := b.Accept(context.Background(), events("k", fmt.Sprint("a", i), fmt.Sprint("b", i), "shared")...)
		if err != nil || len(got) != 3 || got[0] != inbox.Accepted || got[1] != inbox.Accepted {
			t.Errorf("delivery %d was answered %v, %v", i, got, err)
		}
	}
	wg.Go(func() { accept(0) })
	for steps.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for i := range n {
		wg.Go(func() { accept(i + 1) })
	}
	time.Sleep(10 * time.Millisecond) // most have come by now; none is waited for
	close(block)
	wg.Wait()
	if got := steps.Load(); got > n/2 {
		t.Errorf("%d deliveries took %d steps", n+1, got)
	}
	if s := b.Stats(); s.Accepted != 2*(n+1)+1 || s.Duplicates != n {
		t.Errorf("the counts are %+v", s)
	}
}

// A delivery of many events needs no company, and does not wait for its turn.
func TestALargeAcceptIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(s inboxtest.Step) error {
			time.Sleep(time.Second)
			return nil
		}}
		b := newBox(t, store, nil)
		var ids []string
		for i := range 33 {
			ids = append(ids, fmt.Sprint("e", i))
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if got, err := b.Accept(t.Context(), events(fmt.Sprint("k", i), ids...)...); err != nil || len(got) != 33 {
					t.Errorf("%d answers, %v", len(got), err)
				}
			})
			synctest.Wait() // it is under way, and no company of the next
		}
		wg.Wait()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("four large deliveries took %v, want one step", took)
		}
		if s := b.Stats(); s.Accepted != 33 || s.Duplicates != 99 {
			t.Errorf("the counts are %+v", s)
		}
	})
}

// A caller that gives up is told so; what was stored for it all the same is
// counted, and worked.
func TestAcceptThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(s inboxtest.Step) error {
			if s.Arrivals != nil {
				time.Sleep(time.Second)
			}
			return nil
		}}
		b := newBox(t, store, nil)
		work(t, b, &inbox.WorkOptions{Poll: time.Hour}, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := b.Accept(ctx, events("k", "a")...); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Accept returned %v, want the error of the context", err)
		}
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Done: 1})
		if s := b.Stats(); s.Accepted != 1 || s.Errors != 1 {
			t.Errorf("the counts are %+v", s)
		}
	})
}

func TestNewIsRefused(t *testing.T) {
	m := inbox.NewMemory()
	for name, err := range map[string]error{
		"nil store":          second(inbox.New(nil, nil)),
		"nil pointer":        second(inbox.New((*inbox.Memory)(nil), nil)),
		"negative retention": second(inbox.New(m, &inbox.Options{Retention: -1})),
		"tiny retention":     second(inbox.New(m, &inbox.Options{Retention: 1})),
		"endless retention":  second(inbox.New(m, &inbox.Options{Retention: 1<<63 - 1})),
		"keep < retention":   second(inbox.New(m, &inbox.Options{Keep: time.Hour})),
		"endless keep":       second(inbox.New(m, &inbox.Options{Keep: 1<<63 - 1})),
		"negative timeout":   second(inbox.New(m, &inbox.Options{StoreTimeout: -1})),
		"page of nothing":    second(newBox(t, m, nil).List(t.Context(), inbox.StateDone, 0, 0)),
		"page of 1001":       second(newBox(t, m, nil).List(t.Context(), inbox.StateDone, 0, 1001)),
		"no state":           second(newBox(t, m, nil).List(t.Context(), 0, 0, 1)),
		"no such state":      second(newBox(t, m, nil).List(t.Context(), inbox.StateUnknown+1, 0, 1)),
		"no ID":              second(newBox(t, m, nil).Get(t.Context(), "")),
		"sweep of nothing":   second(m.Sweep(t.Context(), 0)),
	} {
		if !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Options are copied: to change them afterwards changes nothing.
func TestOptionsAreCopied(t *testing.T) {
	opts := &inbox.Options{Retention: time.Hour, Keep: time.Hour}
	b := newBox(t, inbox.NewMemory(), opts)
	opts.Retention = 1000 * time.Hour
	if _, err := inbox.Handler(b, provider{horizon: 2 * time.Hour}, nil); !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("the box took over a change of its options: %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := inbox.NewMemory()
	m.SetLimit(3)
	b := newBox(t, m, nil)
	accept(t, b, events("k", "a", "b")...)
	if _, err := b.Accept(t.Context(), events("k", "c", "d")...); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("Accept returned %v, want ErrFull", err)
	}
	wantTotals(t, b, inbox.Totals{Pending: 2}) // none of the two
	accept(t, b, events("k", "c", "a", "b")...)
	if got, err := b.Accept(t.Context(), events("k", "a", "b", "c")...); err != nil || got[0] != inbox.Duplicate {
		t.Errorf("duplicates in a full store were answered %v, %v", got, err)
	}
	m.SetLimit(0)
	accept(t, b, events("k", "d")...)
}

// The endpoint must take every authentic event, so an event that Streams cannot
// take goes where those go for which it has no answer.
func TestStreamsThatPanicDoNotRefuseTheEvent(t *testing.T) {
	logger, log := logged()
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: logger, Streams: func(e inbox.Event) []string { panic(e.ID) }})
	if w := post(newHandler(t, b, provider{}, nil), `[{"id":"49123"}]`); w.Code != http.StatusOK {
		t.Fatalf("the endpoint answers %d, want 200", w.Code)
	}
	records, err := b.Get(context.Background(), "test/49123")
	if err != nil || len(records) != 1 || records[0].Stream != inbox.DefaultStream {
		t.Fatalf("the event is stored as %+v, %v", records, err)
	}
	if !strings.Contains(log(), "Options.Streams panicked") || strings.Contains(log(), "49123") {
		t.Errorf("logged is %q, want the panic without the ID", log())
	}
}
