package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A hostileError panics whatever it is asked.
type hostileError struct{}

func (hostileError) Error() string { panic("topsecret") }
func (hostileError) Is(error) bool { panic("topsecret") }
func (hostileError) As(any) bool   { panic("topsecret") }
func (hostileError) Unwrap() error { panic("topsecret") }

// A liar says that it is whatever error it is asked for.
type liar struct{}

func (liar) Error() string { return "topsecret" }
func (liar) Is(error) bool { return true }

func TestTheTextOfALetterErrorIsNotLogged(t *testing.T) {
	for _, err := range []error{errors.New("topsecret"), liar{}, fmt.Errorf("topsecret: %w", context.Canceled)} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			accept(t, b, events("k", "1")...)
			w := work(t, b, &inbox.WorkOptions{DeadLetter: func(context.Context, inbox.Record) error { return err }},
				func(context.Context, inbox.Record) inbox.Outcome { return inbox.Dead(errors.New("x")) })
			time.Sleep(time.Hour)
			w.stop()
			if text := log.String(); !strings.Contains(text, "cause=") || strings.Contains(text, "topsecret") {
				t.Errorf("of %T is logged:\n%s", err, text)
			}
		})
	}
}

func TestErrorsThatPanicEndNothingElse(t *testing.T) {
	letter := func(context.Context, inbox.Record) error { return hostileError{} }
	for name, c := range map[string]struct {
		handle func() inbox.Outcome
		letter func(context.Context, inbox.Record) error
		want   inbox.Totals
	}{
		"failed":      {func() inbox.Outcome { return inbox.Failed(hostileError{}) }, nil, inbox.Totals{Dead: 2}},
		"dead":        {func() inbox.Outcome { return inbox.Dead(hostileError{}) }, nil, inbox.Totals{Dead: 2}},
		"quarantine":  {func() inbox.Outcome { return inbox.Quarantine(hostileError{}) }, nil, inbox.Totals{Quarantined: 2}},
		"unknown":     {func() inbox.Outcome { return inbox.Unknown(hostileError{}) }, nil, inbox.Totals{Unknown: 2}},
		"a panic":     {func() inbox.Outcome { panic(hostileError{}) }, nil, inbox.Totals{Dead: 2}},
		"dead letter": {func() inbox.Outcome { return inbox.Dead(errors.New("x")) }, letter, inbox.Totals{Pending: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox(t, inbox.NewMemory(), nil)
				accept(t, b, events("k", "1", "2")...)
				work(t, b, &inbox.WorkOptions{DeadLetter: c.letter}, func(context.Context, inbox.Record) inbox.Outcome { return c.handle() })
				time.Sleep(24 * time.Hour)
				wantTotals(t, b, c.want)
			})
		})
	}
}

// A brokenSource is one that does not keep its contract.
type brokenSource struct {
	provider
	verified []byte
	err      error
	event    inbox.Event
}

func (s brokenSource) Handshake(*inbox.Delivery) ([]byte, error) {
	if s.err == nil {
		panic("topsecret")
	}
	return nil, s.err
}

func (s brokenSource) Verify(*inbox.Delivery) ([]byte, error) { return s.verified, s.err }
func (s brokenSource) Decode([]byte) ([]inbox.Event, error)   { return []inbox.Event{s.event}, nil }

// Without its body a delivery could not be kept: all of them would be the same.
func TestNothingIsAcknowledgedWithoutItsBody(t *testing.T) {
	for name, s := range map[string]brokenSource{
		"no body":           {},
		"a hostile refusal": {err: hostileError{}},
	} {
		b := newBox(t, inbox.NewMemory(), nil)
		if w := post(newHandler(t, b, s, nil), `[{"id":"1"}]`); w.Code != 401 {
			t.Errorf("%s: answered %d, want 401", name, w.Code)
		}
		wantTotals(t, b, inbox.Totals{})
	}
}

// Which secret was expected, or what else is wrong, is for those who look for it.
func TestTheDetailOfARejectionIsLoggedForDebugging(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level}))
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: log})
		s := brokenSource{err: &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "made with an old one"}}
		if w := post(newHandler(t, b, s, nil), "[]"); w.Code != 401 || strings.Contains(w.Body.String(), "old") {
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
		if got := strings.Contains(text.String(), "wrong signature") && strings.Contains(text.String(), "made with an old one"); got != want {
			t.Errorf("at level %v is logged %q", level, &text)
		}
	}
}

func TestAHandshakeThatFailsIsRefused(t *testing.T) {
	for name, err := range map[string]error{"a panic": nil, "a hostile refusal": hostileError{}, "another error": errors.New("topsecret")} {
		b := newBox(t, inbox.NewMemory(), nil)
		w := httptest.NewRecorder()
		newHandler(t, b, brokenSource{err: err}, nil).ServeHTTP(w, httptest.NewRequest("GET", "/hook", nil))
		if w.Code != 403 || strings.Contains(w.Body.String(), "secret") || b.Stats().Rejected[inbox.BadHandshake] != 1 {
			t.Errorf("%s: answered %d %q, counted %v", name, w.Code, w.Body, b.Stats().Rejected)
		}
	}
}

// What is answered before the commit is not stored.
func TestNoHandlerInATransaction(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	if h, err := inbox.Handler(b.With(inbox.NewMemory()), provider{}, nil); h != nil || !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("Handler returned %v, %v, want ErrInvalid", h, err)
	}
}

// A time that some stores cannot keep would make them refuse the delivery, and all
// that are stored with it, for ever.
func TestATimeThatCannotBeStored(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1<<60, 0), time.Unix(-1<<60, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)} {
		b := newBox(t, inbox.NewMemory(), nil)
		e := events("k", "1")[0]
		e.Occurred = at
		if _, err := b.Accept(t.Context(), e); !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", at, err)
		}
		s := brokenSource{verified: []byte("body"), event: e}
		if w := post(newHandler(t, b, s, nil), "body"); w.Code != 200 {
			t.Errorf("%v: answered %d, want 200", at, w.Code)
		}
		wantTotals(t, b, inbox.Totals{Quarantined: 1})
	}
}

// What a person forgets beside a running handler does not hold up what is behind it.
func TestForgettingBesideAHandler(t *testing.T) {
	for _, forgotten := range []string{"1", "2", "3"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBox(t, inbox.NewMemory(), nil)
			o := operator(t, b, "alice")
			accept(t, b, events("k", "1", "2", "3")...)
			begin := time.Now()
			var j journal
			work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
				j.add("%s", short(r))
				if short(r) == "1" {
					if err := o.Forget(t.Context(), "test/"+forgotten, "asked for"); err != nil {
						t.Error(err)
					}
				}
				if short(r) == "3" && time.Since(begin) > time.Second {
					t.Errorf("forgetting %s held up the key for %v", forgotten, time.Since(begin))
				}
				return inbox.Done()
			})
			time.Sleep(time.Minute)
			want := map[string]string{"1": "1 2 3", "2": "1 3", "3": "1 2"}[forgotten]
			if got := j.String(); got != want {
				t.Errorf("forgetting %s: %q were worked, want %q", forgotten, got, want)
			}
			wantTotals(t, b, inbox.Totals{Done: 2})
		})
	}
}

// A store of bodies is far away, and Sweep has to keep up with what arrives.
func TestSweepDeletesBodiesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &farFiles{delay: 100 * time.Millisecond}
		b := newBox(t, inbox.NewMemory(), &inbox.Options{
			Payloads: far, BodyRetention: time.Minute,
			Streams: func(inbox.Event) []string { return []string{"a", "b"} }, // two records refer to a body
		})
		const n = 64
		for i := range n {
			accept(t, b, events("k", fmt.Sprint(i))...)
		}
		for _, s := range []string{"a", "b"} {
			work(t, b, &inbox.WorkOptions{Stream: s}, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
		}
		time.Sleep(time.Hour)
		begin := time.Now()
		if _, err := b.Sweep(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*n*far.delay/8 {
			t.Errorf("a sweep of %d bodies took %v", n, took)
		}
		if left := len(far.bodies); left != 0 {
			t.Errorf("%d bodies are left", left)
		}
	})
}

// farFiles are files that take their time.
type farFiles struct {
	files
	delay time.Duration
}

func (f *farFiles) Delete(ctx context.Context, ref string) error {
	time.Sleep(f.delay)
	return f.files.Delete(ctx, ref)
}
