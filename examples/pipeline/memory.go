package main

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/reconcile"
)

// memory keeps everything in this process.
type memory struct {
	*memoryNumbers
	*replies
	box   *inbox.Memory
	guard *dedup.Guard
	mu    sync.Mutex
	list  []effect
}

func openMemory(claims dedup.Store) (*memory, error) {
	if claims == nil {
		claims = memoryClaims()
	}
	guard, err := dedup.New(claims, guardOptions)
	if err != nil {
		return nil, err
	}
	numbers, err := newMemoryNumbers()
	if err != nil {
		return nil, err
	}
	box := inbox.NewMemory()
	box.SetLimit(math.MaxInt32)
	operations := reconcile.NewMemory()
	operations.SetLimit(math.MaxInt32)
	replies, err := newReplies(outbound{
		lanes: order.NewMemory(), operations: operations, said: reconcile.NewTimelineMemory(), letters: dlq.NewMemory(),
		findings: reconcile.NewCheckMemory(),
	}, settleTime)
	if err != nil {
		return nil, err
	}
	return &memory{memoryNumbers: numbers, replies: replies, box: box, guard: guard}, nil
}

// memoryClaims are as many as there are events.
func memoryClaims() *dedup.Memory {
	claims := dedup.NewMemory()
	claims.SetLimit(math.MaxInt32)
	return claims
}

func (m *memory) events() inbox.Store { return m.box }
func (m *memory) close() error        { return nil }

func (m *memory) ordered(string) (string, bool, error) { return newName(), false, nil }
func (m *memory) orderedBy(string) error               { return nil }

func (m *memory) place(context.Context) (string, error) { return "", nil }

func (m *memory) handle(ctx context.Context, e effect) error {
	return m.guard.Do(ctx, dedup.Request{ID: e.ID}, func(ctx context.Context) error {
		if err := m.enqueue(ctx, nil, e); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.list = append(m.list, e)
		return nil
	})
}

func (m *memory) effects() ([]effect, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list), nil
}

// newName returns a name that no other data has: lower-case letters and digits.
func newName() string { return "pipeline_" + strings.ToLower(rand.Text()) }
