package testenv_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/internal/testenv/servers"
)

func command(t *testing.T, addr string, words ...string) string {
	t.Helper()
	answer, err := servers.Redis(addr, words...)
	if err != nil {
		t.Fatalf("%s: %v", words[0], err)
	}
	return answer
}

func TestSharedRedisAnswersAndIsOne(t *testing.T) {
	addr := testenv.Redis(t)
	if got := command(t, addr, "PING"); got != "PONG" {
		t.Errorf("PING answered %q", got)
	}
	if again := testenv.Redis(t); again != addr {
		t.Errorf("a second call gave another server: %s and %s", addr, again)
	}
}

func TestRedisClusterHasThreeMastersAndAllSlots(t *testing.T) {
	addrs := testenv.RedisCluster(t)
	if len(addrs) != 3 {
		t.Fatalf("%d nodes", len(addrs))
	}
	for _, addr := range addrs {
		info := command(t, addr, "CLUSTER", "INFO")
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3"} {
			if !strings.Contains(info, want) {
				t.Errorf("%s: no %s in\n%s", addr, want, info)
			}
		}
		// A key is served by one node and redirected by the two others.
		_, err := servers.Redis(addr, "SET", testenv.Prefix(t)+"{a}", "1")
		if err != nil && !strings.HasPrefix(err.Error(), "MOVED ") {
			t.Errorf("%s: SET: %v", addr, err)
		}
	}
}

func TestRedisOwnKeepsItsDataOverAKill(t *testing.T) {
	s := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	addr := s.Addr()
	command(t, addr, "SET", "k", "kept")
	s.Kill()
	if _, err := servers.Redis(addr, "PING"); err == nil {
		t.Fatal("a killed server answers")
	}
	s.Start()
	if got := command(t, addr, "GET", "k"); got != "kept" || s.Addr() != addr {
		t.Errorf("after the kill: %q at %s, was at %s", got, s.Addr(), addr)
	}
	s.Stop()
	if _, err := servers.Redis(addr, "PING"); err == nil {
		t.Fatal("a stopped server answers")
	}
	s.Start()
	if got := command(t, addr, "GET", "k"); got != "kept" {
		t.Errorf("after the stop: %q", got)
	}
}

func TestRedisOwnKeepsNothingByDefault(t *testing.T) {
	s := testenv.RedisOwn(t)
	command(t, s.Addr(), "SET", "k", "v")
	s.Stop()
	s.Start()
	if got := command(t, s.Addr(), "GET", "k"); got != "" {
		t.Errorf("GET answered %q", got)
	}
}

func TestNamesAreUniqueAndPlain(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		for _, name := range []string{testenv.Prefix(t), testenv.SchemaName(t)} {
			if !regexp.MustCompile(`^test[_0-9a-f]+:?$`).MatchString(name) || seen[name] {
				t.Fatalf("name %q", name)
			}
			seen[name] = true
		}
	}
}

func TestEnvironmentNamesTheServers(t *testing.T) {
	t.Setenv("PAWL_TEST_REDIS", "h:1")
	t.Setenv("PAWL_TEST_REDIS_CLUSTER", "h:1,h:2,h:3")
	t.Setenv("PAWL_TEST_POSTGRES", "postgres://h/db")
	if got := testenv.Redis(t); got != "h:1" {
		t.Error(got)
	}
	if got := testenv.RedisCluster(t); len(got) != 3 || got[2] != "h:3" {
		t.Error(got)
	}
	if got := testenv.Postgres(t); got != "postgres://h/db" {
		t.Error(got)
	}
}

func TestLongRunsOnlyWhenAskedFor(t *testing.T) {
	for value, want := range map[string]bool{"": false, "short": true, "full": true} {
		t.Setenv("PAWL_LONG", value)
		ran := false
		t.Run("case", func(t *testing.T) {
			testenv.Long(t)
			ran = true
		})
		if ran != want {
			t.Errorf("PAWL_LONG=%q: ran is %v", value, ran)
		}
	}
}

func TestLongCountIsShortOnlyWhenAskedFor(t *testing.T) {
	for value, want := range map[string]int{"short": 3, "full": 7} {
		t.Setenv("PAWL_LONG", value)
		if got := testenv.LongCount(t, 3, 7); got != want {
			t.Errorf("PAWL_LONG=%q: %d times, want %d", value, got, want)
		}
	}
}
