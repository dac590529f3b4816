package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

// latencies are how long items waited, by the time at which they were sent.
type latencies struct {
	mu    sync.Mutex
	start time.Time
	took  []time.Duration
	sent  []time.Duration // since the start
}

func (l *latencies) add(sent time.Time) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, now.Sub(sent))
	l.sent = append(l.sent, sent.Sub(l.start))
}

func (l *latencies) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.took)
}

// quantile is in milliseconds.
func quantile(d []time.Duration, q float64) float64 {
	d = slices.Sorted(slices.Values(d))
	return float64(d[min(int(q*float64(len(d))), len(d)-1)]) / float64(time.Millisecond)
}

// worst is the worst quantile of any window.
func (l *latencies) worst(q float64, window time.Duration) float64 {
	windows := map[time.Duration][]time.Duration{}
	for i, at := range l.sent {
		windows[at/window] = append(windows[at/window], l.took[i])
	}
	most := 0.0
	for _, w := range windows {
		most = max(most, quantile(w, q))
	}
	return most
}

// paced calls send rate times a second for d, and waits until as many have been
// counted.
func paced(ctx context.Context, rate int, d time.Duration, l *latencies, send func(sent time.Time) error) error {
	l.start = time.Now()
	n := int(float64(rate) * d.Seconds())
	failed := make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		due := l.start.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		sent := time.Now()
		all.Go(func() {
			if err := send(sent); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	for deadline := time.Now().Add(time.Minute); l.count() < n; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%d of %d were worked", l.count(), n)
		}
	}
	return nil
}

// pickup accepts in one store and works in another.
func pickup(ctx context.Context, front, back *pginbox.Store, rate int, d time.Duration) (*latencies, error) {
	accepts, err := inbox.New(front, nil)
	if err != nil {
		return nil, err
	}
	works, err := inbox.New(back, nil)
	if err != nil {
		return nil, err
	}
	l := &latencies{}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var problem error
	listening := make(chan struct{})
	var once sync.Once
	group.Go(func() {
		_ = back.Listen(running, func() { once.Do(func() { close(listening) }); works.Wake() }, func(err error) { problem = err })
	})
	group.Go(func() {
		err = works.Work(running, func(_ context.Context, r inbox.Record) inbox.Outcome {
			l.add(time.UnixMicro(int64(binary.BigEndian.Uint64(r.Payload))))
			return inbox.Done()
		}, &inbox.WorkOptions{Concurrency: 100})
	})
	select {
	case <-listening:
	case <-time.After(10 * time.Second):
		stop()
		group.Wait()
		return nil, fmt.Errorf("not listening: %w", problem)
	}
	var mu sync.Mutex
	next := randomEvents()
	paceErr := paced(ctx, rate, d, l, func(sent time.Time) error {
		mu.Lock()
		e := next()
		mu.Unlock()
		binary.BigEndian.PutUint64(e.Payload, uint64(sent.UnixMicro()))
		_, err := accepts.Accept(ctx, e)
		return err
	})
	stop()
	group.Wait()
	return l, errors.Join(paceErr, err)
}

func openPickup(ctx context.Context, env *Env) (run func(context.Context, int, time.Duration) (*latencies, error), url string, err error) {
	pool, back, _, err := openInbox(ctx, env, 10)
	if err != nil {
		return nil, "", err
	}
	url = pool.Config().ConnString()
	other, err := openPool(ctx, env, url, 10)
	if err != nil {
		return nil, "", err
	}
	front, err := pginbox.New(other, &pginbox.Options{Notify: true})
	if err != nil {
		return nil, "", err
	}
	return func(ctx context.Context, rate int, d time.Duration) (*latencies, error) {
		if err := empty(ctx, pool, inboxTables); err != nil {
			return nil, err
		}
		if _, err := pickup(ctx, front, back, rate, 300*time.Millisecond); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		return pickup(ctx, front, back, rate, d)
	}, url, nil
}

func pickupCases(ctx context.Context, env *Env) ([]Case, error) {
	run, url, err := openPickup(ctx, env)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Box.Work, woken by Listen", Role: Pawl, Run: func(ctx context.Context, d time.Duration) ([]float64, error) {
			l, err := run(ctx, 300, d)
			if err != nil {
				return nil, err
			}
			return []float64{quantile(l.took, 0.95), quantile(l.took, 0.5)}, nil
		}},
		{Name: "River, defaults", Role: Peer, Run: riverPickup(env, url)},
	}, nil
}

func snapshotCases(ctx context.Context, env *Env) ([]Case, error) {
	run, url, err := openPickup(ctx, env)
	if err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, env, url, 1)
	if err != nil {
		return nil, err
	}
	held := func(hold bool) func(context.Context, time.Duration) ([]float64, error) {
		return func(ctx context.Context, d time.Duration) ([]float64, error) {
			length := 60 * time.Second
			if d < 2*time.Second {
				length = 10 * d
			}
			if hold {
				tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				if err != nil {
					return nil, err
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
				if _, err := tx.Exec(ctx, "SELECT count(*) FROM pawl.pawl_versions"); err != nil {
					return nil, err
				}
			}
			l, err := run(ctx, 2000, length)
			if err != nil {
				return nil, err
			}
			return []float64{l.worst(0.95, 5*time.Second), quantile(l.took, 0.95)}, nil
		}
	}
	return []Case{
		{Name: "Box.Work, a snapshot held open", Role: Pawl, Run: held(true)},
		{Name: "Box.Work, no snapshot", Role: Shown, Run: held(false)},
	}, nil
}

func killedCases(ctx context.Context, env *Env) ([]Case, error) {
	pool, store, box, err := openInbox(ctx, env, 10)
	if err != nil {
		return nil, err
	}
	const events, lease = 100, 5 * time.Second
	return []Case{{Name: "Box.Work, lease 5 s", Role: Pawl, Run: func(ctx context.Context, _ time.Duration) ([]float64, error) {
		if err := empty(ctx, pool, inboxTables); err != nil {
			return nil, err
		}
		if _, err := acceptEvents(box, events)(0)(ctx); err != nil {
			return nil, err
		}
		ask := inbox.Ask{Stream: inbox.DefaultStream, Keys: events, Events: 16, Bytes: 1 << 20, Lease: lease}
		for i := range ask.Nonce {
			ask.Nonce[i] = byte(rand.IntN(256))
		}
		if _, err := store.Claim(ctx, ask); err != nil { // and is never heard of again
			return nil, err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		l := &latencies{}
		start := time.Now()
		err := box.Work(running, func(context.Context, inbox.Record) inbox.Outcome {
			l.add(start)
			if l.count() == events {
				stop()
			}
			return inbox.Done()
		}, &inbox.WorkOptions{Lease: lease})
		return []float64{time.Since(start).Seconds()}, err
	}}}, nil
}
