package redisdlq_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
)

var params = dlq.Params{Retention: time.Hour, Audit: 2 * time.Hour, Capacity: 100_000}

func randomNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func failure(detail string) dlq.Failure {
	return dlq.Failure{At: time.UnixMicro(1_700_000_000_000_000), Fingerprint: "abc", Detail: []byte(detail)}
}

func letter(stream, id, key string) dlq.Put {
	body := []byte("body of " + id)
	return dlq.Put{
		Nonce: randomNonce(), Stream: stream, ID: id, Key: key, Body: body, Digest: sha256.Sum256(body), Failure: failure("made it"),
	}
}

func put(t *testing.T, s dlq.Store, letters ...dlq.Put) {
	t.Helper()
	for i, a := range putAll(t, s, letters...) {
		require.Equal(t, dlq.Added, a, "letter %d", i)
	}
}

func putAll(t *testing.T, s dlq.Store, letters ...dlq.Put) []dlq.Answer {
	t.Helper()
	answers, err := s.Put(t.Context(), params, letters)
	require.NoError(t, err)
	return answers
}

func ask(stream string, n int) dlq.Ask {
	return dlq.Ask{Nonce: randomNonce(), Stream: stream, N: n, Bytes: 64 << 20, Lease: time.Hour}
}

func claim(t *testing.T, s dlq.Store, a dlq.Ask) []dlq.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), a)
	require.NoError(t, err)
	return c.Claims
}

func settlement(k dlq.Kind, c dlq.Claim) dlq.Settlement {
	s := dlq.Settlement{Kind: k, Stream: c.Record.Stream, Lane: c.Lane, Token: c.Token, Seq: c.Record.Seq, Lease: time.Hour}
	if k == dlq.KindRetry || k == dlq.KindReview {
		s.Failure = failure("failed again")
	}
	return s
}

func settle(t *testing.T, s dlq.Store, settlements ...dlq.Settlement) {
	t.Helper()
	errs, err := s.Settle(t.Context(), params, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func changeOf(k dlq.ChangeKind, r dlq.Record) dlq.Change {
	c := dlq.Change{Kind: k, Nonce: randomNonce(), Stream: r.Stream, ID: r.ID, Seq: r.Seq, Actor: "ana", Reason: "because"}
	switch k {
	case dlq.ChangeEdit:
		c.Body = []byte("edited")
		c.After = sha256.Sum256(c.Body)
	case dlq.ChangeNote:
		c.Verb = "reveal"
	}
	return c
}

func change(t *testing.T, s dlq.Store, changes ...dlq.Change) {
	t.Helper()
	errs, err := s.Change(t.Context(), params, changes)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func list(t *testing.T, s dlq.Store, q dlq.Query) (all []dlq.Record) {
	t.Helper()
	for {
		p, err := s.List(t.Context(), q)
		require.NoError(t, err)
		all = append(all, p.Records...)
		if p.Next == 0 {
			return all
		}
		require.Greater(t, p.Next, q.After)
		q.After = p.Next
	}
}

// record is the newest letter of an ID.
func record(t *testing.T, s dlq.Store, stream, id string) dlq.Record {
	t.Helper()
	rs := list(t, s, dlq.Query{Stream: stream, ID: id, N: 100})
	require.NotEmpty(t, rs)
	return rs[len(rs)-1]
}

func totals(t *testing.T, s dlq.Store) map[string]dlq.Totals {
	t.Helper()
	all, err := s.Totals(t.Context(), "", 100)
	require.NoError(t, err)
	found := map[string]dlq.Totals{}
	for _, one := range all {
		one.Oldest = 0
		found[one.Stream] = one
	}
	return found
}

// many makes letters of this many streams, in several partitions.
func many(streams, each int) (letters []dlq.Put) {
	for n := range each {
		for i := range streams {
			letters = append(letters, letter(fmt.Sprint("stream", i), fmt.Sprint("letter", n), fmt.Sprint("key", n%3)))
		}
	}
	return letters
}
