package forecast

import (
	"fmt"
	"math"
)

// An ARIMA forecasts a series as an ARIMA(5,1,0) without constant: each change of
// the series is a weighted sum of the last five and an error. Make it with
// [NewARIMA]. It suits the next few steps; in the long run its forecast is a level.
//
// The model needs [Options].MinPoints values. Shorter series are answered by
// [Holt], which answers the shortest ones with the last value, and [Forecast].Reason
// says so. So are series that follow an exact rule, a straight line for instance:
// their likelihood has no maximum.
type ARIMA struct{ opts Options }

// NewARIMA returns a forecaster. Nil options mean defaults. It fails with
// [ErrInvalid] on an option outside its range.
func NewARIMA(opts *Options) (*ARIMA, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &ARIMA{o}, nil
}

// Forecast predicts the next values of a series. See [Forecaster].
func (a *ARIMA) Forecast(s Series) (Forecast, error) {
	w, err := newSample(s, a.opts.MaxPoints)
	if err != nil {
		return Forecast{}, err
	}
	if len(w.values) < a.opts.MinPoints {
		return a.instead(s, w, fmt.Sprintf("%d values, %s needs %d", len(w.values), MethodARIMA, a.opts.MinPoints))
	}
	d, unit := differences(w.values)
	m, ok := fit(d)
	if !ok {
		return a.instead(s, w, fmt.Sprintf("the series follows an exact rule, %s has no best fit", MethodARIMA))
	}
	values, se := m.predict(w.values[len(w.values)-1], unit, d, a.opts.Steps)
	return w.forecast(s, a.opts.Confidence, MethodARIMA, values, se)
}

func (a *ARIMA) instead(s Series, w sample, why string) (Forecast, error) {
	f, err := smooth(s, w, a.opts)
	if err != nil {
		return Forecast{}, err
	}
	if f.Reason != "" {
		why += "; " + f.Reason
	}
	f.Reason = why
	return f, nil
}

// differences returns the changes of a sample in units of their root mean square,
// and that unit.
func differences(values []float64) (d []float64, unit float64) {
	d = make([]float64, len(values)-1)
	var largest float64
	for i := range d {
		d[i] = values[i+1] - values[i]
		largest = max(largest, math.Abs(d[i]))
	}
	var sum float64
	for _, x := range d {
		sum += (x / largest) * (x / largest)
	}
	unit = largest * math.Sqrt(sum/float64(len(d)))
	for i := range d {
		d[i] /= unit
	}
	return d, unit
}

// A model is a fitted autoregression of the differences.
type model struct {
	phi    [lags]float64
	sigma2 float64 // of the errors, with the differences in their unit
	loglik float64
}

// predict goes on from the last value. A step's error is the sum of the errors
// since, each weighted with what it has added to the level by then.
func (m model) predict(last, unit float64, d []float64, steps int) (values, se []float64) {
	values, se = make([]float64, steps), make([]float64, steps)
	var recent, weight [lags]float64 // newest first
	for i := range lags {
		recent[i] = d[len(d)-1-i]
	}
	var level, sum, variance float64
	next, psi := m.next(recent), 1.0
	for h := range steps {
		level += next
		sum += psi
		variance += sum * sum
		values[h] = last + unit*level
		se[h] = unit * math.Sqrt(m.sigma2*variance)
		recent, weight = shift(recent, next), shift(weight, psi)
		next, psi = m.next(recent), m.next(weight)
	}
	return values, se
}

func (m model) next(recent [lags]float64) (x float64) {
	for i, phi := range m.phi {
		x += phi * recent[i]
	}
	return x
}

func shift(recent [lags]float64, x float64) [lags]float64 {
	copy(recent[1:], recent[:lags-1])
	recent[0] = x
	return recent
}
