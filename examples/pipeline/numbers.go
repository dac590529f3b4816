package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
)

// The sender numbers each event once, whatever it is sent in and however often:
// where it keeps its numbers it also keeps which event has which.

// laneOf is what the sender counts by.
func laneOf(e inbox.Event) string {
	if e.Key == "" { // ordered with no other
		return e.Provider + "/-"
	}
	return e.Key
}

// memoryNumbers lose the numbers together with all else.
type memoryNumbers struct {
	mu        sync.Mutex
	generator *seqgen.Generator
	assigned  map[string]position
}

func newMemoryNumbers() (*memoryNumbers, error) {
	store := seqgen.NewMemory()
	generator, err := seqgen.New(store, &seqgen.Options{Scope: "sender"})
	return &memoryNumbers{generator: generator, assigned: map[string]position{}}, err
}

func (n *memoryNumbers) number(ctx context.Context, events []inbox.Event) ([]position, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]position, len(events))
	for i, e := range events {
		p, ok := n.assigned[e.ID]
		if !ok {
			next, err := n.generator.Next(ctx, laneOf(e))
			if err != nil {
				return nil, err
			}
			p = at(laneOf(e), next)
			n.assigned[e.ID] = p
		}
		list[i] = p
	}
	return list, nil
}

// boltNumbers commit a number together with the event it was given to: a crash
// between the two would leave a gap that nothing ever fills.
type boltNumbers struct {
	db        *bbolt.DB
	store     *boltseqgen.Store
	generator *seqgen.Generator
}

var numberBucket = []byte("example/numbers")

func newBoltNumbers(db *bbolt.DB) (*boltNumbers, error) {
	store, err := boltseqgen.New(db, nil)
	if err != nil {
		return nil, err
	}
	generator, err := seqgen.New(store, &seqgen.Options{Scope: "sender"})
	return &boltNumbers{db: db, store: store, generator: generator}, err
}

func (n *boltNumbers) number(ctx context.Context, events []inbox.Event) (list []position, err error) {
	err = n.db.Update(func(tx *bbolt.Tx) error {
		assigned, err := tx.CreateBucketIfNotExists(numberBucket)
		if err != nil {
			return err
		}
		list = make([]position, len(events))
		for i, e := range events {
			if v := assigned.Get([]byte(e.ID)); v != nil {
				if err := json.Unmarshal(v, &list[i]); err != nil {
					return fmt.Errorf("the number of an event: %w", err)
				}
				continue
			}
			next, err := n.generator.With(n.store.Tx(tx)).NextTx(ctx, laneOf(e))
			if err != nil {
				return err
			}
			list[i] = at(laneOf(e), next)
			v, err := json.Marshal(list[i])
			if err != nil {
				return err
			}
			if err := assigned.Put([]byte(e.ID), v); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

func at(lane string, p seqgen.Position) position {
	q := position{Lane: lane}
	q.Epoch, q.Number = p.Epoch, p.Number
	return q
}
