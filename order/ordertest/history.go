package ordertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/order"
)

// Random histories, in which a store is compared to the model after every step.
var modelCases = []testCase{
	{name: "RandomHistoriesAgreeWithTheModel", run: randomHistories, once: true},
}

// The numbers of a history are small, so that its keys and numbers meet often.
const (
	historyKeys   = 3
	historyWindow = 6
	historyAhead  = 14
)

func randomHistories(e *env) {
	n := 4
	if !e.virtual {
		n = 2
	}
	for i, from := range seed.List(n) {
		h := newHistory(e, from, fmt.Sprint("history-", i))
		for range cmp.Or(e.c.Steps, 600) {
			h.step()
		}
		h.compare()
	}
}

// A history is one random course of events in a store and in the model. Sleeps
// are multiples of ten seconds, and leases and delays are five more, so that
// nothing is due at the very moment of a step. On a real clock nothing is slept:
// delays are zero, or longer than the history.
type history struct {
	e      *env
	m      *model
	seed   uint64
	rnd    *rand.Rand
	claims []order.Claim // also of owners that have lost them
	asks   []order.Ask
	steps  []string
}

func newHistory(e *env, from uint64, scope string) *history {
	h := &history{e: e, seed: from, rnd: rand.New(rand.NewPCG(from, 0))}
	p := e.p
	p.Scope, p.Window, p.MaxBuffered, p.MaxAhead = scope, historyWindow, 2+h.rnd.IntN(7), historyAhead
	p.Start = h.rnd.Uint64N(3)
	p.Late = h.rnd.IntN(4) > 0
	p.GapLook = h.delay()
	e.p = p
	h.m = newModel(p)
	return h
}

// delay is a lease, a delay or a look.
func (h *history) delay() time.Duration {
	switch n := h.rnd.IntN(6); {
	case !h.e.virtual && n < 3:
		return 0
	case !h.e.virtual:
		return longLease
	case n < 3:
		return 0
	default:
		return time.Duration(n-2)*20*time.Second + 5*time.Second
	}
}

func (h *history) key() string { return fmt.Sprint("k", h.rnd.IntN(historyKeys)) }

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case n < 34:
		h.push()
	case n < 54:
		h.claim()
	case n < 84:
		h.settle()
	case n < 90:
		h.person()
	case n < 95:
		h.sleep()
	case n < 96:
		h.crash()
	case n < 97:
		h.sweep()
	default:
		h.compare()
	}
}

// push pushes a few messages, most of them near the cursor of an epoch.
func (h *history) push() {
	p := h.m.p
	p.Abandon = h.rnd.IntN(25) == 0
	arrivals := make([]order.Arrival, 1+h.rnd.IntN(4))
	for i := range arrivals {
		arrivals[i] = h.arrival()
	}
	h.note("push %s, abandon %t", describeArrivals(arrivals), p.Abandon)
	got, err := h.e.store.Push(context.Background(), p, arrivals)
	if err != nil || len(got) != len(arrivals) {
		h.fail("%d answers and %v", len(got), err)
	}
	if h.rnd.IntN(8) == 0 { // the answers were lost
		for i := range got {
			h.pushed(p, arrivals[i], got[i])
		}
		h.note("sent again")
		if got, err = h.e.store.Push(context.Background(), p, arrivals); err != nil {
			h.fail("%v", err)
		}
	}
	for i := range got {
		h.pushed(p, arrivals[i], got[i])
	}
	for _, a := range arrivals {
		h.checkAccount(a.Key)
	}
}

func (h *history) pushed(p order.Params, a order.Arrival, got order.Answer) {
	want, unsure := h.m.push(p, a)
	if got == want {
		return
	}
	if unsure && got.Key == want.Key && got.Position == want.Position && (got.State == want.State || got.State == order.Duplicate && got.Unverified) {
		if k := h.m.keys[a.Key]; got.State != want.State {
			k.arrivals.Conflict--
			k.arrivals.Duplicate++
		}
		return
	}
	h.fail("%s %v was answered %s %+v, want %s %+v", a.Key, a.Position, arrivedName(got.State), got, arrivedName(want.State), want)
}

func (h *history) arrival() order.Arrival {
	key := h.key()
	if h.rnd.IntN(15) == 0 {
		a := assigned(key, fmt.Sprint("op-", h.rnd.IntN(20)))
		a.Position.Epoch = h.rnd.Uint64N(5)
		return a
	}
	epoch, n := uint64(1+h.rnd.IntN(2)), 1+h.rnd.Uint64N(4)
	if k := h.m.keys[key]; k != nil {
		e := k.epochs[h.rnd.IntN(len(k.epochs))]
		if h.rnd.IntN(3) > 0 {
			e = k.active()
		}
		epoch, n = e.epoch, e.cursor+h.rnd.Uint64N(6)
		switch h.rnd.IntN(12) {
		case 0:
			epoch += h.rnd.Uint64N(3)
			n = 1 + h.rnd.Uint64N(4)
		case 1, 2, 3:
			n = max(1, e.cursor-min(e.cursor, h.rnd.Uint64N(12)))
		case 4:
			n = e.cursor + h.rnd.Uint64N(historyAhead+3)
		}
	}
	if k := h.m.keys[key]; k != nil && k.epoch(epoch) != nil {
		// A message with an ID that was dropped comes again as it was: whether another
		// one in its place takes its ID away is left open.
		if x := k.epoch(epoch).numbers[n]; x != nil && x.state == order.StateSkipped && x.arrival.ID != "" {
			return x.arrival
		}
	}
	id, payload := "", "payload"[:1+n%7]
	if n%3 == 0 {
		id = fmt.Sprintf("id-%s-%d-%d", key, epoch, n)
	}
	if h.rnd.IntN(12) == 0 {
		payload = "other"
	}
	return withID(key, epoch, n, id, payload)
}

func (h *history) claim() {
	a := order.Ask{Keys: 100, Messages: 1 + h.rnd.IntN(4), Bytes: 1 + h.rnd.IntN(12), Lease: longLease}
	if h.e.virtual {
		a.Lease = time.Duration(1+h.rnd.IntN(4))*20*time.Second + 5*time.Second
	}
	if h.rnd.IntN(4) == 0 {
		a.Late = 1 + h.rnd.IntN(5)
	}
	for i := range a.Nonce { // from the history's numbers, so that it can be repeated
		a.Nonce[i] = byte(h.rnd.Uint32())
	}
	if h.rnd.IntN(3) == 0 {
		a.Keys = 1
	}
	if len(h.asks) > 0 && h.rnd.IntN(5) == 0 {
		a = h.asks[len(h.asks)-1-h.rnd.IntN(min(len(h.asks), 3))] // a late copy
	}
	h.asks = append(h.asks, a)
	h.note("claim %x of %d keys, %d messages, %d late, %d bytes for %v", a.Nonce[:4], a.Keys, a.Messages, a.Late, a.Bytes, a.Lease)
	got, err := h.e.store.Claim(context.Background(), h.m.p, a)
	if err != nil {
		h.fail("%v", err)
	}
	h.claimed(a, got.Claims)
	for _, c := range got.Claims {
		h.checkAccount(c.Key)
	}
}

func (h *history) claimed(a order.Ask, claims []order.Claim) {
	var again, due []string
	for name, k := range h.m.keys {
		if k.nonce == a.Nonce && k.until > h.m.now {
			again = append(again, name)
		}
		if h.m.due(k) {
			due = append(due, name)
		}
	}
	slices.Sort(again)
	slices.Sort(due)
	slices.SortFunc(claims, func(x, y order.Claim) int { return strings.Compare(x.Key, y.Key) })
	got := keysOf(claims)
	switch {
	case len(again) > 0 && !slices.Equal(got, again):
		h.fail("sent again, it got %q, want %q", got, again)
	case len(again) == 0 && a.Keys >= len(due) && !slices.Equal(got, due):
		h.fail("it got the keys %q, want %q", got, due)
	case len(again) == 0 && len(got) != min(a.Keys, len(due)):
		h.fail("it got the keys %q, want %d of %q", got, a.Keys, due)
	}
	for i := range claims {
		c := &claims[i]
		k := h.m.keys[c.Key]
		if len(again) > 0 {
			h.checkAgain(k, c)
		} else {
			if !slices.Contains(due, c.Key) {
				h.fail("it got the key %q, and due are %q", c.Key, due)
			}
			h.checkClaim(k, a, c)
		}
		h.note("got %s token %d epoch %d run %v late %v gap %+v", c.Key, c.Token, c.Epoch, numbersOf(c.Run), numbersOf(c.Late), c.Gap)
		h.claims = append(h.claims, *c)
	}
}

func (h *history) sleep() {
	if !h.e.virtual {
		return
	}
	d := time.Duration(1+h.rnd.IntN(6)) * 10 * time.Second
	h.note("sleep %v", d)
	h.e.sleep(d)
	h.m.now += d
}

func (h *history) crash() {
	if h.e.c.Reopen != nil {
		h.note("crash")
		h.e.reopen()
	}
}

// sweep sweeps: nothing of a history is old enough to be forgotten by its age.
func (h *history) sweep() {
	if s, ok := h.e.watched.Store.(order.Sweeper); ok {
		h.note("sweep")
		if _, err := s.Sweep(context.Background(), h.m.p, 100); err != nil {
			h.fail("Sweep: %v", err)
		}
	}
}

func (h *history) note(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.e.Helper()
	last := h.steps[max(0, len(h.steps)-25):]
	h.e.Fatalf("after %d steps (%s), the last of which are\n%s\n%s",
		len(h.steps), seed.Repeat(h.seed), strings.Join(last, "\n"), fmt.Sprintf(format, args...))
}

func describeArrivals(arrivals []order.Arrival) string {
	var s strings.Builder
	for i, a := range arrivals {
		if i > 0 {
			s.WriteString(", ")
		}
		if a.Assign {
			fmt.Fprintf(&s, "%s %s", a.Key, a.ID)
		} else {
			fmt.Fprintf(&s, "%s %d/%d %q", a.Key, a.Position.Epoch, a.Position.Number, a.Payload)
		}
	}
	return s.String()
}

// sameError says whether an answer is the one that the model gives.
func sameError(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}
