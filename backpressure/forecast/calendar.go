package forecast

import (
	"cmp"
	"slices"
	"time"
)

// A Day is a date whose load is known to differ: a festival, a sale, a day off.
type Day struct {
	Year  int
	Month time.Month
	Day   int

	// Kind names what days have in common: a day is forecast from the latest of its
	// kind. A festival of several days has a kind for each. Not empty.
	Kind string

	// Factor is how many times the load of an ordinary day to expect, when no day
	// of this kind is in the series: 0 to 1,000. Zero means 1.
	Factor float64
}

// A date is a day without a place.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, m, d}
}

func (d date) before(e date) bool { return d.compare(e) < 0 }

func (d date) compare(e date) int {
	return cmp.Or(cmp.Compare(d.year, e.year), cmp.Compare(d.month, e.month), cmp.Compare(d.day, e.day))
}

// A calendar finds known days by date, and dates by kind, newest first.
type calendar struct {
	days  map[date]Day
	kinds map[string][]date
}

const (
	maxDays   = 10_000
	maxFactor = 1_000
)

func newCalendar(days []Day) (calendar, error) {
	c := calendar{make(map[date]Day), make(map[string][]date)}
	if len(days) > maxDays {
		return c, invalid("a calendar of %d days, at most %d", len(days), maxDays)
	}
	for _, d := range days {
		d.Factor = cmp.Or(d.Factor, 1)
		on := date{d.Year, d.Month, d.Day}
		switch {
		case dateOf(time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC)) != on:
			return c, invalid("%d-%d-%d is not a date", d.Year, d.Month, d.Day)
		case d.Kind == "":
			return c, invalid("%d-%d-%d has no kind", d.Year, d.Month, d.Day)
		case !(d.Factor >= 0 && d.Factor <= maxFactor):
			return c, invalid("%d-%d-%d has the factor %v, not 0 to %d", d.Year, d.Month, d.Day, d.Factor, maxFactor)
		}
		if _, twice := c.days[on]; twice {
			return c, invalid("%d-%d-%d is in the calendar twice", d.Year, d.Month, d.Day)
		}
		c.days[on] = d
		c.kinds[d.Kind] = append(c.kinds[d.Kind], on)
	}
	for _, dates := range c.kinds {
		slices.SortFunc(dates, func(a, b date) int { return b.compare(a) })
	}
	return c, nil
}
