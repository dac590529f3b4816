package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/retry"
)

// A process dies before or after any of its steps, and another goes on with its
// store: every delivery that was acknowledged is worked, in the order of its key.
func TestCrashBetweenAnyTwoSteps(t *testing.T) {
	for _, after := range []bool{false, true} {
		for step := range 16 {
			t.Run(fmt.Sprint("step ", step, " after ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { crash(t, step, after) })
			})
		}
	}
}

func crash(t *testing.T, step int, after bool) {
	memory := inbox.NewMemory()
	var mu sync.Mutex
	steps, dead := 0, false
	// fail counts steps, and makes the process dead at the given one.
	fail := func(count bool) error {
		mu.Lock()
		defer mu.Unlock()
		if count {
			if steps++; steps > step {
				dead = true
			}
		}
		if dead {
			return inboxtest.ErrFault
		}
		return nil
	}
	store := &inboxtest.Faulty{Store: memory}
	store.Before = func(inboxtest.Step) error { return fail(!after) }
	store.After = func(inboxtest.Step) error { return fail(after) }

	var j journal
	handle := func(_ context.Context, r inbox.Record) inbox.Outcome {
		j.add("%s", short(r))
		if short(r) == "a2" && r.Attempts == 1 {
			return inbox.Failed(errors.New("once"))
		}
		return inbox.Done()
	}
	opts := &inbox.WorkOptions{Lease: 10 * time.Second, Backoff: retry.Constant(time.Second)}
	first := newBox(t, store, nil)
	h := newHandler(t, first, provider{}, nil)
	w := work(t, first, opts, handle)
	var acknowledged []string
	for _, body := range []string{`[{"id":"a1","key":"a"},{"id":"b1","key":"b"}]`, `[{"id":"a2","key":"a"}]`, `[{"id":"a3","key":"a"},{"id":"b2","key":"b"}]`} {
		if post(h, body).Code == 200 {
			for _, id := range []string{"a1", "a2", "a3", "b1", "b2"} {
				if strings.Contains(body, id) {
					acknowledged = append(acknowledged, id)
				}
			}
		}
		time.Sleep(700 * time.Millisecond)
	}
	mu.Lock()
	dead = true
	mu.Unlock()
	w.stop()

	second := newBox(t, memory, nil)
	work(t, second, opts, handle)
	time.Sleep(time.Minute)
	if got := totals(t, second); got.Pending != 0 || got.Done < len(acknowledged) {
		t.Errorf("after a crash the totals are %+v, and %d events were acknowledged", got, len(acknowledged))
	}
	worked := strings.Fields(j.String())
	for _, id := range acknowledged {
		if !slices.Contains(worked, id) {
			t.Errorf("%s was acknowledged and not worked: %q", id, worked)
		}
	}
	// A repetition may come again, but never an event before an earlier one of its
	// key.
	for _, key := range []string{"a", "b"} {
		seen := map[string]bool{}
		for _, id := range worked {
			if !strings.HasPrefix(id, key) {
				continue
			}
			for i := byte('1'); i < id[1]; i++ {
				earlier := key + string(i)
				if slices.Contains(worked, earlier) && !seen[earlier] {
					t.Errorf("%s was worked before %s: %q", id, earlier, worked)
				}
			}
			seen[id] = true
		}
	}
}

// Replies get lost, each once: nothing is worked twice on that account, since
// steps are sent again.
func TestLostRepliesWhileWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls := 0
		store := &inboxtest.Faulty{Store: inbox.NewMemory(), After: func(s inboxtest.Step) error {
			mu.Lock()
			defer mu.Unlock()
			if s.Ask == nil && s.Settlements == nil {
				return nil
			}
			if calls++; calls%2 == 1 {
				return inboxtest.ErrFault
			}
			return nil
		}}
		b := newBox(t, store, nil)
		for i := range 20 {
			accept(t, b, events(fmt.Sprint("k", i%4), fmt.Sprint("e", i))...)
		}
		var j journal
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s/%d", short(r), r.Attempts)
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Done: 20})
		worked := strings.Fields(j.String())
		slices.Sort(worked)
		if len(slices.Compact(worked)) != 20 || strings.Contains(j.String(), "/2") {
			t.Errorf("with lost replies %d events were worked: %q", len(worked), worked)
		}
		if s := b.Stats(); s.Done != 20 || s.Stale != 0 {
			t.Errorf("the counts are %+v", s)
		}
	})
}

// The store is away for a while: work goes on when it is back, and what was done
// meanwhile is not repeated if the leases outlast it.
func TestWorkWhenTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		away := false
		store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(inboxtest.Step) error {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return inboxtest.ErrFault
			}
			return nil
		}}
		set := func(v bool) {
			mu.Lock()
			defer mu.Unlock()
			away = v
		}
		log, text := logged()
		b := newBox(t, store, &inbox.Options{Logger: log})
		accept(t, b, events("k", "a", "b")...)
		accept(t, b, events("l", "x")...)
		var j journal
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			time.Sleep(2 * time.Second)
			return inbox.Done()
		})
		time.Sleep(time.Second)
		set(true)
		time.Sleep(4 * time.Second) // the handlers end meanwhile
		set(false)
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Done: 3})
		if got := j.String(); got != "a1 x1 b1" && got != "x1 a1 b1" {
			t.Errorf("worked were %q, want each once", got)
		}
		set(true)
		time.Sleep(10 * time.Second)
		set(false)
		accept(t, b, events("k", "c")...)
		time.Sleep(6 * time.Second)
		wantTotals(t, b, inbox.Totals{Done: 4})
		if !strings.Contains(text(), "could not look for work") {
			t.Error("that the store did not answer was not logged")
		}
	})
}

// An unanswering store leaves items without an answer, which a store of somebody
// else may do by mistake.
type unanswering struct {
	inbox.Store
	accept func([]inbox.Arrival) []inbox.Answer
	settle []error
}

func (u unanswering) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	if u.accept == nil {
		return u.Store.Accept(ctx, p, arrivals)
	}
	return u.accept(arrivals), nil
}

func (u unanswering) Settle(ctx context.Context, p inbox.Params, s []inbox.Settlement) ([]error, error) {
	if u.settle == nil {
		return u.Store.Settle(ctx, p, s)
	}
	return u.settle, nil
}

func TestArrivalsWithoutAnAnswerAreNotAcknowledged(t *testing.T) {
	for name, answers := range map[string]func([]inbox.Arrival) []inbox.Answer{
		"none":     func([]inbox.Arrival) []inbox.Answer { return nil },
		"too few":  func(as []inbox.Arrival) []inbox.Answer { return []inbox.Answer{inbox.Accepted} },
		"too many": func(as []inbox.Arrival) []inbox.Answer { return []inbox.Answer{1, 1, 1} },
		"zero":     func(as []inbox.Arrival) []inbox.Answer { return []inbox.Answer{inbox.Accepted, 0} },
		"unheard":  func(as []inbox.Arrival) []inbox.Answer { return []inbox.Answer{inbox.Accepted, 77} },
	} {
		b := newBox(t, unanswering{Store: inbox.NewMemory(), accept: answers}, nil)
		if w := post(newHandler(t, b, provider{}, nil), `[{"id":"a"},{"id":"b"}]`); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: the endpoint answers %d, want 503", name, w.Code)
		}
		if _, err := b.Accept(context.Background(), events("k", "a", "b")...); !errors.Is(err, inbox.ErrUnavailable) {
			t.Errorf("%s: Accept returns %v, want ErrUnavailable", name, err)
		}
	}
}

func TestSettlementsWithoutAnAnswerAreNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, unanswering{Store: inbox.NewMemory(), settle: []error{}}, nil)
		accept(t, b, events("k", "a", "b")...)
		w := work(t, b, nil, func(ctx context.Context, _ inbox.Record) inbox.Outcome {
			if err := b.Complete(ctx); !errors.Is(err, inbox.ErrUnavailable) {
				t.Errorf("Complete returns %v, want ErrUnavailable", err)
			}
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if s := b.Stats(); s.Done != 0 || s.Errors == 0 {
			t.Errorf("%d are counted as done, and %d errors", s.Done, s.Errors)
		}
	})
}

// While a settlement that was applied is sent again, since its answer was lost,
// the lease that it gave up is not reported as lost.
func TestALeaseThatWasGivenUpIsNotLost(t *testing.T) {
	for name, outcome := range map[string]inbox.Outcome{
		"done":  inbox.Done(),
		"retry": inbox.Retry(time.Hour, errors.New("later")),
	} {
		synctest.Test(t, func(t *testing.T) {
			lost := 0
			s := &inboxtest.Faulty{Store: inbox.NewMemory(), After: func(s inboxtest.Step) error {
				if len(s.Settlements) > 0 && s.Settlements[0].Kind != inbox.KindExtend && lost < 8 {
					lost++
					return inboxtest.ErrFault
				}
				return nil
			}}
			b := newBox(t, s, nil)
			accept(t, b, events("k", "a")...)
			w := work(t, b, &inbox.WorkOptions{Lease: 300 * time.Millisecond}, func(context.Context, inbox.Record) inbox.Outcome {
				return outcome
			})
			time.Sleep(10 * time.Second)
			w.stop()
			if s := b.Stats(); s.LeasesLost != 0 || s.Done+s.Retried != 1 || lost != 8 {
				t.Errorf("%s: %d leases lost, %d done, %d retried after %d lost answers", name, s.LeasesLost, s.Done, s.Retried, lost)
			}
		})
	}
}
