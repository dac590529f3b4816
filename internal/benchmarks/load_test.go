package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 4 {
		next := randomIDs()
		for range 10_000 {
			id := next()
			if len(id) != 36 || seen[id] {
				t.Fatalf("ID %q: %d bytes, seen before: %v", id, len(id), seen[id])
			}
			seen[id] = true
		}
	}
	if id := batchOf(100, randomIDs()); slices.IsSorted(id) {
		t.Error("random IDs come in order")
	}
	source := sequentialIDs()
	a, b := source(), source()
	var ids []string
	for range 100 {
		ids = append(ids, a(), b())
	}
	if !slices.IsSorted(ids) || len(ids[0]) != 36 || len(slices.Compact(ids)) != 200 {
		t.Errorf("sequential IDs: %q ...", ids[:2])
	}
}

func TestFanCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 4 workers that do 10 items in 100 ms each make 400 items a second.
		rate, err := fan(t.Context(), 4, 2*time.Second, func(int) step {
			return func(context.Context) (int, error) { time.Sleep(100 * time.Millisecond); return 10, nil }
		})
		if err != nil || rate != 400 {
			t.Errorf("got %v, %v", rate, err)
		}
		// A call that outlasts the time is counted, with its time.
		rate, err = fan(t.Context(), 1, time.Second, func(int) step {
			return func(context.Context) (int, error) { time.Sleep(4 * time.Second); return 8, nil }
		})
		if err != nil || rate != 2 {
			t.Errorf("a long call: got %v, %v", rate, err)
		}
	})
}

func TestFanStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := fan(t.Context(), 2, time.Hour, func(worker int) step {
			return func(context.Context) (int, error) {
				time.Sleep(time.Second)
				if worker == 1 {
					return 0, errNotNew
				}
				return 1, nil
			}
		})
		if !errors.Is(err, errNotNew) || time.Since(start) > 2*time.Second {
			t.Errorf("a failure: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = fan(ctx, 2, time.Hour, func(int) step {
			return func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ends: %v", err)
		}
	})
}
