package redisreconcile_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// aclLines reads the ACL lines of the package comment, by user.
func aclLines(t *testing.T) map[string][]any {
	t.Helper()
	text, err := os.ReadFile("redisreconcile.go")
	require.NoError(t, err)
	rules := map[string][]any{}
	for _, m := range regexp.MustCompile(`(?m)^//\tACL SETUSER (\w+) (.*)$`).FindAllStringSubmatch(string(text), -1) {
		for rule := range strings.FieldsSeq(m[2]) {
			rules[m[1]] = append(rules[m[1]], rule)
		}
	}
	require.Len(t, rules, 3)
	return rules
}

// asUsers makes the users of the package comment, for keys that begin with this, and
// returns a client of each.
func asUsers(t *testing.T, addrs []string, prefix string, extra ...any) map[string]redis.UniversalClient {
	clients := map[string]redis.UniversalClient{}
	for user, rules := range aclLines(t) {
		for i := range rules {
			rules[i] = strings.Replace(rules[i].(string), "~{pawl:reconcile:*", "~{"+prefix+"*", 1)
		}
		name := testenv.Prefix(t) + user // the server may be shared
		for _, addr := range addrs {
			admin := redis.NewClient(&redis.Options{Addr: addr})
			require.NoError(t, admin.Do(t.Context(), slices.Concat([]any{"ACL", "SETUSER", name, "reset"}, rules, extra)...).Err())
			t.Cleanup(func() {
				require.NoError(t, admin.Do(context.Background(), "ACL", "DELUSER", name).Err())
				require.NoError(t, admin.Close())
			})
		}
		clients[user] = newClient(t, &redis.UniversalOptions{Addrs: addrs, Username: name, Password: "secret"})
	}
	return clients
}

// byRole sends each step as the user whose step it is.
type byRole struct {
	*redisreconcile.Store // the operator's
	service, purge        *redisreconcile.Store
}

func newByRole(t *testing.T, clients map[string]redis.UniversalClient, opts redisreconcile.Options) *byRole {
	return &byRole{Store: newWith(t, clients["operator"], opts), service: newWith(t, clients["service"], opts), purge: newWith(t, clients["purge"], opts)}
}

func (b *byRole) Begin(ctx context.Context, p reconcile.Params, a []reconcile.Ask) ([]reconcile.Answer, error) {
	return b.service.Begin(ctx, p, a)
}

func (b *byRole) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	return b.service.Claim(ctx, p, a)
}

func (b *byRole) Settle(ctx context.Context, p reconcile.Params, s []reconcile.Settlement) ([]error, error) {
	if len(s) > 0 && (s[0].Verb == reconcile.VerbResolve || s[0].Verb == reconcile.VerbForget) {
		return b.Store.Settle(ctx, p, s)
	}
	return b.service.Settle(ctx, p, s)
}

func (b *byRole) Sweep(ctx context.Context, n int) (int, error) { return b.purge.Sweep(ctx, n) }

// The suites under the users of the package comment, each of which does what is its own.
func TestRoles(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, []string{testenv.Redis(t)}, "")
	open := func(t *testing.T) *byRole {
		return newByRole(t, clients, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 4})
	}
	t.Run("Ledger", func(t *testing.T) {
		reconciletest.Run(t, reconciletest.Config{New: func(t *testing.T) reconcile.Store { return open(t) }})
	})
	t.Run("Timeline", func(t *testing.T) {
		reconciletest.RunTimeline(t, reconciletest.TimelineConfig{New: func(t *testing.T) reconcile.TimelineStore { return open(t).service.Timeline() }})
	})
	t.Run("Checks", func(t *testing.T) {
		reconciletest.RunChecks(t, reconciletest.CheckConfig{New: func(t *testing.T) reconcile.CheckStore { return open(t).service.Checks() }})
	})
}

// On a cluster the users need three commands more.
func TestRolesOnCluster(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, testenv.RedisCluster(t), "", "+cluster|slots", "+cluster|shards", "+command")
	s := newByRole(t, clients, redisreconcile.Options{Prefix: testenv.Prefix(t)})
	for _, e := range start(t, s, names("k", 50)...) {
		settle(t, s, with(reconcile.VerbDoubt, e))
	}
	claimed := claim(t, s, 100)
	require.Len(t, claimed, 50)
	for _, e := range claimed {
		settleWith(t, s, brief, with(reconcile.VerbConfirm, e))
	}
	appendAll(t, s.service.Timeline(), reconcile.Appended, said("e", "m", "o"))
	report(t, s.service.Checks(), reconcile.Raised, reportOf(reconcile.ReportRaise, "a"))
	report(t, s.Checks(), reconcile.Applied, reportOf(reconcile.ReportResolve, "a"))
	require.Eventually(t, func() bool {
		_, err := s.Sweep(t.Context(), 100)
		require.NoError(t, err)
		return len(counts(t, s)) == 0
	}, time.Minute, time.Millisecond)
}

// Users reach their own keys only, and no other commands; the operator is told the
// settings.
func TestRolesCannot(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	clients := asUsers(t, []string{addr}, "pawl:reconcile:")
	all := newByRole(t, clients, redisreconcile.Options{})
	start(t, all, "a")
	for user, client := range clients {
		require.ErrorContains(t, client.HSet(t.Context(), "other", "f", "v").Err(), "NOPERM", user)
		require.ErrorContains(t, client.HGetAll(t.Context(), all.Tag(0)+":h").Err(), "NOPERM", user)
		require.ErrorContains(t, client.Del(t.Context(), all.Tag(0)+":h").Err(), "NOPERM", user)
	}
	_, err := all.purge.List(t.Context(), reconcile.Query{Kind: "send", N: 10})
	require.ErrorContains(t, err, "can't run this command")
	require.ErrorIs(t, all.Check(t.Context()), reconcile.ErrAtRisk)
	require.ErrorContains(t, all.service.Check(t.Context()), "NOPERM")
}
