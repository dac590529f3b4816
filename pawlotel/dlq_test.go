package pawlotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/retry"
)

// wants are values by name and attributes.
func wants(t *testing.T, got values, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		require.Contains(t, got, name)
		require.Equal(t, v, got[name], name)
	}
}

func TestDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		hooks, err := pawlotel.DLQHooks(m, attribute.String("app", "a"))
		require.NoError(t, err)
		q, err := dlq.New(dlq.NewMemory(), &dlq.Options{Backoff: retry.Constant(time.Minute), Spread: -1, MaxFailures: 1, Hooks: hooks, Capacity: 4})
		require.NoError(t, err)
		_, err = pawlotel.DLQ(m, q, attribute.String("app", "a"))
		require.NoError(t, err)
		_, err = pawlotel.DLQTotals(m, q, 1)
		require.NoError(t, err)
		require.NotContains(t, collect(t), "pawl.dlq.oldest{stream=crm}", "nothing is there yet")

		put := func(stream, id, key string) {
			_, err := q.Put(t.Context(), dlq.Dead{Message: dlq.Message{Stream: stream, ID: id, Key: key}, Cause: errors.New("503")})
			require.True(t, err == nil || errors.Is(err, dlq.ErrFull), err)
		}
		for _, id := range []string{"heals", "fails", "panics", "panics", "last", "too many"} {
			put("crm", id, "")
		}
		put("sms", "a", "k")
		put("zalo", "b", "")
		answers, err := q.Park(t.Context(), dlq.Message{Stream: "sms", ID: "free", Key: "other"})
		require.NoError(t, err)
		require.Equal(t, dlq.NotBlocked, answers[0])

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Run(ctx, func(ctx context.Context, l dlq.Letter) error {
				switch l.ID {
				case "heals":
					return nil
				case "panics":
					panic("at the disco")
				case "last":
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(time.Second)
				return errors.New("503")
			}, &dlq.RunOptions{Stream: "crm", Timeout: time.Hour, Grace: time.Second, Alert: func(context.Context, dlq.Letter, dlq.Attempt) {}})
		}()
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1.0, collect(t)["pawl.dlq.running{app=a}"])
		stop()
		require.NoError(t, <-ended)

		review, err := dlq.NewReview(q, func(_ context.Context, a dlq.Action) (string, error) {
			if a.Verb == dlq.VerbForget {
				return "", errors.New("no")
			}
			return "ana", nil
		}, nil)
		require.NoError(t, err)
		ref := func(id string) dlq.Ref {
			l, err := q.Get(t.Context(), "crm", id)
			require.NoError(t, err)
			return l.Ref()
		}
		require.ErrorIs(t, review.Forget(t.Context(), ref("fails"), "x"), dlq.ErrUnauthorized)
		require.NoError(t, review.Discard(t.Context(), ref("fails"), "x"))
		require.Error(t, review.Discard(t.Context(), dlq.Ref{Stream: "crm", ID: "nobody", Seq: 99}, "x"))

		wants(t, collect(t), map[string]float64{
			"pawl.dlq.messages{answer=added,app=a}":                   6,
			"pawl.dlq.messages{answer=duplicate,app=a}":               1,
			"pawl.dlq.messages{answer=refused,app=a}":                 1,
			"pawl.dlq.messages{answer=not_blocked,app=a}":             1,
			"pawl.dlq.tries{app=a,outcome=resolved}":                  1,
			"pawl.dlq.tries{app=a,outcome=retry}":                     2,
			"pawl.dlq.tries{app=a,outcome=review}":                    2,
			"pawl.dlq.tries{app=a,outcome=interrupted}":               1,
			"pawl.dlq.panics{app=a}":                                  2,
			"pawl.dlq.alerts{app=a}":                                  2, // two kinds of failures
			"pawl.dlq.operator_actions{answer=authorized,app=a}":      2,
			"pawl.dlq.operator_actions{answer=unauthorized,app=a}":    1,
			"pawl.dlq.letters{state=review,stream=crm}":               1,
			"pawl.dlq.letters{state=waiting,stream=crm}":              1,
			"pawl.dlq.letters{state=resolved,stream=crm}":             1,
			"pawl.dlq.letters{state=discarded,stream=crm}":            1,
			"pawl.dlq.letters{rest=true,state=waiting}":               2,
			"pawl.dlq.oldest{rest=true}":                              301, // five minutes and the grace
			"pawl.dlq.put{answer=added,app=a,stream=crm}":             4,
			"pawl.dlq.put{answer=refused,app=a,stream=crm}":           1,
			"pawl.dlq.put{answer=duplicate,app=a,stream=crm}":         1,
			"pawl.dlq.outcomes{app=a,outcome=review,stream=crm}":      2,
			"pawl.dlq.outcomes{app=a,outcome=interrupted,stream=crm}": 1,
			"pawl.dlq.processing{app=a,stream=crm}":                   6,
			"pawl.dlq.actions{answer=unauthorized,app=a,verb=forget}": 1,
			"pawl.dlq.actions{answer=done,app=a,verb=discard}":        1,
			"pawl.dlq.actions{answer=failed,app=a,verb=discard}":      1,
			"pawl.dlq.running{app=a}":                                 0,
			"pawl.dlq.processing.max{app=a}":                          241, // until the grace had passed
		})
	})
}

// A redrive that goes well is told stage by stage; one that fails says that it is paused.
func TestDLQJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		hooks, err := pawlotel.DLQHooks(m)
		require.NoError(t, err)
		q, err := dlq.New(dlq.NewMemory(), &dlq.Options{MaxFailures: -1, Backoff: retry.Constant(time.Minute), Hooks: hooks})
		require.NoError(t, err)
		_, err = pawlotel.DLQ(m, q)
		require.NoError(t, err)
		for i := range 3 {
			_, err := q.Put(t.Context(), dlq.Dead{Message: dlq.Message{Stream: "crm", ID: fmt.Sprint(i)}, Cause: errors.New("503")})
			require.NoError(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Run(ctx, func(context.Context, dlq.Letter) error { return errors.New("503") }, &dlq.RunOptions{Stream: "crm"})
		}()
		time.Sleep(10 * time.Minute) // all are in review
		review, err := dlq.NewReview(q, func(context.Context, dlq.Action) (string, error) { return "ana", nil }, nil)
		require.NoError(t, err)
		_, _, err = review.Redrive(t.Context(), dlq.Redrive{Stream: "crm", ID: "again", Canary: 1, Reason: "mended"})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		stop()
		require.NoError(t, <-ended)
		wants(t, collect(t), map[string]float64{
			"pawl.dlq.redriven{}":                           1,
			"pawl.dlq.job_changes{state=paused,stream=crm}": 1,
			"pawl.dlq.actions{answer=done,verb=redrive}":    1,
			"pawl.dlq.tries{outcome=review}":                4,
		})
	})
}
