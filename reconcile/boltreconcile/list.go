package boltreconcile

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

// bytesMost is from how many bytes of payloads and results on a page ends.
const bytesMost = 8 << 20

func (st *step) list(q *reconcile.Query) (entries []reconcile.Entry, err error) {
	size := 0
	add := func(key string) (more bool, err error) {
		o, err := st.operation(q.Kind, key)
		if err != nil || o == nil || o.expired(st.now) || !o.selected(q) {
			return true, err
		}
		e, err := st.entry(o)
		entries = append(entries, e)
		size += len(e.Payload) + len(e.Result)
		return len(entries) < q.N && size < bytesMost, err
	}
	if q.N < 1 {
		return nil, nil
	}
	if q.Key != "" {
		_, err := add(q.Key)
		return entries, err
	}
	bucket, prefix := st.where(q)
	for key := range behind(bucket, prefix, append(bytes.Clone(prefix), q.After...)) {
		if more, err := add(string(key)); err != nil || !more {
			return entries, err
		}
	}
	return entries, nil
}

// where returns the bucket and the prefix of the rows for the operations that a query may
// select: what follows the prefix are their keys.
func (st *step) where(q *reconcile.Query) (b *bbolt.Bucket, prefix []byte) {
	switch {
	case q.Review:
		return st.index, nameKey(q.Kind, inReview, "")
	case q.Open || q.State != 0 && !q.State.Ended():
		return st.index, nameKey(q.Kind, openOnes, "")
	case q.State == reconcile.Failed:
		return st.index, nameKey(q.Kind, failed, "")
	case q.Account != "":
		return st.index, nameKey(q.Kind, byAccount, q.Account, "")
	}
	return st.operations, nameKey(q.Kind)
}

// selected is the rule of [reconcile.Query].
func (o *operation) selected(q *reconcile.Query) bool {
	return o.key > q.After && (q.Key == "" || q.Key == o.key) && (q.Account == "" || q.Account == o.account) &&
		(q.State == 0 || q.State == o.state) && (!q.Open || o.open()) && (!q.Review || o.review != "")
}

func (st *step) listCounts(kind, after string, first bool, n int) (counts []reconcile.Counts, err error) {
	prefix, from := nameKey(kind), append(nameKey(kind), after...)
	if first {
		from = nil
	}
	for account, b := range behind(st.totals, prefix, from) {
		if len(counts) >= n {
			break
		}
		t, err := decodeTally(b)
		if err != nil {
			return nil, err
		}
		counts = append(counts, reconcile.Counts{
			Account: string(account),
			Started: t.states[reconcile.Started], Accepted: t.states[reconcile.Accepted], Confirmed: t.states[reconcile.Confirmed],
			Failed: t.states[reconcile.Failed], Unknown: t.states[reconcile.Unknown], Waiting: t.waiting,
			Review: t.review, Resent: t.resent, ResentConfirmed: t.resentConfirmed,
		})
		for age := range behind(st.ages, nameKey(kind, string(account), ""), nil) {
			counts[len(counts)-1].Oldest = micros(st.now - int64(binary.BigEndian.Uint64(age)))
			break
		}
	}
	return counts, nil
}
