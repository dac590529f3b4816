package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

// boltCallers is how many goroutines push.
const boltCallers = 64

func orderBoltComparisons() []Comparison {
	var all []Comparison
	for _, keys := range []int{1, boltCallers} {
		where := fmt.Sprintf("64 goroutines, over %d ordering keys, ", keys)
		all = append(all, Comparison{
			Name: fmt.Sprintf("bbolt-order/push/keys=%d", keys),
			What: where + "push messages of 64 bytes, one in a call. The peer is one Update for each message, which looks whether the " +
				"number is there, puts the body and moves the head of the key; each commit syncs the file.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 20}}},
			Open:    func(_ context.Context, env *Env) ([]Case, error) { return orderBoltCases(env, keys, false) },
		}, Comparison{
			Name: fmt.Sprintf("bbolt-order/deliver/keys=%d", keys),
			What: where + "push messages of 64 bytes, one in a call, which are delivered and acknowledged meanwhile; counted are those delivered " +
				"until all are. The peer is one Update for each message that puts it, and one that reads it, removes it and moves the cursor.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 8}}},
			Open:    func(_ context.Context, env *Env) ([]Case, error) { return orderBoltCases(env, keys, true) },
		})
	}
	return all
}

func orderBoltCases(env *Env, keys int, deliver bool) ([]Case, error) {
	dir, err := env.TempDir()
	if err != nil {
		return nil, err
	}
	plain := boltFile{dir: dir, name: "plain"}
	err = plain.prepare(func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{plainMessages, plainCursors} {
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	pawl := boltFile{dir: dir, name: "pawl"}
	if err := pawl.prepare(func(*bbolt.DB) error { return nil }); err != nil {
		return nil, err
	}
	name := "Buffer.Push"
	if deliver {
		name = "Buffer.Push and Buffer.Run"
	}
	return []Case{
		{Name: "one Update per message", Role: Peer, Run: plain.measure(boltCallers, plainOrder(keys, deliver))},
		{Name: name, Role: Pawl, Run: orderOnBolt(pawl, keys, deliver)},
	}, nil
}

var plainMessages, plainCursors = []byte("messages"), []byte("cursors")

// plainOrder is the buffer that one writes oneself on a file. Each goroutine has its
// numbers from a counter of the key.
func plainOrder(keys int, deliver bool) func(*bbolt.DB) (func(int) step, error) {
	return func(db *bbolt.DB) (func(int) step, error) {
		next := make([]atomic.Uint64, keys)
		return func(worker int) step {
			key := orderKey(worker % keys)
			return func(context.Context) (int, error) {
				n := next[worker%keys].Add(1)
				err := db.Update(func(tx *bbolt.Tx) error { return putPlainly(tx, key, n) })
				if err == nil && deliver {
					err = db.Update(func(tx *bbolt.Tx) error { return takePlainly(tx, key) })
				}
				return 1, err
			}
		}, nil
	}
}

func plainPlace(key string, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(key+"\x00"), n)
}

// putPlainly stores a message, unless it is there, and moves the head.
func putPlainly(tx *bbolt.Tx, key string, n uint64) error {
	b := tx.Bucket(plainMessages)
	if place := plainPlace(key, n); b.Get(place) != nil {
		return errNotNew
	} else if err := b.Put(place, []byte(orderBody)); err != nil {
		return err
	}
	heads := tx.Bucket(plainCursors)
	name := []byte(key + " head")
	if v := heads.Get(name); v != nil && binary.BigEndian.Uint64(v) >= n {
		return nil
	}
	return heads.Put(name, binary.BigEndian.AppendUint64(nil, n))
}

// takePlainly takes the first message of a key and moves the cursor. Pushes arrive
// in about their order, so this takes whatever is first.
func takePlainly(tx *bbolt.Tx, key string) error {
	c := tx.Bucket(plainMessages).Cursor()
	place, body := c.Seek(plainPlace(key, 0))
	if place == nil || len(body) != len(orderBody) {
		return errNotInOrder
	}
	moved := append([]byte{}, place[len(key)+1:]...)
	if err := c.Delete(); err != nil {
		return err
	}
	return tx.Bucket(plainCursors).Put([]byte(key+" cursor"), moved)
}

// onFreshFile runs a measurement on a copy of a file.
func (f boltFile) onFreshFile(ctx context.Context, d time.Duration, run func(*bbolt.DB) (float64, error)) ([]float64, error) {
	var rate float64
	_, err := f.measure(0, func(db *bbolt.DB) (func(int) step, error) {
		var err error
		rate, err = run(db)
		return nil, err
	})(ctx, 0)
	return []float64{rate}, err
}
