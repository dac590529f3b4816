package pawlotel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/pawl-go/pawl/inbox"
)

// InboxTrace carries the trace context of a delivery to its handler, as the
// traceparent of the W3C (https://www.w3.org/TR/trace-context/): for Options.Trace of a
// box. The span that the handler begins is then a child of the one in which the delivery was
// accepted, or may link to it, since a queue lies in between. Tracestate and
// baggage do not travel: they may hold anything, and would be stored.
//
// The endpoint needs a server span to begin with: put its middleware around
// [inbox.Handler].
func InboxTrace() *inbox.Trace {
	var w3c propagation.TraceContext
	return &inbox.Trace{
		Inject: func(ctx context.Context) string {
			carrier := propagation.MapCarrier{}
			w3c.Inject(ctx, carrier)
			return carrier[traceparent]
		},
		Extract: func(ctx context.Context, trace string) context.Context {
			return w3c.Extract(ctx, propagation.MapCarrier{traceparent: trace})
		},
	}
}

const traceparent = "traceparent"
