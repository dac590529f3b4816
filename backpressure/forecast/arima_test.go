package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func mustARIMA(t testing.TB, o *Options) *ARIMA {
	t.Helper()
	a, err := NewARIMA(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// walk is a series that ARIMA fits.
func walk(seed uint64, n int) []float64 {
	d := simulate(rand.New(rand.NewPCG(seed, 0)), [lags]float64{0.6, -0.2, 0.1, 0, 0.1}, n)
	for i := 1; i < n; i++ {
		d[i] += d[i-1]
	}
	return d
}

func TestOptionsRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, o := range []Options{
		{Steps: -1}, {Steps: 1001}, {Steps: math.MaxInt},
		{Confidence: -0.1}, {Confidence: 1}, {Confidence: 90}, {Confidence: nan}, {Confidence: inf},
		{MinPoints: -1}, {MinPoints: 14}, {MinPoints: 1001}, {MinPoints: math.MaxInt},
		{MaxPoints: -1}, {MaxPoints: 20}, {MaxPoints: 100_001},
	} {
		if _, err := NewARIMA(&o); !errors.Is(err, ErrInvalid) {
			t.Errorf("NewARIMA(%+v): %v", o, err)
		}
		if _, err := NewHolt(&o); !errors.Is(err, ErrInvalid) {
			t.Errorf("NewHolt(%+v): %v", o, err)
		}
	}
}

func TestSeriesRefused(t *testing.T) {
	with := func(v float64, at, n int) []float64 {
		s := walk(1, n)
		s[at] = v
		return s
	}
	constant := make([]float64, 50)
	for i := range constant {
		constant[i] = 7
	}
	huge := walk(1, 40)
	for i := range huge {
		huge[i] = math.Copysign(math.MaxFloat64, huge[i]-huge[max(0, i-1)])
	}
	for _, c := range []struct {
		name   string
		values []float64
		want   error
		says   string
	}{
		{"nil", nil, ErrTooShort, "0 values"},
		{"two", []float64{1, 2}, ErrTooShort, "2 values"},
		{"constant", constant, ErrConstant, "50 values of 7"},
		{"constant and short", constant[:4], ErrConstant, "4 values of 7"},
		{"zeros", make([]float64, 50), ErrConstant, "of 0"},
		{"NaN first", with(math.NaN(), 0, 50), ErrNotFinite, "value 1 of 50 is NaN"},
		{"NaN last", with(math.NaN(), 49, 50), ErrNotFinite, "value 50 of 50 is NaN"},
		{"infinity", with(math.Inf(-1), 3, 5), ErrNotFinite, "value 4 of 5 is -Inf"},
		{"forecast overflows", huge, ErrNotFinite, "larger unit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := mustARIMA(t, nil).Forecast(Series{Values: c.values})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v that says %q", err, c.want, c.says)
			}
			if f.Points != nil || f.Method != "" {
				t.Errorf("an error with a forecast: %+v", f)
			}
		})
	}
	if _, err := mustARIMA(t, nil).Forecast(Series{Values: walk(1, 50), Every: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative distance: %v", err)
	}
}

func TestShortSeriesSaySo(t *testing.T) {
	for _, c := range []struct {
		n      int
		method Method
		reason string
	}{
		{3, MethodLast, "3 values, arima(5,1,0) needs 30; 3 values, damped holt needs 10"},
		{9, MethodLast, "9 values, arima(5,1,0) needs 30; 9 values, damped holt needs 10"},
		{10, MethodHolt, "10 values, arima(5,1,0) needs 30"},
		{29, MethodHolt, "29 values, arima(5,1,0) needs 30"},
		{30, MethodARIMA, ""},
	} {
		f, err := mustARIMA(t, nil).Forecast(Series{Values: walk(2, c.n)})
		if err != nil || f.Method != c.method || f.Reason != c.reason {
			t.Errorf("%d values: %s because %q (%v), want %s because %q", c.n, f.Method, f.Reason, err, c.method, c.reason)
		}
		if len(f.Points) != 3 {
			t.Errorf("%d values: %d points", c.n, len(f.Points))
		}
	}
}

func TestExactRuleFallsBack(t *testing.T) {
	line, wave := make([]float64, 60), make([]float64, 60)
	for i := range line {
		line[i] = 1000 + 3*float64(i)
		wave[i] = math.Sin(float64(i) / 5)
	}
	for name, values := range map[string][]float64{"line": line, "wave": wave} {
		f, err := mustARIMA(t, nil).Forecast(Series{Values: values})
		if err != nil || f.Method != MethodHolt || !strings.Contains(f.Reason, "exact rule") {
			t.Errorf("%s: %s because %q (%v)", name, f.Method, f.Reason, err)
		}
	}
	f, err := mustARIMA(t, nil).Forecast(Series{Values: line})
	if err != nil {
		t.Fatal(err)
	}
	if v := f.Points[0].Value; v < line[59]+2 || v > line[59]+3 {
		t.Errorf("the line ends at %v and goes on with %v", line[59], v)
	}
}

// Another unit of the series is another unit of the forecast, and nothing else.
func TestUnitDoesNotMatter(t *testing.T) {
	values := walk(3, 80)
	for _, a := range []Forecaster{mustARIMA(t, nil), mustARIMA(t, &Options{MinPoints: 81})} {
		base, err := a.Forecast(Series{Values: values})
		if err != nil {
			t.Fatal(err)
		}
		for _, unit := range []float64{1e-300, 1e-6, 1000, 1e12, 1e300} {
			other := make([]float64, len(values))
			for i, v := range values {
				other[i] = v * unit
			}
			f, err := a.Forecast(Series{Values: other})
			if err != nil {
				t.Fatalf("unit %v: %v", unit, err)
			}
			for h, p := range f.Points {
				if b := base.Points[h]; !near(p.Value/unit, b.Value, 1e-5) || !near(p.SE/unit, b.SE, 1e-5) {
					t.Errorf("%s, unit %v, step %d: %v ± %v, want %v ± %v", f.Method, unit, h+1, p.Value/unit, p.SE/unit, b.Value, b.SE)
				}
			}
		}
	}
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*(1+math.Abs(b)) }

func TestStepsConfidenceAndTime(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := Series{Values: walk(4, 60), End: end, Every: time.Minute}
	f, err := mustARIMA(t, &Options{Steps: 7, Confidence: 0.85}).Forecast(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Points) != 7 || f.Confidence != 0.85 || f.Every != time.Minute {
		t.Errorf("%d points at %v every %v", len(f.Points), f.Confidence, f.Every)
	}
	for h, p := range f.Points {
		if want := end.Add(time.Duration(h+1) * time.Minute); !p.At.Equal(want) {
			t.Errorf("step %d at %v, want %v", h+1, p.At, want)
		}
		const z85 = 1.4395314709384563 // of a table
		if !near(p.High-p.Value, z85*p.SE, 1e-9) || !near(p.Value-p.Low, z85*p.SE, 1e-9) {
			t.Errorf("step %d: %v to %v around %v ± %v", h+1, p.Low, p.High, p.Value, p.SE)
		}
		if h > 0 && p.SE <= f.Points[h-1].SE {
			t.Errorf("step %d is surer than the one before", h+1)
		}
	}
	before := f.Points[0]
	wide, err := f.At(0.999)
	if err != nil || wide.Points[0].High <= before.High || f.Points[0] != before || wide.Points[0].Value != before.Value {
		t.Errorf("at 0.999: %+v (%v), was %+v, now %+v", wide.Points[0], err, before, f.Points[0])
	}
	for _, c := range []float64{0, 1, -1, 2, math.NaN()} {
		if _, err := f.At(c); !errors.Is(err, ErrInvalid) {
			t.Errorf("At(%v): %v", c, err)
		}
	}
	if s.Values[0] != walk(4, 60)[0] {
		t.Error("the series was changed")
	}
	if f, err := mustARIMA(t, nil).Forecast(Series{Values: s.Values}); err != nil || !f.Points[0].At.IsZero() {
		t.Errorf("a time out of nothing: %v (%v)", f.Points[0].At, err)
	}
	long := Series{Values: s.Values, End: end, Every: math.MaxInt64}
	if f, err := mustARIMA(t, nil).Forecast(long); err != nil || !f.Points[1].At.IsZero() {
		t.Errorf("a time beyond time: %v (%v)", f.Points[1].At, err)
	}
}

// What is older than MaxPoints has no influence, not even a NaN.
func TestMaxPoints(t *testing.T) {
	values := walk(5, 200)
	values[0] = math.NaN()
	a := mustARIMA(t, &Options{MaxPoints: 100})
	got, err := a.Forecast(Series{Values: values})
	if err != nil {
		t.Fatal(err)
	}
	want, err := a.Forecast(Series{Values: values[100:]})
	if err != nil {
		t.Fatal(err)
	}
	if got.Points[2] != want.Points[2] {
		t.Errorf("%+v, of the newest alone %+v", got.Points[2], want.Points[2])
	}
}

// On the process that the model describes, the intervals hold what they say, but
// for what the fit itself does not know, which weighs on short series.
func TestCoverage(t *testing.T) {
	a := mustARIMA(t, nil)
	for _, c := range []struct {
		n         int
		low, high float64
	}{{30, 0.75, 0.92}, {120, 0.86, 0.92}} {
		const n = 2000
		var inside [3]float64
		for seed := range uint64(n) {
			values := walk(100+seed, c.n+3)
			f, err := a.Forecast(Series{Values: values[:c.n]})
			if err != nil {
				t.Fatal(err)
			}
			for h, p := range f.Points {
				if v := values[c.n+h]; v >= p.Low && v <= p.High {
					inside[h] += 1. / n
				}
			}
		}
		t.Logf("%d values: %.3f inside", c.n, inside)
		for h, share := range inside {
			if share < c.low || share > c.high {
				t.Errorf("%d values, step %d: %.3f inside the interval of 0.90", c.n, h+1, share)
			}
		}
	}
}

// With the weights of the process that made the series, the intervals hold what
// they say; with fitted ones they do on long series, and less on short ones.
func TestHoltCoverage(t *testing.T) {
	h, err := NewHolt(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n         int
		low, high float64 // of the share inside, by fitted weights
	}{{12, 0.70, 0.90}, {40, 0.80, 0.92}, {400, 0.87, 0.93}} {
		rng := rand.New(rand.NewPCG(9, 9))
		const n = 2000
		var fitted, known float64
		for range n {
			y := damped(rng, c.n+3)
			f, err := h.Forecast(Series{Values: y[:c.n]})
			if err != nil || f.Method != MethodHolt || f.Reason != "" {
				t.Fatalf("%s, %q: %v", f.Method, f.Reason, err)
			}
			p, last := f.Points[2], y[c.n+2]
			if last >= p.Low && last <= p.High {
				fitted += 1. / n
			}
			const z90 = 1.6448536269514722
			if v, se := process.predict(y[:c.n], 3); math.Abs(last-v[2]) <= z90*se[2] {
				known += 1. / n
			}
		}
		if fitted < c.low || fitted > c.high {
			t.Errorf("%d values: %.3f inside by fitted weights, not %v to %v", c.n, fitted, c.low, c.high)
		}
		if known < 0.87 || known > 0.93 {
			t.Errorf("%d values: %.3f inside by the weights of the process", c.n, known)
		}
	}
}

var process = holt{level: 0.4, trend: 0.2, damping: 0.9}

func damped(rng *rand.Rand, n int) []float64 {
	level, trend, y := 100.0, 0.5, make([]float64, n)
	for i := range y {
		e := rng.NormFloat64()
		y[i] = level + process.damping*trend + e
		level += process.damping*trend + process.level*e
		trend = process.damping*trend + process.level*process.trend*e
	}
	return y
}

func BenchmarkFit120(b *testing.B) {
	a := mustARIMA(b, nil)
	s := Series{Values: walk(6, 120)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Forecast(s); err != nil {
			b.Fatal(err)
		}
	}
}

// Every window of the fixture: what is hard to fit, too.
func BenchmarkFixture(b *testing.B) {
	a := mustARIMA(b, nil)
	for _, w := range windows(b, "testdata/statsmodels.json") {
		if len(w.Values) != 120 {
			continue
		}
		b.Run(w.Series, func(b *testing.B) {
			for b.Loop() {
				if _, err := a.Forecast(Series{Values: w.Values}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
