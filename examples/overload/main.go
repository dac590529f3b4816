// Overload shows what backpressure and retry do to a service that is asked for too
// much. It needs no server and no time: everything happens in a discrete-event
// simulation on virtual time, on the primitives themselves, and the same seed gives
// the same figures.
//
//	go run ./examples/overload
//	go run ./examples/overload -svg overload.svg
//	go run ./examples/overload -only classes,drain -runs 3 -seed 7 -json
//
// It prints five tables:
//
//   - classes: tasks of two calls each, in five classes of business, at half to four
//     times of what can be served, before a service with nothing, with x/time/rate
//     set by hand to its capacity, and with a backpressure.Gate as it comes. A task
//     fails with either call. "of ideal" are the tasks that succeed, as a share of as
//     many as can; then the share of each class that does. And how it goes when the
//     load grows to four times what it was.
//   - lines: one line of business at 50 times its rate beside message traffic, with
//     and without a backpressure.Shaper: what the messages notice of it.
//   - retries: a service that is slow for 20 seconds, and callers who try again every
//     second or with retry.Gradient.
//   - drain: how long the backlog of a surge of +300 % lasts with and without
//     backpressure.Levels, and with each measure alone.
//   - layers: the client's gradient, shaper and gate, levels, and retries of dead
//     letters, one on top of the other. "at once" are messages that are accepted at
//     their first attempt, during the surge and in the last two minutes after it; then
//     what is accepted in the end of messages, notices and likes; "lost" has been given
//     up on, and "review" waits for a person after its last retry.
//
// A share above 100 % of ideal comes from what was under way when its span began.
//
// Two-call overload is that of Zhou et al., Overload Control for Scaling WeChat
// Microservices, SoCC 2018 (https://arxiv.org/abs/1806.04075). What the simulation
// assumes stands as constants beside each table's code. The ratios it gives are those
// of its assumptions: they show which way a measure works, not what it would do
// elsewhere.
//
// It exits with 0 if every bar at the end holds, 1 if one does not or the chart
// cannot be written, and 2 on bad flags.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// config is what the flags say.
type config struct {
	seed uint64
	runs int
	only []string // tables
	svg  string
	json bool
}

// tables are the names of all of them.
var tables = []string{"classes", "lines", "retries", "drain", "layers"}

func (c *config) has(table string) bool { return slices.Contains(c.only, table) }

// run is the program; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "overload:", err)
		}
		return 2
	}
	if c.svg != "" { // before the time is spent
		if err := writable(c.svg); err != nil {
			fmt.Fprintln(stderr, "overload:", err)
			return 1
		}
	}
	out := stdout
	if c.json {
		out = stderr
	}
	r := simulate(c, out)
	r.printBars(out)
	if c.json {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			fmt.Fprintln(stderr, "overload:", err)
			return 1
		}
	}
	if c.svg != "" {
		if err := os.WriteFile(c.svg, r.chart(), 0o644); err != nil {
			fmt.Fprintln(stderr, "overload:", err)
			return 1
		}
	}
	if !r.OK {
		return 1
	}
	return 0
}

// writable makes a file if there is none, and leaves one that there is as it is.
func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var only string
	f := flag.NewFlagSet("overload", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&c.seed, "seed", 1, "`seed` of the first run; each further run has the next one")
	f.IntVar(&c.runs, "runs", 9, "take the median of `n` runs; lines and retries of at most 3, layers has one and drain no chance in it")
	f.StringVar(&only, "only", strings.Join(tables, ","), "`tables` to make")
	f.StringVar(&c.svg, "svg", "", "draw a chart of classes, retries and drain into this `file`")
	f.BoolVar(&c.json, "json", false, "print the tables as one JSON object on stdout, and as text on stderr")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.only = strings.Split(only, ",")
	for _, name := range c.only {
		if !slices.Contains(tables, name) {
			return c, fmt.Errorf("-only %q: not one of %s", name, strings.Join(tables, ", "))
		}
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case c.runs < 1 || c.runs > 1000:
		return c, fmt.Errorf("-runs %d: not 1 to 1,000", c.runs)
	case c.svg != "" && !(c.has("classes") && c.has("retries") && c.has("drain")):
		return c, errors.New("-svg draws classes, retries and drain: -only leaves one of them out")
	}
	return c, nil
}
