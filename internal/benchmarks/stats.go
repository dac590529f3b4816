package main

import (
	"fmt"
	"slices"
)

// A Spread is what is reported of the same figure measured several times.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(v []float64) Spread {
	return Spread{Median: median(v), Min: slices.Min(v), Max: slices.Max(v)}
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// A Table is one metric of one comparison, ready to print.
type Table struct {
	Comparison string `json:"comparison"`
	What       string `json:"what"`
	Metric     string `json:"metric"`
	Lower      bool   `json:"lower_is_better"`
	Rounds     int    `json:"rounds"`
	Bar        string `json:"bar,omitempty"`
	Rows       []Row  `json:"rows"`
}

// A Row is one case of a Table.
type Row struct {
	Case string `json:"case"`
	Role Role   `json:"role"`
	Spread
	Figures []float64 `json:"figures"` // by round

	// For Pawl's own cases, against the best peer.
	Against        string  `json:"against,omitempty"`
	RoundRatio     *Spread `json:"ratio_of_rounds,omitempty"`
	RatioOfMedians float64 `json:"ratio_of_medians,omitempty"`
	Verdict        Verdict `json:"verdict,omitempty"`
}

// Verdict is the outcome of a bar. It is empty where there is none.
type Verdict string

// The verdicts. Aimed passes, and reaches the aim as well.
const (
	Passes     Verdict = "pass"
	Aimed      Verdict = "pass, and the aim"
	FallsShort Verdict = "FALLS SHORT"
)

// tables turns the figures of measure into one table per metric.
func tables(c Comparison, cases []Case, figures [][][]float64) []Table {
	var out []Table
	for m, metric := range c.Metrics {
		t := Table{
			Comparison: c.Name, What: c.What, Metric: metric.Name, Lower: metric.Lower,
			Bar: metric.Bar.text(metric),
		}
		for i, k := range cases {
			v := figures[i][m]
			t.Rounds = len(v)
			t.Rows = append(t.Rows, Row{Case: k.Name, Role: k.Role, Spread: spread(v), Figures: v})
		}
		best := bestPeer(t.Rows, metric.Lower)
		for i := range t.Rows {
			if t.Rows[i].Role == Pawl {
				t.Rows[i].judge(metric, best)
			}
		}
		out = append(out, t)
	}
	return out
}

// bestPeer returns the peer with the best median, or nil when there is none. It
// is chosen once for all rounds: the best of each round would favour whichever
// peer was lucky in it.
func bestPeer(rows []Row, lower bool) *Row {
	var best *Row
	for i := range rows {
		r := &rows[i]
		if r.Role != Peer {
			continue
		}
		if best == nil || (r.Median < best.Median) == lower && r.Median != best.Median {
			best = r
		}
	}
	return best
}

// judge fills in the ratios to the best peer and the verdict.
func (r *Row) judge(metric Metric, best *Row) {
	bar := metric.Bar
	if best != nil && !slices.Contains(best.Figures, 0) { // a ratio to nothing says nothing
		ratios := make([]float64, len(r.Figures))
		for i, v := range r.Figures {
			ratios[i] = v / best.Figures[i]
		}
		s := spread(ratios)
		r.Against, r.RoundRatio, r.RatioOfMedians = best.Case, &s, r.Median/best.Median
	}
	reached := func(v, bound float64) bool {
		if metric.Lower {
			return v <= bound
		}
		return v >= bound
	}
	if bar.Ratio == 0 && bar.Value == 0 {
		return
	}
	r.Verdict = Passes
	if bar.Value != 0 && !reached(r.Median, bar.Value) {
		r.Verdict = FallsShort
	}
	if bar.Ratio == 0 {
		return
	}
	if r.RoundRatio == nil {
		r.Verdict = FallsShort // nothing was measured that it could be held against
		return
	}
	ratio := r.RoundRatio.Median
	if bar.OfMedians {
		ratio = r.RatioOfMedians
	}
	switch {
	case !reached(ratio, bar.Ratio):
		r.Verdict = FallsShort
	case r.Verdict == Passes && bar.Aim != 0 && reached(ratio, bar.Aim):
		r.Verdict = Aimed
	}
}

// text says the bar in words.
func (b Bar) text(m Metric) string {
	at := "at least"
	if m.Lower {
		at = "at most"
	}
	s := ""
	if b.Value != 0 {
		s = fmt.Sprintf("%s %s %s", at, short(b.Value), m.Name)
	}
	if b.Ratio != 0 {
		if s != "" {
			s += ", and "
		}
		s += fmt.Sprintf("%s %s of the best peer", at, short(b.Ratio))
		if b.OfMedians {
			s += " (medians)"
		}
	}
	if b.Aim != 0 {
		s += fmt.Sprintf(", aim %s", short(b.Aim))
	}
	return s
}
