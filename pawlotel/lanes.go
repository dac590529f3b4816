package pawlotel

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/order"
)

// Lanes registers what each account has enqueued, sent and failed, by cause. The
// name of the account is an attribute, so there are as many series as accounts, at
// most 10,000 and one for the rest.
func Lanes(m metric.Meter, l *order.Lanes, attrs ...attribute.KeyValue) (metric.Registration, error) {
	enqueued, err := m.Int64ObservableCounter("pawl.lanes.enqueued", metric.WithUnit("{message}"), metric.WithDescription("Messages that were enqueued."))
	if err != nil {
		return nil, err
	}
	sent, err := m.Int64ObservableCounter("pawl.lanes.sent", metric.WithUnit("{message}"), metric.WithDescription("Messages that were sent."))
	if err != nil {
		return nil, err
	}
	failed, err := m.Int64ObservableCounter("pawl.lanes.failed", metric.WithUnit("{attempt}"), metric.WithDescription("Messages and attempts that failed, by cause."))
	if err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for account, s := range l.Stats() {
			own := append([]attribute.KeyValue{attribute.String("account", account)}, attrs...)
			with := func(more ...attribute.KeyValue) metric.ObserveOption {
				return metric.WithAttributes(append(append([]attribute.KeyValue(nil), own...), more...)...)
			}
			o.ObserveInt64(enqueued, int64(s.Enqueued), with())
			o.ObserveInt64(sent, int64(s.Sent), with())
			for _, c := range causes(&s.Failed) {
				if c.n > 0 {
					o.ObserveInt64(failed, int64(c.n), with(attribute.String("cause", c.name), attribute.String("by", c.by)))
				}
			}
		}
		return nil
	}, enqueued, sent, failed)
}

type cause struct {
	name, by string
	n        uint64
}

func causes(f *order.Failures) []cause {
	return []cause{
		{"timeout", "gateway", f.Timeout}, {"refused", "gateway", f.Refused}, {"no_receipt", "gateway", f.NoReceipt}, {"other", "gateway", f.Other},
		{"no_account", "routing", f.NoAccount}, {"switched", "routing", f.Switched}, {"parked", "routing", f.Parked},
	}
}

// LanesWaiting registers how many messages wait in the lanes of the accounts that
// this process has seen, and the age of the first of each. Each collection reads the
// store once for each account, and for at most limit of them, in the order of their
// names.
func LanesWaiting(m metric.Meter, l *order.Lanes, limit int, attrs ...attribute.KeyValue) (metric.Registration, error) {
	waiting, err := m.Int64ObservableGauge("pawl.lanes.waiting", metric.WithUnit("{message}"), metric.WithDescription("Messages that wait in a lane."))
	if err != nil {
		return nil, err
	}
	oldest, err := m.Float64ObservableGauge("pawl.lanes.oldest", metric.WithUnit("s"), metric.WithDescription("Age of the message that a lane sends next."))
	if err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		accounts := slices.Sorted(maps.Keys(l.Stats()))
		accounts = slices.DeleteFunc(accounts, func(name string) bool { return name == "" })
		for _, account := range accounts[:min(len(accounts), max(limit, 0))] {
			a, err := l.Account(ctx, account)
			if err != nil {
				return err
			}
			n := uint64(0)
			for _, ledger := range a.Ledgers {
				n += ledger.Buffered + ledger.Parked
			}
			own := metric.WithAttributes(append([]attribute.KeyValue{attribute.String("account", account)}, attrs...)...)
			o.ObserveInt64(waiting, int64(n), own)
			o.ObserveFloat64(oldest, a.Oldest.Seconds(), own)
		}
		return nil
	}, waiting, oldest)
}
