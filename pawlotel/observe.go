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
	gauge            bool
	seconds          bool
	points           []point[S]
}

// A point is one value of a row, with the attribute that tells it from the others.
type point[S any] struct {
	attr  attribute.KeyValue // its key may be empty: the only point
	value func(s *S) int64   // nanoseconds in a row of seconds
}

// counter is a row of a count, by the values of one attribute, which come in pairs
// with the fields they stand for.
func counter[S any](name, unit, help, attr string, points ...named[S]) row[S] {
	r := row[S]{name: name, unit: unit, help: help}
	for _, p := range points {
		pt := point[S]{value: func(s *S) int64 { return int64(p.value(s)) }}
		if attr != "" {
			pt.attr = attribute.String(attr, p.name)
		}
		r.points = append(r.points, pt)
	}
	return r
}

type named[S any] struct {
	name  string
	value func(s *S) uint64
}

func by[S any](name string, value func(s *S) uint64) named[S] { return named[S]{name, value} }

// count is a counter of one field.
func count[S any](name, unit, help string, value func(s *S) uint64) row[S] {
	return counter(name, unit, help, "", by("", value))
}

func gauge[S any](name, unit, help string, value func(s *S) int) row[S] {
	return row[S]{name: name, unit: unit, help: help, gauge: true,
		points: []point[S]{{value: func(s *S) int64 { return int64(value(s)) }}}}
}

func age[S any](name, help string, value func(s *S) time.Duration) row[S] {
	return row[S]{name: name, unit: "s", help: help, gauge: true, seconds: true,
		points: []point[S]{{value: func(s *S) int64 { return int64(value(s)) }}}}
}

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
	sets := make([][]metric.ObserveOption, len(rows))
	for i := range rows {
		for _, p := range rows[i].points {
			all := append([]attribute.KeyValue(nil), attrs...)
			if p.attr.Key != "" {
				all = append(all, p.attr)
			}
			sets[i] = append(sets[i], metric.WithAttributeSet(attribute.NewSet(all...)))
		}
	}
	return m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		s, err := read(ctx)
		if err != nil {
			return err
		}
		for i := range rows {
			for j, p := range rows[i].points {
				switch v := p.value(&s); in := instruments[i].(type) {
				case metric.Float64Observable:
					o.ObserveFloat64(in, time.Duration(v).Seconds(), sets[i][j])
				case metric.Int64Observable:
					o.ObserveInt64(in, v, sets[i][j])
				}
			}
		}
		return nil
	}, instruments...)
}

func (r *row[S]) instrument(m metric.Meter) (metric.Observable, error) {
	switch {
	case r.seconds:
		return m.Float64ObservableGauge(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
	case r.gauge:
		return m.Int64ObservableGauge(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
	}
	return m.Int64ObservableCounter(r.name, metric.WithUnit(r.unit), metric.WithDescription(r.help))
}
