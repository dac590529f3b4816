package inbox

import "context"

// Get returns the records of an event: one for each of its streams, then those
// of arrivals in conflict with it. None means that it is not known.
//
// Get, List and the two of Find open what is sealed and fetch what is outside. A
// body that cannot be had is logged, and its record comes without: Form says why.
func (b *Box) Get(ctx context.Context, id string) ([]Record, error) {
	if err := validID("ID", id); err != nil {
		return nil, err
	}
	return b.list(ctx, Query{ID: id, N: maxPage})
}

// List returns at most n records in a state, in the order of acceptance,
// beginning behind the record with the number after; zero begins at the first. All
// their bodies come with them: take small pages where those are large.
func (b *Box) List(ctx context.Context, s State, after uint64, n int) ([]Record, error) {
	if s < StatePending || s > StateUnknown {
		return nil, invalid("state %d", s)
	}
	return b.find(ctx, Query{State: s, After: after, N: n})
}

// FindByMessage returns at most n records of the events with a message ID, of which
// a provider sends several: the message and each of its statuses. The order and after
// are those of List.
func (b *Box) FindByMessage(ctx context.Context, messageID string, after uint64, n int) ([]Record, error) {
	if err := validField("message ID", messageID); err != nil {
		return nil, err
	}
	return b.find(ctx, Query{MessageID: messageID, After: after, N: n})
}

// FindByExternal is FindByMessage for the sender's own ID, which the provider has
// echoed: an order, a ticket, a campaign.
func (b *Box) FindByExternal(ctx context.Context, externalID string, after uint64, n int) ([]Record, error) {
	if err := validField("external ID", externalID); err != nil {
		return nil, err
	}
	return b.find(ctx, Query{ExternalID: externalID, After: after, N: n})
}

// Totals counts what is stored, by state, and says how old the oldest pending
// event is. It asks the store; [Box.Stats] does not.
func (b *Box) Totals(ctx context.Context) (Totals, error) {
	t, err := b.store.Totals(ctx)
	if err != nil {
		return Totals{}, unavailable(ctx, "count", err)
	}
	return t, nil
}

const maxPage = 1000

func (b *Box) find(ctx context.Context, q Query) ([]Record, error) {
	if err := validPage(q.N); err != nil {
		return nil, err
	}
	return b.list(ctx, q)
}

// list asks the store and opens what it answers.
func (b *Box) list(ctx context.Context, q Query) ([]Record, error) {
	records, err := b.closed(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := b.openAll(ctx, records); err != nil {
		return nil, unavailable(ctx, "open records", err)
	}
	return records, nil
}

// closed asks the store.
func (b *Box) closed(ctx context.Context, q Query) ([]Record, error) {
	records, err := b.store.List(ctx, q)
	if err != nil {
		return nil, unavailable(ctx, "list", err)
	}
	return records, nil
}

func validPage(n int) error {
	if n < 1 || n > maxPage {
		return invalid("page of %d, not 1 to %d", n, maxPage)
	}
	return nil
}
