package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A Comparison measures several cases side by side: what Pawl does, and what its
// users would write or import in its place. Its cases take turns, round after
// round, so that a machine that slows down slows down all of them.
type Comparison struct {
	Name    string
	What    string // one sentence: what one item is and how it is counted
	Metrics []Metric

	// Open prepares the cases once. What it starts, it stops through env.Cleanup.
	// An error that wraps errUnavailable skips the comparison.
	Open func(ctx context.Context, env *Env) ([]Case, error)
}

// A Metric is one figure that every run of a case yields.
type Metric struct {
	Name  string
	Lower bool // a smaller figure is a better one
	Bar   Bar
}

// A Bar is what the figures of a Pawl case must reach. The zero Bar asks nothing.
type Bar struct {
	// Ratio bounds the figure divided by that of the best peer: from below for a
	// rate, from above for a cost. Zero: not compared.
	Ratio float64
	// Aim is a ratio that is hoped for and not required.
	Aim float64
	// Value bounds the figure itself, in the same direction. Zero: not compared.
	Value float64
	// OfMedians judges the ratio of the medians. Otherwise the median of the
	// ratios of the rounds is judged, which a drifting machine disturbs less.
	OfMedians bool
}

// Role says what a case is for.
type Role string

const (
	Peer  Role = "peer"  // what Pawl is measured against; the best one counts
	Pawl  Role = "pawl"  // what the bar is for
	Shown Role = "shown" // printed, and never the best peer
)

// A Case is one contestant of a comparison.
type Case struct {
	Name string
	Role Role

	// Run measures once, for about d where the amount of work is not fixed, and
	// returns one figure per metric. It begins with an empty store, and fails
	// rather than count an item whose answer was wrong.
	Run func(ctx context.Context, d time.Duration) ([]float64, error)

	// Isolated runs each measurement in a process of its own, so that memory and
	// goroutines that a peer never gives back do not burden the next case.
	Isolated bool
}

// errUnavailable says that a comparison cannot run here, for want of a server.
var errUnavailable = errors.New("not available here")

// measure runs the cases of c for the given number of rounds, every second round
// backwards, and returns the figures by case, metric and round.
func measure(ctx context.Context, c Comparison, cases []Case, rounds int, d time.Duration, progress func(string)) ([][][]float64, error) {
	figures := make([][][]float64, len(cases))
	for i := range figures {
		figures[i] = make([][]float64, len(c.Metrics))
	}
	for round := range rounds {
		for turn := range cases {
			i := turn
			if round%2 == 1 {
				i = len(cases) - 1 - turn
			}
			got, err := runOnce(ctx, c.Name, cases[i], d)
			if err == nil && len(got) != len(c.Metrics) {
				err = fmt.Errorf("%d figures for %d metrics", len(got), len(c.Metrics))
			}
			if err != nil {
				return nil, fmt.Errorf("%s: round %d, %s: %w", c.Name, round+1, cases[i].Name, err)
			}
			for m, v := range got {
				figures[i][m] = append(figures[i][m], v)
			}
			progress(fmt.Sprintf("%s: round %d/%d, %s: %s", c.Name, round+1, rounds, cases[i].Name, list(c.Metrics, got)))
		}
	}
	return figures, nil
}

func runOnce(ctx context.Context, comparison string, c Case, d time.Duration) ([]float64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.Isolated {
		return runApart(ctx, comparison, c.Name, d)
	}
	runtime.GC()
	return c.Run(ctx, d)
}

// runApart runs one measurement of one case in a child of this program.
func runApart(ctx context.Context, comparison, name string, d time.Duration) ([]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-apart", comparison, "-case", name, "-time", d.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("in a process of its own: %w", err)
	}
	var figures []float64
	if err := json.Unmarshal(out, &figures); err != nil {
		return nil, fmt.Errorf("reading the answer of its process: %w", err)
	}
	return figures, nil
}

// apart is the child's side of runApart.
func apart(ctx context.Context, all []Comparison, comparison, name string, d time.Duration) error {
	for _, c := range all {
		if c.Name != comparison {
			continue
		}
		env := &Env{}
		defer env.Close()
		cases, err := c.Open(ctx, env)
		if err != nil {
			return err
		}
		for _, k := range cases {
			if k.Name != name {
				continue
			}
			figures, err := k.Run(ctx, d)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(figures)
		}
	}
	return fmt.Errorf("no case %q in a comparison %q", name, comparison)
}

// list prints one run's figures for the progress lines.
func list(metrics []Metric, figures []float64) string {
	var parts []string
	for i, v := range figures {
		parts = append(parts, short(v)+" "+metrics[i].Name)
	}
	return strings.Join(parts, ", ")
}
