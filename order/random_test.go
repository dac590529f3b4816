package order_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// Random pushes, duplicates, gaps, voids, epochs, late messages, failures, lost
// replies, crashes, restarts and hours that pass: the sums hold after every step,
// what is delivered is in order, and in the end every message has been delivered or
// handed over late.
func TestRandomLives(t *testing.T) {
	seeds := 15
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newLife(t, uint64(seed)).live() })
		})
	}
}

type life struct {
	t    *testing.T
	r    *rand.Rand // of the test's goroutine
	mem  *order.Memory
	keys []string

	// The world.
	mu        sync.Mutex
	delivered map[string][]order.Position // first deliveries, by key
	late      map[string]map[order.Position]bool
	accepted  map[string]map[order.Position]bool
	epoch     map[string]uint64
	next      map[string]uint64 // the sender's next number
	held      []order.Message   // on their way

	process *process
	buffer  *order.Buffer
	stop    func()
}

func newLife(t *testing.T, seed uint64) *life {
	l := &life{t: t, r: rand.New(rand.NewPCG(seed, 7)), mem: order.NewMemory(), keys: []string{"a", "b", "c"},
		delivered: map[string][]order.Position{}, late: map[string]map[order.Position]bool{},
		accepted: map[string]map[order.Position]bool{}, epoch: map[string]uint64{}, next: map[string]uint64{}}
	for _, k := range l.keys {
		l.late[k], l.accepted[k] = map[order.Position]bool{}, map[order.Position]bool{}
		l.epoch[k], l.next[k] = 1, 1
	}
	return l
}

func (l *life) live() {
	l.restart()
	for range 120 {
		switch n := l.r.IntN(100); {
		case n < 60:
			l.send()
		case n < 75:
			l.arrive(l.r.IntN(len(l.held) + 1))
		case n < 85:
			later(time.Duration(l.r.IntN(2000)) * time.Millisecond)
		case n < 90:
			later(time.Duration(l.r.IntN(400)) * time.Second)
		case n < 93:
			k := l.keys[l.r.IntN(len(l.keys))]
			l.epoch[k], l.next[k] = l.epoch[k]+1, 1
		case n < 97: // it dies, and the leases lapse
			l.process.dead.Store(true)
			l.restart()
		default:
			l.stop()
			l.stop = func() {}
			l.restart()
		}
		for _, k := range l.keys {
			account(l.t, newBuffer(l.t, l.mem, nil), k)
		}
	}
	for len(l.held) > 0 {
		l.arrive(len(l.held))
	}
	l.restart()
	later(3 * time.Hour)
	l.stop()
	l.check()
}

// restart begins a new process, whose store loses a reply now and then.
func (l *life) restart() {
	old := l.stop
	p := newProcess(l.mem, 0, false)
	r := rand.New(rand.NewPCG(l.r.Uint64(), 9))
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	lossy := func(step) error {
		if p.dead.Load() || random(15) == 0 {
			return errBroken
		}
		return nil
	}
	p.before, p.after = lossy, lossy
	policy := order.Drain
	b := newBuffer(l.t, p, &order.Options{
		OldEpoch: policy, StoreTimeout: 2 * time.Second,
		Voids: func(_ context.Context, _ string, _, from, to uint64) ([]order.Void, error) {
			if from%5 == 0 {
				return []order.Void{{From: from, To: from + 1, Orphaned: from%2 == 0}}, nil
			}
			return nil, nil
		},
		Resend: func(context.Context, order.Gap) error { return errBroken },
		OnLate: func(_ context.Context, m order.Message) error {
			if random(4) == 0 {
				return errBroken
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if !p.dead.Load() {
				l.late[m.Key][m.Position] = true
			}
			return nil
		},
	})
	l.process, l.buffer = p, b
	stop := start(l.t, b, func(_ context.Context, m order.Message) error {
		switch random(20) {
		case 0:
			return errBroken
		case 1:
			panic("boom")
		case 2:
			time.Sleep(time.Duration(random(300)) * time.Millisecond)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.dead.Load() {
			return errBroken
		}
		if !slices.Contains(l.delivered[m.Key], m.Position) {
			l.delivered[m.Key] = append(l.delivered[m.Key], m.Position)
		}
		return nil
	}, &order.RunOptions{Batch: 5, Concurrency: 2, Lease: 5 * time.Second, MaxAttempts: 1000, Poll: 2 * time.Second,
		Backoff: retry.Exponential(time.Second, 20*time.Second, retry.FullJitter)})
	l.stop = func() {
		stop()
		if old != nil {
			old()
		}
	}
}

// send numbers a message and puts it on its way; some numbers are never used.
func (l *life) send() {
	k := l.keys[l.r.IntN(len(l.keys))]
	n := l.next[k]
	l.next[k]++
	if n%5 == 0 && l.r.IntN(2) == 0 {
		return
	}
	m := msg(k, n)
	m.Position.Epoch = l.epoch[k]
	l.held = append(l.held, m)
	if l.r.IntN(10) == 0 {
		l.held = append(l.held, m)
	}
	if l.r.IntN(20) == 0 {
		return // it takes its time
	}
	l.arrive(1)
}

// arrive lets some of what is on its way arrive, in any order.
func (l *life) arrive(n int) {
	for range min(n, len(l.held)) {
		i := l.r.IntN(len(l.held))
		m := l.held[i]
		answers, err := l.buffer.Push(context.Background(), m)
		if err != nil {
			continue // the sender has no answer and tries again
		}
		l.held = slices.Delete(l.held, i, i+1)
		switch s := answers[0].State; s {
		case order.Buffered, order.Late, order.Duplicate:
			l.mu.Lock()
			l.accepted[m.Key][m.Position] = true
			l.mu.Unlock()
		case order.StaleEpoch:
		default:
			l.t.Errorf("%s %v was answered %v", m.Key, m.Position, s)
		}
	}
}

func (l *life) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := newBuffer(l.t, l.mem, nil)
	for _, k := range l.keys {
		if !slices.IsSortedFunc(l.delivered[k], order.Position.Compare) {
			l.t.Errorf("key %s was delivered out of order: %v", k, l.delivered[k])
		}
		for p := range l.accepted[k] {
			if !slices.Contains(l.delivered[k], p) && !l.late[k][p] {
				found, err := b.Where(context.Background(), k, p)
				l.t.Errorf("key %s: %v was accepted and is neither delivered nor late: %+v, %v", k, p, found, err)
			}
		}
		a := account(l.t, b, k)
		if len(a.Ledgers) > 0 {
			if g := a.Ledgers[0]; g.Cursor != g.Head || a.LateWaiting != 0 || a.Claimed {
				l.t.Errorf("key %s has not come to its end: %+v", k, a)
			}
		}
	}
}
