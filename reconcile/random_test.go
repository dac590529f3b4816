package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

// Two processes with one store, a remote without keys whose reads lag, that loses answers,
// takes nothing for a while and fails to be found, and a store that loses replies: in the
// end each operation was done once and is Confirmed.
func TestRandomFaultsDoEachOperationOnce(t *testing.T) {
	for _, from := range seed.List(5) {
		t.Run(fmt.Sprint("seed ", from), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log(seed.Repeat(from))
				}
			}()
			bubble(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(from, 7))) })
		})
	}
}

func randomFaults(t *testing.T, random *rand.Rand) {
	const ops = 60
	r := newRemote()
	r.lag = 20 * time.Second
	calm := time.Now().Add(8 * time.Hour) // faults until then
	pick := func(n int) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return random.IntN(n)
	}
	fault := func(percent int) bool { return time.Now().Before(calm) && pick(100) < percent }
	call := func(ctx context.Context, op reconcile.Op) ([]byte, error) {
		switch {
		case fault(15):
			return nil, reconcile.NotDone(errors.New("no connection"))
		case fault(10):
			return nil, errors.New("lost on the way there")
		}
		time.Sleep(50 * time.Millisecond)
		if result, err := r.call(ctx, op); err != nil || !fault(30) {
			return result, err
		}
		return nil, errors.New("lost on the way back")
	}
	probe := func(ctx context.Context, op reconcile.Op) (reconcile.Evidence, error) {
		if fault(15) {
			return reconcile.Evidence{}, errors.New("no answer")
		}
		return r.probe(ctx, op)
	}
	memory := reconcile.NewMemory()
	ledgers := make([]*reconcile.Ledger, 2)
	for i := range ledgers {
		s := &reconciletest.Faulty{Store: memory, After: func(string) error {
			if fault(10) {
				return errLost
			}
			return nil
		}}
		ledgers[i] = newLedger(t, s, &reconcile.Options{MaxLooks: 1000, MaxSends: 1000})
		runAs(t, ledgers[i], call, probe, &reconcile.RunOptions{Poll: 15 * time.Second})
	}
	for i := range ops {
		key := fmt.Sprint("op-", i)
		for range 3 { // deliveries of what makes the operation
			_ = ledgers[pick(2)].Do(t.Context(), reconcile.Op{Key: key}, call, probe)
			time.Sleep(time.Duration(pick(300)) * time.Second)
		}
	}
	time.Sleep(time.Until(calm) + 12*time.Hour)
	for i := range ops { // what never left is sent by the next delivery
		key := fmt.Sprint("op-", i)
		if e, err := ledgers[0].Lookup(t.Context(), key); err == nil && e.State == reconcile.Failed && e.Again || errors.Is(err, reconcile.ErrNotFound) {
			_ = ledgers[0].Do(t.Context(), reconcile.Op{Key: key}, call, probe)
		}
		if e := want(t, ledgers[0], key, reconcile.Confirmed); r.did(key) != 1 {
			t.Errorf("%s was done %d times: %+v", key, r.did(key), e.Log)
		}
	}
}
