package backpressure

import (
	"context"
	"strings"
)

// A Degrade says what a call has to do without. It is a set.
type Degrade uint8

const (
	// SlowClients asks clients to come less often.
	SlowClients Degrade = 1 << iota
	// ShrinkMedia sends and stores media small. Text is not touched.
	ShrinkMedia
	// RefuseNonCore refuses writes that are not the core's.
	RefuseNonCore
)

// Has says whether all of d2 is in d.
func (d Degrade) Has(d2 Degrade) bool { return d&d2 == d2 }

// String lists what is in the set.
func (d Degrade) String() string {
	var names []string
	for i, name := range []string{"slow clients", "shrink media", "refuse non-core"} {
		if d.Has(1 << i) {
			names = append(names, name)
		}
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

type degradeKey struct{}

// WithDegrade returns a context with what its calls have to do without. [Handler]
// does it for its requests.
func WithDegrade(ctx context.Context, d Degrade) context.Context {
	return context.WithValue(ctx, degradeKey{}, d)
}

// DegradeFrom returns what a call has to do without; nothing if nobody said.
func DegradeFrom(ctx context.Context) Degrade {
	d, _ := ctx.Value(degradeKey{}).(Degrade)
	return d
}
