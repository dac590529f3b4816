package seqgentest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// An env is what one subtest works with: a store, a scope nobody else uses, and
// the clock. Its helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	c     Config
	store seqgen.Store
	p     seqgen.Params
	sleep func(time.Duration) // moves the store's clock
	twice bool
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{T: t, c: c, store: c.New(t), sleep: c.Sleep, twice: twice}
	if e.store == nil {
		t.Fatal("seqgentest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if twice {
		e.store = &twiceStore{Store: e.store, t: t}
	}
	e.p = seqgen.Params{Scope: newScope(), Retention: 24 * time.Hour}
	return e
}

func newScope() string {
	var b [10]byte
	rand.Read(b[:])
	return "suite-" + hex.EncodeToString(b[:])
}

// tick makes the store's clock move on, so that times differ even where virtual
// time stands still between two calls.
func (e *env) tick() { e.sleep(2 * time.Millisecond) }

func newNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// single, gapless, open and more make asks of new calls.
func single(key string, n int) seqgen.Ask {
	return seqgen.Ask{Key: key, Mode: seqgen.Single, N: n, Nonce: newNonce()}
}

func gapless(key string) seqgen.Ask {
	return seqgen.Ask{Key: key, Mode: seqgen.Gapless, N: 1, Nonce: newNonce()}
}

func open(key string, n int) seqgen.Ask {
	return seqgen.Ask{Key: key, Mode: seqgen.Block, N: n, Nonce: newNonce(), Open: true}
}

func more(key string, n int, token, used uint64) seqgen.Ask {
	return seqgen.Ask{Key: key, Mode: seqgen.Block, N: n, Nonce: newNonce(), Token: token, Used: used}
}

func (e *env) reserve(asks ...seqgen.Ask) []seqgen.Grant {
	e.Helper()
	return e.reserveIn(e.p, asks...)
}

func (e *env) reserveIn(p seqgen.Params, asks ...seqgen.Ask) []seqgen.Grant {
	e.Helper()
	grants, err := e.store.Reserve(context.Background(), p, asks)
	if err != nil {
		e.Fatalf("Reserve of %d asks: %v", len(asks), err)
	}
	if len(grants) != len(asks) {
		e.Fatalf("Reserve of %d asks returned %d grants", len(asks), len(grants))
	}
	for i, g := range grants {
		if g.Err != nil && !known(g.Err) {
			e.Fatalf("Reserve of %q (%d of %d): %v", asks[i].Key, i, len(asks), g.Err)
		}
	}
	return grants
}

func known(err error) bool {
	for _, one := range []error{seqgen.ErrStale, seqgen.ErrMode, seqgen.ErrRolledBack, seqgen.ErrExhausted} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// grant sends one ask, which must be granted the numbers lo to hi of the epoch.
func (e *env) grant(a seqgen.Ask, epoch, lo, hi uint64) seqgen.Grant {
	e.Helper()
	return e.wantGrant(e.reserve(a)[0], epoch, lo, hi)
}

func (e *env) wantGrant(g seqgen.Grant, epoch, lo, hi uint64) seqgen.Grant {
	e.Helper()
	if g.Err != nil || g.Epoch != epoch || g.Lo != lo || g.Hi != hi {
		e.Fatalf("granted %d to %d of epoch %d (%v), want %d to %d of epoch %d", g.Lo, g.Hi, g.Epoch, g.Err, lo, hi, epoch)
	}
	return g
}

// refuse sends one ask, which must be answered with an error and change nothing.
func (e *env) refuse(a seqgen.Ask, want error) seqgen.Grant {
	e.Helper()
	before, voids := e.look(a.Key), e.allVoids(a.Key, max(e.look(a.Key).Epoch, 1))
	g := e.reserve(a)[0]
	if !errors.Is(g.Err, want) {
		e.Fatalf("an ask was answered %d to %d of epoch %d (%v), want %v", g.Lo, g.Hi, g.Epoch, g.Err, want)
	}
	if after := e.look(a.Key); after != before {
		e.Fatalf("an ask answered %v changed the record from %+v to %+v", want, before, after)
	}
	if after := e.allVoids(a.Key, max(before.Epoch, 1)); !slices.EqualFunc(after, voids, sameVoid) {
		e.Fatalf("an ask answered %v changed the voids from %v to %v", want, voids, after)
	}
	return g
}

// settle sends changes in one batch.
func (e *env) settle(changes ...seqgen.Change) []seqgen.Outcome {
	e.Helper()
	outcomes, err := e.store.Settle(context.Background(), e.p, changes)
	if err != nil {
		e.Fatalf("Settle of %d: %v", len(changes), err)
	}
	if len(outcomes) != len(changes) {
		e.Fatalf("Settle of %d returned %d outcomes", len(changes), len(outcomes))
	}
	for i, o := range outcomes {
		if o.Err != nil && !known(o.Err) {
			e.Fatalf("%v of %q (%d of %d): %v", changes[i].Kind, changes[i].Key, i, len(changes), o.Err)
		}
	}
	return outcomes
}

// apply sends one change, which must succeed.
func (e *env) apply(c seqgen.Change) seqgen.Outcome {
	e.Helper()
	o := e.settle(c)[0]
	if o.Err != nil {
		e.Fatalf("%v of %q: %v", c.Kind, c.Key, o.Err)
	}
	return o
}

// reject sends one change, which must be refused and change nothing.
func (e *env) reject(c seqgen.Change, want error) seqgen.Outcome {
	e.Helper()
	before := e.look(c.Key)
	o := e.settle(c)[0]
	if !errors.Is(o.Err, want) {
		e.Fatalf("%v of %q was answered %v, want %v", c.Kind, c.Key, o.Err, want)
	}
	if after := e.look(c.Key); after != before {
		e.Fatalf("a %v answered %v changed the record from %+v to %+v", c.Kind, want, before, after)
	}
	return o
}

func giveBack(key string, g seqgen.Grant, lo uint64) seqgen.Change {
	return seqgen.Change{Kind: seqgen.KindReturn, Key: key, Epoch: g.Epoch, Token: g.Token, Lo: lo, Reason: seqgen.Returned}
}

func void(key string, epoch, lo, hi uint64) seqgen.Change {
	return seqgen.Change{Kind: seqgen.KindVoid, Key: key, Epoch: epoch, Lo: lo, Hi: hi, Reason: seqgen.GaveUp}
}

func abandon(a seqgen.Ask) seqgen.Change {
	return seqgen.Change{Kind: seqgen.KindAbandon, Key: a.Key, Nonce: a.Nonce, Reason: seqgen.Abandoned}
}

func bump(key string, seen uint64) seqgen.Change {
	return seqgen.Change{Kind: seqgen.KindBump, Key: key, Epoch: seen, Nonce: newNonce()}
}

func raise(key string, epoch, hi, token uint64) seqgen.Change {
	return seqgen.Change{Kind: seqgen.KindRaise, Key: key, Epoch: epoch, Hi: hi, Token: token}
}

func (e *env) look(key string) seqgen.State {
	e.Helper()
	states, err := e.store.Look(context.Background(), e.p.Scope, []string{key})
	if err != nil || len(states) != 1 || states[0].Err != nil {
		e.Fatalf("Look at %q: %+v, %v", key, states, err)
	}
	return states[0]
}

// wantAt checks the position that a key is at.
func (e *env) wantAt(key string, epoch, last uint64) seqgen.State {
	e.Helper()
	s := e.look(key)
	if s.Epoch != epoch || s.Last != last {
		e.Fatalf("%q is at %d/%d, want %d/%d", key, s.Epoch, s.Last, epoch, last)
	}
	return s
}

func (e *env) voids(key string, epoch, from, to uint64, limit int) []seqgen.Void {
	e.Helper()
	q := seqgen.VoidQuery{Scope: e.p.Scope, Key: key, Epoch: epoch, From: from, To: to, Limit: limit}
	voids, err := e.store.Voids(context.Background(), q)
	if err != nil {
		e.Fatalf("Voids of %q: %v", key, err)
	}
	for _, v := range voids {
		if v.Key != key || v.Epoch != epoch {
			e.Fatalf("Voids of %q in epoch %d listed %+v", key, epoch, v)
		}
	}
	return voids
}

func (e *env) allVoids(key string, epoch uint64) []seqgen.Void {
	e.Helper()
	return e.voids(key, epoch, 1, seqgen.MaxNumber, 1000)
}

// A rng is what a test says of a void.
type rng struct {
	lo, hi uint64
	kind   seqgen.VoidKind
	reason seqgen.Reason
}

// wantVoids checks all voids of an epoch.
func (e *env) wantVoids(key string, epoch uint64, want ...rng) []seqgen.Void {
	e.Helper()
	got := e.allVoids(key, epoch)
	ok := slices.EqualFunc(got, want, func(v seqgen.Void, w rng) bool {
		return v.Lo == w.lo && v.Hi == w.hi && v.Kind == w.kind && v.Reason == w.reason
	})
	if !ok {
		e.Fatalf("the voids of %q in epoch %d are %+v, want %+v", key, epoch, got, want)
	}
	return got
}

func sameVoid(a, b seqgen.Void) bool {
	return a.Lo == b.Lo && a.Hi == b.Hi && a.Kind == b.Kind && a.Reason == b.Reason
}

const (
	certain  = seqgen.Certain
	orphaned = seqgen.Orphaned
)
