package crashtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/order"
)

// OrderRestored works a key of an order store, which is put back to an older copy
// meanwhile: copied makes the copy, and restored puts it in place of what is there
// and returns the store on it.
//
// What the copy did not know as delivered is delivered again, in order. What had
// arrived since is missing: it is skipped with a record that is listed, and comes
// late if it is sent again. The key goes on, and its account adds up.
func OrderRestored(t *testing.T, s order.Store, copied func(), restored func() order.Store) {
	t.Helper()
	r := &restoring{t: t, store: s}
	r.push(1, 20)
	r.deliver(10)
	copied()
	r.deliver(20)
	r.push(21, 30)
	r.deliver(25)
	r.wantDelivered(numbers(1, 25))

	r.store = restored()
	r.push(31, 35)
	r.deliver(35)
	r.wantDelivered(slices.Concat(numbers(1, 25), numbers(11, 20), numbers(31, 35)))
	for number, want := range map[uint64]order.State{10: order.StateDelivered, 20: order.StateDelivered, 21: order.StateSkipped, 30: order.StateSkipped, 31: order.StateDelivered} {
		found, err := r.buffer().Where(t.Context(), key, order.Position{Number: number})
		if err != nil || found[0].State != want {
			t.Errorf("number %d is %v (%v), want %v", number, found, err, want)
		}
	}
	gaps, err := r.buffer().Gaps(t.Context(), order.Query{N: 10})
	if err != nil || len(gaps) != 1 || gaps[0].From != 21 || gaps[0].To != 31 || gaps[0].Open {
		t.Errorf("the gaps are %+v (%v), want one record of 21 to 30", gaps, err)
	}
	r.push(28, 28)
	r.deliver(28)
	if r.late != 28 {
		t.Errorf("number %d came late, want 28", r.late)
	}
	r.account()
}

const key = "restored"

type restoring struct {
	t     *testing.T
	store order.Store

	mu        sync.Mutex
	delivered []uint64
	late      uint64
	stop      func() // the run that is under way
}

// buffer is what a process that starts now has.
func (r *restoring) buffer() *order.Buffer {
	r.t.Helper()
	b, err := order.New(r.store, &order.Options{
		GapTimeout: 50 * time.Millisecond, AlertAfter: time.Millisecond,
		OnLate: func(_ context.Context, m order.Message) error {
			r.late = m.Position.Number
			r.stop()
			return nil
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *restoring) push(from, to uint64) {
	r.t.Helper()
	for n := from; n <= to; n++ {
		answers, err := r.buffer().Push(r.t.Context(), order.Message{Key: key, Position: order.Position{Number: n}, Payload: fmt.Append(nil, n)})
		if err != nil || !answers[0].Taken() {
			r.t.Fatalf("number %d was answered %v, %v", n, answers, err)
		}
	}
}

// deliver works the key until a number was delivered, in its turn or late, and not
// further.
func (r *restoring) deliver(last uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	r.stop = cancel
	err := r.buffer().Run(ctx, func(_ context.Context, m order.Message) error {
		if m.Position.Number > last {
			return fmt.Errorf("number %d is not to be delivered yet", m.Position.Number)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.delivered = append(r.delivered, m.Position.Number)
		if m.Position.Number == last {
			cancel()
		}
		return nil
	}, &order.RunOptions{Poll: 5 * time.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *restoring) wantDelivered(want []uint64) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.delivered, want) {
		r.t.Errorf("delivered were %v, want %v", r.delivered, want)
	}
}

// account checks that the sums of the key are equal.
func (r *restoring) account() {
	r.t.Helper()
	a, err := r.buffer().Account(r.t.Context(), key)
	if err != nil || len(a.Ledgers) != 1 {
		r.t.Fatalf("the account is %+v, %v", a, err)
	}
	e := a.Ledgers[0]
	if e.Delivered+e.Void+e.Skipped+e.Late != e.Cursor-e.Base || e.Buffered+e.Parked+e.Unordered+e.VoidAhead+e.Missing != e.Head-e.Cursor {
		r.t.Errorf("the account does not add up: %+v", e)
	}
	if e.Cursor != 36 || e.Late+e.Skipped != 10 {
		r.t.Errorf("the ledger is %+v, want a cursor of 36 and ten numbers skipped or late", e)
	}
}

func numbers(from, to uint64) (list []uint64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}
