package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// A Report is everything one run of the program found.
type Report struct {
	Conditions []string          `json:"conditions"`
	Tables     []Table           `json:"tables"`
	Skipped    map[string]string `json:"skipped,omitempty"` // comparison to reason
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeMarkdown prints a summary of the bars first and every table behind it.
func (r *Report) writeMarkdown(w io.Writer) {
	for _, c := range r.Conditions {
		fmt.Fprintf(w, "- %s\n", c)
	}
	fmt.Fprint(w, "\n| comparison | case | median | against | ratio of rounds | ratio of medians | bar | verdict |\n")
	fmt.Fprint(w, "| --- | --- | ---: | --- | ---: | ---: | --- | --- |\n")
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			if row.Verdict == "" {
				continue
			}
			against, rounds, medians := "", "", ""
			if row.RoundRatio != nil {
				against, rounds, medians = row.Against, short(row.RoundRatio.Median), short(row.RatioOfMedians)
			}
			fmt.Fprintf(w, "| %s | %s | %s %s | %s | %s | %s | %s | %s |\n",
				t.Comparison, row.Case, short(row.Median), t.Metric, against, rounds, medians, t.Bar, row.Verdict)
		}
	}
	last := ""
	for _, t := range r.Tables {
		if t.Comparison != last {
			fmt.Fprintf(w, "\n### %s\n\n%s\n", t.Comparison, t.What)
			last = t.Comparison
		}
		t.writeMarkdown(w)
	}
	for name, why := range r.Skipped {
		fmt.Fprintf(w, "\nNot measured: %s (%s)\n", name, why)
	}
}

func (t *Table) writeMarkdown(w io.Writer) {
	better := "more is better"
	if t.Lower {
		better = "less is better"
	}
	bar := ""
	if t.Bar != "" {
		bar = "; bar: " + t.Bar
	}
	fmt.Fprintf(w, "\n%s, %s%s\n\n", t.Metric, better, bar)
	fmt.Fprintf(w, "| case | | median | min..max of %d | ratio of rounds | min..max | ratio of medians |\n", t.Rounds)
	fmt.Fprint(w, "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range t.Rows {
		ratio, ratios, medians := "", "", ""
		if r.RoundRatio != nil {
			ratio = short(r.RoundRatio.Median)
			ratios = short(r.RoundRatio.Min) + ".." + short(r.RoundRatio.Max)
			medians = short(r.RatioOfMedians)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s..%s | %s | %s | %s |\n",
			r.Case, r.Role, short(r.Median), short(r.Min), short(r.Max), ratio, ratios, medians)
	}
}

// short prints three significant digits, and whole numbers from a thousand on
// with spaces between the thousands.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a == math.Trunc(a) || a >= 99.95:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return sign + digits
}
