package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded returns a case that writes down that it ran.
func recorded(name string, log *[]string, figures ...float64) Case {
	return Case{Name: name, Run: func(context.Context, time.Duration) ([]float64, error) {
		*log = append(*log, name)
		return figures, nil
	}}
}

func TestMeasureTakesTurns(t *testing.T) {
	var log []string
	cases := []Case{recorded("a", &log, 1), recorded("b", &log, 2), recorded("c", &log, 3)}
	c := Comparison{Metrics: []Metric{{Name: "x"}}}
	figures, err := measure(t.Context(), c, cases, 3, time.Second, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(log, ""); got != "abccbaabc" {
		t.Errorf("order: %s", got)
	}
	if got := figures[1][0]; !slices.Equal(got, []float64{2, 2, 2}) {
		t.Errorf("figures of b: %v", got)
	}
}

func TestMeasureFails(t *testing.T) {
	broken := errors.New("broken")
	var log []string
	for name, c := range map[string]struct {
		bad  Case
		says string
	}{
		"a case that fails": {Case{Name: "bad", Run: func(context.Context, time.Duration) ([]float64, error) { return nil, broken }}, "broken"},
		"a missing figure":  {recorded("bad", &log), "0 figures for 1 metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			cases := []Case{recorded("good", &log, 1), c.bad}
			_, err := measure(t.Context(), Comparison{Name: "room/one", Metrics: []Metric{{Name: "x"}}}, cases, 1, time.Second, func(string) {})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{"room/one", "round 1", "bad", c.says} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q lacks %q", err, want)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log = nil
	_, err := measure(ctx, Comparison{}, []Case{recorded("a", &log, 1)}, 1, time.Second, func(string) {})
	if !errors.Is(err, context.Canceled) || len(log) != 0 {
		t.Errorf("cancelled: error %v, ran %v", err, log)
	}
}

func TestMissingServerSkipsAndFailureDoesNotStopTheRest(t *testing.T) {
	var log []string
	one := Metric{Name: "x"}
	open := func(cases []Case, err error) func(context.Context, *Env) ([]Case, error) {
		return func(_ context.Context, env *Env) ([]Case, error) {
			env.Cleanup(func() error { log = append(log, "closed"); return nil })
			return cases, err
		}
	}
	report, err := compare(t.Context(), []Comparison{
		{Name: "absent", Metrics: []Metric{one}, Open: open(nil, errUnavailable)},
		{Name: "broken", Metrics: []Metric{one}, Open: open(nil, errors.New("no table"))},
		{Name: "works", Metrics: []Metric{one}, Open: open([]Case{recorded("a", &log, 1)}, nil)},
	}, 1, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "broken: no table") || strings.Contains(err.Error(), "absent") {
		t.Errorf("error: %v", err)
	}
	if len(report.Tables) != 1 || report.Tables[0].Comparison != "works" || report.Skipped["absent"] == "" {
		t.Errorf("report: %+v", report)
	}
	if want := []string{"closed", "closed", "a", "closed"}; !slices.Equal(log, want) {
		t.Errorf("got %v, want %v", log, want)
	}
}

// TestMain lets the test binary be the child that an isolated case runs in.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-apart" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestIsolatedCaseRunsInItsOwnProcess(t *testing.T) {
	figures, err := runApart(t.Context(), "memory/do", "pawl", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 4 || figures[0] <= 0 {
		t.Errorf("figures: %v", figures)
	}
	_, err = runApart(t.Context(), "memory/do", "nobody", time.Millisecond)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Errorf("a case that does not exist: %v", err)
	}
}

func TestEveryComparisonIsNamedOnceAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range comparisons() {
		if c.Name == "" || c.What == "" || len(c.Metrics) == 0 || c.Open == nil || seen[c.Name] {
			t.Errorf("comparison %q is incomplete or a second one", c.Name)
		}
		seen[c.Name] = true
	}
}
