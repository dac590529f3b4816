package pawlotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/retry"
)

// hub is a source whose bodies are events, one on each line: id type.
type hub struct{}

func (hub) Provider() string       { return "hub" }
func (hub) Horizon() time.Duration { return time.Hour }

func (hub) Verify(d *inbox.Delivery) ([]byte, error) {
	if d.Header.Get("X-Signature") == "" {
		return nil, &inbox.RejectError{Reason: inbox.NoSignature}
	}
	return d.Body, nil
}

func (hub) Decode(body []byte) (events []inbox.Event, err error) {
	for line := range strings.Lines(string(body)) {
		id, typ, _ := strings.Cut(strings.TrimSpace(line), " ")
		events = append(events, inbox.Event{
			ID: "hub/" + id, Provider: "hub", Type: typ, Unknown: typ == "unheard", Key: "k",
			Account: "waba", Phone: "15550001", Payload: []byte(strings.TrimSpace(line)),
		})
	}
	return events, nil
}

func deliver(h http.Handler, body, signature string) int {
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Signature", signature)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestInbox(t *testing.T) {
	m, collect := meter()
	hooks, err := pawlotel.InboxHooks(m, &pawlotel.InboxOptions{Account: true, Phone: func(e inbox.Event) string { return e.Phone }, Version: "v7", Attrs: []attribute.KeyValue{attribute.String("app", "a")}})
	require.NoError(t, err)
	b, err := inbox.New(inbox.NewMemory(), &inbox.Options{Hooks: hooks})
	require.NoError(t, err)
	_, err = pawlotel.Inbox(m, b, attribute.String("app", "a"))
	require.NoError(t, err)
	_, err = pawlotel.InboxTotals(m, b)
	require.NoError(t, err)
	refuse := error(nil)
	h, err := inbox.Handler(b, hub{}, &inbox.HandlerOptions{Refuse: func(context.Context) error { return refuse }})
	require.NoError(t, err)

	require.Equal(t, 200, deliver(h, "1 text\n2 unheard\n3 text\n4 text\n5 text\n6 text\n1 text", "signed"))
	require.Equal(t, 401, deliver(h, "1 text", ""))
	refuse = errors.New("the disk is full")
	require.Equal(t, 503, deliver(h, "7 text", "signed"))
	got := collect(t)
	require.Equal(t, 6.0, got["pawl.inbox.records{state=pending}"])
	require.Contains(t, got, "pawl.inbox.oldest{}")

	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, b.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		switch r.ID {
		case "hub/1":
			return inbox.Failed(errors.New("always"))
		case "hub/3":
			return inbox.Dead(nil)
		case "hub/4":
			return inbox.Unknown(nil)
		case "hub/5":
			return inbox.Quarantine(nil)
		case "hub/6":
			cancel()
		}
		return inbox.Done()
	}, &inbox.WorkOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Millisecond)}))

	got = collect(t)
	for name, want := range map[string]float64{
		"pawl.inbox.received{answer=accepted,app=a}":       6,
		"pawl.inbox.received{answer=duplicate,app=a}":      1,
		"pawl.inbox.received{answer=conflict,app=a}":       0,
		"pawl.inbox.deliveries{answer=acknowledged,app=a}": 1,
		"pawl.inbox.deliveries{answer=rejected,app=a}":     1,
		"pawl.inbox.deliveries{answer=refused,app=a}":      1,
		"pawl.inbox.worked{app=a,outcome=done}":            2,
		"pawl.inbox.worked{app=a,outcome=retry}":           1,
		"pawl.inbox.worked{app=a,outcome=dead}":            2,
		"pawl.inbox.worked{app=a,outcome=unknown}":         1,
		"pawl.inbox.worked{app=a,outcome=quarantined}":     1,
		"pawl.inbox.records{state=pending}":                0,
		"pawl.inbox.records{state=dead}":                   2,
		"pawl.inbox.records{state=unknown}":                1,
		"pawl.inbox.events{account=waba,answer=duplicate,app=a,phone=15550001,provider=hub,type=text,version=v7}":               1,
		"pawl.inbox.events{account=waba,answer=accepted,app=a,phone=15550001,provider=hub,type=unknown,version=v7}":             1,
		"pawl.inbox.ack_latency{app=a,provider=hub,status=200,version=v7}":                                                      1,
		"pawl.inbox.ack_latency{app=a,provider=hub,status=401,version=v7}":                                                      1,
		"pawl.inbox.rejections{app=a,provider=hub,reason=no signature,version=v7}":                                              1,
		"pawl.inbox.refusals{app=a,provider=hub,version=v7}":                                                                    1,
		"pawl.inbox.outcomes{account=waba,app=a,outcome=dead,phone=15550001,provider=hub,stream=default,type=text,version=v7}":  2,
		"pawl.inbox.outcomes{account=waba,app=a,outcome=retry,phone=15550001,provider=hub,stream=default,type=text,version=v7}": 1,
		"pawl.inbox.processing{account=waba,app=a,phone=15550001,provider=hub,stream=default,type=text,version=v7}":             6,
		"pawl.inbox.wait{account=waba,app=a,phone=15550001,provider=hub,stream=default,type=text,version=v7}":                   5,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	for name := range got {
		require.NotContains(t, name, "hub/", "an ID became an attribute")
	}
}

// Account and phone are attributes only where they are wanted.
func TestInboxHooksByDefault(t *testing.T) {
	m, collect := meter()
	hooks, err := pawlotel.InboxHooks(m, nil)
	require.NoError(t, err)
	b, err := inbox.New(inbox.NewMemory(), &inbox.Options{Hooks: hooks})
	require.NoError(t, err)
	events, err := hub{}.Decode([]byte("1 text"))
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), events...)
	require.NoError(t, err)
	require.Equal(t, 1.0, collect(t)["pawl.inbox.events{answer=accepted,provider=hub,type=text}"])
}

func ExampleInboxTrace() {
	box, err := inbox.New(inbox.NewMemory(), &inbox.Options{Trace: pawlotel.InboxTrace()})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A middleware has put the trace context of the request into its context.
	var w3c propagation.TraceContext
	request := w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
	if _, err := box.Accept(request, inbox.Event{ID: "hub/1", Provider: "hub"}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = box.Work(ctx, func(ctx context.Context, _ inbox.Record) inbox.Outcome {
		carrier := propagation.MapCarrier{}
		w3c.Inject(ctx, carrier)
		fmt.Println(carrier["traceparent"])
		cancel()
		return inbox.Done()
	}, nil)
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
}
