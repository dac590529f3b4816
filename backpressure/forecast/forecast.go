// Package forecast says what a load is about to be, how sure that is, and whether
// to add capacity before it arrives.
//
// A [Forecaster] takes a series of equally spaced measurements, a backlog or an
// arrival rate, and predicts its next values with intervals. [ARIMA] is for the
// next few steps, [Seasonal] for the next hours; an [Advisor] compares what they
// say with the capacity there is.
//
//	f, err := arima.Forecast(forecast.Series{Values: backlog, End: now, Every: time.Minute})
//	if err != nil {
//		return err // nothing was predicted, so nothing is advised
//	}
//	advice, err := advisor.Advise(capacity, f)
//
// # What is promised
//
//  1. The ARIMA(5,1,0) is the exact maximum likelihood of the model, of which the
//     start of the series is a part, and the fit is the same whatever the unit of
//     the series is.
//  2. Its parameters are always stationary: a forecast does not explode.
//  3. A forecast says by which [Method] it was made, and why, when that is not
//     the one asked for.
//  4. An error comes with no forecast. A forecast holds finite numbers only.
//  5. Advice can raise a level and never lowers one.
//  6. A forecast is a function of its arguments: there is no state, no clock, no
//     goroutine and no I/O. All types are safe for concurrent use.
//
// # What is not
//
// An interval covers what the model does not explain, at the variance that was
// seen. It takes the errors as normal and the fitted parameters as true, so on
// short series, on bursts and where the load changes its nature, more values fall
// outside than the confidence says: of series drawn from the model itself, an
// interval of 90 % held 88 % of the values after 120 points and 81 % after 30. A forecast is not clipped at zero, though a
// backlog is never negative: clipping the values would leave intervals that do not
// belong to them. Missing values are not filled in: the series is refused.
//
// # Sources
//
// The exact likelihood of an autoregression as a quadratic form: Box, Jenkins,
// Reinsel, Time Series Analysis, on the estimation of autoregressive processes.
// Stationarity by partial autocorrelations: Barndorff-Nielsen and Schou, On the
// parametrization of autoregressive models by partial autocorrelations, 1973.
// Damped Holt and its intervals: Gardner and McKenzie, Forecasting trends in time
// series, 1985; Hyndman, Koehler, Ord, Snyder, Forecasting with Exponential
// Smoothing, 2008. Seasonal naive: Hyndman and Athanasopoulos, Forecasting:
// Principles and Practice (https://otexts.com/fpp3/simple-methods.html).
package forecast

import (
	"math"
	"time"
)

// A Forecaster predicts the next values of a series. It keeps and changes nothing
// of its argument. An error means that nothing was predicted; it wraps one of
// [ErrInvalid], [ErrTooShort], [ErrConstant] and [ErrNotFinite].
type Forecaster interface {
	Forecast(Series) (Forecast, error)
}

// A Series is a load, measured at equal distances in time.
type Series struct {
	Values []float64     // oldest first, all finite
	End    time.Time     // of the last value; Seasonal needs it, the others do not
	Every  time.Duration // between two values; Seasonal needs it, the others do not
}

// A Forecast is what a Forecaster predicts.
type Forecast struct {
	Points     []Point       // one for each step, the next first
	Method     Method        // that made it
	Reason     string        // why Method is not the one asked for; empty if it is
	Confidence float64       // of Low and High
	Every      time.Duration // of the series; zero: not known
}

// A Point is one predicted value.
type Point struct {
	At        time.Time // zero if the series has no End or no Every
	Value     float64   // as likely too low as too high
	SE        float64   // standard error
	Low, High float64   // the interval around Value
}

// A Method is a way to make a forecast.
type Method string

// The methods of this package.
const (
	MethodARIMA    Method = "arima(5,1,0)"
	MethodHolt     Method = "damped holt"
	MethodLast     Method = "last value"
	MethodSeasonal Method = "seasonal naive"
)

// At returns the same forecast with intervals of another confidence, which is
// above 0 and below 1. Nothing is fitted again. It fails with [ErrInvalid].
func (f Forecast) At(confidence float64) (Forecast, error) {
	if !(confidence > 0 && confidence < 1) {
		return Forecast{}, invalid("confidence %v, not above 0 and below 1", confidence)
	}
	points := make([]Point, len(f.Points))
	copy(points, f.Points)
	f.Points, f.Confidence = points, confidence
	if !f.spread() {
		return Forecast{}, beyond()
	}
	return f, nil
}

// spread sets the intervals, and says whether all numbers are finite.
func (f *Forecast) spread() bool {
	z := math.Sqrt2 * math.Erfinv(f.Confidence)
	for i := range f.Points {
		p := &f.Points[i]
		p.Low, p.High = p.Value-z*p.SE, p.Value+z*p.SE
		if !finite(p.Value) || !finite(p.SE) || !finite(p.Low) || !finite(p.High) {
			return false
		}
	}
	return true
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
