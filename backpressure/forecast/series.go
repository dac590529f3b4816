package forecast

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Options set up [NewARIMA] and [NewHolt]. The zero value of each field is a
// working default.
type Options struct {
	// Steps is how many values to predict. Zero means 3; the most is 1,000.
	Steps int

	// Confidence is the share of values that the intervals are meant to hold, above
	// 0 and below 1. Zero means 0.90.
	Confidence float64

	// MinPoints is the length of the shortest series that is fitted by ARIMA; Holt
	// ignores it. Zero means 30: the fit is tested against a reference from there
	// on. The least is 15, which leaves two differences for each estimated number.
	MinPoints int

	// MaxPoints is how many of the newest values are looked at; what is older has no
	// influence. It bounds the work. Zero means 1,000; the most is 100,000.
	MaxPoints int
}

const (
	leastPoints  = 15
	maxSteps     = 1_000
	maxMaxPoints = 100_000
)

func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Steps = cmp.Or(c.Steps, 3)
	c.Confidence = cmp.Or(c.Confidence, 0.90)
	c.MinPoints = cmp.Or(c.MinPoints, 30)
	c.MaxPoints = cmp.Or(c.MaxPoints, 1_000)
	switch {
	case c.Steps < 1 || c.Steps > maxSteps:
		return c, invalid("%d steps, not 1 to %d", c.Steps, maxSteps)
	case !(c.Confidence > 0 && c.Confidence < 1):
		return c, invalid("confidence %v, not above 0 and below 1", c.Confidence)
	case c.MaxPoints < 1 || c.MaxPoints > maxMaxPoints:
		return c, invalid("at most %d points, not 1 to %d", c.MaxPoints, maxMaxPoints)
	case c.MinPoints < leastPoints || c.MinPoints > c.MaxPoints:
		return c, invalid("at least %d points, not %d to the most, which is %d", c.MinPoints, leastPoints, c.MaxPoints)
	}
	return c, nil
}

// A sample is the part of a series that is looked at, as exact multiples of a
// power of two that brings the largest to between 1/2 and 1. No sum or square of
// it overflows, whatever the unit of the series is.
type sample struct {
	values []float64
	exp    int
}

// newSample refuses what no method can forecast.
func newSample(s Series, most int) (sample, error) {
	if s.Every < 0 {
		return sample{}, invalid("a distance of %v between values", s.Every)
	}
	from := max(0, len(s.Values)-most)
	values := make([]float64, len(s.Values)-from)
	copy(values, s.Values[from:])
	var largest float64
	for i, v := range values {
		if !finite(v) {
			return sample{}, fmt.Errorf("%w: value %d of %d is %v; nothing was forecast", ErrNotFinite, from+i+1, len(s.Values), v)
		}
		largest = max(largest, math.Abs(v))
	}
	if len(values) < lastNeeds {
		return sample{}, tooShort(len(values), lastNeeds, "the simplest method")
	}
	if constant(values) {
		return sample{}, fmt.Errorf("%w: %d values of %v; nothing was forecast, see whether the gauge is stuck",
			ErrConstant, len(values), values[0])
	}
	_, exp := math.Frexp(largest)
	for i, v := range values {
		values[i] = math.Ldexp(v, -exp)
	}
	return sample{values, exp}, nil
}

func constant(values []float64) bool {
	for _, v := range values {
		if v != values[0] {
			return false
		}
	}
	return true
}

// forecast puts predicted values and standard errors, in units of the sample,
// into a Forecast.
func (w sample) forecast(s Series, confidence float64, m Method, values, se []float64) (Forecast, error) {
	f := Forecast{Points: make([]Point, len(values)), Method: m, Confidence: confidence, Every: s.Every}
	for i := range values {
		f.Points[i] = Point{At: s.after(i + 1), Value: math.Ldexp(values[i], w.exp), SE: math.Ldexp(se[i], w.exp)}
	}
	if !f.spread() {
		return Forecast{}, beyond()
	}
	return f, nil
}

// after is the time of a step, or zero if the series does not say.
func (s Series) after(step int) time.Time {
	if s.End.IsZero() || s.Every <= 0 || s.Every > math.MaxInt64/time.Duration(step) {
		return time.Time{}
	}
	return s.End.Add(time.Duration(step) * s.Every)
}
