package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/seed"
)

// Random histories, compared step by step to the model.
var modelCases = []testCase{
	{name: "RandomHistoryMatchesTheModel", run: randomHistories},
}

func randomHistories(e *env) {
	seeds, steps := 6, 250
	if !e.virtual {
		seeds, steps = 2, 150
	}
	for _, from := range seed.List(seeds) {
		h := &history{
			env: e, seed: from, rnd: rand.New(rand.NewPCG(from, 1)),
			model: newModel(), now: time.Unix(1_000_000, 0), highest: map[key]uint64{},
			scopes: []string{fmt.Sprintf("%s-%d", e.p.Scope, from), fmt.Sprintf("%s-%d.b", e.p.Scope, from)},
		}
		for range steps {
			h.step()
		}
	}
}

// A history drives a store and the model side by side.
//
// The model's clock moves by the history's own sleeps only. Where the store's is
// virtual, sleeps are whole hours and leases and retentions end at half past, so
// the two clocks agree on what has ended. Where it is real, leases last an hour,
// and one is ended by making it short and waiting.
type history struct {
	*env
	seed    uint64
	rnd     *rand.Rand
	model   *model
	now     time.Time
	scopes  []string
	highest map[key]uint64 // the highest token an ID ever had
	sent    []sentAsk      // to send some again, late
	owners  []owner        // to settle, some of them late
	trace   []string
}

type sentAsk struct {
	p   dedup.Params
	ask dedup.Ask
}

type owner struct {
	scope string
	claim dedup.Claim
}

func (h *history) step() {
	h.Helper()
	switch n := h.rnd.IntN(100); {
	case n < 45:
		h.claimSome()
	case n < 80:
		h.settleSome()
	case n < 90:
		h.listHeld()
	case h.virtual:
		h.pass(time.Duration(1+h.rnd.IntN(12)) * time.Hour)
	default:
		h.endALease()
	}
}

// claimSome sends a batch of new asks, or an old ask once more.
func (h *history) claimSome() {
	h.Helper()
	p := h.params()
	if h.rnd.IntN(6) == 0 {
		p = firstSeenParams(p)
		p.Retention = h.shortOrLong()
	}
	var asks []dedup.Ask
	for range 1 + h.rnd.IntN(4) {
		fingerprint := byte(max(0, h.rnd.IntN(10)-7)) // mostly none, else 1 or 2
		asks = append(asks, newAskAs(fmt.Sprintf("id-%d", h.rnd.IntN(7)), fingerprint))
	}
	if len(h.sent) > 0 && h.rnd.IntN(4) == 0 {
		old := h.sent[h.rnd.IntN(len(h.sent))]
		p, asks = old.p, []dedup.Ask{old.ask}
	}
	for i, got := range h.claim(p, asks...) {
		h.sent = append(h.sent, sentAsk{p, asks[i]})
		h.checkClaim(p, asks[i], got)
	}
}

// checkClaim compares one answer with the model's. The model has its own clock,
// so its new tokens differ: it takes over the store's after checking that it
// rises.
func (h *history) checkClaim(p dedup.Params, a dedup.Ask, got dedup.Claim) {
	h.Helper()
	k := key{p.Scope, a.ID}
	before := 0
	if r := h.model.live(h.now, k); r != nil {
		before = r.attempt
	}
	want := h.model.claim(h.now, p, a)
	h.note("claim %s %s under %v, first seen %t, content %d, nonce %x: %v, attempt %d",
		p.Scope, a.ID, p.OnLapse, p.Complete, a.Fingerprint[31], a.Nonce[:2], want.State, want.Attempt)
	if got.State != want.State || got.Attempt != want.Attempt && want.Attempt != 0 {
		h.fail("answered %v, attempt %d", got.State, got.Attempt)
	}
	r := h.model.recs[k]
	switch {
	case want.State == dedup.Acquired && want.Attempt != before: // a new owner
		if got.Token <= h.highest[k] {
			h.fail("got the token %d, not above an earlier owner's, %d", got.Token, h.highest[k])
		}
		r.token = got.Token
		h.highest[k] = got.Token
		h.owners = append(h.owners, owner{p.Scope, got})
	case want.State == dedup.Acquired || want.State == dedup.Unknown:
		if got.Token != r.token {
			h.fail("got the token %d, want its owner's, %d", got.Token, r.token)
		}
	case want.State == dedup.Done && !bytes.Equal(got.Result, want.Result):
		h.fail("got the result %q, want %q", got.Result, want.Result)
	case want.State == dedup.InFlight && want.Left == 0: // a late copy of a spent ask
		if got.Left != 0 {
			h.fail("got %v left, want 0", got.Left)
		}
		return
	}
	if h.virtual && !p.Complete && want.State != dedup.Conflict {
		h.checkTimes(want, got)
	}
}

func (h *history) checkTimes(want, got dedup.Claim) {
	h.Helper()
	if want.State != dedup.Acquired && (got.Age-want.Age).Abs() > slack {
		h.fail("got an age of %v, want %v", got.Age, want.Age)
	}
	if want.Left != 0 && (got.Left-want.Left).Abs() > slack {
		h.fail("got %v left, want %v", got.Left, want.Left)
	}
}

// settleSome sends a batch of settlements by owners of one scope, most of them
// recent ones.
func (h *history) settleSome() {
	h.Helper()
	p := h.params()
	retention := h.shortOrLong()
	var s []dedup.Settlement
	for _, o := range h.someOwners(p.Scope) {
		kind := dedup.Kind(1 + h.rnd.IntN(4))
		switch h.rnd.IntN(15) {
		case 0:
			kind = dedup.KindForget
		case 1, 2:
			kind = dedup.KindRetain
		}
		one := settlementOf(kind, o, fmt.Sprintf("result-%d", len(h.trace)))
		if kind == dedup.KindExtend {
			one.Lease = h.shortOrLong()
			retention = p.Retention // the claim goes on, see params
		}
		if kind == dedup.KindRetain {
			one.Retention = h.shortOrLong()
			s = []dedup.Settlement{one} // alone: sent again, it would retain what the batch completes
			break
		}
		s = append(s, one)
	}
	p.Retention = retention
	h.settleAll(p, s)
}

func (h *history) settleAll(p dedup.Params, s []dedup.Settlement) {
	h.Helper()
	forgot := false
	for i, err := range h.settle(p, s...) {
		want := h.model.settle(h.now, p, s[i])
		h.note("%v %s %s with token %d: %v", s[i].Kind, p.Scope, s[i].ID, s[i].Token, want)
		if !errors.Is(err, want) {
			h.fail("returned %v, want %v", err, want)
		}
		forgot = forgot || s[i].Kind == dedup.KindForget
	}
	if forgot {
		h.pass(time.Hour) // or the next owner's token, a time, may be the same
	}
}

// someOwners picks one to three claims of a scope, newer ones more often.
func (h *history) someOwners(scope string) []dedup.Claim {
	var all, some []dedup.Claim
	for _, o := range h.owners {
		// What a settlement of an expired record is answered, is left open.
		r := h.model.recs[key{o.scope, o.claim.ID}]
		if o.scope == scope && (r == nil || !r.expired(h.now)) {
			all = append(all, o.claim)
		}
	}
	if len(all) == 0 {
		return nil
	}
	for range 1 + h.rnd.IntN(3) {
		back := min(h.rnd.IntN(4)*h.rnd.IntN(4), len(all)-1)
		some = append(some, all[len(all)-1-back])
	}
	return some
}

func (h *history) listHeld() {
	h.Helper()
	scope, n := h.scopes[h.rnd.IntN(2)], 1+h.rnd.IntN(6)
	after := fmt.Sprintf("id-%d", h.rnd.IntN(7))
	if h.rnd.IntN(2) == 0 {
		after = ""
	}
	h.note("%d held of %s after %q", n, scope, after)
	e := *h.env
	e.p.Scope = scope
	got, want := e.held(after, n), h.model.held(h.now, scope, after, n)
	if len(got) != len(want) {
		h.fail("%d are listed, want %d", len(got), len(want))
	}
	for i, c := range got {
		w := want[i]
		if c.ID != w.ID || c.Token != w.Token || c.Attempt != w.Attempt {
			h.fail("number %d is %q (token %d, attempt %d), want %q (%d, %d)", i, c.ID, c.Token, c.Attempt, w.ID, w.Token, w.Attempt)
		}
		if h.virtual {
			h.checkTimes(w, c)
		}
	}
}

// endALease makes one running lease lapse by the real clock.
func (h *history) endALease() {
	h.Helper()
	for _, o := range h.someOwners(h.scopes[0]) {
		p := h.params()
		p.Scope = h.scopes[0]
		s := o.Extend(time.Millisecond)
		h.settleAll(p, []dedup.Settlement{s})
		h.pass(20 * time.Millisecond)
		return
	}
}

// params of one call. The retention is long: where it ends a claim, the
// specification leaves the moment open.
func (h *history) params() dedup.Params {
	return dedup.Params{
		Scope:     h.scopes[h.rnd.IntN(2)],
		Lease:     h.shortOrLong(),
		Retention: dedup.MaxDuration,
		OnLapse:   dedup.Lapse(h.rnd.IntN(2)),
	}
}

// shortOrLong is a duration that ends between two sleeps, or never.
func (h *history) shortOrLong() time.Duration {
	if !h.virtual {
		return longLease
	}
	return time.Duration(h.rnd.IntN(24))*time.Hour + time.Hour/2
}

// pass moves both clocks.
func (h *history) pass(d time.Duration) {
	if !h.virtual {
		d = min(d, 20*time.Millisecond)
	}
	h.note("%v pass", d)
	h.sleep(d)
	h.now = h.now.Add(d)
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// fail reports that the last noted step went otherwise, and what led to it. The
// seed makes the same history again.
func (h *history) fail(format string, args ...any) {
	h.Helper()
	recent := h.trace[max(0, len(h.trace)-25):]
	h.Fatalf("step %d (%s): %s; the model says what the last line says:\n\t%s",
		len(h.trace), seed.Repeat(h.seed), fmt.Sprintf(format, args...), strings.Join(recent, "\n\t"))
}
