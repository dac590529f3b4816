package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pawl-go/pawl/reconcile/lww"
)

// A scene is what makes a case.
type scene struct {
	name string
	away float64 // share of the writes that are not made at home
	near bool    // the regions are next to each other
	cut  bool    // nothing comes through for a while
}

// scenes are all cases: from writing anywhere to writing at home.
var scenes = []scene{
	{name: "anywhere", away: 0.5},
	{name: "anywhere, next door", away: 0.5, near: true},
	{name: "anywhere, with a partition", away: 0.5, cut: true},
	{name: shown, away: 0.05},
	{name: "nearly always at home", away: 0.007},
	{name: "nearly always, with a partition", away: 0.007, cut: true},
	{name: "at home", away: 0},
}

// shown is the case of which the residency is printed.
const shown = "mostly at home"

func (s scene) delayOf(c config) time.Duration {
	if s.near {
		return time.Millisecond
	}
	return c.delay
}

// expected is the share of writes that lose, without a partition; see the package
// comment. A write waits for the next delta, for half of the time between two, and
// then for the delay.
func (s scene) expected(c config) float64 {
	if s.cut {
		return 0
	}
	d := (s.delayOf(c) + c.every/2).Seconds()
	return 2 * d * c.rate / float64(c.keys) * s.away * (1 - s.away)
}

// A report is everything that was found.
type report struct {
	OK    bool   `json:"ok"` // in every case
	Seed  uint64 `json:"seed"`
	Cases []row  `json:"cases"`
}

// A row is what came of a case.
type row struct {
	Case      string   `json:"case"`
	Away      float64  `json:"away"`
	Delay     float64  `json:"delay_ms"`
	Writes    int      `json:"writes"`
	Lost      int      `json:"lost"`               // to a write that had not seen them
	Rate      float64  `json:"rate"`               // of all writes
	Expected  float64  `json:"expected,omitempty"` // without a partition
	Counters  float64  `json:"counters"`           // see naive.go
	SameAfter float64  `json:"same_after_s"`       // -1: never
	Deltas    int      `json:"deltas"`
	Bytes     int      `json:"bytes"`
	Remote    int      `json:"remote"`    // values that region 2 knows of and does not have
	Resident  int      `json:"resident"`  // values that region 1 has and must keep
	Collected int      `json:"collected"` // tombstones, in both regions
	OK        bool     `json:"ok"`
	Wrong     []string `json:"wrong,omitempty"`

	counterLost int
}

func simulate(c config, out io.Writer) *report {
	r := &report{OK: true, Seed: c.seed}
	fmt.Fprintf(out, "%d conversations, each written every %.1f s; deltas every %v; %v\n\n",
		c.keys, float64(c.keys)/c.rate, c.every, c.length)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "written\taway\tdelay\twrites\tlost\tshare\texpected\tcounters\tsame after\tMB sent\t")
	for _, s := range scenes {
		row := newSimulation(c, s).play()
		r.Cases = append(r.Cases, row)
		r.OK = r.OK && row.OK
		row.print(t)
	}
	t.Flush()
	for _, row := range r.Cases {
		if row.Case == shown {
			fmt.Fprintf(out, "\n%s: region 1 has %d values of conversations that must not leave it; region 2 has %d of them, and knows of %d.\n",
				strings.ToUpper(shown[:1])+shown[1:], row.Resident, row.Resident-row.Remote, row.Remote)
		}
	}
	for _, row := range r.Cases {
		for _, wrong := range row.Wrong {
			fmt.Fprintf(out, "WRONG: %s: %s\n", row.Case, wrong)
		}
	}
	if r.OK {
		fmt.Fprintln(out, "In every case the regions have the same, and every write is there or was reported as lost.")
	}
	return r
}

func (r row) print(t io.Writer) {
	same, expected := fmt.Sprintf("%.2f s", r.SameAfter), percent(r.Expected)
	if r.SameAfter < 0 {
		same = "NEVER"
	}
	if r.Expected == 0 && r.Away > 0 {
		expected = "-"
	}
	fmt.Fprintf(t, "%s\t%.1f %%\t%.0f ms\t%d\t%d\t%s\t%s\t%s\t%s\t%.1f\t\n", r.Case, 100*r.Away, r.Delay, r.Writes, r.Lost,
		percent(r.Rate), expected, percent(r.Counters), same, float64(r.Bytes)/1e6)
}

func percent(share float64) string { return fmt.Sprintf("%.3f %%", 100*share) }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// judge looks at both regions in the end.
func (x *simulation) judge() {
	r := &x.row
	r.Rate, r.Counters = float64(r.Lost)/float64(max(1, r.Writes)), float64(r.counterLost)/float64(max(1, r.Writes))
	a, b := x.regions[0], x.regions[1]
	if r.SameAfter < 0 {
		x.bad("they had not seen the same a minute after the last write")
	}
	for _, key := range x.keys {
		one, two := a.Get(key), b.Get(key)
		if gone(one) && gone(two) {
			continue
		}
		resident := strings.HasPrefix(key, "resident/")
		if resident && one.State() == lww.Present {
			r.Resident++
		}
		switch {
		case one.Stamp() != two.Stamp() || one.Digest() != two.Digest():
			x.bad("%s differs: %v here and %v there", key, one.Stamp(), two.Stamp())
		case resident && two.State() == lww.Remote && one.State() == lww.Present:
			r.Remote++
		case resident && two.State() == lww.Present && two.Stamp().Region != home: // written there
		case one.State() != lww.Present || two.State() != lww.Present || string(one.Value()) != string(two.Value()):
			x.bad("%s differs: it is %v here and %v there", key, one.State(), two.State())
		}
	}
	x.account()
	r.Wrong, r.OK = x.wrong, len(x.wrong) == 0
}

// account checks that each write is in both regions, or was reported as lost, or is a
// tombstone that both have passed.
func (x *simulation) account() {
	for w, made := range x.made {
		_, lost := x.lost[w]
		there := 0
		for _, r := range x.regions {
			if r.Get(w.key).Stamp() == w.stamp {
				there++
			}
		}
		switch {
		case lost && there > 0:
			x.bad("%v of %s was reported as lost, and is in %d regions", w.stamp, w.key, there)
		case !lost && there < 2 && !made.deleted:
			x.bad("%v of %s is in %d regions, and was not reported as lost", w.stamp, w.key, there)
		}
	}
	for _, r := range x.regions {
		if n := r.Stats().Tombstones; n > 0 {
			x.bad("%d tombstones are left in region %d", n, r.Region())
		}
	}
}

func gone(r lww.Register) bool { return r.State() == lww.Absent || r.State() == lww.Deleted }
