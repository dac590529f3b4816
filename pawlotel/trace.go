package pawlotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"

	"github.com/pawl-go/pawl/dlq"
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

// DLQTrace carries the trace context in which a message failed to all that follows: its
// retries, and what a redrive makes of it, in this process or another. It is for
// Options.Trace of a queue, and keeps the traceparent of the W3C in the headers of the
// letter, which are sealed where the queue has keys.
//
// Put and Park take it from their context, which within a handler, or within the
// dead-letter function of a box with [InboxTrace], is that of the event. Where the context
// has none, a traceparent that the message has in its headers stays, whatever the case of
// its name. Tracestate and baggage do not travel, as with InboxTrace.
func DLQTrace() *dlq.Trace {
	var w3c propagation.TraceContext
	return &dlq.Trace{
		Inject: func(ctx context.Context, headers map[string]string) {
			carrier := propagation.MapCarrier{}
			if w3c.Inject(ctx, carrier); carrier[traceparent] == "" {
				return
			}
			for name := range headers {
				if strings.EqualFold(name, traceparent) {
					delete(headers, name) // there is one
				}
			}
			headers[traceparent] = carrier[traceparent]
		},
		Extract: func(ctx context.Context, headers map[string]string) context.Context {
			for name, value := range headers {
				if strings.EqualFold(name, traceparent) {
					return w3c.Extract(ctx, propagation.MapCarrier{traceparent: value})
				}
			}
			return ctx
		},
	}
}

const traceparent = "traceparent"
