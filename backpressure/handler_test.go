package backpressure_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func newHandler(t testing.TB, next http.HandlerFunc, o backpressure.HandlerOptions) http.Handler {
	t.Helper()
	h, err := backpressure.Handler(next, &o)
	require.NoError(t, err)
	return h
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func ok(http.ResponseWriter, *http.Request) {}

func TestHandlerAnswers429WithJitter(t *testing.T) {
	l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 1e-1}), "im")
	h := newHandler(t, ok, backpressure.HandlerOptions{Limit: func(*http.Request) backpressure.Verdict { return l.Allow(1) }})
	require.Equal(t, http.StatusOK, serve(h, httptest.NewRequest("POST", "/", nil)).Code)
	waits := make(map[string]bool)
	for range 200 {
		w := serve(h, httptest.NewRequest("POST", "/", nil))
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		wait := w.Header().Get("Retry-After")
		seconds, err := strconv.Atoi(wait)
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 9)
		require.LessOrEqual(t, seconds, 15)
		waits[wait] = true
	}
	require.Greater(t, len(waits), 3, "they do not come back together")
}

func TestHandlerStatuses(t *testing.T) {
	for reason, status := range map[backpressure.Reason]int{
		backpressure.NoTokens: 429, backpressure.Queued: 429, backpressure.QueueFull: 429,
		backpressure.CostInvalid: 400, backpressure.KeyInvalid: 400, backpressure.StoreDown: 503,
	} {
		h := newHandler(t, ok, backpressure.HandlerOptions{Limit: func(*http.Request) backpressure.Verdict {
			return backpressure.Verdict{Reason: reason, RetryAfter: 1 << 62}
		}})
		w := serve(h, httptest.NewRequest("POST", "/", nil))
		require.Equal(t, status, w.Code)
		require.Equal(t, status != 400, w.Header().Get("Retry-After") != "")
	}
}

func TestHandlerLevels(t *testing.T) {
	levels, _ := newLevels(t, nil)
	var seen backpressure.Degrade
	h := newHandler(t, func(_ http.ResponseWriter, r *http.Request) { seen = backpressure.DegradeFrom(r.Context()) },
		backpressure.HandlerOptions{Levels: levels, Core: func(r *http.Request) bool { return r.URL.Path == "/messages" }})
	request := func(method, path string) *httptest.ResponseRecorder {
		return serve(h, httptest.NewRequest(method, path, nil))
	}
	require.Empty(t, request("POST", "/likes").Header().Get(backpressure.SlowDownHeader))
	require.Zero(t, seen)
	require.NoError(t, levels.Observe(backlog, 2e6))
	w := request("POST", "/likes")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "1", w.Header().Get(backpressure.SlowDownHeader))
	require.True(t, seen.Has(backpressure.ShrinkMedia))
	require.False(t, seen.Has(backpressure.RefuseNonCore))

	require.NoError(t, levels.Observe(backlog, 6e6))
	w = request("POST", "/likes")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, request("POST", "/messages").Code)
	require.Equal(t, http.StatusOK, request("GET", "/likes").Code)
	require.EqualValues(t, 1, levels.Stats().Refused)
}

// The priority of a request is what the service says, unless it inherits: then it is
// what the service before it said.
func TestHandlerPriority(t *testing.T) {
	var seen backpressure.Priority
	next := func(_ http.ResponseWriter, r *http.Request) { seen, _ = backpressure.PriorityFrom(r.Context()) }
	own := backpressure.Priority{Class: backpressure.ClassLow, User: 3}
	r := httptest.NewRequest("GET", "/", nil)
	backpressure.Priority{Class: backpressure.ClassHighest, User: 9}.SetHeader(r.Header)

	serve(newHandler(t, next, backpressure.HandlerOptions{Priority: func(*http.Request) backpressure.Priority { return own }}), r)
	require.Equal(t, own, seen, "a stranger does not make himself important")
	h := newHandler(t, next, backpressure.HandlerOptions{Inherit: true, Priority: func(*http.Request) backpressure.Priority { return own }})
	serve(h, r)
	require.Equal(t, backpressure.Priority{Class: backpressure.ClassHighest, User: 9}, seen)
	serve(h, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, own, seen)
	serve(newHandler(t, next, backpressure.HandlerOptions{}), r)
	require.Zero(t, seen, "the middle")
}

func TestHandlerGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{Concurrency: 1, MaxQueue: 1})
		h := newHandler(t, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }, backpressure.HandlerOptions{Gate: g})
		codes := make(chan int, 3)
		for range 3 {
			go func() { codes <- serve(h, httptest.NewRequest("GET", "/", nil)).Code }()
			synctest.Wait()
		}
		require.Equal(t, http.StatusServiceUnavailable, <-codes, "the third does not fit")
		require.Equal(t, http.StatusOK, <-codes)
		require.Equal(t, http.StatusOK, <-codes)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, serve(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx)).Code)
	})
}

func TestHandlerOptions(t *testing.T) {
	next := http.HandlerFunc(ok)
	for name, o := range map[string]*backpressure.HandlerOptions{
		"gate": {Gate: newGate(t, nil)}, "slow down": {SlowDown: time.Millisecond},
	} {
		_, err := backpressure.Handler(next, o)
		require.ErrorIs(t, err, backpressure.ErrInvalid, name)
	}
	_, err := backpressure.Handler(nil, nil)
	require.ErrorIs(t, err, backpressure.ErrInvalid)
}
