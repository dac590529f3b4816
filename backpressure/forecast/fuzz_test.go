package forecast

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"
)

// Whatever the series is made of, the answer is an error of the four with no
// forecast, or finite numbers in order.
func FuzzForecast(f *testing.F) {
	for _, values := range [][]float64{
		walk(1, 50), walk(2, 12), {1, 2, 3}, make([]float64, 40),
		{math.NaN(), 1, 2}, {math.Inf(1), 1, 2, 3},
		{math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64, math.SmallestNonzeroFloat64},
	} {
		var b []byte
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		f.Add(b, uint16(3), 0.9, int64(time.Minute), int64(1_790_000_000), 100.0, 0.8, 0.3, 0.5, 0.0, 90.0, 120.0)
		f.Add(b, uint16(0), 0.0, int64(0), int64(0), math.SmallestNonzeroFloat64, 0.8, 0.3, 0.5, 0.0, 1.0, math.MaxFloat64)
		f.Add(b, uint16(1), 0.5, int64(-1), int64(-1), math.MaxFloat64, 1.0, 0.3, 1.0, 0.0, 1.0, math.Inf(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, steps uint16, confidence float64, every, end int64, capacity, threshold, least, most, limit, v, w float64) {
		fuzzAdvise(t, capacity, threshold, least, most, limit, v, w)
		var values []float64
		for ; len(b) >= 8 && len(values) < 300; b = b[8:] {
			values = append(values, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		s := Series{Values: values, Every: time.Duration(every), End: time.Unix(end, 0)}
		o := &Options{Steps: int(steps), Confidence: confidence, MinPoints: 15}
		a, err := NewARIMA(o)
		if err != nil {
			return
		}
		h, err := NewHolt(o)
		if err != nil {
			t.Fatal(err)
		}
		season, err := NewSeasonal(&SeasonalOptions{Days: 1, Confidence: confidence})
		if err != nil {
			t.Fatal(err)
		}
		advisor := mustAdvisor(t, nil)
		for _, forecaster := range []Forecaster{a, h, season} {
			f, err := forecaster.Forecast(s)
			if err != nil {
				known := errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooShort) || errors.Is(err, ErrConstant) || errors.Is(err, ErrNotFinite)
				if !known || f.Points != nil || f.Method != "" || f.Reason != "" {
					t.Fatalf("%v with %+v", err, f)
				}
				continue
			}
			if len(f.Points) == 0 || f.Method == "" {
				t.Fatalf("neither an error nor a forecast: %+v", f)
			}
			for i, p := range f.Points {
				if !finite(p.Value) || !finite(p.SE) || !finite(p.Low) || !finite(p.High) || p.SE < 0 || p.Low > p.Value || p.High < p.Value {
					t.Fatalf("%s, step %d: %+v", f.Method, i+1, p)
				}
			}
			if a, err := advisor.Advise(1, f); err != nil || !finite(a.Peak) || !finite(a.Capacity) || a.Scale < 0 || a.Scale > 0.5 || a.Lead < 0 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	})
}

// Any capacity and any forecast are answered with an error or with sane advice.
func fuzzAdvise(t *testing.T, capacity, threshold, least, most, limit, v, w float64) {
	a, err := NewAdvisor(&AdvisorOptions{Threshold: threshold, MinScale: least, MaxScale: most, MaxCapacity: limit})
	if err != nil {
		return
	}
	got, err := a.Advise(capacity, of(time.Minute, v, w))
	if err != nil {
		if got != (Advice{}) || !errors.Is(err, ErrInvalid) {
			t.Fatalf("%v with %+v", err, got)
		}
		return
	}
	if !(got.Scale >= 0 && got.Scale <= 1) || !(got.Capacity >= capacity) || math.IsInf(got.Capacity, 0) ||
		limit > 0 && got.Capacity > max(capacity, limit)*(1+1e-12) || got.Exceeds != (max(v, w) > got.Mark) {
		t.Fatalf("%+v", got)
	}
}
