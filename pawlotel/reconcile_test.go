package pawlotel_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/reconcile"
)

func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		hooks, err := pawlotel.LedgerHooks(m, &pawlotel.LedgerOptions{Account: true, Attrs: []attribute.KeyValue{attribute.String("kind", "sms")}})
		require.NoError(t, err)
		l, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{Hooks: hooks,
			Authorize: func(ctx context.Context, a reconcile.Action) (string, error) {
				if a.Name == "forget" {
					return "", errors.New("no")
				}
				return "ana", nil
			}})
		require.NoError(t, err)
		_, err = pawlotel.Ledger(m, l, attribute.String("kind", "sms"))
		require.NoError(t, err)
		_, err = pawlotel.LedgerCounts(m, l, 1)
		require.NoError(t, err)

		// Three calls without answer are an outage; then the remote answers again.
		answers := map[string]error{"k1": nil, "k2": reconcile.Refused(errors.New("no such number")), "k3": errors.New("timeout"), "k4": errors.New("timeout"), "k5": errors.New("timeout")}
		send := func(_ context.Context, op reconcile.Op) ([]byte, error) { return nil, answers[op.Key] }
		for i, account := range []string{"acct-1", "acct-1", "acct-1", "acct-2", "acct-3"} {
			err := l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint("k", i+1), Account: account}, send, nil)
			require.Equal(t, i == 0, err == nil, err)
		}
		time.Sleep(time.Minute)
		got := collect(t)
		wants(t, got, map[string]float64{
			"pawl.reconcile.outage{kind=sms}":                                                   60,
			"pawl.reconcile.unanswered_streak{kind=sms}":                                        3,
			"pawl.reconcile.unanswered{kind=sms}":                                               3,
			"pawl.reconcile.calls{kind=sms}":                                                    5,
			"pawl.reconcile.settlements{kind=sms,outcome=confirmed}":                            1,
			"pawl.reconcile.settlements{kind=sms,outcome=failed}":                               1,
			"pawl.reconcile.settlements{kind=sms,outcome=unknown}":                              3,
			"pawl.reconcile.operations{account=acct-1,state=confirmed}":                         1,
			"pawl.reconcile.operations{account=acct-1,state=failed}":                            1,
			"pawl.reconcile.operations{account=acct-1,state=unknown}":                           1,
			"pawl.reconcile.operations{rest=true,state=unknown}":                                2,
			"pawl.reconcile.success{account=acct-1}":                                            .5,
			"pawl.reconcile.oldest{rest=true}":                                                  60,
			"pawl.reconcile.settled{account=acct-1,by=call,fate=applied,kind=sms,verb=confirm}": 1,
			"pawl.reconcile.settled{account=acct-2,by=call,fate=applied,kind=sms,verb=doubt}":   1,
		})
		require.NotContains(t, got, "pawl.reconcile.success{rest=true}", "none of them has ended")
		require.NotContains(t, got, "pawl.reconcile.outages{kind=sms}", "it is not over")

		// The queue asks, and sends again what the remote has not; k5 is not to be told.
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		probes := map[string]reconcile.Evidence{"k3": {Seen: reconcile.SeenDone}, "k4": {Seen: reconcile.SeenNothing}, "k5": {Seen: reconcile.SeenUnclear}}
		go func() {
			ended <- l.Run(ctx, func(context.Context, reconcile.Op) ([]byte, error) { return nil, nil },
				func(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) { return probes[op.Key], nil }, nil)
		}()
		time.Sleep(24 * time.Hour)
		stop()
		require.NoError(t, <-ended)
		got = collect(t)
		wants(t, got, map[string]float64{
			"pawl.reconcile.outage{kind=sms}":                        0,
			"pawl.reconcile.outages{kind=sms}":                       1,
			"pawl.reconcile.resends{kind=sms}":                       1,
			"pawl.reconcile.resends_confirmed{kind=sms}":             1,
			"pawl.reconcile.settlements{kind=sms,outcome=confirmed}": 3,
			"pawl.reconcile.settlements{kind=sms,outcome=review}":    1,
			"pawl.reconcile.review{rest=true}":                       1,
			"pawl.reconcile.review{account=acct-1}":                  0,
			"pawl.reconcile.resent{rest=true}":                       1,
			"pawl.reconcile.resent_confirmed{rest=true}":             1,
			"pawl.reconcile.success{rest=true}":                      1,
		})
		require.Positive(t, got["pawl.reconcile.probes{kind=sms}"])
		require.Positive(t, got["pawl.reconcile.settlements{kind=sms,outcome=deferred}"])

		e, err := l.Lookup(t.Context(), "k5")
		require.NoError(t, err)
		require.NoError(t, l.Resolve(t.Context(), reconcile.Resolution{Key: "k5", Token: e.Token, State: reconcile.Failed, Evidence: "called them"}))
		require.Error(t, l.Receipt(t.Context(), "nobody's", reconcile.Receipt{State: reconcile.Confirmed}))
		require.Error(t, l.Receipt(t.Context(), "k2", reconcile.Receipt{State: reconcile.Confirmed}))
		err = l.Forget(t.Context(), "k1")
		require.ErrorIs(t, err, reconcile.ErrUnauthorized)
		got = collect(t)
		wants(t, got, map[string]float64{
			"pawl.reconcile.operator_actions{answer=applied,kind=sms}":                         1,
			"pawl.reconcile.operator_actions{answer=unauthorized,kind=sms}":                    1,
			"pawl.reconcile.strays{kind=sms}":                                                  1,
			"pawl.reconcile.contradictions{kind=sms}":                                          1,
			"pawl.reconcile.settled{account=,by=person,fate=applied,kind=sms,verb=resolve}":    1,
			"pawl.reconcile.settled{account=,by=receipt,fate=not_found,kind=sms,verb=receipt}": 1,
			"pawl.reconcile.settled{account=,by=receipt,fate=ended,kind=sms,verb=receipt}":     1,
		})
	})
}

// With a limit of zero no account is told, and more accounts than a page has are counted.
func TestLedgerCountsWithoutAccounts(t *testing.T) {
	m, collect := meter()
	l, err := reconcile.New(reconcile.NewMemory(), nil)
	require.NoError(t, err)
	_, err = pawlotel.LedgerCounts(m, l, 0)
	require.NoError(t, err)
	for i := range 2345 {
		account := fmt.Sprintf("acct-%04d", i)
		if i == 0 {
			account = "" // whose name is what a page begins with
		}
		require.NoError(t, l.Record(t.Context(), reconcile.Op{Key: fmt.Sprint(i), Account: account}))
	}
	got := collect(t)
	require.Equal(t, 2345.0, got["pawl.reconcile.operations{rest=true,state=failed}"])
	require.Equal(t, 2345.0, got["pawl.reconcile.waiting{rest=true}"])
	require.NotContains(t, got, "pawl.reconcile.success{rest=true}", "none of them has ended")
	for name := range got {
		require.NotContains(t, name, "acct", name)
	}
}

func TestTimeline(t *testing.T) {
	m, collect := meter()
	tl, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), &reconcile.TimelineOptions{Most: 2})
	require.NoError(t, err)
	_, err = pawlotel.Timeline(m, tl, attribute.String("provider", "ycloud"))
	require.NoError(t, err)
	said := func(event, status string) {
		_, err := tl.Append(t.Context(), reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: "wamid.1"}, Status: status})
		require.NoError(t, err)
	}
	said("e1", "sent")
	said("e1", "sent")
	said("e1", "failed")
	said("e2", "delivered")
	said("e3", "read")
	said("e4", "read")
	got := collect(t)
	sum := 0.0
	for _, answer := range []string{"appended", "repeated", "differs", "overflow"} {
		v := got["pawl.reconcile.observations{answer="+answer+",provider=ycloud}"]
		require.Positive(t, v, answer)
		sum += v
	}
	require.Equal(t, 6.0, sum)
}

func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		hooks, err := pawlotel.CheckHooks(m, attribute.String("app", "a"))
		require.NoError(t, err)
		var wrong, broken atomic.Bool
		wrong.Store(true)
		c, err := reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{
			Types: &reconcile.Types{},
			Own: []reconcile.Check{{
				Name: "lag",
				Find: func(_ context.Context, report func(...reconcile.Sighting) error) error {
					if broken.Load() {
						return errors.New("no answer")
					}
					if wrong.Load() {
						return report(reconcile.Sighting{Subject: "s"})
					}
					return nil
				},
				Holds: func(context.Context, reconcile.Finding) (reconcile.Verdict, error) {
					return reconcile.Verdict{Gone: !wrong.Load()}, nil
				},
			}},
			Hooks: hooks,
		})
		require.NoError(t, err)
		_, err = pawlotel.Checks(m, c, attribute.String("app", "a"))
		require.NoError(t, err)
		c.UnknownType("ycloud", "whatsapp.new", "v2")
		got := collect(t)
		require.Equal(t, 1.0, got["pawl.reconcile.checks.pending{app=a}"])
		require.NotContains(t, got, "pawl.reconcile.checks.read_age{app=a}", "nothing was read")

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(10*time.Minute + 5*time.Second)
		wants(t, collect(t), map[string]float64{
			"pawl.reconcile.checks.open{app=a,check=lag,state=open}":      1,
			"pawl.reconcile.checks.open{app=a,check=types,state=open}":    1,
			"pawl.reconcile.checks.open{app=a,check=lag,state=suspected}": 0,
			"pawl.reconcile.checks.oldest{app=a,check=lag}":               600,
			"pawl.reconcile.checks.read_age{app=a}":                       5,
			"pawl.reconcile.checks.findings{app=a,event=raised}":          2,
			"pawl.reconcile.checks.changes{app=a,check=lag,event=raised}": 1,
			"pawl.reconcile.checks.pending{app=a}":                        0,
			"pawl.reconcile.checks.failures{app=a}":                       0,
		})
		wrong.Store(false)
		time.Sleep(20 * time.Minute)
		got = collect(t)
		wants(t, got, map[string]float64{
			"pawl.reconcile.checks.findings{app=a,event=gone}":          1,
			"pawl.reconcile.checks.changes{app=a,check=lag,event=gone}": 1,
		})
		require.NotContains(t, got, "pawl.reconcile.checks.oldest{app=a,check=lag}", "nothing is left of it")
		wrong.Store(true)
		time.Sleep(2 * time.Minute)
		broken.Store(true)
		time.Sleep(2 * time.Minute)
		stop()
		require.NoError(t, <-ended)
		got = collect(t)
		require.Equal(t, 1.0, got["pawl.reconcile.checks.findings{app=a,event=reopened}"])
		require.Equal(t, 1.0, got["pawl.reconcile.checks.changes{app=a,check=lag,event=reopened}"])
		require.Equal(t, 2.0, got["pawl.reconcile.checks.failed{app=a,check=lag}"])
		require.Equal(t, 2.0, got["pawl.reconcile.checks.failures{app=a}"])
	})
}
