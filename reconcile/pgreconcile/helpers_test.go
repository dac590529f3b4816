package pgreconcile_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile"
)

var (
	params = reconcile.Params{Kind: "sends", Lease: time.Hour, Retention: time.Hour}
	lines  = reconcile.TimelineParams{Kind: "sends", Ahead: time.Minute, Behind: time.Hour, Most: 8, Retention: time.Hour}
	finds  = reconcile.CheckParams{Kind: "sends", Most: 100, Lull: time.Minute, Retention: time.Hour, Keep: 24 * time.Hour}
)

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func ask(key, account string) reconcile.Ask {
	return reconcile.Ask{Op: reconcile.Op{Key: key, Account: account, Payload: []byte("body of " + key)}, Nonce: nonce()}
}

// begin sends asks that must all be granted to send.
func begin(t testing.TB, s reconcile.Store, asks ...reconcile.Ask) []reconcile.Entry {
	t.Helper()
	answers, err := s.Begin(context.Background(), params, asks)
	require.NoError(t, err)
	entries := make([]reconcile.Entry, len(answers))
	for i, a := range answers {
		require.NoError(t, a.Err)
		require.Equal(t, reconcile.Send, a.Grant, asks[i].Key)
		require.Equal(t, asks[i].Key, a.Entry.Key)
		entries[i] = a.Entry
	}
	return entries
}

func start(t testing.TB, s reconcile.Store, key string) reconcile.Entry {
	t.Helper()
	return begin(t, s, ask(key, "acct"))[0]
}

func with(v reconcile.Verb, e reconcile.Entry) reconcile.Settlement {
	return reconcile.Settlement{Verb: v, Key: e.Key, Token: e.Token, By: "test", Note: "why", Lease: time.Hour}
}

// settle sends settlements that must all be applied.
func settle(t testing.TB, s reconcile.Store, all ...reconcile.Settlement) {
	t.Helper()
	errs, err := s.Settle(context.Background(), params, all)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func list(t testing.TB, s reconcile.Store, q reconcile.Query) []reconcile.Entry {
	t.Helper()
	q.Kind = params.Kind
	if q.N == 0 {
		q.N = 1000
	}
	entries, err := s.List(context.Background(), q)
	require.NoError(t, err)
	return entries
}

func keys(entries []reconcile.Entry) (ks []string) {
	for _, e := range entries {
		ks = append(ks, e.Key)
	}
	return ks
}

// counts are those of the one account that there is, without its age.
func counts(t testing.TB, s reconcile.Store) reconcile.Counts {
	t.Helper()
	all, err := s.Counts(context.Background(), params.Kind, "", true, 10)
	require.NoError(t, err)
	if len(all) == 0 {
		return reconcile.Counts{}
	}
	require.Len(t, all, 1)
	all[0].Oldest = 0
	return all[0]
}

func said(event, message, own string) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: "sent", Said: time.Now(), Digest: [32]byte{1}}
}

func events(t testing.TB, s reconcile.TimelineStore, ref reconcile.Ref) (es []string) {
	t.Helper()
	h, err := s.Read(context.Background(), lines, ref)
	require.NoError(t, err)
	for _, o := range h.Observations {
		es = append(es, o.Event)
	}
	return es
}

func raise(subject string) reconcile.Report {
	return reconcile.Report{Verb: reconcile.ReportRaise, Check: "silent", Subject: subject, Nonce: nonce(), N: 1, Detail: "wrong"}
}
