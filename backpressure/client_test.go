package backpressure_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/retry"
)

// A server is a transport that answers from a list, its last entry for ever, and
// notes when it was asked.
type server struct {
	mu      sync.Mutex
	answers []answer
	asked   []time.Time
	bodies  []string
	headers []http.Header
}

type answer struct {
	status     int
	retryAfter string
	slowDown   string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[min(len(s.asked), len(s.answers)-1)]
	s.asked = append(s.asked, time.Now())
	s.headers = append(s.headers, r.Header)
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, string(b))
	}
	h := http.Header{}
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	if a.slowDown != "" {
		h.Set(backpressure.SlowDownHeader, a.slowDown)
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func (s *server) after(start time.Time) (waits []time.Duration) {
	for _, at := range s.asked {
		waits = append(waits, at.Sub(start).Round(time.Second))
	}
	return waits
}

func newClient(t testing.TB, s *server, opts *backpressure.ClientOptions) *backpressure.Client {
	t.Helper()
	c, err := backpressure.NewClient(s, opts)
	require.NoError(t, err)
	return c
}

func get(ctx context.Context, c *backpressure.Client) (int, error) {
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://crm.test/contacts", nil)
	resp, err := c.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}

// retry.Gradient: min(1 s * 2^n, 30 s).
func TestClientGradient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 429}}}
		c := newClient(t, s, &backpressure.ClientOptions{MaxAttempts: 8, MaxWait: 5 * time.Minute})
		start := time.Now()
		code, err := get(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, 429, code)
		require.Len(t, s.asked, 8)
		for i, want := range []float64{1, 2, 4, 8, 16, 30, 30} {
			wait := s.asked[i+1].Sub(s.asked[i]).Seconds()
			require.GreaterOrEqual(t, wait, want)
			require.LessOrEqual(t, wait, 1.1*want+0.001)
		}
		require.InDelta(t, 91, time.Since(start).Seconds(), 10)
	})
}

// No request comes back before the Retry-After, whatever it is like, and not all at
// once.
func TestClientHonoursRetryAfter(t *testing.T) {
	for _, c := range []struct {
		value string
		least time.Duration
	}{
		{"20", 20 * time.Second},
		{"-5", time.Second}, {"0.5", time.Second}, {"soon", time.Second}, {"0", time.Second}, {"", time.Second},
		{"DATE", 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			value := c.value
			if value == "DATE" {
				value = time.Now().Add(21 * time.Second).UTC().Format(http.TimeFormat)
			}
			s := &server{answers: []answer{{status: 503, retryAfter: value}, {status: 200}}}
			client := newClient(t, s, nil)
			start := time.Now()
			_, err := get(t.Context(), client)
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(start), c.least, c.value)
			require.Less(t, time.Since(start), c.least*13/10+100*time.Millisecond, c.value)
		})
	}
}

// Others wait for the pause of their host, each for a time of its own; one that has
// not the time is told at once.
func TestClientPausesTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 503, retryAfter: "20"}, {status: 200}}}
		c := newClient(t, s, &backpressure.ClientOptions{MaxAttempts: 1})
		start := time.Now()
		code, err := get(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, 503, code)

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = get(ctx, c)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, backpressure.ErrRefused)
		require.Zero(t, time.Since(start))

		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _, _ = get(t.Context(), c) })
		}
		wg.Wait()
		moments := make(map[time.Time]bool)
		for _, at := range s.asked[1:] {
			require.GreaterOrEqual(t, at.Sub(start), 20*time.Second)
			require.LessOrEqual(t, at.Sub(start), 23*time.Second)
			moments[at] = true
		}
		require.Greater(t, len(moments), 10)
	})
}

// A hundred refusals of requests that were under way together are one step of the
// gradient and not a hundred.
func TestClientCountsPausesNotRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: append(slices.Repeat([]answer{{status: 429}}, 100), answer{status: 200})}
		slow := roundTrip(func(r *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			return s.RoundTrip(r)
		})
		c, err := backpressure.NewClient(slow, &backpressure.ClientOptions{MaxAttempts: 2})
		require.NoError(t, err)
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _, _ = get(t.Context(), c) })
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 1200*time.Millisecond)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What is sent again is what may be: a body that can be had again, and a call that
// was refused or is idempotent.
func TestClientSendsAgainWhatItMay(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		method string
		key    bool
		once   bool // the body cannot be had again
		sent   int
	}{
		"429 POST":           {429, "POST", false, false, 2},
		"503 POST":           {503, "POST", false, false, 1},
		"503 POST, with key": {503, "POST", true, false, 2},
		"503 PUT":            {503, "PUT", false, false, 2},
		"429 once":           {429, "POST", false, true, 1},
		"500":                {500, "PUT", false, false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answers: []answer{{status: c.status}, {status: 200}}}
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://crm.test/", strings.NewReader("body"))
			require.NoError(t, err)
			if c.once {
				r.GetBody = nil
			}
			if c.key {
				r.Header.Set("Idempotency-Key", "1")
			}
			_, err = newClient(t, s, nil).RoundTrip(r)
			require.NoError(t, err)
			require.Len(t, s.asked, c.sent, name)
			for _, body := range s.bodies {
				require.Equal(t, "body", body, name)
			}
		})
	}
}

// Ten years are not waited for.
func TestClientRetryAfterOfTenYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, value := range []string{"315360000", "99999999999999999999999", "Fri, 31 Dec 2100 23:59:59 GMT"} {
			s := &server{answers: []answer{{status: 429, retryAfter: value}, {status: 200}}}
			c := newClient(t, s, nil)
			start := time.Now()
			code, err := get(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, 429, code)
			require.Zero(t, time.Since(start))
			_, err = get(t.Context(), c)
			var refused *backpressure.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, backpressure.Paused, refused.Verdict.Reason)
			time.Sleep(time.Minute)
			_, err = get(t.Context(), c)
			require.NoError(t, err, "the host is paused no longer than MaxWait")
		}
	})
}

// A server that refuses everything, for ever, holds no request for longer than
// MaxWait.
func TestClientWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 503}}}
		c := newClient(t, s, &backpressure.ClientOptions{MaxAttempts: 1000})
		var wg sync.WaitGroup
		start := time.Now()
		for range 100 {
			wg.Go(func() { _, _ = get(t.Context(), c) })
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), time.Minute)
		require.LessOrEqual(t, len(s.asked), 100+100, "and nobody storms the server")
	})
}

func TestClientSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 200, slowDown: "2"}}}
		c := newClient(t, s, nil)
		start := time.Now()
		for range 4 {
			_, err := get(t.Context(), c)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second, 6 * time.Second}, s.after(start))
		s.answers = []answer{{status: 200}}
		_, err := get(t.Context(), c) // hears that it is over
		require.NoError(t, err)
		start = time.Now()
		_, err = get(t.Context(), c)
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
	})
}

// Layers add and do not multiply, and the priority goes along.
func TestClientInsideOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 429}}}
		c := newClient(t, s, &backpressure.ClientOptions{MaxAttempts: 3})
		p := backpressure.Priority{Class: backpressure.ClassHigh, User: 7}
		ctx := backpressure.WithPriority(retry.WithAttempt(t.Context(), 2), p)
		_, err := get(ctx, c)
		require.NoError(t, err)
		require.Len(t, s.asked, 1)
		got, ok := backpressure.PriorityFromHeader(s.headers[0])
		require.True(t, ok)
		require.Equal(t, p, got)

		external := newClient(t, s, &backpressure.ClientOptions{MaxAttempts: 1, External: func(host string) bool { return host == "crm.test" }})
		_, err = get(ctx, external)
		require.NoError(t, err)
		require.Empty(t, s.headers[1].Get(backpressure.PriorityHeader))
	})
}

func TestClientGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{status: 429}}}
		c := newClient(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		start := time.Now()
		_, err := get(ctx, c)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
	})
}

func TestClientOptions(t *testing.T) {
	for name, o := range map[string]*backpressure.ClientOptions{
		"attempts": {MaxAttempts: math.MinInt}, "wait": {MaxWait: -1},
		"backoff": {Backoff: retry.Exponential(-1, 1, retry.NoJitter)},
	} {
		_, err := backpressure.NewClient(nil, o)
		var typed *backpressure.OptionError
		require.ErrorAs(t, err, &typed, name)
	}
}
