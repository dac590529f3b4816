package pgreconcile

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

// A TimelineStore keeps observations in the schema of a [Store]. It is safe for concurrent
// use.
type TimelineStore struct {
	s *Store
	r pgcall.Route
}

var (
	_ reconcile.TimelineStore     = (*TimelineStore)(nil)
	_ reconcile.TimelineForgetter = (*TimelineStore)(nil)
)

// Timeline returns the part of the store that keeps observations. It costs nothing to make.
func (s *Store) Timeline() *TimelineStore { return &TimelineStore{s, s.alone()} }

// Append implements [reconcile.TimelineStore]. It waits for another transaction that adds to
// one of the messages, or appends one of the events, for at most a few seconds, and then
// fails with [ErrBusy].
func (t *TimelineStore) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	answers, err := t.s.appends(ctx, t.r, p, os)
	return answers, t.wrap("append", err)
}

// Read implements [reconcile.TimelineStore].
func (t *TimelineStore) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	h, err := t.s.history(ctx, t.r, p, first(ref))
	return h, t.wrap("read", err)
}

// Forget implements [reconcile.TimelineForgetter]. It erases all of what the reference
// brings, and waits as Append does.
func (t *TimelineStore) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (n int, err error) {
	ref = first(ref)
	err = again(t.r, modeWait, func(int) error {
		return t.r.Call(ctx, func(rows pgx.Rows) error { return rows.Scan(&n) }, t.s.sql.forget, p.Kind, ref.Event, ref.Message, ref.Own)
	})
	return n, t.wrap("forget", err)
}

// Tx returns a view that works within the caller's transaction, as [Store.Tx] does. A call
// that fails has aborted it, also with [ErrBusy].
func (t *TimelineStore) Tx(tx pgx.Tx) reconcile.TimelineStore { return &TimelineStore{t.s, within(tx)} }

func (t *TimelineStore) wrap(step string, err error) error {
	if t.r.Bound {
		step += " in a transaction"
	}
	return t.s.wrap(step, err)
}

// maxObservations is how many observations one call carries.
const maxObservations = 2000

func (s *Store) appends(ctx context.Context, r pgcall.Route, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	answers := make([]reconcile.Appending, len(os))
	for from := 0; from < len(os); {
		to := min(from+maxObservations, len(os))
		if err := s.appendSome(ctx, r, p, os[from:to], answers[from:to]); err != nil {
			return nil, err // what was stored is known by its event when it is sent again
		}
		from = to
	}
	return answers, nil
}

func (s *Store) appendSome(ctx context.Context, r pgcall.Route, p reconcile.TimelineParams, os []reconcile.Observation, answers []reconcile.Appending) error {
	n := len(os)
	about := make([]string, n)
	for i := range os {
		about[i] = subject(os[i].Ref)
	}
	order, _ := sorted(n, func(i int) string { return about[i] })
	places := make([]int32, n)
	saids, digests := make([]*int64, n), make([][]byte, n)
	events, subjects, owns, statuses := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	participants, sources, codes := make([]string, n), make([]string, n), make([]string, n)
	place, seen := int32(0), make(map[string]bool, n)
	for k, i := range order {
		o := &os[i]
		if subjects[k] = about[i]; k == 0 || subjects[k-1] != subjects[k] {
			place = 0
		}
		if !seen[o.Event] {
			seen[o.Event] = true
			place++
			places[k] = place
		}
		if !o.Said.IsZero() {
			said := o.Said.UnixMicro()
			saids[k] = &said
		}
		if o.Message != "" {
			owns[k] = o.Own
		}
		digests[k], events[k], statuses[k], participants[k], sources[k], codes[k] = o.Digest[:], o.Event, o.Status, o.Participant, o.Source, o.Code
	}
	return again(r, mode(r), func(int) error {
		for i := range answers {
			answers[i] = reconcile.Appended
		}
		return r.Call(ctx, func(rows pgx.Rows) error {
			var k, answer int
			if err := rows.Scan(&k, &answer); err != nil {
				return err
			}
			if k < 1 || k > n || answer < int(reconcile.Appended) || answer > int(reconcile.Overflow) {
				return errAnswers(k, n, "observation")
			}
			answers[order[k-1]] = reconcile.Appending(answer)
			return nil
		}, s.sql.appends, p.Kind, p.Ahead.Microseconds(), p.Behind.Microseconds(), p.Most, p.Retention.Microseconds(), places, saids, digests,
			events, subjects, owns, statuses, participants, sources, codes)
	})
}

// subject is what an observation is about, as the tables have it.
func subject(ref reconcile.Ref) string {
	if ref.Message != "" {
		return "m" + ref.Message
	}
	return "o" + ref.Own
}

// first is a reference of which only the field that counts is left.
func first(ref reconcile.Ref) reconcile.Ref {
	switch {
	case ref.Event != "":
		return reconcile.Ref{Event: ref.Event}
	case ref.Message != "":
		return reconcile.Ref{Message: ref.Message}
	}
	return ref
}

func (s *Store) history(ctx context.Context, r pgcall.Route, p reconcile.TimelineParams, ref reconcile.Ref) (h reconcile.History, err error) {
	ended := false
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var nth int
		var received, said *int64
		var absurd *bool
		var digest []byte
		var event, subject, own, status, participant, source, code *string
		if err := rows.Scan(&nth, &received, &said, &absurd, &digest, &event, &subject, &own, &status, &participant, &source, &code); err != nil {
			return err
		}
		if nth == 0 {
			h.Dropped, ended = int(value(received)), true
			return nil
		}
		o := reconcile.Observation{
			Ref: reconcile.Ref{Event: value(event), Own: value(own)}, Status: value(status), Participant: value(participant),
			Source: value(source), Code: value(code), Said: at(said), Received: at(received), Absurd: value(absurd),
		}
		if about := value(subject); about[:1] == "m" {
			o.Message = about[1:]
		} else {
			o.Own = about[1:]
		}
		if o.At = o.Said; o.Absurd {
			o.At = o.Received
		}
		copy(o.Digest[:], digest)
		if h.More = len(h.Observations) == reconcile.MaxHistory; h.More {
			return nil
		}
		h.Observations = append(h.Observations, o)
		return nil
	}, s.sql.history, p.Kind, ref.Event, ref.Message, ref.Own, reconcile.MaxHistory+1)
	switch {
	case err != nil:
		return reconcile.History{}, err
	case !ended:
		return reconcile.History{}, errNoAnswer
	}
	return h, nil
}
