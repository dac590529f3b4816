package boltdlq

import (
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// letter returns a letter by its number.
func (st *step) letter(stream string, seq uint64) (l letter, found bool, err error) {
	b := st.letters.Get(seqKey(stream, seq))
	if b == nil {
		return letter{}, false, nil
	}
	l, err = decodeLetter(stream, seq, b)
	return l, true, err
}

// listed is letter for a number that was found in a list: the letter must be there.
func (st *step) listed(stream string, seq uint64) (letter, error) {
	return decodeLetter(stream, seq, st.letters.Get(seqKey(stream, seq)))
}

// newest returns the letter of an ID with the greatest number.
func (st *step) newest(stream, id string) (l letter, found bool, err error) {
	seq := last(st.index, indexPrefix(stream, byID, id))
	if seq == 0 {
		return letter{}, false, nil
	}
	l, err = st.listed(stream, seq)
	return l, true, err
}

// rewrite writes a letter and keeps all lists and counts in which it is as they
// should be. Before is what was there, after what is to be; nil is no letter. failed
// says that a failure was recorded. Its lane is another matter, see putLane.
func (st *step) rewrite(before, after *letter, failed bool) error {
	some := after
	if some == nil {
		some = before
	}
	key := seqKey(some.stream, some.seq)
	from, to := before.places(), after.places()
	for i := range from {
		if err := st.relist(st.index, from[i], to[i]); err != nil {
			return err
		}
	}
	if err := st.relist(st.expiring, before.forgets(), after.forgets()); err != nil {
		return err
	}
	if err := st.recount(some.stream, before, after); err != nil {
		return err
	}
	if err := st.regroup(before, after, failed); err != nil {
		return err
	}
	if after == nil {
		return st.erase(st.letters, key)
	}
	return st.write(st.letters, key, after.append(nil))
}

// places are the keys under which the index lists a letter, in a fixed order; nil is
// one under which it is not listed.
func (l *letter) places() (keys [6][]byte) {
	if l == nil {
		return keys
	}
	keys[0] = indexKey(l.stream, byID, l.id, l.seq)
	keys[1] = indexKey(l.stream, byState, string(rune(l.state)), l.seq)
	if l.key != "" {
		keys[2] = indexKey(l.stream, byKey, l.key, l.seq)
	}
	if l.fingerprint != "" {
		keys[3] = indexKey(l.stream, byFingerprint, l.fingerprint, l.seq)
	}
	if l.job != "" {
		keys[4] = indexKey(l.stream, byJob, l.job, l.seq)
	}
	if l.state.Unresolved() {
		keys[5] = indexKey(l.stream, byLane, l.lane(), l.seq)
	}
	return keys
}

// forgets is the key under which a letter waits to be forgotten, or nil.
func (l *letter) forgets() []byte {
	if l == nil {
		return nil
	}
	return expiringKey(l.expires, letterExpires, seqKey(l.stream, l.seq))
}

// recount counts the letters of a stream by state.
func (st *step) recount(stream string, before, after *letter) error {
	if before != nil && after != nil && before.state == after.state {
		return nil
	}
	c, err := st.count(stream)
	if err != nil {
		return err
	}
	if before != nil {
		c[before.state]--
	}
	if after != nil {
		c[after.state]++
	}
	if c == (counts{}) {
		return st.erase(st.totals, []byte(stream))
	}
	return st.write(st.totals, []byte(stream), c.append(nil))
}

func (st *step) count(stream string) (counts, error) {
	return decodeCounts(st.totals.Get([]byte(stream)))
}

// regroup counts the unresolved letters of a fingerprint.
func (st *step) regroup(before, after *letter, failed bool) error {
	in, out := after != nil && after.grouped(), before != nil && before.grouped()
	if in && out && before.fingerprint == after.fingerprint {
		if before.state == after.state && !failed {
			return nil
		}
		return st.tally(after, func(g *group) {
			*g.of(before.state)--
			*g.of(after.state)++
			if failed {
				g.last = st.now
			}
		})
	}
	if out {
		if err := st.tally(before, func(g *group) { *g.of(before.state)-- }); err != nil {
			return err
		}
	}
	if !in {
		return nil
	}
	return st.tally(after, func(g *group) {
		*g.of(after.state)++
		g.last = st.now
	})
}

// tally changes the group of a letter's fingerprint. It begins and ends it.
func (st *step) tally(l *letter, change func(*group)) (err error) {
	key := nameKey(l.stream, l.fingerprint)
	g := group{first: st.now}
	if b := st.groups.Get(key); b != nil {
		if g, err = decodeGroup(b); err != nil {
			return err
		}
	}
	change(&g)
	if g.waiting+g.review == 0 {
		return st.erase(st.groups, key)
	}
	return st.write(st.groups, key, g.append(nil))
}

// of is the number of letters in a state, which is an unresolved one.
func (g *group) of(s dlq.State) *int {
	if s == dlq.StateReview {
		return &g.review
	}
	return &g.waiting
}

// remove takes a letter that is in no lane out of the file.
func (st *step) remove(l *letter) error {
	key := seqKey(l.stream, l.seq)
	for _, b := range []*bbolt.Bucket{st.bodies, st.originals, st.logs} {
		if err := st.erase(b, key); err != nil {
			return err
		}
	}
	return st.rewrite(l, nil, false)
}

// fail adds a failure to the log of a letter, which the caller then writes.
func (st *step) fail(l *letter, f *dlq.Failure) error {
	log, err := st.log(l)
	if err != nil {
		return err
	}
	log.Add(*f)
	l.fingerprint = f.Fingerprint
	return st.write(st.logs, seqKey(l.stream, l.seq), appendLog(nil, &log))
}

// log is what went wrong with a letter.
func (st *step) log(l *letter) (dlq.Log, error) {
	if l.fingerprint == "" {
		return dlq.Log{}, nil
	}
	return decodeLog(st.logs.Get(seqKey(l.stream, l.seq)))
}

// end ends a letter, which the caller then writes.
func (st *step) end(l *letter, s dlq.State, p dlq.Params) {
	l.state, l.next = s, 0
	l.settled, l.expires = st.now, st.now+p.Retention.Microseconds()
}

// whole returns a letter that shares no bytes with the file.
func (st *step) whole(l *letter) (dlq.Record, error) {
	r, err := st.head(l)
	if err == nil {
		err = st.fetch(l, &r)
	}
	return r, err
}

// head returns a letter without its bodies.
func (st *step) head(l *letter) (r dlq.Record, err error) {
	r = dlq.Record{
		Stream: l.stream, ID: l.id, Key: l.key, Seq: l.seq, State: l.state, Aside: l.aside, Digest: l.digest,
		Fingerprint: l.fingerprint, Tries: l.tries, Job: l.job,
		Put: moment(l.put), Next: moment(l.next), Settled: moment(l.settled), Expires: moment(l.expires),
	}
	r.Log, err = st.log(l)
	return r, err
}

// fetch reads the bodies of a letter.
func (st *step) fetch(l *letter, r *dlq.Record) (err error) {
	key := seqKey(l.stream, l.seq)
	if r.Body, err = decodeBlob(st.bodies.Get(key), "the body of a letter"); err != nil || !l.edited {
		return err
	}
	r.Original, err = decodeBlob(st.originals.Get(key), "the original body of a letter")
	return err
}
