package pawlotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/retry"
)

const (
	request = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	another = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func withTrace(ctx context.Context, trace string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": trace})
}

func traceOf(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// The trace of a request reaches the handler of its event, the letter that becomes of
// the event when it is dead, the letter's retries, what returns it to the flow, and what
// a redrive makes of it, in a process that has nothing but the store.
func TestTraceTravelsFromTheRequestToTheRedrive(t *testing.T) {
	store := dlq.NewMemory()
	newQueue := func() *dlq.Queue {
		q, err := dlq.New(store, &dlq.Options{Trace: pawlotel.DLQTrace(), Backoff: retry.Constant(time.Millisecond), MaxFailures: 1})
		require.NoError(t, err)
		return q
	}
	queue := newQueue()
	box, err := inbox.New(inbox.NewMemory(), &inbox.Options{Trace: pawlotel.InboxTrace()})
	require.NoError(t, err)
	_, err = box.Accept(withTrace(t.Context(), request), inbox.Event{ID: "hub/1", Provider: "hub", Key: "k"})
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	working, stop := context.WithCancel(ctx)
	var seen []string
	require.NoError(t, box.Work(working, func(ctx context.Context, _ inbox.Record) inbox.Outcome {
		seen = append(seen, "event "+traceOf(ctx))
		return inbox.Dead(errors.New("no such customer"))
	}, &inbox.WorkOptions{DeadLetter: func(ctx context.Context, r inbox.Record) error {
		defer stop()
		_, err := queue.Put(ctx, dlq.Dead{Message: dlq.Message{Stream: "crm", ID: r.ID, Key: r.Key}, Cause: errors.New(r.LastError)})
		return err
	}}))

	running, stop := context.WithCancel(ctx)
	require.NoError(t, newQueue().Run(running, func(ctx context.Context, l dlq.Letter) error {
		seen = append(seen, "retry "+traceOf(ctx))
		if l.Tries == 2 {
			stop()
		}
		return errors.New("no such customer")
	}, &dlq.RunOptions{Stream: "crm", Poll: time.Millisecond}))
	l, err := queue.Get(ctx, "crm", "hub/1")
	require.NoError(t, err)
	require.Equal(t, dlq.StateReview, l.State)

	other := newQueue()
	review, err := dlq.NewReview(other, func(context.Context, dlq.Action) (string, error) { return "ana", nil }, nil)
	require.NoError(t, err)
	_, _, err = review.Redrive(withTrace(ctx, another), dlq.Redrive{Stream: "crm", ID: "again", Reason: "mended"}) // whose trace is the operator's
	require.NoError(t, err)
	running, stop = context.WithCancel(ctx)
	require.NoError(t, other.Run(running, func(ctx context.Context, _ dlq.Letter) error {
		seen = append(seen, "redrive "+traceOf(ctx))
		return nil
	}, &dlq.RunOptions{Stream: "crm", Poll: time.Millisecond, Return: func(ctx context.Context, _ dlq.Letter) error {
		seen = append(seen, "return "+traceOf(ctx))
		stop()
		return nil
	}}))
	require.Equal(t, []string{"event " + request, "retry " + request, "retry " + request, "redrive " + request, "return " + request}, seen)
	l, err = queue.Get(ctx, "crm", "hub/1")
	require.NoError(t, err)
	require.Equal(t, dlq.StateResolved, l.State)
}

func TestDLQTraceKeepsOneTraceparent(t *testing.T) {
	trace := pawlotel.DLQTrace()
	headers := map[string]string{"Traceparent": request, "h": "v"}
	trace.Inject(t.Context(), headers)
	require.Equal(t, map[string]string{"Traceparent": request, "h": "v"}, headers, "the context has none")
	require.Equal(t, request, traceOf(trace.Extract(t.Context(), headers)))

	trace.Inject(withTrace(t.Context(), another), headers)
	require.Equal(t, map[string]string{"traceparent": another, "h": "v"}, headers)
	require.Equal(t, another, traceOf(trace.Extract(t.Context(), headers)))

	require.Equal(t, "", traceOf(trace.Extract(t.Context(), map[string]string{"traceparent": "no trace"})))
	require.Equal(t, t.Context(), trace.Extract(t.Context(), nil))
}
