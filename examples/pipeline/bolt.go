package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
)

// bolt keeps events, claims, effects and numbers in one file.
type bolt struct {
	*boltNumbers
	*replies
	db        *bbolt.DB
	temporary bool
	box       *boltinbox.Store
	claims    *boltdedup.Store // nil: claims are kept elsewhere
	guard     *dedup.Guard
	lanes     *boltorder.Store // of the events and of the replies, in two scopes
}

var (
	effectBucket = []byte("example/effects")
	runBucket    = []byte("example/run") // about the runs on this data
)

func openBolt(path string, claims dedup.Store) (*bolt, error) {
	db, temporary, err := openFile(path)
	if err != nil {
		return nil, err
	}
	b := &bolt{db: db, temporary: temporary}
	if err := b.use(claims); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// openFile opens a file, or a temporary one if the path is empty.
func openFile(path string) (db *bbolt.DB, temporary bool, err error) {
	if temporary = path == ""; temporary {
		dir, err := os.MkdirTemp("", "pipeline-")
		if err != nil {
			return nil, true, err
		}
		path = filepath.Join(dir, "events.db")
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, temporary, fmt.Errorf("open %s: %w", path, err)
	}
	db.MaxBatchDelay = time.Millisecond // many handlers wait for each commit
	return db, temporary, nil
}

func closeFile(db *bbolt.DB, temporary bool) error {
	path := db.Path()
	err := db.Close()
	if temporary {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(path)))
	}
	return err
}

func (b *bolt) use(claims dedup.Store) (err error) {
	if b.boltNumbers, err = newBoltNumbers(b.db); err != nil {
		return err
	}
	if b.box, err = boltinbox.New(b.db, nil); err != nil {
		return err
	}
	if b.lanes, err = boltorder.New(b.db, nil); err != nil {
		return err
	}
	operations, err := boltreconcile.New(b.db, nil)
	if err != nil {
		return err
	}
	letters, err := boltdlq.New(b.db, nil)
	if err != nil {
		return err
	}
	b.replies, err = newReplies(outbound{
		lanes: b.lanes, operations: operations, said: operations.Timeline(), letters: letters, findings: operations.Checks(),
	}, settleTime)
	if err != nil {
		return err
	}
	if claims == nil {
		if b.claims, err = boltdedup.New(b.db, nil); err != nil {
			return err
		}
		claims = b.claims
	}
	if b.guard, err = dedup.New(claims, guardOptions); err != nil {
		return err
	}
	err = b.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(effectBucket)
		return err
	})
	if err != nil || b.claims != nil {
		return err
	}
	// Claims that are kept elsewhere need not know of what an earlier run did: tell
	// them, since what is in this file did happen.
	done, err := b.effects()
	if err != nil {
		return err
	}
	for _, e := range done {
		if _, err := b.guard.FirstSeen(context.Background(), e.ID); err != nil {
			return err
		}
	}
	return nil
}

func (b *bolt) events() inbox.Store { return b.box }

func (b *bolt) close() error { return closeFile(b.db, b.temporary) }

// handle has the effect in the transaction of the completion: either both are
// durable or neither is. With claims elsewhere there is no such transaction.
func (b *bolt) handle(ctx context.Context, e effect) error {
	if b.claims == nil {
		return b.guard.Do(ctx, dedup.Request{ID: e.ID}, func(context.Context) error {
			return b.db.Batch(func(tx *bbolt.Tx) error { return b.have(ctx, tx, e) })
		})
	}
	return b.db.Batch(func(tx *bbolt.Tx) error { return b.handleIn(ctx, tx, e) })
}

func (b *bolt) handleIn(ctx context.Context, tx *bbolt.Tx, e effect) error {
	return b.guard.With(b.claims.Tx(tx)).Do(ctx, dedup.Request{ID: e.ID}, func(ctx context.Context) error { return b.have(ctx, tx, e) })
}

// have has an effect, and answers.
func (b *bolt) have(ctx context.Context, tx *bbolt.Tx, e effect) error {
	if err := b.enqueue(ctx, b.lanes.Tx(tx), e); err != nil {
		return err
	}
	return write(tx, e)
}

// inTx delivers messages of the order store in the same file: the effects, their
// completions and the move of the cursor are one commit.
func (b *bolt) inTx(effectOf func(order.Message) effect) order.TxHandler {
	return b.lanes.InTx(func(ctx context.Context, tx *bbolt.Tx, m order.Message) error {
		return b.handleIn(ctx, tx, effectOf(m))
	})
}

// together binds the inbox and the order store in the same file to one transaction.
func (b *bolt) together(fn func(order.Store, inbox.Store) error) error {
	return b.db.Batch(func(tx *bbolt.Tx) error { return fn(b.lanes.Tx(tx), b.box.Tx(tx)) })
}

func write(tx *bbolt.Tx, e effect) error {
	bucket := tx.Bucket(effectBucket)
	n, err := bucket.NextSequence()
	if err != nil {
		return err
	}
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return bucket.Put(binary.BigEndian.AppendUint64(nil, n), v)
}

func (b *bolt) effects() (list []effect, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(effectBucket).ForEach(func(_, v []byte) error {
			var e effect
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("an effect in the file: %w", err)
			}
			list = append(list, e)
			return nil
		})
	})
	return list, err
}

func (b *bolt) ordered(by string) (name string, changed bool, err error) {
	totals, err := b.box.Totals(context.Background())
	if err != nil {
		return "", false, err
	}
	err = b.db.Update(func(tx *bbolt.Tx) error {
		run, err := tx.CreateBucketIfNotExists(runBucket)
		if err != nil {
			return err
		}
		before := string(run.Get([]byte("order")))
		if err := sameOrder(b.db.Path(), totals, before, by); err != nil {
			return err
		}
		changed = before != by
		if name = string(run.Get([]byte("name"))); name != "" {
			return nil
		}
		name = newName()
		return run.Put([]byte("name"), []byte(name))
	})
	return name, changed, err
}

// place is beside the file.
func (b *bolt) place(context.Context) (string, error) { return b.db.Path() + ".gateway", nil }

func (b *bolt) orderedBy(by string) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(runBucket).Put([]byte("order"), []byte(by)) })
}
