package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/retry"
)

// A care is what a service does about that which goes wrong: events that fail become
// letters, replies without answer are looked for, what is unknown is found, and workers
// that stand still are noticed.
type care struct {
	box      *inbox.Box
	letters  *dlq.Queue
	replies  *reconcile.Ledger
	statuses *reconcile.Timeline
	checks   *reconcile.Checks
	reporter *watchdog.Reporter
	watchdog *watchdog.Watchdog
}

func newCare(m metric.Meter) (*care, error) {
	c := &care{}
	events, err1 := pawlotel.InboxHooks(m, nil)
	tries, err2 := pawlotel.DLQHooks(m)
	settled, err3 := pawlotel.LedgerHooks(m, nil)
	found, err4 := pawlotel.CheckHooks(m)
	rounds, err5 := pawlotel.WatchdogHooks(m)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	workers := watchdog.NewMemory()
	var errs [7]error
	c.box, errs[0] = inbox.New(inbox.NewMemory(), &inbox.Options{Hooks: events, Trace: pawlotel.InboxTrace()})
	c.letters, errs[1] = dlq.New(dlq.NewMemory(), &dlq.Options{Hooks: tries, Trace: pawlotel.DLQTrace(), MaxFailures: -1, Backoff: retry.Constant(time.Millisecond)})
	c.replies, errs[2] = reconcile.New(reconcile.NewMemory(), &reconcile.Options{Hooks: settled})
	c.statuses, errs[3] = reconcile.NewTimeline(reconcile.NewTimelineMemory(), nil)
	c.checks, errs[4] = reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: found, Types: &reconcile.Types{}})
	c.reporter, errs[5] = watchdog.NewReporter(workers, &watchdog.ReporterOptions{Name: "events-1"})
	c.watchdog, errs[6] = watchdog.New(workers, &watchdog.Options{Hooks: rounds})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, c.register(m)
}

func (c *care) register(m metric.Meter) (err error) {
	for _, register := range []func() (metric.Registration, error){
		func() (metric.Registration, error) { return pawlotel.Inbox(m, c.box) },
		func() (metric.Registration, error) { return pawlotel.InboxTotals(m, c.box) },
		func() (metric.Registration, error) { return pawlotel.DLQ(m, c.letters) },
		func() (metric.Registration, error) { return pawlotel.DLQTotals(m, c.letters, 100) },
		func() (metric.Registration, error) { return pawlotel.Ledger(m, c.replies) },
		func() (metric.Registration, error) { return pawlotel.LedgerCounts(m, c.replies, 100) },
		func() (metric.Registration, error) { return pawlotel.Timeline(m, c.statuses) },
		func() (metric.Registration, error) { return pawlotel.Checks(m, c.checks) },
		func() (metric.Registration, error) { return pawlotel.Watchdog(m, c.watchdog) },
		func() (metric.Registration, error) {
			return pawlotel.Reporter(m, c.reporter, attribute.String("loop", "events"))
		},
	} {
		if err == nil {
			_, err = register()
		}
	}
	return err
}

// work receives ten events, the third of which nobody can work, and replies to the
// others. It returns when all are done and the letter is in review.
func (c *care) work(ctx context.Context) error {
	const events = 10
	ctx, done := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() { done(); running.Wait() }()
	running.Go(func() { _ = c.reporter.Run(ctx) }) // each ends with ctx
	var pending sync.WaitGroup
	pending.Add(events + 1) // and the letter
	go func() { pending.Wait(); done() }()
	running.Go(func() {
		_ = c.letters.Run(ctx, c.retry(pending.Done), &dlq.RunOptions{Stream: "events", Poll: 10 * time.Millisecond})
	})
	for i := range events {
		if _, err := c.box.Accept(ctx, inbox.Event{ID: fmt.Sprint("hub/", i), Provider: "hub", Type: "message"}); err != nil {
			return err
		}
	}
	fine := func(o inbox.Outcome) bool { return o.Err() == nil }
	handle := func(ctx context.Context, r inbox.Record) inbox.Outcome {
		defer pending.Done()
		return c.handle(ctx, r)
	}
	if err := c.box.Work(ctx, watchdog.AroundValue(c.reporter, handle, fine), &inbox.WorkOptions{DeadLetter: c.bury}); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // the work is done
	if _, err := c.watchdog.Round(ctx); err != nil {
		return err
	}
	return c.checks.Once(ctx)
}

// handle works an event: it sends a reply, of which a status tells later.
func (c *care) handle(ctx context.Context, r inbox.Record) inbox.Outcome {
	if r.ID == "hub/2" {
		c.checks.UnknownType(r.Provider, "sticker", "v1")
		return inbox.Dead(errors.New("nobody works stickers"))
	}
	op := reconcile.Op{Key: "reply to " + r.ID, Account: "acct-1", Payload: []byte("thanks")}
	err := c.replies.Do(ctx, op, func(context.Context, reconcile.Op) ([]byte, error) {
		if r.ID == "hub/5" {
			return nil, errors.New("timeout")
		}
		return nil, nil
	}, nil)
	if err != nil && !errors.Is(err, reconcile.ErrUnknown) { // which is recorded, and Run of the ledger finds out
		return inbox.Failed(err)
	}
	_, err = c.statuses.Append(ctx, reconcile.Observation{Ref: reconcile.Ref{Own: op.Key}, Status: "sent"})
	return inbox.OutcomeOf(err)
}

func (c *care) bury(ctx context.Context, r inbox.Record) error {
	m := dlq.Message{Stream: "events", ID: r.ID, Key: r.Key, Payload: r.Payload}
	_, err := c.letters.Put(ctx, dlq.Dead{Message: m, Cause: errors.New(r.LastError)})
	return err
}

// retry tries a letter in vain, once.
func (c *care) retry(done func()) dlq.HandlerFunc {
	return func(context.Context, dlq.Letter) error {
		defer done()
		return errors.New("still nobody works stickers")
	}
}
