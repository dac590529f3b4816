package watchdog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errAbnormal = errors.New("token=secret")

func newWarmup(t *testing.T, o WarmupOptions) *Warmup {
	w, err := NewWarmup(&o)
	require.NoError(t, err)
	return w
}

func TestWarmupJoinsAfterThreeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{})
		require.False(t, w.Ready())
		require.Equal(t, Isolated, w.Phase())
		time.Sleep(time.Hour)
		require.False(t, w.Ready(), "time counts only while it runs")
		stop := start(t, w.Run)
		time.Sleep(3*time.Minute - 1)
		require.False(t, w.Ready())
		require.Equal(t, Observing, w.Phase())
		require.Equal(t, time.Duration(1), w.Stats().Left)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, w.Ready())
		require.NoError(t, w.Wait(t.Context()))
		require.ErrorIs(t, w.Run(t.Context()), ErrInvalid, "it runs already")
		stop()
		require.False(t, w.Ready())
		require.Equal(t, Isolated, w.Phase())
	})
}

func TestTheWindowEndsBetweenTwoChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{Window: 7 * time.Second})
		defer start(t, w.Run)()
		began := time.Now()
		require.NoError(t, w.Wait(t.Context()))
		require.Equal(t, 7*time.Second, time.Since(began))
	})
}

func TestAnAbnormalResultBeginsTheWindowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{})
		defer start(t, w.Run)()
		for range 10 {
			time.Sleep(2*time.Minute + 59*time.Second)
			w.Observe(nil)
			require.False(t, w.Ready())
			w.Observe(errAbnormal)
		}
		time.Sleep(3*time.Minute - 1)
		synctest.Wait()
		require.False(t, w.Ready())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.True(t, w.Ready())

		w.Observe(errAbnormal)
		require.True(t, w.Ready(), "it has joined")
		s := w.Stats()
		require.EqualValues(t, 11, s.Abnormal)
		require.EqualValues(t, 10, s.Normal)
		require.EqualValues(t, 11, s.Windows)
		require.EqualValues(t, 1, s.Joins)
	})
}

func TestChecksHaveToPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ok, policy atomic.Bool
		w := newWarmup(t, WarmupOptions{Checks: []Check{
			{"database", func(context.Context) error {
				if !ok.Load() {
					return errAbnormal
				}
				return nil
			}},
			{"policy", func(context.Context) error {
				if !policy.Load() {
					panic("secret")
				}
				return nil
			}},
		}})
		defer start(t, w.Run)()
		time.Sleep(time.Hour)
		require.Equal(t, Failing, w.Phase())
		ok.Store(true)
		time.Sleep(time.Hour)
		require.Equal(t, Failing, w.Phase())
		policy.Store(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, Observing, w.Phase())
		time.Sleep(3*time.Minute - 10*time.Second)
		require.False(t, w.Ready(), "the time it failed for does not count")
		policy.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		policy.Store(true)
		require.Equal(t, Failing, w.Phase())
		time.Sleep(3 * time.Minute)
		require.False(t, w.Ready())
		time.Sleep(6 * time.Second)
		require.True(t, w.Ready())
		require.NotZero(t, w.Stats().Panics)
		require.NotZero(t, w.Stats().CheckFailures)
	})
}

func TestChecksThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var runs atomic.Int32
		w := newWarmup(t, WarmupOptions{Checks: []Check{{"hangs", func(context.Context) error {
			runs.Add(1)
			<-release // heeds no context
			return nil
		}}}})
		stop := start(t, w.Run)
		time.Sleep(time.Hour)
		require.Equal(t, Failing, w.Phase())
		require.EqualValues(t, 1, runs.Load(), "one at a time")
		stop()
		close(release)
		synctest.Wait()
		defer start(t, w.Run)()
		time.Sleep(3*time.Minute + 6*time.Second)
		require.True(t, w.Ready())
	})
}

// A result that comes while the last run of the checks is under way counts.
func TestAnAbnormalResultDuringTheLastChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{Window: time.Minute, Checks: []Check{{"slow", func(context.Context) error {
			time.Sleep(2 * time.Second)
			return nil
		}}}})
		defer start(t, w.Run)()
		time.Sleep(time.Minute + time.Second)
		w.Observe(errAbnormal)
		time.Sleep(30 * time.Second)
		require.False(t, w.Ready())
		time.Sleep(33 * time.Second)
		require.True(t, w.Ready())
	})
}

func TestResetIsolatesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		w := newWarmup(t, WarmupOptions{Hooks: &WarmupHooks{Changed: func(p Phase, why string) { changes = append(changes, p.String()+" "+why) }}})
		w.Reset()
		require.Equal(t, Isolated, w.Phase(), "it does not run")
		stop := start(t, w.Run)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.True(t, w.Ready())
		w.Reset()
		require.False(t, w.Ready())
		waited := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			_ = w.Wait(context.Background())
			waited <- time.Since(began)
		}()
		require.Equal(t, 3*time.Minute, <-waited)
		stop()
		require.Equal(t, []string{"isolated reset", "observing ", "joined ", "observing reset", "joined ", "isolated "}, changes)
	})
}

// A claiming loop claims nothing until the worker has joined, and nothing after a
// restart hook has isolated it again.
func TestTheGateOfAClaimingLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{})
		var claims []time.Duration
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for w.Wait(ctx) == nil {
				claims = append(claims, time.Since(began))
				time.Sleep(time.Minute)
			}
		}()
		stop := start(t, w.Run)
		time.Sleep(5*time.Minute + 30*time.Second)
		w.Reset()
		time.Sleep(4*time.Minute + 15*time.Second)
		cancel()
		<-done
		stop()
		minute := time.Minute
		require.Equal(t, []time.Duration{3 * minute, 4 * minute, 5 * minute, 8*minute + 30*time.Second, 9*minute + 30*time.Second}, claims)
	})
}

func TestWaitGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmup(t, WarmupOptions{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAbnormal)
		defer cancel()
		require.ErrorIs(t, w.Wait(ctx), errAbnormal)
	})
}

func TestReadinessHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var ok atomic.Bool
		w := newWarmup(t, WarmupOptions{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Checks: []Check{{"database", func(context.Context) error {
				if !ok.Load() {
					return errAbnormal
				}
				return nil
			}}},
			Hooks: &WarmupHooks{Changed: func(Phase, string) { panic("secret") }},
		})
		get := func(method string) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			w.Handler().ServeHTTP(rec, httptest.NewRequest(method, "/ready?token=secret", nil))
			return rec
		}
		want := func(status int, body string) {
			t.Helper()
			rec := get(http.MethodGet)
			require.Equal(t, status, rec.Code)
			require.JSONEq(t, body, rec.Body.String())
			require.NotContains(t, rec.Body.String(), "secret")
			require.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
		}
		want(503, `{"ready":false,"phase":"isolated","left_seconds":180,"checks":[{"name":"database","ok":false}]}`)
		stop := start(t, w.Run)
		synctest.Wait()
		want(503, `{"ready":false,"phase":"failing","left_seconds":180,"checks":[{"name":"database","ok":false}]}`)
		ok.Store(true)
		time.Sleep(65 * time.Second)
		synctest.Wait()
		want(503, `{"ready":false,"phase":"observing","left_seconds":120,"checks":[{"name":"database","ok":true}]}`)
		require.Equal(t, "120", get(http.MethodGet).Header().Get("Retry-After"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want(200, `{"ready":true,"phase":"joined","left_seconds":0,"checks":[{"name":"database","ok":true}]}`)
		rec := get(http.MethodHead)
		require.Equal(t, 200, rec.Code)
		require.Empty(t, rec.Body.String())
		require.Equal(t, 405, get(http.MethodPost).Code)
		stop()
		require.NotContains(t, log.String(), "secret")
		require.NotZero(t, w.Stats().Panics)
	})
}

func TestRefusedWarmups(t *testing.T) {
	fine := func(context.Context) error { return nil }
	for i, o := range []WarmupOptions{
		{Window: -1}, {Window: time.Microsecond}, {Window: 1<<63 - 1}, {Every: -1}, {Every: 2 * time.Hour}, {CheckTimeout: -1}, {CheckTimeout: 2 * time.Hour},
		{Checks: []Check{{"a", nil}}}, {Checks: []Check{{"", fine}}}, {Checks: []Check{{"a", fine}, {"a", fine}}},
		{Checks: []Check{{"a\nb", fine}}}, {Checks: []Check{{strings.Repeat("a", 65), fine}}}, {Checks: make([]Check, 101)},
	} {
		_, err := NewWarmup(&o)
		require.ErrorIs(t, err, ErrInvalid, "%d", i)
	}
	_, err := NewWarmup(nil)
	require.NoError(t, err)
}

func TestNamesTellTheValuesApart(t *testing.T) {
	for _, names := range [][]string{named(states + 1), named(verdicts + 1), named(Joined + 2), named(KindForget + 2)[1:]} {
		require.NotContains(t, names, "")
		unique := slices.Compact(slices.Sorted(slices.Values(names)))
		require.Len(t, unique, len(names), "%q", names)
	}
}

func named[T interface {
	~uint8
	String() string
}](n T) (names []string) {
	for v := range n {
		names = append(names, v.String())
	}
	return names
}
