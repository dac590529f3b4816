package main

import (
	"context"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
)

func seqgenBoltComparisons() []Comparison {
	return []Comparison{{
		Name: "bbolt-seqgen/single",
		What: "64 goroutines draw numbers of one key in mode Single, each durable before it is used. The peer is one Update for each number, " +
			"which reads a counter and puts it back; each commit syncs the file.",
		Metrics: []Metric{{Name: "numbers/s", Bar: Bar{Ratio: 10}}},
		Open: func(_ context.Context, env *Env) ([]Case, error) {
			dir, err := env.TempDir()
			if err != nil {
				return nil, err
			}
			plain := boltFile{dir: dir, name: "plain"}
			err = plain.prepare(func(db *bbolt.DB) error {
				return db.Update(func(tx *bbolt.Tx) error {
					_, err := tx.CreateBucket(plainBucket)
					return err
				})
			})
			if err != nil {
				return nil, err
			}
			pawl := boltFile{dir: dir, name: "pawl"}
			if err := pawl.prepare(func(*bbolt.DB) error { return nil }); err != nil {
				return nil, err
			}
			return []Case{
				{Name: "one Update per number", Role: Peer, Run: plain.measure(boltCallers, plainCounter)},
				{Name: "Generator.Next", Role: Pawl, Run: pawl.measure(boltCallers, drawOnBolt)},
				{Name: "Generator.Next, 1 goroutine", Role: Shown, Run: pawl.measure(1, drawOnBolt)},
			}, nil
		},
	}}
}

func plainCounter(db *bbolt.DB) (func(int) step, error) {
	key := []byte("conversation")
	return func(int) step {
		return func(context.Context) (int, error) {
			return 1, db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(plainBucket)
				n := uint64(1)
				if v := b.Get(key); v != nil {
					n += binary.BigEndian.Uint64(v)
				}
				return b.Put(key, binary.BigEndian.AppendUint64(nil, n))
			})
		}
	}, nil
}

func drawOnBolt(db *bbolt.DB) (func(int) step, error) {
	store, err := boltseqgen.New(db, nil)
	if err != nil {
		return nil, err
	}
	g, err := seqgen.New(store, &seqgen.Options{Scope: "benchmark"})
	if err != nil {
		return nil, err
	}
	return func(int) step {
		var last uint64
		return func(ctx context.Context) (int, error) {
			at, err := g.Next(ctx, "conversation")
			if err == nil && at.Number <= last {
				err = errNotNew
			}
			last = at.Number
			return 1, err
		}
	}, nil
}
