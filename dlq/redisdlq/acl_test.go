package redisdlq_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// aclLines reads the ACL lines of the package comment, by user.
func aclLines(t *testing.T) map[string][]any {
	t.Helper()
	text, err := os.ReadFile("redisdlq.go")
	require.NoError(t, err)
	rules := map[string][]any{}
	for _, m := range regexp.MustCompile(`(?m)^//\tACL SETUSER (\w+) (.*)$`).FindAllStringSubmatch(string(text), -1) {
		for rule := range strings.FieldsSeq(m[2]) {
			rules[m[1]] = append(rules[m[1]], rule)
		}
	}
	require.Len(t, rules, 4)
	return rules
}

// asUsers makes the users of the package comment, for keys that begin with this, and
// returns a client of each.
func asUsers(t *testing.T, addrs []string, prefix string, extra ...any) map[string]redis.UniversalClient {
	clients := map[string]redis.UniversalClient{}
	for user, rules := range aclLines(t) {
		for i := range rules {
			rules[i] = strings.Replace(rules[i].(string), "~{pawl:dlq:*", "~{"+prefix+"*", 1)
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
	*redisdlq.Store         // the reviewer's
	opts                    redisdlq.Options
	producer, worker, purge *redisdlq.Store
}

func newByRole(t *testing.T, clients map[string]redis.UniversalClient, opts redisdlq.Options) *byRole {
	return &byRole{opts: opts, Store: newWith(t, clients["reviewer"], opts), producer: newWith(t, clients["producer"], opts),
		worker: newWith(t, clients["worker"], opts), purge: newWith(t, clients["purge"], opts)}
}

func (b *byRole) Put(ctx context.Context, p dlq.Params, l []dlq.Put) ([]dlq.Answer, error) {
	return b.producer.Put(ctx, p, l)
}

func (b *byRole) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	return b.worker.Claim(ctx, a)
}

func (b *byRole) Settle(ctx context.Context, p dlq.Params, s []dlq.Settlement) ([]error, error) {
	return b.worker.Settle(ctx, p, s)
}

func (b *byRole) Alert(ctx context.Context, a []dlq.Alarm) ([]bool, error) {
	return b.worker.Alert(ctx, a)
}

func (b *byRole) Sweep(ctx context.Context, n int) (int, error) { return b.purge.Sweep(ctx, n) }

// The suite under the users of the package comment, each of which does what is its own.
func TestRoles(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, []string{testenv.Redis(t)}, "")
	dlqtest.Run(t, dlqtest.Config{
		New: func(t *testing.T) dlq.Store {
			return newByRole(t, clients, redisdlq.Options{Prefix: testenv.Prefix(t), Partitions: 4})
		},
		Reopen: func(t *testing.T, was dlq.Store) dlq.Store { return newByRole(t, clients, was.(*byRole).opts) },
	})
}

// The users of the package comment have no command on keys that no script uses.
func TestRolesHaveNothingNeedless(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	var scripts strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		scripts.Write(text)
	}
	for user, rules := range aclLines(t) {
		for _, rule := range rules {
			command := strings.ToUpper(strings.TrimPrefix(rule.(string), "+"))
			if regexp.MustCompile(`^[HZ][A-Z]+$`).MatchString(command) {
				require.Contains(t, scripts.String(), "'"+command+"'", user)
			}
		}
	}
}

// On a cluster the users need three commands more.
func TestRolesOnCluster(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, testenv.RedisCluster(t), "", "+cluster|slots", "+cluster|shards", "+command")
	s := newByRole(t, clients, redisdlq.Options{Prefix: testenv.Prefix(t)})
	put(t, s, many(30, 3)...)
	for name := range totals(t, s) {
		for _, k := range claim(t, s, ask(name, 10)) {
			settle(t, s, settlement(dlq.KindResolve, k))
		}
		for _, r := range list(t, s, dlq.Query{Stream: name, N: 10}) {
			require.Equal(t, dlq.StateResolved, r.State)
			change(t, s, changeOf(dlq.ChangeForget, r))
		}
	}
	require.Empty(t, totals(t, s))
	_, err := s.Sweep(t.Context(), 100)
	require.NoError(t, err)
}

// Users reach their own keys only, and no other commands; the reviewer is told the
// settings.
func TestRolesCannot(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	clients := asUsers(t, []string{addr}, "pawl:dlq:")
	all := newByRole(t, clients, redisdlq.Options{})
	put(t, all, letter("s", "a", "k"))
	for user, client := range clients {
		require.ErrorContains(t, client.HSet(t.Context(), "other", "f", "v").Err(), "NOPERM", user)
		require.ErrorContains(t, client.HGetAll(t.Context(), all.Tag(0)+":h").Err(), "NOPERM", user)
		require.ErrorContains(t, client.Del(t.Context(), all.Tag(0)+":h").Err(), "NOPERM", user)
	}
	_, err := all.purge.Put(t.Context(), params, []dlq.Put{letter("s", "b", "k")})
	require.ErrorContains(t, err, "can't run this command")
	require.ErrorIs(t, all.Check(t.Context()), dlq.ErrAtRisk)
}
