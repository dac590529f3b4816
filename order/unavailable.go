package order

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An outage is the time during which the store does not answer and
// Options.OnUnavailable takes the messages. Its lock is held during a whole push,
// so that messages are handed over in the order of arrival and nothing is pushed
// before what was handed over is reported. It is not used without that option.
type outage struct {
	mu    sync.Mutex
	down  bool           // the last push had no answer at all
	next  time.Time      // when to try the store again
	list  []Settlement   // what is to be reported, in the order of delivery
	keys  map[string]int // the keys in it
	count atomic.Int64   // its length
}

const (
	// maxUnreported is how many messages are remembered for the store.
	maxUnreported = 100_000

	// probeEvery is the time between attempts to reach a store that is down.
	probeEvery = time.Second

	// reportAtOnce is how many batches are reported before a push has its turn.
	reportAtOnce = 4
)

// pushOrHandOver stores arrivals, and hands over those that the store has no
// answer for, or that follow others of their key which are not reported yet.
func (b *Buffer) pushOrHandOver(arrivals []Arrival, answers []Answer) {
	o := &b.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	b.report()
	waits := o.down && time.Now().Before(o.next)
	var hand []int
	send := make([]Arrival, 0, len(arrivals))
	places := make([]int, 0, len(arrivals))
	for i := range arrivals {
		_, unreported := o.keys[arrivals[i].Key]
		switch {
		case !waits && !unreported:
			send, places = append(send, arrivals[i]), append(places, i)
		case arrivals[i].Assign:
			answers[i].Err = errDown
		default:
			hand = append(hand, i)
		}
	}
	hand = append(hand, b.try(send, places, answers)...)
	slices.Sort(hand)
	b.handOver(arrivals, hand, answers)
}

var errDown = fmt.Errorf("%w: it did not answer before, and is asked again soon", ErrUnavailable)

// try stores what can be stored, and returns the places of what can be handed
// over instead. The lock is held.
func (b *Buffer) try(send []Arrival, places []int, answers []Answer) (hand []int) {
	if len(send) == 0 {
		return nil
	}
	o := &b.outage
	got := make([]Answer, len(send))
	failed := 0
	for n := 0; n < len(send); {
		end := min(n+pushBatch, len(send))
		ctx, cancel := context.WithTimeout(context.Background(), b.opts.UnavailableAfter)
		b.put(ctx, send[n:end], got[n:end])
		cancel()
		before := failed
		for i := n; i < end; i++ {
			answers[places[i]] = got[i]
			if got[i].Err != nil {
				failed++
				if !send[i].Assign {
					hand = append(hand, places[i])
				}
			}
		}
		if failed-before == end-n && end < len(send) { // do not wait for the others, too
			for i := end; i < len(send); i++ {
				failed++
				if answers[places[i]].Err = errDown; !send[i].Assign {
					hand = append(hand, places[i])
				}
			}
			end = len(send)
		}
		n = end
	}
	if down := failed == len(send); down != o.down {
		o.down = down
		b.unavailableNow(down)
	}
	if failed > 0 {
		o.next = time.Now().Add(probeEvery)
	}
	return hand
}

// handOver gives messages to the caller's function, and remembers those it took.
// The lock is held.
func (b *Buffer) handOver(arrivals []Arrival, hand []int, answers []Answer) {
	if len(hand) == 0 {
		return
	}
	ms := make([]Message, len(hand))
	for i, place := range hand {
		ms[i] = arrivals[place].Message
	}
	errs := b.callUnavailable(ms)
	o := &b.outage
	for i, place := range hand {
		if errs != nil && errs[i] != nil {
			answers[place] = Answer{Err: fmt.Errorf("%w; Options.OnUnavailable did not take it: %w", ErrUnavailable, errs[i])}
			continue
		}
		m := &arrivals[place]
		answers[place] = Answer{State: Unordered, Key: m.Key, Position: m.Position}
		if o.count.Load() >= maxUnreported {
			if b.counts.forgotten.Add(1) == 1 {
				b.warn(context.Background(), "more messages were delivered while the store is down than are remembered; each will be a gap", "remembered", maxUnreported)
			}
			continue
		}
		if o.keys == nil {
			o.keys = map[string]int{}
		}
		o.list = append(o.list, Settlement{Kind: KindUnordered, Key: m.Key, Epoch: m.Position.Epoch, From: m.Position.Number})
		o.keys[m.Key]++
		o.count.Add(1)
	}
}

func (b *Buffer) callUnavailable(ms []Message) (errs []error) {
	n := len(ms)
	defer func() { // it runs on a goroutine that many callers wait for
		if p := recover(); p != nil {
			b.warn(context.Background(), "Options.OnUnavailable panicked", "stack", string(debug.Stack()))
			errs = slices.Repeat([]error{fmt.Errorf("%w: %v", errPanic, p)}, n)
		}
	}()
	errs = b.opts.OnUnavailable(context.Background(), ms)
	if errs != nil && len(errs) != n {
		return slices.Repeat([]error{invalid("%d errors for %d messages", len(errs), n)}, n)
	}
	return errs
}

// reportSoon reports what was handed over, if there is any and no push is under
// way, which would do it. Workers call it, so that the report does not wait for
// the next push.
func (b *Buffer) reportSoon() {
	o := &b.outage
	if o.count.Load() == 0 || !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	b.report()
}

// report tells the store what was delivered without it, if it is time to try.
// What it does not answer for is kept, and so is what is too much for one call: the
// next one goes on. The lock is held.
func (b *Buffer) report() {
	o := &b.outage
	if len(o.list) == 0 || time.Now().Before(o.next) {
		return
	}
	list := o.list
	var kept []Settlement
	for range reportAtOnce {
		if len(list) == 0 || len(kept) > 0 {
			break
		}
		n := min(len(list), pushBatch)
		kept = append(kept, b.reportBatch(list[:n])...)
		list = list[n:]
	}
	o.list = append(kept, list...)
	o.count.Store(int64(len(o.list)))
	if o.next = (time.Time{}); len(kept) > 0 {
		o.next = time.Now().Add(probeEvery)
	}
	b.Wake()
}

// takeUnreported takes what is to be reported of a key out of the list. It waits for
// a report that is under way.
func (b *Buffer) takeUnreported(key string) (taken []Settlement) {
	o := &b.outage
	if o.count.Load() == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys[key] == 0 {
		return nil
	}
	kept := make([]Settlement, 0, len(o.list)-o.keys[key])
	for _, s := range o.list {
		if s.Key == key {
			taken = append(taken, s)
		} else {
			kept = append(kept, s)
		}
	}
	delete(o.keys, key)
	o.list = kept
	o.count.Store(int64(len(kept)))
	return taken
}

// putUnreported puts back what takeUnreported took.
func (b *Buffer) putUnreported(key string, taken []Settlement) {
	if len(taken) == 0 {
		return
	}
	o := &b.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(taken, o.list...)
	o.keys[key] += len(taken)
	o.count.Store(int64(len(o.list)))
}

// reportBatch settles a batch once and returns what was not answered for.
func (b *Buffer) reportBatch(batch []Settlement) (kept []Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), b.opts.UnavailableAfter)
	defer cancel()
	errs, err := b.send(ctx, batch)
	for i, s := range batch {
		e := err
		if e == nil && errs != nil {
			e = errs[i]
		}
		if e != nil && !final(e) {
			kept = append(kept, s)
			continue
		}
		if e != nil {
			b.counts.forgotten.Add(1)
			b.warn(ctx, "a message that was delivered while the store was down could not be reported to it",
				"key", short(s.Key), "number", s.From, "error", e)
		}
		b.settled(ctx, s, e)
		if b.outage.keys[s.Key]--; b.outage.keys[s.Key] == 0 {
			delete(b.outage.keys, s.Key)
		}
	}
	return kept
}
