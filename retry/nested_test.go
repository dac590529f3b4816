package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// Three layers of three attempts make seven calls, not 27.
func TestLayersAdd(t *testing.T) {
	for _, tt := range []struct {
		nested bool
		want   int
	}{{false, 3 + 2 + 2}, {true, 27}} {
		p := policy(t, retry.Options{MaxAttempts: 3, Backoff: retry.Constant(0), Nested: tt.nested})
		calls := 0
		err := retry.Do(t.Context(), p, func(ctx context.Context) error {
			return retry.Do(ctx, p, func(ctx context.Context) error {
				return retry.Do(ctx, p, failing(&calls, err1))
			})
		})
		if calls != tt.want {
			t.Errorf("nested %v: %d calls, want %d", tt.nested, calls, tt.want)
		}
		if e := stopped(t, err); e.Reason != retry.StopAttempts || e.Made != 3 {
			t.Errorf("nested %v: %v", tt.nested, err)
		}
	}
}

func TestAttemptFrom(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "kept")
	var got []int
	_ = retry.Do(ctx, policy(t, retry.Options{MaxAttempts: 3, Backoff: retry.Constant(0)}), func(ctx context.Context) error {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		got = append(got, retry.AttemptFrom(inner))
		if inner.Value(key{}) != "kept" {
			t.Error("a value of the caller's is lost")
		}
		return err1
	})
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("attempts %v", got)
	}
	for n, want := range map[int]int{-5: 1, 0: 1, 1: 1, 2: 2, 7: 7} {
		if got := retry.AttemptFrom(retry.WithAttempt(ctx, n)); got != want {
			t.Errorf("WithAttempt(%d): attempt %d", n, got)
		}
	}
	if got := retry.AttemptFrom(retry.WithAttempt(retry.WithAttempt(ctx, 5), 1)); got != 1 {
		t.Errorf("the outer mark holds: %d", got)
	}
}

// What an inner Do found out holds for the outer one.
func TestErrorOfAnotherDo(t *testing.T) {
	classify := func(error) retry.Class { return retry.ClassPermanent }
	deadline, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		opts  retry.Options
		err   error
		want  retry.Class
		after bool
	}{
		{"permanent", t.Context(), retry.Options{}, retry.Permanent(err1), retry.ClassPermanent, false},
		{"permanent by its own rule", t.Context(), retry.Options{Classify: classify}, err1, retry.ClassPermanent, false},
		{"transient", t.Context(), retry.Options{MaxAttempts: 1}, retry.Transient(err1), retry.ClassTransient, false},
		{"throttled", t.Context(), retry.Options{MaxAttempts: 1}, retry.Throttled(err1), retry.ClassThrottled, false},
		{"unknown", t.Context(), retry.Options{MaxAttempts: 1}, err1, retry.ClassUnknown, false},
		{"asked to wait", t.Context(), retry.Options{}, retry.After(err1, time.Hour), retry.ClassThrottled, true},
		{"its own deadline", deadline, retry.Options{}, err1, retry.ClassTransient, false},
		{"cancelled", cancelled, retry.Options{}, err1, retry.ClassPermanent, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := retry.Do(tt.ctx, policy(t, tt.opts), func(context.Context) error { return tt.err })
				if got := retry.Classify(inner); got != tt.want {
					t.Errorf("class %v, want %v", got, tt.want)
				}
				e := stopped(t, retry.Do(t.Context(), policy(t, retry.Options{MaxAttempts: 1}), func(context.Context) error { return inner }))
				if (e.Attempts[0].After == time.Hour) != tt.after {
					t.Errorf("asked to wait %v", e.Attempts[0].After)
				}
			})
		})
	}
	// That it is permanent for the inner one holds whatever the outer one's rule.
	outer := policy(t, retry.Options{Backoff: retry.Constant(0), Classify: func(error) retry.Class { return retry.ClassTransient }})
	e := stopped(t, retry.Do(t.Context(), outer, func(ctx context.Context) error {
		return retry.Do(ctx, policy(t, retry.Options{Classify: classify}), func(context.Context) error { return err1 })
	}))
	if e.Reason != retry.StopPermanent || e.Made != 1 {
		t.Errorf("%v after %d attempts", e.Reason, e.Made)
	}
	// A mark around it is the outer caller's and holds before it.
	inner := retry.Do(t.Context(), nil, func(context.Context) error { return retry.Permanent(err1) })
	if got := retry.Classify(retry.Transient(inner)); got != retry.ClassTransient {
		t.Errorf("marked transient, found %v", got)
	}
}
