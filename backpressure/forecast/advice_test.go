package forecast

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func mustAdvisor(t testing.TB, o *AdvisorOptions) *Advisor {
	t.Helper()
	a, err := NewAdvisor(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func of(every time.Duration, values ...float64) Forecast {
	f := Forecast{Method: MethodARIMA, Every: every, Confidence: 0.9}
	for _, v := range values {
		f.Points = append(f.Points, Point{Value: v, SE: 1, Low: v - 10, High: v + 10})
	}
	return f
}

func TestAdvise(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		name     string
		o        AdvisorOptions
		capacity float64
		f        Forecast
		want     Advice // but for Mark, Reason
	}{
		{"below the mark", AdvisorOptions{}, 100, of(minute, 10, 50, 79), Advice{Peak: 79, Capacity: 100}},
		{"at the mark", AdvisorOptions{}, 100, of(minute, 80, 80, 80), Advice{Peak: 80, Capacity: 100}},
		{"a little above: the least step", AdvisorOptions{}, 100, of(minute, 10, 81, 70),
			Advice{Exceeds: true, Peak: 81, Step: 2, Lead: 2 * minute, Scale: 0.30, Capacity: 130}},
		{"what is needed", AdvisorOptions{}, 100, of(minute, 112, 90, 90),
			Advice{Exceeds: true, Peak: 112, Step: 1, Lead: minute, Scale: 0.40, Capacity: 140}},
		{"far above: the greatest step", AdvisorOptions{}, 100, of(minute, 10, 10, 500),
			Advice{Exceeds: true, Peak: 500, Step: 3, Lead: 3 * minute, Scale: 0.50, Capacity: 150, Short: true}},
		{"capped", AdvisorOptions{MaxCapacity: 110}, 100, of(minute, 85),
			Advice{Exceeds: true, Peak: 85, Step: 1, Lead: minute, Scale: 0.10, Capacity: 110, Capped: true}},
		{"capped at what there is", AdvisorOptions{MaxCapacity: 90}, 100, of(minute, 85),
			Advice{Exceeds: true, Peak: 85, Step: 1, Lead: minute, Scale: 0, Capacity: 100, Capped: true, Short: true}},
		{"other steps", AdvisorOptions{Threshold: 0.5, MinScale: 0.1, MaxScale: 1}, 100, of(minute, 90),
			Advice{Exceeds: true, Peak: 90, Step: 1, Lead: minute, Scale: 0.80, Capacity: 180}},
		{"early, by the upper end", AdvisorOptions{Bound: OnHigh}, 100, of(minute, 75),
			Advice{Exceeds: true, Peak: 85, Step: 1, Lead: minute, Scale: 0.30, Capacity: 130}},
		{"late, by the lower end", AdvisorOptions{Bound: OnLow}, 100, of(minute, 85), Advice{Peak: 75, Capacity: 100}},
		{"distance not known", AdvisorOptions{}, 100, of(0, 10, 85),
			Advice{Exceeds: true, Peak: 85, Step: 2, Scale: 0.30, Capacity: 130}},
		{"a negative forecast", AdvisorOptions{}, 100, of(minute, -5, -10), Advice{Peak: -5, Capacity: 100}},
		{"an endless distance", AdvisorOptions{}, 100, of(math.MaxInt64, 10, 85),
			Advice{Exceeds: true, Peak: 85, Step: 2, Lead: math.MaxInt64, Scale: 0.30, Capacity: 130}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := mustAdvisor(t, &c.o).Advise(c.capacity, c.f)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Reason != "") != got.Exceeds {
				t.Errorf("reason %q", got.Reason)
			}
			threshold := c.o.Threshold
			if threshold == 0 {
				threshold = 0.8
			}
			if !near(got.Mark, threshold*c.capacity, 1e-12) {
				t.Errorf("mark %v", got.Mark)
			}
			if !near(got.Scale, c.want.Scale, 1e-9) || !near(got.Capacity, c.want.Capacity, 1e-9) {
				t.Errorf("add %v to %v, want %v to %v", got.Scale, got.Capacity, c.want.Scale, c.want.Capacity)
			}
			got.Reason, got.Mark, got.Scale, got.Capacity = "", 0, c.want.Scale, c.want.Capacity
			if got != c.want {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
		})
	}
}

// The highest forecast decides how much, the earliest by when.
func TestAdviseOnSeveral(t *testing.T) {
	soon, high := of(time.Minute, 10, 85), of(time.Hour, 118)
	high.Method = MethodSeasonal
	for _, fs := range [][]Forecast{{soon, high}, {high, soon}} {
		a, err := mustAdvisor(t, nil).Advise(100, fs...)
		if err != nil || a.Peak != 118 || a.Step != 2 || a.Lead != 2*time.Minute || !near(a.Scale, 0.475, 1e-9) {
			t.Errorf("%+v (%v)", a, err)
		}
		if !strings.Contains(a.Reason, string(MethodSeasonal)) {
			t.Errorf("reason %q", a.Reason)
		}
	}
}

func TestAdviceNeverLowersALevel(t *testing.T) {
	for _, exceeds := range []bool{false, true} {
		for level := -1; level <= 4; level++ {
			for to := -1; to <= 4; to++ {
				got := Advice{Exceeds: exceeds}.Raise(level, to)
				want := level
				if exceeds && to > level {
					want = to
				}
				if got != want || got < level {
					t.Errorf("exceeds %v, level %d to %d: %d", exceeds, level, to, got)
				}
			}
		}
	}
}

func TestAdvisorRefuses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, o := range []AdvisorOptions{
		{Threshold: -1}, {Threshold: 1.1}, {Threshold: nan}, {Threshold: inf},
		{Bound: 3}, {MinScale: -1}, {MinScale: 0.6}, {MaxScale: 0.2}, {MaxScale: 1.1}, {MinScale: nan}, {MaxScale: nan},
		{MaxCapacity: -1}, {MaxCapacity: nan}, {MaxCapacity: inf},
	} {
		if _, err := NewAdvisor(&o); !errors.Is(err, ErrInvalid) {
			t.Errorf("NewAdvisor(%+v): %v", o, err)
		}
	}
	a := mustAdvisor(t, nil)
	for _, capacity := range []float64{0, -1, nan, inf, math.Inf(-1)} {
		if got, err := a.Advise(capacity, of(1, 5)); !errors.Is(err, ErrInvalid) || got != (Advice{}) {
			t.Errorf("capacity %v: %+v, %v", capacity, got, err)
		}
	}
	for name, fs := range map[string][]Forecast{
		"none": nil, "empty": {{}}, "NaN": {of(1, 500, nan)}, "infinity": {of(1, inf)}, "the second is empty": {of(1, 500), {}},
	} {
		if got, err := a.Advise(100, fs...); !errors.Is(err, ErrInvalid) || got != (Advice{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
