package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// A Redrive is a job that releases letters to be tried again: a few at first, then
// more and more, as long as they pass. [Queue.Run] of the stream drives it.
type Redrive struct {
	Stream string
	// ID names the job, [A-Za-z0-9._-]{1,64}: the same ID is the same job, so that a
	// second click starts nothing. Make it where the button is shown, and never again: a
	// job is forgotten Options.Retention after its end, and its ID is new then.
	ID string

	// Letters selects those in StateReview, or in StateWaiting. Zero means StateReview.
	Letters State
	// Fingerprint, Key, From and Until select as those of [Query] do. Letters that were
	// put after the job was made are not selected.
	Fingerprint, Key string
	From, Until      time.Time

	// Canary is how many letters are released first. Zero means 10.
	Canary int
	// Ramp is how many percent of all have been released after each stage that follows,
	// ascending. Nil means 1, 10, 25, 50, 100. The last stage releases all, whatever
	// the last number is.
	Ramp []int
	// MaxFailures is how many percent of the letters that were tried may fail, from
	// the moment on that a canary's worth was tried and at the end of each stage; the
	// job is paused when more do. Zero means 5; less than zero, none.
	MaxFailures int

	// Reason is why, and is kept in the audit.
	Reason string
}

// A JobState is what a redrive job is doing.
type JobState string

// The states of a job.
const (
	JobRunning   JobState = "running"
	JobPaused    JobState = "paused"
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled"
	// JobUnreadable: what is stored of the job is damaged, or of a later version. Nothing
	// is done with it, and it cannot be steered.
	JobUnreadable JobState = "unreadable"
)

// A JobStatus is a redrive job and how far it is.
type JobStatus struct {
	Redrive
	Actor string // who made it
	State JobState
	Why   string // why it is paused, or waits
	// Stage is 0 for the canary, and then counts the stages of the ramp.
	Stage int
	// Total is how many letters it selected when it began; it counts only from then.
	Total int
	// Released, Passed, Failed and Moved are those of [Job]. What was released and is in
	// none of the others has not been tried yet: it waits behind a letter of its key, or
	// for a worker.
	Released, Passed, Failed, Moved int
	Created, Updated                time.Time
}

// plan is Job.Data.
type plan struct {
	Redrive
	Actor string
	State JobState
	Why   string
	Stage int
	// Counted says that Total is known; After is the last letter that was looked at, and
	// Exhausted that there are no more.
	Counted, Exhausted bool
	Total              int
	After              uint64
	// Base are the counts when the job was last resumed: its failures count from there.
	BasePassed, BaseFailed int
	// Owed is what a person did last, until the audit is known to have it.
	Owed *note `json:",omitempty"`
}

// A note is an entry that is owed to the audit. It is saved in one step with what it
// is about, so that a crash between that and the entry loses neither. Texts are bytes,
// which are shorter in JSON than texts that have to be escaped.
type note struct {
	Verb                 Verb
	Nonce, Actor, Reason []byte
}

// Redrive makes a redrive job, or returns the one that has its ID, with started false:
// [ErrChanged] if that one is of another plan. The job is driven by [Queue.Run] of the
// stream, in any process, and goes on after a crash where it was. Its letters are
// approved under the actor's name.
func (r *Review) Redrive(ctx context.Context, d Redrive) (status JobStatus, started bool, err error) {
	if err := d.withDefaults(); err != nil {
		return JobStatus{}, false, err
	}
	a := Action{Verb: VerbRedrive, Stream: d.Stream, Job: d.ID, Reason: d.Reason, Query: d.query()}
	err = r.act(ctx, a, func(actor string) error {
		q := r.queue
		p := &plan{Redrive: d, Actor: actor, State: JobRunning, Owed: owed(VerbRedrive, actor, d.Reason)}
		j, err := q.saveJob(ctx, Job{Stream: d.Stream, ID: d.ID}, p)
		if started = err == nil; errors.Is(err, ErrChanged) { // there is one
			p, err = planOf(&j)
		}
		if err != nil {
			return err
		}
		status = statusOf(&j, p)
		if !started && !d.same(&p.Redrive) {
			return fmt.Errorf("job %s has another plan: %w", d.ID, ErrChanged)
		}
		return q.pay(ctx, &j, p)
	})
	if started {
		r.queue.nudge()
	}
	return status, started, err
}

// Pause stops a running job from releasing more. What it released goes on. A step that
// is under way in some process at this moment, or was halted in the middle of it, may
// still release its letters: at most 250.
func (r *Review) Pause(ctx context.Context, stream, job, reason string) (JobStatus, error) {
	return r.steer(ctx, VerbPause, stream, job, reason, func(p *plan, _ *Job) bool {
		if p.State != JobRunning {
			return p.State == JobPaused
		}
		p.State, p.Why = JobPaused, "a person paused it"
		return true
	})
}

// Resume lets a paused job go on. Its failures count from here.
func (r *Review) Resume(ctx context.Context, stream, job, reason string) (JobStatus, error) {
	return r.steer(ctx, VerbResume, stream, job, reason, func(p *plan, j *Job) bool {
		if p.State != JobPaused {
			return p.State == JobRunning
		}
		p.State, p.Why, p.BasePassed, p.BaseFailed = JobRunning, "", j.Passed, j.Failed
		return true
	})
}

// Cancel ends a job. What it released stays released; as to a step that is under way,
// see Pause.
func (r *Review) Cancel(ctx context.Context, stream, job, reason string) (JobStatus, error) {
	return r.steer(ctx, VerbCancel, stream, job, reason, func(p *plan, _ *Job) bool {
		if p.State == JobDone {
			return false
		}
		p.State, p.Why = JobCancelled, "a person cancelled it"
		return true
	})
}

// Jobs returns at most n jobs of a stream with their progress, by ascending ID,
// beginning behind after; fewer than n mean that there are no more.
func (r *Review) Jobs(ctx context.Context, stream, after string, n int) (all []JobStatus, err error) {
	if err := errors.Join(validName("stream", stream), validAfter("job", after), validPage(n)); err != nil {
		return nil, err
	}
	err = r.act(ctx, Action{Verb: VerbList, Stream: stream}, func(string) error {
		jobs, err := r.queue.store.Jobs(ctx, stream, after, n)
		if err != nil {
			return unavailable(ctx, "list jobs", err)
		}
		for i := range jobs {
			p, err := planOf(&jobs[i])
			if err != nil { // the others can be looked at all the same
				p = &plan{Redrive: Redrive{Stream: stream, ID: jobs[i].ID}, State: JobUnreadable, Why: "what is stored of it cannot be read"}
			}
			all = append(all, statusOf(&jobs[i], p))
		}
		return nil
	})
	return all, err
}

// steer changes the state of a job; [ErrState] if that does not allow it.
func (r *Review) steer(ctx context.Context, v Verb, stream, job, reason string, set func(*plan, *Job) bool) (status JobStatus, err error) {
	if err := errors.Join(validName("stream", stream), validName("job", job), validReason(reason)); err != nil {
		return JobStatus{}, err
	}
	err = r.act(ctx, Action{Verb: v, Stream: stream, Job: job, Reason: reason}, func(actor string) error {
		q, done := r.queue, owed(v, actor, reason)
		for range 100 { // its driver saves it, too
			j, err := q.job(ctx, stream, job)
			if err != nil {
				return err
			}
			p, err := planOf(&j)
			if err != nil {
				return err
			}
			if err := q.pay(ctx, &j, p); err != nil {
				return err
			}
			if !set(p, &j) {
				return fmt.Errorf("%s job %s, which is %s: %w", v, job, p.State, ErrState)
			}
			p.Owed = done // the same in each round: one that was thought to be lost may not have been
			if j, err = q.saveJob(ctx, j, p); errors.Is(err, ErrChanged) {
				continue
			}
			if err != nil {
				return err
			}
			status = statusOf(&j, p)
			q.nudge()
			return q.pay(ctx, &j, p)
		}
		return fmt.Errorf("%s job %s: %w again and again", v, job, ErrChanged)
	})
	return status, err
}

// job reads one job.
func (q *Queue) job(ctx context.Context, stream, id string) (Job, error) {
	// Behind the greatest text that is smaller than the ID and may be an ID.
	last := len(id) - 1
	after := id[:last] + string(id[last]-1) + strings.Repeat("z", 64)
	jobs, err := q.store.Jobs(ctx, stream, after, 1)
	if err != nil {
		return Job{}, unavailable(ctx, "read job "+id, err)
	}
	if len(jobs) == 0 || jobs[0].ID != id {
		return Job{}, fmt.Errorf("job %s: %w", id, ErrNotFound)
	}
	return jobs[0], nil
}

// saveJob saves a job with its plan. With ErrChanged it returns the stored one.
func (q *Queue) saveJob(ctx context.Context, j Job, p *plan) (saved Job, err error) {
	data, err := json.Marshal(p)
	if err != nil || len(data) > MaxJob {
		return Job{}, invalid("plan of %d bytes, at most %d", len(data), MaxJob)
	}
	j.Nonce, j.Data, j.Ended = newNonce(), data, p.State == JobDone || p.State == JobCancelled
	err = q.again(ctx, func(ctx context.Context) (err error) {
		saved, err = q.store.SaveJob(ctx, q.params(), j)
		return err
	})
	return saved, maybe(ctx, "save job "+j.ID, err)
}

func planOf(j *Job) (*plan, error) {
	p := &plan{}
	if err := json.Unmarshal(j.Data, p); err != nil {
		return nil, fmt.Errorf("what is stored of job %s cannot be read (%w): %w", j.ID, err, ErrState)
	}
	return p, nil
}

func statusOf(j *Job, p *plan) JobStatus {
	return JobStatus{
		Redrive: p.Redrive, Actor: p.Actor, State: p.State, Why: p.Why, Stage: p.Stage, Total: p.Total,
		Released: j.Released, Passed: j.Passed, Failed: j.Failed, Moved: j.Moved, Created: j.Created, Updated: j.Updated,
	}
}

func owed(v Verb, actor, reason string) *note {
	n := newNonce()
	return &note{v, n[:], []byte(actor), []byte(reason)}
}

// pay appends to the audit what a job owes it, and notes that. Where it is not noted,
// whoever looks at the job next pays once more, which appends nothing.
func (q *Queue) pay(ctx context.Context, j *Job, p *plan) error {
	if p.Owed == nil {
		return nil
	}
	c := Change{Kind: ChangeNote, Stream: j.Stream, Job: j.ID, Verb: string(p.Owed.Verb), Actor: string(p.Owed.Actor), Reason: string(p.Owed.Reason)}
	copy(c.Nonce[:], p.Owed.Nonce)
	if err := q.change(ctx, c); err != nil {
		return err
	}
	p.Owed = nil
	if saved, err := q.saveJob(ctx, *j, p); err == nil {
		*j = saved
	}
	return nil
}

// query is what the job selects, for whoever is asked to allow it.
func (d *Redrive) query() Query {
	return Query{Stream: d.Stream, State: d.Letters, Fingerprint: d.Fingerprint, Key: d.Key, From: d.From, Until: d.Until, Heads: true}
}

// same says whether two plans are, whatever their reasons.
func (d *Redrive) same(other *Redrive) bool {
	a, b := *d, *other
	if !a.From.Equal(b.From) || !a.Until.Equal(b.Until) {
		return false
	}
	a.From, a.Until, a.Reason = b.From, b.Until, b.Reason
	return reflect.DeepEqual(a, b)
}

func (d *Redrive) withDefaults() error {
	d.Letters = or(d.Letters, StateReview)
	d.Canary = or(d.Canary, 10)
	d.MaxFailures = max(or(d.MaxFailures, 5), -1)
	if d.Ramp == nil {
		d.Ramp = []int{1, 10, 25, 50, 100}
	}
	if !d.Letters.Unresolved() {
		return invalid("a redrive of letters that are %v: they have ended", d.Letters)
	}
	if d.Canary < 1 || d.MaxFailures > 100 || len(d.Ramp) > 100 {
		return invalid("a redrive with a canary of %d, %d percent of failures, %d stages", d.Canary, d.MaxFailures, len(d.Ramp))
	}
	last := 0
	for _, percent := range d.Ramp {
		if percent <= last || percent > 100 {
			return invalid("a ramp that does not rise from 1 to 100: %v", d.Ramp)
		}
		last = percent
	}
	return errors.Join(validName("stream", d.Stream), validName("job", d.ID), validPrint(d.Fingerprint), validOptional("key", d.Key),
		validTime("From", d.From), validTime("Until", d.Until), validReason(d.Reason))
}
