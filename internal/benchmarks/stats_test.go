package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestSpread(t *testing.T) {
	if got, want := spread([]float64{9, 1, 4}), (Spread{Median: 4, Min: 1, Max: 9}); got != want {
		t.Errorf("three figures: got %v, want %v", got, want)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four figures: got %v, want 2.5", got)
	}
	v := []float64{3, 1, 2}
	median(v)
	if v[0] != 3 {
		t.Error("median changed the order of its argument, which is the order of the rounds")
	}
}

// pawlAgainst judges one Pawl case against peers.
func pawlAgainst(metric Metric, pawl []float64, peers ...[]float64) Row {
	cases := []Case{{Name: "pawl", Role: Pawl}}
	figures := [][][]float64{{pawl}}
	for _, p := range peers {
		cases = append(cases, Case{Name: "peer", Role: Peer})
		figures = append(figures, [][]float64{p})
	}
	return tables(Comparison{Metrics: []Metric{metric}}, cases, figures)[0].Rows[0]
}

func TestVerdict(t *testing.T) {
	type figures = []float64
	for _, c := range []struct {
		name  string
		bar   Bar
		lower bool
		pawl  figures
		peers []figures
		want  Verdict
	}{
		{"no bar", Bar{}, false, figures{1}, []figures{{5}}, ""},
		{"rate reached exactly", Bar{Ratio: 0.5}, false, figures{50}, []figures{{100}}, Passes},
		{"rate missed", Bar{Ratio: 0.5}, false, figures{49}, []figures{{100}}, FallsShort},
		{"aim reached", Bar{Ratio: 0.5, Aim: 0.9}, false, figures{90}, []figures{{100}}, Aimed},
		{"aim missed", Bar{Ratio: 0.5, Aim: 0.9}, false, figures{89}, []figures{{100}}, Passes},
		{"the better of two peers counts", Bar{Ratio: 0.5}, false, figures{50}, []figures{{60}, {101}}, FallsShort},
		{"cost reached exactly", Bar{Ratio: 1}, true, figures{10}, []figures{{10}}, Passes},
		{"cost missed", Bar{Ratio: 1}, true, figures{11}, []figures{{10}}, FallsShort},
		{"the cheaper of two peers counts", Bar{Ratio: 1}, true, figures{10}, []figures{{20}, {9}}, FallsShort},
		{"value reached", Bar{Value: 130}, true, figures{130}, nil, Passes},
		{"value missed", Bar{Value: 130}, true, figures{131}, nil, FallsShort},
		{"value missed, ratio reached", Bar{Value: 130, Ratio: 1, Aim: 1}, true, figures{131}, []figures{{500}}, FallsShort},
		{"nothing to compare with", Bar{Ratio: 1}, true, figures{1}, nil, FallsShort},
		{
			"rounds are compared with rounds, so a machine that slows down does not matter", Bar{Ratio: 0.9}, false,
			figures{95, 38, 10}, []figures{{100, 40, 20}}, Passes,
		},
		{
			"unless the medians are asked for", Bar{Ratio: 1, OfMedians: true}, true,
			figures{5, 9, 4}, []figures{{6, 6, 3}}, Passes, // the rounds' ratios: 0.83, 1.5, 1.33
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := pawlAgainst(Metric{Name: "x", Lower: c.lower, Bar: c.bar}, c.pawl, c.peers...)
			if row.Verdict != c.want {
				t.Errorf("got %q, want %q; %+v", row.Verdict, c.want, row)
			}
		})
	}
}

func TestShownIsNeverTheBestPeer(t *testing.T) {
	rows := []Row{
		{Case: "shown", Role: Shown, Spread: Spread{Median: 100}},
		{Case: "peer", Role: Peer, Spread: Spread{Median: 10}},
		{Case: "pawl", Role: Pawl, Spread: Spread{Median: 50}},
	}
	if best := bestPeer(rows, false); best == nil || best.Case != "peer" {
		t.Errorf("best peer: %+v", best)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 4: "4", 999: "999", 1000: "1 000", 1234567.8: "1 234 568", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.98765: "0.988",
		999.6: "1 000", 99.97: "100", 9.996: "10.0", 0.9996: "1.00", -1234.5: "-1 234",
	} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	c := Comparison{Name: "room/one", What: "What it is.", Metrics: []Metric{
		{Name: "IDs/s", Bar: Bar{Ratio: 0.7, Aim: 0.9}}, {Name: "B/ID", Lower: true},
	}}
	cases := []Case{{Name: "peer", Role: Peer}, {Name: "pawl", Role: Pawl}}
	r := Report{
		Conditions: []string{"a condition"},
		Tables:     tables(c, cases, [][][]float64{{{1000, 2000, 3000}, {5, 5, 5}}, {{800, 1600, 1500}, {4, 4, 4}}}),
		Skipped:    map[string]string{"room/two": "no server"},
	}
	var text bytes.Buffer
	r.writeMarkdown(&text)
	for _, want := range []string{
		"- a condition",
		"| room/one | pawl | 1 500 IDs/s | peer | 0.8 | 0.75 | at least 0.7 of the best peer, aim 0.9 | pass |",
		"| peer | peer | 2 000 | 1 000..3 000 |  |  |  |",
		"| pawl | pawl | 1 500 | 800..1 600 | 0.8 | 0.5..0.8 | 0.75 |",
		"B/ID, less is better\n",
		"Not measured: room/two (no server)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	if n := strings.Count(text.String(), "What it is."); n != 1 {
		t.Errorf("a comparison of two metrics is introduced %d times", n)
	}

	var data bytes.Buffer
	if err := r.writeJSON(&data); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if row := back.Tables[0].Rows[1]; row.Verdict != Passes || row.RoundRatio.Median != 0.8 || len(row.Figures) != 3 {
		t.Errorf("read back: %+v", row)
	}
}
