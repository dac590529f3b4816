package deduptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// What must not end during a subtest lasts longer than any of them takes.
const (
	longLease     = time.Hour
	longRetention = 24 * time.Hour
)

// An env is what one subtest works with: a store, a scope nobody else uses, and
// the clock. Its helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	store   dedup.Store
	p       dedup.Params        // the usual: Rerun, and nothing ends by itself
	hold    dedup.Params        // the same under Hold
	short   time.Duration       // a lease or retention that wait outlasts
	sleep   func(time.Duration) // moves the store's clock
	virtual bool                // sleeping takes no time, and nothing else does
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{
		T:       t,
		store:   c.New(t),
		short:   100 * time.Millisecond,
		sleep:   c.Sleep,
		virtual: c.Bubble || c.Sleep != nil,
	}
	if e.store == nil {
		t.Fatal("deduptest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if e.virtual {
		e.short = time.Minute
	}
	if twice {
		e.store = &twiceStore{Store: e.store, t: t, virtual: e.virtual}
	}
	e.p = dedup.Params{Scope: newScope(), Lease: longLease, Retention: longRetention}
	e.hold = e.p
	e.hold.OnLapse = dedup.Hold
	return e
}

func newScope() string {
	var b [10]byte
	rand.Read(b[:])
	return "suite-" + hex.EncodeToString(b[:])
}

// wait outlasts a lease or retention of e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on, so that a token made from it rises even
// where virtual time stands still between two calls.
func (e *env) tick() { e.sleep(time.Millisecond) }

// shortLease returns p with a lease that wait outlasts.
func (e *env) shortLease(p dedup.Params) dedup.Params {
	p.Lease = e.short
	return p
}

// shortRetention returns p with a retention that wait outlasts.
func (e *env) shortRetention(p dedup.Params) dedup.Params {
	p.Retention = e.short
	return p
}

// newAsk makes an ask of a new call.
func newAsk(id string) dedup.Ask {
	a := dedup.Ask{Request: dedup.Request{ID: id}}
	rand.Read(a.Nonce[:])
	return a
}

// newAskAs makes an ask of a new call with a fingerprint; 0 stands for none.
func newAskAs(id string, fingerprint byte) dedup.Ask {
	a := newAsk(id)
	if fingerprint != 0 {
		a.Fingerprint = [32]byte{31: fingerprint}
	}
	return a
}

// claim sends asks in one batch and returns their answers.
func (e *env) claim(p dedup.Params, asks ...dedup.Ask) []dedup.Claim {
	e.Helper()
	cs, err := e.store.Claim(context.Background(), p, asks)
	if err != nil {
		e.Fatalf("Claim of %d asks: %v", len(asks), err)
	}
	if len(cs) != len(asks) {
		e.Fatalf("Claim of %d asks returned %d claims", len(asks), len(cs))
	}
	for i, c := range cs {
		if c.Err != nil {
			e.Fatalf("Claim of %q (%d of %d): %v", asks[i].ID, i, len(asks), c.Err)
		}
		if c.ID != asks[i].ID {
			e.Fatalf("Claim of %q (%d of %d) was answered with ID %q", asks[i].ID, i, len(asks), c.ID)
		}
	}
	return cs
}

// ask sends one ask.
func (e *env) ask(p dedup.Params, a dedup.Ask) dedup.Claim {
	e.Helper()
	return e.claim(p, a)[0]
}

// acquire asks for an ID as a new caller and must get it.
func (e *env) acquire(p dedup.Params, id string) dedup.Claim {
	e.Helper()
	return e.wantAcquired(e.ask(p, newAsk(id)), 0)
}

// probe asks for an ID as a new caller that has no part in the scenario.
func (e *env) probe(id string) dedup.Claim {
	e.Helper()
	return e.ask(e.p, newAsk(id))
}

// lapsed acquires an ID and lets its lease run out.
func (e *env) lapsed(p dedup.Params, id string) dedup.Claim {
	e.Helper()
	c := e.acquire(e.shortLease(p), id)
	e.wait()
	return c
}

// want checks the state of an answer and returns it.
func (e *env) want(c dedup.Claim, s dedup.State) dedup.Claim {
	e.Helper()
	if c.State != s {
		e.Fatalf("claim of %q answered %v (attempt %d), want %v", c.ID, c.State, c.Attempt, s)
	}
	return c
}

// wantAcquired checks that an answer grants the claim, as the given attempt;
// 0 stands for any.
func (e *env) wantAcquired(c dedup.Claim, attempt int) dedup.Claim {
	e.Helper()
	e.want(c, dedup.Acquired)
	if c.Token == 0 {
		e.Fatalf("claim of %q was acquired without a token", c.ID)
	}
	if attempt != 0 && c.Attempt != attempt {
		e.Fatalf("claim of %q was acquired as attempt %d, want %d", c.ID, c.Attempt, attempt)
	}
	return c
}

// wantSame checks that an answer grants the very claim of an earlier one.
func (e *env) wantSame(c, earlier dedup.Claim) {
	e.Helper()
	e.wantAcquired(c, earlier.Attempt)
	if c.Token != earlier.Token {
		e.Fatalf("claim of %q sent again got token %d, want %d again", c.ID, c.Token, earlier.Token)
	}
}

// wantDone checks that an answer carries the stored result.
func (e *env) wantDone(c dedup.Claim, result []byte) {
	e.Helper()
	e.want(c, dedup.Done)
	if !bytes.Equal(c.Result, result) {
		e.Fatalf("claim of %q answered done with the result %s, want %s", c.ID, clip(c.Result), clip(result))
	}
}

// wantUnknown checks that an answer says Unknown with the token that ends it.
func (e *env) wantUnknown(c, owner dedup.Claim) {
	e.Helper()
	e.want(c, dedup.Unknown)
	if c.Token != owner.Token {
		e.Fatalf("claim of %q answered unknown with token %d, want its owner's, %d", c.ID, c.Token, owner.Token)
	}
	if c.Attempt != owner.Attempt {
		e.Fatalf("claim of %q answered unknown with attempt %d, want its owner's, %d", c.ID, c.Attempt, owner.Attempt)
	}
}

// settle sends settlements in one batch and returns one error for each.
func (e *env) settle(p dedup.Params, s ...dedup.Settlement) []error {
	e.Helper()
	errs, err := e.store.Settle(context.Background(), p, s)
	if err != nil {
		e.Fatalf("Settle of %d: %v", len(s), err)
	}
	if errs == nil {
		return make([]error, len(s))
	}
	if len(errs) != len(s) {
		e.Fatalf("Settle of %d returned %d errors, want one for each or a nil slice", len(s), len(errs))
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, dedup.ErrStale) {
			e.Fatalf("%v of %q (%d of %d): %v", s[i].Kind, s[i].ID, i, len(s), err)
		}
	}
	return errs
}

// applied sends settlements that must all succeed.
func (e *env) applied(s ...dedup.Settlement) {
	e.Helper()
	e.appliedUnder(e.p, s...)
}

func (e *env) appliedUnder(p dedup.Params, s ...dedup.Settlement) {
	e.Helper()
	for i, err := range e.settle(p, s...) {
		if err != nil {
			e.Fatalf("%v of %q was not applied: %v", s[i].Kind, s[i].ID, err)
		}
	}
}

// stale sends settlements that must all be refused.
func (e *env) stale(s ...dedup.Settlement) {
	e.Helper()
	for i, err := range e.settle(e.p, s...) {
		if err == nil {
			e.Fatalf("%v of %q with token %d was applied, want ErrStale", s[i].Kind, s[i].ID, s[i].Token)
		}
	}
}

// held lists the scope's held claims.
func (e *env) held(after string, n int) []dedup.Claim {
	e.Helper()
	cs, err := e.store.Held(context.Background(), e.p.Scope, after, n)
	if err != nil {
		e.Fatalf("Held after %q, %d: %v", after, n, err)
	}
	return cs
}

// wantLeft checks what remains of a lease from whose start the clock was moved
// by slept.
func (e *env) wantLeft(c dedup.Claim, lease, slept time.Duration) {
	e.Helper()
	if c.Left <= 0 || c.Left > lease-slept*9/10 {
		e.Fatalf("claim of %q answered that %v of its lease are left, want at most %v", c.ID, c.Left, lease-slept)
	}
	if e.virtual && c.Left < lease-slept-slack {
		e.Fatalf("claim of %q answered that %v of its lease are left, want %v", c.ID, c.Left, lease-slept)
	}
}

// wantAge checks an age since whose start the clock was moved by slept.
func (e *env) wantAge(c dedup.Claim, slept time.Duration) {
	e.Helper()
	if c.Age < slept*9/10 {
		e.Fatalf("claim of %q answered an age of %v, want at least %v", c.ID, c.Age, slept)
	}
	if e.virtual && c.Age > slept+slack {
		e.Fatalf("claim of %q answered an age of %v, want %v", c.ID, c.Age, slept)
	}
}

// slack is what a simulated clock may run on by itself during a subtest.
const slack = 20 * time.Second

// forget makes the settlement that erases an ID.
func forget(id string) dedup.Settlement {
	return dedup.Settlement{Kind: dedup.KindForget, ID: id}
}

// clip shortens a result for a failure's text.
func clip(b []byte) string {
	if len(b) > 24 {
		return hex.EncodeToString(b[:24]) + "..."
	}
	return hex.EncodeToString(b) + " (hex)"
}
