package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// A report is everything that was found.
type report struct {
	OK      bool        `json:"ok"` // every bar holds
	Seed    uint64      `json:"seed"`
	Runs    int         `json:"runs"`
	Classes []classRow  `json:"classes,omitempty"`
	Step    []stepRow   `json:"step,omitempty"`
	Lines   []lineRow   `json:"lines,omitempty"`
	Retries []retryRow  `json:"retries,omitempty"`
	Drain   []surgeRow  `json:"drain,omitempty"`
	Layers  []layersRow `json:"layers,omitempty"`
	Bars    []bar       `json:"bars"`
}

// simulate makes the tables, and prints each when it is there.
func simulate(c config, out io.Writer) *report {
	r := &report{Seed: c.seed, Runs: c.runs}
	if c.has("classes") {
		r.Classes, r.Step = classes(c), step(c)
		r.printClasses(out)
	}
	if c.has("lines") {
		r.Lines = lines(c, lineCases)
		r.printLines(out)
	}
	if c.has("retries") {
		r.Retries = retries(c, retryCases())
		r.printRetries(out)
	}
	if c.has("drain") {
		r.Drain = drains()
		r.printDrain(out)
	}
	if c.has("layers") {
		r.Layers = layers(c, layerCases)
		r.printLayers(out)
	}
	r.judge()
	return r
}

// A table is printed in columns; the first is text, the others are numbers.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, title string) table {
	fmt.Fprintf(out, "\n%s\n", title)
	return table{tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
}

func (t table) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t, "%v\t", c)
	}
	fmt.Fprintln(t)
}

func (r *report) printClasses(out io.Writer) {
	t := newTable(out, fmt.Sprintf("Two-call tasks in five classes, median of %d runs: tasks that succeed", r.Runs))
	t.row("load", "before the service", "of ideal", "highest", "high", "middle", "low", "lowest", "p99")
	for _, c := range r.Classes {
		cells := []any{fmt.Sprintf("%.1fx", c.Load), c.Admitter, percent(c.OfIdeal)}
		for _, share := range c.Classes {
			cells = append(cells, percent(share))
		}
		t.row(append(cells, millis(c.P99))...)
	}
	t.Flush()
	t = newTable(out, "The load grows from 0.9x to 3.6x: tasks that succeed, of ideal")
	t.row("before the service", "first 2 s", "next 3 s", "highest class")
	for _, s := range r.Step {
		t.row(s.Admitter, percent(s.First), percent(s.Settled), percent(s.Highest))
	}
	t.Flush()
}

func (r *report) printLines(out io.Writer) {
	t := newTable(out, "Messages at 80 % of 5,000/s beside a line of 200/s, for 20 seconds from its first burst on")
	t.row("case", "messages p50", "p99", "p99 worse by", "in time", "notices/s")
	for _, l := range r.Lines {
		t.row(l.Case, millis(l.P50), millis(l.P99), percent(l.Worse), percent(l.InTime), fmt.Sprintf("%.0f", l.Notices))
	}
	t.Flush()
}

func (r *report) printRetries(out io.Writer) {
	t := newTable(out, "A service at 70 % does a quarter of what it can for 20 seconds; callers try again for a minute")
	t.row("service", "retries", "sent", "fewer", "peak calls/s", "gave up", "well again after")
	for _, x := range r.Retries {
		well := "never"
		if x.Recovered >= 0 {
			well = fmt.Sprintf("%.0f s", x.Recovered)
		}
		fewer := "-"
		if x.Fewer != 0 {
			fewer = percent(x.Fewer)
		}
		t.row(x.Service, x.Retry, count(x.Retries), fewer, count(x.Peak), percent(x.Failed), well)
	}
	t.Flush()
}

func (r *report) printDrain(out io.Writer) {
	t := newTable(out, "Five minutes of +300 %: the backlog, and what it takes until it is gone after the surge")
	t.row("used before", "measures", "peak backlog", "drained after", "likes refused", "looks delayed", "media shrunk")
	for _, d := range r.Drain {
		t.row(percent(d.Used), d.Case, count(d.Peak), fmt.Sprintf("%.1f min", d.Drained), percent(d.Refused), percent(d.Delayed), percent(d.Shrunk))
	}
	t.Flush()
}

func (r *report) printLayers(out io.Writer) {
	t := newTable(out, "One minute of four times the messages and likes, and notices at 50 times their rate: the layers one on top of the other")
	t.row("layers", "messages at once", "after it", "p99", "in the end", "notices", "likes", "retries", "backlog", "drained", "lost", "review")
	for _, l := range r.Layers {
		drained := fmt.Sprintf("%.0f s", l.Drained)
		if l.After < 0.5 {
			drained = "broken down"
		}
		t.row(l.Case, percent(l.AtOnce), percent(l.After), fmt.Sprintf("%.1f s", l.P99), percent(l.Accepted[0]), percent(l.Accepted[1]), percent(l.Accepted[2]),
			l.Retries, l.Peak, drained, l.Lost, l.Review)
	}
	t.Flush()
}

// A bar is what has to hold.
type bar struct {
	What  string  `json:"what"`
	Got   float64 `json:"got"`
	Least float64 `json:"least"`
	Holds bool    `json:"holds"`
}

// judge sets the bars for the tables that there are.
func (r *report) judge() {
	r.OK = true
	hold := func(what string, got, least float64) {
		b := bar{what, got, least, got >= least}
		r.Bars = append(r.Bars, b)
		r.OK = r.OK && b.Holds
	}
	gates := map[float64]classRow{}
	best := map[float64]float64{}
	for _, c := range r.Classes {
		if c.Admitter == "gate" {
			gates[c.Load] = c
		} else {
			best[c.Load] = max(best[c.Load], c.OfIdeal)
		}
	}
	if r.Classes != nil {
		worst := math.Inf(1)
		for _, g := range gates {
			worst = min(worst, g.OfIdeal)
		}
		two := gates[2]
		hold("gate at 2x: goodput, of ideal", two.OfIdeal, 0.95)
		hold("gate at 2x: the worse of the two highest classes", min(two.Classes[0], two.Classes[1]), 0.99)
		hold("gate at its worst load: goodput, of ideal", worst, 0.95)
		hold("gate at 2x: above the better baseline, of ideal", two.OfIdeal-best[2], 0.15)
	}
	for _, s := range r.Step {
		if s.Admitter == "gate" {
			hold("gate 2 s after a step to four times the load: goodput, of ideal", s.Settled, 0.95)
		}
	}
	for _, l := range r.Lines {
		if l.Case == shapedCase {
			hold("messages beside a shaped line at 50x: p99 better than 10 % worse by", 0.1-l.Worse, 0)
		}
	}
}

func (r *report) printBars(out io.Writer) {
	if len(r.Bars) == 0 {
		return
	}
	t := newTable(out, "Bars")
	for _, b := range r.Bars {
		verdict := "holds"
		if !b.Holds {
			verdict = "DOES NOT HOLD"
		}
		t.row(b.What, fmt.Sprintf("%.3f", b.Got), fmt.Sprintf("at least %.3f", b.Least), verdict)
	}
	t.Flush()
}

func percent(share float64) string {
	if p := 100 * share; math.Abs(p) < 1000 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f x", share)
}

func millis(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// count is a number in thousands or millions.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0fk", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}
