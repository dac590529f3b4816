package pawlotel

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
)

// A part is what a store counts of one stream or account, or of all that have no series of
// their own.
type part[T any] struct {
	attr attribute.KeyValue
	of   T
}

// parts read pages of counts into at most limit parts, and one for the rest.
type parts[T any] struct {
	limit int
	attr  string              // of a part that is not the rest
	add   func(all *T, one T) // to the rest
}

const (
	partsPage  = 1000
	partsPages = 100
)

// read returns the parts in the order of their names. With more names than can be read it
// fails, since a number that leaves out an unknown part would pass for the whole.
func (p *parts[T]) read(page func(after string, n int) ([]T, error), name func(T) string) ([]part[T], error) {
	var all []part[T]
	var rest *T
	for after, pages := "", 0; ; pages++ {
		if pages == partsPages {
			return nil, fmt.Errorf("pawlotel: more than %d of attribute %s; nothing is reported of them", partsPage*partsPages, p.attr)
		}
		ts, err := page(after, partsPage)
		if err != nil {
			return nil, err
		}
		for _, t := range ts {
			after = name(t)
			switch {
			case len(all) < p.limit:
				all = append(all, part[T]{attribute.String(p.attr, after), t})
			case rest == nil:
				rest = new(T)
				fallthrough
			default:
				p.add(rest, t)
			}
		}
		if len(ts) < partsPage || after == "" {
			break
		}
	}
	if rest != nil {
		all = append(all, part[T]{attribute.Bool("rest", true), *rest})
	}
	return all, nil
}
