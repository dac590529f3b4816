package order_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// Random pushes, duplicates, gaps, voids, epochs, late messages, failures, decisions
// of a person, deliveries outside of the buffer, lost replies, crashes, restarts,
// hours that pass and clocks that jump, under policies that each seed chooses: the
// sums hold after every step, what is delivered is in order, and in the end every
// message has been delivered or handed over late, unless somebody decided otherwise.
func TestRandomLives(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 6
	}
	for _, from := range seed.List(seeds) {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newLife(t, from).live() })
		})
	}
}

type life struct {
	t    *testing.T
	r    *rand.Rand // of the test's goroutine
	mem  *order.Memory
	keys []string

	// What the seed chooses.
	epochs   order.EpochPolicy
	gaps     order.GapPolicy
	tx       bool          // RunTx
	attempts int           // before a message is parked
	inOrder  bool          // what is on its way arrives in order
	jumps    bool          // of the store's clock
	shift    time.Duration // it is ahead by now

	// The world.
	mu        sync.Mutex
	delivered map[string][]order.Position // first deliveries, by key
	late      map[string]map[order.Position]bool
	accepted  map[string]map[order.Position]bool
	excused   map[string]map[order.Position]bool // dropped by a person, or delivered outside of the buffer
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
		accepted: map[string]map[order.Position]bool{}, excused: map[string]map[order.Position]bool{},
		epoch: map[string]uint64{}, next: map[string]uint64{}}
	l.epochs = []order.EpochPolicy{order.Drain, order.Abandon, order.Keep}[seed%3]
	l.gaps = []order.GapPolicy{order.Skip, order.Stop}[seed/3%2]
	l.tx, l.inOrder, l.jumps = l.r.IntN(2) == 0, l.r.IntN(2) == 0, l.r.IntN(2) == 0
	l.attempts = []int{2, 1000}[l.r.IntN(2)]
	t.Logf("old epochs %d, gaps %d, tx %t, %d attempts, in order %t, jumps %t", l.epochs, l.gaps, l.tx, l.attempts, l.inOrder, l.jumps)
	for _, k := range l.keys {
		l.late[k], l.accepted[k], l.excused[k] = map[order.Position]bool{}, map[order.Position]bool{}, map[order.Position]bool{}
		l.epoch[k], l.next[k] = 1, 1
	}
	return l
}

func (l *life) live() {
	l.restart()
	for range 120 {
		switch n := l.r.IntN(100); {
		case n < 55:
			l.send()
		case n < 69:
			l.arrive(l.r.IntN(len(l.held) + 1))
		case n < 78:
			later(time.Duration(l.r.IntN(2000)) * time.Millisecond)
		case n < 83:
			later(time.Duration(l.r.IntN(400)) * time.Second)
		case n < 87:
			l.person(l.r.IntN(3) == 0)
		case n < 89:
			l.outside()
		case n < 91:
			l.jump(time.Duration(l.r.IntN(3)-1) * time.Hour)
		case n < 94:
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
	for range 10 { // the clock may have to come back, and then each park and each gap needs a person
		later(time.Hour)
		l.person(true)
	}
	later(10 * time.Minute)
	l.stop()
	l.check()
}

// jump sets how far the store's clock is ahead.
func (l *life) jump(shift time.Duration) {
	if l.jumps {
		l.mem.ShiftClock(shift - l.shift)
		l.shift = shift
	}
}

// outside delivers a message without the buffer, and says so.
func (l *life) outside() {
	k := l.keys[l.r.IntN(len(l.keys))]
	p := order.Position{Epoch: l.epoch[k], Number: 1 + l.r.Uint64N(l.next[k]+2)}
	l.excused[k][p] = true // also if there is no answer
	if err := l.buffer.Settled(context.Background(), k, p); err != nil && !errors.Is(err, order.ErrUnavailable) {
		l.t.Errorf("%s %v was not settled: %v", k, p, err)
	}
}

// person decides about what is listed: about some of it, or about all.
func (l *life) person(all bool) {
	ctx, b := context.Background(), l.buffer
	parked, err := b.Parked(ctx, order.Query{})
	for _, m := range parked {
		switch {
		case !all && l.r.IntN(2) == 0:
		case l.r.IntN(3) == 0:
			l.excused[m.Key][m.Position] = true
			err = b.Drop(ctx, m.Key, m.Position, "ops", "")
		default:
			err = b.Resume(ctx, m.Key, m.Position, "ops", "")
		}
		l.decided(err)
	}
	gaps, err := b.Gaps(ctx, order.Query{Unresolved: true, N: 1000})
	l.decided(err)
	for _, g := range gaps {
		if what := order.Resolution(1 + l.r.IntN(3)); all && g.Open && len(l.held) == 0 {
			l.decided(b.ResolveGap(ctx, g, order.ResolutionLost, "ops", ""))
		} else if !all || !g.Open {
			l.decided(b.ResolveGap(ctx, g, what, "ops", ""))
		}
	}
}

func (l *life) decided(err error) {
	if err != nil && !errors.Is(err, order.ErrUnavailable) && !errors.Is(err, order.ErrNotFound) {
		l.t.Errorf("a decision failed: %v", err)
	}
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
	b := newBuffer(l.t, p, &order.Options{
		OldEpoch: l.epochs, AfterTimeout: l.gaps, StoreTimeout: 2 * time.Second,
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
	work := func(m order.Message) error {
		switch random(20) {
		case 0:
			return errBroken
		case 1:
			panic("boom")
		case 2:
			time.Sleep(time.Duration(random(300)) * time.Millisecond)
		}
		return nil
	}
	opts := &order.RunOptions{Batch: 5, PerTx: 3, Concurrency: 2, Lease: 5 * time.Second, MaxAttempts: l.attempts, Poll: 5 * time.Second,
		Backoff: retry.Exponential(time.Second, 20*time.Second, retry.FullJitter)}
	stop := startRun(l.t, func(ctx context.Context) error {
		if l.tx {
			return b.RunTx(ctx, l.inTx(p, work, random), opts)
		}
		return b.Run(ctx, func(_ context.Context, m order.Message) error {
			if err := work(m); err != nil {
				return err
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
		}, opts)
	})
	l.stop = func() {
		stop()
		if old != nil {
			old()
		}
	}
}

// inTx is the handler of a database beside the store, which now and then does not
// say what became of a commit. An effect happens once.
func (l *life) inTx(p *process, work func(order.Message) error, random func(int) int) order.TxHandler {
	return func(ctx context.Context, run *order.TxRun) (int, error) {
		n, failure := 0, error(nil)
		for ; n < len(run.Messages) && failure == nil; n++ {
			if failure = run.Do(n, func(context.Context) error { return work(run.Messages[n]) }); failure != nil {
				break
			}
		}
		if n == 0 {
			return 0, failure
		}
		tx := &bound{Store: p}
		if err := run.Settle(ctx, tx, n); err != nil {
			return 0, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.dead.Load() || random(30) == 0 {
			return 0, errBroken
		}
		errs, err := l.mem.Settle(context.Background(), tx.p, tx.pending)
		if err = errors.Join(append(errs, err)...); err != nil {
			return 0, err
		}
		for _, m := range run.Messages[:n] {
			if slices.Contains(l.delivered[m.Key], m.Position) {
				l.t.Errorf("%s %v has had its effect twice", m.Key, m.Position)
			}
			l.delivered[m.Key] = append(l.delivered[m.Key], m.Position)
		}
		if random(30) == 0 {
			return 0, errBroken // it is committed
		}
		return n, failure
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
	if l.r.IntN(10) == 0 {
		return // it takes its time
	}
	l.arriveAt(len(l.held) - 1)
}

// arrive lets some of what is on its way arrive, in order or in any.
func (l *life) arrive(n int) {
	for range min(n, len(l.held)) {
		if i := l.r.IntN(len(l.held)); l.inOrder {
			l.arriveAt(0)
		} else {
			l.arriveAt(i)
		}
	}
}

func (l *life) arriveAt(i int) {
	m := l.held[i]
	answers, err := l.buffer.Push(context.Background(), m)
	if err != nil {
		return // the sender has no answer and tries again
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

func (l *life) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := newBuffer(l.t, l.mem, nil)
	for _, k := range l.keys {
		inOrder := order.Position.Compare
		if l.epochs == order.Abandon { // what was in hand may end behind the first of the new epoch
			inOrder = func(p, q order.Position) int {
				if p.Epoch != q.Epoch {
					return 0
				}
				return p.Compare(q)
			}
		}
		if !slices.IsSortedFunc(l.delivered[k], inOrder) {
			l.t.Errorf("key %s was delivered out of order: %v", k, l.delivered[k])
		}
		for p := range l.accepted[k] {
			abandoned := l.epochs == order.Abandon && p.Epoch < l.epoch[k]
			if !slices.Contains(l.delivered[k], p) && !l.late[k][p] && !l.excused[k][p] && !abandoned {
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
