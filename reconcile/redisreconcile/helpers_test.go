package redisreconcile_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

var (
	params     = reconcile.Params{Kind: "send", Lease: time.Hour, Retention: time.Hour}
	brief      = reconcile.Params{Kind: "send", Lease: time.Hour, Retention: time.Millisecond}
	seen       = reconcile.TimelineParams{Kind: "provider", Ahead: time.Minute, Behind: time.Hour, Most: 10_000, Retention: time.Hour}
	checking   = reconcile.CheckParams{Kind: "watch", Most: 10_000, Lull: time.Hour, Retention: 2 * time.Hour, Keep: 24 * time.Hour}
	yesterday  = time.Now().Add(-20 * time.Hour).Truncate(time.Hour)
	longAgo    = time.Now().Add(-48 * time.Hour).Truncate(time.Hour)
	someWriter = [16]byte{1}
)

func randomNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func ask(key string) reconcile.Ask {
	return reconcile.Ask{Op: reconcile.Op{Key: key, Account: "acct", Payload: []byte("payload of " + key)}, Nonce: randomNonce()}
}

func begin(t testing.TB, s reconcile.Store, asks ...reconcile.Ask) []reconcile.Answer {
	t.Helper()
	answers, err := s.Begin(t.Context(), params, asks)
	require.NoError(t, err)
	require.Len(t, answers, len(asks))
	return answers
}

// start begins new operations.
func start(t testing.TB, s reconcile.Store, keys ...string) (entries []reconcile.Entry) {
	t.Helper()
	var asks []reconcile.Ask
	for _, key := range keys {
		asks = append(asks, ask(key))
	}
	for _, a := range begin(t, s, asks...) {
		require.NoError(t, a.Err)
		require.Equal(t, reconcile.Send, a.Grant)
		entries = append(entries, a.Entry)
	}
	return entries
}

func claim(t testing.TB, s reconcile.Store, n int) []reconcile.Entry {
	t.Helper()
	entries, _, err := s.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: randomNonce(), N: n})
	require.NoError(t, err)
	return entries
}

// with is a settlement by who was granted an operation.
func with(v reconcile.Verb, e reconcile.Entry) reconcile.Settlement {
	return reconcile.Settlement{Verb: v, Key: e.Key, Token: e.Token, Lease: time.Hour, Result: []byte("result"), By: "test", Note: "why"}
}

func receipt(key string, s reconcile.State) reconcile.Settlement {
	return reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: key, State: s, Nonce: randomNonce(), By: "receipt"}
}

func resolve(e reconcile.Entry, s reconcile.State, again bool) reconcile.Settlement {
	return reconcile.Settlement{Verb: reconcile.VerbResolve, Key: e.Key, Token: e.Token, State: s, Again: again, Nonce: randomNonce(), By: "ana", Note: "seen"}
}

func settle(t testing.TB, s reconcile.Store, settlements ...reconcile.Settlement) {
	t.Helper()
	settleWith(t, s, params, settlements...)
}

func settleWith(t testing.TB, s reconcile.Store, p reconcile.Params, settlements ...reconcile.Settlement) {
	t.Helper()
	errs, err := s.Settle(t.Context(), p, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

// list reads all pages.
func list(t testing.TB, s reconcile.Store, q reconcile.Query) (all []reconcile.Entry) {
	t.Helper()
	q.Kind, q.N = params.Kind, 700
	for {
		page, err := s.List(t.Context(), q)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		q.After = page[len(page)-1].Key
	}
}

func counts(t testing.TB, s reconcile.Store) map[string]reconcile.Counts {
	t.Helper()
	all, err := s.Counts(t.Context(), params.Kind, "", true, 5000)
	require.NoError(t, err)
	found := map[string]reconcile.Counts{}
	for _, c := range all {
		c.Oldest = 0
		found[c.Account] = c
	}
	return found
}

// consistent checks that counts and lists are what the operations are.
func consistent(t testing.TB, s reconcile.Store) {
	t.Helper()
	want := map[string]reconcile.Counts{}
	var open, review []string
	for _, e := range list(t, s, reconcile.Query{}) {
		c := want[e.Account]
		c.Account = e.Account
		*map[reconcile.State]*int{reconcile.Started: &c.Started, reconcile.Accepted: &c.Accepted, reconcile.Confirmed: &c.Confirmed,
			reconcile.Failed: &c.Failed, reconcile.Unknown: &c.Unknown}[e.State]++
		if e.Open() {
			open = append(open, e.Key)
		}
		if e.Review != "" {
			review = append(review, e.Key)
			c.Review++
		}
		if e.State == reconcile.Failed && !e.Due.IsZero() {
			c.Waiting++
		}
		if e.Attempts > 1 {
			c.Resent++
			if e.State == reconcile.Confirmed {
				c.ResentConfirmed++
			}
		}
		want[e.Account] = c
	}
	require.Equal(t, want, counts(t, s))
	before := oldest(t, s)
	all, err := s.Counts(t.Context(), params.Kind, "", true, 5000)
	require.NoError(t, err)
	after := oldest(t, s)
	for _, c := range all {
		require.True(t, before[c.Account] <= c.Oldest && c.Oldest <= after[c.Account], "%v, not %v to %v", c.Oldest, before[c.Account], after[c.Account])
	}
	require.Equal(t, open, keysOf(list(t, s, reconcile.Query{Open: true})))
	require.Equal(t, review, keysOf(list(t, s, reconcile.Query{Review: true})))
}

// oldest is the age of the oldest open operation of each account.
func oldest(t testing.TB, s reconcile.Store) map[string]time.Duration {
	t.Helper()
	ages := map[string]time.Duration{}
	for _, e := range list(t, s, reconcile.Query{Open: true}) {
		ages[e.Account] = max(ages[e.Account], e.Age())
	}
	return ages
}

func keysOf(entries []reconcile.Entry) (keys []string) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

func said(event, message, own string) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: "sent", Source: "webhook",
		Said: time.Now().Truncate(time.Second), Digest: [32]byte{1}}
}

func appendAll(t testing.TB, s reconcile.TimelineStore, want reconcile.Appending, os ...reconcile.Observation) {
	t.Helper()
	answers, err := s.Append(t.Context(), seen, os)
	require.NoError(t, err)
	require.Len(t, answers, len(os))
	for i, a := range answers {
		require.Equal(t, want, a, "observation %d", i)
	}
}

func read(t testing.TB, s reconcile.TimelineStore, ref reconcile.Ref) reconcile.History {
	t.Helper()
	h, err := s.Read(t.Context(), seen, ref)
	require.NoError(t, err)
	return h
}

func eventsOf(h reconcile.History) (events []string) {
	for _, o := range h.Observations {
		events = append(events, o.Event)
	}
	return events
}

func reportOf(v reconcile.ReportVerb, subject string) reconcile.Report {
	return reconcile.Report{Verb: v, Check: "stuck", Subject: subject, Nonce: randomNonce(), N: 1, Account: "acct", Detail: "for an hour", Note: "why"}
}

func report(t testing.TB, s reconcile.CheckStore, want reconcile.Outcome, reports ...reconcile.Report) {
	t.Helper()
	outcomes, err := s.Report(t.Context(), checking, reports)
	require.NoError(t, err)
	require.Len(t, outcomes, len(reports))
	for i, o := range outcomes {
		require.Equal(t, want, o, "report %d", i)
	}
}

func findings(t testing.TB, s reconcile.CheckStore, q reconcile.FindingQuery) []reconcile.Finding {
	t.Helper()
	q.Kind, q.N = checking.Kind, 5000
	found, err := s.List(t.Context(), q)
	require.NoError(t, err)
	return found
}

func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s%05d", prefix, i))
	}
	return list
}

// sweepAll sweeps until the store has nothing more to remove.
func sweepAll(t testing.TB, s *redisreconcile.Store) (removed int) {
	t.Helper()
	for {
		n, err := s.Sweep(t.Context(), 10_000)
		require.NoError(t, err)
		if n == 0 {
			return removed
		}
		removed += n
	}
}
