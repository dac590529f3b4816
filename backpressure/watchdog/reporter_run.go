package watchdog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Run joins the scope as a new instance and sends heartbeats until ctx ends; then it
// says goodbye and returns nil. It returns [ErrFenced] when another instance has taken
// the name, and the worker should then stop; and [ErrInvalid] when it runs already.
//
// Trouble with the store ends nothing: it is counted, logged once, told to the hook
// Failed, and the heartbeat is sent again after a third of the interval. That also
// holds for a scope that is full.
func (r *Reporter) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return invalid("the reporter of %s runs already", short(r.o.Name))
	}
	defer r.running.Store(false)
	i := instance{r: r, join: true}
	rand.Read(i.nonce[:])
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return i.leave(ctx)
		case <-timer.C:
		}
		began := time.Now()
		err := i.beat(ctx)
		wait := r.o.Interval
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, ErrFenced):
			return err
		case err != nil:
			wait /= 3
		}
		timer.Reset(max(wait-time.Since(began), wait/10))
	}
}

// An instance is one Run of a reporter.
type instance struct {
	r      *Reporter
	nonce  [16]byte
	seq    uint64
	join   bool // the store does not know it yet
	failed bool // the last beat did
}

// beat sends a heartbeat with a number of its own. One that was not answered is not
// sent again as it was: the next says all that it said.
func (i *instance) beat(ctx context.Context) error {
	r := i.r
	i.seq++
	b := Beat{Name: r.o.Name, Nonce: i.nonce, Join: i.join, Seq: i.seq, Interval: r.o.Interval, Turns: r.turns.Load() & MaxNumber}
	s := r.ask(ctx)
	s.beat(&b, r.handlers.oldest())
	start := time.Now()
	ack, err := r.send(ctx, b)
	if errors.Is(err, ErrGone) { // the store has lost the record
		b.Join = true
		ack, err = r.send(ctx, b)
	}
	switch {
	case err == nil:
		i.taken(ack, time.Since(start))
	case ctx.Err() != nil:
	case errors.Is(err, ErrFenced):
		i.fenced(err)
	default:
		i.notTaken(err)
	}
	return err
}

func (i *instance) taken(ack Ack, took time.Duration) {
	r := i.r
	if i.failed && r.o.Logger != nil {
		r.o.Logger.Info("watchdog: heartbeats are taken again", "worker", short(r.o.Name))
	}
	i.join, i.failed = false, false
	r.token.Store(ack.Token)
	r.counts.beats.Add(1)
	r.mu.Lock()
	r.last = time.Now()
	r.mu.Unlock()
	if h := r.o.Hooks; h != nil && h.Beaten != nil {
		h.Beaten(took)
	}
}

func (i *instance) fenced(err error) {
	r := i.r
	r.counts.fenced.Add(1)
	if r.o.Logger != nil {
		r.o.Logger.Error("watchdog: another instance has taken this worker's name; stop this one", "worker", short(r.o.Name))
	}
	if h := r.o.Hooks; h != nil && h.Fenced != nil {
		h.Fenced(err)
	}
}

func (i *instance) notTaken(err error) {
	r := i.r
	r.counts.failed.Add(1)
	if !i.failed && r.o.Logger != nil {
		r.o.Logger.Warn("watchdog: a heartbeat was not taken; it is sent again", "worker", short(r.o.Name), "error", err)
	}
	i.failed = true
	if h := r.o.Hooks; h != nil && h.Failed != nil {
		h.Failed(err)
	}
}

// leave says goodbye, for at most five seconds: a watchdog that does not hear it will
// call the worker stuck.
func (i *instance) leave(ctx context.Context) error {
	r := i.r
	defer r.token.Store(0)
	if i.join {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	i.seq++
	b := Beat{Name: r.o.Name, Nonce: i.nonce, Seq: i.seq, Interval: r.o.Interval, Turns: r.turns.Load() & MaxNumber, Leave: true}
	s := r.sample()
	s.beat(&b, r.handlers.oldest())
	_, err := r.send(ctx, b)
	switch {
	case errors.Is(err, ErrFenced):
		i.fenced(err)
		return err
	case err != nil && !errors.Is(err, ErrGone):
		i.notTaken(err)
	}
	return nil
}

// send sends one beat, for at most an interval.
func (r *Reporter) send(ctx context.Context, b Beat) (Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.o.Interval, time.Second))
	defer cancel()
	acks, err := r.store.Beat(ctx, Params{Scope: r.o.Scope, Most: r.o.MaxWorkers}, []Beat{b})
	switch {
	case err == nil && len(acks) != 1:
		err = unavailable("beat", fmt.Errorf("%d answers to one beat", len(acks)))
	case err == nil:
		err = acks[0].Err
	}
	switch {
	case err == nil:
		return acks[0], nil
	case errors.Is(err, ErrFenced), errors.Is(err, ErrGone), errors.Is(err, ErrFull):
		return Ack{}, fmt.Errorf("%w: worker %s", err, short(r.o.Name))
	}
	return Ack{}, unavailable("the heartbeat of worker "+short(r.o.Name), err)
}

// ask asks the Sample of the options, in a goroutine of its own, of which there is
// one at a time.
func (r *Reporter) ask(ctx context.Context) Sample {
	if r.o.Sample == nil {
		return r.sample()
	}
	unknown := r.sample()
	unknown.blind, unknown.Detail = true, "the sample gave no answer"
	if !r.sampling.CompareAndSwap(false, true) {
		r.counts.blind.Add(1)
		return unknown
	}
	answer := make(chan Sample, 1)
	go func() {
		defer r.sampling.Store(false)
		s := unknown
		if err := guarded(func() error { s = r.o.Sample(); return nil }); err != nil {
			s.Detail = err.Error()
			r.counts.blind.Add(1)
		}
		answer <- s
	}()
	timer := time.NewTimer(r.o.Interval / 3)
	defer timer.Stop()
	select {
	case s := <-answer:
		if !s.blind { // what the next heartbeat says if its own sample does not answer
			r.At(s.Position)
			r.Pending(s.Pending)
		}
		return s
	case <-ctx.Done():
	case <-timer.C:
		r.counts.blind.Add(1)
	}
	return unknown
}

// ReporterStats are what a reporter has counted since NewReporter.
type ReporterStats struct {
	Beats    uint64    // heartbeats that the store has taken
	Failed   uint64    // those it has not
	Fenced   uint64    // times another instance took the name
	Blind    uint64    // heartbeats whose Sample gave no answer
	LastBeat time.Time // by this process's clock; zero: none
	Running  int       // handlers that run
}

type reporterCounts struct{ beats, failed, fenced, blind atomic.Uint64 }

// Stats returns a snapshot.
func (r *Reporter) Stats() ReporterStats {
	c := &r.counts
	s := ReporterStats{Beats: c.beats.Load(), Failed: c.failed.Load(), Fenced: c.fenced.Load(), Blind: c.blind.Load(),
		Running: int(max(r.handlers.untimed.Load(), 0))}
	for i := range r.handlers.numbers {
		if r.handlers.numbers[i].Load() != 0 {
			s.Running++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.LastBeat = r.last
	return s
}
