package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A message that the provider did not have turns up there, and is not what we believe: the
// finding stays, and says so. Asking again is the only time when that is seen.
func TestAContradictionThatIsSeenWhenItIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		tl := newTimeline(t, nil)
		p := &fakeProvider{has: map[string][]string{}}
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(), Compare: []reconcile.Comparison{{
			Source: reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) {
				return reconcile.Ref{Own: e.Key, Message: "pm-" + e.Key}, ""
			}),
			Timeline: tl, Provider: p, Again: 24 * time.Hour,
			Select: func(reconcile.Expected, reconcile.Projected) bool { return true },
		}}})
		accept(t, l, "k")
		appendTo(t, tl, about("e1", "pm-k", "k", "delivered"))
		runChecks(t, c)
		time.Sleep(time.Minute)
		h.want(t, []string{"differs k false"}, nil)
		p.mu.Lock()
		p.has["pm-k"] = []string{"failed"}
		p.mu.Unlock()
		time.Sleep(time.Hour)
		h.want(t, []string{"differs k false"}, nil)
		if f := found(t, c, reconcile.Open); !strings.Contains(f.Detail, "contradicts") {
			t.Fatalf("detail %q", f.Detail)
		}
	})
}

// The provider has it, and says more than was known: the timeline has that now.
func TestWhatTurnsUpAtTheProviderResolvesItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		tl := newTimeline(t, nil)
		p := &fakeProvider{has: map[string][]string{}}
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(), Compare: []reconcile.Comparison{{
			Source:   reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) { return reconcile.Ref{Own: e.Key}, e.Key }),
			Timeline: tl, Provider: p, Again: 24 * time.Hour,
		}}})
		accept(t, l, "k")
		runChecks(t, c)
		time.Sleep(30 * time.Minute)
		p.mu.Lock()
		p.has["k"] = []string{"sent", "delivered"}
		p.mu.Unlock()
		time.Sleep(48 * time.Hour)
		h.want(t, []string{"differs k false"}, []string{"k: the timeline has it, and nothing contradicts"})
		if s, err := tl.Project(t.Context(), reconcile.Ref{Own: "k"}); err != nil || s.Status != "delivered" {
			t.Fatalf("projected %+v, %v", s, err)
		}
	})
}

func TestFindingsOfNoState(t *testing.T) {
	c := newChecks(t, reconcile.NewCheckMemory(), nil)
	if _, err := c.Findings(t.Context(), reconcile.FindingQuery{State: reconcile.Resolved + 1, N: 1}); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
