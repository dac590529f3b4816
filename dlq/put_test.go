package dlq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

func TestPutRefusesWhatIsTooLarge(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	big := message("a", "")
	big.Payload = make([]byte, dlq.DefaultMaxPayload+1)
	many := message("a", "")
	many.Headers = map[string]string{}
	for i := range 65 {
		many.Headers[fmt.Sprint(i)] = ""
	}
	long := message("a", "")
	long.Headers = map[string]string{"k": strings.Repeat("v", 16<<10)}
	for _, tc := range []struct {
		m          dlq.Message
		what       string
		size, most int
	}{{big, "payload", 1<<20 + 1, 1 << 20}, {many, "header entries", 65, 64}, {long, "headers", 16<<10 + 1, 16 << 10}} {
		_, err := q.Put(ctx, dlq.Dead{Message: tc.m, Cause: errDown})
		var size *dlq.SizeError
		if !errors.As(err, &size) || *size != (dlq.SizeError{What: tc.what, Size: tc.size, Most: tc.most}) || !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("a letter with too much %s: %v", tc.what, err)
		}
		if _, err := q.Park(ctx, tc.m); !errors.As(err, &size) {
			t.Errorf("a parked letter with too much %s: %v", tc.what, err)
		}
	}
	if _, err := q.Get(ctx, stream, "a"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("something was stored: %v", err)
	}
	most := message("b", "k")
	most.Payload, most.Headers = make([]byte, dlq.DefaultMaxPayload), map[string]string{"k": strings.Repeat("v", 16<<10-1)}
	if _, err := q.Put(ctx, dlq.Dead{Message: most}); err != nil {
		t.Errorf("the largest letter: %v", err)
	}
}

func TestPutRefusesBadNames(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	for name, m := range map[string]dlq.Message{
		"no stream": {ID: "a"}, "bad stream": {Stream: "a b", ID: "a"}, "long stream": {Stream: strings.Repeat("a", 65), ID: "a"},
		"no ID": {Stream: stream}, "long ID": {Stream: stream, ID: strings.Repeat("a", 513)}, "NUL": {Stream: stream, ID: "a\x00"},
		"not UTF-8": {Stream: stream, ID: "\xff"}, "bad key": {Stream: stream, ID: "a", Key: "\xff"},
		"bad header": {Stream: stream, ID: "a", Headers: map[string]string{"": "x"}}, "NUL header": {Stream: stream, ID: "a", Headers: map[string]string{"x": "\x00"}},
	} {
		if _, err := q.Put(ctx, dlq.Dead{Message: message("ok", "")}, dlq.Dead{Message: m}); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := q.Get(ctx, stream, "ok"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("of a refused call a letter was stored: %v", err)
	}
}

func TestFullIsAnError(t *testing.T) {
	var refused []string
	log, text := logged()
	q := newQueue(t, dlq.NewMemory(), &dlq.Options{Capacity: 2, Logger: log, Hooks: &dlq.Hooks{Put: func(_ context.Context, _, id string, a dlq.Answer) {
		if a == dlq.Full {
			refused = append(refused, id)
		}
	}}})
	put(t, q, "k", "a")
	answers, err := q.Put(ctx, dlq.Dead{Message: message("b", "k")}, dlq.Dead{Message: message("secret", "k")})
	if !errors.Is(err, dlq.ErrFull) || fmt.Sprint(answers) != "[added full]" || fmt.Sprint(refused) != "[secret]" {
		t.Errorf("Put answered %v, %v; the hook was told of %v", answers, err, refused)
	}
	if _, err := q.Park(ctx, message("d", "k")); !errors.Is(err, dlq.ErrFull) {
		t.Errorf("Park answered %v", err)
	}
	if s := q.Stats(); s.Refused != 2 || s.Added != 2 {
		t.Errorf("the stats are %+v", s)
	}
	if strings.Contains(text()+err.Error(), "secret") || !strings.Contains(text(), "no room") {
		t.Errorf("the log says %s", text())
	}
	m := dlq.NewMemory()
	m.SetLimit(1)
	q = newQueue(t, m, nil)
	put(t, q, "", "a")
	if _, err := q.Put(ctx, dlq.Dead{Message: message("b", "")}); !errors.Is(err, dlq.ErrFull) {
		t.Errorf("a full memory answered %v", err)
	}
}

func TestLetterKeepsItsMessage(t *testing.T) {
	for name, opts := range map[string]*dlq.Options{"plain": nil, "sealed": {Keys: []dlq.Key{{ID: "k1", Secret: bytes.Repeat([]byte{1}, 32)}}}} {
		q := newQueue(t, dlq.NewMemory(), opts)
		m := message("a", "k")
		m.Payload = []byte{0, 255, 1}
		m.Headers = map[string]string{"traceparent": "00-1", "x": "ü\n"}
		if _, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errDown}); err != nil {
			t.Fatal(err)
		}
		l := get(t, q, "a")
		if !bytes.Equal(l.Payload, m.Payload) || fmt.Sprint(l.Headers) != fmt.Sprint(m.Headers) || l.Key != "k" || l.Unopened != nil {
			t.Errorf("%s: the letter is %+v", name, l)
		}
	}
}

func TestSealedBodies(t *testing.T) {
	one, two := dlq.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, 32)}, dlq.Key{ID: "k2", Secret: bytes.Repeat([]byte{2}, 32)}
	m := dlq.NewMemory()
	q := newQueue(t, m, &dlq.Options{Keys: []dlq.Key{one}})
	put(t, q, "", "a", "b")
	p, err := m.List(ctx, dlq.Query{Stream: stream, N: 10})
	if err != nil || bytes.Contains(p.Records[0].Body, []byte("payload")) || bytes.Contains(p.Records[0].Body, []byte("of a")) {
		t.Fatalf("the store has %q, %v", p.Records[0].Body, err)
	}
	rotated := newQueue(t, m, &dlq.Options{Keys: []dlq.Key{two, one}})
	if l := get(t, rotated, "a"); string(l.Payload) != "payload of a" {
		t.Errorf("after a rotation the letter is %+v", l)
	}
	for name, other := range map[string]*dlq.Options{"without keys": nil, "with another key": {Keys: []dlq.Key{two}}} {
		l := get(t, newQueue(t, m, other), "a")
		if !errors.Is(l.Unopened, dlq.ErrSealed) || l.Payload != nil {
			t.Errorf("%s the letter is %+v", name, l)
		}
	}
	// A body that was put into another letter is refused.
	swapped := p.Records[0]
	c := dlq.Change{Kind: dlq.ChangeEdit, Nonce: [16]byte{1}, Stream: stream, ID: "b", Seq: p.Records[1].Seq, Body: swapped.Body, Actor: "x", Reason: "x"}
	if errs, err := m.Change(ctx, dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 10}, []dlq.Change{c}); err != nil || errs != nil {
		t.Fatal(errs, err)
	}
	if l := get(t, q, "b"); !errors.Is(l.Unopened, dlq.ErrSealed) {
		t.Errorf("a letter with the body of another is %+v", l)
	}
	printed, err := json.Marshal(map[string]any{"key": one, "keys": []dlq.Key{one}})
	if err != nil {
		t.Fatal(err)
	}
	log, text := logged()
	log.Info("a key", "key", one)
	if s := fmt.Sprintf("%v %+v %#v %s %s", one, one, one, printed, text()); strings.Contains(s, "1 1 1") || strings.Contains(s, "0x1") || strings.Contains(s, "AQEB") {
		t.Errorf("a key prints as %s", s)
	}
}

// TestAnOriginalThatCannotBeOpenedHoldsUpNothing has a key taken out with which only the
// content before an edit is sealed.
func TestAnOriginalThatCannotBeOpenedHoldsUpNothing(t *testing.T) {
	one, two := dlq.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, 32)}, dlq.Key{ID: "k2", Secret: bytes.Repeat([]byte{2}, 32)}
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		put(t, newQueue(t, m, &dlq.Options{Keys: []dlq.Key{one}}), "", "a")
		both := newQueue(t, m, &dlq.Options{Keys: []dlq.Key{two, one}})
		l := get(t, both, "a")
		if err := newReview(t, both).Edit(ctx, l.Ref(), dlq.Content{Payload: []byte("better")}, "typo"); err != nil {
			t.Fatal(err)
		}
		q := newQueue(t, m, &dlq.Options{Keys: []dlq.Key{two}})
		if l := get(t, q, "a"); l.Unopened != nil || string(l.Payload) != "better" || l.Original == nil || !errors.Is(l.OriginalUnopened, dlq.ErrSealed) {
			t.Errorf("the letter is %+v", l)
		}
		run(t, q, nil, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(6 * time.Minute)
		wantState(t, q, "a", dlq.StateResolved)
	})
}

// TestUnopenedLettersAreRetried shows that a letter whose key is missing is not worked
// with an empty body.
func TestUnopenedLettersAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		put(t, newQueue(t, m, &dlq.Options{Keys: []dlq.Key{{ID: "k1", Secret: make([]byte, 32)}}}), "", "a")
		q := newQueue(t, m, nil)
		run(t, q, nil, func(context.Context, dlq.Letter) error {
			t.Error("the handler got a letter without its body")
			return nil
		})
		time.Sleep(6 * time.Minute)
		if l := wantState(t, q, "a", dlq.StateWaiting); l.Tries != 1 || len(l.Attempts) != 2 {
			t.Errorf("the letter is %+v", l)
		}
	})
}

// TestLostRepliesAddOnce loses the answer to each step once.
func TestLostRepliesAddOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := map[string]bool{}
		var mu sync.Mutex
		m := dlq.NewMemory()
		s := &dlqtest.Faulty{Store: m, After: func(s dlqtest.Step) error {
			mu.Lock()
			defer mu.Unlock()
			name := ""
			switch {
			case s.Letters != nil:
				name = "put" + s.Letters[0].ID
			case s.Ask != nil:
				name = fmt.Sprint("ask", s.Ask.Nonce)
			case s.Settlements != nil && s.Settlements[0].Kind != dlq.KindExtend:
				name = fmt.Sprint("settle", s.Settlements[0].Token)
			case s.Changes != nil:
				name = fmt.Sprint("change", s.Changes[0].Nonce)
			case s.Alarms != nil:
				name = fmt.Sprint("alert", s.Alarms[0].Nonce)
			}
			if name == "" || lost[name] {
				return nil
			}
			lost[name] = true
			return dlqtest.ErrFault
		}}
		q := newQueue(t, s, exact())
		r := newReview(t, q)
		put(t, q, "k", "a", "b")
		var ran, alerts atomic.Int64
		run(t, q, &dlq.RunOptions{Alert: func(context.Context, dlq.Letter, dlq.Attempt) { alerts.Add(1) }}, func(_ context.Context, l dlq.Letter) error {
			ran.Add(1)
			if l.ID == "a" && l.Tries < 3 {
				return errDown
			}
			return nil
		})
		time.Sleep(16 * time.Minute)
		l := get(t, q, "a")
		if l.Tries != 2 || len(l.Attempts) != 3 {
			t.Errorf("after two retries the letter has %d tries and %d attempts", l.Tries, len(l.Attempts))
		}
		if err := r.Approve(ctx, l.Ref(), "try"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		wantState(t, q, "a", dlq.StateResolved)
		wantState(t, q, "b", dlq.StateResolved)
		if ran.Load() != 2+3+1 || alerts.Load() != 1 {
			t.Errorf("the handler ran %d times, and there were %d alerts", ran.Load(), alerts.Load())
		}
		entries, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10})
		if err != nil || len(entries) != 1 {
			t.Errorf("the audit has %+v, %v", entries, err)
		}
	})
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dlqtest.Faulty{Store: dlq.NewMemory(), Before: func(dlqtest.Step) error { return dlqtest.ErrFault }}
		q := newQueue(t, s, nil)
		start := time.Now()
		_, err := q.Put(ctx, dlq.Dead{Message: message("secret", ""), Cause: errors.New("confidential")})
		if !errors.Is(err, dlq.ErrUnavailable) || !errors.Is(err, dlqtest.ErrFault) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "confidential") {
			t.Errorf("Put: %v", err)
		}
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("Put tried for %v, want 5s", took)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := q.Put(gone, dlq.Dead{Message: message("a", "")}); !errors.Is(err, context.Canceled) || errors.Is(err, dlq.ErrUnavailable) {
			t.Errorf("Put of a caller that has given up: %v", err)
		}
		if s := q.Stats(); s.Errors != 2 {
			t.Errorf("the stats are %+v", s)
		}
		synctest.Wait()
	})
}

func TestConcurrentPutsAreJoined(t *testing.T) {
	var calls atomic.Int64
	s := &dlqtest.Faulty{Store: dlq.NewMemory(), Before: func(dlqtest.Step) error { calls.Add(1); time.Sleep(time.Millisecond); return nil }}
	q := newQueue(t, s, nil)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if a, err := q.Put(ctx, dlq.Dead{Message: message(fmt.Sprint(i/2), "")}); err != nil || a[0] != dlq.Added && a[0] != dlq.Duplicate {
				t.Errorf("Put: %v, %v", a, err)
			}
		})
	}
	wg.Wait()
	if n := calls.Load(); n > 150 {
		t.Errorf("200 calls at once made %d steps", n)
	}
	if s := q.Stats(); s.Added != 100 || s.Duplicates != 100 {
		t.Errorf("the stats are %+v", s)
	}
}

func TestTraceTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		opts := exact()
		opts.Trace = &dlq.Trace{
			Inject: func(ctx context.Context, h map[string]string) { h["traceparent"] = fmt.Sprint(ctx.Value(key{})) },
			Extract: func(ctx context.Context, h map[string]string) context.Context {
				return context.WithValue(ctx, key{}, h["traceparent"])
			},
		}
		q := newQueue(t, dlq.NewMemory(), opts)
		m := message("a", "")
		if _, err := q.Put(context.WithValue(ctx, key{}, "trace 1"), dlq.Dead{Message: m, Cause: errDown}); err != nil {
			t.Fatal(err)
		}
		if len(m.Headers) != 1 {
			t.Error("the caller's headers were changed")
		}
		var got any
		stop := run(t, q, nil, func(ctx context.Context, l dlq.Letter) error {
			got = ctx.Value(key{})
			return nil
		})
		time.Sleep(6 * time.Minute)
		stop()
		if got != "trace 1" {
			t.Errorf("the handler's trace is %v", got)
		}
	})
}

func TestNewRefusesOptions(t *testing.T) {
	for name, o := range map[string]dlq.Options{
		"retention": {Retention: -1}, "audit": {AuditRetention: -1}, "capacity": {Capacity: -1}, "payload": {MaxPayload: 17 << 20},
		"spread": {Spread: 101}, "pins": {PinEvery: -1}, "timeout": {StoreTimeout: -1}, "handler": {Handler: strings.Repeat("h", 129)},
		"version": {Version: "\xff"}, "keys": {Keys: []dlq.Key{{ID: "k", Secret: []byte("short")}}},
	} {
		if _, err := dlq.New(dlq.NewMemory(), &o); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := dlq.New(nil, nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a nil store: %v", err)
	}
	if _, err := dlq.New((*dlq.Memory)(nil), nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a nil pointer as store: %v", err)
	}
}
