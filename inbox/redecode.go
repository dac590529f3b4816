package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Replayed is what ReplayState did.
type Replayed struct {
	Records int    // that are pending again
	After   uint64 // where to go on
	More    bool   // whether there may be more behind it
}

// ReplayState replays the records in a state, those of one stream if stream is not
// empty: after an outage, all that has died of it. It looks at up to n records, at
// most 1,000, behind the one with the number after, in the order of acceptance. Call
// it again with Replayed.After until More is false; each call is an action of its
// own. The state is StateDead, StateQuarantined or StateUnknown; what cannot be
// replayed is left as it is.
//
// What this actor has replayed for this reason before is left as it is, too: a record
// that dies again at once is not replayed for ever, and a second click does nothing.
// Give another reason to replay it once more.
//
// With an error, some of the records may have been replayed: repeat the call, which
// finds the rest.
func (o *Operator) ReplayState(ctx context.Context, s State, stream string, after uint64, n int, reason string) (Replayed, error) {
	i := Intent{Verb: VerbReplayState, State: s, Stream: stream, Reason: reason}
	err := validReason(reason)
	switch {
	case err != nil:
	case s != StateDead && s != StateQuarantined && s != StateUnknown:
		err = invalid("replay of all records in the state %d", s)
	case stream != "" && !validName(stream):
		err = invalid("stream of %d bytes, not [A-Za-z0-9._-]{1,64}", len(stream))
	default:
		err = validPage(n)
	}
	if err != nil {
		return Replayed{}, err
	}
	var done Replayed
	err = o.act(ctx, i, func(actor string) (err error) {
		done, err = o.replayPage(ctx, i, actor, Query{State: s, After: after, N: n})
		return err
	})
	return done, err
}

func (o *Operator) replayPage(ctx context.Context, i Intent, actor string, q Query) (done Replayed, err error) {
	records, err := o.box.closed(ctx, q)
	if err != nil {
		return done, err
	}
	done.After, done.More = q.After, len(records) == q.N
	var changes []Change
	for _, r := range records {
		done.After = r.Seq
		if r.Stream != "" && (i.Stream == "" || r.Stream == i.Stream) && !replayedFor(r, actor, i.Reason) {
			changes = append(changes, Change{Kind: ChangeReplay, Nonce: newNonce(), ID: r.ID, Seq: r.Seq, Actor: actor, Reason: i.Reason})
		}
	}
	for len(changes) > 0 {
		page := changes[:min(len(changes), changeBatch)]
		changes = changes[len(page):]
		errs, err := o.box.changeAll(ctx, page)
		if err != nil {
			return done, unavailable(ctx, fmt.Sprintf("replay of %d records", len(page)), err)
		}
		done.Records += len(page)
		for _, err := range errs {
			switch {
			case err == nil:
			case errors.Is(err, ErrState), errors.Is(err, ErrNotFound): // another was quicker, or it is redacted
				done.Records--
			default:
				return done, unavailable(ctx, "replay", err)
			}
		}
	}
	return done, nil
}

// replayedFor says whether a record was replayed by an actor for a reason, as far as
// its actions are kept.
func replayedFor(r Record, actor, reason string) bool {
	return slices.ContainsFunc(r.Actions, func(a Action) bool {
		return a.Kind == ChangeReplay && a.Actor == actor && a.Reason == reason
	})
}

// changeBatch is how many records are changed in one step.
const changeBatch = 100

// Redecode decodes a body in quarantine again, with a source that has learnt to, and
// accepts its events under their own identities. Those that were accepted at the
// time are duplicates. When the whole body was decoded, its record is resolved. Each
// step can be repeated, so after any error the whole can.
//
// It fails with [ErrNotFound] if there is no such record, with [ErrState] if it is
// not a body in quarantine or the body is gone, and with [ErrUndecoded] if the source
// still does not understand all of it: what it does understand is accepted, and the
// record stays. The body is the one that Source.Verify returned when it came; it is not
// verified again.
func (o *Operator) Redecode(ctx context.Context, id string, s Source, reason string) ([]Answer, error) {
	i := Intent{Verb: VerbRedecode, ID: id, Reason: reason}
	if err := i.validate(); err != nil {
		return nil, err
	}
	if isNil(s) {
		return nil, invalid("nil source")
	}
	var answers []Answer
	err := o.act(ctx, i, func(actor string) (err error) {
		answers, err = o.redecode(ctx, id, s, actor, reason)
		return err
	})
	return answers, err
}

// ErrUndecoded says that a body in quarantine is still not understood.
var ErrUndecoded = errors.New("inbox: a part of the body is still not decoded")

func (o *Operator) redecode(ctx context.Context, id string, s Source, actor, reason string) ([]Answer, error) {
	records, err := o.box.closed(ctx, Query{ID: id, N: maxPage})
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("redecode event %s: %w", short(id), ErrNotFound)
	}
	r := records[0]
	switch {
	case r.Provider != s.Provider():
		return nil, invalid("redecode event %s with a source of another provider", short(id))
	case r.State != StateQuarantined || r.Type != rawType || r.Stream != "" || r.Form&FormRedacted != 0:
		return nil, fmt.Errorf("redecode event %s: %w", short(id), ErrState)
	}
	if err := o.box.open(ctx, &r); err != nil {
		return nil, err
	}
	events, undecoded := o.box.decode(ctx, s, r.Payload)
	arrivals, undecoded := o.box.arrivals(ctx, s.Provider(), events, undecoded)
	answers, err := o.box.accept(ctx, arrivals)
	switch {
	case err != nil:
		return nil, err
	case undecoded != nil:
		return answers, fmt.Errorf("redecode event %s: %w; the %d events of the rest are accepted", short(id), ErrUndecoded, len(arrivals))
	}
	c := Change{Kind: ChangeResolve, Nonce: newNonce(), ID: id, Seq: r.Seq, Actor: actor, Reason: reason}
	return answers, o.box.change(ctx, c)
}
