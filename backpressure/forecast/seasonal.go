package forecast

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// A Seasonal forecasts hours ahead: each value is the one measured at the same
// time of day a season ago, a week by default. Make it with [NewSeasonal].
//
// Days that are known to differ stand in its calendar. A day of a kind is forecast
// from the latest day of the same kind in the series; if there is none, from an
// ordinary day times [Day].Factor. An ordinary day is never forecast from a known
// one, so the week after a festival is forecast from the week before it. Times of
// day are clock times in Location, also where summer time begins or ends.
//
// The standard error is the root mean square of the errors that the same rule
// makes within the series, over its newest 10,000 values. It is the same for all
// steps. Longer series than Options.MaxPoints are cut to the newest.
type Seasonal struct {
	opts     SeasonalOptions
	calendar calendar
}

// SeasonalOptions set up a [Seasonal]. The zero value of each field is a working
// default.
type SeasonalOptions struct {
	// Ahead is how far to look, in whole values of the series, rounded up: at most
	// 10,000 of them. Zero means 2 hours.
	Ahead time.Duration

	// Days is the length of the season. Zero means 7; the most is 366.
	Days int

	// Confidence is the share of values that the intervals are meant to hold, above
	// 0 and below 1. Zero means 0.90.
	Confidence float64

	// Location is where a day begins and ends. Nil means UTC.
	Location *time.Location

	// Calendar lists the known days, in any order, each once: past ones too, if
	// they are in the series. At most 10,000. It is copied. Nil means none.
	Calendar []Day

	// MaxPoints is how many of the newest values are looked at. Zero means 100,000,
	// which is the most.
	MaxPoints int
}

const (
	maxAhead       = 10_000 // values
	maxCheckedBack = 10_000 // values whose forecast is compared with them
	leastChecked   = 10
)

// NewSeasonal returns a forecaster. Nil options mean defaults. It fails with
// [ErrInvalid] on an option outside its range.
func NewSeasonal(opts *SeasonalOptions) (*Seasonal, error) {
	var o SeasonalOptions
	if opts != nil {
		o = *opts
	}
	o.Ahead = cmp.Or(o.Ahead, 2*time.Hour)
	o.Days = cmp.Or(o.Days, 7)
	o.Confidence = cmp.Or(o.Confidence, 0.90)
	o.Location = cmp.Or(o.Location, time.UTC)
	o.MaxPoints = cmp.Or(o.MaxPoints, maxMaxPoints)
	switch {
	case o.Ahead < 0:
		return nil, invalid("looking %v ahead", o.Ahead)
	case o.Days < 1 || o.Days > 366:
		return nil, invalid("a season of %d days, not 1 to 366", o.Days)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return nil, invalid("confidence %v, not above 0 and below 1", o.Confidence)
	case o.MaxPoints < 1 || o.MaxPoints > maxMaxPoints:
		return nil, invalid("at most %d points, not 1 to %d", o.MaxPoints, maxMaxPoints)
	}
	c, err := newCalendar(o.Calendar)
	if err != nil {
		return nil, err
	}
	o.Calendar = nil
	return &Seasonal{o, c}, nil
}

// Forecast predicts the next values of a series, which needs an End and an Every
// of at most 24 hours. See [Forecaster]. It fails with [ErrTooShort] if a value
// has no counterpart in the series, or fewer than 10 errors are there to learn
// from: a season and a bit is the least, more than two are better.
func (f *Seasonal) Forecast(s Series) (Forecast, error) {
	if s.Every <= 0 || s.Every > 24*time.Hour {
		return Forecast{}, invalid("a distance of %v between values, not above 0 and at most 24h", s.Every)
	}
	if s.End.IsZero() {
		return Forecast{}, invalid("a series without End: the time of its values is not known")
	}
	steps := (f.opts.Ahead-1)/s.Every + 1
	if steps > maxAhead {
		return Forecast{}, invalid("%v ahead is %d values of the series, at most %d", f.opts.Ahead, steps, maxAhead)
	}
	w, err := newSample(s, f.opts.MaxPoints)
	if err != nil {
		return Forecast{}, err
	}
	p := past{Seasonal: f, values: w.values, every: s.Every, end: s.End.Round(0).In(f.opts.Location)}
	p.start = p.end.Add(-time.Duration(len(w.values)-1) * s.Every)
	sigma, err := p.sigma()
	if err != nil {
		return Forecast{}, err
	}
	values, se := make([]float64, steps), make([]float64, steps)
	for i := range values {
		at := p.end.Add(time.Duration(i+1) * s.Every)
		v, ok := p.predict(at)
		if !ok {
			return Forecast{}, fmt.Errorf("%w: nothing in %d values is comparable with %v; nothing was forecast",
				ErrTooShort, len(w.values), at.Format(time.DateTime))
		}
		values[i], se[i] = v, sigma
	}
	return w.forecast(s, f.opts.Confidence, MethodSeasonal, values, se)
}

// past is a series that can be asked for the value at a time.
type past struct {
	*Seasonal
	values     []float64
	start, end time.Time // in Location
	every      time.Duration
}

// predict uses only values from before a time.
func (p *past) predict(t time.Time) (float64, bool) {
	day, known := p.calendar.days[dateOf(t)]
	if !known {
		return p.ordinary(t)
	}
	for _, date := range p.calendar.kinds[day.Kind] { // newest first
		if !date.before(dateOf(t)) {
			continue
		}
		then := time.Date(date.year, date.month, date.day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location())
		if then.Before(p.start) {
			break
		}
		if v, ok := p.at(then); ok {
			return v, true
		}
	}
	v, ok := p.ordinary(t)
	return v * day.Factor, ok
}

// ordinary is the value at the same clock time some seasons before, on a day that
// the calendar does not know.
func (p *past) ordinary(t time.Time) (float64, bool) {
	// Whole seasons that lie ahead of the end need not be tried one by one.
	skip := max(0, int(t.Sub(p.end)/(24*time.Hour))/p.opts.Days-1)
	for back := p.opts.Days * (1 + skip); ; back += p.opts.Days {
		then := t.AddDate(0, 0, -back)
		if then.Before(p.start) {
			return 0, false
		}
		if _, known := p.calendar.days[dateOf(then)]; known {
			continue
		}
		if v, ok := p.at(then); ok {
			return v, true
		}
	}
}

// at is the value nearest to a time, if it is within the series.
func (p *past) at(t time.Time) (float64, bool) {
	since := t.Sub(p.start)
	if since < 0 || t.After(p.end) {
		return 0, false
	}
	i := int(since / p.every)
	if since%p.every > p.every/2 {
		i++
	}
	return p.values[min(i, len(p.values)-1)], true
}

// sigma is the root mean square of the errors within the series.
func (p *past) sigma() (float64, error) {
	var sum float64
	var n int
	for i := max(0, len(p.values)-maxCheckedBack); i < len(p.values); i++ {
		v, ok := p.predict(p.start.Add(time.Duration(i) * p.every))
		if !ok {
			continue
		}
		sum += (p.values[i] - v) * (p.values[i] - v)
		n++
	}
	if n < leastChecked {
		return 0, fmt.Errorf("%w: %d of %d values have one a season of %d days before, %d must; nothing was forecast",
			ErrTooShort, n, len(p.values), p.opts.Days, leastChecked)
	}
	return math.Sqrt(sum / float64(n)), nil
}
