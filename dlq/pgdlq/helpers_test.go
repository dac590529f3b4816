package pgdlq_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
)

const orders = "orders"

var params = dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 1_000_000}

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func failure(print string) dlq.Failure {
	return dlq.Failure{At: time.Now().Truncate(time.Microsecond), Fingerprint: print, Detail: []byte("detail of " + print)}
}

// letter is one that failed and is due at once.
func letter(id, key string) dlq.Put {
	body := []byte("body of " + id)
	return dlq.Put{Nonce: nonce(), Stream: orders, ID: id, Key: key, Body: body, Digest: sha256.Sum256(body), Failure: failure("aa")}
}

func newAsk(lease time.Duration) dlq.Ask {
	return dlq.Ask{Nonce: nonce(), Stream: orders, N: 100, Bytes: 1 << 20, Lease: lease}
}

func settlement(k dlq.Kind, c dlq.Claim) dlq.Settlement {
	s := dlq.Settlement{Kind: k, Stream: c.Record.Stream, Lane: c.Lane, Token: c.Token, Seq: c.Record.Seq}
	if k == dlq.KindRetry || k == dlq.KindReview {
		s.Failure = failure("bb")
	}
	return s
}

func change(k dlq.ChangeKind, r dlq.Record) dlq.Change {
	return dlq.Change{Kind: k, Nonce: nonce(), Stream: r.Stream, ID: r.ID, Seq: r.Seq, Actor: "ann", Reason: "why"}
}

// put stores letters, each of which must be new.
func put(t testing.TB, s dlq.Store, letters ...dlq.Put) {
	t.Helper()
	answers, err := s.Put(context.Background(), params, letters)
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, dlq.Added, a, letters[i].ID)
	}
}

// claim takes all there is.
func claim(t testing.TB, s dlq.Store, lease time.Duration) []dlq.Claim {
	t.Helper()
	c, err := s.Claim(context.Background(), newAsk(lease))
	require.NoError(t, err)
	return c.Claims
}

// settle sends settlements that must all be applied.
func settle(t testing.TB, s dlq.Store, settlements ...dlq.Settlement) {
	t.Helper()
	errs, err := s.Settle(context.Background(), params, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func totals(t testing.TB, s dlq.Store) dlq.Totals {
	t.Helper()
	all, err := s.Totals(context.Background(), "", 10)
	require.NoError(t, err)
	if len(all) == 0 {
		return dlq.Totals{}
	}
	require.Len(t, all, 1)
	all[0].Oldest = 0
	return all[0]
}

func list(t testing.TB, s dlq.Store, q dlq.Query) (ids []string) {
	t.Helper()
	q.Stream, q.N = orders, 1000
	for {
		p, err := s.List(context.Background(), q)
		require.NoError(t, err)
		for _, r := range p.Records {
			ids = append(ids, r.ID)
		}
		if p.Next == 0 {
			return ids
		}
		q.After = p.Next
	}
}
