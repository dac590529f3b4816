package order

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Account returns what is known of a key: the ledger of each of its epochs, the
// active one first, and what arrived. Both sums of a [Ledger] hold. A key that does
// not exist has no ledgers.
func (b *Buffer) Account(ctx context.Context, key string) (Account, error) {
	if err := validID("key", key); err != nil {
		return Account{}, err
	}
	a, err := b.store.Account(ctx, b.opts.Scope, key)
	if err != nil {
		return Account{}, b.failure(ctx, "account of key "+short(key), err)
	}
	return a, nil
}

// Where says what became of numbers of a key, one answer for each, in order. It is
// exact for numbers from Options.Window below the cursor on, and for void and
// skipped ones for ever; older ones are StateSettled: delivered, or late.
func (b *Buffer) Where(ctx context.Context, key string, positions ...Position) ([]Found, error) {
	if err := validID("key", key); err != nil {
		return nil, err
	}
	places := make([]Place, len(positions))
	for i, p := range positions {
		if err := p.validate(); err != nil {
			return nil, fmt.Errorf("%w (position %d of %d)", err, i+1, len(positions))
		}
		places[i] = Place{Key: key, Position: p}
	}
	return b.find(ctx, places)
}

// Lookup says the same of messages by their IDs, with the message while it is
// remembered: until Options.KeepBody after it ended. An ID that is not known is
// StateUnknown.
func (b *Buffer) Lookup(ctx context.Context, ids ...string) ([]Found, error) {
	places := make([]Place, len(ids))
	for i, id := range ids {
		if err := validID("message ID", id); err != nil {
			return nil, fmt.Errorf("%w (ID %d of %d)", err, i+1, len(ids))
		}
		places[i] = Place{ID: id}
	}
	return b.find(ctx, places)
}

func (b *Buffer) find(ctx context.Context, places []Place) ([]Found, error) {
	if len(places) == 0 {
		return nil, nil
	}
	found, err := b.findIn(ctx, b.store, places)
	if err != nil {
		return nil, b.failure(ctx, fmt.Sprintf("find %d messages", len(places)), err)
	}
	return found, nil
}

// findIn asks a store, and takes an answer that is none for what it is.
func (b *Buffer) findIn(ctx context.Context, s Store, places []Place) ([]Found, error) {
	found, err := s.Find(ctx, b.params(), places)
	if err == nil && len(found) != len(places) {
		err = fmt.Errorf("%d answers to %d places", len(found), len(places))
	}
	return found, err
}

// Gaps lists the gaps that are open and the records of those that were skipped,
// in ascending order of key, epoch and number. Query.N is at most 1,000; zero means
// 100. Fewer than that mean that there are no more.
func (b *Buffer) Gaps(ctx context.Context, q Query) ([]Gap, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	gaps, err := b.store.Gaps(ctx, b.opts.Scope, q)
	if err != nil {
		return nil, b.failure(ctx, "list gaps", err)
	}
	return gaps, nil
}

// Parked lists the messages that wait for a person, in ascending order of key,
// epoch and number. Query.N is at most 1,000; zero means 100. Fewer than that mean
// that there are no more.
func (b *Buffer) Parked(ctx context.Context, q Query) ([]Message, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	ms, err := b.store.Parked(ctx, b.opts.Scope, q)
	if err != nil {
		return nil, b.failure(ctx, "list parked messages", err)
	}
	return ms, nil
}

// Totals counts over all keys, up to [MaxCount] in any case. It asks the store;
// [Buffer.Stats] does not.
func (b *Buffer) Totals(ctx context.Context) (Totals, error) {
	t, err := b.store.Totals(ctx, b.opts.Scope)
	if err != nil {
		return Totals{}, b.failure(ctx, "count", err)
	}
	return t, nil
}

// ResolveGap says what a person made of a gap that [Buffer.Gaps] has listed, and
// who it was: both are noted in its record. For an open gap, ResolutionLost and
// ResolutionIgnore also skip it, and ResolutionResent lets it wait as if it had just
// opened. [ErrNotFound] means that there is no such gap, because it has closed in the
// meantime or its record is forgotten; [ErrUnavailable], or the error of ctx if that
// ended first, that the decision may have been applied or not, or may still be.
// Repeating it is harmless.
func (b *Buffer) ResolveGap(ctx context.Context, g Gap, what Resolution, actor, note string) error {
	if what < ResolutionResent || what > ResolutionIgnore {
		return invalid("resolution %d", what)
	}
	if g.From < 1 || g.To <= g.From || g.To > MaxNumber+1 {
		return invalid("gap from %d to below %d", g.From, g.To)
	}
	return b.decide(ctx, Settlement{Kind: KindResolve, Key: g.Key, Epoch: g.Epoch, From: g.From, To: g.To,
		Resolution: what, Actor: actor, Note: note})
}

// Resume makes a parked message due at once, with all its attempts before it: the
// cause of its failure is mended. The errors are those of [Buffer.ResolveGap].
func (b *Buffer) Resume(ctx context.Context, key string, p Position, actor, note string) error {
	return b.decideAt(ctx, KindResume, key, p, actor, note)
}

// Drop gives a parked message up: its number is skipped, with a record, and its key
// goes on with the next. When the sender sends it again, it is late like any other
// that was skipped, and is handed to Options.OnLate. A late message that is parked
// ends. The errors are those of [Buffer.ResolveGap].
func (b *Buffer) Drop(ctx context.Context, key string, p Position, actor, note string) error {
	return b.decideAt(ctx, KindDrop, key, p, actor, note)
}

func (b *Buffer) decideAt(ctx context.Context, k Kind, key string, p Position, actor, note string) error {
	if err := p.validate(); err != nil {
		return err
	}
	return b.decide(ctx, Settlement{Kind: k, Key: key, Epoch: p.Epoch, From: p.Number, To: p.Number + 1, Actor: actor, Note: note})
}

// decide settles what a person decided.
func (b *Buffer) decide(ctx context.Context, s Settlement) error {
	if s.Actor == "" {
		return invalid("no actor: say who decides")
	}
	for _, t := range []struct{ what, text string }{{"actor", s.Actor}, {"note", s.Note}} {
		if err := validText(t.what, t.text); err != nil {
			return err
		}
	}
	return b.settle(ctx, s)
}

// Settled says that messages were delivered outside of the buffer, so that their
// numbers are no gaps. Missing, buffered and void numbers at the cursor or above it
// become unordered: they count as delivered once the cursor has crossed them, and in
// Ledger.OutOfOrder, and a message that is buffered is not handed over any more.
// Skipped and void ones below the cursor become late. A number that is parked stays
// parked, and so does what is delivered or late already. [Options.OnUnavailable] does
// this by itself.
//
// The error joins those of the positions that were not noted, with [ErrTooFar] for
// one too far above the cursor; the others are noted all the same. Those that were
// not answered when ctx ended may be noted or not; repeating it is harmless. Each 512
// positions may take Options.StoreTimeout while the store does not answer.
func (b *Buffer) Settled(ctx context.Context, key string, positions ...Position) error {
	s := make([]Settlement, len(positions))
	for i, p := range positions {
		if err := p.validate(); err != nil {
			return fmt.Errorf("%w (position %d of %d)", err, i+1, len(positions))
		}
		s[i] = Settlement{Kind: KindUnordered, Key: key, Epoch: p.Epoch, From: p.Number, To: p.Number + 1}
	}
	var failed []error
	for batch := range slices.Chunk(s, pushBatch) {
		if err := b.settle(ctx, batch...); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// Forget erases a key with all its epochs, messages and records, for a person's
// right to be forgotten. Its owner, if any, is stale from then on. The key is new
// after that: its first number is Options.Start again, and messages that are pushed
// again are delivered again.
//
// What [Options.OnUnavailable] took of the key from this buffer, and is not reported
// yet, is forgotten as well, and is not reported; in a transaction ([Buffer.With]) it
// still is, and other processes report theirs, which begins the key anew: forget it
// once more when they have. On an error the key may be forgotten or not, and what is
// to be reported still is. Repeating it is harmless.
func (b *Buffer) Forget(ctx context.Context, key string) error {
	forget := Settlement{Kind: KindForget, Key: key}
	if b.bound {
		return b.settle(ctx, forget)
	}
	unreported := b.takeUnreported(key)
	err := b.settle(ctx, forget)
	if err != nil {
		b.putUnreported(key, unreported)
	}
	return err
}

// settle sends settlements of one key that need no token, and returns what failed.
func (b *Buffer) settle(ctx context.Context, s ...Settlement) error {
	if len(s) == 0 {
		return nil
	}
	if err := validID("key", s[0].Key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return b.failure(ctx, "settle", err)
	}
	var errs []error
	if b.bound {
		var err error
		if errs, err = b.send(ctx, s); err != nil {
			return b.failure(ctx, s[0].Kind.String()+" key "+short(s[0].Key), err)
		}
	} else {
		errs = b.settleUntil(ctx, s)
	}
	var failed []error
	for i := range s {
		var err error
		if errs != nil {
			err = errs[i]
		}
		b.settled(ctx, s[i], err)
		if err != nil {
			step := fmt.Sprintf("%v number %d of key %s", s[i].Kind, s[i].From, short(s[i].Key))
			if final(err) {
				err = fmt.Errorf("%w: %s; nothing was changed", err, step)
			} else {
				err = b.failure(ctx, step, err)
			}
			failed = append(failed, err)
		}
	}
	if !b.bound {
		b.Wake()
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// settleUntil is settleAll for a caller that waits no longer than its context: what
// is under way then goes on, and its fate is not known.
func (b *Buffer) settleUntil(ctx context.Context, s []Settlement) []error {
	if b.local || ctx.Done() == nil {
		return b.settleAll(s)
	}
	done := make(chan []error, 1)
	go func() { done <- b.settleAll(s) }() // it ends with StoreTimeout
	select {
	case errs := <-done:
		return errs
	case <-ctx.Done():
		return slices.Repeat([]error{ctx.Err()}, len(s))
	}
}

// Sweep looks at up to n messages and gap records and forgets those that need not
// be remembered any longer; it returns how many. Call it now and then, if the store
// is a [Sweeper]; for another one it does nothing.
func (b *Buffer) Sweep(ctx context.Context, n int) (forgotten int, err error) {
	if n < 1 {
		return 0, invalid("sweep of %d", n)
	}
	s, ok := b.store.(Sweeper)
	if !ok {
		return 0, nil
	}
	if forgotten, err = s.Sweep(ctx, b.params(), n); err != nil {
		return forgotten, b.failure(ctx, "sweep", err)
	}
	return forgotten, nil
}

// failure names a step that the store gave no answer to, and counts it.
func (b *Buffer) failure(ctx context.Context, step string, err error) error {
	err = unavailable(ctx, step, err)
	if errors.Is(err, ErrUnavailable) {
		b.counts.errors.Add(1)
	}
	return err
}
