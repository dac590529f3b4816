package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
)

func TestMemoryConforms(t *testing.T) {
	deduptest.Run(t, deduptest.Config{
		New:    func(*testing.T) dedup.Store { return dedup.NewMemory() },
		Bubble: true,
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		m.SetLimit(100)
		g := newGuard(t, m, &dedup.Options{Retention: time.Hour})
		for i := range 100 {
			if _, err := g.FirstSeen(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := g.Claim(t.Context(), dedup.Request{ID: "one more"})
		wantErr(t, err, dedup.ErrFull)
		if first, err := g.FirstSeen(t.Context(), "7"); err != nil || first[0] {
			t.Errorf("a full store forgot an ID: %v, %v", first, err)
		}
		time.Sleep(time.Hour)
		dropped := 0
		for dropped < 100 {
			n, err := m.Sweep(t.Context(), 10)
			if err != nil || n > 10 {
				t.Fatalf("Sweep: %d, %v", n, err)
			}
			dropped += n
		}
		if m.Len() != 0 || dropped != 100 {
			t.Errorf("%d IDs left, %d dropped", m.Len(), dropped)
		}
		wantState(t, claim(t, g, "one more"), dedup.Acquired)
		_, err = m.Sweep(t.Context(), 0)
		wantErr(t, err, dedup.ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Sweep(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("Sweep of a cancelled context: %v", err)
		}
	})
}

// Claims of new IDs alone clear what has expired: the store does not grow with
// all that it has ever seen.
func TestMemoryClearsAsItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		g := newGuard(t, m, &dedup.Options{Retention: time.Minute, Lease: time.Second})
		for i := range 60 {
			for j := range 1000 {
				if _, err := g.FirstSeen(t.Context(), fmt.Sprint(i, "-", j)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		if n := m.Len(); n > 15_000 {
			t.Errorf("%d IDs are held, where 6,000 are within their retention", n)
		}
	})
}
