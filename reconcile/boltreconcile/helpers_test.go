package boltreconcile_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

var bucketName = []byte("pawl/reconcile")

var (
	params   = reconcile.Params{Kind: "k", Lease: time.Minute, Retention: time.Hour}
	timeline = reconcile.TimelineParams{Kind: "k", Ahead: time.Minute, Behind: time.Hour, Most: 100, Retention: time.Hour}
	checks   = reconcile.CheckParams{Kind: "k", Most: 100, Lull: time.Minute, Retention: time.Hour, Keep: time.Hour}
)

func keyOf(i int) string { return fmt.Sprintf("operation-%05d", i) }

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func ask(key string) reconcile.Ask {
	return reconcile.Ask{Op: reconcile.Op{Key: key, Account: "acct", Payload: []byte("payload")}, Nonce: nonce()}
}

// begin begins operations that are new.
func begin(t testing.TB, s reconcile.Store, keys ...string) []reconcile.Entry {
	t.Helper()
	asks := make([]reconcile.Ask, len(keys))
	for i, key := range keys {
		asks[i] = ask(key)
	}
	answers, err := s.Begin(t.Context(), params, asks)
	require.NoError(t, err)
	entries := make([]reconcile.Entry, len(keys))
	for i, a := range answers {
		require.Equal(t, reconcile.Send, a.Grant, keys[i])
		entries[i] = a.Entry
	}
	return entries
}

func with(v reconcile.Verb, e reconcile.Entry) reconcile.Settlement {
	return reconcile.Settlement{Verb: v, Key: e.Key, Token: e.Token, By: "test", Note: "why", Lease: params.Lease, Result: []byte("result")}
}

func all(v reconcile.Verb, es []reconcile.Entry) (s []reconcile.Settlement) {
	for _, e := range es {
		s = append(s, with(v, e))
	}
	return s
}

func settle(t testing.TB, s reconcile.Store, settlements ...reconcile.Settlement) {
	t.Helper()
	require.NoError(t, joined(s.Settle(t.Context(), params, settlements)))
}

func claim(t testing.TB, s reconcile.Store, n int) []reconcile.Entry {
	t.Helper()
	es, _, err := s.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: n})
	require.NoError(t, err)
	return es
}

// get reads an operation that has to be there.
func get(t testing.TB, s reconcile.Store, key string) reconcile.Entry {
	t.Helper()
	es, err := s.List(t.Context(), reconcile.Query{Kind: params.Kind, Key: key, N: 1})
	require.NoError(t, err)
	require.Len(t, es, 1, key)
	return es[0]
}

func said(event, message, own string) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: "sent", Source: "test", Said: time.Now()}
}

func appended(t testing.TB, s reconcile.TimelineStore, os ...reconcile.Observation) {
	t.Helper()
	as, err := s.Append(t.Context(), timeline, os)
	require.NoError(t, err)
	for i, a := range as {
		require.Equal(t, reconcile.Appended, a, os[i].Event)
	}
}

func read(t testing.TB, s reconcile.TimelineStore, ref reconcile.Ref) reconcile.History {
	t.Helper()
	h, err := s.Read(t.Context(), timeline, ref)
	require.NoError(t, err)
	return h
}

func report(v reconcile.ReportVerb, subject string) reconcile.Report {
	return reconcile.Report{Verb: v, Check: "c", Subject: subject, Nonce: nonce(), N: 1, Detail: "wrong"}
}

func reported(t testing.TB, s reconcile.CheckStore, want reconcile.Outcome, rs ...reconcile.Report) {
	t.Helper()
	os, err := s.Report(t.Context(), checks, rs)
	require.NoError(t, err)
	for i, o := range os {
		require.Equal(t, want, o, rs[i].Subject)
	}
}

// joined is the errors of a batch as one.
func joined(errs []error, err error) error { return errors.Join(append(errs, err)...) }

// everything calls each method of all stores, with arguments that find what is there.
func everything(t testing.TB, f *file) map[string]error {
	ctx := t.Context()
	at := reconcile.Ref{Message: "49123"}
	_, begin := f.Begin(ctx, params, []reconcile.Ask{ask("49123"), ask("other")})
	_, _, claim := f.Claim(ctx, params, reconcile.ClaimAsk{Nonce: nonce(), N: 10})
	_, settle := f.Settle(ctx, params, []reconcile.Settlement{{Verb: reconcile.VerbReceipt, Key: "49123", Nonce: nonce(), State: reconcile.Confirmed}})
	_, list := f.List(ctx, reconcile.Query{Kind: "k", N: 10})
	_, counts := f.Counts(ctx, "k", "", true, 10)
	_, appending := f.Timeline().Append(ctx, timeline, []reconcile.Observation{said("49123", "49123", ""), said(fmt.Sprint(nonce()), "49123", "")})
	_, reading := f.Timeline().Read(ctx, timeline, at)
	_, forgetting := f.Timeline().Forget(ctx, timeline, reconcile.Ref{Own: "own"})
	_, reporting := f.Checks().Report(ctx, checks, []reconcile.Report{report(reconcile.ReportRaise, "49123"), report(reconcile.ReportRaise, fmt.Sprint(nonce()))})
	_, claiming := f.Checks().Claim(ctx, checks, "c", 10, 0)
	_, listing := f.Checks().List(ctx, reconcile.FindingQuery{Kind: "k", N: 10})
	_, opening := f.Checks().Open(ctx, "k")
	_, volumes := f.Checks().Volumes(ctx, checks, "", 10, []time.Time{time.Unix(time.Now().Unix(), 0)})
	_, sweep := f.Sweep(ctx, 1)
	return map[string]error{
		"begin": begin, "claim": claim, "settle": settle, "list": list, "counts": counts, "append": appending, "read": reading, "forget": forgetting,
		"report": reporting, "claim findings": claiming, "list findings": listing, "count findings": opening,
		"tally":   f.Checks().Tally(ctx, checks, []reconcile.Cell{{Series: "49123", Start: time.Now(), N: 1}}),
		"volumes": volumes, "sweep": sweep, "check": f.Check(ctx), "migrate": f.Migrate(ctx),
	}
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
			for k, v := range rows {
				require.NoError(t, b.Put([]byte(k), v))
			}
		}
		return nil
	}))
}
