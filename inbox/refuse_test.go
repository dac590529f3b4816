package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// The storage may refuse, and nothing else.
func TestRefuse(t *testing.T) {
	var refuse error
	var status []int
	var hooked error
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Hooks: &inbox.Hooks{
		Refused: func(_ context.Context, provider string, err error) { hooked = err },
		Answered: func(_ context.Context, provider string, s int, took time.Duration) {
			if provider != "test" || took < 0 {
				t.Errorf("the hook was told %q, %v", provider, took)
			}
			status = append(status, s)
		},
	}})
	h := newHandler(t, b, provider{}, &inbox.HandlerOptions{RetryAfter: time.Minute, Refuse: func(ctx context.Context) error {
		if refuse != nil && refuse.Error() == "panic" {
			panic("topsecret")
		}
		return refuse
	}})
	refuse = errors.New("topsecret: the disk is full")
	r := httptest.NewRequest("POST", "/", unread{t})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 503 || w.Header().Get("Retry-After") != "60" || !errors.Is(hooked, refuse) {
		t.Errorf("answered %d, Retry-After %q, and the hook was told %v", w.Code, w.Header().Get("Retry-After"), hooked)
	}
	if w := post(h, `[{"id":"1"}]`, "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("another type is answered %d", w.Code)
	}
	r = httptest.NewRequest("GET", "/?token=token&challenge=1", nil)
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("a handshake is answered %d", w.Code)
	}
	refuse = errors.New("panic")
	if w := post(h, `[{"id":"1"}]`); w.Code != 200 {
		t.Errorf("with a guard that panics a delivery is answered %d", w.Code)
	}
	refuse = nil
	if w := post(h, `[{"id":"2"}]`, "X-Signature", "forged"); w.Code != 401 {
		t.Errorf("a forgery is answered %d", w.Code)
	}
	if w := post(h, `[{"id":"2"}]`); w.Code != 200 {
		t.Errorf("a delivery is answered %d", w.Code)
	}
	s := b.Stats()
	if s.Refused != 1 || s.Acknowledged != 2 || s.LongestAnswer <= 0 || s.Errors != 0 {
		t.Errorf("the counts are %+v", s)
	}
	if got := fmt.Sprint(status); got != "[503 415 200 200 401 200]" {
		t.Errorf("the hook was told %q", got)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("unread")
}

// A source that panics over a delivery lets nothing in, and does not break the
// connection.
func TestAVerifierThatPanics(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	if w := post(newHandler(t, b, panicking{}, nil), `[{"id":"1"}]`); w.Code != 401 {
		t.Errorf("answered %d, want 401", w.Code)
	}
	if s := b.Stats(); s.Rejected[inbox.BadSignature] != 1 {
		t.Errorf("counted were %v", s.Rejected)
	}
	wantTotals(t, b, inbox.Totals{})
}

type panicking struct{ provider }

func (panicking) Verify(d *inbox.Delivery) ([]byte, error) { panic("topsecret " + string(d.Body)) }
