package main

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testenv"
)

// Redis is killed in mid-run: nothing is lost, nothing happens twice, and what was
// delivered without it is reported when it is back.
func TestDegrade(t *testing.T) {
	t.Parallel()
	testenv.RedisOwn(t) // skips where there is no redis-server
	plain := runs(t, 0)
	flags := []string{"-order-store", "redis", "-degrade"}
	for _, args := range [][]string{
		nil,
		faults(),
		faults("-store", "bolt"),
		faults("-repeat", "4", "-drop", "0.05"),
		{"-drop", "1"},
	} {
		a := ordered(t, append(args, flags...)...)
		switch {
		case a.Events == 0: // nothing to deliver
		case *a.Unordered == 0 || *a.Unordered >= a.Events:
			t.Errorf("%v: %d of %d events are unordered", args, *a.Unordered, a.Events)
		case a.Dropped == nil && a.Events != plain.Events:
			t.Errorf("%v: %+v, without an outage %+v", args, a, plain)
		}
	}

	// The Redis of a run ends with it, the file does not.
	data := faults("-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db"))
	for range 2 {
		if a := ordered(t, append(data, flags...)...); a.Events != plain.Events {
			t.Errorf("again: %+v", a)
		}
	}
}

// When the server is back, so is the order.
func TestOrderAfterAnOutage(t *testing.T) {
	t.Parallel()
	testenv.RedisOwn(t) // skips where there is no redis-server
	c, err := parse([]string{"-order", "-order-store", "redis", "-degrade", "-repeat", "2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	a := new(account)
	if err := pipeline(t.Context(), c, a); err != nil || !a.OK {
		t.Fatalf("%+v, %v", a, err)
	}
	var ways []way
	for _, e := range a.list {
		ways = append(ways, e.Way)
	}
	slices.Reverse(ways)
	if first := slices.Index(ways, unordered); first <= 0 {
		t.Errorf("the last effect without order has %d behind it: %v", first, ways)
	}
}

func TestDegradeWithoutRedis(t *testing.T) {
	cmd := process(t, "-order", "-order-store", "redis", "-degrade")
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "redis-server") {
		t.Errorf("%v: %s", err, out)
	}
}
