package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const dirPrefix = "pawl-testenv-"

// newDir makes a directory whose name holds our process ID, owned by the account
// that the server will run as.
func newDir(as *account) (string, error) {
	sweepOnce.Do(sweep)
	dir, err := os.MkdirTemp("", dirPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", err
	}
	if as != nil {
		if err := os.Chown(dir, int(as.uid), int(as.gid)); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

var sweepOnce sync.Once

// sweep removes directories whose process is gone. The janitors do it at once;
// this is for a machine that was switched off under them.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && !alive(n) {
			_ = os.RemoveAll(dir) // another user's directory stays
		}
	}
}

// freePort finds a loopback port below the range from which systems take the
// ports of outgoing connections. In that range a client that dials a stopped
// server again and again may connect to itself, and hold the port when the
// server starts again.
func freePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Listen listens on such a port.
func Listen() (net.Listener, error) {
	const low, high = 15000, 32000
	var last error
	for range 100 {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no free port on 127.0.0.1: %w", last)
}

// find returns the path of a program, from PATH or from a directory that matches
// one of the patterns, newest version first, and its version as major*100+minor.
func find(program string, patterns ...string) (path string, version int, err error) {
	path, err = exec.LookPath(program)
	if err != nil {
		var found []string
		for _, p := range patterns {
			f, _ := filepath.Glob(filepath.Join(p, program))
			found = append(found, f...)
		}
		if len(found) == 0 {
			return "", 0, fmt.Errorf("%s: %w", program, ErrMissing)
		}
		slices.SortFunc(found, func(a, b string) int { return pathVersion(b) - pathVersion(a) })
		path = found[0]
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", 0, fmt.Errorf("%s --version: %w", path, err)
	}
	return path, parseVersion(string(out)), nil
}

var versionPattern = regexp.MustCompile(`(\d+)\.(\d+)`)

// parseVersion reads "Redis server v=7.0.15 ..." and "postgres (PostgreSQL) 15.18 ...".
func parseVersion(s string) int {
	m := versionPattern.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major*100 + minor
}

// pathVersion reads the 15 in /usr/lib/postgresql/15/bin/postgres and in
// /opt/homebrew/opt/postgresql@15/bin/postgres: the last directory that ends in a number.
func pathVersion(path string) int {
	for _, name := range slices.Backward(strings.Split(path, "/")) {
		name = name[strings.LastIndexAny(name, "@-")+1:]
		if n, err := strconv.Atoi(name); err == nil {
			return n
		}
	}
	return 0
}
