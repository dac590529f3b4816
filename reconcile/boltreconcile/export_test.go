package boltreconcile

import (
	"bytes"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"
)

// Verify says whether all buckets of the file agree with each other.
func (s *Store) Verify(tx *bbolt.Tx) error {
	st, err := s.open(tx, false)
	if st == nil || err != nil {
		return err
	}
	v := &verifier{step: st, listed: map[*bbolt.Bucket]int{}, counted: map[string]tally{}, owned: map[string]bool{}}
	for _, part := range []func() error{v.verifyOperations, v.verifyCounts, v.verifySubjects, v.verifyObservations, v.verifyFindings, v.verifyCells} {
		if err := part(); err != nil {
			return err
		}
	}
	for name, b := range st.buckets {
		if n, listed := v.listed[*b]; listed && n != size(*b) {
			return fmt.Errorf("%s has %d rows, want %d", name, size(*b), n)
		}
	}
	return nil
}

// A verifier is what there should be, according to the rows that it has seen.
type verifier struct {
	*step
	listed  map[*bbolt.Bucket]int // rows
	counted map[string]tally      // by key
	owned   map[string]bool
}

// lists checks that a bucket has a row, if it has a key.
func (v *verifier) lists(b *bbolt.Bucket, r row) error {
	v.listed[b] += 0
	if r.key == nil {
		return nil
	}
	if k, value := b.Cursor().Seek(r.key); !bytes.Equal(k, r.key) || !bytes.Equal(value, r.value) {
		return fmt.Errorf("it is not listed under %q as %x", r.key, r.value)
	}
	v.listed[b]++
	return nil
}

func (v *verifier) verifyOperations() error {
	for _, b := range []*bbolt.Bucket{v.index, v.due, v.claims, v.ages, v.expiring, v.logs, v.payloads, v.results} {
		v.listed[b] = 0
	}
	return v.operations.ForEach(func(k, b []byte) error {
		kind, key, _ := bytes.Cut(k, []byte{0})
		o, err := decodeOperation(string(kind), string(key), b)
		if err != nil {
			return err
		}
		for _, p := range v.places(&o) {
			if err := v.lists(p.bucket, p.row); err != nil {
				return fmt.Errorf("operation %q, %v: %w", key, o.state, err)
			}
		}
		if never := o.attempts == 0 && (o.due != 0 || o.review != ""); (o.expires == 0) != (!o.state.Ended() || never) {
			return fmt.Errorf("operation %q, %v, expires at %d", key, o.state, o.expires)
		}
		e, err := v.entry(&o)
		if err != nil {
			return err
		}
		if len(e.Log) == 0 {
			return fmt.Errorf("operation %q has no history", key)
		}
		v.listed[v.logs]++
		if e.Payload != nil {
			v.listed[v.payloads]++
		}
		if e.Result != nil {
			v.listed[v.results]++
		}
		of := string(nameKey(o.kind, o.account))
		t, one := v.counted[of], o.tally()
		for i, n := range t.numbers() {
			*n += *one.numbers()[i]
		}
		v.counted[of] = t
		return nil
	})
}

func (v *verifier) verifyCounts() error {
	stored := map[string]tally{}
	err := v.totals.ForEach(func(key, b []byte) (err error) {
		stored[string(key)], err = decodeTally(b)
		return err
	})
	if err == nil && !maps.Equal(stored, v.counted) {
		err = fmt.Errorf("there are %v operations by account, and %v are counted", v.counted, stored)
	}
	return err
}

func (v *verifier) verifySubjects() error {
	return v.subjects.ForEach(func(key, b []byte) error {
		s, err := decodeSubject(key, b)
		if err != nil {
			return err
		}
		if s.listed > s.expires || s.count == 0 && s.dropped == 0 {
			return fmt.Errorf("subject %q of %d, %d dropped, expires at %d and is listed as at %d", s.id, s.count, s.dropped, s.expires, s.listed)
		}
		n := 0
		for range behind(v.observations, s.observations(), nil) {
			n++
		}
		if n != s.count {
			return fmt.Errorf("subject %q has %d observations, and %d are counted", s.id, n, s.count)
		}
		v.listed[v.observations] += n
		return v.lists(v.expiring, row{key: s.forgets()})
	})
}

func (v *verifier) verifyObservations() error {
	v.listed[v.events], v.listed[v.owns] = 0, 0
	return v.observations.ForEach(func(key, b []byte) error {
		o, err := decodeObservation(key, b)
		if err != nil {
			return err
		}
		kind, _, _ := bytes.Cut(key, []byte{0})
		if err := v.lists(v.events, row{nameKey(string(kind), o.Event), blob(key)}); err != nil {
			return fmt.Errorf("observation %q: %w", o.Event, err)
		}
		if own := nameKey(string(kind), o.Own, o.Message); o.Own != "" && o.Message != "" && !v.owned[string(own)] {
			v.owned[string(own)] = true
			return v.lists(v.owns, row{key: own})
		}
		return nil
	})
}

func (v *verifier) verifyFindings() error {
	v.listed[v.looks], v.listed[v.opened], v.listed[v.changes] = 0, 0, 0
	counted := map[string]findings{}
	err := v.findings.ForEach(func(key, b []byte) error {
		kind, rest, _ := bytes.Cut(key, []byte{0})
		check, subject, _ := bytes.Cut(rest, []byte{0})
		f, err := decodeFinding(string(kind), string(check), string(subject), b)
		if err != nil {
			return err
		}
		for _, p := range v.findingPlaces(&f) {
			if err := v.lists(p.bucket, p.row); err != nil {
				return fmt.Errorf("finding %q, %v: %w", subject, f.state, err)
			}
		}
		if (f.expires == 0) != f.unresolved() {
			return fmt.Errorf("finding %q, %v, expires at %d", subject, f.state, f.expires)
		}
		r, err := v.whole(&f)
		if err != nil || len(r.Log) == 0 {
			return fmt.Errorf("finding %q has %d changes: %w", subject, len(r.Log), err)
		}
		v.listed[v.changes]++
		if t := counted[string(nameKey(f.kind, f.check))]; f.unresolved() {
			t[f.state]++
			counted[string(nameKey(f.kind, f.check))] = t
		}
		return nil
	})
	if err != nil {
		return err
	}
	stored := map[string]findings{}
	err = v.checks.ForEach(func(key, b []byte) (err error) {
		stored[string(key)], err = decodeFindings(b)
		return err
	})
	if err == nil && !maps.Equal(stored, counted) {
		err = fmt.Errorf("there are %v findings by check, and %v are counted", counted, stored)
	}
	return err
}

func (v *verifier) verifyCells() error {
	return v.cells.ForEach(func(key, b []byte) error {
		c, err := decodeCell(b)
		if err != nil {
			return err
		}
		return v.lists(v.expiring, row{key: expiringKey(c.expires, cellExpires, key)})
	})
}

func size(b *bbolt.Bucket) int { return b.Stats().KeyN }
