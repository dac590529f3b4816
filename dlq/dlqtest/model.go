package dlqtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/seed"
)

// Random histories, in which a store is compared to [dlq.Memory].
var modelCases = []testCase{
	{name: "RandomHistoriesAgreeWithMemory", run: randomHistories, once: true},
}

func randomHistories(e *env) {
	if !e.c.Bubble {
		e.Skip("the two stores need the same clock, which only a bubble gives them")
	}
	from := seed.One()
	h := &history{e: e, model: dlq.NewMemory(), seed: from, rnd: rand.New(rand.NewPCG(from, 0)), mine: map[number]uint64{}}
	for range cmp.Or(e.c.Steps, 800) {
		h.step()
	}
	h.compare()
}

// A history is one random course of events in two stores.
type history struct {
	e      *env
	model  *dlq.Memory
	seed   uint64
	rnd    *rand.Rand
	claims []dlq.Claim // memory's, also of owners that have lost them
	asks   []dlq.Ask
	puts   []dlq.Put
	wishes []dlq.Change
	saves  []dlq.Job
	mine   map[number]uint64 // the store's own numbers of letters by memory's: stores number with holes
	steps  []string
}

var ctx = context.Background()

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case n < 22:
		h.put()
	case n < 40:
		h.claim()
	case n < 66:
		h.settle()
	case n < 80:
		h.change()
	case n < 84:
		h.save()
	case n < 86:
		h.alert()
	case n < 92:
		d := time.Duration(h.rnd.IntN(40)) * time.Second
		h.steps = append(h.steps, fmt.Sprint("sleep ", d))
		h.e.sleep(d)
	case n < 95:
		h.sweep()
	default:
		h.compare()
	}
}

func (h *history) nonce() (n [16]byte) { // from the history's numbers, so that it can be repeated
	for i := range n {
		n[i] = byte(h.rnd.Uint32())
	}
	return n
}

func (h *history) params() dlq.Params {
	return dlq.Params{
		Retention: time.Duration(1+h.rnd.IntN(3)) * time.Minute, Audit: time.Duration(3+h.rnd.IntN(3)) * time.Minute, Capacity: 10 + h.rnd.IntN(30),
	}
}

func (h *history) failure() dlq.Failure {
	if h.rnd.IntN(5) == 0 {
		return dlq.Failure{}
	}
	f := failure(fmt.Sprintf("%02x", h.rnd.IntN(6)), fmt.Sprint("detail ", h.rnd.IntN(100)))
	f.At = failedAt.Add(time.Duration(h.rnd.IntN(1000)) * time.Second)
	return f
}

func (h *history) put() {
	batch := make([]dlq.Put, 1+h.rnd.IntN(4))
	for i := range batch {
		n := h.rnd.IntN(40)
		batch[i] = letter(fmt.Sprint("l", n), []string{"", "k1", "k2", "k3", "k4"}[n%5])
		batch[i].Nonce, batch[i].Failure, batch[i].IfBlocked = h.nonce(), h.failure(), h.rnd.IntN(4) == 0
		batch[i].Delay = time.Duration(h.rnd.IntN(30)) * time.Second
		if h.rnd.IntN(5) == 0 {
			batch[i].Stream = "second"
		}
		if len(h.puts) > 0 && h.rnd.IntN(5) == 0 {
			batch[i] = h.puts[len(h.puts)-1-min(h.rnd.IntN(6), h.rnd.IntN(len(h.puts)))] // a late copy
		}
		h.puts = append(h.puts, batch[i])
	}
	p := h.params()
	got, err := h.e.store.Put(ctx, p, batch)
	want, wantErr := h.model.Put(ctx, p, batch)
	var name strings.Builder
	name.WriteString("put")
	for _, l := range batch {
		fmt.Fprintf(&name, " %s/%s of %q blocked %t (%x)", l.Stream, l.ID, l.Key, l.IfBlocked, l.Nonce[:2])
	}
	h.same(name.String(), fmt.Sprint(got), fmt.Sprint(want), err, wantErr)
	h.learn()
}

// learn notes how the store numbers its letters.
func (h *history) learn() {
	for _, s := range []string{stream, "second"} {
		want, got := h.all(h.model, s), h.all(h.e.store, s)
		if len(want) != len(got) {
			h.same("list all", fmt.Sprint(len(got)), fmt.Sprint(len(want)), nil, nil)
		}
		for i, r := range want {
			h.mine[number{s, r.Seq}] = got[i].Seq
		}
	}
}

// number is that of a letter in memory.
type number struct {
	stream string
	seq    uint64
}

func (h *history) all(s dlq.Store, stream string) (all []dlq.Record) {
	for after := uint64(0); ; {
		p, err := s.List(ctx, dlq.Query{Stream: stream, After: after, N: 1000})
		if err != nil {
			h.e.Fatalf("List: %v", err)
		}
		all = append(all, p.Records...)
		if after = p.Next; after == 0 {
			return all
		}
	}
}

func (h *history) claim() {
	a := newAsk()
	a.Nonce = h.nonce() // for all there is: lanes that are due at the same moment have no order
	a.Lease = time.Duration(1+h.rnd.IntN(60)) * time.Second
	if h.rnd.IntN(5) == 0 {
		a.Stream = "second"
	}
	if len(h.asks) > 0 && h.rnd.IntN(4) == 0 {
		a = h.asks[len(h.asks)-1-min(h.rnd.IntN(6), h.rnd.IntN(len(h.asks)))] // a late copy
	}
	h.asks = append(h.asks, a)
	got, err := h.e.store.Claim(ctx, a)
	want, wantErr := h.model.Claim(ctx, a)
	for _, c := range []dlq.Claimed{got, want} {
		slices.SortFunc(c.Claims, func(a, b dlq.Claim) int { return strings.Compare(a.Lane, b.Lane) })
	}
	if got.Next == 0 { // it does not know
		want.Next = 0
	}
	h.same(fmt.Sprintf("claim %x of %s for %v", a.Nonce[:2], a.Stream, a.Lease), describeClaimed(got), describeClaimed(want), err, wantErr)
	h.claims = append(h.claims, want.Claims...)
}

// settle settles as owners do, and as those do who were owners once.
func (h *history) settle() {
	if len(h.claims) == 0 {
		return
	}
	batch := make([]dlq.Settlement, 1+h.rnd.IntN(3))
	for i := range batch {
		c := h.claims[len(h.claims)-1-min(h.rnd.IntN(8), h.rnd.IntN(len(h.claims)))]
		kind := dlq.KindResolve + dlq.Kind(h.rnd.IntN(5))
		s := settlement(kind, c)
		switch kind {
		case dlq.KindRetry, dlq.KindReview:
			for s.Failure = h.failure(); s.Failure.Fingerprint == ""; s.Failure = h.failure() {
			}
			s.Delay = time.Duration(h.rnd.IntN(60)) * time.Second
		case dlq.KindExtend:
			s.Lease = time.Duration(1+h.rnd.IntN(60)) * time.Second
		}
		if h.rnd.IntN(10) == 0 {
			s.Token++
		}
		if h.rnd.IntN(20) == 0 {
			s.Lane = fmt.Sprint("kk", h.rnd.IntN(5))
		}
		batch[i] = s
	}
	mine := slices.Clone(batch)
	for i, s := range batch {
		mine[i].Seq = h.mine[number{s.Stream, s.Seq}]
	}
	p := h.params()
	got, err := h.e.store.Settle(ctx, p, mine)
	want, wantErr := h.model.Settle(ctx, p, batch)
	var name strings.Builder
	name.WriteString("settle")
	for _, s := range batch {
		fmt.Fprintf(&name, " %v %d of %s/%s by %d", s.Kind, s.Seq, s.Stream, s.Lane, s.Token)
	}
	h.same(name.String(), describeErrors(got, len(batch)), describeErrors(want, len(batch)), err, wantErr)
}

// change does what persons do, and what their clients send again.
func (h *history) change() {
	letters := h.all(h.model, []string{stream, stream, stream, "second"}[h.rnd.IntN(4)])
	if len(letters) == 0 {
		return
	}
	batch := make([]dlq.Change, 1+h.rnd.IntN(2))
	for i := range batch {
		r := letters[h.rnd.IntN(len(letters))]
		c := change(dlq.ChangeEdit+dlq.ChangeKind(h.rnd.IntN(7)), r)
		c.Nonce = h.nonce()
		c.Actor, c.Reason = fmt.Sprint("actor ", h.rnd.IntN(3)), fmt.Sprint("reason ", len(h.wishes))
		switch c.Kind {
		case dlq.ChangeApprove, dlq.ChangeNote:
			c.Job = []string{"", "j1", "j2", "j3"}[h.rnd.IntN(4)]
		}
		if h.rnd.IntN(4) == 0 {
			c.Before = letters[h.rnd.IntN(len(letters))].Digest
		}
		if h.rnd.IntN(10) == 0 {
			c.ID = "other"
		}
		if len(h.wishes) > 0 && h.rnd.IntN(4) == 0 {
			c = h.wishes[len(h.wishes)-1-min(h.rnd.IntN(6), h.rnd.IntN(len(h.wishes)))] // a late copy
		}
		h.wishes = append(h.wishes, c)
		batch[i] = c
	}
	mine := slices.Clone(batch)
	for i, c := range batch {
		mine[i].Seq = h.mine[number{c.Stream, c.Seq}]
	}
	p := h.params()
	got, err := h.e.store.Change(ctx, p, mine)
	want, wantErr := h.model.Change(ctx, p, batch)
	var name strings.Builder
	name.WriteString("change")
	for _, c := range batch {
		fmt.Fprintf(&name, " %v %s/%s %d job %q (%x)", c.Kind, c.Stream, c.ID, c.Seq, c.Job, c.Nonce[:2])
	}
	h.same(name.String(), describeErrors(got, len(batch)), describeErrors(want, len(batch)), err, wantErr)
}

func (h *history) save() {
	j := job(fmt.Sprint("j", 1+h.rnd.IntN(3)))
	j.Nonce, j.Version, j.Ended = h.nonce(), uint64(h.rnd.IntN(4)), h.rnd.IntN(4) == 0
	j.Data = fmt.Append(nil, "plan ", len(h.saves))
	if h.rnd.IntN(3) == 0 {
		j.Stream = "second"
	}
	if len(h.saves) > 0 && h.rnd.IntN(4) == 0 {
		j = h.saves[h.rnd.IntN(len(h.saves))] // a late copy
	}
	h.saves = append(h.saves, j)
	p := h.params()
	got, err := h.e.store.SaveJob(ctx, p, j)
	want, wantErr := h.model.SaveJob(ctx, p, j)
	if !errors.Is(err, dlq.ErrChanged) && err != nil {
		got, want = dlq.Job{}, dlq.Job{}
	}
	h.same(fmt.Sprintf("save %s/%s version %d (%x)", j.Stream, j.ID, j.Version, j.Nonce[:2]),
		describeJob(got)+describeErrors([]error{err}, 1), describeJob(want)+describeErrors([]error{wantErr}, 1), nil, nil)
}

func (h *history) alert() {
	a := []dlq.Alarm{{Nonce: h.nonce(), Stream: stream, Fingerprint: fmt.Sprintf("%02x", h.rnd.IntN(3)), Window: time.Duration(1+h.rnd.IntN(60)) * time.Second}}
	got, err := h.e.store.Alert(ctx, a)
	want, wantErr := h.model.Alert(ctx, a)
	h.same("alert "+a[0].Fingerprint, fmt.Sprint(got), fmt.Sprint(want), err, wantErr)
}

// sweep removes all that has expired from both.
func (h *history) sweep() {
	if _, ok := h.e.sweep(); !ok {
		return
	}
	h.steps = append(h.steps, "sweep")
	for range 3 {
		h.model.Sweep(ctx, 100_000)
	}
}

// compare compares all that can be listed and counted.
func (h *history) compare() {
	for _, s := range []string{stream, "second"} {
		queries := []dlq.Query{
			{}, {ID: fmt.Sprint("l", h.rnd.IntN(40))}, {Key: fmt.Sprint("k", h.rnd.IntN(5))}, {Fingerprint: fmt.Sprintf("%02x", h.rnd.IntN(6))},
			{Job: fmt.Sprint("j", h.rnd.IntN(4))}, {Heads: true, State: dlq.StateReview, Fingerprint: fmt.Sprintf("%02x", h.rnd.IntN(6))},
			{From: time.Now().Add(-time.Minute), Until: time.Now().Add(-30 * time.Second)},
		}
		for state := dlq.StateWaiting; state <= dlq.StateRejected; state++ {
			queries = append(queries, dlq.Query{State: state, Key: []string{"", "k1"}[h.rnd.IntN(2)]})
		}
		for _, q := range queries {
			q.Stream, q.N = s, 1+h.rnd.IntN(30)
			h.same(fmt.Sprintf("list %+v", q), describeRecords(list(h.e, h.e.store, q)), describeRecords(list(h.e, h.model, q)), nil, nil)
		}
		gotGroups, err := h.e.store.Groups(ctx, s, "", 100)
		wantGroups, wantErr := h.model.Groups(ctx, s, "", 100)
		h.same("groups", describeGroups(gotGroups), describeGroups(wantGroups), err, wantErr)
		gotJobs, err := h.e.store.Jobs(ctx, s, "", 100)
		wantJobs, wantErr := h.model.Jobs(ctx, s, "", 100)
		h.same("jobs", describeJobs(gotJobs), describeJobs(wantJobs), err, wantErr)
		q := dlq.AuditQuery{Stream: s, N: 1 + h.rnd.IntN(100)}
		if h.rnd.IntN(2) == 0 {
			q.Job = "j1"
		}
		h.same("audit", h.describeAudit(entries(h.e, h.e.store, q), false), h.describeAudit(entries(h.e, h.model, q), true), nil, nil)
	}
	got, err := h.e.store.Totals(ctx, "", 100)
	want, wantErr := h.model.Totals(ctx, "", 100)
	h.same("totals", describeTotals(got), describeTotals(want), err, wantErr)
}

func list(e *env, s dlq.Store, q dlq.Query) (all []dlq.Record) {
	for {
		p, err := s.List(ctx, q)
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		all = append(all, p.Records...)
		if q.After = p.Next; q.After == 0 {
			return all
		}
	}
}

func entries(e *env, s dlq.Store, q dlq.AuditQuery) (all []dlq.Entry) {
	for {
		page, next, err := s.Audit(ctx, q)
		if err != nil {
			e.Fatalf("Audit: %v", err)
		}
		all = append(all, page...)
		if q.After = next; next == 0 {
			return all
		}
	}
}

func describeJobs(js []dlq.Job) string {
	var s strings.Builder
	for _, j := range js {
		s.WriteString(describeJob(j))
	}
	return s.String()
}

// describeAudit describes entries with the store's own numbers of letters.
func (h *history) describeAudit(entries []dlq.Entry, memory bool) string {
	var s strings.Builder
	for i, x := range entries {
		if i > 0 && x.Seq <= entries[i-1].Seq {
			s.WriteString("not behind the last: ")
		}
		n := x.Letter
		if memory && n != 0 {
			n = h.mine[number{x.Stream, n}]
		}
		fmt.Fprintf(&s, "[%d %s %s/%s %d job %q by %s: %s, %x %x]", x.At.UnixMicro(), x.Verb, x.Stream, x.ID, n, x.Job, x.Actor, x.Reason, x.Before[:2], x.After[:2])
	}
	return s.String()
}

func describeTotals(ts []dlq.Totals) string {
	var s strings.Builder
	for _, t := range ts {
		if t.Waiting+t.Review+t.Resolved+t.Discarded+t.Rejected > 0 { // a stream without letters may be left out
			fmt.Fprintf(&s, "%+v", t)
		}
	}
	return s.String()
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
