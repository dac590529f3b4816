package reconcile

import "context"

// A Provider can be asked for a message. Implement it over your provider's API; package
// [github.com/pawl-go/pawl/reconcile/ycloud] is one.
type Provider interface {
	// Lookup returns what the provider says of a message, by the ID that the provider gave it: a status, or
	// several with their times. [ErrNoMessage] says that it has no such message. Any other
	// error means that nothing is known. Errors hold no ID and no number.
	Lookup(ctx context.Context, messageID string) ([]Observation, error)
}

// SourceLookup is the Source of observations that come from asking.
const SourceLookup = "lookup"
