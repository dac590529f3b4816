package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

// TestTheAuditHasWhatAJobOwesIt has a store that saves what a person does with a job,
// and is gone before the entry is appended: whoever looks at the job next appends it,
// once, with the person's name and words.
func TestTheAuditHasWhatAJobOwesIt(t *testing.T) {
	reason := strings.Repeat("\x01", dlq.MaxReason) // as long in JSON as can be
	plan := dlq.Redrive{Stream: stream, ID: "j", Key: strings.Repeat("\x02", 512), Reason: reason}
	actor := strings.Repeat("\x03", 256)
	for _, verb := range []dlq.Verb{dlq.VerbRedrive, dlq.VerbPause, dlq.VerbResume, dlq.VerbCancel} {
		for _, heal := range []string{"by a worker", "by the next action", "by the same action"} {
			synctest.Test(t, func(t *testing.T) {
				lost := false
				s := &dlqtest.Faulty{Store: dlq.NewMemory(), Before: func(s dlqtest.Step) error {
					if lost && s.Changes != nil {
						return dlqtest.ErrFault
					}
					return nil
				}}
				q := newQueue(t, s, exact())
				r := authorized(t, q, func(context.Context, dlq.Action) (string, error) { return actor, nil })
				act := func(v dlq.Verb) error {
					var err error
					switch v {
					case dlq.VerbRedrive:
						_, _, err = r.Redrive(ctx, plan)
					case dlq.VerbPause:
						_, err = r.Pause(ctx, stream, "j", reason)
					case dlq.VerbResume:
						_, err = r.Resume(ctx, stream, "j", reason)
					case dlq.VerbCancel:
						_, err = r.Cancel(ctx, stream, "j", reason)
					}
					return err
				}
				entries := 1
				var before []dlq.Verb
				switch verb {
				case dlq.VerbPause, dlq.VerbCancel:
					before = []dlq.Verb{dlq.VerbRedrive}
				case dlq.VerbResume:
					before = []dlq.Verb{dlq.VerbRedrive, dlq.VerbPause}
				}
				for _, v := range before {
					if err := act(v); err != nil {
						t.Fatal(err)
					}
					entries++
				}
				lost = true
				if err := act(verb); !errors.Is(err, dlq.ErrUnavailable) {
					t.Fatalf("%s without its entry: %v", verb, err)
				}
				lost = false
				switch heal {
				case "by a worker":
					run(t, newQueue(t, s, exact()), nil, func(context.Context, dlq.Letter) error { return nil })
				case "by the next action":
					act(dlq.VerbCancel)
					if verb != dlq.VerbCancel {
						entries++
					}
				case "by the same action":
					if err := act(verb); err != nil {
						t.Fatal(err)
					}
					if verb != dlq.VerbRedrive { // the same job; what is done twice is noted twice
						entries++
					}
				}
				time.Sleep(time.Minute)
				got, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, Job: "j", N: 100})
				var verbs []string
				for _, e := range got {
					verbs = append(verbs, e.Verb)
					if e.Actor != actor || e.Reason != reason {
						t.Errorf("%s, %s: the entry of %s is by %q: %q", verb, heal, e.Verb, e.Actor, e.Reason)
					}
				}
				if n := strings.Count(fmt.Sprint(verbs), string(verb)); err != nil || n == 0 || heal == "by a worker" && (n != 1 || len(got) != entries) {
					t.Errorf("%s, %s: the audit has %q, %v, want %d entries", verb, heal, verbs, err, entries)
				}
			})
		}
	}
}

// TestAnActionThatIsSentAgainIsNotedOnce loses the answer to a save, after which a
// driver saves the job, too, before it is sent again.
func TestAnActionThatIsSentAgainIsNotedOnce(t *testing.T) {
	m := dlq.NewMemory()
	params := dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 10}
	lose := false
	s := &dlqtest.Faulty{Store: m, After: func(s dlqtest.Step) error {
		if s.Job == nil || !lose {
			return nil
		}
		lose = false
		jobs, err := m.Jobs(ctx, stream, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		jobs[0].Nonce = [16]byte{1}
		if _, err := m.SaveJob(ctx, params, jobs[0]); err != nil {
			t.Fatal(err)
		}
		return dlqtest.ErrFault
	}}
	r := newReview(t, newQueue(t, s, nil))
	redrive(t, r, dlq.Redrive{ID: "j"})
	lose = true
	if j, err := r.Pause(ctx, stream, "j", "look first"); err != nil || j.State != dlq.JobPaused {
		t.Fatalf("Pause: %+v, %v", j, err)
	}
	entries, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, Job: "j", N: 10})
	if err != nil || len(entries) != 2 || entries[1].Verb != "pause" || lose {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}

// TestAHaltedDriverReleasesNothingLate halts a driver between its look at a job and the
// release of letters, while a person cancels the job or pauses it.
func TestAHaltedDriverReleasesNothingLate(t *testing.T) {
	for name, stop := range map[string]func(*dlq.Review) error{
		"cancel": func(r *dlq.Review) error { _, err := r.Cancel(ctx, stream, "j", "not today"); return err },
		"pause":  func(r *dlq.Review) error { _, err := r.Pause(ctx, stream, "j", "not now"); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, dlq.NewMemory(), exact())
			r := newReview(t, q)
			inReview(t, q, 30)
			redrive(t, r, dlq.Redrive{ID: "j"})
			halt := make(chan struct{})
			asked := 0
			run(t, q, &dlq.RunOptions{Hold: func() string {
				if asked++; asked == 2 {
					<-halt
				}
				return map[bool]string{true: "wait"}[asked == 1]
			}}, func(context.Context, dlq.Letter) error { return nil })
			time.Sleep(time.Minute)
			if err := stop(r); err != nil {
				t.Fatal(err)
			}
			close(halt)
			time.Sleep(time.Hour)
			if j := status(t, r, "j"); j.Released != 0 || j.Total != 30 {
				t.Errorf("%s: a job that was stopped while its driver was halted is %+v", name, j)
			}
		})
	}
}

// TestAJobSaysWhyItWaits has letters that all wait behind one in review.
func TestAJobSaysWhyItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		put(t, q, "k", "first")
		for _, id := range []string{"second", "third"} {
			if _, err := q.Put(ctx, dlq.Dead{Message: message(id, "k"), Cause: errors.New("else")}); err != nil {
				t.Fatal(err)
			}
		}
		redrive(t, r, dlq.Redrive{ID: "j", Letters: dlq.StateWaiting, Fingerprint: get(t, q, "second").Fingerprint, Canary: 1})
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			if l.ID == "first" {
				return dlq.GiveUp(errDown)
			}
			return nil
		})
		time.Sleep(time.Hour)
		if j := status(t, r, "j"); j.State != dlq.JobRunning || j.Released != 1 || !strings.Contains(j.Why, "none of the letters") {
			t.Errorf("a job whose letters are blocked is %+v", j)
		}
		first := get(t, q, "first")
		if err := r.Discard(ctx, first.Ref(), "not wanted"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if j := status(t, r, "j"); j.State != dlq.JobDone || j.Passed != 1 || j.Why != "" {
			t.Errorf("the job is %+v", j)
		}
	})
}

// TestADamagedJobDoesNotHideTheOthers has a plan in the store that cannot be read.
func TestADamagedJobDoesNotHideTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		r := newReview(t, q)
		inReview(t, q, 3)
		p := dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 10}
		if _, err := m.SaveJob(ctx, p, dlq.Job{Stream: stream, ID: "a", Nonce: [16]byte{1}, Data: []byte("{")}); err != nil {
			t.Fatal(err)
		}
		redrive(t, r, dlq.Redrive{ID: "b"})
		run(t, q, nil, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute)
		if j := status(t, r, "b"); j.State != dlq.JobDone {
			t.Errorf("the job beside a damaged one is %+v", j)
		}
		if j := status(t, r, "a"); j.State != dlq.JobUnreadable || j.Why == "" {
			t.Errorf("a damaged job is %+v", j)
		}
		if _, err := r.Cancel(ctx, stream, "a", "x"); !errors.Is(err, dlq.ErrState) {
			t.Errorf("Cancel of a damaged job: %v", err)
		}
	})
}

// TestJobsAreFoundAmongTheirNeighbours has IDs that begin and end alike.
func TestJobsAreFoundAmongTheirNeighbours(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	r := newReview(t, q)
	ids := []string{"-", "--", "a", "a-", "a-1", "a-10", "a-100", "a-2", "a.", "aa", "az", "zz", strings.Repeat("z", 63), strings.Repeat("z", 64), "Z"}
	for _, id := range ids {
		redrive(t, r, dlq.Redrive{ID: id})
	}
	for _, id := range ids {
		if j, err := r.Pause(ctx, stream, id, "x"); err != nil || j.ID != id {
			t.Errorf("the job %s was found as %s, %v", id, j.ID, err)
		}
	}
	for _, id := range []string{"0", "b", "a-11", "A", strings.Repeat("z", 62)} {
		if _, err := r.Pause(ctx, stream, id, "x"); !errors.Is(err, dlq.ErrNotFound) {
			t.Errorf("the job %s, which there is not: %v", id, err)
		}
	}
}
