package deps

import (
	"strings"
	"testing"
)

// fake makes a graph from lines "package: import import". A name without a dot in
// its first part is the standard library's; one that begins with a slash is ours.
func fake(lines ...string) map[string]Package {
	graph := map[string]Package{}
	full := func(name string) string {
		if strings.HasPrefix(name, "/") {
			return Module + name
		}
		return name
	}
	add := func(name string, imports []string) {
		first, _, _ := strings.Cut(name, "/")
		graph[name] = Package{ImportPath: name, Standard: !strings.Contains(first, "."), Imports: imports}
	}
	for _, line := range lines {
		name, list, _ := strings.Cut(line, ":")
		var imports []string
		for i := range strings.FieldsSeq(list) {
			i = full(i)
			imports = append(imports, i)
			if _, known := graph[i]; !known {
				add(i, nil)
			}
		}
		add(full(name), imports)
	}
	return graph
}

func TestCheckAllows(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
	}{
		{"a primitive with the standard library", []string{"/dedup: context crypto/rand"}},
		{"a primitive with an internal package", []string{"/internal/merge: context", "/dedup: /internal/merge"}},
		{"retry where it may be", []string{
			"/retry: time", "/order: /retry", "/inbox: /retry", "/dlq: /retry", "/reconcile: /retry",
			"/backpressure: /retry golang.org/x/time/rate",
		}},
		{"stores with their drivers, whatever those import", []string{
			"github.com/jackc/pgx/v5: golang.org/x/text/secure",
			"/internal/pgmigrate: github.com/jackc/pgx/v5",
			"/dedup/pgdedup: /dedup /internal/pgmigrate github.com/jackc/pgx/v5/pgxpool",
			"/dedup/redisdedup: /dedup github.com/redis/go-redis/v9",
			"/dedup/boltdedup: /dedup go.etcd.io/bbolt",
		}},
		{"a suite with testing", []string{"/dedup/deduptest: /dedup testing testing/synctest"}},
		{"an internal suite with testing", []string{"/internal/crashtest: testing os/exec"}},
		{"an internal package for the tests of adaptors", []string{"/internal/webhook/webhooktest: testing /inbox"}},
		{"an adaptor beside its primitive", []string{"/inbox/whatsapp: /inbox crypto/hmac"}},
		{"a store below a nested package", []string{
			"/backpressure/watchdog/rediswatchdog: /backpressure/watchdog github.com/redis/go-redis/v9",
		}},
		{"an example that composes", []string{
			"/examples/pipeline: /dedup /dedup/boltdedup /inbox go.etcd.io/bbolt",
		}},
		{"an example that compares", []string{"/examples/overload: /backpressure /retry golang.org/x/time/rate"}},
		{"the test servers", []string{
			"/internal/testenv/servers: os/exec", "/internal/testenv: testing /internal/testenv/servers",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, finding := range Check(fake(c.lines...)) {
				t.Error(finding)
			}
		})
	}
}

func TestCheckForbids(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string // in the only finding
	}{
		{"a driver in a primitive", []string{"/dedup: go.etcd.io/bbolt"}, "/dedup -> go.etcd.io/bbolt: a primitive"},
		{"a driver behind an internal package", []string{
			"/internal/pgmigrate: github.com/jackc/pgx/v5", "/seqgen: /internal/pgmigrate",
		}, "/internal/pgmigrate -> github.com/jackc/pgx/v5: a primitive"},
		{"an internal package with a dependency", []string{"/internal/merge: golang.org/x/sync"}, "an internal package"},
		{"an internal package that knows a primitive", []string{"/internal/worker: /retry"}, "an internal package"},
		{"a driver for tests", []string{"/internal/crashtest: go.etcd.io/bbolt"}, "an internal package for tests"},
		{"one primitive in another", []string{"/inbox: /dedup"}, "/inbox -> "},
		{"retry where it may not be", []string{"/dedup: /retry"}, "/dedup -> "},
		{"x/time where it may not be", []string{"/retry: golang.org/x/time/rate"}, "/retry -> "},
		{"another primitive's store", []string{"/inbox/boltinbox: /dedup"}, "a store"},
		{"the wrong driver", []string{"/dedup/pgdedup: github.com/redis/go-redis/v9"}, "a store"},
		{"a new adaptor with a dependency", []string{"/inbox/telegram: github.com/x/telegram"}, "/inbox/telegram -> "},
		{"testing in a primitive", []string{"/order: testing"}, "package testing"},
		{"testing behind a driver", []string{
			"go.etcd.io/bbolt: testing", "/dlq/boltdlq: go.etcd.io/bbolt",
		}, "go.etcd.io/bbolt -> testing: package testing"},
		{"a helper of testing in an example", []string{"/examples/x: testing/iotest"}, "package testing"},
		{"testing in an internal package", []string{"/internal/merge: testing"}, "package testing"},
		{"testify in a suite", []string{"/dedup/deduptest: github.com/stretchr/testify/require"}, "_test.go files only"},
		{"miniredis in an example", []string{"/examples/x: github.com/alicebob/miniredis/v2"}, "_test.go files only"},
		{"a dependency in a suite", []string{"/dedup/deduptest: github.com/redis/go-redis/v9"}, "a conformance suite"},
		{"test servers in a suite", []string{
			"/internal/testenv: os", "/dedup/deduptest: /internal/testenv",
		}, "a conformance suite"},
		{"a driver in the test servers", []string{"/internal/testenv: github.com/jackc/pgx/v5"}, "internal/testenv starts"},
		{"a framework in an example", []string{"/examples/x: github.com/gin-gonic/gin"}, "an example"},
		{"a place without a rule", []string{"/utils: strings"}, "no rule covers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings := Check(fake(c.lines...))
			if len(findings) != 1 || !strings.Contains(findings[0], c.want) {
				t.Errorf("findings %q, want one with %q", findings, c.want)
			}
		})
	}
}

func TestCheckRequirements(t *testing.T) {
	if got := CheckRequirements([]string{"go.etcd.io/bbolt", "pgregory.net/rapid", "golang.org/x/time"}); got != nil {
		t.Errorf("findings %q", got)
	}
	if got := CheckRequirements([]string{"github.com/samber/lo"}); len(got) != 1 {
		t.Errorf("findings %q", got)
	}
}
