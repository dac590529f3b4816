// Package testenv gives tests real servers: Redis 7, a three-node Redis Cluster
// and PostgreSQL, thrown away afterwards, and a proxy that breaks connections.
//
// [Redis], [RedisCluster] and [Postgres] are shared by all tests of a process, or
// of a whole run when PAWL_TEST_REDIS (host:port), PAWL_TEST_REDIS_CLUSTER
// (host:port,host:port,host:port) and PAWL_TEST_POSTGRES (a URL) name running
// ones. So each test takes a [Prefix] or a [SchemaName] of its own, and leaves
// alone what is the server's: no FLUSHALL, no CONFIG SET, no restart. A test that
// needs these takes [RedisOwn] or [PostgresOwn].
//
// A server dies with the test process, even with one that is killed; package
// servers says how. Where a program is missing or too old the test is skipped and
// says what to install; it fails instead when CI is true or
// PAWL_TEST_REQUIRE_SERVERS is 1.
//
// Servers live in real time: start them outside of a synctest bubble. They leave no
// goroutine behind, so a leak detector needs no exception for them. The shared
// PostgreSQL takes 100 connections from all test binaries together.
package testenv

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/internal/testenv/servers"
)

// Redis returns the host:port of the shared Redis server.
func Redis(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv("PAWL_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := sharedRedis()
	check(t, err)
	return s.Addr()
}

// RedisCluster returns the host:port of each of the three masters of the shared
// Redis Cluster. It has no replicas, and all slots are assigned.
func RedisCluster(t testing.TB) []string {
	t.Helper()
	if addrs := os.Getenv("PAWL_TEST_REDIS_CLUSTER"); addrs != "" {
		return strings.Split(addrs, ",")
	}
	nodes, err := sharedCluster()
	check(t, err)
	var addrs []string
	for _, s := range nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Postgres returns the URL of the shared PostgreSQL server. It runs with the
// default settings, fsync included; the user may create schemas.
func Postgres(t testing.TB) string {
	t.Helper()
	if url := os.Getenv("PAWL_TEST_POSTGRES"); url != "" {
		return url
	}
	s, err := sharedPostgres()
	check(t, err)
	return s.URL()
}

// RedisOwn starts a Redis server for this test alone. It keeps nothing on disk
// unless the arguments say so: RedisOwn(t, "--appendonly", "yes",
// "--appendfsync", "always") survives a Kill.
func RedisOwn(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := servers.StartRedis(args...)
	return own(t, s, err)
}

// PostgresOwn starts a PostgreSQL server for this test alone, which takes a
// second or two. Settings, such as "max_connections=20", change the defaults.
func PostgresOwn(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := servers.StartPostgres(settings...)
	return own(t, s, err)
}

// Server is a server of one test's own. It is closed when the test ends. Its
// methods may be called from any goroutine except Start, Stop and Kill, which
// fail the test and so belong to the test's own.
type Server struct {
	t testing.TB
	s *servers.Server
}

// Addr is the server's host:port; it stays the same over a restart.
func (s *Server) Addr() string { return s.s.Addr() }

// URL is the server's address as a redis:// or postgres:// URL.
func (s *Server) URL() string { return s.s.URL() }

// Stop ends the server in an orderly way and returns when it is gone.
func (s *Server) Stop() { s.t.Helper(); s.must(s.s.Stop()) }

// Kill ends the server with SIGKILL, as a crash would, and returns when no
// process of it is left.
func (s *Server) Kill() { s.t.Helper(); s.must(s.s.Kill()) }

// Start starts the server again, on the same port and data directory, and
// returns when it answers.
func (s *Server) Start() { s.t.Helper(); s.must(s.s.Start()) }

// Prefix returns a random prefix for the keys of one test in a shared Redis:
// letters and digits, and a colon at its end.
func Prefix(t testing.TB) string {
	t.Helper()
	return "test" + random(t) + ":"
}

// SchemaName returns a random name for the PostgreSQL schema of one test, which
// creates it, and drops it at its end. The name needs no quotes.
func SchemaName(t testing.TB) string {
	t.Helper()
	return "test_" + random(t)
}

// Long skips a test that takes minutes, unless PAWL_LONG is set as in make long. That
// runs the tests with Long in their names only, and so the test's name must have it.
func Long(t testing.TB) {
	t.Helper()
	if test, _, _ := strings.Cut(t.Name(), "/"); !strings.Contains(test, "Long") {
		t.Fatal("the name of a long test must contain Long, or make long would not run it")
	}
	if os.Getenv("PAWL_LONG") == "" {
		t.Skip("a long test; PAWL_LONG=full runs it")
	}
}

// LongFull is Long for a test that CI has no time for.
func LongFull(t testing.TB) {
	t.Helper()
	if LongShort(t) {
		t.Skip("PAWL_LONG=full runs it")
	}
}

// LongShort is Long, and says whether PAWL_LONG is short: then the test has to make do
// with what CI has time for.
func LongShort(t testing.TB) bool {
	t.Helper()
	return LongCount(t, 0, 1) == 0
}

// LongCount is Long for a test that does something so many times: as often as CI has
// time for if PAWL_LONG is short, and otherwise the full number.
func LongCount(t testing.TB, short, full int) int {
	t.Helper()
	Long(t)
	if os.Getenv("PAWL_LONG") == "short" {
		return short
	}
	return full
}

var (
	sharedRedis    = sync.OnceValues(func() (*servers.Server, error) { return servers.StartRedis() })
	sharedCluster  = sync.OnceValues(servers.StartCluster)
	sharedPostgres = sync.OnceValues(func() (*servers.Server, error) { return servers.StartPostgres(servers.ManyConnections) })
)

func own(t testing.TB, s *servers.Server, err error) *Server {
	t.Helper()
	check(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return &Server{t, s}
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, servers.ErrMissing) && !servers.Required():
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

func random(t testing.TB) string {
	t.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}
