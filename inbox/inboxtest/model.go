package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Random histories, in which a store is compared to [inbox.Memory].
var modelCases = []testCase{
	{name: "RandomHistoriesAgreeWithMemory", run: randomHistories, once: true},
}

// seedVariable repeats a history that has failed: a failure names its seed.
const seedVariable = "PAWL_INBOXTEST_SEED"

func randomHistories(e *env) {
	if !e.c.Bubble {
		e.Skip("the two stores need the same clock, which only a bubble gives them")
	}
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	h := &history{e: e, model: inbox.NewMemory(), seed: seed, rnd: rand.New(rand.NewPCG(seed, 0))}
	for range cmp.Or(e.c.Steps, 800) {
		h.step()
	}
	h.compare()
}

// A history is one random course of events in two stores.
type history struct {
	e      *env
	model  *inbox.Memory
	seed   uint64
	rnd    *rand.Rand
	claims []inbox.Claim // also of owners that have lost them
	asks   []inbox.Ask
	steps  []string
}

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case n < 30:
		h.accept()
	case n < 45:
		h.claim()
	case n < 88:
		h.settle()
	case n < 93:
		h.sleep()
	case n < 96:
		h.sweep()
	default:
		h.compare()
	}
}

func (h *history) accept() {
	arrivals := make([]inbox.Arrival, 1+h.rnd.IntN(4))
	for i := range arrivals {
		n := h.rnd.IntN(60)
		id, key := fmt.Sprint("e", n), fmt.Sprint("k", n%5)
		arrivals[i] = arrival(id, key)
		switch h.rnd.IntN(12) {
		case 0:
			arrivals[i] = arrivalOf(id, key, fmt.Sprint("other ", h.rnd.IntN(3)))
		case 1:
			arrivals[i] = raw(fmt.Sprint("raw", n))
		case 2:
			arrivals[i].Streams = []string{stream, "second"}
		}
	}
	p := h.params()
	got, err := h.e.store.Accept(context.Background(), p, arrivals)
	want, wantErr := h.model.Accept(context.Background(), p, arrivals)
	var name strings.Builder
	name.WriteString("accept")
	for _, a := range arrivals {
		fmt.Fprintf(&name, " %s of %s in %q (%x)", a.ID, a.Key, a.Streams, a.Digest[:2])
	}
	h.same(name.String(), fmt.Sprint(got), fmt.Sprint(want), err, wantErr)
}

func (h *history) params() inbox.Params {
	return inbox.Params{
		Retention: time.Duration(1+h.rnd.IntN(3)) * time.Minute,
		Keep:      time.Duration(3+h.rnd.IntN(3)) * time.Minute,
	}
}

func (h *history) claim() {
	a := newAsk()
	for i := range a.Nonce { // from the history's numbers, so that it can be repeated
		a.Nonce[i] = byte(h.rnd.Uint32())
	}
	a.Events, a.Lease = 1+h.rnd.IntN(4), time.Duration(1+h.rnd.IntN(60))*time.Second
	a.Bytes = 1 + h.rnd.IntN(100)
	if h.rnd.IntN(4) == 0 {
		a.Stream = "second"
	}
	if len(h.asks) > 0 && h.rnd.IntN(4) == 0 {
		a = h.asks[h.rnd.IntN(len(h.asks))] // a late copy
	}
	h.asks = append(h.asks, a)
	got, err := h.e.store.Claim(context.Background(), a)
	want, wantErr := h.model.Claim(context.Background(), a)
	for _, c := range []inbox.Claimed{got, want} { // keys may have become due at the same moment
		slices.SortFunc(c.Claims, func(a, b inbox.Claim) int { return strings.Compare(a.Key, b.Key) })
	}
	if got.Next == 0 { // it does not know
		want.Next = 0
	}
	h.same(fmt.Sprintf("claim %x of %s for %v", a.Nonce[:4], a.Stream, a.Lease), describe(got), describe(want), err, wantErr)
	for _, c := range want.Claims {
		if len(c.Records) > 0 { // an ask sent again may find a key with all its records ended
			h.claims = append(h.claims, c)
		}
	}
}

// settle settles as owners do, and as those do who were owners once.
func (h *history) settle() {
	if len(h.claims) == 0 {
		return
	}
	batch := make([]inbox.Settlement, 1+h.rnd.IntN(3))
	for i := range batch {
		n := len(h.claims) - 1 - min(h.rnd.IntN(4), h.rnd.IntN(len(h.claims)))
		c := h.claims[max(n, 0)]
		kind := allKinds[h.rnd.IntN(len(allKinds))]
		r := h.rnd.IntN(len(c.Records))
		batch[i] = settlement(kind, c, idsOf(c.Records[r : r+1])[0])
		switch kind {
		case inbox.KindRetry:
			batch[i].Delay = time.Duration(h.rnd.IntN(60)) * time.Second
		case inbox.KindExtend:
			batch[i].Lease = time.Duration(1+h.rnd.IntN(60)) * time.Second
		}
		if h.rnd.IntN(10) == 0 {
			batch[i].Token++
		}
		if h.rnd.IntN(20) == 0 {
			batch[i].Key = fmt.Sprint("k", h.rnd.IntN(6))
		}
	}
	p := h.params()
	got, err := h.e.store.Settle(context.Background(), p, batch)
	want, wantErr := h.model.Settle(context.Background(), p, batch)
	var name strings.Builder
	name.WriteString("settle")
	for _, s := range batch {
		fmt.Fprintf(&name, " %v %s of %s/%s by %d", s.Kind, s.ID, s.Stream, s.Key, s.Token)
	}
	h.same(name.String(), staleness(got), staleness(want), err, wantErr)
}

// staleness says which settlements were stale; it is empty when none was.
func staleness(errs []error) string {
	var s strings.Builder
	for _, err := range errs {
		fmt.Fprint(&s, errors.Is(err, inbox.ErrStale), " ")
	}
	return s.String()
}

func (h *history) sleep() {
	d := time.Duration(h.rnd.IntN(40)) * time.Second
	h.steps = append(h.steps, fmt.Sprint("sleep ", d))
	h.e.sleep(d)
}

// sweep removes all that has expired from both.
func (h *history) sweep() {
	if _, ok := h.e.sweep(); !ok {
		return
	}
	h.steps = append(h.steps, "sweep")
	h.model.Sweep(context.Background(), 10_000)
	h.model.Sweep(context.Background(), 10_000)
}

// compare compares all that can be listed and counted.
func (h *history) compare() {
	ctx := context.Background()
	for s := inbox.StatePending; s <= inbox.StateConflict; s++ {
		q := inbox.Query{State: s, N: 10_000}
		got, err := h.e.store.List(ctx, q)
		want, wantErr := h.model.List(ctx, q)
		h.same("list "+s.String(), describeRecords(got), describeRecords(want), err, wantErr)
	}
	q := inbox.Query{ID: fmt.Sprint("p/e", h.rnd.IntN(60)), N: 100}
	got, err := h.e.store.List(ctx, q)
	want, wantErr := h.model.List(ctx, q)
	h.same("list "+q.ID, describeRecords(got), describeRecords(want), err, wantErr)
	totals, err := h.e.store.Totals(ctx)
	wantTotals, wantErr := h.model.Totals(ctx)
	h.same("totals", fmt.Sprintf("%+v", totals), fmt.Sprintf("%+v", wantTotals), err, wantErr)
}

// same checks an answer, and notes the step.
func (h *history) same(step, got, want string, err, wantErr error) {
	h.e.Helper()
	h.steps = append(h.steps, step+" -> "+want)
	if err == nil && wantErr == nil && got == want {
		return
	}
	last := h.steps[max(0, len(h.steps)-15):]
	h.e.Fatalf("after %d steps (repeat with %s=%d), the last of which are\n%s\nthe store answered\n%s (error %v), and memory\n%s (error %v)",
		len(h.steps), seedVariable, h.seed, strings.Join(last, "\n"), got, err, want, wantErr)
}

func describe(c inbox.Claimed) string {
	var s strings.Builder
	fmt.Fprint(&s, "next in ", c.Next)
	for _, k := range c.Claims {
		fmt.Fprintf(&s, "; %s/%s token %d, %v left, more %t%s", k.Stream, k.Key, k.Token, k.Left, k.More, describeRecords(k.Records))
	}
	return s.String()
}

func describeRecords(rs []inbox.Record) string {
	var s strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&s, " [%d %s %s/%s %v, %d attempts, age %v, error %q, payload %q, times %d %d %d %d]", r.Seq, r.ID, r.Stream, r.Key,
			r.State, r.Attempts, r.Age, r.LastError, r.Payload, r.Received.UnixMicro(), r.Next.UnixMicro(), r.Settled.UnixMicro(), r.Expires.UnixMicro())
	}
	return s.String()
}
