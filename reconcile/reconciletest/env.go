package reconciletest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// long is what must not end during a subtest.
const long = time.Hour

// An env is what one subtest works with: a store, a kind nobody else uses, and the
// clock. Its helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	store   reconcile.Store
	sweeper reconcile.Sweeper // nil: the store has none
	p       reconcile.Params  // nothing ends by itself, and nothing has to be quiet
	short   time.Duration     // a lease or retention that wait outlasts
	sleep   func(time.Duration)
	virtual bool
	steps   int // of a random history; zero: as many as there should be
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{T: t, store: c.New(t), short: 100 * time.Millisecond, sleep: c.Sleep, virtual: c.Bubble || c.Sleep != nil, steps: c.Steps}
	if e.store == nil {
		t.Fatal("reconciletest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if e.virtual {
		e.short = time.Minute
	}
	e.sweeper, _ = e.store.(reconcile.Sweeper)
	if twice {
		e.store = &twiceStore{e.store}
	}
	e.p = reconcile.Params{Kind: newKind(), Lease: long, Quiet: 0, Retention: 24 * time.Hour}
	return e
}

func newKind() string {
	var b [10]byte
	rand.Read(b[:])
	return "suite-" + hex.EncodeToString(b[:])
}

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// wait outlasts what lasts e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on.
func (e *env) tick() { e.sleep(time.Millisecond) }

// brief returns the parameters with a lease that wait outlasts.
func (e *env) brief() reconcile.Params {
	p := e.p
	p.Lease = e.short
	return p
}

func ask(key string) reconcile.Ask {
	return reconcile.Ask{Op: reconcile.Op{Key: key, Account: "acct"}, Nonce: nonce()}
}

// begin sends asks in one batch.
func (e *env) begin(p reconcile.Params, asks ...reconcile.Ask) []reconcile.Answer {
	e.Helper()
	as, err := e.store.Begin(context.Background(), p, asks)
	if err != nil || len(as) != len(asks) {
		e.Fatalf("Begin of %d asks: %d answers, %v", len(asks), len(as), err)
	}
	for i, a := range as {
		if a.Err != nil {
			e.Fatalf("Begin of %q: %v", asks[i].Key, a.Err)
		}
		if a.Entry.Key != asks[i].Key || a.Entry.Kind != p.Kind {
			e.Fatalf("Begin of %q (%d) was answered for %q of kind %q", asks[i].Key, i, a.Entry.Key, a.Entry.Kind)
		}
	}
	return as
}

// want begins an operation as a new caller, and checks grant and state.
func (e *env) want(p reconcile.Params, key string, g reconcile.Grant, s reconcile.State) reconcile.Entry {
	e.Helper()
	return e.check(e.begin(p, ask(key))[0], g, s)
}

func (e *env) check(a reconcile.Answer, g reconcile.Grant, s reconcile.State) reconcile.Entry {
	e.Helper()
	if a.Grant != g || a.Entry.State != s {
		e.Fatalf("begin of %q answered %v, %v; want %v, %v", a.Entry.Key, a.Grant, a.Entry.State, g, s)
	}
	return a.Entry
}

// start begins a new operation.
func (e *env) start(key string) reconcile.Entry {
	e.Helper()
	return e.want(e.p, key, reconcile.Send, reconcile.Started)
}

// doubt makes an operation that is Unknown and due.
func (e *env) doubt(key string) reconcile.Entry {
	e.Helper()
	en := e.start(key)
	e.ok(with(reconcile.VerbDoubt, en))
	return e.get(key)
}

// with makes a settlement of an entry's grant.
func with(v reconcile.Verb, e reconcile.Entry) reconcile.Settlement {
	return reconcile.Settlement{Verb: v, Key: e.Key, Token: e.Token, By: "suite", Note: "why", Lease: long}
}

func receipt(key string, s reconcile.State) reconcile.Settlement {
	return reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: key, State: s, Nonce: nonce(), By: "receipt"}
}

func resolve(e reconcile.Entry, s reconcile.State) reconcile.Settlement {
	return reconcile.Settlement{Verb: reconcile.VerbResolve, Key: e.Key, Token: e.Token, State: s, Nonce: nonce(), By: "alice", Note: "seen in the console"}
}

// settle sends settlements in one batch and returns one error for each.
func (e *env) settle(p reconcile.Params, s ...reconcile.Settlement) []error {
	e.Helper()
	errs, err := e.store.Settle(context.Background(), p, s)
	if err != nil {
		e.Fatalf("Settle of %d: %v", len(s), err)
	}
	if errs == nil {
		return make([]error, len(s))
	}
	if len(errs) != len(s) {
		e.Fatalf("Settle of %d returned %d errors", len(s), len(errs))
	}
	return errs
}

// ok sends settlements that must be applied.
func (e *env) ok(s ...reconcile.Settlement) {
	e.Helper()
	for i, err := range e.settle(e.p, s...) {
		if err != nil {
			e.Fatalf("%v of %q: %v", s[i].Verb, s[i].Key, err)
		}
	}
}

// refused sends a settlement that must be answered with an error, and change nothing.
func (e *env) refused(s reconcile.Settlement, want error) {
	e.Helper()
	before := e.find(s.Key)
	if err := e.settle(e.p, s)[0]; !errors.Is(err, want) {
		e.Fatalf("%v of %q: %v, want %v", s.Verb, s.Key, err, want)
	}
	after := e.find(s.Key)
	switch {
	case len(before) != len(after):
		e.Fatalf("a refused %v of %q made %d entries of %d", s.Verb, s.Key, len(after), len(before))
	case len(before) == 1 && s.Verb != reconcile.VerbReceipt:
		e.same(before[0], after[0])
	}
}

// same checks that two readings show the same record.
func (e *env) same(a, b reconcile.Entry) {
	e.Helper()
	if x, y := digest(a), digest(b); x != y {
		e.Fatalf("the record of %q was\n%s, and is\n%s", a.Key, x, y)
	}
}

// ended checks how an operation ended otherwise.
func (e *env) ended(s reconcile.Settlement, want reconcile.State) {
	e.Helper()
	err := e.settle(e.p, s)[0]
	if got := (*reconcile.EndedError)(nil); !errors.As(err, &got) || got.State != want {
		e.Fatalf("%v of %q: %v, want an EndedError that says %v", s.Verb, s.Key, err, want)
	}
}

// list reads what a query selects.
func (e *env) list(q reconcile.Query) []reconcile.Entry {
	e.Helper()
	q.Kind = e.p.Kind
	if q.N == 0 {
		q.N = 1000
	}
	es, err := e.store.List(context.Background(), q)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	return es
}

func (e *env) find(key string) []reconcile.Entry {
	e.Helper()
	return e.list(reconcile.Query{Key: key})
}

// get reads a record that has to be there.
func (e *env) get(key string) reconcile.Entry {
	e.Helper()
	es := e.find(key)
	if len(es) != 1 {
		e.Fatalf("%d records of %q", len(es), key)
	}
	return es[0]
}

// state checks the state of a record.
func (e *env) state(key string, s reconcile.State) reconcile.Entry {
	e.Helper()
	en := e.get(key)
	if en.State != s {
		e.Fatalf("%q is %v, want %v", key, en.State, s)
	}
	return en
}

// claim takes what is due.
func (e *env) claim(p reconcile.Params, n int) []reconcile.Entry {
	e.Helper()
	es, _, err := e.store.Claim(context.Background(), p, reconcile.ClaimAsk{Nonce: nonce(), N: n})
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	return es
}

// claimOne takes the one operation that is due.
func (e *env) claimOne(p reconcile.Params, key string) reconcile.Entry {
	e.Helper()
	es := e.claim(p, 10)
	if len(es) != 1 || es[0].Key != key {
		e.Fatalf("claimed %v, want %q", keys(es), key)
	}
	return es[0]
}

func keys(es []reconcile.Entry) (ks []string) {
	for _, en := range es {
		ks = append(ks, en.Key)
	}
	return ks
}

// A twiceStore sends every step twice, as a client does whose connection broke before
// the first answer came, and returns the second answer.
type twiceStore struct{ reconcile.Store }

func (s *twiceStore) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	if as, err := s.Store.Begin(ctx, p, asks); err != nil || p.Lease < time.Second {
		return as, err // what it granted may end between the two sendings
	}
	return s.Store.Begin(ctx, p, asks)
}

func (s *twiceStore) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	if es, next, err := s.Store.Claim(ctx, p, a); err != nil || p.Lease < time.Second {
		return es, next, err
	}
	return s.Store.Claim(ctx, p, a)
}

func (s *twiceStore) Settle(ctx context.Context, p reconcile.Params, ss []reconcile.Settlement) ([]error, error) {
	if errs, err := s.Store.Settle(ctx, p, ss); err != nil || p.Retention < time.Second {
		return errs, err
	}
	return s.Store.Settle(ctx, p, ss)
}
