package pawlotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A row is one instrument over a snapshot of type S. Counters are totals since the
// primitive was made; gauges are as they are now. What has a time is in seconds.
type row[S any] struct {
	name, unit, help string
	kind             kind
	each             func(s *S, at observer) // calls at for each of its values
}

type kind uint8

const (
	counts   kind = iota // whole numbers that only rise
	amounts              // whole numbers
	measures             // numbers
)

// An observer takes a value of a row, with the attributes that tell it from the others.
type observer func(value float64, attrs ...attribute.KeyValue)

// counter is a row of a count, by the values of one attribute, which come in pairs
// with the fields they stand for.
func counter[S any](name, unit, help, attr string, points ...named[S]) row[S] {
	return row[S]{name, unit, help, counts, func(s *S, at observer) {
		for i := range points {
			at(float64(points[i].value(s)), attribute.String(attr, points[i].name))
		}
	}}
}

// A named is a value of an attribute and the field it stands for.
type named[S any] struct {
	name  string
	value func(s *S) uint64
}

func by[S any](name string, value func(s *S) uint64) named[S] { return named[S]{name, value} }

// count is a counter of one field.
func count[S any](name, unit, help string, value func(s *S) uint64) row[S] {
	return row[S]{name, unit, help, counts, func(s *S, at observer) { at(float64(value(s))) }}
}

func gauge[S any](name, unit, help string, value func(s *S) int) row[S] {
	return row[S]{name, unit, help, amounts, func(s *S, at observer) { at(float64(value(s))) }}
}

// flag is a gauge of how many of one thing are in a state: one or none.
func flag[S any](name, unit, help string, value func(s *S) bool) row[S] {
	return gauge(name, unit, help, func(s *S) int {
		if value(s) {
			return 1
		}
		return 0
	})
}

func age[S any](name, help string, value func(s *S) time.Duration) row[S] {
	return measure(name, "s", help, func(s *S) float64 { return value(s).Seconds() })
}

func measure[S any](name, unit, help string, value func(s *S) float64) row[S] {
	return row[S]{name, unit, help, measures, func(s *S, at observer) { at(value(s)) }}
}

// readTimeout bounds a snapshot that a store is asked for: a page of metrics does not
// wait for it, and Prometheus waits for the page for 10 seconds by default
// (https://prometheus.io/docs/prometheus/latest/configuration/configuration/).
const readTimeout = 5 * time.Second

// observe registers the rows. At each collection it takes one snapshot; when that
// fails nothing is observed, and the reader hears of the error.
func observe[S any](m metric.Meter, attrs []attribute.KeyValue, read func(context.Context) (S, error), rows []row[S]) (metric.Registration, error) {
	instruments := make([]metric.Observable, len(rows))
	for i := range rows {
		var err error
		if instruments[i], err = rows[i].instrument(m); err != nil {
			return nil, err
		}
	}
	attrs = append([]attribute.KeyValue(nil), attrs...)
	return m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		s, err := read(limited)
		if err != nil {
			return err
		}
		for i := range rows {
			rows[i].each(&s, func(value float64, own ...attribute.KeyValue) {
				with := metric.WithAttributeSet(attribute.NewSet(append(own, attrs...)...))
				switch in := instruments[i].(type) {
				case metric.Float64Observable:
					o.ObserveFloat64(in, value, with)
				case metric.Int64Observable:
					o.ObserveInt64(in, int64(value), with)
				}
			})
		}
		return nil
	}, instruments...)
}

func (r *row[S]) instrument(m metric.Meter) (metric.Observable, error) {
	switch r.kind {
	case measures:
		return m.Float64ObservableGauge(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
	case amounts:
		return m.Int64ObservableGauge(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
	default:
		return m.Int64ObservableCounter(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
	}
}
