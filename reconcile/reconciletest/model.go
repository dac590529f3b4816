package reconciletest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/reconcile"
)

var modelCases = []testCase{
	{name: "RandomHistoryMatchesTheModel", run: func(e *env) {
		for _, from := range seed.List(6) {
			randomHistory(e, from)
		}
	}},
}

func randomHistory(e *env, from uint64) {
	defer func() {
		if e.Failed() {
			e.Log(seed.Repeat(from))
		}
	}()
	e.p.Kind = newKind()
	h := &history{env: e, rand: rand.New(rand.NewPCG(from, 1)), ops: map[string]*op{}}
	steps := 250
	switch {
	case e.steps > 0:
		steps = e.steps
	case !e.virtual:
		steps = 60
	}
	for i := range steps {
		h.at = i + 1
		h.step()
		e.tick()
	}
}

// An op is the model of one operation, in a history in which no lease lapses and every
// delay is zero: it is leased until its owner settles it, or it is due.
type op struct {
	key             string
	state           reconcile.State
	attempts, looks int
	token           uint64 // as the store said
	grant           reconcile.Grant
	leased          bool
	ended           reconcile.Verb // by the owner of the token
	outside         bool           // a receipt ended it under the owner's lease
	due             int            // step; zero: not
	again           bool
	review          bool
	transitions     int
}

type history struct {
	*env
	rand *rand.Rand
	ops  map[string]*op
	at   int
}

func (h *history) step() {
	h.Helper()
	key := fmt.Sprint("k", h.rand.IntN(5))
	o := h.ops[key]
	switch h.rand.IntN(9) {
	case 0, 1:
		h.doBegin(key)
	case 2:
		h.doClaim()
	case 3, 4, 5, 6:
		if o != nil {
			h.doSettle(o)
		}
	case 7:
		if o != nil {
			h.doReceipt(o)
		}
	case 8:
		if o != nil && h.rand.IntN(3) == 0 {
			h.doResolve(o)
		}
	}
	for k, o := range h.ops {
		h.compare(o, h.get(k))
	}
}

func (h *history) doBegin(key string) {
	h.Helper()
	o := h.ops[key]
	want := reconcile.AsIs
	switch {
	case o == nil:
		o = &op{key: key}
		h.ops[key] = o
		want = reconcile.Send
	case o.leased || o.review:
	case o.state == reconcile.Failed && o.again:
		want = reconcile.Send
	case !o.state.Ended() && o.due > 0:
		want = reconcile.Look
	}
	a := h.begin(h.p, ask(key))[0]
	if a.Grant != want {
		h.Fatalf("begin of %q answered %v, want %v", key, a.Grant, want)
	}
	switch want {
	case reconcile.Send:
		o.granted(want, a.Entry.Token)
		o.sent()
	case reconcile.Look:
		o.granted(want, a.Entry.Token)
	}
}

func (o *op) granted(g reconcile.Grant, token uint64) {
	o.token, o.grant, o.leased, o.ended, o.outside = token, g, true, 0, false
}

func (o *op) sent() {
	o.state, o.again, o.due = reconcile.Started, false, 0
	o.attempts++
	o.transitions++
}

func (h *history) doClaim() {
	h.Helper()
	var due []*op
	for _, o := range h.ops {
		if o.due > 0 && !o.leased && !o.review && (!o.state.Ended() || o.again) {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *op) int { return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.key, b.key)) })
	n := 1 + h.rand.IntN(3)
	due = due[:min(n, len(due))]
	es := h.claim(h.p, n)
	if len(es) != len(due) {
		h.Fatalf("claimed %q, want %d", keys(es), len(due))
	}
	for i, en := range es {
		if en.Key != due[i].key || en.Token <= due[i].token {
			h.Fatalf("claimed %q with token %d, want %q and more than %d", en.Key, en.Token, due[i].key, due[i].token)
		}
		due[i].granted(reconcile.Look, en.Token)
	}
}

func (h *history) doSettle(o *op) {
	h.Helper()
	s := reconcile.Settlement{Verb: owners[h.rand.IntN(len(owners))], Key: o.key, Token: o.token, Lease: long, By: "suite", Note: "why"}
	s.Again = h.rand.IntN(2) == 0
	s.Looked = h.rand.IntN(2) == 0
	if h.rand.IntN(8) == 0 {
		s.Token--
	}
	var want error
	switch {
	case s.Token != o.token:
		want = reconcile.ErrStale
	case o.outside:
		same := s.Verb == reconcile.VerbExtend || s.Verb == reconcile.VerbConfirm && o.state == reconcile.Confirmed ||
			s.Verb == reconcile.VerbFail && o.state == reconcile.Failed
		if !same {
			want = reconcile.ErrEnded
		}
	case o.ended == s.Verb:
	case o.ended != 0:
		want = reconcile.ErrStale
	default:
		want = o.settled(h.at, s)
	}
	if err := h.settle(h.p, s)[0]; !errors.Is(err, want) {
		h.Fatalf("%v of %+v: %v, want %v", s.Verb, *o, err, want)
	}
}

func (o *op) settled(at int, s reconcile.Settlement) error {
	was := o.state
	switch s.Verb {
	case reconcile.VerbSend:
		if o.state == reconcile.Started {
			return nil
		}
		if o.grant != reconcile.Look {
			return reconcile.ErrStale
		}
		o.sent()
		return nil
	case reconcile.VerbExtend:
		return nil
	case reconcile.VerbAccept:
		o.state, o.due = reconcile.Accepted, at
	case reconcile.VerbDoubt:
		o.state, o.due = reconcile.Unknown, at
	case reconcile.VerbConfirm:
		o.state, o.due, o.again, o.review = reconcile.Confirmed, 0, false, false
	case reconcile.VerbFail:
		o.state, o.due, o.again, o.review = reconcile.Failed, 0, s.Again, false
	case reconcile.VerbDefer:
		o.due = at
		if s.Looked {
			o.looks++
		}
	case reconcile.VerbAsk:
		o.review, o.due = true, 0
	}
	if o.state == reconcile.Started {
		o.state = reconcile.Unknown
	}
	o.leased, o.ended = false, s.Verb
	if o.state != was || s.Verb == reconcile.VerbAsk {
		o.transitions++
	}
	return nil
}

func (h *history) doReceipt(o *op) {
	h.Helper()
	s := reconcile.Confirmed
	if h.rand.IntN(3) == 0 {
		s = reconcile.Failed
	}
	var want error
	switch {
	case o.state == s:
		if s == reconcile.Failed {
			o.again, o.due, o.leased, o.outside = false, 0, false, o.ended == 0
		}
	case o.state.Ended():
		o.again, o.due, o.review, o.leased, o.outside = false, 0, true, false, o.ended == 0
		o.transitions++
		want = reconcile.ErrEnded
	default:
		o.outside = o.ended == 0
		o.state, o.due, o.again, o.review, o.leased = s, 0, false, false, false
		o.transitions++
	}
	if err := h.settle(h.p, receipt(o.key, s))[0]; !errors.Is(err, want) {
		h.Fatalf("receipt %v of %+v: %v, want %v", s, *o, err, want)
	}
}

func (h *history) doResolve(o *op) {
	h.Helper()
	s := resolve(reconcile.Entry{Op: reconcile.Op{Key: o.key}, Token: o.token}, reconcile.Failed)
	s.Again = h.rand.IntN(2) == 0
	var want error
	if o.state.Ended() && !o.review {
		want = reconcile.ErrEnded
	}
	if err := h.settle(h.p, s)[0]; !errors.Is(err, want) {
		h.Fatalf("resolve of %+v: %v, want %v", *o, err, want)
	}
	if want != nil {
		return
	}
	o.state, o.again, o.review, o.leased, o.outside, o.ended = reconcile.Failed, s.Again, false, false, false, reconcile.VerbResolve
	o.due = 0
	if s.Again {
		o.due = h.at
	}
	o.transitions++
	if got := h.get(o.key).Token; got <= o.token {
		h.Fatalf("a decision about %q did not move its token", o.key)
	} else {
		o.token = got
	}
}

// compare checks everything that the model knows.
func (h *history) compare(o *op, en reconcile.Entry) {
	h.Helper()
	due := !en.Due.IsZero() && en.State != reconcile.Started
	if en.State != o.state || en.Attempts != o.attempts || en.Looks != o.looks || en.Token != o.token || en.Again != o.again ||
		(en.Review != "") != o.review || (en.Left > 0) != o.leased || len(en.Log)+en.Dropped != o.transitions || due != (o.due > 0) {
		h.Fatalf("step %d: the model has %+v, the store %+v", h.at, *o, en)
	}
}

// digest is what two readings of a record that did not change have in common.
func digest(en reconcile.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v token %d attempts %d looks %d review %q again %v result %q payload %q account %q print %x dropped %d",
		en.State, en.Token, en.Attempts, en.Looks, en.Review, en.Again, en.Result, en.Payload, en.Account, en.Fingerprint, en.Dropped)
	fmt.Fprintf(&b, " created %d first %d sent %d fenced %d due %d expires %d", en.Created.UnixMicro(), en.First.UnixMicro(),
		en.Sent.UnixMicro(), en.Fenced.UnixMicro(), en.Due.UnixMicro(), en.Expires.UnixMicro())
	for _, t := range en.Log {
		fmt.Fprintf(&b, "\n  %d %v %v %d %q %q", t.At.UnixMicro(), t.Verb, t.State, t.Token, t.By, t.Note)
	}
	return b.String()
}
