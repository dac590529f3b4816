package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/seed"
)

// Random histories, in which a store is compared to [inbox.Memory].
var modelCases = []testCase{
	{name: "RandomHistoriesAgreeWithMemory", run: randomHistories, once: true},
}

func randomHistories(e *env) {
	if !e.c.Bubble {
		e.Skip("the two stores need the same clock, which only a bubble gives them")
	}
	from := seed.One()
	h := &history{numbers: map[[16]byte]uint64{}, e: e, model: inbox.NewMemory(), seed: from, rnd: rand.New(rand.NewPCG(from, 0))}
	for range cmp.Or(e.c.Steps, 800) {
		h.step()
	}
	h.compare()
}

// A history is one random course of events in two stores.
type history struct {
	e       *env
	model   *inbox.Memory
	seed    uint64
	rnd     *rand.Rand
	claims  []inbox.Claim // also of owners that have lost them
	asks    []inbox.Ask
	wishes  []inbox.Change
	numbers map[[16]byte]uint64 // by the nonces of wishes
	steps   []string
}

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case n < 30:
		h.accept()
	case n < 45:
		h.claim()
	case n < 80:
		h.settle()
	case n < 88:
		h.change()
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
		if h.rnd.IntN(6) == 0 {
			arrivals[i].Form = inbox.Form(h.rnd.IntN(4)) // sealed and outside
		}
		arrivals[i].MessageID, arrivals[i].ExternalID = fmt.Sprint("m", n%7), fmt.Sprint("x", n%11)
		arrivals[i].Trace, arrivals[i].Context = fmt.Sprint("trace ", n), []byte("context")
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
		Bodies:    time.Duration(h.rnd.IntN(3)) * 30 * time.Second,
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
	late := len(h.asks) > 0 && h.rnd.IntN(4) == 0
	if late {
		a = h.asks[h.rnd.IntN(len(h.asks))] // a late copy
	}
	h.asks = append(h.asks, a)
	got, err := h.e.store.Claim(context.Background(), a)
	want, wantErr := h.model.Claim(context.Background(), a)
	for _, c := range []inbox.Claimed{got, want} { // keys may have become due at the same moment
		slices.SortFunc(c.Claims, func(a, b inbox.Claim) int { return strings.Compare(a.Key, b.Key) })
	}
	if want.Next == 0 && len(h.claims) > 0 || got.Next < want.Next || late { // a key with nothing pending, or it does not know
		want.Next = got.Next
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
		batch[i].Failures = failures(h.rnd.IntN(4))
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

// change does what persons do, and what their clients send again.
func (h *history) change() {
	batch := make([]inbox.Change, 1+h.rnd.IntN(2))
	for i := range batch {
		c := inbox.Change{
			Kind: allChanges[h.rnd.IntN(len(allChanges))], ID: fmt.Sprint("p/e", h.rnd.IntN(60)),
			Actor: fmt.Sprint("actor ", h.rnd.IntN(3)), Reason: fmt.Sprint("reason ", len(h.wishes)),
		}
		for i := range c.Nonce {
			c.Nonce[i] = byte(h.rnd.Uint32())
		}
		if ended := h.some(); ended != nil && h.rnd.IntN(4) > 0 { // otherwise most events are absent or pending
			c.ID = ended.ID
			if c.Kind != inbox.ChangeForget && h.rnd.IntN(2) == 0 {
				c.Seq = ended.Seq // memory's: see number
			}
		}
		if len(h.wishes) > 0 && h.rnd.IntN(4) == 0 {
			c = h.wishes[len(h.wishes)-1-min(h.rnd.IntN(4), h.rnd.IntN(len(h.wishes)))] // a late copy
		}
		h.wishes = append(h.wishes, c)
		batch[i] = c
	}
	p := h.params()
	mine := slices.Clone(batch)
	for i, c := range batch {
		mine[i].Seq = h.number(c)
	}
	got, err := h.e.store.Change(context.Background(), p, mine)
	want, wantErr := h.model.Change(context.Background(), p, batch)
	var name strings.Builder
	name.WriteString("change")
	for _, c := range batch {
		fmt.Fprintf(&name, " %v %s %d (%x)", c.Kind, c.ID, c.Seq, c.Nonce[:4])
	}
	h.same(name.String(), refusals(got), refusals(want), err, wantErr)
}

// number is the store's own number of the record that a change is about: stores
// number with holes. A late copy of a change is sent with the number it had.
func (h *history) number(c inbox.Change) uint64 {
	if c.Seq == 0 {
		return 0
	}
	if n, ok := h.numbers[c.Nonce]; ok {
		return n
	}
	q := inbox.Query{ID: c.ID, N: 100}
	want, _ := h.model.List(context.Background(), q)
	got, _ := h.e.store.List(context.Background(), q)
	i := slices.IndexFunc(want, func(r inbox.Record) bool { return r.Seq == c.Seq })
	if i < 0 || len(got) != len(want) {
		h.e.Fatalf("an event has %d records, and in memory %d", len(got), len(want))
	}
	h.numbers[c.Nonce] = got[i].Seq
	return got[i].Seq
}

// some returns one of the records that have ended, or nil.
func (h *history) some() *inbox.Record {
	s := inbox.StateDone + inbox.State(h.rnd.IntN(int(inbox.StateUnknown-inbox.StateDone)+1))
	rs, err := h.model.List(context.Background(), inbox.Query{State: s, N: 1 + h.rnd.IntN(10)})
	if err != nil || len(rs) == 0 {
		return nil
	}
	return &rs[len(rs)-1]
}

// refusals says how changes were answered; it is empty when all were applied.
func refusals(errs []error) string {
	var s strings.Builder
	for _, err := range errs {
		switch {
		case err == nil:
			s.WriteString("applied ")
		case errors.Is(err, inbox.ErrNotFound):
			s.WriteString("not found ")
		case errors.Is(err, inbox.ErrState):
			s.WriteString("refused ")
		default:
			fmt.Fprint(&s, err)
		}
	}
	return s.String()
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
	queries := []inbox.Query{
		{ID: fmt.Sprint("p/e", h.rnd.IntN(60)), N: 100},
		{MessageID: fmt.Sprint("m", h.rnd.IntN(8)), N: 1 + h.rnd.IntN(20)},
		{ExternalID: fmt.Sprint("x", h.rnd.IntN(12)), N: 1 + h.rnd.IntN(20)},
		{Outside: true, N: 10_000},
	}
	for s := inbox.StatePending; s <= inbox.StateUnknown; s++ {
		queries = append(queries, inbox.Query{State: s, N: 10_000})
	}
	for _, q := range queries {
		for mine, page := q, 0; page < 3; page++ {
			got, err := h.e.store.List(ctx, mine)
			want, wantErr := h.model.List(ctx, q)
			h.same(fmt.Sprintf("list %+v", q), describeRecords(got), describeRecords(want), err, wantErr)
			if len(want) < q.N {
				break
			}
			mine.After, q.After = got[len(got)-1].Seq, want[len(want)-1].Seq
		}
	}
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
	h.e.Fatalf("after %d steps (%s), the last of which are\n%s\nthe store answered\n%s (error %v), and memory\n%s (error %v)",
		len(h.steps), seed.Repeat(h.seed), strings.Join(last, "\n"), got, err, want, wantErr)
}

func describe(c inbox.Claimed) string {
	var s strings.Builder
	fmt.Fprint(&s, "next in ", c.Next)
	for _, k := range c.Claims {
		fmt.Fprintf(&s, "; %s/%s token %d, %v left, more %t%s", k.Stream, k.Key, k.Token, k.Left, k.More, describeRecords(k.Records))
	}
	return s.String()
}

// describeRecords describes all of records but their numbers, which need not be
// memory's; it says where they do not rise.
func describeRecords(rs []inbox.Record) string {
	var s strings.Builder
	for i, r := range rs {
		if i > 0 && r.Seq <= rs[i-1].Seq {
			s.WriteString(" not behind the last:")
		}
		fmt.Fprintf(&s, " [%s %s/%s %v, %d attempts, age %v, error %q, form %d, payload %q, context %q, trace %q, IDs %q %q, times", r.ID,
			r.Stream, r.Key, r.State, r.Attempts, r.Age, r.LastError, r.Form, r.Payload, r.Context, r.Trace, r.MessageID, r.ExternalID)
		for _, t := range []time.Time{r.Received, r.Next, r.Settled, r.Expires, r.Erases, r.Deleted} {
			fmt.Fprint(&s, " ", t.UnixMicro())
		}
		for _, f := range r.Failures {
			fmt.Fprintf(&s, "; attempt %d at %d: %s", f.Attempt, f.At.UnixNano(), f.Error)
		}
		for _, a := range r.Actions {
			fmt.Fprintf(&s, "; %v at %d by %s: %s", a.Kind, a.At.UnixMicro(), a.Actor, a.Reason)
		}
		s.WriteString("]")
	}
	return s.String()
}
