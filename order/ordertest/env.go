package ordertest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/order"
)

// What must not end during a subtest lasts longer than any of them takes.
const (
	longLease = time.Hour
	longKeep  = 48 * time.Hour
)

// window is Params.Window of a subtest, unless it says otherwise.
const window = 8

// An env is what one subtest works with: an empty store and its clock. Its
// helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	c       Config
	store   order.Store // what the steps go through: it checks the sums
	watched *watchedStore
	p       order.Params
	short   time.Duration       // a lease, delay or retention that wait outlasts
	sleep   func(time.Duration) // moves the store's clock
	virtual bool                // sleeping takes no time, and nothing else does
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{
		T: t,
		c: c,
		p: order.Params{
			Scope: "scope-1", Start: 1, Window: window, MaxBuffered: 1000, MaxAhead: 1 << 20,
			Late: true, GapLook: longLease, KeepBody: longKeep, KeepGaps: longKeep,
		},
		short:   100 * time.Millisecond,
		sleep:   c.Sleep,
		virtual: c.Bubble || c.Sleep != nil,
	}
	s := c.New(t)
	if s == nil {
		t.Fatal("ordertest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if e.virtual {
		e.short = time.Minute
	}
	e.watched = newWatchedStore(t, s)
	e.store = e.watched
	if twice {
		e.store = &twiceStore{Store: e.watched, t: t, virtual: e.virtual}
	}
	return e
}

// wait outlasts a lease or a delay of e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on, so that what comes next is later even
// where virtual time stands still between two calls.
func (e *env) tick() { e.sleep(time.Millisecond) }

// at makes an arrival with a payload of its own.
func at(key string, epoch, n uint64) order.Arrival {
	return withPayload(key, epoch, n, fmt.Sprintf("payload of %s %d/%d", key, epoch, n))
}

func withPayload(key string, epoch, n uint64, payload string) order.Arrival {
	return withID(key, epoch, n, "", payload)
}

func withID(key string, epoch, n uint64, id, payload string) order.Arrival {
	a := order.Arrival{Message: order.Message{
		Key: key, Position: order.Position{Epoch: epoch, Number: n}, ID: id, Payload: []byte(payload),
	}}
	sum := sha256.Sum256([]byte(id + "\x00" + payload))
	copy(a.Digest[:], sum[:])
	return a
}

// assigned makes an arrival whose position the store gives.
func assigned(key, id string) order.Arrival {
	a := withID(key, 0, 0, id, "payload of "+id)
	a.Assign = true
	return a
}

// push sends arrivals in one batch and returns their answers.
func (e *env) push(arrivals ...order.Arrival) []order.Answer {
	e.Helper()
	answers, err := e.store.Push(context.Background(), e.p, arrivals)
	if err != nil {
		e.Fatalf("Push of %d arrivals: %v", len(arrivals), err)
	}
	if len(answers) != len(arrivals) {
		e.Fatalf("Push of %d arrivals returned %d answers", len(arrivals), len(answers))
	}
	for i, a := range answers {
		if a.Err != nil {
			e.Fatalf("Push of %s %v: %v", arrivals[i].Key, arrivals[i].Position, a.Err)
		}
		if !arrivals[i].Assign && (a.Key != arrivals[i].Key || a.Position != arrivals[i].Position) {
			e.Fatalf("Push of %s %v was answered for %s %v", arrivals[i].Key, arrivals[i].Position, a.Key, a.Position)
		}
	}
	return answers
}

// answered sends one arrival and checks its answer.
func (e *env) answered(want order.Arrived, a order.Arrival) order.Answer {
	e.Helper()
	got := e.push(a)[0]
	if got.State != want {
		e.Fatalf("%s %v was answered %s, want %s", a.Key, a.Position, arrivedName(got.State), arrivedName(want))
	}
	return got
}

// buffered pushes numbers of epoch 1, each in a batch of its own.
func (e *env) buffered(key string, numbers ...uint64) {
	e.Helper()
	for _, n := range numbers {
		e.answered(order.Buffered, at(key, 1, n))
	}
}

// newAsk makes an ask of a new call for up to 100 keys with up to 100 messages.
func newAsk() order.Ask {
	a := order.Ask{Keys: 100, Messages: 100, Bytes: 1 << 20, Lease: longLease}
	rand.Read(a.Nonce[:])
	return a
}

// ask sends an ask.
func (e *env) ask(a order.Ask) order.Claimed {
	e.Helper()
	c, err := e.store.Claim(context.Background(), e.p, a)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	if len(c.Claims) > a.Keys {
		e.Fatalf("Claim of %d keys returned %d", a.Keys, len(c.Claims))
	}
	for _, k := range c.Claims {
		if k.Token == 0 || len(k.Run) > a.Messages || len(k.Late) > mostLate(a) || k.Gap != nil && len(k.Run) > 0 {
			e.Fatalf("Claim returned key %q, token %d, a run of %d, %d late messages, gap %+v", k.Key, k.Token, len(k.Run), len(k.Late), k.Gap)
		}
		for i, m := range k.Run {
			if m.Key != k.Key || m.Late || m.Position.Epoch != k.Epoch || m.Position.Number != k.Run[0].Position.Number+uint64(i) {
				e.Fatalf("the run of key %q holds %s %v at place %d", k.Key, m.Key, m.Position, i)
			}
		}
		for _, m := range k.Late {
			if m.Key != k.Key || !m.Late {
				e.Fatalf("the late messages of key %q hold %s %v, late %t", k.Key, m.Key, m.Position, m.Late)
			}
		}
	}
	return c
}

// mostLate is how many late messages of a key an ask is for.
func mostLate(a order.Ask) int {
	if a.Late == 0 {
		return a.Messages
	}
	return min(a.Messages, a.Late)
}

// claims claims all there is as a new caller.
func (e *env) claims() []order.Claim {
	e.Helper()
	return e.ask(newAsk()).Claims
}

// claim claims as a new caller, and must get one key.
func (e *env) claim(key string) order.Claim {
	e.Helper()
	return e.claimFor(key, longLease)
}

func (e *env) claimFor(key string, lease time.Duration) order.Claim {
	e.Helper()
	a := newAsk()
	a.Lease = lease
	return e.claimAs(key, a)
}

func (e *env) claimAs(key string, a order.Ask) order.Claim {
	e.Helper()
	c := e.ask(a).Claims
	if len(c) != 1 || c[0].Key != key {
		e.Fatalf("a claim got the keys %q, want %q", keysOf(c), key)
	}
	return c[0]
}

// nothing claims as a new caller and must get nothing.
func (e *env) nothing() {
	e.Helper()
	if c := e.claims(); len(c) != 0 {
		e.Fatalf("a claim got the keys %q, want none", keysOf(c))
	}
}

// lapsed claims a key and lets its lease run out.
func (e *env) lapsed(key string) order.Claim {
	e.Helper()
	c := e.claimFor(key, e.short)
	e.wait()
	return c
}

// deliverAll claims a key, delivers its run and releases it.
func (e *env) deliverAll(key string, numbers ...uint64) {
	e.Helper()
	c := e.claim(key)
	e.wantRun(c, numbers...)
	e.applied(deliver(c, numbers[len(numbers)-1]+1), release(c))
}

func keysOf(claims []order.Claim) (keys []string) {
	for _, c := range claims {
		keys = append(keys, c.Key)
	}
	return keys
}

func numbersOf(messages []order.Message) (numbers []uint64) {
	for _, m := range messages {
		numbers = append(numbers, m.Position.Number)
	}
	return numbers
}

// wantRun checks which numbers a claim brought.
func (e *env) wantRun(c order.Claim, numbers ...uint64) {
	e.Helper()
	if got := numbersOf(c.Run); !slices.Equal(got, numbers) {
		e.Fatalf("a claim of key %q brought the run %v, want %v", c.Key, got, numbers)
	}
}

// wantLate checks which late numbers a claim brought, in any order.
func (e *env) wantLate(c order.Claim, numbers ...uint64) {
	e.Helper()
	got := numbersOf(c.Late)
	slices.Sort(got)
	if !slices.Equal(got, numbers) {
		e.Fatalf("a claim of key %q brought the late %v, want %v", c.Key, got, numbers)
	}
}

// wantAttempts checks how often the messages of a run were begun.
func (e *env) wantAttempts(c order.Claim, attempts ...int) {
	e.Helper()
	var got []int
	for _, m := range c.Run {
		got = append(got, m.Attempt)
	}
	if !slices.Equal(got, attempts) {
		e.Fatalf("the messages %v have the attempts %v, want %v", numbersOf(c.Run), got, attempts)
	}
}

// settle sends settlements in one batch and returns one error for each.
func (e *env) settle(s ...order.Settlement) []error {
	e.Helper()
	errs, err := e.store.Settle(context.Background(), e.p, s)
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
		if err != nil && !errors.Is(err, order.ErrStale) && !errors.Is(err, order.ErrNotFound) && !errors.Is(err, order.ErrTooFar) {
			e.Fatalf("%s (%d of %d): %v", settlementName(s[i]), i, len(s), err)
		}
	}
	return errs
}

// applied sends settlements that must all succeed.
func (e *env) applied(s ...order.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if err != nil {
			e.Fatalf("%s (%d of %d) was not applied: %v", settlementName(s[i]), i, len(s), err)
		}
	}
}

// stale sends settlements that must all be refused.
func (e *env) stale(s ...order.Settlement) {
	e.Helper()
	e.refused(order.ErrStale, s...)
}

func (e *env) refused(want error, s ...order.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if !errors.Is(err, want) {
			e.Fatalf("%s was answered %v, want %v", settlementName(s[i]), err, want)
		}
	}
}

// account returns the account of a key.
func (e *env) account(key string) order.Account {
	e.Helper()
	a, err := e.store.Account(context.Background(), e.p.Scope, key)
	if err != nil {
		e.Fatalf("Account of %q: %v", key, err)
	}
	return a
}

// ledger returns the ledger of an epoch.
func (e *env) ledger(key string, epoch uint64) order.Ledger {
	e.Helper()
	for _, l := range e.account(key).Ledgers {
		if l.Epoch == epoch {
			return l
		}
	}
	e.Fatalf("key %q has no ledger of epoch %d", key, epoch)
	return order.Ledger{}
}

// wantLedger checks the ledger of an epoch. Zero for Base means 1.
func (e *env) wantLedger(key string, want order.Ledger) {
	e.Helper()
	want.Base = max(want.Base, 1)
	if got := e.ledger(key, want.Epoch); got != want {
		e.Fatalf("the ledger of key %q is\n%+v, want\n%+v", key, got, want)
	}
}

// find looks a number up.
func (e *env) find(key string, epoch, n uint64) order.Found {
	e.Helper()
	return e.findPlace(order.Place{Key: key, Position: order.Position{Epoch: epoch, Number: n}})
}

func (e *env) findPlace(p order.Place) order.Found {
	e.Helper()
	found, err := e.store.Find(context.Background(), e.p, []order.Place{p})
	if err != nil || len(found) != 1 {
		e.Fatalf("Find of one place returned %d and %v", len(found), err)
	}
	return found[0]
}

// wantState checks the states of numbers of epoch 1.
func (e *env) wantState(key string, want order.State, numbers ...uint64) {
	e.Helper()
	for _, n := range numbers {
		if got := e.find(key, 1, n).State; got != want {
			e.Fatalf("number %d of key %q is %s, want %s", n, key, stateName(got), stateName(want))
		}
	}
}

// gaps lists gaps.
func (e *env) gaps(q order.Query) []order.Gap {
	e.Helper()
	gaps, err := e.store.Gaps(context.Background(), e.p.Scope, q)
	if err != nil || len(gaps) > q.N {
		e.Fatalf("Gaps of %d returned %d and %v", q.N, len(gaps), err)
	}
	return gaps
}

// allGaps lists all gaps of a key.
func (e *env) allGaps(key string) []order.Gap {
	e.Helper()
	return e.gaps(order.Query{Key: key, N: 1000})
}

// wantGap checks that a key has one gap, and where.
func (e *env) wantGap(key string, from, to uint64, open bool) order.Gap {
	e.Helper()
	gaps := e.allGaps(key)
	if len(gaps) != 1 || gaps[0].From != from || gaps[0].To != to || gaps[0].Open != open || gaps[0].Key != key {
		e.Fatalf("the gaps of key %q are %+v, want one from %d to %d, open %t", key, gaps, from, to, open)
	}
	return gaps[0]
}

// parked lists parked messages.
func (e *env) parked(q order.Query) []order.Message {
	e.Helper()
	parked, err := e.store.Parked(context.Background(), e.p.Scope, q)
	if err != nil || len(parked) > q.N {
		e.Fatalf("Parked of %d returned %d and %v", q.N, len(parked), err)
	}
	return parked
}

func (e *env) totals() order.Totals {
	e.Helper()
	t, err := e.store.Totals(context.Background(), e.p.Scope)
	if err != nil {
		e.Fatalf("Totals: %v", err)
	}
	return t
}
