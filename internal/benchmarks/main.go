// Benchmarks measures Pawl beside what its users would take in its place: the
// bare command of the server, or another library. It prints ratios, because the
// figures themselves say more of the machine than of the code.
//
//	go run . [-only REGEX] [-rounds 5] [-time 2s] [-json] [-list]
//
// The README beside it says how to read the answer and what spoils it. It is a
// module of its own so that the peers never reach the go.mod of a user of Pawl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// comparisons lists everything there is to measure, in the order of the report.
func comparisons() []Comparison {
	var all []Comparison
	all = append(all, memoryComparisons()...)
	all = append(all, orderMemoryComparisons()...)
	all = append(all, redisComparisons()...)
	all = append(all, orderRedisComparisons()...)
	all = append(all, pgComparisons()...)
	all = append(all, orderPGComparisons()...)
	all = append(all, seqgenPGComparisons()...)
	all = append(all, inboxPGComparisons()...)
	all = append(all, dlqPGComparisons()...)
	all = append(all, reconcilePGComparisons()...)
	all = append(all, boltComparisons()...)
	all = append(all, orderBoltComparisons()...)
	all = append(all, seqgenBoltComparisons()...)
	all = append(all, retryComparisons()...)
	all = append(all, shaperComparisons()...)
	return all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmarks", flag.ExitOnError)
	only := flags.String("only", "", "measure only the comparisons whose `name` matches")
	rounds := flags.Int("rounds", 5, "how often every case is measured")
	length := flags.Duration("time", 2*time.Second, "how long one measurement takes, where the work is not fixed")
	asJSON := flags.Bool("json", false, "print JSON in place of the tables")
	names := flags.Bool("list", false, "list the comparisons and stop")
	apartName := flags.String("apart", "", "used by the program itself: one measurement of this comparison")
	apartCase := flags.String("case", "", "used by the program itself: the case of -apart")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *rounds < 1 || *length <= 0 {
		return errors.New("no arguments are expected, at least one round, and a positive time")
	}
	filter, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all := comparisons()
	if *apartName != "" {
		return apart(ctx, all, *apartName, *apartCase, *length)
	}
	var chosen []Comparison
	for _, c := range all {
		if filter.MatchString(c.Name) {
			chosen = append(chosen, c)
			if *names {
				fmt.Printf("%-40s %s\n", c.Name, c.What)
			}
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("nothing matches -only %s", *only)
	}
	if *names {
		return nil
	}
	report, err := compare(ctx, chosen, *rounds, *length)
	// What was measured before an error is worth printing.
	if *asJSON {
		return errors.Join(report.writeJSON(os.Stdout), err)
	}
	report.writeMarkdown(os.Stdout)
	return err
}

// compare measures one comparison after the other. A missing server skips a
// comparison, any other failure is remembered and the rest still runs.
func compare(ctx context.Context, chosen []Comparison, rounds int, d time.Duration) (*Report, error) {
	report := &Report{Conditions: conditions(rounds, d), Skipped: map[string]string{}}
	progress := func(line string) { fmt.Fprintln(os.Stderr, line) }
	var failed []error
	for _, c := range chosen {
		if err := ctx.Err(); err != nil {
			return report, errors.Join(append(failed, err)...)
		}
		t, notes, err := compareOne(ctx, c, rounds, d, progress)
		switch {
		case errors.Is(err, errUnavailable):
			report.Skipped[c.Name] = err.Error()
		case err != nil:
			failed = append(failed, err)
		}
		report.Tables = append(report.Tables, t...)
		for _, n := range notes {
			if !slices.Contains(report.Conditions, n) {
				report.Conditions = append(report.Conditions, n)
			}
		}
	}
	return report, errors.Join(failed...)
}

// compareOne measures one comparison, with servers that nothing else uses.
func compareOne(ctx context.Context, c Comparison, rounds int, d time.Duration, progress func(string)) ([]Table, []string, error) {
	env := &Env{}
	defer env.Close()
	cases, err := c.Open(ctx, env)
	if err != nil {
		return nil, env.notes, fmt.Errorf("%s: %w", c.Name, err)
	}
	figures, err := measure(ctx, c, cases, rounds, d, progress)
	if err != nil {
		return nil, env.notes, err
	}
	return tables(c, cases, figures), env.notes, nil
}
