package boltdlq

import (
	"bytes"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// Bounds of one page.
const (
	lookMost  = 10_000  // letters or entries that are looked at
	bytesMost = 8 << 20 // of bodies, originals and logs
)

func (st *step) list(q *dlq.Query) (p dlq.Page, err error) {
	looked, size := 0, 0
	bucket, prefix := st.where(q)
	for seq := range behind(bucket, prefix, q.After) {
		if looked == lookMost {
			p.Next = before(seq)
			break
		}
		looked++
		l, err := st.listed(q.Stream, seq)
		if err != nil {
			return dlq.Page{}, err
		}
		if !l.selected(q) {
			continue
		}
		if len(p.Records) == q.N || size >= bytesMost {
			p.Next = before(seq)
			break
		}
		r, err := st.head(&l)
		if err == nil && !q.Heads {
			err = st.fetch(&l, &r)
		}
		if err != nil {
			return dlq.Page{}, err
		}
		size += len(r.Body) + len(r.Original) + len(st.logs.Get(seqKey(l.stream, seq)))
		p.Records = append(p.Records, r)
	}
	return p, nil
}

// before is the place from which a page goes on with a number.
func before(seq uint64) uint64 { return seq - 1 }

// where returns the bucket and the prefix of the keys with the numbers of the letters
// that a query may select.
func (st *step) where(q *dlq.Query) (b *bbolt.Bucket, prefix []byte) {
	switch {
	case q.ID != "":
		return st.index, indexPrefix(q.Stream, byID, q.ID)
	case q.Job != "":
		return st.index, indexPrefix(q.Stream, byJob, q.Job)
	case q.Fingerprint != "":
		return st.index, indexPrefix(q.Stream, byFingerprint, q.Fingerprint)
	case q.Key != "":
		return st.index, indexPrefix(q.Stream, byKey, q.Key)
	case q.State != 0:
		return st.index, indexPrefix(q.Stream, byState, string(rune(q.State)))
	}
	return st.letters, nameKey(q.Stream, "")
}

// selected is the rule of [dlq.Query].
func (l *letter) selected(q *dlq.Query) bool {
	put := time.UnixMicro(l.put)
	return (q.ID == "" || l.id == q.ID) && (q.Key == "" || l.key == q.Key) && (q.State == 0 || l.state == q.State) &&
		(q.Fingerprint == "" || l.fingerprint == q.Fingerprint) && (q.Job == "" || l.job == q.Job) &&
		(q.From.IsZero() || !put.Before(q.From)) && (q.Until.IsZero() || put.Before(q.Until))
}

// An entryPage is the answer to an Audit.
type entryPage struct {
	entries []dlq.Entry
	next    uint64
}

func (st *step) audit(q *dlq.AuditQuery) (p entryPage, err error) {
	bucket, prefix := st.entries, nameKey(q.Stream, "")
	if q.ID != "" {
		bucket, prefix = st.index, indexPrefix(q.Stream, entryByID, q.ID)
	} else if q.Job != "" {
		bucket, prefix = st.index, indexPrefix(q.Stream, entryByJob, q.Job)
	}
	looked := 0
	for seq := range behind(bucket, prefix, q.After) {
		if looked == lookMost {
			p.next = before(seq)
			break
		}
		looked++
		e, err := decodeEntry(q.Stream, seq, st.entries.Get(seqKey(q.Stream, seq)))
		if err != nil {
			return entryPage{}, err
		}
		if q.Job != "" && e.Job != q.Job {
			continue
		}
		if len(p.entries) == q.N {
			p.next = before(seq)
			break
		}
		p.entries = append(p.entries, e.Entry)
	}
	return p, nil
}

func (st *step) listGroups(stream, after string, n int) (groups []dlq.Group, err error) {
	err = rows(st.groups, nameKey(stream, ""), after, n, func(name string, v []byte) error {
		g, err := decodeGroup(v)
		groups = append(groups, dlq.Group{
			Stream: stream, Fingerprint: name, Waiting: g.waiting, Review: g.review,
			First: time.UnixMicro(g.first), Last: time.UnixMicro(g.last),
		})
		return err
	})
	return groups, err
}

func (st *step) listJobs(stream, after string, n int) (jobs []dlq.Job, err error) {
	err = rows(st.jobs, nameKey(stream, ""), after, n, func(id string, v []byte) error {
		j, err := decodeJob(stream, id, v)
		jobs = append(jobs, j.Job)
		return err
	})
	return jobs, err
}

func (st *step) listTotals(after string, n int) (totals []dlq.Totals, err error) {
	err = rows(st.totals, nil, after, n, func(stream string, v []byte) error {
		c, err := decodeCounts(v)
		if err != nil {
			return err
		}
		t := dlq.Totals{
			Stream: stream, Waiting: c[dlq.StateWaiting], Review: c[dlq.StateReview],
			Resolved: c[dlq.StateResolved], Discarded: c[dlq.StateDiscarded], Rejected: c[dlq.StateRejected],
		}
		if l, found, err := st.oldest(stream); err != nil {
			return err
		} else if found {
			t.Oldest = micros(st.now - l.put)
		}
		totals = append(totals, t)
		return nil
	})
	return totals, err
}

// oldest is the first unresolved letter of a stream.
func (st *step) oldest(stream string) (l letter, found bool, err error) {
	waiting := first(st.index, indexPrefix(stream, byState, string(rune(dlq.StateWaiting))))
	review := first(st.index, indexPrefix(stream, byState, string(rune(dlq.StateReview))))
	seq := min(waiting, review)
	if seq == 0 {
		seq = max(waiting, review)
	}
	return st.letter(stream, seq)
}

// rows calls do for at most n rows whose key is the prefix and a name behind another.
func rows(b *bbolt.Bucket, prefix []byte, after string, n int, do func(name string, v []byte) error) error {
	from := append(bytes.Clone(prefix), after...)
	c := b.Cursor()
	k, v := c.Seek(from)
	if bytes.Equal(k, from) {
		k, v = c.Next()
	}
	for ; k != nil && bytes.HasPrefix(k, prefix) && n > 0; k, v = c.Next() {
		if err := do(string(k[len(prefix):]), v); err != nil {
			return err
		}
		n--
	}
	return nil
}

// number is the number at the end of a key.
func number(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }
