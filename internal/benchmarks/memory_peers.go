package main

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/maypok86/otter/v2"
)

// watermill is the repository of watermill's Deduplicator middleware: a map
// under one mutex. It cannot be closed: its goroutine and map stay behind.
type watermill struct {
	repository middleware.ExpiringKeyRepository
}

func openWatermill(ttl time.Duration) (memoryStore, error) {
	r, err := middleware.NewMapExpiringKeyRepository(ttl)
	return watermill{r}, err
}

func (w watermill) Claim(ctx context.Context, id string) (bool, error) {
	duplicate, err := w.repository.IsDuplicate(ctx, id)
	return !duplicate, err
}

func (w watermill) Len() int { return w.repository.(interface{ Len() int }).Len() }

// syncMap is what one writes oneself. It keeps no expiry and forgets nothing,
// which makes it faster than anything that does.
type syncMap struct{ ids sync.Map }

func openSyncMap(time.Duration) (memoryStore, error) { return &syncMap{}, nil }

func (s *syncMap) Claim(_ context.Context, id string) (bool, error) {
	_, known := s.ids.LoadOrStore(id, struct{}{})
	return !known, nil
}

func (s *syncMap) Len() int {
	n := 0
	s.ids.Range(func(any, any) bool { n++; return true })
	return n
}

// otterCache is the cache of maypok86/otter with a time to live and no limit of
// its size: a limit would drop IDs, and admit their duplicates.
type otterCache struct {
	cache *otter.Cache[string, struct{}]
}

func openOtter(ttl time.Duration) (memoryStore, error) {
	c, err := otter.New(&otter.Options[string, struct{}]{
		ExpiryCalculator: otter.ExpiryCreating[string, struct{}](ttl),
	})
	return otterCache{c}, err
}

func (o otterCache) Claim(_ context.Context, id string) (bool, error) {
	_, stored := o.cache.SetIfAbsent(id, struct{}{})
	return stored, nil
}

func (o otterCache) Len() int { return o.cache.EstimatedSize() }
