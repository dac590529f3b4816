package reconciletest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

// A broken timeline store is the memory store with one flaw, and the subtest that has to
// find it.
var brokenTimelines = []struct {
	flaw, found string
	store       badTimeline
	make        func() reconcile.TimelineStore // in place of store
}{
	{flaw: "not idempotent", found: "Once/RepeatedChangesNothing", store: badTimeline{append: func(b *badTimeline, _ *reconcile.TimelineParams, o *reconcile.Observation) {
		b.calls++
		o.Event += strings.Repeat(" ", b.calls)
	}}},
	{flaw: "digest not compared", found: "Once/TheFirstStays", store: badTimeline{append: func(_ *badTimeline, _ *reconcile.TimelineParams, o *reconcile.Observation) {
		o.Digest = [32]byte{}
	}}},
	{flaw: "digest shortened", found: "Once/TheFirstStays", store: badTimeline{append: func(_ *badTimeline, _ *reconcile.TimelineParams, o *reconcile.Observation) {
		clear(o.Digest[8:])
		o.Digest[0] = 0
	}}},
	{flaw: "believes any time", found: "Once/AbsurdTimes", store: badTimeline{append: func(_ *badTimeline, p *reconcile.TimelineParams, _ *reconcile.Observation) {
		p.Ahead, p.Behind = reconcile.MaxDuration, reconcile.MaxDuration
	}}},
	{flaw: "unbounded", found: "Once/OverflowIsCounted", store: badTimeline{append: func(_ *badTimeline, p *reconcile.TimelineParams, _ *reconcile.Observation) {
		p.Most = 1 << 30
	}}},
	{flaw: "kinds run together", found: "Once/KindsAreSeparate", store: badTimeline{append: func(_ *badTimeline, p *reconcile.TimelineParams, _ *reconcile.Observation) {
		p.Kind = "one"
	}, read: func(p *reconcile.TimelineParams, _ *reconcile.Ref) { p.Kind = "one" }}},
	{flaw: "own ID lost", found: "Once/Correlation", store: badTimeline{append: func(_ *badTimeline, _ *reconcile.TimelineParams, o *reconcile.Observation) {
		if o.Message != "" {
			o.Own = ""
		}
	}}},
	{flaw: "participant lost", found: "Once/AppendedIsRead", store: badTimeline{append: func(_ *badTimeline, _ *reconcile.TimelineParams, o *reconcile.Observation) {
		o.Participant = ""
	}}},
	{flaw: "in the order of events", found: "Once/OrderOfArrival", store: badTimeline{history: func(h *reconcile.History) {
		slices.SortFunc(h.Observations, func(a, b reconcile.Observation) int { return strings.Compare(a.Event, b.Event) })
	}}},
	{flaw: "the last status only", found: "Once/ContradictionsAreKept", store: badTimeline{history: func(h *reconcile.History) {
		h.Observations = h.Observations[max(len(h.Observations)-1, 0):]
	}}},
	{flaw: "what was dropped is not counted", found: "Once/OverflowIsCounted", store: badTimeline{history: func(h *reconcile.History) { h.Dropped = 0 }}},
	{flaw: "forgets nothing", found: "Once/ForgetErasesWhatReadReturns", make: func() reconcile.TimelineStore {
		return &badForgetter{TimelineMemory: reconcile.NewTimelineMemory(), forget: func(*reconcile.Ref) bool { return false }}
	}},
	{flaw: "forgets of an Own nothing but that", found: "Once/ForgetErasesWhatReadReturns", make: func() reconcile.TimelineStore {
		return &badForgetter{TimelineMemory: reconcile.NewTimelineMemory(), forget: func(r *reconcile.Ref) bool { return r.Own == "" }}
	}},
}

// The suite has to fail each of them, with the subtest that is named for it.
func TestTheTimelineSuiteFindsFlaws(t *testing.T) {
	if flaw := os.Getenv("PAWL_FLAW"); flaw != "" {
		for _, b := range brokenTimelines {
			if b.flaw == flaw {
				reconciletest.RunTimeline(t, reconciletest.TimelineConfig{Bubble: true, New: func(*testing.T) reconcile.TimelineStore {
					if b.make != nil {
						return b.make()
					}
					bad := b.store
					bad.TimelineStore = reconcile.NewTimelineMemory()
					return &bad
				}})
			}
		}
		return
	}
	for _, b := range brokenTimelines {
		t.Run(b.flaw, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestTheTimelineSuiteFindsFlaws$/^"+strings.ReplaceAll(b.found, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), "PAWL_FLAW="+b.flaw)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestTheTimelineSuiteFindsFlaws/"+b.found) {
				t.Errorf("not found by %s: %v\n%s", b.found, err, out)
			}
		})
	}
}

// badTimeline alters what goes through it.
type badTimeline struct {
	reconcile.TimelineStore
	calls   int
	append  func(b *badTimeline, p *reconcile.TimelineParams, o *reconcile.Observation)
	read    func(p *reconcile.TimelineParams, ref *reconcile.Ref)
	history func(h *reconcile.History)
}

func (b *badTimeline) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	os = slices.Clone(os)
	if b.append != nil {
		for i := range os {
			b.append(b, &p, &os[i])
		}
	}
	return b.TimelineStore.Append(ctx, p, os)
}

func (b *badTimeline) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	if b.read != nil {
		b.read(&p, &ref)
	}
	h, err := b.TimelineStore.Read(ctx, p, ref)
	if b.history != nil {
		b.history(&h)
	}
	return h, err
}

// A badForgetter does not forget what its function refuses.
type badForgetter struct {
	*reconcile.TimelineMemory
	forget func(*reconcile.Ref) bool
}

func (b *badForgetter) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (int, error) {
	if !b.forget(&ref) {
		return 0, nil
	}
	return b.TimelineMemory.Forget(ctx, p, ref)
}
