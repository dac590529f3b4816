package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A driver takes the steps of a stream's redrive jobs. Any number of processes may
// drive the same job: each step is harmless when it is taken twice, and only one of
// them saves what came of it.
type driver struct {
	queue *Queue
	opts  *RunOptions
	seen  map[string]*seen // by job: the running ones
}

// seen is when a job was last seen to move, by this process.
type seen struct {
	outcomes int
	at       time.Time
}

const (
	// patience is how long a stage waits for its last letters when nothing becomes of
	// any: they may be behind letters of their keys that are in review. It waits for the
	// first outcome of all without end, and says so after this time.
	patience = 10 * time.Minute
	// stride is how many letters are released in one step.
	stride = 250
)

// round takes a step of each running job.
func (d *driver) round(ctx context.Context) (failed error) {
	running := map[string]*seen{}
	defer func() { d.seen = running }() // those that were found, also when something fails
	for after := ""; ; {
		jobs, err := d.queue.store.Jobs(ctx, d.opts.Stream, after, 100)
		if err != nil {
			return err
		}
		for i := range jobs {
			after = jobs[i].ID
			if err := d.look(ctx, &jobs[i], running); err != nil && !errors.Is(err, ErrChanged) {
				failed = fmt.Errorf("job %s: %w", after, err)
			}
		}
		if len(jobs) < 100 {
			return failed
		}
	}
}

// look takes a step of a job if it runs, and pays what it owes.
func (d *driver) look(ctx context.Context, j *Job, running map[string]*seen) error {
	p, err := planOf(j)
	switch {
	case err != nil && j.Ended:
		return nil
	case err != nil:
		return err
	}
	if err := d.queue.pay(ctx, j, p); err != nil || j.Ended {
		return err
	}
	s := d.seen[j.ID]
	if s == nil {
		s = &seen{outcomes: -1}
	}
	running[j.ID] = s
	return d.step(ctx, j, p, s)
}

// step does what a job can do now.
func (d *driver) step(ctx context.Context, j *Job, p *plan, s *seen) error {
	if p.State != JobRunning {
		return nil
	}
	if n := j.Passed + j.Failed + j.Moved; n != s.outcomes {
		s.outcomes, s.at = n, time.Now()
	}
	if !p.Counted {
		if err := d.count(ctx, j, p); err != nil {
			return err
		}
	}
	for {
		stageOver := j.Released >= p.target() || p.Exhausted
		settled := j.Passed+j.Failed+j.Moved >= j.Released || s.outcomes > 0 && time.Since(s.at) >= patience
		if p.failing(j, stageOver && settled) {
			p.State = JobPaused
			p.Why = fmt.Sprintf("%d of %d tries failed, more than %d percent", j.Failed-p.BaseFailed, p.tried(j), max(p.MaxFailures, 0))
			return d.save(ctx, j, p, true)
		}
		switch {
		case !stageOver:
			if why := d.hold(); why != "" {
				if p.Why == why {
					return nil
				}
				p.Why = why
				return d.save(ctx, j, p, false)
			}
			p.Why = ""
			if err := d.unchanged(ctx, j); err != nil {
				return err
			}
			if err := d.release(ctx, j, p); err != nil {
				return err
			}
		case !settled:
			if s.outcomes == 0 && time.Since(s.at) >= patience && p.Why == "" {
				p.Why = "none of the letters that it has released was tried yet: they wait behind others of their keys, or for a worker"
				return d.save(ctx, j, p, false)
			}
			return nil
		case p.Exhausted:
			p.State, p.Why = JobDone, ""
			if left := j.Released - j.Passed - j.Failed - j.Moved; left > 0 {
				p.Why = fmt.Sprintf("%d released letters had not been tried", left)
			}
			return d.save(ctx, j, p, true)
		default:
			p.Stage, p.Why = p.Stage+1, ""
			if err := d.save(ctx, j, p, true); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// target is how many letters have been released when the stage is over.
func (p *plan) target() int {
	if p.Stage == 0 {
		return p.Canary
	}
	if p.Stage >= len(p.Ramp) {
		return int(^uint(0) >> 1) // all there are
	}
	return max(p.Canary, (p.Total*p.Ramp[p.Stage-1]+99)/100)
}

func (p *plan) tried(j *Job) int { return j.Passed + j.Failed - p.BasePassed - p.BaseFailed }

// failing says whether too many letters fail.
func (p *plan) failing(j *Job, stageOver bool) bool {
	tried, failed := p.tried(j), j.Failed-p.BaseFailed
	if tried < 1 || !stageOver && tried < p.Canary {
		return false
	}
	return failed*100 > max(p.MaxFailures, 0)*tried
}

// query is what the job selects.
func (p *plan) query(j *Job) Query {
	q := p.Redrive.query()
	if q.Until.IsZero() || q.Until.After(j.Created) {
		q.Until = j.Created.Add(time.Microsecond)
	}
	return q
}

// count finds out how many letters there are.
func (d *driver) count(ctx context.Context, j *Job, p *plan) error {
	q := p.query(j)
	q.N = maxPage
	for p.Total = 0; ; {
		page, err := d.queue.store.List(ctx, q)
		if err != nil {
			return err
		}
		p.Total += len(page.Records)
		if q.After = page.Next; page.Next == 0 {
			break
		}
	}
	p.Counted = true
	return d.save(ctx, j, p, false)
}

// unchanged fails with ErrChanged if a person or another driver has saved the job since
// it was read, which may be long ago where a process was halted.
func (d *driver) unchanged(ctx context.Context, j *Job) error {
	now, err := d.queue.job(ctx, j.Stream, j.ID)
	if err == nil && now.Version != j.Version {
		err = ErrChanged
	}
	return err
}

// release releases letters of a stage, at most stride, and saves how far it came.
func (d *driver) release(ctx context.Context, j *Job, p *plan) error {
	q := p.query(j)
	q.After, q.N = p.After, min(stride, p.target()-j.Released)
	page, err := d.queue.store.List(ctx, q)
	if err != nil {
		return err
	}
	changes := make([]Change, len(page.Records))
	for i, r := range page.Records {
		changes[i] = Change{
			Kind: ChangeApprove, Nonce: releaseNonce(j, r.Seq), Stream: j.Stream, ID: r.ID, Seq: r.Seq,
			Job: j.ID, Actor: p.Actor, Reason: cut(p.Reason, MaxReason),
		}
		p.After = r.Seq
	}
	if len(changes) > 0 {
		errs, err := d.queue.changeAll(ctx, changes)
		if err != nil {
			return err
		}
		n := len(changes)
		for _, err := range errs {
			if err != nil { // it has ended meanwhile, or was forgotten
				n--
			}
		}
		d.queue.counts.redriven.Add(uint64(n))
	}
	if p.Exhausted = page.Next == 0; !p.Exhausted {
		p.After = max(p.After, page.Next)
	}
	if err := d.save(ctx, j, p, false); err != nil {
		return err
	}
	d.queue.Wake()
	return nil
}

// releaseNonce is the same for a letter of a job whoever releases it, and whenever.
func releaseNonce(j *Job, seq uint64) (n [16]byte) {
	h := sha256.New()
	h.Write([]byte("redrive\x00" + j.Stream + "\x00" + j.ID + "\x00"))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(j.Created.UnixMicro())))
	h.Write(binary.BigEndian.AppendUint64(nil, seq))
	copy(n[:], h.Sum(nil))
	return n
}

// save saves the job, and makes j what is stored.
func (d *driver) save(ctx context.Context, j *Job, p *plan, tell bool) error {
	saved, err := d.queue.saveJob(ctx, *j, p)
	if err != nil {
		return err
	}
	*j = saved
	if !tell {
		return nil
	}
	status := statusOf(j, p)
	if p.State == JobPaused {
		d.queue.warn(ctx, "a redrive job was paused", "stream", j.Stream, "job", j.ID, "why", p.Why)
	}
	if h := d.queue.opts.Hooks; h != nil && h.JobChanged != nil {
		h.JobChanged(status)
	}
	return nil
}

// hold asks whether jobs have to wait.
func (d *driver) hold() (why string) {
	if d.opts.Hold == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			why = "RunOptions.Hold panicked"
		}
	}()
	return cut(d.opts.Hold(), maxTextual)
}
