package boltreconcile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// TimelineStore is a [reconcile.TimelineStore] in the bucket of a [Store]. Get it from
// [Store.Timeline]. It is safe for concurrent use.
type TimelineStore struct{ s *Store }

// Timeline returns the store for timelines in the same bucket. It costs nothing.
func (s *Store) Timeline() *TimelineStore { return &TimelineStore{s} }

// Append implements [reconcile.TimelineStore]. A batch is one commit: when it fails,
// nothing was stored. One of known observations costs none.
func (t *TimelineStore) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	return run(ctx, t.s.update, "append", func(st *step) ([]reconcile.Appending, error) { return st.appendAll(&p, os) })
}

// Read implements [reconcile.TimelineStore]. It takes no lock that a writer waits for.
func (t *TimelineStore) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	return run(ctx, t.s.view, "read", func(st *step) (reconcile.History, error) { return st.read(p.Kind, ref) })
}

// Forget implements [reconcile.TimelineForgetter], in one commit. bbolt leaves the erased bytes
// in the file until it needs the space.
func (t *TimelineStore) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (n int, err error) {
	return run(ctx, t.s.update, "forget", func(st *step) (int, error) { return st.forget(p.Kind, ref) })
}

func (st *step) appendAll(p *reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	answers := make([]reconcile.Appending, len(os))
	for i := range os {
		var err error
		if answers[i], err = st.appendOne(p, &os[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (st *step) appendOne(p *reconcile.TimelineParams, o *reconcile.Observation) (reconcile.Appending, error) {
	known, err := st.event(p.Kind, o.Event)
	switch {
	case err != nil:
		return 0, err
	case known != nil && known.Digest == o.Digest: // rule 1
		return reconcile.Repeated, nil
	case known != nil:
		return reconcile.Differs, nil
	}
	s := subject{kind: p.Kind, ref: aboutMessage, id: o.Message}
	if o.Message == "" {
		s.ref, s.id = aboutOwn, o.Own
	}
	if b := st.subjects.Get(s.key()); b != nil {
		if s, err = decodeSubject(s.key(), b); err != nil {
			return 0, err
		}
	}
	if s.count >= p.Most { // rule 2
		if s.last == o.Event {
			return reconcile.Overflow, nil
		}
		s.dropped++
		s.last = o.Event
		return reconcile.Overflow, st.write(st.subjects, s.key(), s.append(nil))
	}
	return reconcile.Appended, st.add(p, &s, o) // rule 3
}

// add stores an observation with its subject.
func (st *step) add(p *reconcile.TimelineParams, s *subject, o *reconcile.Observation) error {
	at := time.UnixMicro(st.now)
	absurd := o.Said.IsZero() || o.Said.After(at.Add(p.Ahead)) || o.Said.Before(at.Add(-p.Behind))
	key := s.observationKey(st.now, o.Event)
	if err := st.write(st.observations, key, appendObservation(nil, o, absurd)); err != nil {
		return err
	}
	if err := st.write(st.events, nameKey(s.kind, o.Event), blob(key)); err != nil {
		return err
	}
	if o.Own != "" && o.Message != "" {
		if err := st.write(st.owns, nameKey(s.kind, o.Own, o.Message), nil); err != nil {
			return err
		}
	}
	s.count++
	s.expires = st.now + p.Retention.Microseconds()
	if s.listed == 0 { // otherwise Sweep finds that it is later now
		s.listed = s.expires
		if err := st.write(st.expiring, s.forgets(), nil); err != nil {
			return err
		}
	}
	return st.write(st.subjects, s.key(), s.append(nil))
}

// event returns the observation with an event ID; nil if there is none.
func (st *step) event(kind, event string) (*reconcile.Observation, error) {
	b := st.events.Get(nameKey(kind, event))
	if b == nil {
		return nil, nil
	}
	key, err := decodeBlob(b, "an event")
	if err != nil {
		return nil, err
	}
	o, err := decodeObservation(key, st.observations.Get(key))
	return &o, err
}

func (st *step) read(kind string, ref reconcile.Ref) (reconcile.History, error) {
	if ref.Event != "" {
		o, err := st.event(kind, ref.Event)
		if err != nil || o == nil {
			return reconcile.History{}, err
		}
		ref = o.Ref
	}
	var r reading
	var err error
	if ref.Message != "" {
		err = st.about(&r, subject{kind: kind, ref: aboutMessage, id: ref.Message})
		owns := map[string]bool{"": true}
		for _, o := range slices.Clone(r.Observations) { // not more than fit
			if err == nil && !owns[o.Own] {
				owns[o.Own] = true
				err = st.about(&r, subject{kind: kind, ref: aboutOwn, id: o.Own})
			}
		}
	} else {
		err = st.about(&r, subject{kind: kind, ref: aboutOwn, id: ref.Own})
		for message := range behind(st.owns, nameKey(kind, ref.Own, ""), nil) {
			if err == nil {
				err = st.about(&r, subject{kind: kind, ref: aboutMessage, id: string(message)})
			}
		}
	}
	if err != nil {
		return reconcile.History{}, err
	}
	r.cut()
	return r.History, nil
}

// A reading is what was found of a history so far. It never holds much more than it
// may return.
type reading struct{ reconcile.History }

// cut puts the observations in order, and leaves the first ones.
func (r *reading) cut() {
	slices.SortFunc(r.Observations, func(a, b reconcile.Observation) int {
		return cmp.Or(a.Received.Compare(b.Received), strings.Compare(a.Event, b.Event))
	})
	if len(r.Observations) > reconcile.MaxHistory {
		r.Observations, r.More = r.Observations[:reconcile.MaxHistory:reconcile.MaxHistory], true
	}
}

// about adds what was said of one subject.
func (st *step) about(r *reading, s subject) (err error) {
	b := st.subjects.Get(s.key())
	if b == nil {
		return nil
	}
	if s, err = decodeSubject(s.key(), b); err != nil {
		return err
	}
	r.Dropped += s.dropped
	for o, err := range st.said(&s) {
		if err != nil {
			return err
		}
		r.Observations = append(r.Observations, o)
	}
	if len(r.Observations) > 2*reconcile.MaxHistory {
		r.cut()
	}
	return nil
}

// said yields what was said of a subject, in the order in which it was received.
func (st *step) said(s *subject) func(yield func(reconcile.Observation, error) bool) {
	return func(yield func(reconcile.Observation, error) bool) {
		prefix := s.observations()
		for rest, b := range behind(st.observations, prefix, nil) {
			if !yield(decodeObservation(append(bytes.Clone(prefix), rest...), b)) {
				return
			}
		}
	}
}

// expireSubject forgets what was said of a subject, whose place among what expires is
// gone, unless something was said of it since it got that place.
func (st *step) expireSubject(s *subject) (removed int, err error) {
	if s.expires > st.now {
		s.listed = s.expires
		if err := st.write(st.expiring, s.forgets(), nil); err != nil {
			return 0, err
		}
		return 0, st.write(st.subjects, s.key(), s.append(nil))
	}
	return st.eraseSubject(s)
}

// forget erases what read returns of a reference. Of an ID that very many messages share
// it may leave some for the next time.
func (st *step) forget(kind string, ref reconcile.Ref) (n int, err error) {
	if ref.Event != "" {
		o, err := st.event(kind, ref.Event)
		if err != nil || o == nil {
			return 0, err
		}
		ref = o.Ref
	}
	if ref.Message == "" {
		if n, err = st.forgetSubject(kind, aboutOwn, ref.Own); err != nil {
			return 0, err
		}
		for n < reconcile.MaxHistory {
			prefix := nameKey(kind, ref.Own, "")
			k, _ := st.owns.Cursor().Seek(prefix)
			if !bytes.HasPrefix(k, prefix) {
				return n, nil
			}
			message := string(k[len(prefix):])
			if err := st.erase(st.owns, bytes.Clone(k)); err != nil {
				return 0, err
			}
			erased, err := st.forgetSubject(kind, aboutMessage, message)
			if err != nil {
				return 0, err
			}
			n += erased
		}
		return n, nil
	}
	owns := map[string]bool{}
	for o, err := range st.said(&subject{kind: kind, ref: aboutMessage, id: ref.Message}) {
		if err != nil {
			return 0, err
		}
		if o.Own != "" {
			owns[o.Own] = true
		}
	}
	if n, err = st.forgetSubject(kind, aboutMessage, ref.Message); err != nil {
		return 0, err
	}
	for own := range owns {
		erased, err := st.forgetSubject(kind, aboutOwn, own)
		if err != nil {
			return 0, err
		}
		n += erased
	}
	return n, nil
}

func (st *step) forgetSubject(kind, ref, id string) (n int, err error) {
	s := subject{kind: kind, ref: ref, id: id}
	b := st.subjects.Get(s.key())
	if b == nil {
		return 0, nil
	}
	if s, err = decodeSubject(s.key(), b); err != nil {
		return 0, err
	}
	if s.listed != 0 {
		if err := st.erase(st.expiring, s.forgets()); err != nil {
			return 0, err
		}
	}
	return st.eraseSubject(&s)
}

// eraseSubject erases a subject with its observations; its place among what expires is gone.
func (st *step) eraseSubject(s *subject) (removed int, err error) {
	var all []reconcile.Observation
	for o, err := range st.said(s) {
		if err != nil {
			return 0, err
		}
		all = append(all, o)
	}
	for _, o := range all {
		if err := st.erase(st.observations, s.observationKey(o.Received.UnixMicro(), o.Event)); err != nil {
			return 0, err
		}
		if err := st.erase(st.events, nameKey(s.kind, o.Event)); err != nil {
			return 0, err
		}
		if o.Own != "" && o.Message != "" {
			if err := st.erase(st.owns, nameKey(s.kind, o.Own, o.Message)); err != nil {
				return 0, err
			}
		}
	}
	return len(all), st.erase(st.subjects, s.key())
}

// What a subject is: a message, or, where its ID is not known, an ID of the caller's.
const (
	aboutMessage = "m"
	aboutOwn     = "o"
)

// key is the subject's row; observations what the keys of its observations begin with.
func (s *subject) key() []byte          { return nameKey(s.kind, s.ref+s.id) }
func (s *subject) observations() []byte { return append(s.key(), 0) }

func (s *subject) observationKey(received int64, event string) []byte {
	return append(binary.BigEndian.AppendUint64(s.observations(), uint64(received)), event...)
}

// forgets is the key under which a subject waits to be forgotten.
func (s *subject) forgets() []byte { return expiringKey(s.listed, subjectExpires, s.key()) }

// splitKey takes a key of an observation apart.
func splitKey(key []byte) (subject []byte, received int64, event string, ok bool) {
	kind, rest, ok := bytes.Cut(key, []byte{0})
	id, rest, found := bytes.Cut(rest, []byte{0})
	if !ok || !found || len(id) < 2 || len(rest) < 8 {
		return nil, 0, "", false
	}
	return key[:len(kind)+1+len(id)], int64(binary.BigEndian.Uint64(rest)), string(rest[8:]), true
}
