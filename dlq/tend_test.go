package dlq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

// pins are what an application has pinned.
type pins map[string]bool

func (p pins) options() *dlq.Options {
	opts := exact()
	opts.Pin = func(_ context.Context, _, id string) error { p[id] = true; return nil }
	opts.Unpin = func(_ context.Context, _, id string) error { delete(p, id); return nil }
	return opts
}

// TestUnpinOfAnOlderLetterKeepsThePin has an ID with a letter that has ended and one
// that has not.
func TestUnpinOfAnOlderLetterKeepsThePin(t *testing.T) {
	p := pins{}
	q := newQueue(t, dlq.NewMemory(), p.options())
	r := newReview(t, q)
	put(t, q, "k", "a")
	first := get(t, q, "a")
	if err := r.Discard(ctx, first.Ref(), "x"); err != nil || p["a"] {
		t.Fatalf("the pin of a letter that has ended: %t, %v", p["a"], err)
	}
	put(t, q, "k", "a")
	if err := r.Forget(ctx, first.Ref(), "asked for"); err != nil || !p["a"] {
		t.Errorf("after the first letter was forgotten, the second is pinned %t, %v", p["a"], err)
	}
	second := get(t, q, "a")
	if err := r.Reject(ctx, second.Ref(), "x"); err != nil || p["a"] {
		t.Errorf("after both have ended, the ID is pinned %t, %v", p["a"], err)
	}
}

// TestUnpinMeetsANewLetter has a letter put after another of its ID has ended and before
// that one's Unpin.
func TestUnpinMeetsANewLetter(t *testing.T) {
	p := pins{}
	opts := p.options()
	var q *dlq.Queue
	forget, again := opts.Unpin, true
	opts.Unpin = func(c context.Context, s, id string) error {
		if again {
			again = false
			put(t, q, "k", "a")
		}
		return forget(c, s, id)
	}
	q = newQueue(t, dlq.NewMemory(), opts)
	put(t, q, "k", "a")
	l := get(t, q, "a")
	if err := newReview(t, q).Discard(ctx, l.Ref(), "x"); err != nil || !p["a"] {
		t.Errorf("the new letter is pinned %t, %v", p["a"], err)
	}
}

// TestPinsOfCallersWhoHaveGone has contexts end as soon as the store has answered.
func TestPinsOfCallersWhoHaveGone(t *testing.T) {
	opts := exact()
	var errs []error
	opts.Pin = func(ctx context.Context, _, _ string) error { errs = append(errs, ctx.Err()); return ctx.Err() }
	opts.Unpin = opts.Pin
	hangUp := func() {}
	store := &dlqtest.Faulty{Store: dlq.NewMemory(), After: func(dlqtest.Step) error { hangUp(); return nil }}
	q := newQueue(t, store, opts)
	caller := func() context.Context {
		going, cancel := context.WithCancel(ctx)
		t.Cleanup(cancel)
		hangUp = cancel
		return going
	}
	if _, err := q.With(store).Put(caller(), dlq.Dead{Message: message("a", "k"), Cause: errDown}); err != nil {
		t.Fatal(err)
	}
	l := get(t, q, "a")
	if err := newReview(t, q).Discard(caller(), l.Ref(), "x"); err != nil {
		t.Fatal(err)
	}
	if len(errs) != 2 || errors.Join(errs...) != nil {
		t.Errorf("Pin and Unpin were called with contexts that had ended: %v", errs)
	}
}

// TestJobsDoNotWaitForPins has a Pin that does not return for an hour.
func TestJobsDoNotWaitForPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		setup := newQueue(t, m, exact())
		r := newReview(t, setup)
		inReview(t, setup, 5)
		redrive(t, r, dlq.Redrive{ID: "j"})
		opts := exact()
		var calls atomic.Int64
		opts.Pin = func(ctx context.Context, _, _ string) error {
			calls.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return ctx.Err()
		}
		run(t, newQueue(t, m, opts), nil, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Passed != 5 || calls.Load() != 1 {
			t.Errorf("beside a slow Pin, called %d times, the job is %+v", calls.Load(), j)
		}
	})
}
