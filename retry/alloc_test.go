package retry_test

import (
	"context"
	"testing"

	"github.com/pawl-go/pawl/retry"
)

// A call that succeeds at once allocates nothing; one that fails twice allocates
// the contexts of its two retries.
func TestDoAllocates(t *testing.T) {
	p := policy(t, retry.Options{Backoff: retry.Constant(0)})
	fn := failTwice()
	for name, tt := range map[string]struct {
		do   func() error
		most float64
	}{
		"success":             {func() error { return retry.Do(t.Context(), p, succeed) }, 0},
		"success by default":  {func() error { return retry.Do(t.Context(), nil, succeed) }, 0},
		"success with budget": {withBudget(t), 0},
		"two failures":        {func() error { return retry.Do(t.Context(), p, fn) }, 2},
		"a value": {func() error {
			_, err := retry.DoValue(t.Context(), p, func(context.Context) (string, error) { return "value", nil })
			return err
		}, 0},
	} {
		got := testing.AllocsPerRun(1000, func() {
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, tt.most)
		}
	}
}

func succeed(context.Context) error { return nil }

// failTwice returns a function that fails twice, succeeds and begins again.
func failTwice() func(context.Context) error {
	n := 0
	return func(context.Context) error {
		if n++; n%3 != 0 {
			return err1
		}
		return nil
	}
}

func withBudget(t *testing.T) func() error {
	p := policy(t, retry.Options{Backoff: retry.Constant(0), Budget: budget(t, retry.BudgetOptions{})})
	return func() error { return retry.Do(t.Context(), p, succeed) }
}

func BenchmarkSuccess(b *testing.B) {
	p := policy(b, retry.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if err := retry.Do(context.Background(), p, succeed); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTwoFailures(b *testing.B) {
	p := policy(b, retry.Options{Backoff: retry.Constant(0)})
	fn := failTwice()
	b.ReportAllocs()
	for b.Loop() {
		if err := retry.Do(context.Background(), p, fn); err != nil {
			b.Fatal(err)
		}
	}
}
