package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// boltHeld is how many IDs the fuller file holds before a measurement begins.
const boltHeld = 100_000

func boltComparisons() []Comparison {
	var all []Comparison
	for _, order := range []struct {
		name, what string
		ids        func() workerIDs
		bar        Bar
	}{
		{"sequential", "rising IDs", sequentialIDs, Bar{Ratio: 20}},
		{"random", "random IDs", func() workerIDs { return randomIDs }, Bar{Ratio: 10, Aim: 15}},
	} {
		for _, held := range []int{0, boltHeld} {
			name := "bbolt/" + order.name + "/g=64"
			what := "64 goroutines claim new " + order.what + " of 36 bytes, one in a call, in a file that is empty at first. "
			if held > 0 {
				name += fmt.Sprintf("/held=%d", held)
				what = fmt.Sprintf("The same for a file that holds %d IDs at first. ", held)
			}
			all = append(all, Comparison{
				Name: name,
				What: what + "The peer is one Update for each claim, with a look-up and a record of the same size; " +
					"each commit syncs the file.",
				Metrics: []Metric{{Name: "IDs/s", Bar: order.bar}},
				Open: func(ctx context.Context, env *Env) ([]Case, error) {
					return boltCases(ctx, env, order.ids(), held)
				},
			})
		}
	}
	return all
}

func boltCases(ctx context.Context, env *Env, ids workerIDs, held int) ([]Case, error) {
	const workers = 64
	dir, err := env.TempDir()
	if err != nil {
		return nil, err
	}
	shape := recordShape{key: 36, value: boltRecord}
	plain := boltFile{dir: dir, name: "plain"}
	if err := plain.prepare(func(db *bbolt.DB) error { return fillBolt(db, shape, ids(), held) }); err != nil {
		return nil, err
	}
	oneUpdate := func(write func(*bbolt.DB) func(func(*bbolt.Tx) error) error) func(*bbolt.DB) (func(int) step, error) {
		return func(db *bbolt.DB) (func(int) step, error) {
			update := write(db)
			return func(int) step {
				next := ids()
				return func(context.Context) (int, error) {
					key, value := shape.record(next())
					return 1, update(func(tx *bbolt.Tx) error { return putNew(tx, key, value) })
				}
			}, nil
		}
	}
	update := oneUpdate(func(db *bbolt.DB) func(func(*bbolt.Tx) error) error { return db.Update })
	batch := oneUpdate(func(db *bbolt.DB) func(func(*bbolt.Tx) error) error { return db.Batch })
	pawl := boltFile{dir: dir, name: "pawl"}
	if err := pawl.prepare(func(db *bbolt.DB) error { return fillPawlBolt(ctx, db, ids(), held) }); err != nil {
		return nil, err
	}
	return []Case{
		{Name: "one Update per claim", Role: Peer, Run: plain.measure(workers, update)},
		{Name: "one Update per claim, 1 goroutine", Role: Shown, Run: plain.measure(1, update)},
		{Name: "bbolt's own Batch", Role: Shown, Run: plain.measure(workers, batch)},
		{Name: "Guard.Claim", Role: Pawl, Run: pawl.measure(workers, claimOnBolt(ids))},
		{Name: "Guard.Claim, 1 goroutine", Role: Shown, Run: pawl.measure(1, claimOnBolt(ids))},
	}, nil
}

var plainBucket = []byte("claims")

// putNew is the claim that one writes oneself: look, and put.
func putNew(tx *bbolt.Tx, key, value []byte) error {
	b := tx.Bucket(plainBucket)
	if b.Get(key) != nil {
		return errNotNew
	}
	return b.Put(key, value)
}

// recordShape is the size of a record, so that the peer writes as much as Pawl.
type recordShape struct{ key, value int }

func (s recordShape) record(id string) (key, value []byte) {
	key = make([]byte, s.key)
	copy(key[copy(key, id):], "padding that makes up for a longer key")
	return key, make([]byte, s.value)
}

// fillBolt creates the bucket and puts n records in it.
func fillBolt(db *bbolt.DB, shape recordShape, next func() string, n int) error {
	for first := true; n > 0 || first; first = false {
		err := db.Update(func(tx *bbolt.Tx) error {
			if _, err := tx.CreateBucketIfNotExists(plainBucket); err != nil {
				return err
			}
			for range min(n, 1000) {
				key, value := shape.record(next())
				if err := putNew(tx, key, value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		n -= min(n, 1000)
	}
	return nil
}

// boltFile is a file that is prepared once and copied for every measurement.
type boltFile struct{ dir, name string }

func (f boltFile) path() string { return filepath.Join(f.dir, f.name) }

func (f boltFile) prepare(fill func(*bbolt.DB) error) error {
	db, err := bbolt.Open(f.path(), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	return errors.Join(fill(db), db.Close())
}

// measure runs a case on a copy of the file.
func (f boltFile) measure(workers int, open func(*bbolt.DB) (newStep func(worker int) step, err error)) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) (figures []float64, err error) {
		content, err := os.ReadFile(f.path())
		if err != nil {
			return nil, err
		}
		copied := f.path() + ".copy"
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.Remove(copied)) }()
		db, err := bbolt.Open(copied, 0o600, &bbolt.Options{Timeout: time.Second})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if err := db.Sync(); err != nil { // the copy itself is not to be written while we measure
			return nil, err
		}
		newStep, err := open(db)
		if err != nil {
			return nil, err
		}
		rate, err := fan(ctx, workers, d, newStep)
		return []float64{rate}, err
	}
}
