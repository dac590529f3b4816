package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/testenv/servers"
)

// An Env is what one comparison may use: servers of its own, since the cases
// empty them between two runs, and a list of what is to be undone.
type Env struct {
	undo  []func() error
	notes []string
}

// Cleanup has f run when the comparison is over, the last one first.
func (e *Env) Cleanup(f func() error) { e.undo = append(e.undo, f) }

// Note adds a line to the conditions of the report.
func (e *Env) Note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// Close undoes everything. A failure is printed: the figures stand all the same.
func (e *Env) Close() {
	for i := len(e.undo) - 1; i >= 0; i-- {
		if err := e.undo[i](); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks: clean up:", err)
		}
	}
	e.undo = nil
}

// Redis starts a server that keeps nothing on disk and returns its address.
func (e *Env) Redis() (string, error) {
	s, err := servers.StartRedis()
	if err != nil {
		return "", unavailable(err)
	}
	e.Cleanup(s.Close)
	return s.Addr(), nil
}

// RedisCluster starts three masters that keep nothing on disk.
func (e *Env) RedisCluster() ([]string, error) {
	nodes, err := servers.StartCluster()
	if err != nil {
		return nil, unavailable(err)
	}
	var addrs []string
	for _, n := range nodes {
		e.Cleanup(n.Close)
		addrs = append(addrs, n.Addr())
	}
	return addrs, nil
}

// Postgres starts a server with its default settings, fsync included, and
// returns its URL.
func (e *Env) Postgres() (string, error) {
	s, err := servers.StartPostgres()
	if err != nil {
		return "", unavailable(err)
	}
	e.Cleanup(s.Close)
	return s.URL(), nil
}

// TempDir makes a directory for the files of the comparison.
func (e *Env) TempDir() (string, error) {
	dir, err := os.MkdirTemp("", "pawl-benchmarks-")
	if err != nil {
		return "", err
	}
	e.Cleanup(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// unavailable marks the want of a program as a reason to skip.
func unavailable(err error) error {
	if errors.Is(err, servers.ErrMissing) {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

// conditions says what a reader must know to compare two reports.
func conditions(rounds int, d time.Duration) []string {
	lines := []string{
		fmt.Sprintf("%s %s/%s, %d processors (GOMAXPROCS %d)",
			runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		fmt.Sprintf("%d rounds in turn, every second one backwards; %v for each measurement; %s",
			rounds, d, time.Now().Format(time.DateOnly)),
		"servers and clients share the processors",
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		lines = append(lines, "load average before the first measurement: "+strings.Join(strings.Fields(string(load))[:3], " "))
	}
	if n, err := syncsPerSecond(); err == nil {
		lines = append(lines, fmt.Sprintf("fsync of 4 KiB appended to a file in the temporary directory: %s/s", short(n)))
	}
	return lines
}

// syncsPerSecond appends 4 KiB and syncs, for a moment: the floor under every
// durable figure of this machine.
func syncsPerSecond() (float64, error) {
	f, err := os.CreateTemp("", "pawl-benchmarks-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	n, start := 0, time.Now()
	for ; time.Since(start) < 200*time.Millisecond; n++ {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
