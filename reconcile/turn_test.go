package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A probe sees what the remote answered, in clear also where it is sealed in the store.
func TestResultFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true, Keys: []reconcile.Key{{ID: "1", Secret: make([]byte, 32)}}})
		if reconcile.ResultFrom(t.Context()) != nil {
			t.Fatal("a result outside a probe")
		}
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			if r := reconcile.ResultFrom(ctx); r != nil {
				t.Errorf("the first call has a result %q", r)
			}
			return []byte("remote-7"), nil
		}, nil)
		var seen string
		run(t, l, never(t), func(ctx context.Context, _ reconcile.Op) (reconcile.Evidence, error) {
			seen = string(reconcile.ResultFrom(ctx))
			return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
		})
		time.Sleep(5 * time.Minute)
		if want(t, l, "k", reconcile.Confirmed); seen != "remote-7" {
			t.Fatalf("the probe saw %q", seen)
		}
	})
}
