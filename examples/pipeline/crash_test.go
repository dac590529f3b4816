package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv"
)

func TestKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	killed(t, 3, 2, inFile(t)...)
	killed(t, 3, 2, inFile(t, "-order")...)
}

// inFile are the flags of a file that is not there yet.
func inFile(t *testing.T, flags ...string) []string {
	return append(flags, "-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db"))
}

func TestLongKilledAndRunAgain(t *testing.T) {
	kills, passes := testenv.LongCount(t, 4, 50), testenv.LongCount(t, 3, 10)
	loop := func(name string, kills, passes int, flags ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killed(t, kills, passes, inFile(t, flags...)...)
		})
	}
	loop("events", kills, passes)
	loop("order", kills, passes, "-order")
	kills, passes = (kills+2)/3, (passes+1)/2
	loop("drop", kills, passes, "-order", "-drop", "0.1")
	loop("order in memory", kills, passes, "-order", "-order-store", "memory")
	t.Run("degrade", func(t *testing.T) {
		t.Parallel()
		testenv.RedisOwn(t) // skips without one
		killed(t, kills, passes, inFile(t, "-order", "-order-store", "redis", "-degrade")...)
	})
}

// killed kills the program again and again at random moments, every other time together
// with its gateway; what it leaves behind ends ok. Each run has more to do than the one
// before, and some live for longer than the leases of a dead one, so that there is always
// something under way.
func killed(t *testing.T, kills, repeat int, flags ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "replies.tsv")
	args := append(faults("-gateway-faults", "0.1", "-gateway-log", log), flags...)
	passes := []string{"-repeat", fmt.Sprint(repeat)}
	if i := slices.Index(flags, "-drop"); i >= 0 { // how many events are sent depends on it, and on the order of the faults
		passes = faults(append(passes, "-order", flags[i], flags[i+1])...)
	}
	whole := runs(t, 0, passes...)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	interrupted, replied := 0, []int{}
	for i := range kills {
		cmd := process(t, append(args, "-repeat", fmt.Sprint(1+i*repeat/kills))...)
		ownGroup(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := cmd.Process.Kill
		if i%2 == 1 {
			kill = func() error { return killGroup(cmd) }
		}
		timer := time.AfterFunc(time.Duration(random.IntN(int(2500*time.Millisecond))), func() { kill() })
		if err := cmd.Wait(); err != nil {
			interrupted++
		}
		timer.Stop()
		replied = append(replied, lines(log))
	}
	a := runs(t, 0, append(args, "-repeat", fmt.Sprint(repeat))...)
	if a.Events != whole.Events || a.Effects != int(whole.Events) || a.Sent != whole.Sent || a.SentTwice != 0 || !a.OK {
		t.Errorf("%v after %d kills: %+v, undisturbed %+v", flags, interrupted, a, whole)
	}
	if n := lines(log); n != whole.Sent {
		t.Errorf("%d lines for %d replies", n, whole.Sent)
	}
	t.Logf("%v: killed %d times, with %v replies in the log; %d of %d replies were unknown at some time", flags, interrupted, replied, a.UnknownSettled, a.Sent)
}

// lines is how many a log has; it may be written at this moment.
func lines(path string) (n int) {
	text, _ := os.ReadFile(path)
	for _, c := range text {
		if c == '\n' {
			n++
		}
	}
	return n
}
