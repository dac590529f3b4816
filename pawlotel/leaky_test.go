package pawlotel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/retry"
)

// A leaky is a service whose keys, IDs, payloads, headers, errors and panics are full of
// what must not be told.
type leaky struct {
	log      *overhearing
	guard    *dedup.Guard
	buffer   *order.Buffer
	box      *inbox.Box
	letters  *dlq.Queue
	review   *dlq.Review
	ledger   *reconcile.Ledger
	timeline *reconcile.Timeline
	checks   *reconcile.Checks
	reporter *watchdog.Reporter
	watchdog *watchdog.Watchdog

	hooks struct {
		dedup    *dedup.Hooks
		order    *order.Hooks
		inbox    *inbox.Hooks
		letters  *dlq.Hooks
		ledger   *reconcile.Hooks
		checks   *reconcile.CheckHooks
		watchdog *watchdog.Hooks
	}
}

const (
	leakyID  = "wamid." + number
	leakyKey = "waba-1/+" + number
)

func newLeaky(t *testing.T, m metric.Meter) *leaky {
	s := &leaky{log: &overhearing{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	must := func(err error) { require.NoError(t, err) }
	var err error
	s.hooks.dedup, err = pawlotel.DedupHooks(m)
	must(err)
	s.hooks.order, err = pawlotel.OrderHooks(m)
	must(err)
	s.hooks.inbox, err = pawlotel.InboxHooks(m, nil)
	must(err)
	s.hooks.letters, err = pawlotel.DLQHooks(m)
	must(err)
	s.hooks.ledger, err = pawlotel.LedgerHooks(m, &pawlotel.LedgerOptions{Account: true})
	must(err)
	s.hooks.checks, err = pawlotel.CheckHooks(m)
	must(err)
	s.hooks.watchdog, err = pawlotel.WatchdogHooks(m)
	must(err)

	s.guard, err = dedup.New(dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold, Logger: log, Hooks: s.hooks.dedup})
	must(err)
	s.buffer, err = order.New(order.NewMemory(), &order.Options{Logger: log, Hooks: s.hooks.order})
	must(err)
	s.box, err = inbox.New(inbox.NewMemory(), &inbox.Options{Logger: log, Hooks: s.hooks.inbox, Trace: pawlotel.InboxTrace()})
	must(err)
	s.letters, err = dlq.New(dlq.NewMemory(), &dlq.Options{MaxFailures: 1, Backoff: retry.Constant(time.Minute), Trace: pawlotel.DLQTrace(), Logger: log, Hooks: s.hooks.letters,
		Pin: func(context.Context, string, string) error { return errLeaky }})
	must(err)
	s.review, err = dlq.NewReview(s.letters, func(_ context.Context, a dlq.Action) (string, error) {
		if a.Verb == dlq.VerbForget {
			return "", errLeaky
		}
		return "ana", nil
	}, nil)
	must(err)
	s.ledger, err = reconcile.New(reconcile.NewMemory(), &reconcile.Options{MaxLooks: 1, Logger: log, Hooks: s.hooks.ledger,
		Authorize: func(context.Context, reconcile.Action) (string, error) { return "", errLeaky }})
	must(err)
	s.timeline, err = reconcile.NewTimeline(reconcile.NewTimelineMemory(), nil)
	must(err)
	s.checks, err = reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{Logger: log, Hooks: s.hooks.checks,
		Types: &reconcile.Types{}, Stray: &reconcile.Stray{Known: func(context.Context, reconcile.Ref) (bool, error) { return false, errLeaky }},
		Own: []reconcile.Check{{Name: "panics", Find: func(context.Context, func(...reconcile.Sighting) error) error { panic(errLeaky) }}}})
	must(err)
	store := watchdog.NewMemory()
	s.reporter, err = watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: leakyKey, Logger: log})
	must(err)
	s.watchdog, err = watchdog.New(store, &watchdog.Options{Logger: log, Hooks: s.hooks.watchdog,
		Restart: func(context.Context, watchdog.Incident) error { return errors.New("no such pod") }})
	must(err)
	for _, register := range []func() (metric.Registration, error){
		func() (metric.Registration, error) { return pawlotel.Dedup(m, s.guard) },
		func() (metric.Registration, error) { return pawlotel.Held(m, s.guard, 10) },
		func() (metric.Registration, error) { return pawlotel.Order(m, s.buffer) },
		func() (metric.Registration, error) { return pawlotel.Totals(m, s.buffer) },
		func() (metric.Registration, error) { return pawlotel.Inbox(m, s.box) },
		func() (metric.Registration, error) { return pawlotel.InboxTotals(m, s.box) },
		func() (metric.Registration, error) { return pawlotel.DLQ(m, s.letters) },
		func() (metric.Registration, error) { return pawlotel.DLQTotals(m, s.letters, 10) },
		func() (metric.Registration, error) { return pawlotel.Ledger(m, s.ledger) },
		func() (metric.Registration, error) { return pawlotel.LedgerCounts(m, s.ledger, 10) },
		func() (metric.Registration, error) { return pawlotel.Timeline(m, s.timeline) },
		func() (metric.Registration, error) { return pawlotel.Checks(m, s.checks) },
		func() (metric.Registration, error) { return pawlotel.Watchdog(m, s.watchdog) },
		func() (metric.Registration, error) { return pawlotel.Reporter(m, s.reporter) },
	} {
		_, err := register()
		must(err)
	}
	return s
}

// run begins all that works, through spawn, and gives it something to do.
func (s *leaky) run(ctx context.Context, t *testing.T, spawn func(func())) {
	var fails, sends atomic.Int64
	spawn(func() {
		_ = s.buffer.Run(ctx, func(context.Context, order.Message) error {
			if fails.Add(1) == 1 {
				panic(errLeaky)
			}
			return errLeaky
		}, &order.RunOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Second)})
	})
	spawn(func() {
		_ = s.box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
			if r.Attempts == 1 {
				panic(errLeaky)
			}
			return inbox.Failed(errLeaky)
		}, &inbox.WorkOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Second), DeadLetter: func(ctx context.Context, r inbox.Record) error {
			_, err := s.letters.Put(ctx, dlq.Dead{Message: dlq.Message{Stream: "crm", ID: r.ID, Key: r.Key, Payload: r.Payload, Headers: map[string]string{"authorization": secret}}, Cause: errLeaky})
			return errors.Join(err, errLeakyOnce(r))
		}})
	})
	spawn(func() {
		_ = s.letters.Run(ctx, func(_ context.Context, l dlq.Letter) error {
			if l.Tries == 1 {
				panic(errLeaky)
			}
			return errLeaky
		}, &dlq.RunOptions{Stream: "crm"})
	})
	spawn(func() {
		_ = s.ledger.Run(ctx, func(context.Context, reconcile.Op) ([]byte, error) { return nil, errLeaky },
			func(context.Context, reconcile.Op) (reconcile.Evidence, error) {
				switch n := sends.Add(1); {
				case n == 1:
					panic(errLeaky)
				case n < 6:
					return reconcile.Evidence{}, errLeaky
				}
				return reconcile.Evidence{}, nil
			}, nil)
	})
	spawn(func() { _ = s.checks.Run(ctx) })
	spawn(func() { _ = s.reporter.Run(ctx) })
	spawn(func() { _ = s.watchdog.Run(ctx) })

	_ = s.guard.Do(ctx, dedup.Request{ID: leakyID}, func(context.Context) error { return errLeaky })
	_, err := s.buffer.Push(ctx, order.Message{Key: leakyKey, ID: leakyID, Payload: []byte(payload), Position: order.Position{Number: 1}})
	require.NoError(t, err)
	_, err = s.box.Accept(ctx, inbox.Event{ID: "hub/" + leakyID, Provider: "hub", Type: "text", Account: "waba-1", Key: leakyKey, Payload: []byte(payload)})
	require.NoError(t, err)
	for i := range 3 {
		_ = s.ledger.Do(ctx, reconcile.Op{Key: fmt.Sprint(leakyID, i), Account: "acct-1", Payload: []byte(payload)},
			func(context.Context, reconcile.Op) ([]byte, error) { return []byte(secret), errLeaky }, nil)
	}
	_, err = s.timeline.Append(ctx, reconcile.Observation{Ref: reconcile.Ref{Event: "evt", Message: leakyID}, Status: "delivered"})
	require.NoError(t, err)
	s.checks.UnknownType("hub", "text."+number, "v2")
	require.NoError(t, s.checks.Stray(ctx, reconcile.Ref{Message: leakyID}, "acct-1"))
	s.reporter.Pending(1)
	s.reporter.Say(watchdog.Flowing, payload)
}

// errLeakyOnce fails the first dead letter of an event.
func errLeakyOnce(r inbox.Record) error {
	if r.Attempts == 3 {
		return errLeaky
	}
	return nil
}

// persons is what people try to do, and may not.
func (s *leaky) persons(t *testing.T) {
	l, err := s.letters.Get(t.Context(), "crm", "hub/"+leakyID)
	require.NoError(t, err)
	require.Equal(t, dlq.StateReview, l.State)
	require.Error(t, s.review.Forget(t.Context(), l.Ref(), "tidy"))
	require.NoError(t, s.review.Approve(t.Context(), l.Ref(), "mended"))
	require.Error(t, s.ledger.Forget(t.Context(), leakyID+"0"))
	require.Error(t, s.ledger.Receipt(t.Context(), "other-"+leakyID, reconcile.Receipt{State: reconcile.Confirmed}))
}
