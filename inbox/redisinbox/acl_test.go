package redisinbox_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/inbox/redisinbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// aclLines reads the ACL lines of the package comment, by user.
func aclLines(t *testing.T) map[string][]any {
	t.Helper()
	text, err := os.ReadFile("redisinbox.go")
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
			rules[i] = strings.Replace(rules[i].(string), "~{pawl:inbox:*", "~{"+prefix+"*", 1)
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
	*redisinbox.Store // of nobody
	opts              redisinbox.Options
	ingest, worker    *redisinbox.Store
	operator, purge   *redisinbox.Store
}

func newByRole(t *testing.T, clients map[string]redis.UniversalClient, opts redisinbox.Options) *byRole {
	return &byRole{opts: opts, ingest: newWith(t, clients["ingest"], opts), worker: newWith(t, clients["worker"], opts),
		operator: newWith(t, clients["operator"], opts), purge: newWith(t, clients["purge"], opts)}
}

func (b *byRole) Accept(ctx context.Context, p inbox.Params, a []inbox.Arrival) ([]inbox.Answer, error) {
	return b.ingest.Accept(ctx, p, a)
}

func (b *byRole) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	return b.worker.Claim(ctx, a)
}

func (b *byRole) Settle(ctx context.Context, p inbox.Params, s []inbox.Settlement) ([]error, error) {
	return b.worker.Settle(ctx, p, s)
}

func (b *byRole) Change(ctx context.Context, p inbox.Params, c []inbox.Change) ([]error, error) {
	return b.operator.Change(ctx, p, c)
}

func (b *byRole) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	return b.operator.List(ctx, q)
}

func (b *byRole) Totals(ctx context.Context) (inbox.Totals, error) { return b.operator.Totals(ctx) }

func (b *byRole) Sweep(ctx context.Context, n int) (int, error) { return b.purge.Sweep(ctx, n) }

// The suite under the users of the package comment, each of which does what is its
// own.
func TestRoles(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, []string{testenv.Redis(t)}, "")
	inboxtest.Run(t, inboxtest.Config{
		New: func(t *testing.T) inbox.Store {
			return newByRole(t, clients, redisinbox.Options{Prefix: testenv.Prefix(t), Partitions: 4})
		},
		Reopen: func(t *testing.T, was inbox.Store) inbox.Store {
			return newByRole(t, clients, was.(*byRole).opts)
		},
	})
}

// On a cluster the users need three commands more.
func TestRolesOnCluster(t *testing.T) {
	t.Parallel()
	clients := asUsers(t, testenv.RedisCluster(t), "", "+cluster|slots", "+cluster|shards", "+command")
	s := newByRole(t, clients, redisinbox.Options{Prefix: testenv.Prefix(t)})
	var batch []inbox.Arrival
	for i := range 50 {
		batch = append(batch, arrival(fmt.Sprint("event", i), fmt.Sprint("key", i), "x"))
	}
	accept(t, s, batch...)
	require.Len(t, workAll(t, s, inbox.DefaultStream), 50)
	change(t, s, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: batch[0].ID})
	totals, err := s.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: 49}, totals)
	_, err = s.Sweep(t.Context(), 100)
	require.NoError(t, err)
}

// What a role must not do, it cannot: who stores cannot remove, and who works cannot
// erase.
func TestRolesCannot(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	clients := asUsers(t, []string{addr}, "pawl:inbox:")
	all := newByRole(t, clients, redisinbox.Options{})
	denied := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, "can't run this command")
	}
	accept(t, all, arrival("a", "k", "x"))
	_, err := all.ingest.Claim(t.Context(), ask(1))
	denied(err)
	_, err = all.ingest.List(t.Context(), inbox.Query{State: inbox.StatePending, N: 1})
	denied(err)
	require.Len(t, workAll(t, all, inbox.DefaultStream), 1)
	forget := []inbox.Change{{Kind: inbox.ChangeForget, ID: "p/a"}}
	for _, s := range []*redisinbox.Store{all.ingest, all.worker} {
		errs, err := s.Change(t.Context(), params, forget)
		if err == nil {
			err = errs[0]
		}
		denied(err)
	}
	admin := newWith(t, newClient(t, &redis.UniversalOptions{Addrs: []string{addr}}), redisinbox.Options{})
	rs, err := admin.List(t.Context(), inbox.Query{ID: "p/a", N: 1})
	require.NoError(t, err)
	require.Len(t, rs, 1)
	for user, client := range clients { // another's keys are nobody's
		require.ErrorContains(t, client.HSet(t.Context(), "other", "f", "v").Err(), "NOPERM", user)
		require.ErrorContains(t, client.HGetAll(t.Context(), all.ingest.Tag(0)+":h").Err(), "NOPERM", user)
	}
	require.ErrorIs(t, all.operator.Check(t.Context()), inbox.ErrAtRisk, "it is told the settings")
}
