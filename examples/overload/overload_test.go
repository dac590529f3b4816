package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv"
)

// runs the program and returns its report.
func runs(t *testing.T, want int, args ...string) report {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := run(append(args, "-json"), &stdout, &stderr); got != want {
		t.Fatalf("%v exits with %d, want %d:\n%s", args, got, want, stderr.Bytes())
	}
	var r report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v prints %q: %v", args, stdout.Bytes(), err)
	}
	return r
}

// one run with the first seed, for tests that look at what others look at, too.
var one = config{seed: 1, runs: 1, only: tables}

var classesOnce = sync.OnceValue(func() *report {
	r := &report{Classes: classes(one), Step: step(one)}
	r.judge()
	return r
})

func TestGateBeatsBothBaselines(t *testing.T) {
	r := classesOnce()
	if len(r.Bars) != 5 || !r.OK || len(r.Classes) != len(loads)*len(admitters) || len(r.Step) != len(admitters) {
		t.Errorf("%+v", r)
	}
	for _, c := range r.Classes {
		if c.Load <= 0.5 && c.OfIdeal < 0.999 {
			t.Errorf("without overload: %+v", c)
		}
	}
}

func TestShaperKeepsALineAway(t *testing.T) {
	r := &report{Lines: lines(one, []lineCase{lineCases[0], lineCases[3]})}
	if r.judge(); len(r.Bars) != 1 || !r.OK {
		t.Fatalf("%+v", r.Bars)
	}
	l := r.Lines[1]
	if l.InTime < 0.999 {
		t.Errorf("messages are late or lost: %+v", l)
	}
	if l.Notices < noticeRate || l.Notices > noticeRate*(1+1/linesLength.Seconds())+1 {
		t.Errorf("notices have not their rate and one burst: %+v", l)
	}
}

// The gradient sends fewer retries, and with a gate the service is well again.
func TestRetries(t *testing.T) {
	for _, x := range retries(one, retryCases()[1:5]) { // without the storm, which takes its time
		if x.Service == withGate && x.Retry != everySecond && x.Fewer < 0.42 {
			t.Errorf("not many fewer: %+v", x)
		}
		if recovered := x.Recovered >= 0; recovered != (x.Service == withGate) {
			t.Errorf("well again: %+v", x)
		}
	}
}

func TestLevelsDrainTheBacklog(t *testing.T) {
	r := runs(t, 0, "-only", "drain")
	for _, d := range r.Drain {
		without := r.drained(withoutLevels)
		switch {
		case d.Drained <= 0:
			t.Errorf("never drained: %+v", d)
		case d.Case == withoutLevels && (d.Refused != 0 || d.Delayed != 0 || d.Shrunk != 0):
			t.Errorf("measures without levels: %+v", d)
		case d.Used == without.Used && d.Case != withoutLevels && d.Drained >= without.Drained:
			t.Errorf("a measure that does not work: %+v", d)
		case d.Case == withLevels && (d.Refused == 0 || d.Delayed == 0 || d.Shrunk == 0 || d.Drained > without.Drained/3):
			t.Errorf("with levels: %+v", d)
		}
	}
}

func TestGateAndLevelsTogether(t *testing.T) {
	rows := layers(one, layerCases[1:4])
	client, gated, levels := rows[0], rows[1], rows[2]
	if client.After > 0.5 || gated.After < 0.99 || gated.AtOnce < 0.9 || gated.Accepted[0] < 0.999 {
		t.Errorf("the gate: %+v, without it %+v", gated, client)
	}
	if levels.Peak > gated.Peak*2/3 || levels.Drained > gated.Drained/2 {
		t.Errorf("the levels: %+v, without them %+v", levels, gated)
	}
}

// All tables as they are made by default. The chart in the folder is the one that the
// program draws.
func TestLongAllTables(t *testing.T) {
	if testenv.LongCount(t, 0, 1) == 0 {
		t.Skip("all tables take more than a minute under the race detector; make long draws them")
	}
	file := filepath.Join(t.TempDir(), "overload.svg")
	r := runs(t, 0, "-svg", file)
	if len(r.Bars) != 6 {
		t.Errorf("%+v", r.Bars)
	}
	if storm, gradient := r.Retries[0], r.Retries[1]; storm.Recovered >= 0 || gradient.Fewer < 0.42 {
		t.Errorf("no storm, or no fewer retries: %+v, %+v", storm, gradient)
	}
	if worse := r.Lines[1].Worse; worse < 100 {
		t.Errorf("without a shaper messages are only %v worse", worse)
	}
	none, client, levels, letters := r.Layers[0], r.Layers[1], r.Layers[3], r.Layers[4]
	if client.Retries > none.Retries/2 || none.After > 0.5 {
		t.Errorf("the client's gradient: %+v, without it %+v", client, none)
	}
	if letters.Lost != 0 || letters.Review == 0 || letters.Accepted[2] <= levels.Accepted[2] {
		t.Errorf("the dead letters: %+v, without them %+v", letters, levels)
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round differently, so the chart is not compared")
	}
	want, err := os.ReadFile("overload.svg")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("overload.svg is not what the program draws: go run ./examples/overload -svg examples/overload/overload.svg")
	}
}

func TestSameSeedSameRun(t *testing.T) {
	run := func(seed uint64) shares {
		o := newTwoCall(seed, func(w *world) admitter { return newGate(w) }, func(time.Duration) float64 { return 2 })
		o.w.run(2 * time.Second)
		return o.share(0, 2*time.Second)
	}
	if a, b := run(1), run(1); a != b {
		t.Errorf("the same seed has %+v and %+v", a, b)
	}
	if run(1) == run(2) {
		t.Error("another seed has the same")
	}
}

// A bar that does not hold is the exit status.
func TestBarsCanFail(t *testing.T) {
	r := &report{Classes: slices.Clone(classesOnce().Classes)}
	for i := range r.Classes {
		if c := &r.Classes[i]; c.Admitter == "gate" && c.Load == 2 {
			c.OfIdeal = 0.9
		}
	}
	r.judge()
	var text strings.Builder
	r.printBars(&text)
	if r.OK || !strings.Contains(text.String(), "DOES NOT HOLD") {
		t.Errorf("%s", text.String())
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-h"}, {"-unknown"}, {"-runs", "0"}, {"-runs", "-1"}, {"-runs", "1001"}, {"-seed", "-1"}, {"-only", "nothing"},
		{"-only", ""}, {"-only", "drain", "-svg", "x.svg"}, {"argument"},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(args, &stdout, &stderr); got != 2 || stderr.Len() == 0 || stdout.Len() != 0 {
			t.Errorf("%q exits with %d and says %q", args, got, stderr.Bytes())
		}
	}
}

// chart draws what is cheap to simulate, and no calls.
func chart() []byte {
	r := &report{Classes: classesOnce().Classes, Drain: drains()}
	for _, service := range []string{noGate, withGate} {
		for _, name := range []string{everySecond, gradient} {
			r.Retries = append(r.Retries, retryRow{Service: service, Retry: name, PerSecond: make([]int, int(hiccupEnd/time.Second)+1)})
		}
	}
	return r.chart()
}

func TestChart(t *testing.T) {
	text := chart()
	d := xml.NewDecoder(bytes.NewReader(text))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			for _, a := range start.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: %s=%q", start.Name.Local, a.Name.Local, a.Value)
				}
				if a.Name.Local == "stroke-width" {
					lines++
				}
			}
		}
	}
	if lines != 3+3+2 || len(text) > 60_000 {
		t.Errorf("%d lines in %d bytes", lines, len(text))
	}
	for _, want := range []string{"x/time/rate", "gate", "highest", everySecond, withLevels} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in the chart", want)
		}
	}
}

func TestChartCannotBeWritten(t *testing.T) {
	var stdout, stderr bytes.Buffer
	file := filepath.Join(t.TempDir(), "no such folder", "overload.svg")
	if got := run([]string{"-only", "classes,retries,drain", "-runs", "1", "-svg", file}, &stdout, &stderr); got != 1 || stdout.Len() != 0 {
		t.Errorf("exits with %d and prints %q", got, stdout.Bytes())
	}
}

// Events come in order of time, and those of the same time in the order in which they
// were made.
func TestEventsComeInOrder(t *testing.T) {
	w := newWorld(1)
	random := rand.New(rand.NewPCG(1, 2))
	type made struct {
		at time.Duration
		n  int
	}
	var want, got []made
	for n := range 1000 {
		m := made{time.Duration(random.IntN(50)), n}
		want = append(want, m)
		w.after(m.at, func() { got = append(got, made{w.since(), m.n}) })
	}
	slices.SortStableFunc(want, func(a, b made) int { return int(a.at - b.at) })
	w.run(time.Second)
	if !slices.Equal(got, want) {
		t.Error("events are out of order")
	}
}
