package boltdlq

import (
	"bytes"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// Verify says whether all buckets of the file agree with each other.
func (s *Store) Verify(tx *bbolt.Tx) error {
	st, err := s.open(tx, false)
	if st == nil || err != nil {
		return err
	}
	v := &verifier{step: st, listed: map[*bbolt.Bucket]int{}, totals: map[string]counts{}, groups: map[string]group{}, lanes: map[string]bool{}}
	for _, part := range []func() error{v.verifyLetters, v.verifyCounts, v.verifyLanes, v.verifyOthers} {
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
	listed map[*bbolt.Bucket]int // rows
	totals map[string]counts
	groups map[string]group // by key
	lanes  map[string]bool  // by key: those with unresolved letters
}

// lists checks that a bucket has a row for each of some keys that is not nil.
func (v *verifier) lists(b *bbolt.Bucket, keys ...[]byte) error {
	v.listed[b] += 0
	for _, key := range keys {
		if key == nil {
			continue
		}
		if k, _ := b.Cursor().Seek(key); !bytes.Equal(k, key) {
			return fmt.Errorf("it is not listed under %q", key)
		}
		v.listed[b]++
	}
	return nil
}

func (v *verifier) verifyLetters() error {
	v.listed[v.logs], v.listed[v.originals] = 0, 0
	return v.letters.ForEach(func(k, b []byte) error {
		stream, _, _ := bytes.Cut(k, []byte{0})
		l, err := decodeLetter(string(stream), number(k), b)
		if err != nil {
			return err
		}
		places := l.places()
		for b, keys := range map[*bbolt.Bucket][][]byte{v.index: places[:], v.expiring: {l.forgets()}, v.bodies: {k}} {
			if err := v.lists(b, keys...); err != nil {
				return fmt.Errorf("letter %d, %v: %w", l.seq, l.state, err)
			}
		}
		if (l.expires == 0) != l.state.Unresolved() || (l.next != 0) != (l.state == dlq.StateWaiting) {
			return fmt.Errorf("letter %d, %v, expires at %d and is due at %d", l.seq, l.state, l.expires, l.next)
		}
		for b, has := range map[*bbolt.Bucket]bool{v.logs: l.fingerprint != "", v.originals: l.edited} {
			if (b.Get(k) != nil) != has {
				return fmt.Errorf("letter %d, with fingerprint %q and edited %t, has a row too many or too few", l.seq, l.fingerprint, l.edited)
			}
			if has {
				v.listed[b]++
			}
		}
		if _, err := v.whole(&l); err != nil {
			return err
		}
		c := v.totals[l.stream]
		c[l.state]++
		v.totals[l.stream] = c
		if l.grouped() {
			key := string(nameKey(l.stream, l.fingerprint))
			g := v.groups[key]
			*g.of(l.state)++
			v.groups[key] = g
		}
		if l.state.Unresolved() {
			v.lanes[string(nameKey(l.stream, l.lane()))] = true
		}
		return nil
	})
}

func (v *verifier) verifyCounts() error {
	totals, groups := map[string]counts{}, map[string]group{}
	err := v.step.totals.ForEach(func(stream, b []byte) (err error) {
		totals[string(stream)], err = decodeCounts(b)
		return err
	})
	if err != nil {
		return err
	}
	if !maps.Equal(totals, v.totals) {
		return fmt.Errorf("there are %v letters by state, and %v are counted", v.totals, totals)
	}
	err = v.step.groups.ForEach(func(key, b []byte) error {
		g, err := decodeGroup(b)
		if g.last < g.first {
			return fmt.Errorf("group %q ends before it begins", key)
		}
		groups[string(key)] = group{waiting: g.waiting, review: g.review}
		return err
	})
	if err == nil && !maps.Equal(groups, v.groups) {
		err = fmt.Errorf("there are %v letters by group, and %v are counted", v.groups, groups)
	}
	return err
}

func (v *verifier) verifyLanes() error {
	found := 0
	err := v.step.lanes.ForEach(func(key, b []byte) error {
		stream, name, _ := bytes.Cut(key, []byte{0})
		k, err := decodeLane(string(stream), string(name), b)
		if err != nil {
			return err
		}
		if v.lanes[string(key)] {
			found++
		}
		for b, key := range map[*bbolt.Bucket][]byte{v.due: k.due(), v.claimed: k.claims(), v.expiring: k.forgets()} {
			if err := v.lists(b, key); err != nil {
				return fmt.Errorf("lane %q: %w", name, err)
			}
		}
		seq := k.first(v.step)
		if (k.forgetAt != 0) != (seq == 0) {
			return fmt.Errorf("lane %q has %d as its first letter, and is to be forgotten at %d", name, seq, k.forgetAt)
		}
		l, waits, err := v.letter(k.stream, seq)
		if waits = waits && l.state == dlq.StateWaiting; err != nil || waits != (k.dueSeq == seq && seq != 0) {
			return fmt.Errorf("lane %q has %d as its first letter, %v, and is due with %d: %w", name, seq, l.state, k.dueSeq, err)
		}
		if at := max(k.until, k.since, l.next); waits && at != k.dueAt {
			return fmt.Errorf("lane %q is listed as due at %d, want %d", name, k.dueAt, at)
		}
		return nil
	})
	if err == nil && found != len(v.lanes) {
		err = fmt.Errorf("%d lanes of unresolved letters have no row", len(v.lanes)-found)
	}
	return err
}

func (v *verifier) verifyOthers() error {
	err := v.entries.ForEach(func(key, b []byte) error {
		stream, _, _ := bytes.Cut(key, []byte{0})
		e, err := decodeEntry(string(stream), number(key), b)
		if err != nil {
			return err
		}
		places := e.places()
		if err := v.lists(v.index, places[:]...); err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		return v.lists(v.expiring, e.forgets())
	})
	if err != nil {
		return err
	}
	err = v.jobs.ForEach(func(key, b []byte) error {
		stream, id, _ := bytes.Cut(key, []byte{0})
		j, err := decodeJob(string(stream), string(id), b)
		if err != nil {
			return err
		}
		return v.lists(v.expiring, j.forgets())
	})
	if err != nil {
		return err
	}
	return v.alarms.ForEach(func(key, b []byte) error {
		a, err := decodeAlarm(b)
		if err != nil {
			return err
		}
		return v.lists(v.expiring, a.forgets(key))
	})
}

func size(b *bbolt.Bucket) int { return b.Stats().KeyN }
