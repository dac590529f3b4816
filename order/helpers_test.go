package order_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

var errBroken = errors.New("connection reset")

// A step is one call of a store that a test may break.
type step struct {
	op     string // push, claim, settle, find
	n      int    // of all calls, from 1
	s      []order.Settlement
	params order.Params
}

// A faulty store asks the test before and after each call, and fails with what it
// answers.
type faulty struct {
	order.Store
	mu     sync.Mutex
	n      int
	before func(step) error // nil: go on
	after  func(step) error
	hang   func(step) bool // until the call's context ends
}

func newFaulty(s order.Store) *faulty { return &faulty{Store: s} }

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) call(ctx context.Context, st step, do func() error) error {
	f.mu.Lock()
	f.n++
	st.n = f.n
	before, after, hang := f.before, f.after, f.hang
	f.mu.Unlock()
	if hang != nil && hang(st) {
		<-ctx.Done()
		return ctx.Err()
	}
	if before != nil {
		if err := before(st); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if after != nil {
		return after(st)
	}
	return nil
}

func (f *faulty) Push(ctx context.Context, p order.Params, a []order.Arrival) (answers []order.Answer, err error) {
	err = f.call(ctx, step{op: "push", params: p}, func() (err error) {
		answers, err = f.Store.Push(ctx, p, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (f *faulty) Claim(ctx context.Context, p order.Params, a order.Ask) (c order.Claimed, err error) {
	err = f.call(ctx, step{op: "claim", params: p}, func() (err error) {
		c, err = f.Store.Claim(ctx, p, a)
		return err
	})
	if err != nil {
		return order.Claimed{}, err
	}
	return c, nil
}

func (f *faulty) Settle(ctx context.Context, p order.Params, s []order.Settlement) (errs []error, err error) {
	err = f.call(ctx, step{op: "settle", s: s, params: p}, func() (err error) {
		errs, err = f.Store.Settle(ctx, p, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

func (f *faulty) Find(ctx context.Context, p order.Params, places []order.Place) (found []order.Found, err error) {
	err = f.call(ctx, step{op: "find", params: p}, func() (err error) {
		found, err = f.Store.Find(ctx, p, places)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (f *faulty) Sweep(ctx context.Context, p order.Params, n int) (int, error) {
	return f.Store.(order.Sweeper).Sweep(ctx, p, n)
}

// fail makes calls of an operation fail before they are applied.
func fail(op string) func(step) error {
	return func(st step) error {
		if st.op == op {
			return errBroken
		}
		return nil
	}
}

// newBuffer makes a buffer or fails the test.
func newBuffer(t testing.TB, s order.Store, opts *order.Options) *order.Buffer {
	t.Helper()
	b, err := order.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// msg is a message with a payload of its own.
func msg(key string, n uint64) order.Message {
	return order.Message{Key: key, Position: order.Position{Epoch: 1, Number: n}, Payload: fmt.Append(nil, key, n)}
}

func msgs(key string, numbers ...uint64) []order.Message {
	ms := make([]order.Message, len(numbers))
	for i, n := range numbers {
		ms[i] = msg(key, n)
	}
	return ms
}

// push pushes messages and fails the test unless all are answered want.
func push(t testing.TB, b *order.Buffer, want order.Arrived, ms ...order.Message) {
	t.Helper()
	answers, err := b.Push(context.Background(), ms...)
	if err != nil {
		t.Fatalf("Push: %v", err)
	}
	for i, a := range answers {
		if a.State != want {
			t.Fatalf("number %d was answered %v, want %v", ms[i].Position.Number, a.State, want)
		}
	}
}

// A record notes what handlers are given.
type record struct {
	mu   sync.Mutex
	list []string // as key:number
	ms   []order.Message
}

func (r *record) add(m order.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprint(m.Key, ":", m.Position.Number))
	r.ms = append(r.ms, m)
}

func (r *record) handle(_ context.Context, m order.Message) error {
	r.add(m)
	return nil
}

func (r *record) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func (r *record) messages() []order.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ms)
}

func (r *record) want(t testing.TB, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := r.got(); !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

// names are what a record notes of numbers of a key.
func names(key string, from, to uint64) (list []string) {
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(key, ":", n))
	}
	return list
}

// start runs a buffer in the background and returns how to stop it.
func start(t testing.TB, b *order.Buffer, handle func(context.Context, order.Message) error, opts *order.RunOptions) (stop func()) {
	t.Helper()
	return startRun(t, func(ctx context.Context) error { return b.Run(ctx, handle, opts) })
}

func startRun(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// account returns the account of a key and checks its sums.
func account(t testing.TB, b *order.Buffer, key string) order.Account {
	t.Helper()
	a, err := b.Account(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range a.Ledgers {
		if l.Delivered+l.Void+l.Skipped+l.Late != l.Cursor-l.Base || l.Buffered+l.Parked+l.Unordered+l.VoidAhead+l.Missing != l.Head-l.Cursor {
			t.Errorf("the sums do not hold: %+v", l)
		}
	}
	n := a.Arrivals
	if n.Pushed != n.Accepted+n.Duplicate+n.Conflict+n.Late+n.Stale+n.Full+n.TooFar {
		t.Errorf("the sum of the arrivals does not hold: %+v", n)
	}
	return a
}

// wantCursor checks where a key stands in its active epoch.
func wantCursor(t testing.TB, b *order.Buffer, key string, cursor, delivered uint64) order.Ledger {
	t.Helper()
	synctest.Wait()
	a := account(t, b, key)
	if len(a.Ledgers) == 0 {
		t.Fatalf("key %s does not exist", key)
	}
	if l := a.Ledgers[0]; l.Cursor != cursor || l.Delivered != delivered {
		t.Errorf("the cursor is %d with %d delivered, want %d and %d: %+v", l.Cursor, l.Delivered, cursor, delivered, l)
	}
	return a.Ledgers[0]
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// bubble runs a test with virtual time, over a memory store and over one that is
// asked as any other: with merging and re-sending.
func bubble(t *testing.T, f func(t *testing.T, s order.Store)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, order.NewMemory()) })
	})
	t.Run("joined", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newFaulty(order.NewMemory())) })
	})
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
