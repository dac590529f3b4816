package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/internal/authz"
)

// A Receipt is what the remote says of an operation by itself: in a webhook, say.
type Receipt struct {
	State  State  // Confirmed, or Failed for good
	Result []byte // at most Options.ResultSize bytes; nil keeps what there is
	Note   string // at most MaxNote bytes; no personal data
}

// Receipt records that the remote says how an operation ended. It may be repeated, and may
// come before the call has returned. Nil means that the ledger agrees.
//
// [ErrNotFound]: there is no such operation, as yet: a receipt can be faster than our own
// record. Keep it and hand it over again. [*EndedError]: the operation has ended in the other
// way. Its state stays; the contradiction is kept in its history, it is not sent again, and
// a person has to resolve it. [ErrUnavailable]: it may be recorded or not; hand it over again.
func (l *Ledger) Receipt(ctx context.Context, key string, r Receipt) error {
	if err := validKey(key); err != nil {
		return err
	}
	switch {
	case !r.State.Ended():
		return invalid("receipt that says %v, not confirmed or failed; nothing was changed", r.State)
	case len(r.Result) > l.opts.ResultSize:
		return invalid("receipt with a result of %d bytes, at most %d; nothing was changed", len(r.Result), l.opts.ResultSize)
	}
	s := Settlement{Verb: VerbReceipt, Key: key, Nonce: newNonce(), State: r.State, Result: l.seal(sealResult, key, r.Result), By: "receipt", Note: note(r.Note)}
	err := l.outside(ctx, s)
	switch {
	case errors.Is(err, ErrNotFound):
		l.counts.strays.Add(1)
	case errors.Is(err, ErrEnded):
		l.counts.contradictions.Add(1)
		l.warn(ctx, "a receipt contradicts what is recorded; a person has to resolve it", key, "says", r.State)
	}
	return err
}

// An Action is what a person wants to do. Fields may be added.
type Action struct {
	Name  string // "resolve", "forget"; of a finding also "acknowledge"
	Kind  string
	Key   string // of the operation, or subject of the finding
	Check string // of the finding; empty: it is about an operation or a message
	Ref   Ref    // of the message that a timeline is to forget
}

// A Resolution is what a person found out about an operation.
type Resolution struct {
	Key string
	// Token is that of the entry that the person saw. If the operation has moved on, nothing
	// is changed.
	Token uint64
	// State is Confirmed or Failed.
	State State
	// Again sends a Failed operation again, through [Ledger.Run] or the next Do: it
	// certainly did not happen.
	Again bool
	// Evidence is how the person knows: 1 to MaxNote bytes of UTF-8 without NUL. It is kept
	// in the history, with the actor.
	Evidence string
	Result   []byte
}

// Resolve ends an operation by what a person found out, after Options.Authorize has said
// who that is. Any that has not ended can be resolved, and one that waits for a person;
// a worker that is at it loses it.
//
// [ErrUnauthorized]: it was refused. [ErrChanged]: the operation is not as the person saw it.
// [*EndedError]: it has ended, and nobody has to resolve it. [ErrNotFound]: there is none. In
// all these nothing was changed. [ErrUnavailable]: it may be recorded or not.
func (l *Ledger) Resolve(ctx context.Context, r Resolution) error {
	if err := validKey(r.Key); err != nil {
		return err
	}
	switch {
	case !r.State.Ended() || r.Again && r.State != Failed:
		return invalid("resolution to %v, sent again: %t; nothing was changed", r.State, r.Again)
	case r.Token == 0:
		return invalid("resolution of %s without the token that was seen; nothing was changed", short(r.Key))
	case r.Evidence == "" || !validText(r.Evidence, MaxNote):
		return invalid("evidence of %d bytes, not 1 to %d of UTF-8 without NUL; nothing was changed", len(r.Evidence), MaxNote)
	case len(r.Result) > l.opts.ResultSize:
		return invalid("resolution with a result of %d bytes, at most %d; nothing was changed", len(r.Result), l.opts.ResultSize)
	}
	actor, err := l.authorize(ctx, "resolve", r.Key)
	if err != nil {
		return err
	}
	return l.outside(ctx, Settlement{Verb: VerbResolve, Key: r.Key, Token: r.Token, Nonce: newNonce(), State: r.State, Again: r.Again,
		Result: l.seal(sealResult, r.Key, r.Result), By: actor, Note: r.Evidence})
}

// Forget erases operations with payload, result and history, for a person's right to be
// forgotten. Their workers are stale from then on. It also forgets that they happened:
// another Do with the key sends it again. Options.Authorize is asked for each key first.
func (l *Ledger) Forget(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := validKey(key); err != nil {
			return err
		}
	}
	for _, key := range keys {
		actor, err := l.authorize(ctx, "forget", key)
		if err != nil {
			return err
		}
		if err := l.outside(ctx, Settlement{Verb: VerbForget, Key: key, By: actor}); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) authorize(ctx context.Context, name, key string) (actor string, err error) {
	if actor, err = authz.Check(ctx, l.opts.Authorize, Action{Name: name, Kind: l.opts.Kind, Key: key}); err != nil {
		l.counts.refused.Add(1)
		return "", fmt.Errorf("reconcile: %s %s: %w", name, short(key), err)
	}
	return actor, nil
}

// outside sends a settlement that has no token of a grant.
func (l *Ledger) outside(ctx context.Context, s Settlement) error {
	var err error
	if l.bound {
		err = l.settleOnce(ctx, s)
	} else if errs := l.settler.Settle(s); errs != nil {
		err = errs[0]
	}
	l.tell(ctx, "", s, err)
	switch {
	case err == nil:
		return nil
	case final(err):
		return fmt.Errorf("%w: %v %s", err, s.Verb, short(s.Key))
	}
	return unavailable(s.Verb.String()+" "+short(s.Key), err)
}

// List returns at most q.N operations that the query selects, by their keys: with Open, the
// compensation queue and what is under way; with Review, what waits for a person. Go on with
// the last key as q.After until there are none: a page can be short when payloads and
// results are large. N is 1 to 1,000; Kind is the ledger's. It fails with [ErrInvalid] on what
// can be no key, account or state.
func (l *Ledger) List(ctx context.Context, q Query) ([]Entry, error) {
	if q.N < 1 || q.N > maxPage {
		return nil, invalid("page of %d, not 1 to %d", q.N, maxPage)
	}
	for _, s := range []string{q.Key, q.Account, q.After} {
		if !validText(s, MaxKey) {
			return nil, invalid("query with a text of %d bytes, not 0 to %d of UTF-8 without NUL", len(s), MaxKey)
		}
	}
	if q.State > Unknown {
		return nil, invalid("query for state %d, not 0 to %d", q.State, Unknown)
	}
	q.Kind = l.opts.Kind
	es, err := l.store.List(ctx, q)
	if err != nil {
		l.counts.errors.Add(1)
		return nil, unavailable("list operations", err)
	}
	for i := range es {
		es[i].Err = l.open(&es[i])
	}
	return es, nil
}

// Lookup returns an operation, or [ErrNotFound].
func (l *Ledger) Lookup(ctx context.Context, key string) (Entry, error) {
	if err := validKey(key); err != nil {
		return Entry{}, err
	}
	es, err := l.List(ctx, Query{Key: key, N: 1})
	if err == nil && len(es) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, short(key))
	}
	if err != nil {
		return Entry{}, err
	}
	return es[0], nil
}

// Counts counts the operations that the store keeps, by account: at most n accounts, 1 to
// 1,000, beginning behind after; the empty string begins at the first, which may be
// the empty one.
func (l *Ledger) Counts(ctx context.Context, after string, n int) ([]Counts, error) {
	if n < 1 || n > maxPage {
		return nil, invalid("page of %d, not 1 to %d", n, maxPage)
	}
	if !validText(after, MaxKey) {
		return nil, invalid("counts behind an account of %d bytes, not 0 to %d of UTF-8 without NUL", len(after), MaxKey)
	}
	cs, err := l.store.Counts(ctx, l.opts.Kind, after, after == "", n)
	if err != nil {
		l.counts.errors.Add(1)
		return nil, unavailable("count operations", err)
	}
	return cs, nil
}
