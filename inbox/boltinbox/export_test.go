package boltinbox

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
)

// Verify says whether all buckets of the file agree with each other.
func (s *Store) Verify(tx *bbolt.Tx) error {
	st, err := s.open(tx, false)
	if st == nil || err != nil {
		return err
	}
	if err := st.verifyRecords(); err != nil {
		return err
	}
	return st.verifyKeys()
}

func (st *step) verifyRecords() error {
	var found counts
	queued, kept, seqs, foreign, outside := 0, 0, 0, 0, 0
	err := st.events.ForEach(func(k, v []byte) error {
		seqs++
		seq := binary.BigEndian.Uint64(k)
		ev, s, err := st.record(seq)
		if err != nil {
			return err
		}
		found[s.state]++
		isPending, isSettled := st.pending.Get(k) != nil, st.settled.Get(k) != nil
		if isPending == isSettled || isPending != (s.state == inbox.StatePending) {
			return fmt.Errorf("record %d is %v, pending %t, settled %t", seq, s.state, isPending, isSettled)
		}
		e, known, err := st.entry(ev.ID)
		if err != nil || !known {
			return fmt.Errorf("record %d has no entry: %w", seq, err)
		}
		if n := count(e.seqs, seq); n != 1 {
			return fmt.Errorf("record %d is %d times in its entry", seq, n)
		}
		inQueue := has(st.queue, queueKey(keyName(ev.stream, ev.Key), seq))
		if inQueue != isPending {
			return fmt.Errorf("record %d is %v, in a queue %t", seq, s.state, inQueue)
		}
		if inQueue {
			queued++
		}
		isKept := has(st.kept, keptKey(s.state, seq))
		if isKept != (isSettled && s.state != inbox.StateDone) {
			return fmt.Errorf("record %d is %v, kept %t", seq, s.state, isKept)
		}
		if isKept {
			kept++
		}
		for id, b := range st.foreign(&ev) {
			foreign++
			if !has(b, foreignKey(id, seq)) {
				return fmt.Errorf("record %d is not listed under an ID of others", seq)
			}
		}
		isOutside := isSettled && ev.form&inbox.FormOutside != 0 && s.erases != 0
		if has(st.outside, outsideKey(s.erases, seq)) != isOutside {
			return fmt.Errorf("record %d is kept outside %t, and not listed like that", seq, isOutside)
		}
		if isOutside {
			outside++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found != st.counts {
		return fmt.Errorf("there are %v records by state, and %v are counted", found, st.counts)
	}
	listed := 0
	err = st.ids.ForEach(func(_, v []byte) error {
		e, err := decodeEntry(v)
		listed += len(e.seqs)
		return err
	})
	for name, n := range map[string][2]int{
		"ids": {listed, seqs}, "queue": {size(st.queue), queued}, "kept": {size(st.kept), kept},
		"messages and externals": {size(st.messages) + size(st.externals), foreign}, "outside": {size(st.outside), outside},
		"pending and settled": {size(st.pending) + size(st.settled), seqs},
	} {
		if n[0] != n[1] {
			return fmt.Errorf("%s has %d records, want %d", name, n[0], n[1])
		}
	}
	return err
}

func (st *step) verifyKeys() error {
	due, claimed := 0, 0
	err := st.keys.ForEach(func(name, v []byte) error {
		k, err := decodeKey(v)
		if err != nil {
			return err
		}
		isDue := has(st.due, dueKey(name, k.at()))
		if isDue != (st.first(name) != 0) {
			return fmt.Errorf("key %q has %d as its first record, due %t", name, st.first(name), isDue)
		}
		if isDue {
			due++
		}
		isClaimed := has(st.claimed, claimKey(k.nonce, name))
		if isClaimed != (k.until != 0) {
			return fmt.Errorf("key %q is claimed until %d, listed as claimed %t", name, k.until, isClaimed)
		}
		if isClaimed {
			claimed++
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = st.queue.ForEach(func(q, _ []byte) error {
		if name := q[:len(q)-9]; st.keys.Get(name) == nil {
			return fmt.Errorf("the queue has a record of key %q, which is not there", name)
		}
		return nil
	})
	if n, m := size(st.due), size(st.claimed); n != due || m != claimed {
		return fmt.Errorf("%d keys are due and %d claimed, want %d and %d", n, m, due, claimed)
	}
	return err
}

func has(b *bbolt.Bucket, key []byte) bool {
	k, _ := b.Cursor().Seek(key)
	return bytes.Equal(k, key)
}

func size(b *bbolt.Bucket) int { return b.Stats().KeyN }

func count(seqs []uint64, seq uint64) (n int) {
	for _, s := range seqs {
		if s == seq {
			n++
		}
	}
	return n
}
