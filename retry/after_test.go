package retry_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.FixedZone("here", 3600)) // 11:00 GMT
	for _, tt := range []struct {
		value string
		want  time.Duration
	}{
		{"0", 0},
		{"1", time.Second},
		{"120", 2 * time.Minute},
		{"0007", 7 * time.Second},
		{" 30\t", 30 * time.Second},
		{"315360000", 10 * 365 * 24 * time.Hour},
		{"9223372036", 9223372036 * time.Second},
		{"9223372037", math.MaxInt64},
		{"18446744073709551616", math.MaxInt64},
		{"18446744073709551617", math.MaxInt64},
		{"99999999999999999999999999999999999999", math.MaxInt64},
		{"Mon, 30 Nov 2026 11:00:30 GMT", 30 * time.Second},
		{"Monday, 30-Nov-26 11:00:30 GMT", 30 * time.Second},
		{"Mon Nov 30 11:00:30 2026", 30 * time.Second},
		{"Sun Dec  6 11:00:00 2026", 6 * 24 * time.Hour},
		{"Mon, 30 Nov 2026 10:59:59 GMT", 0},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", math.MaxInt64},
	} {
		if got, err := retry.ParseRetryAfter(tt.value, now); got != tt.want || err != nil {
			t.Errorf("%q: %v, %v; want %v", tt.value, got, err, tt.want)
		}
	}
	for _, value := range []string{
		"", " ", "-5", "+5", "0.5", "1e3", "5s", "0x10", "1 2", "1,2", "NaN", "Infinity", "soon", "٣", "1\x00",
		"Mon, 30 Nov 2026 11:00:30 CET", "Mon, 30 Nov 2026 11:00:30 +0100", "Mon, 30 Feb 2026 11:00:30 GMT",
		"2026-11-30T11:00:30Z", "Mon, 30 Nov 2026 25:00:30 GMT", "Mon, 30 Nov 2026 11:00:30",
	} {
		if got, err := retry.ParseRetryAfter(value, now); !errors.Is(err, retry.ErrInvalid) || got != 0 {
			t.Errorf("%q: %v, %v; want ErrInvalid", value, got, err)
		}
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("Mon, 02 Jan 2006 15:04:05 GMT") }
		for _, tt := range []struct {
			name   string
			code   int
			header map[string][]string
			want   time.Duration
		}{
			{"no header", 503, nil, 0},
			{"seconds", 503, map[string][]string{"Retry-After": {"30"}}, 30 * time.Second},
			{"a date", 429, map[string][]string{"Retry-After": {in(time.Minute)}}, time.Minute},
			{"a date, and a server whose clock is an hour late", 429,
				map[string][]string{"Retry-After": {in(time.Minute - time.Hour)}, "Date": {in(-time.Hour)}}, time.Minute},
			{"a date, and a date that is none", 429,
				map[string][]string{"Retry-After": {in(time.Minute)}, "Date": {"today"}}, time.Minute},
			{"nonsense", 503, map[string][]string{"Retry-After": {"-5"}}, 0},
			{"empty", 503, map[string][]string{"Retry-After": {}}, 0},
		} {
			e, ok := errors.AsType[*retry.StatusError](retry.Status(tt.code, tt.header))
			if !ok || e.Code != tt.code || e.After != tt.want {
				t.Errorf("%s: %+v, want %v", tt.name, e, tt.want)
			}
		}
	})
	for _, code := range []int{-1, 0, 100, 200, 204, 302, 399} {
		if err := retry.Status(code, nil); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
	if got := retry.Status(503, map[string][]string{"Retry-After": {"30"}}).Error(); got != "HTTP status 503, to be tried again after 30s" {
		t.Error(got)
	}
	if got := retry.Status(404, nil).Error(); got != "HTTP status 404" {
		t.Error(got)
	}
}

// A client that obeys the server comes back no earlier than asked, whatever form
// the wish has and whatever the jitter (failsafehttp came back at once for a date,
// and early in 9 of 20 runs).
func TestRetryAfterIsObeyed(t *testing.T) {
	for _, j := range []retry.Jitter{retry.NoJitter, retry.FullJitter, retry.EqualJitter, retry.Decorrelated} {
		synctest.Test(t, func(t *testing.T) {
			p := policy(t, retry.Options{
				Backoff:   retry.Exponential(time.Millisecond, time.Second, j),
				Throttled: retry.Exponential(time.Millisecond, time.Second, j),
			})
			waits := map[time.Duration]bool{}
			for range 200 {
				calls, start := 0, time.Now()
				err := retry.Do(t.Context(), p, func(context.Context) error {
					if calls++; calls > 1 {
						return nil
					}
					return retry.Status(503, map[string][]string{"Retry-After": {"20"}})
				})
				took := time.Since(start)
				if err != nil || took < 20*time.Second || took > 22*time.Second {
					t.Fatalf("%v: back after %v, %v", j, took, err)
				}
				waits[took] = true
			}
			if spread := len(waits) > 100; spread != (j != retry.NoJitter) {
				t.Errorf("%v: %d different waits of 200", j, len(waits))
			}
		})
	}
}

// The longest wait that is accepted is accepted in full, one more is not.
func TestMaxServerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, retry.Options{MaxServerWait: 40 * time.Second, Throttled: retry.Gradient()})
		calls, start := 0, time.Now()
		err := retry.Do(t.Context(), p, failing(&calls, retry.After(err1, 40*time.Second), nil))
		if took := time.Since(start); err != nil || took != 40*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		calls, start = 0, time.Now()
		e := stopped(t, retry.Do(t.Context(), p, failing(&calls, retry.After(err1, 40*time.Second+1), nil)))
		if e.Reason != retry.StopServerWait || e.Next != 40*time.Second+1 || time.Since(start) != 0 {
			t.Errorf("%v, next %v, after %v", e.Reason, e.Next, time.Since(start))
		}
	})
}

// Of several wishes the longest holds, whichever is the outer one.
func TestSeveralWishes(t *testing.T) {
	status := retry.Status(503, map[string][]string{"Retry-After": {"20"}})
	for name, err := range map[string]error{
		"shorter outside": retry.After(status, time.Second),
		"longer outside":  retry.After(retry.After(err1, time.Second), 20*time.Second),
		"joined":          errors.Join(retry.After(err1, time.Second), status, retry.After(err1, 2*time.Second)),
		"negative":        retry.After(status, -time.Second),
	} {
		p := policy(t, retry.Options{MaxAttempts: 1})
		e := stopped(t, retry.Do(t.Context(), p, func(context.Context) error { return err }))
		if got := e.Attempts[0].After; got != 20*time.Second {
			t.Errorf("%s: %v, want 20 s", name, got)
		}
	}
	p := policy(t, retry.Options{MaxAttempts: 1})
	e := stopped(t, retry.Do(t.Context(), p, func(context.Context) error { return retry.After(err1, -1) }))
	if a := e.Attempts[0]; a.After != 0 || a.Class != retry.ClassUnknown {
		t.Errorf("a negative wish is kept as %+v", a)
	}
}

func TestDelayAfter(t *testing.T) {
	b := retry.Exponential(time.Second, time.Minute, retry.NoJitter)
	for _, tt := range []struct {
		n          int
		wait, want time.Duration
	}{
		{1, 0, time.Second}, {1, -1, time.Second}, {1, math.MinInt64, time.Second}, {1, time.Second, time.Second},
		{1, time.Hour, time.Hour}, {5, 2 * time.Second, 16 * time.Second}, {1, forever, forever}, {math.MaxInt, 0, time.Minute},
	} {
		if got := b.DelayAfter(tt.n, 7, tt.wait); got != tt.want {
			t.Errorf("retry %d, asked for %v: %v, want %v", tt.n, tt.wait, got, tt.want)
		}
	}
	if got := (retry.Backoff{}).DelayAfter(2, 7, time.Second); got != 2*time.Second {
		t.Errorf("the zero backoff: %v", got)
	}
	if got := b.WithJitter(retry.FullJitter).DelayAfter(1, 7, forever); got != forever {
		t.Errorf("asked for the longest there is: %v", got)
	}
}

// Any header and any curve: a wait that is not negative, and never sooner than the
// server asks.
func FuzzAfter(f *testing.F) {
	f.Add("120", int64(0), uint8(0), uint8(3), int64(time.Second), int64(time.Minute), int64(7), uint64(1), int64(time.Hour))
	f.Add("-5", int64(0), uint8(1), uint8(0), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), uint64(math.MaxUint64), int64(math.MaxInt64))
	f.Add("Mon, 30 Nov 2026 11:00:30 GMT", int64(0), uint8(0), uint8(3), int64(1), int64(math.MaxInt64), int64(math.MaxInt64), uint64(1), int64(0))
	f.Add("9223372037", int64(0), uint8(2), uint8(1), int64(-1), int64(math.MinInt64), int64(math.MinInt64), uint64(0), int64(math.MinInt64))
	f.Add("0.5", int64(-1), uint8(6), uint8(2), int64(0), int64(0), int64(1), uint64(7), int64(time.Second))
	f.Fuzz(func(t *testing.T, value string, unix int64, law, jitter uint8, first, second, n int64, random uint64, wait int64) {
		fuzzParse(t, value, unix)
		fuzzDelay(t, law, jitter, first, second, n, random, wait)
	})
}

func fuzzParse(t *testing.T, value string, unix int64) {
	wait, err := retry.ParseRetryAfter(value, time.Unix(unix, 0))
	if wait < 0 || err != nil && (wait != 0 || !errors.Is(err, retry.ErrInvalid)) {
		t.Errorf("%q: %v, %v", value, wait, err)
	}
	if n, e := strconv.ParseUint(value, 10, 33); e == nil && wait != time.Duration(n)*time.Second {
		t.Errorf("%q: %v, want %d s", value, wait, n)
	}
}

func fuzzDelay(t *testing.T, law, jitter uint8, first, second, n int64, random uint64, wait int64) {
	a, b := time.Duration(first), time.Duration(second)
	backoff := []retry.Backoff{
		retry.Exponential(a, b, retry.NoJitter), retry.Fibonacci(a, b), retry.Fibonacci(a, a).Capped(b),
		retry.Constant(a), retry.Steps(a, b), retry.Steps(), {},
	}[law%7].WithJitter(retry.Jitter(jitter % 6))
	d := backoff.Delay(int(n), random)
	if d < 0 || d > backoff.Max() {
		t.Errorf("%v: retry %d after %v, at most %v", backoff, n, d, backoff.Max())
	}
	after := backoff.DelayAfter(int(n), random, time.Duration(wait))
	most := max(d, time.Duration(wait))
	if most < forever/2 {
		most += max(time.Duration(wait), 0) / 10
	} else {
		most = forever
	}
	if after < d || after < time.Duration(wait) || after > most {
		t.Errorf("%v: retry %d after %v, asked for %v, waits %v", backoff, n, d, time.Duration(wait), after)
	}
}
