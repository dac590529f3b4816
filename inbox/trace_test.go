package inbox_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

type traceKey struct{}

// inContext is a trace that is a value of the context.
var inContext = inbox.Trace{
	Inject: func(ctx context.Context) string {
		s, _ := ctx.Value(traceKey{}).(string)
		return s
	},
	Extract: func(ctx context.Context, trace string) context.Context {
		return context.WithValue(ctx, traceKey{}, trace)
	},
}

func TestTheTraceOfADeliveryReachesItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Trace: &inContext})
		h := newHandler(t, b, provider{}, nil)
		traced := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), traceKey{}, r.Header.Get("Traceparent"))))
		})
		post(traced, `[{"id":"1","key":"k"}]`, "Traceparent", "00-a-b-01")
		post(traced, `[{"id":"2","key":"k"}]`)
		var j journal
		work(t, b, nil, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			got, _ := ctx.Value(traceKey{}).(string)
			j.add("%s:%s:%s", short(r), got, r.Trace)
			derived, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, ok := inbox.TokenFrom(derived); !ok || derived.Value(http.ServerContextKey) != nil {
				t.Error("the handler's context has lost its token, or has a value that nobody gave it")
			}
			if err := b.Complete(ctx); err != nil {
				t.Error(err)
			}
			return inbox.Done()
		})
		synctest.Wait()
		if got, want := j.String(), "1:00-a-b-01:00-a-b-01 2::"; got != want {
			t.Errorf("the handlers got %q, want %q", got, want)
		}
	})
}

// A trace must not cost an event, nor the handler the end of its context.
func TestTracesThatAreOfNoUse(t *testing.T) {
	for name, tr := range map[string]inbox.Trace{
		"Inject panics":  {Inject: func(context.Context) string { panic("topsecret") }},
		"too long":       {Inject: func(context.Context) string { return strings.Repeat("x", 1025) }},
		"NUL":            {Inject: func(context.Context) string { return "\x00" }},
		"not UTF-8":      {Inject: func(context.Context) string { return "\xff" }},
		"Extract panics": {Inject: func(context.Context) string { return "x" }, Extract: func(context.Context, string) context.Context { panic("topsecret") }},
		"a nil context":  {Inject: func(context.Context) string { return "x" }, Extract: func(context.Context, string) context.Context { return nil }},
		"another context": {Inject: func(context.Context) string { return "x" }, Extract: func(context.Context, string) context.Context {
			return context.Background()
		}},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBox(t, inbox.NewMemory(), &inbox.Options{Trace: &tr})
				accept(t, b, events("k", "1")...)
				var ended error
				w := work(t, b, &inbox.WorkOptions{Grace: time.Second}, func(ctx context.Context, _ inbox.Record) inbox.Outcome {
					<-ctx.Done()
					ended = context.Cause(ctx)
					return inbox.Done()
				})
				synctest.Wait()
				if err := w.stop(); err != nil {
					t.Error(err)
				}
				if !errors.Is(ended, inbox.ErrDraining) {
					t.Errorf("the handler's context ended with %v", ended)
				}
				wantTotals(t, b, inbox.Totals{Done: 1})
			})
		})
	}
}

// Without Inject, what the caller knows is stored.
func TestATraceOfTheCaller(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	e := events("k", "1")[0]
	e.Trace = "00-a-b-01"
	accept(t, b, e)
	if r := one(t, b, "1"); r.Trace != "00-a-b-01" {
		t.Errorf("stored is %q", r.Trace)
	}
	e.Trace = "\x00"
	if _, err := b.Accept(t.Context(), e); !errors.Is(err, inbox.ErrInvalid) {
		t.Errorf("a bad trace: %v", err)
	}
}
