package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func TestCheckOptionsAreValidated(t *testing.T) {
	find := func(context.Context, func(...reconcile.Sighting) error) error { return nil }
	ledger := newLedger(t, reconcile.NewMemory(), nil)
	for name, o := range map[string]*reconcile.CheckOptions{
		"kind":             {Kind: "a b"},
		"most":             {Most: -1},
		"lull":             {Lull: -1},
		"retention":        {Lull: time.Hour, Retention: time.Hour},
		"flush":            {Flush: 2 * time.Hour},
		"name":             {Own: []reconcile.Check{{Name: "a b", Find: find}}},
		"no name":          {Own: []reconcile.Check{{Find: find}}},
		"no function":      {Own: []reconcile.Check{{Name: "a"}}},
		"every":            {Own: []reconcile.Check{{Name: "a", Find: find, Every: -1}}},
		"recheck":          {Own: []reconcile.Check{{Name: "a", Find: find, Recheck: 24 * time.Hour}}},
		"two of a name":    {Own: []reconcile.Check{{Name: "a", Find: find}, {Name: "a", Find: find}}},
		"silent of none":   {Silent: []reconcile.Silent{{}}},
		"two silent":       {Stuck: []reconcile.Stuck{{Ledger: ledger}, {Ledger: ledger}}},
		"stuck of none":    {Stuck: []reconcile.Stuck{{}}},
		"stray of none":    {Stray: &reconcile.Stray{}},
		"window":           {Volume: &reconcile.Rhythm{Window: 7 * time.Minute}},
		"small window":     {Volume: &reconcile.Rhythm{Window: time.Minute}},
		"weeks":            {Volume: &reconcile.Rhythm{Weeks: 2, MinWeeks: 3}},
		"drop":             {Volume: &reconcile.Rhythm{Drop: 1.5}},
		"lag within flush": {Volume: &reconcile.Rhythm{Lag: time.Second}},
		"types":            {Types: &reconcile.Types{Quiet: -1}},
		"comparison":       {Compare: []reconcile.Comparison{{}}},
	} {
		if _, err := reconcile.NewChecks(reconcile.NewCheckMemory(), o); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := reconcile.NewChecks(nil, nil); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("nil store: %v", err)
	}
	if _, err := reconcile.NewChecks((*reconcile.CheckMemory)(nil), nil); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("nil pointer: %v", err)
	}
	c := newChecks(t, reconcile.NewCheckMemory(), nil)
	for _, err := range []error{
		c.Stray(t.Context(), reconcile.Ref{Message: "m"}, ""),
		c.Resolve(t.Context(), reconcile.Finding{Check: "a", Subject: "s"}, "r"),
		c.Resolve(t.Context(), reconcile.Finding{Check: "a", Subject: "s", Version: 1}, ""),
		c.Resolve(t.Context(), reconcile.Finding{Check: "a", Subject: "s", Version: 1}, "\xff"),
		c.Acknowledge(t.Context(), reconcile.Finding{Version: 1}, "r"),
	} {
		if !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
	for _, q := range []reconcile.FindingQuery{{N: 0}, {N: 1001}, {N: 1, Subject: "\xff"}} {
		if _, err := c.Findings(t.Context(), q); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}
