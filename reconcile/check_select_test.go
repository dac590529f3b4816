package reconcile_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// Without a Select of the user's, gaps are asked for, and what is not settled for too long;
// what was settled is not.
func TestGapsAndStaleStatusesAreAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		tl := newTimeline(t, nil)
		p := &fakeProvider{has: map[string][]string{"gap": {"sent"}, "stale": {"sent"}, "settled": {"delivered"}}}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Compare: []reconcile.Comparison{{
			Source:   reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) { return reconcile.Ref{Own: e.Key}, e.Key }),
			Timeline: tl, Provider: p,
		}}})
		for _, k := range []string{"gap", "stale", "settled"} {
			accept(t, l, k)
		}
		appendTo(t, tl, about("e1", "m1", "stale", "sent"), about("e2", "m2", "settled", "delivered"))
		for _, c1 := range []struct {
			after time.Duration
			asked []string
		}{
			{15 * time.Minute, nil},
			{time.Second, []string{"gap"}},
			{23*time.Hour + 44*time.Minute, nil}, // the gap is filled, by the provider
			{time.Minute, []string{"gap", "stale"}},
		} {
			time.Sleep(c1.after)
			p.asked = nil
			if err := c.Once(t.Context()); err != nil || !slices.Equal(p.asked, c1.asked) {
				t.Fatalf("%v later: asked for %q, want %q, %v", c1.after, p.asked, c1.asked, err)
			}
		}
	})
}

func TestSelectStale(t *testing.T) {
	choose := reconcile.SelectStale(time.Minute, time.Hour)
	for _, c := range []struct {
		age    time.Duration
		local  reconcile.Projected
		chosen bool
	}{
		{time.Minute, reconcile.Projected{}, false},
		{time.Minute + 1, reconcile.Projected{}, true},
		{time.Hour, reconcile.Projected{Status: "sent"}, false},
		{time.Hour + 1, reconcile.Projected{Status: "sent"}, true},
		{24 * time.Hour, reconcile.Projected{Status: "delivered", Settled: true}, false},
	} {
		if got := choose(reconcile.Expected{Age: c.age}, c.local); got != c.chosen {
			t.Errorf("%v old, %+v: chosen %t", c.age, c.local, got)
		}
	}
}
