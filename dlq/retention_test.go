package dlq_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

const day = 24 * time.Hour

// TestRetentions keeps what has ended for as long as the options say, and the audit for
// as long as they say of that: neither goes with the other.
func TestRetentions(t *testing.T) {
	for name, tc := range map[string]struct {
		opts          dlq.Options
		letter, audit time.Duration
	}{
		"defaults":         {dlq.Options{}, 90 * day, 400 * day},
		"letters longer":   {dlq.Options{Retention: 50 * day, AuditRetention: 5 * day}, 50 * day, 5 * day},
		"the audit longer": {dlq.Options{Retention: 5 * day, AuditRetention: 50 * day}, 5 * day, 50 * day},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := dlq.NewMemory()
			q := newQueue(t, m, &tc.opts)
			r := newReview(t, q)
			put(t, q, "", "ended", "waits")
			inReview(t, q, 1)
			l := get(t, q, "ended")
			if err := r.Discard(ctx, l.Ref(), "not wanted"); err != nil {
				t.Fatal(err)
			}
			redrive(t, r, dlq.Redrive{ID: "j"})
			if _, err := r.Cancel(ctx, stream, "j", "no"); err != nil {
				t.Fatal(err)
			}
			l = get(t, q, "ended")
			if d := l.Expires.Sub(l.Settled); d != tc.letter {
				t.Errorf("%s: the letter may be forgotten after %v, want %v", name, d, tc.letter)
			}
			looked := func(after time.Duration) (letter, job bool, entries int) {
				time.Sleep(time.Until(l.Settled.Add(after)))
				for range 3 {
					if _, err := m.Sweep(ctx, 1000); err != nil {
						t.Fatal(err)
					}
				}
				_, err := q.Get(ctx, stream, "ended")
				jobs, jobErr := r.Jobs(ctx, stream, "", 10)
				all, _, auditErr := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10})
				if jobErr != nil || auditErr != nil || err != nil && !errors.Is(err, dlq.ErrNotFound) {
					t.Fatal(err, jobErr, auditErr)
				}
				return err == nil, len(jobs) > 0, len(all)
			}
			first, second := min(tc.letter, tc.audit), max(tc.letter, tc.audit)
			for _, after := range []time.Duration{first - time.Minute, first + time.Minute, second - time.Minute, second + time.Minute, 3650 * day} {
				letter, job, entries := looked(after)
				if letter != (after < tc.letter) || job != (after < tc.letter) || (entries == 4) != (after < tc.audit) || (entries == 0) == (after < tc.audit) {
					t.Errorf("%s: after %v there is the letter %t, the job %t, and there are %d entries", name, after, letter, job, entries)
				}
			}
			wantState(t, q, "waits", dlq.StateWaiting)
			wantState(t, q, "l0000", dlq.StateReview)
		})
	}
}

// TestALetterThatEndsWhileItIsReleased has a person end letters between a job's look at
// them and its release.
func TestALetterThatEndsWhileItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		setup := newQueue(t, m, exact())
		r := newReview(t, setup)
		inReview(t, setup, 20)
		redrive(t, r, dlq.Redrive{ID: "j"})
		gone, forgotten := get(t, setup, "l0003"), get(t, setup, "l0004")
		ended := false
		q := newQueue(t, &dlqtest.Faulty{Store: m, Before: func(s dlqtest.Step) error {
			if s.Changes != nil && s.Changes[0].Kind == dlq.ChangeApprove && !ended {
				ended = true
				return errors.Join(r.Discard(ctx, gone.Ref(), "not wanted"), r.Forget(ctx, forgotten.Ref(), "asked for"))
			}
			return nil
		}}, exact())
		run(t, q, nil, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Total != 20 || j.Released != 18 || j.Passed != 18 || j.Moved != 0 {
			t.Errorf("the job is %+v", j)
		}
		wantState(t, q, "l0003", dlq.StateDiscarded)
		if s := q.Stats(); s.Redriven != 18 {
			t.Errorf("the stats are %+v", s)
		}
		// And there is nothing left to redrive.
		if err := r.Approve(ctx, gone.Ref(), "after all"); !errors.Is(err, dlq.ErrState) {
			t.Errorf("Approve of a discarded letter: %v", err)
		}
		redrive(t, r, dlq.Redrive{ID: "again"})
		time.Sleep(time.Minute)
		if j := status(t, r, "again"); j.State != dlq.JobDone || j.Total+j.Released != 0 {
			t.Errorf("a job without letters is %+v", j)
		}
	})
}
