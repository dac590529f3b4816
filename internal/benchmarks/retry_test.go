package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestRetriersDoTheSame keeps the contestants comparable: each one tries a
// function until it succeeds, five times at most, and without a wait.
func TestRetriersDoTheSame(t *testing.T) {
	pawl, err := openPawlRetry()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(retryPeers(), retryPeer{"pawl", pawl}) {
		t.Run(p.name, func(t *testing.T) {
			for failures, want := range []int{1, 2, 3, 4, 5, 5, 5} {
				attempts := 0
				err := p.do(t.Context(), func(context.Context) error {
					if attempts++; attempts <= failures {
						return errFlaky
					}
					return nil
				})
				if attempts != want {
					t.Errorf("%d failures: %d attempts, want %d", failures, attempts, want)
				}
				if (err != nil) != (failures >= 5) || err != nil && !errors.Is(err, errFlaky) {
					t.Errorf("%d failures: error %v", failures, err)
				}
			}
			if _, err := measureRetry(t.Context(), time.Millisecond, 2, p.do); err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer that allocates nothing leaves no ratio, which JSON could not hold.
func TestNoRatioToNothing(t *testing.T) {
	c := Comparison{Name: "retry", Metrics: []Metric{
		{Name: "allocs", Lower: true, Bar: Bar{Value: 0.01}},
		{Name: "more", Lower: true, Bar: Bar{Ratio: 1}},
	}}
	cases := []Case{{Name: "pawl", Role: Pawl}, {Name: "peer", Role: Peer}}
	got := tables(c, cases, [][][]float64{{{0, 0}, {0, 0}}, {{0, 1e-7}, {0, 1e-7}}})
	if row := got[0].Rows[0]; row.RoundRatio != nil || row.Verdict != Passes {
		t.Errorf("a bar without a ratio: %+v", row)
	}
	if row := got[1].Rows[0]; row.RoundRatio != nil || row.Verdict != FallsShort {
		t.Errorf("a bar with a ratio: %+v", row)
	}
}
