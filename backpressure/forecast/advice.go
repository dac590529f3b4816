package forecast

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// An Advisor compares forecasts with the capacity there is. Make it with
// [NewAdvisor].
//
// It has no memory. Whoever follows its advice waits until the new capacity is in
// service before the next one is followed: the forecast does not know of capacity
// that is on its way, and steps of 50 % would pile up.
type Advisor struct{ opts AdvisorOptions }

// AdvisorOptions set up an [Advisor]. The zero value of each field is a working
// default.
type AdvisorOptions struct {
	// Threshold is the share of the capacity above which a forecast is too much.
	// Zero means 0.8; above 0 and at most 1.
	Threshold float64

	// Bound says which number of a forecast is compared. The zero value is OnValue.
	Bound Bound

	// MinScale and MaxScale bound a step, as shares of the capacity: within them it
	// is what the forecast needs. Zero means 0.30 and 0.50; above 0 and at most 1.
	MinScale, MaxScale float64

	// MaxCapacity is the most that is ever advised. Zero means not stated: only
	// MaxScale bounds a step.
	MaxCapacity float64
}

// A Bound is a number of a [Point].
type Bound uint8

const (
	// OnValue compares the predicted value.
	OnValue Bound = iota
	// OnHigh compares the upper end of the interval: acts early, and more often in
	// vain.
	OnHigh
	// OnLow compares the lower end: acts when it is nearly certain, and later.
	OnLow
)

// Advice is what an Advisor says about the next steps. The zero Advice is to do
// nothing.
type Advice struct {
	Exceeds  bool          // a forecast is above the mark
	Mark     float64       // Threshold times the capacity
	Peak     float64       // the highest number compared, in any step
	Step     int           // the first above the mark; the next value is step 1
	Lead     time.Duration // from the end of the series to that step; zero: distance not known
	Scale    float64       // share of the capacity to add: 0, or MinScale to MaxScale, or less if Capped
	Capacity float64       // with that added
	Capped   bool          // MaxCapacity allows less than the step
	Short    bool          // Capacity does not bring Peak to the mark: add more later, or shed
	Reason   string        // one sentence for a log; empty if Exceeds is false
}

// Raise returns the level to be at: the level given, or to if a forecast is above
// the mark and to is higher. It never returns a lower level than the one given.
func (a Advice) Raise(level, to int) int {
	if a.Exceeds {
		return max(level, to)
	}
	return level
}

// NewAdvisor returns an advisor. Nil options mean defaults. It fails with
// [ErrInvalid] on an option outside its range.
func NewAdvisor(opts *AdvisorOptions) (*Advisor, error) {
	var o AdvisorOptions
	if opts != nil {
		o = *opts
	}
	o.Threshold = cmp.Or(o.Threshold, 0.8)
	o.MinScale = cmp.Or(o.MinScale, 0.30)
	o.MaxScale = cmp.Or(o.MaxScale, 0.50)
	switch {
	case !(o.Threshold > 0 && o.Threshold <= 1):
		return nil, invalid("threshold %v, not above 0 and at most 1", o.Threshold)
	case o.Bound > OnLow:
		return nil, invalid("bound %d", o.Bound)
	case !(o.MinScale > 0 && o.MinScale <= o.MaxScale && o.MaxScale <= 1):
		return nil, invalid("scale %v to %v, not above 0, in order, and at most 1", o.MinScale, o.MaxScale)
	case !(o.MaxCapacity >= 0) || math.IsInf(o.MaxCapacity, 1):
		return nil, invalid("at most %v of capacity, not a finite number from 0", o.MaxCapacity)
	}
	return &Advisor{o}, nil
}

// Advise compares forecasts of one load, by one method or several, with the
// capacity, which is above 0, finite and in the unit of the series. The one that
// is highest decides how much to add, the one that is above the mark first decides
// the lead. It fails with [ErrInvalid] on another capacity, and on forecasts that
// are empty or hold a number that is not finite; the Advice is zero then.
func (a *Advisor) Advise(capacity float64, forecasts ...Forecast) (Advice, error) {
	if !(capacity > 0) || math.IsInf(capacity, 1) {
		return Advice{}, invalid("capacity %v, not a finite number above 0", capacity)
	}
	if len(forecasts) == 0 {
		return Advice{}, invalid("no forecast to compare")
	}
	advice := Advice{Mark: a.opts.Threshold * capacity, Peak: math.Inf(-1), Capacity: capacity}
	var method Method
	var first time.Duration
	for n, f := range forecasts {
		if len(f.Points) == 0 {
			return Advice{}, invalid("forecast %d has no points", n+1)
		}
		above := 0
		for i, p := range f.Points {
			v := a.opts.Bound.of(p)
			if !finite(v) {
				return Advice{}, invalid("forecast %d has %v at step %d", n+1, v, i+1)
			}
			if v > advice.Peak {
				advice.Peak, method = v, f.Method
			}
			if above == 0 && v > advice.Mark {
				above = i + 1
			}
		}
		if above == 0 {
			continue
		}
		lead := f.lead(above)
		if !advice.Exceeds || lead < first {
			advice.Step, advice.Lead, first = above, lead, lead
		}
		advice.Exceeds = true
	}
	if advice.Exceeds {
		a.scale(&advice, capacity, method)
	}
	return advice, nil
}

// scale says how much to add.
func (a *Advisor) scale(advice *Advice, capacity float64, m Method) {
	need := advice.Peak/advice.Mark - 1
	advice.Scale = max(a.opts.MinScale, min(a.opts.MaxScale, need))
	advice.Capacity = capacity * (1 + advice.Scale)
	if most := max(capacity, cmp.Or(a.opts.MaxCapacity, math.MaxFloat64)); advice.Capacity > most {
		advice.Scale, advice.Capacity, advice.Capped = most/capacity-1, most, true
	}
	advice.Short = advice.Peak > a.opts.Threshold*advice.Capacity
	advice.Reason = fmt.Sprintf("%s forecasts %.4g, above %.4g from step %d on: add %.0f %%",
		m, advice.Peak, advice.Mark, advice.Step, 100*advice.Scale)
}

func (b Bound) of(p Point) float64 {
	switch b {
	case OnHigh:
		return p.High
	case OnLow:
		return p.Low
	}
	return p.Value
}

// lead is the time to a step, saturated.
func (f Forecast) lead(step int) time.Duration {
	if f.Every <= 0 {
		return 0
	}
	if f.Every > math.MaxInt64/time.Duration(step) {
		return math.MaxInt64
	}
	return time.Duration(step) * f.Every
}
