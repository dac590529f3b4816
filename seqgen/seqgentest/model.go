package seqgentest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/seqgen"
)

// Random histories, compared step by step to the reference.
var modelCases = []testCase{
	{name: "RandomHistoryMatchesTheReference", run: randomHistories},
}

func randomHistories(e *env) {
	seeds := 12
	if e.c.Sleep == nil && !e.c.Bubble {
		seeds = 4
	}
	for _, from := range seed.List(seeds) {
		h := &history{
			env: e, rnd: rand.New(rand.NewPCG(from, 7)), seed: from, model: seqgen.NewMemory(),
			key: fmt.Sprintf("key-%d", from), tokens: map[uint64]uint64{0: 0},
		}
		for range cmp.Or(e.c.Steps, 200) {
			h.step()
		}
	}
}

// A history drives a store and the reference side by side: asks, late copies of
// asks, changes, late copies of changes. The two have clocks of their own, so
// tokens are translated.
type history struct {
	*env
	rnd    *rand.Rand
	seed   uint64
	model  *seqgen.Memory
	key    string
	tokens map[uint64]uint64 // of the store, by the reference's
	owners []seqgen.Grant    // of the reference
	asks   []seqgen.Ask
	sent   []seqgen.Change
	trace  []string
}

func (h *history) step() {
	h.Helper()
	switch n := h.rnd.IntN(20); {
	case n < 9:
		h.ask(h.newAsk())
	case n < 11 && len(h.asks) > 0:
		h.ask(h.asks[len(h.asks)-1-min(h.rnd.IntN(14), len(h.asks)-1)])
	case n < 18:
		h.change(h.newChange())
	case len(h.sent) > 0:
		if c := h.sent[len(h.sent)-1-min(h.rnd.IntN(10), len(h.sent)-1)]; !h.meetsOrphaned(c) {
			h.change(c)
		}
	}
	h.compare()
}

func (h *history) state() seqgen.State {
	states, _ := h.model.Look(context.Background(), h.p.Scope, []string{h.key})
	return states[0]
}

func (h *history) newAsk() seqgen.Ask {
	s := h.state()
	mode := s.Mode
	if mode == 0 || h.rnd.IntN(10) == 0 {
		mode = seqgen.Mode(1 + h.rnd.IntN(3))
	}
	a := seqgen.Ask{Key: h.key, Mode: mode, N: 1 + h.rnd.IntN(9), Nonce: newNonce()}
	if h.rnd.IntN(8) == 0 {
		a.Seen = seqgen.Position{Epoch: max(s.Epoch, 1), Number: s.Last + uint64(h.rnd.IntN(3))}
	}
	if mode == seqgen.Block {
		o := h.owner()
		a.Open, a.Token = h.rnd.IntN(4) == 0 || o.Token == 0, o.Token
		a.Used = s.Used + uint64(h.rnd.IntN(int(min(s.Last-s.Used, 10))+1))
		if h.rnd.IntN(50) == 0 {
			a.Used = 0
		}
	}
	return a
}

// owner picks one of the recent owners.
func (h *history) owner() seqgen.Grant {
	if len(h.owners) == 0 {
		return seqgen.Grant{}
	}
	back := min(h.rnd.IntN(3)*h.rnd.IntN(2), len(h.owners)-1)
	return h.owners[len(h.owners)-1-back]
}

func (h *history) ask(a seqgen.Ask) {
	h.Helper()
	h.asks = append(h.asks, a)
	want, _ := h.model.Reserve(context.Background(), h.p, []seqgen.Ask{a})
	theirs := a
	theirs.Token = h.tokens[a.Token]
	got := h.reserve(theirs)[0]
	w := want[0]
	h.note("ask %v for %d, open %t, token %d, used %d, seen %v, nonce %x: %d to %d of epoch %d, %v",
		a.Mode, a.N, a.Open, a.Token, a.Used, a.Seen, a.Nonce[:2], w.Lo, w.Hi, w.Epoch, w.Err)
	if got.Epoch != w.Epoch || got.Lo != w.Lo || got.Hi != w.Hi || (got.Token == 0) != (w.Token == 0) ||
		!errors.Is(got.Err, w.Err) || got.Stored != w.Stored || got.Mode != w.Mode {
		h.fail("answered %+v, want %+v", got, w)
	}
	if w.Token == 0 {
		return
	}
	if known, ok := h.tokens[w.Token]; ok && known != got.Token {
		h.fail("got the token %d, want %d", got.Token, known)
	} else if !ok {
		h.tokens[w.Token] = got.Token
	}
	h.owners = append(h.owners, w)
}

func (h *history) newChange() seqgen.Change {
	s := h.state()
	o := h.owner()
	epoch := max(1, s.Epoch-uint64(h.rnd.IntN(2)))
	lo := 1 + uint64(h.rnd.IntN(int(min(s.Last, 1000))+3))
	switch h.rnd.IntN(12) {
	case 0, 1, 2, 3:
		lo = o.Lo + uint64(h.rnd.IntN(10))
		if h.rnd.IntN(3) > 0 { // what a rest looks like
			lo = max(s.Used+1, s.Last-min(s.Last, uint64(h.rnd.IntN(6))))
		}
		return seqgen.Change{Kind: seqgen.KindReturn, Key: h.key, Epoch: max(o.Epoch, 1), Token: o.Token, Lo: max(lo, 1), Reason: seqgen.Returned}
	case 4, 5, 6, 7:
		if s.Mode == seqgen.Block || epoch != s.Epoch { // a certain void must not meet an orphaned one
			break
		}
		return void(h.key, epoch, lo, lo+uint64(h.rnd.IntN(4)))
	case 8, 9:
		a := seqgen.Ask{Key: h.key, Nonce: newNonce()}
		if len(h.asks) > 0 && h.rnd.IntN(4) > 0 {
			a = h.asks[len(h.asks)-1-min(h.rnd.IntN(3), len(h.asks)-1)]
		}
		return abandon(a)
	}
	return bump(h.key, s.Epoch+uint64(max(0, h.rnd.IntN(6)-4)))
}

func (h *history) change(c seqgen.Change) {
	h.Helper()
	h.sent = append(h.sent, c)
	want, _ := h.model.Settle(context.Background(), h.p, []seqgen.Change{c})
	theirs := c
	theirs.Token = h.tokens[c.Token]
	got, w := h.settle(theirs)[0], want[0]
	h.note("%v of epoch %d, token %d, %d to %d, nonce %x: %+v", c.Kind, c.Epoch, c.Token, c.Lo, c.Hi, c.Nonce[:2], w)
	if got.Epoch != w.Epoch || !errors.Is(got.Err, w.Err) || (got.Err == nil) != (w.Err == nil) || got.Stored != w.Stored {
		h.fail("answered %+v, want %+v", got, w)
	}
	if c.Kind == seqgen.KindBump { // its token is new, too
		h.tokens[h.state().Token] = h.look(h.key).Token
	}
}

// meetsOrphaned says that a change would void numbers of mode Block: one that was
// answered ErrRolledBack, whose epoch has become one of that mode since. No generator
// sends that, and the specification leaves open what becomes of the orphaned void.
func (h *history) meetsOrphaned(c seqgen.Change) bool {
	if c.Kind != seqgen.KindVoid {
		return false
	}
	if s := h.state(); s.Mode == seqgen.Block && s.Epoch == c.Epoch {
		return true
	}
	q := seqgen.VoidQuery{Scope: h.p.Scope, Key: h.key, Epoch: c.Epoch, From: c.Lo, To: c.Hi, Limit: 1000}
	voids, _ := h.model.Voids(context.Background(), q)
	return slices.ContainsFunc(voids, func(v seqgen.Void) bool { return v.Kind == seqgen.Orphaned })
}

// compare checks that the record and its voids are the reference's.
func (h *history) compare() {
	h.Helper()
	want, got := h.state(), h.look(h.key)
	token, known := h.tokens[want.Token]
	if !known || token != got.Token {
		h.fail("the token is %d, want %d", got.Token, token)
	}
	want.Token = token
	if got != want {
		h.fail("the record is %+v, want %+v", got, want)
	}
	for epoch := want.Epoch; epoch > 0 && epoch+2 > want.Epoch; epoch-- {
		q := seqgen.VoidQuery{Scope: h.p.Scope, Key: h.key, Epoch: epoch, From: 1, To: seqgen.MaxNumber, Limit: 1000}
		voids, _ := h.model.Voids(context.Background(), q)
		if listed := h.allVoids(h.key, epoch); !slices.EqualFunc(listed, voids, sameVoid) {
			h.fail("the voids of epoch %d are %+v, want %+v", epoch, listed, voids)
		}
	}
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// fail reports that the last noted step went otherwise, and what led to it. The
// seed makes a history of the same kind again.
func (h *history) fail(format string, args ...any) {
	h.Helper()
	recent := h.trace[max(0, len(h.trace)-25):]
	h.Fatalf("step %d (%s): %s; the reference says what the last line says:\n\t%s",
		len(h.trace), seed.Repeat(h.seed), fmt.Sprintf(format, args...), strings.Join(recent, "\n\t"))
}
