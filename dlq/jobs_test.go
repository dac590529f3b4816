package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

// inReview puts n letters into review.
func inReview(t testing.TB, q *dlq.Queue, n int) {
	t.Helper()
	for i := range n {
		put(t, q, "", fmt.Sprintf("l%04d", i))
		r := newReview(t, q)
		l := get(t, q, fmt.Sprintf("l%04d", i))
		if err := r.Skip(ctx, l.Ref(), "for the test"); err != nil {
			t.Fatal(err)
		}
	}
}

func status(t testing.TB, r *dlq.Review, id string) dlq.JobStatus {
	t.Helper()
	jobs, err := r.Jobs(ctx, stream, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.ID == id {
			return j
		}
	}
	t.Fatalf("there is no job %s", id)
	return dlq.JobStatus{}
}

func redrive(t testing.TB, r *dlq.Review, d dlq.Redrive) {
	t.Helper()
	d.Stream, d.Reason = stream, "fixed"
	if _, started, err := r.Redrive(ctx, d); err != nil || !started {
		t.Fatalf("Redrive: started %t, %v", started, err)
	}
}

func TestRedriveGoesCanaryThenRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := exact()
		var mu sync.Mutex
		stages := newJournal()
		handled := 0
		opts.Hooks = &dlq.Hooks{JobChanged: func(j dlq.JobStatus) {
			mu.Lock()
			defer mu.Unlock()
			stages.add("%s:%d:%d/%d", j.State, j.Stage, j.Released, handled)
		}}
		q := newQueue(t, dlq.NewMemory(), opts)
		r := newReview(t, q)
		inReview(t, q, 200)
		redrive(t, r, dlq.Redrive{ID: "j", Canary: 5, Ramp: []int{10, 50, 100}})
		time.Sleep(time.Second)
		put(t, q, "", "later")
		l := get(t, q, "later")
		if err := r.Skip(ctx, l.Ref(), "put after the job was made, and not selected"); err != nil {
			t.Fatal(err)
		}
		run(t, q, &dlq.RunOptions{Concurrency: 10}, func(context.Context, dlq.Letter) error {
			mu.Lock()
			handled++
			mu.Unlock()
			return nil
		})
		time.Sleep(time.Minute)
		// Each stage begins when all letters of the one before were handled.
		if want := "running:1:5/5 running:2:20/20 running:3:100/100 done:3:200/200"; stages.String() != want {
			t.Errorf("the stages were\n%s, want\n%s", stages, want)
		}
		j := status(t, r, "j")
		if j.State != dlq.JobDone || j.Total != 200 || j.Released != 200 || j.Passed != 200 || j.Failed+j.Moved != 0 || j.Actor != "ana" || j.Reason != "fixed" {
			t.Errorf("the job is %+v", j)
		}
		wantState(t, q, "later", dlq.StateReview)
		if l := wantState(t, q, "l0000", dlq.StateResolved); l.Job != "j" {
			t.Errorf("a redriven letter is %+v", l)
		}
		entries, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, Job: "j", N: 1000})
		if err != nil || len(entries) != 201 || entries[0].Verb != "redrive" || entries[1].Verb != "approve" || entries[1].Actor != "ana" {
			t.Errorf("the audit of the job has %d entries, %v", len(entries), err)
		}
		if s := q.Stats(); s.Redriven != 200 {
			t.Errorf("the stats are %+v", s)
		}
	})
}

func TestASecondClickIsTheSameJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		inReview(t, q, 30)
		d := dlq.Redrive{Stream: stream, ID: "j", Reason: "fixed"}
		var wg sync.WaitGroup
		var mu sync.Mutex
		started := 0
		for range 8 {
			wg.Go(func() {
				_, first, err := r.Redrive(ctx, d)
				if err != nil {
					t.Errorf("a click: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if first {
					started++
				}
			})
		}
		wg.Wait()
		if started != 1 {
			t.Errorf("8 clicks started %d jobs", started)
		}
		other := d
		other.Canary = 3
		if s, first, err := r.Redrive(ctx, other); !errors.Is(err, dlq.ErrChanged) || first || s.Canary != 10 {
			t.Errorf("another plan under the same ID: %+v, %t, %v", s, first, err)
		}
		tries := map[string]int{}
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			mu.Lock()
			defer mu.Unlock()
			tries[l.ID]++
			return nil
		})
		time.Sleep(time.Minute)
		if s, first, err := r.Redrive(ctx, d); err != nil || first || s.State != dlq.JobDone || s.Released != 30 {
			t.Errorf("a click after the end: %+v, %t, %v", s, first, err)
		}
		time.Sleep(time.Minute)
		for id, n := range tries {
			if n != 1 {
				t.Errorf("the letter %s was tried %d times", id, n)
			}
		}
		if len(tries) != 30 {
			t.Errorf("%d letters were tried", len(tries))
		}
	})
}

func TestRedriveIsPausedByFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		inReview(t, q, 100)
		redrive(t, r, dlq.Redrive{ID: "j", Canary: 10, MaxFailures: 20})
		var mu sync.Mutex
		bad := true
		n := 0
		run(t, q, nil, func(context.Context, dlq.Letter) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; bad && n%3 == 0 {
				return errDown
			}
			return nil
		})
		time.Sleep(4 * time.Minute)
		j := status(t, r, "j")
		if j.State != dlq.JobPaused || j.Released != 10 || j.Failed != 3 || j.Passed != 7 || j.Why != "3 of 10 tries failed, more than 20 percent" {
			t.Errorf("a job one third of whose letters fail is %+v", j)
		}
		mu.Lock()
		bad = false
		mu.Unlock()
		if j, err := r.Resume(ctx, stream, "j", "fixed now"); err != nil || j.State != dlq.JobRunning {
			t.Errorf("Resume: %+v, %v", j, err)
		}
		time.Sleep(4 * time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Released != 100 || j.Failed != 3 || j.Passed != 97 {
			t.Errorf("the resumed job is %+v", j)
		}
		if _, err := r.Resume(ctx, stream, "j", "x"); !errors.Is(err, dlq.ErrState) {
			t.Errorf("Resume of a job that is done: %v", err)
		}
		if _, err := r.Cancel(ctx, stream, "j", "x"); !errors.Is(err, dlq.ErrState) {
			t.Errorf("Cancel of a job that is done: %v", err)
		}
	})
}

func TestRedriveIsHeldByTheOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		inReview(t, q, 40)
		redrive(t, r, dlq.Redrive{ID: "j"})
		var mu sync.Mutex
		why := "level 2"
		run(t, q, &dlq.RunOptions{Hold: func() string {
			mu.Lock()
			defer mu.Unlock()
			if why == "panic" {
				panic("no")
			}
			return why
		}}, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.Released != 0 || j.Why != "level 2" || j.State != dlq.JobRunning {
			t.Errorf("a job that is held is %+v", j)
		}
		mu.Lock()
		why = "panic"
		mu.Unlock()
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.Released != 0 || j.Why != "RunOptions.Hold panicked" {
			t.Errorf("a job whose Hold panics is %+v", j)
		}
		mu.Lock()
		why = ""
		mu.Unlock()
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Passed != 40 || j.Why != "" {
			t.Errorf("a job that is held no longer is %+v", j)
		}
	})
}

func TestPauseAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		inReview(t, q, 50)
		redrive(t, r, dlq.Redrive{ID: "j", Canary: 5, Ramp: []int{50}})
		run(t, q, &dlq.RunOptions{Concurrency: 1}, func(context.Context, dlq.Letter) error { time.Sleep(10 * time.Second); return nil })
		time.Sleep(15 * time.Second)
		if j, err := r.Pause(ctx, stream, "j", "look first"); err != nil || j.State != dlq.JobPaused {
			t.Fatalf("Pause: %+v, %v", j, err)
		}
		if _, err := r.Pause(ctx, stream, "j", "again"); err != nil {
			t.Errorf("Pause of a paused job: %v", err)
		}
		time.Sleep(time.Hour)
		if j := status(t, r, "j"); j.Released != 5 || j.Passed != 5 {
			t.Errorf("a paused job is %+v", j)
		}
		if j, err := r.Cancel(ctx, stream, "j", "not today"); err != nil || j.State != dlq.JobCancelled {
			t.Fatalf("Cancel: %+v, %v", j, err)
		}
		time.Sleep(time.Hour)
		if j := status(t, r, "j"); j.Released != 5 {
			t.Errorf("a cancelled job is %+v", j)
		}
		if _, err := r.Pause(ctx, stream, "none", "x"); !errors.Is(err, dlq.ErrNotFound) {
			t.Errorf("Pause of no job: %v", err)
		}
	})
}

// TestManyDriversReleaseOnce has three processes drive a job, one of which dies again
// and again.
func TestManyDriversReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		r := newReview(t, q)
		inReview(t, q, 300)
		redrive(t, r, dlq.Redrive{ID: "j", Canary: 7, Ramp: []int{30, 60, 100}})
		var mu sync.Mutex
		tries := map[string]int{}
		handle := func(_ context.Context, l dlq.Letter) error {
			mu.Lock()
			defer mu.Unlock()
			tries[l.ID]++
			return nil
		}
		for range 2 {
			run(t, newQueue(t, m, exact()), nil, handle)
		}
		for range 20 {
			stop := run(t, newQueue(t, m, exact()), nil, handle)
			time.Sleep(1500 * time.Millisecond)
			stop()
		}
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Released != 300 || j.Passed != 300 || j.Moved != 0 {
			t.Errorf("the job is %+v", j)
		}
		for id, n := range tries {
			if n != 1 {
				t.Errorf("the letter %s was tried %d times", id, n)
			}
		}
	})
}

// TestACrashBetweenReleaseAndSave has a store that releases letters and then does not
// save how far the job came, for a while.
func TestACrashBetweenReleaseAndSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		setup := newQueue(t, m, exact())
		r := newReview(t, setup)
		for i := range 300 { // more than are released in one step
			put(t, setup, "", fmt.Sprint("l", i))
		}
		redrive(t, r, dlq.Redrive{ID: "j", Letters: dlq.StateWaiting, Canary: 300})
		start := time.Now()
		q := newQueue(t, &dlqtest.Faulty{Store: m, Before: func(s dlqtest.Step) error {
			if s.Job != nil && s.Job.Version > 1 && time.Since(start) < 20*time.Second {
				return dlqtest.ErrFault
			}
			return nil
		}}, exact())
		run(t, q, &dlq.RunOptions{Concurrency: 50}, func(_ context.Context, l dlq.Letter) error { time.Sleep(time.Minute); return nil })
		time.Sleep(15 * time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Released != 300 || j.Passed != 300 || j.Moved != 0 {
			t.Errorf("the job is %+v", j)
		}
	})
}

// TestWaitingLettersAreReleasedOnce redrives letters that stay in the state that the
// job selects.
func TestWaitingLettersAreReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		for i := range 20 {
			put(t, q, "", fmt.Sprint("l", i))
		}
		redrive(t, r, dlq.Redrive{ID: "j", Letters: dlq.StateWaiting, Canary: 3, Ramp: []int{50}, MaxFailures: 100})
		stop := run(t, q, nil, func(context.Context, dlq.Letter) error { return errDown })
		time.Sleep(4 * time.Minute)
		stop()
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Released != 20 || j.Failed != 20 || j.Moved != 0 {
			t.Errorf("the job is %+v", j)
		}
		if l := wantState(t, q, "l0", dlq.StateWaiting); l.Tries != 1 {
			t.Errorf("a letter that the job released has %d tries", l.Tries)
		}
	})
}

// TestAJobDoesNotWaitForEver has a letter that waits behind one in review.
func TestAJobDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		put(t, q, "k", "first")
		if _, err := q.Put(ctx, dlq.Dead{Message: message("second", "k"), Cause: errors.New("else")}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Put(ctx, dlq.Dead{Message: message("free", "other"), Cause: errors.New("else")}); err != nil {
			t.Fatal(err)
		}
		second := get(t, q, "second")
		redrive(t, r, dlq.Redrive{ID: "j", Letters: dlq.StateWaiting, Fingerprint: second.Fingerprint})
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			if l.ID == "first" {
				return dlq.GiveUp(errDown)
			}
			return nil
		})
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobRunning || j.Passed != 1 || j.Released != 2 {
			t.Errorf("the job is %+v", j)
		}
		time.Sleep(11 * time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Why != "1 released letters had not been tried" {
			t.Errorf("the job is %+v", j)
		}
	})
}

func TestRedriveRefusesPlans(t *testing.T) {
	r := newReview(t, newQueue(t, dlq.NewMemory(), nil))
	for name, d := range map[string]dlq.Redrive{
		"no ID": {}, "bad ID": {ID: "a b"}, "resolved letters": {ID: "j", Letters: dlq.StateResolved}, "canary": {ID: "j", Canary: -1},
		"ramp": {ID: "j", Ramp: []int{10, 10}}, "ramp above 100": {ID: "j", Ramp: []int{101}}, "failures": {ID: "j", MaxFailures: 101},
		"fingerprint": {ID: "j", Fingerprint: "X"}, "long ramp": {ID: "j", Ramp: make([]int, 101)},
	} {
		d.Stream, d.Reason = stream, "why"
		if _, _, err := r.Redrive(ctx, d); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := r.Redrive(ctx, dlq.Redrive{Stream: stream, ID: "j"}); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("no reason: %v", err)
	}
}
