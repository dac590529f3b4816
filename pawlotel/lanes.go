package pawlotel

import (
	"context"

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
