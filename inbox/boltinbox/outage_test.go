package boltinbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/retry"
)

// The system behind the inbox is down for an hour, and the handlers hang until they
// give up. Every delivery of that hour is stored and answered with 200, and is
// worked when the hour has passed.
func TestADeadDependencyRefusesNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		b, err := inbox.New(f, nil)
		require.NoError(t, err)
		const secret = "app secret"
		source, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: secret}}})
		require.NoError(t, err)
		hook, err := inbox.Handler(b, source, nil)
		require.NoError(t, err)

		var up atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- b.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
				if up.Load() {
					return inbox.Done()
				}
				time.Sleep(30 * time.Second)
				return inbox.Failed(errors.New("the CRM does not answer"))
			}, &inbox.WorkOptions{Concurrency: 4, MaxAttempts: 1000, Backoff: retry.Exponential(time.Second, 5*time.Minute, retry.NoJitter)})
		}()

		const minutes = 60
		for i := range minutes * 4 {
			body := fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":`+
				`{"metadata":{"phone_number_id":"2"},"messages":[{"from":"4915%d","id":"wamid.%d","timestamp":"1","type":"text","text":{"body":"x"}}]}}]}]}`, i%9, i)
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Hub-Signature-256", whatsapp.Sign(secret, []byte(body)))
			w := httptest.NewRecorder()
			hook.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code, "delivery %d", i)
			time.Sleep(15 * time.Second)
		}
		totals, err := b.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, minutes*4, totals.Pending)
		require.GreaterOrEqual(t, totals.Oldest, time.Hour)

		up.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		totals, err = b.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, inbox.Totals{Done: minutes * 4}, totals)
		cancel()
		require.NoError(t, <-ended)
	})
}
