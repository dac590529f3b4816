package main

import (
	"testing"
	"time"
)

// TestMemoryStoresDoTheSame keeps the contestants comparable: each one answers a
// new ID as new and a known one as known.
func TestMemoryStoresDoTheSame(t *testing.T) {
	for name, open := range map[string]openMemory{
		"pawl": openPawlMemory, "watermill": openWatermill, "sync.Map": openSyncMap, "otter": openOtter,
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"a", "b"} {
				for _, want := range []bool{true, false, false} {
					if got, err := store.Claim(t.Context(), id); err != nil || got != want {
						t.Errorf("Claim(%q) = %v, %v; want %v", id, got, err, want)
					}
				}
			}
			if n := store.Len(); n != 2 {
				t.Errorf("Len() = %d", n)
			}
			if err := claimAll(t.Context(), store, []string{"c", "a"}); err == nil {
				t.Error("a known ID was counted as a new one")
			}
		})
	}
}
