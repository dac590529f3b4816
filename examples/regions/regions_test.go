package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv"
)

// small is enough for some conflicts in every case that has them.
var small = []string{"-keys", "100", "-rate", "50", "-for", "20s", "-partition", "5s"}

// runs the program and returns its report, and what it printed.
func runs(t *testing.T, want int, args ...string) (report, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := run(append(args, "-json"), &stdout, &stderr); got != want {
		t.Fatalf("%v exits with %d, want %d:\n%s", args, got, want, stderr.Bytes())
	}
	var r report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v prints %q: %v", args, stdout.Bytes(), err)
	}
	return r, stderr.String()
}

func TestRegionsConverge(t *testing.T) {
	r, text := runs(t, 0, small...)
	if !r.OK || len(r.Cases) != len(scenes) || !strings.Contains(text, "In every case") {
		t.Fatalf("%+v\n%s", r, text)
	}
	for i, row := range r.Cases {
		if !row.OK || row.Writes < 500 || row.SameAfter < 0 || row.SameAfter > 1 || row.Collected == 0 || row.Resident == 0 {
			t.Errorf("%+v", row)
		}
		switch away := scenes[i].away; {
		case away == 0 && (row.Lost != 0 || row.Counters != 0 || row.Remote != row.Resident):
			t.Errorf("nobody writes what is another's: %+v", row)
		case away >= 0.05 && (row.Lost == 0 || row.Counters == 0):
			t.Errorf("conversations that are shared: %+v", row)
		}
	}
	apart, near, cut := r.Cases[0], r.Cases[1], r.Cases[2]
	if near.Rate >= apart.Rate || cut.Rate <= apart.Rate || r.Cases[3].Rate >= apart.Rate {
		t.Errorf("the share does not depend on what it should depend on: %+v", r.Cases)
	}
}

func TestSameSeedSameRun(t *testing.T) {
	_, first := runs(t, 0, small...)
	_, again := runs(t, 0, small...)
	_, other := runs(t, 0, append(slices.Clone(small), "-seed", "2")...)
	if first != again {
		t.Errorf("%s\nand then\n%s", first, again)
	}
	if first == other {
		t.Error("another seed gives the same")
	}
}

// The default's length is where the shares are near to what is expected.
func TestLongSharesAreAsExpected(t *testing.T) {
	if testenv.LongCount(t, 0, 1) == 0 {
		t.Skip("the default length takes half a minute under the race detector; make long runs it")
	}
	r, _ := runs(t, 0)
	for _, row := range r.Cases {
		if row.Away > 0.01 && row.Expected > 0 && (row.Rate < row.Expected*0.8 || row.Rate > row.Expected*1.2) {
			t.Errorf("%s: %v is not near %v", row.Case, row.Rate, row.Expected)
		}
	}
}

func TestAPartitionThatDoesNotEnd(t *testing.T) {
	r, text := runs(t, 1, append(slices.Clone(small), "-partition", "1h")...)
	for i, row := range r.Cases {
		if row.OK == scenes[i].cut {
			t.Errorf("%+v", row)
		}
	}
	if r.OK || !strings.Contains(text, "NEVER") || !strings.Contains(text, "WRONG") {
		t.Errorf("%s", text)
	}
}

// What the judge is there for, each once.
func TestJudgeCanFail(t *testing.T) {
	c := config{seed: 1, keys: 20, rate: 50, length: 5 * time.Second, delay: 150 * time.Millisecond, every: 100 * time.Millisecond}
	for want, spoil := range map[string]func(x *simulation){
		"was not reported as lost": func(x *simulation) { clear(x.lost) },
		"was reported as lost, and is in": func(x *simulation) {
			for w := range maps.Keys(x.made) {
				x.lost[w] = false
			}
		},
		"differs: 1": func(x *simulation) {
			if _, err := x.regions[0].Set(x.keys[0], nil); err != nil {
				t.Error(err)
			}
		},
		"tombstones are left": func(x *simulation) {
			if _, err := x.regions[0].Delete(x.keys[0]); err != nil {
				t.Error(err)
			}
		},
	} {
		x := newSimulation(c, scenes[0])
		if row := x.play(); !row.OK {
			t.Fatalf("%+v", row)
		}
		spoil(x)
		x.judge()
		if !slices.ContainsFunc(x.wrong, func(s string) bool { return strings.Contains(s, want) }) || x.row.OK {
			t.Errorf("%q is not found: %q", want, x.wrong)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-h"}, {"-unknown"}, {"argument"}, {"-seed", "-1"}, {"-keys", "0"}, {"-keys", "100001"}, {"-rate", "0"}, {"-rate", "-1"},
		{"-rate", "NaN"}, {"-rate", "+Inf"}, {"-for", "1ms"}, {"-for", "25h"}, {"-delay", "-1s"}, {"-delay", "2m"}, {"-every", "0s"},
		{"-every", "2m"}, {"-partition", "-1s"},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(args, &stdout, &stderr); got != 2 || stderr.Len() == 0 || stdout.Len() != 0 {
			t.Errorf("%q exits with %d and says %q", args, got, stderr.Bytes())
		}
	}
}
