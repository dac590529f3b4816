package boltdlq_test

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

var bucketName = []byte("pawl/dlq")

var params = dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 1_000_000}

func idOf(i int) string { return fmt.Sprintf("letter-%05d", i) }

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func failure() dlq.Failure {
	return dlq.Failure{At: time.UnixMicro(1_800_000_000_000_000), Fingerprint: "aa", Detail: []byte("it failed")}
}

// letter makes a letter of stream s that failed once and is due at once.
func letter(key, id string) dlq.Put {
	body := []byte("body of " + id)
	return dlq.Put{Nonce: nonce(), Stream: "s", ID: id, Key: key, Body: body, Digest: sha256.Sum256(body), Failure: failure()}
}

// put stores letters that are new, in batches as large as a queue's.
func put(t testing.TB, s dlq.Store, letters ...dlq.Put) {
	t.Helper()
	for batch := range slices.Chunk(letters, 100) {
		answers, err := s.Put(t.Context(), params, batch)
		require.NoError(t, err)
		for i, a := range answers {
			require.Equal(t, dlq.Added, a, batch[i].ID)
		}
	}
}

func ask(n int) dlq.Ask {
	return dlq.Ask{Nonce: nonce(), Stream: "s", N: n, Bytes: 1 << 30, Lease: time.Hour}
}

// claim claims exactly one letter.
func claim(t testing.TB, s dlq.Store, id string) dlq.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), ask(1))
	require.NoError(t, err)
	require.Len(t, c.Claims, 1)
	require.Equal(t, id, c.Claims[0].Record.ID)
	return c.Claims[0]
}

func settlement(k dlq.Kind, c dlq.Claim) dlq.Settlement {
	s := dlq.Settlement{Kind: k, Stream: c.Record.Stream, Lane: c.Lane, Token: c.Token, Seq: c.Record.Seq}
	if k == dlq.KindRetry || k == dlq.KindReview {
		s.Failure = failure()
	}
	return s
}

func resolveAll(claims []dlq.Claim) (s []dlq.Settlement) {
	for _, c := range claims {
		s = append(s, settlement(dlq.KindResolve, c))
	}
	return s
}

// joined is the errors of a batch as one.
func joined(errs []error, err error) error { return errors.Join(append(errs, err)...) }

// newest is the newest letter of an ID.
func newest(t testing.TB, s dlq.Store, id string) dlq.Record {
	t.Helper()
	p, err := s.List(t.Context(), dlq.Query{Stream: "s", ID: id, N: 100})
	require.NoError(t, err)
	require.NotEmpty(t, p.Records, id)
	return p.Records[len(p.Records)-1]
}

func edit(t testing.TB, s dlq.Store, id string) {
	t.Helper()
	r := newest(t, s, id)
	require.NoError(t, joined(s.Change(t.Context(), params, []dlq.Change{{
		Kind: dlq.ChangeEdit, Nonce: nonce(), Stream: r.Stream, ID: id, Seq: r.Seq, Body: []byte("edited"), After: [32]byte{1}, Actor: "ana",
	}})))
}

// lastTx is the number of the last commit.
func lastTx(t testing.TB, f *file) (id int) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// contents is all rows of the file by bucket.
func contents(t testing.TB, f *file) map[string]map[string][]byte {
	t.Helper()
	all := map[string]map[string][]byte{}
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		top := tx.Bucket(bucketName)
		return top.ForEachBucket(func(name []byte) error {
			rows := map[string][]byte{}
			all[string(name)] = rows
			return top.Bucket(name).ForEach(func(k, v []byte) error {
				rows[string(k)] = append([]byte{}, v...)
				return nil
			})
		})
	}))
	return all
}

// restore makes the file hold what it held.
func restore(t testing.TB, f *file, all map[string]map[string][]byte) {
	t.Helper()
	require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
		top := tx.Bucket(bucketName)
		for name, rows := range all {
			require.NoError(t, top.DeleteBucket([]byte(name)))
			b, err := top.CreateBucket([]byte(name))
			require.NoError(t, err)
			require.NoError(t, b.SetSequence(1000))
			for k, v := range rows {
				require.NoError(t, b.Put([]byte(k), v))
			}
		}
		return nil
	}))
}
