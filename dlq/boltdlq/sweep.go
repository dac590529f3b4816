package boltdlq

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// sweepStep is how many rows one commit removes.
const sweepStep = 250

// Sweep removes up to n letters, entries, jobs, alarms and lanes whose retention has
// passed, the longest ago first, and returns how many of them were letters and
// entries. What has not expired is not looked at, so n is all that a call costs.
//
// It takes the writer's lock for 250 of them at a time, so nobody waits long for it.
// bbolt uses the space again; it does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it removed stays
// removed. An n below 1 is an error.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltdlq: sweep: %w: n is %d, and must be at least 1", dlq.ErrInvalid, n)
	}
	for more := true; n > 0 && more; n -= sweepStep {
		swept := 0
		err := s.update(ctx, "sweep", func(st *step) (err error) {
			swept, more, err = st.sweep(min(n, sweepStep))
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += swept
	}
	return removed, nil
}

// sweep removes n things that have expired, and says whether there may be more.
func (st *step) sweep(n int) (removed int, more bool, err error) {
	var keys [][]byte
	c := st.expiring.Cursor()
	for k, _ := c.First(); k != nil && len(keys) < n && int64(binary.BigEndian.Uint64(k)) <= st.now; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		counts, err := st.expire(k[8], k[9:])
		if err != nil {
			return 0, false, err
		}
		if counts {
			removed++
		}
	}
	return removed, len(keys) == n, nil
}

// expire removes the thing with a key, and says whether it counts.
func (st *step) expire(what byte, key []byte) (counts bool, err error) {
	stream, rest, _ := bytes.Cut(key, []byte{0})
	switch what {
	case letterExpires:
		l, err := st.listed(string(stream), number(key))
		if err != nil {
			return false, err
		}
		return true, st.remove(&l)
	case entryExpires:
		e, err := decodeEntry(string(stream), number(key), st.entries.Get(key))
		if err != nil {
			return false, err
		}
		return true, st.dropEntry(&e)
	case jobExpires:
		j, err := decodeJob(string(stream), string(rest), st.jobs.Get(key))
		if err != nil {
			return false, err
		}
		if err := st.relist(st.expiring, j.forgets(), nil); err != nil {
			return false, err
		}
		return false, st.erase(st.jobs, key)
	case alarmExpires:
		a, err := decodeAlarm(st.alarms.Get(key))
		if err != nil {
			return false, err
		}
		if err := st.relist(st.expiring, a.forgets(key), nil); err != nil {
			return false, err
		}
		return false, st.erase(st.alarms, key)
	case laneExpires:
		k, err := decodeLane(string(stream), string(rest), st.lanes.Get(key))
		if err != nil {
			return false, err
		}
		return false, st.dropLane(&k)
	}
	return false, boltrow.ErrRecord
}

// dropLane removes an empty lane. It may still be claimed, by an owner that died after
// a person had ended its letter.
func (st *step) dropLane(k *lane) error {
	if err := st.relist(st.claimed, k.claims(), nil); err != nil {
		return err
	}
	if err := st.relist(st.expiring, k.forgets(), nil); err != nil {
		return err
	}
	return st.erase(st.lanes, nameKey(k.stream, k.name))
}
