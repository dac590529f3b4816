package boltreconcile

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

// operation returns an operation; nil if there is none.
func (st *step) operation(kind, key string) (*operation, error) {
	b := st.operations.Get(nameKey(kind, key))
	if b == nil {
		return nil, nil
	}
	o, err := decodeOperation(kind, key, b)
	return &o, err
}

// listed is operation for a key that was found in a list: it must be there.
func (st *step) listed(kind, key string) (*operation, error) {
	o, err := decodeOperation(kind, key, st.operations.Get(nameKey(kind, key)))
	return &o, err
}

// rewrite writes an operation, if it has changed, and keeps all lists and counts in
// which it is as they should be. Nil is no operation.
func (st *step) rewrite(before, after *operation) error {
	some := cmp.Or(after, before)
	key := nameKey(some.kind, some.key)
	if before != nil && after != nil {
		if after.result == nil && len(after.said) == 0 && bytes.Equal(before.append(nil), after.append(nil)) {
			return nil
		}
	}
	from, to := st.places(before), st.places(after)
	for i := range from {
		if err := st.relist(from[i].bucket, from[i].row, to[i].row); err != nil {
			return err
		}
	}
	if err := st.recount(before, after); err != nil {
		return err
	}
	if after == nil {
		return st.erase(st.operations, key)
	}
	if after.result != nil {
		if err := st.write(st.results, key, blob(after.result)); err != nil {
			return err
		}
	}
	if len(after.said) > 0 {
		h, err := decodeHistory(st.logs.Get(key))
		if err != nil {
			return err
		}
		for _, t := range after.said {
			h.add(t)
		}
		if err := st.write(st.logs, key, h.append(nil)); err != nil {
			return err
		}
	}
	return st.write(st.operations, key, after.append(nil))
}

// remove forgets an operation. What comes under its key after that has a greater token.
func (st *step) remove(o *operation) error {
	key := nameKey(o.kind, o.key)
	if err := st.raise(st.operations, o.token); err != nil {
		return err
	}
	for _, b := range []*bbolt.Bucket{st.payloads, st.results, st.logs} {
		if err := st.erase(b, key); err != nil {
			return err
		}
	}
	return st.rewrite(o, nil)
}

// entry returns an operation that shares no bytes with the file.
func (st *step) entry(o *operation) (e reconcile.Entry, err error) {
	key := nameKey(o.kind, o.key)
	e = reconcile.Entry{
		Op:   reconcile.Op{Key: o.key, Account: o.account, Fingerprint: o.fingerprint},
		Kind: o.kind, State: o.state, Token: o.token, Attempts: o.attempts, Looks: o.looks, Review: o.review, Again: o.again, Note: o.note,
		Read: moment(st.now), Created: moment(o.created), First: moment(o.first), Sent: moment(o.sent), Fenced: moment(o.fenced),
		Due: moment(o.due), Expires: moment(o.expires), Left: micros(o.until - st.now),
	}
	if e.Payload, err = decodeBlob(st.payloads.Get(key), "the payload of an operation"); err != nil {
		return reconcile.Entry{}, err
	}
	if e.Result, err = decodeBlob(st.results.Get(key), "the result of an operation"); err != nil {
		return reconcile.Entry{}, err
	}
	h, err := decodeHistory(st.logs.Get(key))
	e.Log, e.Dropped = h.said, h.dropped
	return e, err
}

// A place is a row of a bucket in which operations are found by something else than
// their keys.
type place struct {
	bucket *bbolt.Bucket
	row
}

// places are where an operation is listed, in a fixed order; one without key is one
// where it is not.
func (st *step) places(o *operation) (p [8]place) {
	for i, b := range []*bbolt.Bucket{st.index, st.index, st.index, st.index, st.due, st.claims, st.ages, st.expiring} {
		p[i].bucket = b
	}
	if o == nil {
		return p
	}
	p[0].key = nameKey(o.kind, byAccount, o.account, o.key)
	if o.open() {
		p[1].key = nameKey(o.kind, openOnes, o.key)
		p[6].key = timeKey(o.kind, o.account, o.created, o.key)
	}
	if o.state == reconcile.Failed {
		p[2].key = nameKey(o.kind, failed, o.key)
	}
	if o.review != "" {
		p[3].key = nameKey(o.kind, inReview, o.key)
	}
	if o.claimable() {
		p[4].key, p[4].value = dueKey(o.kind, o.due, o.key), binary.BigEndian.AppendUint64(nil, uint64(o.until))
	}
	if o.claimed && o.last == 0 && !o.endedOutside && o.open() {
		p[5].key = claimKey(o.nonce, o.kind, o.key)
	}
	p[7].key = expiringKey(o.expiry(), operationExpires, nameKey(o.kind, o.key))
	return p
}

// recount counts the operations of an account.
func (st *step) recount(before, after *operation) error {
	was, is := before.tally(), after.tally()
	if was == is {
		return nil
	}
	some := cmp.Or(after, before)
	key := nameKey(some.kind, some.account)
	t, err := decodeTally(st.totals.Get(key))
	if err != nil {
		return err
	}
	for i, n := range t.numbers() {
		*n += *is.numbers()[i] - *was.numbers()[i]
	}
	if t == (tally{}) {
		return st.erase(st.totals, key)
	}
	return st.write(st.totals, key, t.append(nil))
}

// tally is what an operation counts for.
func (o *operation) tally() (t tally) {
	if o == nil {
		return t
	}
	t.states[o.state]++
	if o.state == reconcile.Failed && o.due != 0 {
		t.waiting++
	}
	if o.review != "" {
		t.review++
	}
	if o.attempts > 1 {
		t.resent++
		if o.state == reconcile.Confirmed {
			t.resentConfirmed++
		}
	}
	return t
}
