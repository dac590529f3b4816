package boltdlq

import (
	"bytes"
	"encoding/binary"

	"github.com/pawl-go/pawl/dlq"
)

// lane returns a lane, a new one if there is none.
func (st *step) lane(stream, name string) (k lane, err error) {
	b := st.lanes.Get(nameKey(stream, name))
	if b == nil {
		return lane{stream: stream, name: name}, nil
	}
	return decodeLane(stream, name, b)
}

// first is the number of a lane's first unresolved letter; zero if there is none.
func (k *lane) first(st *step) uint64 { return first(st.index, indexPrefix(k.stream, byLane, k.name)) }

// putLane writes a lane and lists it where it belongs. It comes after its letters
// were written, and after every change of its first letter's state or time.
func (st *step) putLane(k *lane) error {
	before := *k
	k.dueAt, k.dueSeq, k.forgetAt = 0, 0, 0
	if seq := k.first(st); seq == 0 {
		k.forgetAt = max(k.until, k.expires)
	} else {
		l, err := st.listed(k.stream, seq)
		if err != nil {
			return err
		}
		if l.state == dlq.StateWaiting {
			k.dueAt, k.dueSeq = max(k.until, k.since, l.next), seq
		}
	}
	from, to := before.due(), k.due()
	if !bytes.Equal(from, to) {
		if from != nil {
			if err := st.erase(st.due, from); err != nil {
				return err
			}
		}
		if to != nil {
			if err := st.write(st.due, to, []byte(k.name)); err != nil {
				return err
			}
		}
	}
	if err := st.relist(st.expiring, before.forgets(), k.forgets()); err != nil {
		return err
	}
	return st.write(st.lanes, nameKey(k.stream, k.name), k.append(nil))
}

// due is the key under which a lane waits to be claimed, or nil.
func (k *lane) due() []byte {
	if k.dueSeq == 0 {
		return nil
	}
	return dueKey(k.stream, k.dueAt, k.dueSeq)
}

// forgets is the key under which a lane waits to be forgotten, or nil.
func (k *lane) forgets() []byte {
	return expiringKey(k.forgetAt, laneExpires, nameKey(k.stream, k.name))
}

// nextDue is the lane of a stream that can be claimed first, and when.
func (st *step) nextDue(stream string) (name string, at int64, found bool) {
	prefix := nameKey(stream, "")
	d, v := st.due.Cursor().Seek(prefix)
	if !bytes.HasPrefix(d, prefix) {
		return "", 0, false
	}
	return string(v), int64(binary.BigEndian.Uint64(d[len(prefix):])), true
}

// enter puts an unresolved letter, which was written, into its lane.
func (st *step) enter(l *letter) error {
	k, err := st.lane(l.stream, l.lane())
	if err != nil {
		return err
	}
	if k.first(st) == l.seq {
		k.since = st.now
	}
	return st.putLane(&k)
}

// leave writes a letter that is to be in its lane no longer, and then the lane.
func (st *step) leave(before, after *letter, p dlq.Params) error {
	k, err := st.lane(before.stream, before.lane())
	if err != nil {
		return err
	}
	if k.first(st) == before.seq {
		k.since = st.now
	}
	if err := st.rewrite(before, after, false); err != nil {
		return err
	}
	k.expires = st.now + p.Retention.Microseconds()
	return st.putLane(&k)
}

// stay writes a letter that stays in its lane, and then the lane.
func (st *step) stay(before, after *letter) error {
	if err := st.rewrite(before, after, false); err != nil {
		return err
	}
	k, err := st.lane(after.stream, after.lane())
	if err != nil {
		return err
	}
	return st.putLane(&k)
}

// grant makes an ask the owner of a lane, and begins its first letter.
func (st *step) grant(k *lane, a *dlq.Ask) (begun letter, err error) {
	if err := st.relist(st.claimed, k.claims(), claimKey(a.Nonce, k.stream, k.name)); err != nil {
		return letter{}, err
	}
	k.token = max(k.token+1, uint64(st.now))
	k.nonce = a.Nonce
	k.until = st.now + a.Lease.Microseconds()
	before, err := st.listed(k.stream, k.first(st))
	if err != nil {
		return letter{}, err
	}
	begun = before
	begun.begunBy, begun.settledBy = k.token, 0
	begun.tries++
	if err := st.rewrite(&before, &begun, false); err != nil {
		return letter{}, err
	}
	return begun, st.putLane(k)
}

// release makes a lane claimable again.
func (st *step) release(k *lane, p dlq.Params) error {
	if err := st.relist(st.claimed, k.claims(), nil); err != nil {
		return err
	}
	k.until, k.since, k.expires = 0, st.now, st.now+p.Retention.Microseconds()
	return st.putLane(k)
}

// claims is the key under which a lane is listed as claimed, or nil.
func (k *lane) claims() []byte {
	if k.until == 0 {
		return nil
	}
	return claimKey(k.nonce, k.stream, k.name)
}

// owned is a claimed lane as its owner gets it; l is its first letter.
func (st *step) owned(k *lane, l *letter) (dlq.Claim, error) {
	r, err := st.whole(l)
	return dlq.Claim{Record: r, Lane: k.name, Token: k.token, Left: micros(k.until - st.now)}, err
}

// claimedBy returns the names of the lanes of a stream that an ask has claimed.
func (st *step) claimedBy(nonce [16]byte, stream string) (names []string) {
	prefix := claimKey(nonce, stream, "")
	c := st.claimed.Cursor()
	for n, _ := c.Seek(prefix); bytes.HasPrefix(n, prefix); n, _ = c.Next() {
		names = append(names, string(n[len(prefix):]))
	}
	return names
}
