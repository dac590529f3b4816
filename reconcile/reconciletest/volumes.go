package reconciletest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

var volumeCases = []checkCase{
	{"CellsAreSummed", func(e *checkEnv) {
		a, b := nonce(), nonce()
		h := e.hour()
		e.tally(
			reconcile.Cell{Series: "s", Start: h, Writer: a, N: 3},
			reconcile.Cell{Series: "s", Start: h, Writer: b, N: 4},
			reconcile.Cell{Series: "s", Start: h.Add(-time.Hour), Writer: a, N: 100},
			reconcile.Cell{Series: "t", Start: h, Writer: a, N: 1 << 50},
		)
		v := e.volumes("", 10, h, h.Add(-2*time.Hour), h.Add(-time.Hour), h)
		if len(v) != 2 || v[0].Series != "s" || v[1].Series != "t" || !slices.Equal(v[0].N, []int64{7, 0, 100, 7}) || !slices.Equal(v[1].N, []int64{1 << 50, 0, 0, 1 << 50}) {
			e.Fatalf("%+v", v)
		}
		if !v[0].Since.Equal(h.Add(-time.Hour)) || !v[1].Since.Equal(h) {
			e.Fatalf("since %v and %v", v[0].Since, v[1].Since)
		}
		if v = e.volumes("", 10); len(v) != 2 || len(v[0].N) != 0 || !v[0].Since.Equal(h.Add(-time.Hour)) {
			e.Fatalf("asked for no time: %+v", v)
		}
	}},
	{"TheGreatestCounts", func(e *checkEnv) {
		w, h := nonce(), e.hour()
		for _, n := range []int64{3, 9, 5} {
			e.tally(reconcile.Cell{Series: "s", Start: h, Writer: w, N: n})
		}
		e.tally(reconcile.Cell{Series: "s", Start: h, Writer: w, N: 10}, reconcile.Cell{Series: "s", Start: h, Writer: w, N: 8})
		if v := e.volumes("", 10, h); len(v) != 1 || v[0].N[0] != 10 {
			e.Fatalf("%+v", v)
		}
	}},
	{"SeriesArePaged", func(e *checkEnv) {
		w, h := nonce(), e.hour()
		var want []string
		for i := range 7 {
			s := fmt.Sprintf("s%d", i)
			want = append(want, s)
			e.tally(reconcile.Cell{Series: s, Start: h, Writer: w, N: int64(i + 1)})
		}
		var got []string
		after := ""
		for {
			vs := e.volumes(after, 3, h)
			for _, v := range vs {
				got = append(got, v.Series)
				if v.N[0] != int64(len(got)) {
					e.Fatalf("%+v", v)
				}
			}
			if len(vs) < 3 {
				break
			}
			after = vs[2].Series
		}
		if !slices.Equal(got, want) {
			e.Fatalf("paged %q, want %q", got, want)
		}
	}},
	{"AbsurdStartsAreNotKept", func(e *checkEnv) {
		w, h := nonce(), e.hour()
		far, old := h.Add(2*e.p.Keep), h.Add(-2*e.p.Keep)
		e.tally(
			reconcile.Cell{Series: "s", Start: far, Writer: w, N: 1},
			reconcile.Cell{Series: "s", Start: old, Writer: w, N: 1},
			reconcile.Cell{Series: "s", Start: h, Writer: w, N: 1},
		)
		v := e.volumes("", 10, far, old, h)
		if len(v) != 1 || !slices.Equal(v[0].N, []int64{0, 0, 1}) || !v[0].Since.Equal(h) {
			e.Fatalf("%+v", v)
		}
	}},
	{"SweepTakesWhatExpiredOnly", func(e *checkEnv) {
		if e.sweep == nil {
			e.Skip("the store has no sweep")
		}
		kept := e.p
		e.want(reconcile.Raised, raise("kept"), raise("open"))
		e.want(reconcile.Applied, report(reconcile.ReportClear, "kept"))
		h := e.hour()
		e.tally(reconcile.Cell{Series: "s", Start: h, Writer: nonce(), N: 7})
		e.p.Retention, e.p.Lull, e.p.Keep = e.short, 0, e.short
		e.want(reconcile.Raised, raise("expired"))
		e.send(report(reconcile.ReportClear, "expired"))
		e.want(reconcile.Doubtful, suspect("suspected"))
		now := time.Now().UTC().Truncate(time.Microsecond)
		e.tally(reconcile.Cell{Series: "s", Start: now, Writer: nonce(), N: 1}, reconcile.Cell{Series: "t", Start: now, Writer: nonce(), N: 1})
		e.wait()
		e.p = kept
		for range 100 {
			if n, err := e.sweep(context.Background(), 1000); err != nil {
				e.Fatalf("sweep: %v", err)
			} else if n == 0 {
				break
			}
		}
		if got, want := subjects(e.list(reconcile.FindingQuery{})), []string{"kept", "open", "suspected"}; !slices.Equal(got, want) {
			e.Fatalf("left %q, want %q", got, want)
		}
		if v := e.volumes("", 10, h, now); len(v) != 1 || v[0].Series != "s" || v[0].N[0] != 7 || v[0].N[1] != 0 && !now.Equal(h) {
			e.Fatalf("left %+v", v)
		}
	}},
	{"CountedAtTheSameTime", func(e *checkEnv) {
		h := e.hour()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				w := nonce()
				for n := range 8 {
					if err := e.store.Tally(context.Background(), e.p, []reconcile.Cell{{Series: "s", Start: h, Writer: w, N: int64(n + 1)}}); err != nil {
						e.Errorf("Tally: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if v := e.volumes("", 10, h); len(v) != 1 || v[0].N[0] != 64 {
			e.Fatalf("%+v", v)
		}
	}},
	{"VolumesOfKindsAreSeparate", func(e *checkEnv) {
		h := e.hour()
		e.tally(reconcile.Cell{Series: "s", Start: h, Writer: nonce(), N: 1})
		e.p.Kind = newKind()
		if v := e.volumes("", 10, h); len(v) != 0 {
			e.Fatalf("%+v", v)
		}
	}},
}

// hour is the one that has begun, by the clock that the subtest and the store share nearly.
func (e *checkEnv) hour() time.Time { return time.Now().UTC().Truncate(time.Hour) }

func (e *checkEnv) tally(cells ...reconcile.Cell) {
	e.Helper()
	for range map[bool]int{false: 1, true: 2}[e.twice] {
		if err := e.store.Tally(context.Background(), e.p, cells); err != nil {
			e.Fatalf("Tally: %v", err)
		}
	}
}

func (e *checkEnv) volumes(after string, n int, starts ...time.Time) []reconcile.Volume {
	e.Helper()
	vs, err := e.store.Volumes(context.Background(), e.p, after, n, starts)
	if err != nil || len(vs) > n {
		e.Fatalf("Volumes: %d of %d, %v", len(vs), n, err)
	}
	for _, v := range vs {
		if len(v.N) != len(starts) {
			e.Fatalf("%q has %d counts, want %d", v.Series, len(v.N), len(starts))
		}
	}
	return vs
}
