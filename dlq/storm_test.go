package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/internal/testenv"
)

// TestStorm has processes that come and go, a store that fails before and after every
// kind of step, handlers that fail, panic and take long, and two operators who do
// anything to any letter and any job. Then all is quiet, and what is left is approved.
//
//   - Every message whose Put was answered is there, and resolved or ended by a person.
//   - No letter is resolved whose handler has not succeeded.
//   - The letters of a key were resolved in their order, but for those that were skipped.
//   - Every action that was answered is in the audit once, with who and why; no other is
//     in it twice.
//   - Every job has ended, and has counted what it released.
func TestStorm(t *testing.T) { storms(t, 1) }

// TestLongStorm is TestStorm again and again: see make long.
func TestLongStorm(t *testing.T) {
	storms(t, testenv.LongCount(t, 3, 50))
}

func storms(t *testing.T, n int) {
	for _, from := range seed.List(n) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log(seed.Repeat(from))
				}
			}()
			s := &storm{
				t: t, rnd: rand.New(rand.NewPCG(from, 0)), memory: dlq.NewMemory(), put: map[string]bool{}, passed: map[string]bool{},
				acted: map[string]dlq.Verb{}, tried: map[string]bool{},
			}
			s.blow()
			s.calm()
			s.verify()
		})
	}
}

type storm struct {
	t      *testing.T
	memory *dlq.Memory

	mu     sync.Mutex
	rnd    *rand.Rand
	quiet  bool
	put    map[string]bool     // IDs whose Put was answered
	passed map[string]bool     // IDs whose handler has succeeded
	acted  map[string]dlq.Verb // actions that were answered, by reason
	tried  map[string]bool     // all actions, by reason
}

// below is a random number, and chance true in so many of a hundred cases.
func (s *storm) below(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *storm) chance(percent int) bool { return s.below(100) < percent }

func (s *storm) queue() *dlq.Queue {
	fail := func(dlqtest.Step) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.quiet && s.rnd.IntN(100) < 15 {
			return dlqtest.ErrFault
		}
		return nil
	}
	opts := exact()
	opts.StoreTimeout = 2 * time.Second
	return newQueue(s.t, &dlqtest.Faulty{Store: s.memory, Before: fail, After: fail}, opts)
}

func (s *storm) handle(ctx context.Context, l dlq.Letter) error {
	select {
	case <-time.After(time.Duration(s.below(50)) * time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.rnd.IntN(100); {
	case s.quiet || n < 40:
		s.passed[l.ID] = true
		return nil
	case n < 50:
		panic("storm")
	case n < 60:
		return dlq.GiveUp(errDown)
	}
	return fmt.Errorf("failure of kind %c", 'a'+rune(s.rnd.IntN(3)))
}

func (s *storm) blow() {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	for range 3 { // processes that come and go
		wg.Go(func() {
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(1+s.below(3600))*time.Second)
				opts := &dlq.RunOptions{Stream: stream, Concurrency: 3, Poll: 20 * time.Second, Lease: 20 * time.Second, Grace: time.Duration(s.below(20)) * time.Second}
				if s.chance(30) {
					opts.Return = func(_ context.Context, l dlq.Letter) error { return nil }
				}
				if err := s.queue().Run(life, s.handle, opts); err != nil {
					s.t.Errorf("Run: %v", err)
				}
				end()
			}
		})
	}
	wg.Go(func() { // the normal flow
		q := s.queue()
		for i := 0; ctx.Err() == nil; i++ {
			n := i
			if s.chance(30) {
				n = s.below(i + 1) // a message that fails once more
			}
			id := fmt.Sprint("m", n)
			if _, err := q.Put(ctx, dlq.Dead{Message: message(id, []string{"", "k0", "k1", "k2"}[n%4]), Cause: errDown}); err == nil {
				s.mu.Lock()
				s.put[id] = true
				s.mu.Unlock()
			} else if !errors.Is(err, dlq.ErrUnavailable) && ctx.Err() == nil {
				s.t.Errorf("Put: %v", err)
			}
			time.Sleep(time.Duration(s.below(300)) * time.Second)
		}
	})
	for i := range 2 {
		wg.Go(func() { s.operate(ctx, fmt.Sprint("operator ", i)) })
	}
	time.Sleep(10 * time.Hour)
	cancel()
	wg.Wait()
}

// operate does anything to any letter and any job.
func (s *storm) operate(ctx context.Context, name string) {
	r := authorized(s.t, s.queue(), func(context.Context, dlq.Action) (string, error) { return name, nil })
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(s.below(900)) * time.Second)
		reason, job := fmt.Sprint(name, " ", n), fmt.Sprint("j", s.below(8))
		verb := []dlq.Verb{
			dlq.VerbApprove, dlq.VerbApprove, dlq.VerbReject, dlq.VerbDiscard, dlq.VerbSkip, dlq.VerbEdit, dlq.VerbReveal, dlq.VerbRedrive,
			dlq.VerbPause, dlq.VerbResume, dlq.VerbCancel,
		}[s.below(11)]
		page, err := r.List(ctx, dlq.Query{Stream: stream, State: dlq.StateWaiting + dlq.State(s.below(2)), N: 50})
		if err != nil || len(page.Letters) == 0 {
			continue
		}
		ref := page.Letters[s.below(len(page.Letters))].Ref()
		time.Sleep(time.Duration(s.below(60)) * time.Second) // the operator thinks
		s.mu.Lock()
		s.tried[reason] = true
		s.mu.Unlock()
		noted := true
		switch verb {
		case dlq.VerbApprove:
			err = r.Approve(ctx, ref, reason)
		case dlq.VerbReject:
			err = r.Reject(ctx, ref, reason)
		case dlq.VerbDiscard:
			err = r.Discard(ctx, ref, reason)
		case dlq.VerbSkip:
			err = r.Skip(ctx, ref, reason)
		case dlq.VerbEdit:
			err = r.Edit(ctx, ref, dlq.Content{Payload: []byte(reason)}, reason)
		case dlq.VerbReveal:
			_, err = r.Reveal(ctx, ref, reason)
		case dlq.VerbRedrive: // which is the same job as the last one, and not noted, if there was one
			d := dlq.Redrive{Stream: stream, ID: job, Canary: 1 + len(job), Reason: reason, MaxFailures: 90}
			_, noted, err = r.Redrive(ctx, d)
		case dlq.VerbPause:
			_, err = r.Pause(ctx, stream, job, reason)
		case dlq.VerbResume:
			_, err = r.Resume(ctx, stream, job, reason)
		case dlq.VerbCancel:
			_, err = r.Cancel(ctx, stream, job, reason)
		}
		switch {
		case err == nil && noted:
			s.mu.Lock()
			s.acted[reason] = verb
			s.mu.Unlock()
		case err != nil && ctx.Err() == nil && !errors.Is(err, dlq.ErrUnavailable) && !errors.Is(err, dlq.ErrState) && !errors.Is(err, dlq.ErrChanged) && !errors.Is(err, dlq.ErrNotFound):
			s.t.Errorf("%s: %v", verb, err)
		}
	}
}

// calm lets everything come to its end.
func (s *storm) calm() {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	q := s.queue()
	r := newReview(s.t, q)
	stop := run(s.t, q, &dlq.RunOptions{Poll: time.Minute}, s.handle)
	for range 50 {
		jobs, err := r.Jobs(ctx, stream, "", 100)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, j := range jobs {
			if j.State == dlq.JobPaused {
				if _, err := r.Resume(ctx, stream, j.ID, "at the end"); err != nil {
					s.t.Errorf("Resume: %v", err)
				}
			}
		}
		time.Sleep(time.Hour)
		page, err := r.List(ctx, dlq.Query{Stream: stream, State: dlq.StateReview, N: 1000})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, l := range page.Letters {
			if err := r.Approve(ctx, l.Ref(), "at the end"); err != nil {
				s.t.Errorf("Approve: %v", err)
			}
		}
	}
	stop()
}

func (s *storm) verify() {
	q := newQueue(s.t, s.memory, nil)
	r := newReview(s.t, q)
	totals, err := q.Totals(ctx, "", 10)
	if err != nil || totals[0].Waiting+totals[0].Review > 0 || totals[0].Resolved == 0 {
		s.t.Fatalf("the totals are %+v, %v", totals, err)
	}
	last := map[string]time.Time{}
	for page := (dlq.LetterPage{Next: 0}); ; {
		if page, err = r.List(ctx, dlq.Query{Stream: stream, After: page.Next, N: 100}); err != nil {
			s.t.Fatal(err)
		}
		for _, l := range page.Letters {
			if l.State == dlq.StateResolved && !s.passed[l.ID] {
				s.t.Errorf("the letter %s is resolved, and its handler never succeeded", l.ID)
			}
			if l.Key != "" && !l.Aside && l.State == dlq.StateResolved {
				if l.Settled.Before(last[l.Key]) {
					s.t.Errorf("the letter %s of %s was resolved before one that was put before it", l.ID, l.Key)
				}
				last[l.Key] = l.Settled
			}
			delete(s.put, l.ID)
		}
		if page.Next == 0 {
			break
		}
	}
	if len(s.put) > 0 {
		s.t.Errorf("lost: %v", s.put)
	}
	entries, next, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 1000})
	for err == nil && next > 0 {
		var more []dlq.Entry
		more, next, err = r.Audit(ctx, dlq.AuditQuery{Stream: stream, After: next, N: 1000})
		entries = append(entries, more...)
	}
	noted := map[string]int{}
	for _, e := range entries {
		if s.tried[e.Reason] && e.Job != "" && e.Verb == "approve" {
			continue // what a job has released under the operator's words
		}
		if s.tried[e.Reason] && e.Actor+" " != e.Reason[:len(e.Actor)+1] {
			s.t.Errorf("an entry of %s says %q", e.Actor, e.Reason)
		}
		if noted[e.Reason]++; s.tried[e.Reason] && noted[e.Reason] > 1 {
			s.t.Errorf("the %s of %q is in the audit %d times", e.Verb, e.Reason, noted[e.Reason])
		}
	}
	for reason, verb := range s.acted {
		if noted[reason] != 1 {
			s.t.Errorf("the %s of %q was answered, and is in the audit %d times", verb, reason, noted[reason])
		}
	}
	jobs, err := r.Jobs(ctx, stream, "", 100)
	for _, j := range jobs {
		if j.State != dlq.JobDone && j.State != dlq.JobCancelled || j.Released != j.Passed+j.Failed+j.Moved {
			s.t.Errorf("the job is %+v", j)
		}
	}
	s.t.Logf("%d resolved, %d discarded, %d rejected, %d entries, %d actions answered, %d jobs, %v", totals[0].Resolved, totals[0].Discarded, totals[0].Rejected, len(entries), len(s.acted), len(jobs), err)
}
