package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // also where the system has no time zones

	"github.com/pawl-go/pawl/reconcile"
)

// A week is somebody's, whose messages are counted, and whose checks look every half hour.
type week struct {
	*testing.T
	c   *reconcile.Checks
	loc *time.Location
	h   *raisedHook
}

// rhythm counts for weeks what a function says of each local half hour.
func rhythm(t *testing.T, r reconcile.Rhythm, weeks int, per func(local time.Time) int) *week {
	w := &week{T: t, loc: time.UTC, h: &raisedHook{}}
	if r.Location != nil {
		w.loc = r.Location
	}
	w.c = newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Volume: &r, Hooks: w.h.hooks()})
	for begun := time.Now(); time.Since(begun) < time.Duration(weeks)*7*24*time.Hour; {
		w.pass(per)
	}
	return w
}

// pass lets half an hour pass: at its beginning as many arrive as the local time says, and
// in its middle the checks look.
func (w *week) pass(per func(local time.Time) int) {
	w.Helper()
	w.c.Arrived("acct", "+1555", per(time.Now().In(w.loc)))
	time.Sleep(15 * time.Minute)
	if err := w.c.Once(w.Context()); err != nil {
		w.Fatal(err)
	}
	time.Sleep(15 * time.Minute)
}

// hours lets hours pass in which so many arrive in each half.
func (w *week) hours(hours, n int) {
	w.Helper()
	for range 2 * hours {
		w.pass(func(time.Time) int { return n })
	}
}

// until lets time pass as usual until the local day and hour.
func (w *week) until(day time.Weekday, hour int) {
	w.Helper()
	for now := time.Now().In(w.loc); now.Weekday() != day || now.Hour() != hour || now.Minute() != 0; now = time.Now().In(w.loc) {
		w.pass(office)
	}
}

// office is busy by day on weekdays, and quiet otherwise: each half hour.
func office(local time.Time) int {
	if local.Weekday() == time.Saturday || local.Weekday() == time.Sunday || local.Hour() < 8 || local.Hour() >= 18 {
		return 1
	}
	return 50
}

const series = "volume acct %2B1555"

func TestADropAgainstTheWeeklyRhythm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := rhythm(t, reconcile.Rhythm{}, 4, office)
		w.until(time.Tuesday, 10)
		w.h.want(t, nil, nil) // four weeks, with nights and weekends, raise nothing
		w.hours(1, 30)        // 10:00: 60 of 100 are less, and not less than half
		w.hours(1, 0)         // 11:00
		w.h.want(t, nil, nil) // before a window has ended nobody knows
		w.hours(1, 15)        // 12:00
		w.h.want(t, []string{series + " false"}, nil)
		w.hours(1, 45)
		f := found(t, w.c, reconcile.Open)
		if f.Account != "acct" || f.Count < 2 || !strings.HasPrefix(f.Detail, "30 arrived in 1h0m0s from Tue ") || !strings.Contains(f.Detail, "where 100 are usual") {
			t.Fatalf("found %+v", f)
		}
		w.hours(1, 45)
		w.h.want(t, []string{series + " false"}, []string{"acct %2B1555: " + found(t, w.c, reconcile.Resolved).Note})
	})
}

// One odd week, a campaign, does not become the rule.
func TestTheBaselineIsRobust(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begun := time.Now()
		w := rhythm(t, reconcile.Rhythm{}, 5, func(local time.Time) int {
			if time.Since(begun)/(7*24*time.Hour) == 3 {
				return 50 * office(local)
			}
			return office(local)
		})
		w.until(time.Friday, 17)
		w.h.want(t, nil, nil)
	})
}

func TestNoAlarmWithoutHistoryOrVolume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := rhythm(t, reconcile.Rhythm{}, 2, office) // MinWeeks is 3
		w.until(time.Tuesday, 10)
		w.hours(1, 0)
		w.until(time.Wednesday, 3)
		w.hours(2, 0) // 2 are usual
		w.h.want(t, nil, nil)
	})
}

// The rhythm is that of the wall clock: when summer time begins, the hours move in UTC.
func TestTheRhythmFollowsTheWallClock(t *testing.T) {
	for zone, window := range map[string]time.Duration{
		"Europe/Berlin": time.Hour, "America/New_York": time.Hour, "Asia/Kolkata": 30 * time.Minute, "Australia/Lord_Howe": 30 * time.Minute,
	} {
		t.Run(zone, func(t *testing.T) {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			bubble(t, func(t *testing.T) {
				time.Sleep(9 * 7 * 24 * time.Hour) // to the beginning of March 2000
				w := rhythm(t, reconcile.Rhythm{Location: loc, Window: window, MinWeeks: 2}, 4, office)
				w.until(time.Thursday, 10)
				w.h.want(t, nil, nil)
				w.hours(2, 1)
				w.h.want(t, []string{series + " false"}, nil)
			})
		})
	}
}

// In UTC the same office would be missed for an hour when summer time begins.
func TestTheRhythmInAnotherZoneIsWrong(t *testing.T) {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T) {
		time.Sleep(9 * 7 * 24 * time.Hour)
		w := rhythm(t, reconcile.Rhythm{}, 5, func(utc time.Time) int { return office(utc.In(loc)) })
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		if len(w.h.raised) == 0 {
			t.Fatalf("nothing was raised: the test above shows nothing (%+v)", w.c.Stats())
		}
	})
}

// Counts are written down as they stand, so that neither a lost answer nor a write that is
// repeated counts anything twice; those of several processes add up.
func TestCountsSurviveFaultsAndAddUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &lossyChecks{CheckStore: reconcile.NewCheckMemory(), lose: map[string]int{"tally": 3}, refuse: map[string]int{"tally": 3}}
		opts := &reconcile.CheckOptions{Volume: &reconcile.Rhythm{}}
		a, b := newChecks(t, store, opts), newChecks(t, store, opts)
		stopA := runChecks(t, a)
		runChecks(t, b)
		begun := time.Now().Truncate(time.Hour)
		for range 300 {
			a.Arrived("acct", "1", 2)
			b.Arrived("acct", "1", 1)
			time.Sleep(time.Second)
		}
		a.Arrived("acct", "1", 5)
		stopA() // writes down what is left
		time.Sleep(20 * time.Second)
		vs, err := store.Volumes(t.Context(), reconcile.CheckParams{Kind: "default", Keep: time.Hour}, "", 10, []time.Time{begun})
		if err != nil || len(vs) != 1 || vs[0].N[0] != 905 {
			t.Fatalf("counted %+v, %v", vs, err)
		}
		if s := a.Stats(); s.Pending != 0 || s.Errors+b.Stats().Errors != 6 || s.Lost != 0 {
			t.Fatalf("stats %+v and %+v", s, b.Stats())
		}
	})
}

func TestSeriesAreBounded(t *testing.T) {
	c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Volume: &reconcile.Rhythm{}})
	for i := range 10_100 {
		c.Arrived("acct", fmt.Sprint(i), 1)
	}
	c.Arrived(strings.Repeat("x", 2000), "", 3)
	c.Arrived("acct", "1", -1)
	if s := c.Stats(); s.Pending != 10_000 || s.Lost != 103 {
		t.Fatalf("stats %+v", s)
	}
	if err := c.Once(t.Context()); err != nil || c.Stats().Pending != 0 {
		t.Fatalf("%d pending, %v", c.Stats().Pending, err)
	}
	none := newChecks(t, reconcile.NewCheckMemory(), nil)
	none.Arrived("a", "b", 2)
	if none.Stats().Lost != 2 {
		t.Fatal("what nobody counts was not said to be lost")
	}
}

// duringTally calls a function while counts are being written.
type duringTally struct {
	reconcile.CheckStore
	during func()
}

func (d *duringTally) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	d.during()
	return d.CheckStore.Tally(ctx, p, cells)
}

func TestWhatArrivesWhileCountsAreWrittenIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &duringTally{CheckStore: reconcile.NewCheckMemory()}
		c := newChecks(t, store, &reconcile.CheckOptions{Volume: &reconcile.Rhythm{}})
		calls := 0
		store.during = func() {
			if calls++; calls == 1 {
				c.Arrived("acct", "1", 5)
			}
		}
		c.Arrived("acct", "1", 2)
		for range 2 {
			if err := c.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		vs, err := store.Volumes(t.Context(), reconcile.CheckParams{Kind: "default"}, "", 1, []time.Time{time.Now().Truncate(time.Hour)})
		if err != nil || len(vs) != 1 || vs[0].N[0] != 7 {
			t.Fatalf("counted %+v, %v", vs, err)
		}
	})
}
