package retry_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/retry"
)

const forever = time.Duration(math.MaxInt64)

func TestDelays(t *testing.T) {
	s, m := time.Second, time.Minute
	for _, tt := range []struct {
		name string
		b    retry.Backoff
		want []time.Duration // retries 1, 2, 3 and so on; the last goes on
	}{
		{"gradient", retry.Gradient(), []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}},
		{"zero", retry.Backoff{}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}},
		{"exponential", retry.Exponential(3*s, 20*s, retry.NoJitter), []time.Duration{3 * s, 6 * s, 12 * s, 20 * s}},
		{"exponential at its cap", retry.Exponential(s, s, retry.NoJitter), []time.Duration{s, s}},
		{"fibonacci", retry.Fibonacci(5*m, 10*m), []time.Duration{5 * m, 10 * m, 15 * m, 25 * m, 40 * m, 65 * m}},
		{"fibonacci with a cap", retry.Fibonacci(5*m, 10*m).Capped(30 * m), []time.Duration{5 * m, 10 * m, 15 * m, 25 * m, 30 * m, 30 * m}},
		{"constant", retry.Constant(s), []time.Duration{s, s, s}},
		{"none", retry.Constant(0), []time.Duration{0, 0, 0}},
		{"steps", retry.Steps(s, 3*s, 2*s), []time.Duration{s, 3 * s, 2 * s, 2 * s}},
		{"gradient with a cap", retry.Gradient().Capped(5 * s), []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		{"a greater cap", retry.Gradient().Capped(m), []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}},
	} {
		if err := tt.b.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for i, want := range tt.want {
			if got := tt.b.Delay(i+1, 42); got != want {
				t.Errorf("%s: retry %d after %v, want %v", tt.name, i+1, got, want)
			}
		}
		if got, want := tt.b.Delay(0, 42), tt.want[0]; got != want {
			t.Errorf("%s: retry 0 after %v, want that of the first, %v", tt.name, got, want)
		}
		if got, want := tt.b.Delay(math.MinInt, 42), tt.want[0]; got != want {
			t.Errorf("%s: a negative retry after %v, want that of the first, %v", tt.name, got, want)
		}
	}
}

func TestDelaysDoNotOverflow(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    retry.Backoff
		want time.Duration // of the last retry there is
	}{
		{"gradient", retry.Gradient(), 30 * time.Second},
		{"exponential without a cap", retry.Exponential(1, forever, retry.NoJitter), forever},
		{"exponential from the longest", retry.Exponential(forever, forever, retry.NoJitter), forever},
		{"fibonacci", retry.Fibonacci(1, 1), forever},
		{"fibonacci from the longest", retry.Fibonacci(forever, forever), forever},
		{"constant", retry.Constant(forever), forever},
		{"decorrelated at its cap", retry.Exponential(time.Second, time.Second, retry.Decorrelated), time.Second},
	} {
		if got := tt.b.Delay(math.MaxInt, math.MaxUint64); got != tt.want {
			t.Errorf("%s: the last retry after %v, want %v", tt.name, got, tt.want)
		}
		last := time.Duration(0)
		for n := 1; n <= 200; n++ {
			got := tt.b.Delay(n, 0)
			if got < last || got > tt.want {
				t.Errorf("%s: retry %d after %v, the one before after %v, at most %v", tt.name, n, got, last, tt.want)
			}
			last = got
		}
	}
	if got := retry.Exponential(1, forever, retry.NoJitter).Delay(63, 0); got != 1<<62 {
		t.Errorf("retry 63 of an exponential from 1 ns after %d ns, want 2^62", got)
	}
	if got := retry.Fibonacci(1, 1).Delay(92, 0); got != 7540113804746346429 {
		t.Errorf("retry 92 of Fibonacci from 1 ns after %d ns, want the 92nd number", got)
	}
}

// anyBackoff is any that can be made, sense or nonsense.
func anyBackoff(t *rapid.T) retry.Backoff {
	d := rapid.OneOf(
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
		rapid.Map(rapid.Int64Range(-10, 1000), func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }),
		rapid.SampledFrom([]time.Duration{0, 1, 2, math.MinInt64, math.MaxInt64, math.MaxInt64 - 1, time.Second}),
	)
	j := retry.Jitter(rapid.IntRange(0, 5).Draw(t, "jitter"))
	var b retry.Backoff
	switch rapid.IntRange(0, 5).Draw(t, "law") {
	case 0:
		b = retry.Exponential(d.Draw(t, "first"), d.Draw(t, "most"), j)
	case 1:
		b = retry.Fibonacci(d.Draw(t, "first"), d.Draw(t, "second")).WithJitter(j)
	case 2:
		b = retry.Constant(d.Draw(t, "constant")).WithJitter(j)
	case 3:
		b = retry.Steps(rapid.SliceOfN(d, 0, 4).Draw(t, "steps")...).WithJitter(j)
	case 4:
		b = retry.Gradient().WithJitter(j)
	}
	if rapid.Bool().Draw(t, "capped") {
		b = b.Capped(d.Draw(t, "cap"))
	}
	return b
}

func TestDelayIsPureAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBackoff(t)
		n := rapid.OneOf(rapid.Int(), rapid.IntRange(-1, 100)).Draw(t, "n")
		random := rapid.Uint64().Draw(t, "random")
		got := b.Delay(n, random)
		if got < 0 || got > b.Max() {
			t.Fatalf("%v: retry %d after %v, want 0 to %v", b, n, got, b.Max())
		}
		if again := b.Delay(n, random); again != got {
			t.Fatalf("%v: retry %d after %v, and asked again after %v", b, n, got, again)
		}
	})
}

func TestJitterBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "first"))
		most := time.Duration(rapid.Int64Range(int64(first), math.MaxInt64).Draw(t, "most"))
		n := rapid.IntRange(1, 200).Draw(t, "n")
		random := rapid.Uint64().Draw(t, "random")
		whole := retry.Exponential(first, most, retry.NoJitter).Delay(n, random)
		if got := retry.Exponential(first, most, retry.FullJitter).Delay(n, random); got < 0 || got > whole {
			t.Fatalf("full jitter makes %v of %v", got, whole)
		}
		if got := retry.Exponential(first, most, retry.EqualJitter).Delay(n, random); got < whole/2 || got > whole {
			t.Fatalf("equal jitter makes %v of %v", got, whole)
		}
		b := retry.Exponential(first, most, retry.Decorrelated)
		got := b.Delay(n, random)
		if got < first || got > most {
			t.Fatalf("decorrelated jitter makes %v, want %v to %v", got, first, most)
		}
		if n > 1 && n <= 64 {
			if before := b.Delay(n-1, random); before < most/3 && got > 3*before {
				t.Fatalf("decorrelated jitter makes %v after %v", got, before)
			}
		}
	})
}

// Half of all retries would come at the same moment if a delay were cut to its
// cap after the jitter, and all of them without any.
func TestJitterSpreads(t *testing.T) {
	const draws = 20_000
	for _, j := range []retry.Jitter{retry.FullJitter, retry.EqualJitter, retry.Decorrelated} {
		b := retry.Exponential(time.Second, 30*time.Second, j)
		for _, n := range []int{1, 3, 10, 100} {
			if j == retry.Decorrelated && n == 1 {
				continue // its first delay lies between the first and three times that
			}
			tenths := map[time.Duration]int{}
			high := retry.Exponential(time.Second, 30*time.Second, retry.NoJitter).Delay(n, 0)
			if j == retry.Decorrelated {
				high = b.Max()
			}
			for seed := range uint64(draws) {
				tenths[b.Delay(n, seed)*10/(high+1)]++
			}
			for tenth, count := range tenths {
				if count > draws/10*5/2 && j != retry.Decorrelated { // equal jitter has five tenths
					t.Errorf("%v: retry %d falls into tenth %d in %d of %d cases", j, n, tenth, count, draws)
				}
			}
			if len(tenths) < 5 {
				t.Errorf("%v: retry %d falls into %d tenths of its range", j, n, len(tenths))
			}
		}
	}
}

// One number for all retries of an operation spreads them too: it is not unlucky
// each time.
func TestOneRandomNumberForAllRetries(t *testing.T) {
	b := retry.Exponential(time.Second, time.Second, retry.FullJitter)
	for seed := range uint64(1000) {
		short, long := 0, 0
		for n := 1; n <= 40; n++ {
			if b.Delay(n, seed) < time.Second/2 {
				short++
			} else {
				long++
			}
		}
		if short < 4 || long < 4 {
			t.Errorf("seed %d: %d short delays and %d long ones", seed, short, long)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, b := range map[string]retry.Backoff{
		"exponential from zero":      retry.Exponential(0, time.Second, retry.NoJitter),
		"exponential from below":     retry.Exponential(-1, time.Second, retry.NoJitter),
		"cap below the first":        retry.Exponential(2, 1, retry.NoJitter),
		"no such jitter":             retry.Exponential(1, 1, retry.Decorrelated+1),
		"fibonacci from zero":        retry.Fibonacci(0, 1),
		"fibonacci that falls":       retry.Fibonacci(2, 1),
		"negative constant":          retry.Constant(-1),
		"no steps":                   retry.Steps(),
		"negative step":              retry.Steps(1, -1, 2),
		"negative cap":               retry.Fibonacci(1, 2).Capped(-1),
		"cap below the first, later": retry.Gradient().Capped(time.Millisecond),
		"decorrelated fibonacci":     retry.Fibonacci(1, 2).WithJitter(retry.Decorrelated),
	} {
		if err := b.Validate(); !errors.Is(err, retry.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestStepsAreCopied(t *testing.T) {
	d := []time.Duration{1, 2}
	b := retry.Steps(d...)
	d[0] = 100
	if got := b.Delay(1, 0); got != 1 {
		t.Errorf("a change of the caller's slice made a delay of %v", got)
	}
}

func TestString(t *testing.T) {
	for _, tt := range []struct {
		b    retry.Backoff
		want string
	}{
		{retry.Backoff{}, "exponential from 1s, at most 30s"},
		{retry.Exponential(time.Second, time.Minute, retry.EqualJitter), "exponential from 1s, at most 1m0s, equal jitter"},
		{retry.Fibonacci(time.Minute, 2*time.Minute), "Fibonacci from 1m0s, 2m0s"},
		{retry.Constant(time.Second), "constant 1s"},
		{retry.Steps(1, 2).Capped(1), "steps [1ns 2ns], at most 1ns"},
		{retry.Steps(1, 2).WithJitter(retry.FullJitter), "steps [1ns 2ns], full jitter"},
	} {
		if got := tt.b.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestDelayAllocatesNothing(t *testing.T) {
	b := retry.Exponential(time.Second, time.Hour, retry.Decorrelated)
	if n := testing.AllocsPerRun(1000, func() { b.Delay(50, 1) }); n != 0 {
		t.Errorf("Delay allocates %v times", n)
	}
}
