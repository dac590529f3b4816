package boltinbox

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// The steps of [inbox.Store] within a transaction, whosever it is. Their rules
// are those of its comments, in their order.

func (st *step) accept(p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	answers := make([]inbox.Answer, len(arrivals))
	for i := range arrivals {
		var err error
		if answers[i], err = st.acceptOne(p, &arrivals[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (st *step) acceptOne(p inbox.Params, a *inbox.Arrival) (inbox.Answer, error) {
	e, known, err := st.entry(a.ID)
	if err != nil {
		return 0, err
	}
	answer := inbox.Accepted
	expires := st.now + p.Keep.Microseconds()
	keep := status{at: st.now, expires: expires, erases: expires, err: []byte(a.Reason)}
	switch {
	case !known && a.Raw: // rule 1
		keep.state, answer = inbox.StateQuarantined, inbox.Quarantined
		e.digest = a.Digest
		err = st.add(&e, a, "", keep)
	case !known:
		e.digest = a.Digest
		for _, stream := range a.Streams {
			if err = st.add(&e, a, stream, status{state: inbox.StatePending}); err != nil {
				break
			}
		}
	case e.digest == a.Digest && a.Raw: // rule 2
		return inbox.Quarantined, nil
	case e.digest == a.Digest:
		return inbox.Duplicate, nil
	default: // rule 3
		answer = inbox.Conflict
		var keeps bool
		if keeps, err = st.keeps(&e, a.Digest); err != nil || !keeps {
			return answer, err
		}
		keep.state = inbox.StateConflict
		err = st.add(&e, a, "", keep)
	}
	if err == nil {
		err = st.ids.Put([]byte(a.ID), e.append(nil))
	}
	return answer, err
}

// keeps says whether an arrival with another digest is kept.
func (st *step) keeps(e *entry, digest [32]byte) (bool, error) {
	conflicts := 0
	for _, seq := range e.seqs {
		ev, s, err := st.record(seq)
		if err != nil {
			return false, err
		}
		if s.state == inbox.StateConflict {
			conflicts++
		}
		if ev.digest == digest {
			return false, nil
		}
	}
	return conflicts < inbox.MaxConflicts, nil
}

// add stores a record, and puts it in the queue of its key if it is pending.
func (st *step) add(e *entry, a *inbox.Arrival, stream string, s status) error {
	seq, err := st.events.NextSequence()
	if err != nil {
		return err
	}
	e.seqs = append(e.seqs, seq)
	ev := event{Event: a.Event, form: a.Form, stream: stream, digest: a.Digest, received: st.now, since: st.now}
	if err := st.putEvent(seq, &ev); err != nil {
		return err
	}
	st.count(s.state, 1)
	if s.state != inbox.StatePending {
		return st.putSettled(seq, ev.form, &s)
	}
	return st.wait(seq, keyName(stream, a.Key), &s)
}

// putEvent writes the part of a new record that says what arrived, and lists it
// under the IDs of others.
func (st *step) putEvent(seq uint64, ev *event) error {
	if err := st.events.Put(seqKey(seq), ev.append(nil)); err != nil {
		return err
	}
	for id, b := range st.foreign(ev) {
		if err := b.Put(foreignKey(id, seq), nil); err != nil {
			return err
		}
	}
	return nil
}

// foreign yields the IDs of others that an event has, and where they are listed.
func (st *step) foreign(ev *event) func(func(string, *bbolt.Bucket) bool) {
	return func(yield func(string, *bbolt.Bucket) bool) {
		if ev.MessageID != "" && !yield(ev.MessageID, st.messages) {
			return
		}
		if ev.ExternalID != "" {
			yield(ev.ExternalID, st.externals)
		}
	}
}

// wait puts a pending record behind all others of its key.
func (st *step) wait(seq uint64, name []byte, s *status) error {
	if err := st.pending.Put(seqKey(seq), s.append(nil)); err != nil {
		return err
	}
	k, isNew, err := st.key(name)
	if err != nil {
		return err
	}
	if st.first(name) == 0 {
		k.next = st.now
		if err := st.due.Put(dueKey(name, k.at()), nil); err != nil {
			return err
		}
		if err := st.putKey(name, &k); err != nil {
			return err
		}
	} else if isNew {
		return boltrow.ErrRecord // a queue without its key
	}
	return st.queue.Put(queueKey(name, seq), nil)
}

func (st *step) claim(a *inbox.Ask) (c inbox.Claimed, err error) {
	if c.Claims, err = st.claimedBefore(a); err != nil || len(c.Claims) > 0 {
		return c, err
	}
	prefix := append([]byte(a.Stream), 0)
	var names [][]byte
	cur := st.due.Cursor()
	for d, _ := cur.Seek(prefix); bytes.HasPrefix(d, prefix); d, _ = cur.Next() {
		at := int64(binary.BigEndian.Uint64(d[len(prefix):]))
		if len(names) == a.Keys {
			break
		}
		if at > st.now {
			c.Next = micros(at - st.now)
			break
		}
		names = append(names, append(bytes.Clone(prefix), d[len(prefix)+8:]...))
	}
	for _, name := range names {
		claim, err := st.grant(name, a)
		if err != nil {
			return inbox.Claimed{}, err
		}
		c.Claims = append(c.Claims, claim)
	}
	if n := len(names); n > 0 && n < a.Keys && (c.Next == 0 || a.Lease < c.Next) {
		c.Next = a.Lease // those just claimed may lapse first
	}
	return c, nil
}

// claimedBefore is what an earlier sending of the ask has claimed.
func (st *step) claimedBefore(a *inbox.Ask) (claims []inbox.Claim, err error) {
	prefix := claimKey(a.Nonce, append([]byte(a.Stream), 0))
	cur := st.claimed.Cursor()
	for n, _ := cur.Seek(prefix); bytes.HasPrefix(n, prefix); n, _ = cur.Next() {
		name := n[16:]
		k, _, err := st.key(name)
		if err != nil {
			return nil, err
		}
		if st.now >= k.until {
			continue
		}
		c, err := st.owned(name, &k, a)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// grant makes the ask the owner of a key.
func (st *step) grant(name []byte, a *inbox.Ask) (inbox.Claim, error) {
	k, _, err := st.key(name)
	if err != nil {
		return inbox.Claim{}, err
	}
	before := k
	k.token = max(k.token+1, uint64(st.now))
	k.nonce = a.Nonce
	k.until = st.now + a.Lease.Microseconds()
	if err := st.move(name, &before, &k); err != nil {
		return inbox.Claim{}, err
	}
	if err := st.begin(st.first(name), k.token); err != nil {
		return inbox.Claim{}, err
	}
	return st.owned(name, &k, a)
}

// owned is a claimed key as its owner gets it.
func (st *step) owned(name []byte, k *keyRow, a *inbox.Ask) (inbox.Claim, error) {
	stream, key, _ := bytes.Cut(name, []byte{0})
	c := inbox.Claim{Stream: string(stream), Key: string(key), Token: k.token, Left: micros(k.until - st.now)}
	prefix := queuePrefix(name)
	size := 0
	cur := st.queue.Cursor()
	for q, _ := cur.Seek(prefix); bytes.HasPrefix(q, prefix); q, _ = cur.Next() {
		if len(c.Records) >= a.Events || len(c.Records) > 0 && size >= a.Bytes {
			c.More = true
			break
		}
		r, err := st.whole(binary.BigEndian.Uint64(q[len(prefix):]))
		if err != nil {
			return inbox.Claim{}, err
		}
		size += len(r.Payload) + len(r.Context)
		c.Records = append(c.Records, r)
	}
	return c, nil
}

// begin counts an attempt of a record, once for a token.
func (st *step) begin(seq, token uint64) error {
	s, err := decodeStatus(st.pending.Get(seqKey(seq)))
	if err != nil || s.token == token {
		return err
	}
	s.token = token
	s.attempts++
	st.changed = true
	return st.pending.Put(seqKey(seq), s.append(nil))
}
