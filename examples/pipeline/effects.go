package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
)

// An effect is what the handler does for an event: it writes one line down. The
// lines are numbered, not keyed by the event, so that a second effect of an event
// is seen.
type effect struct{ id, key string }

func (e effect) String() string { return e.id + "\t" + e.key }

// storage is where the events and the effects are.
type storage interface {
	events() inbox.Store
	// handle has the effect of an event, once.
	handle(ctx context.Context, r inbox.Record) error
	// effects returns all effects, sorted.
	effects() ([]effect, error)
	close() error
}

func open(c config) (storage, error) {
	if c.store == "bolt" {
		return openBolt(c.data)
	}
	claims, box := dedup.NewMemory(), inbox.NewMemory()
	claims.SetLimit(math.MaxInt32)
	box.SetLimit(math.MaxInt32)
	guard, err := dedup.New(claims, guardOptions)
	if err != nil {
		return nil, err
	}
	return &memory{box: box, guard: guard}, nil
}

var guardOptions = &dedup.Options{Scope: "effects"}

// memory keeps everything in this process.
type memory struct {
	box   *inbox.Memory
	guard *dedup.Guard
	mu    sync.Mutex
	list  []effect
}

func (m *memory) events() inbox.Store { return m.box }
func (m *memory) close() error        { return nil }

func (m *memory) handle(ctx context.Context, r inbox.Record) error {
	return m.guard.Do(ctx, dedup.Request{ID: r.ID}, func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.list = append(m.list, effect{r.ID, r.Key})
		return nil
	})
}

func (m *memory) effects() ([]effect, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sorted(slices.Clone(m.list)), nil
}

// bolt keeps events, claims and effects in one file.
type bolt struct {
	db        *bbolt.DB
	temporary bool
	box       *boltinbox.Store
	claims    *boltdedup.Store
	guard     *dedup.Guard
}

var effectBucket = []byte("example/effects")

func openBolt(path string) (*bolt, error) {
	temporary := path == ""
	if temporary {
		dir, err := os.MkdirTemp("", "pipeline-")
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "events.db")
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.MaxBatchDelay = time.Millisecond // many handlers wait for each commit
	b := &bolt{db: db, temporary: temporary}
	if b.box, err = boltinbox.New(db, nil); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.claims, err = boltdedup.New(db, nil); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.guard, err = dedup.New(b.claims, guardOptions); err != nil {
		return nil, errors.Join(err, b.close())
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(effectBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bolt) events() inbox.Store { return b.box }

// handle has the effect in the transaction of the completion: either both are
// durable or neither is.
func (b *bolt) handle(ctx context.Context, r inbox.Record) error {
	return b.db.Batch(func(tx *bbolt.Tx) error {
		return b.guard.With(b.claims.Tx(tx)).Do(ctx, dedup.Request{ID: r.ID}, func(context.Context) error {
			bucket := tx.Bucket(effectBucket)
			n, err := bucket.NextSequence()
			if err != nil {
				return err
			}
			return bucket.Put(binary.BigEndian.AppendUint64(nil, n), []byte(effect{r.ID, r.Key}.String()))
		})
	})
}

func (b *bolt) effects() (list []effect, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(effectBucket).ForEach(func(_, v []byte) error {
			id, key, _ := strings.Cut(string(v), "\t")
			list = append(list, effect{id, key})
			return nil
		})
	})
	return sorted(list), err
}

func (b *bolt) close() error {
	path := b.db.Path()
	err := b.db.Close()
	if b.temporary {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(path)))
	}
	return err
}

func sorted(list []effect) []effect {
	slices.SortFunc(list, func(a, b effect) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// writeEffects writes one line per effect, and lets the file appear as a whole.
func writeEffects(path string, list []effect) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	w := bufio.NewWriter(f)
	for _, e := range list {
		fmt.Fprintln(w, e)
	}
	if err := errors.Join(w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
