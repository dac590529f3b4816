package inboxtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// What must not end during a subtest lasts longer than any of them takes.
const (
	longLease     = time.Hour
	longRetention = 24 * time.Hour
	longKeep      = 48 * time.Hour
)

// stream is the stream that subtests work unless they are about streams.
const stream = inbox.DefaultStream

// An env is what one subtest works with: an empty store and its clock. Its
// helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	c       Config
	store   inbox.Store
	p       inbox.Params
	short   time.Duration       // a lease, delay or retention that wait outlasts
	sleep   func(time.Duration) // moves the store's clock
	virtual bool                // sleeping takes no time, and nothing else does
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{
		T:       t,
		c:       c,
		store:   c.New(t),
		p:       inbox.Params{Retention: longRetention, Keep: longKeep},
		short:   100 * time.Millisecond,
		sleep:   c.Sleep,
		virtual: c.Bubble || c.Sleep != nil,
	}
	if e.store == nil {
		t.Fatal("inboxtest: Config.New returned nil")
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
	return e
}

// wait outlasts a lease or a delay of e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on, so that what comes next is later even
// where virtual time stands still between two calls.
func (e *env) tick() { e.sleep(time.Millisecond) }

// arrival makes an arrival with a payload of its own.
func arrival(id, key string) inbox.Arrival { return arrivalOf(id, key, "payload of "+id) }

func arrivalOf(id, key, payload string) inbox.Arrival {
	return inbox.Arrival{
		Event: inbox.Event{
			ID: "p/" + id, Provider: "p", Type: "t", Key: key, MessageID: "message of " + id, ExternalID: "sender's " + id,
			Payload: []byte(payload),
		},
		Digest:  sha256.Sum256([]byte(payload)),
		Streams: []string{stream},
	}
}

// raw makes an arrival of a body that could not be decoded.
func raw(id string) inbox.Arrival {
	a := arrival(id, id)
	a.Streams, a.Raw, a.Reason = nil, true, "no events in it"
	return a
}

// accept sends arrivals in one batch and returns their answers.
func (e *env) accept(arrivals ...inbox.Arrival) []inbox.Answer {
	e.Helper()
	answers, err := e.store.Accept(context.Background(), e.p, arrivals)
	if err != nil {
		e.Fatalf("Accept of %d arrivals: %v", len(arrivals), err)
	}
	if len(answers) != len(arrivals) {
		e.Fatalf("Accept of %d arrivals returned %d answers", len(arrivals), len(answers))
	}
	return answers
}

// accepted sends arrivals in one batch, all of which must be new.
func (e *env) accepted(arrivals ...inbox.Arrival) {
	e.Helper()
	for i, a := range e.accept(arrivals...) {
		if a != inbox.Accepted {
			e.Fatalf("arrival %q (%d of %d) was answered %v, want accepted", arrivals[i].ID, i, len(arrivals), a)
		}
	}
}

// answered sends one arrival and checks its answer.
func (e *env) answered(want inbox.Answer, a inbox.Arrival) {
	e.Helper()
	if got := e.accept(a)[0]; got != want {
		e.Fatalf("arrival %q was answered %v, want %v", a.ID, got, want)
	}
}

// events accepts events of one key, each in a batch of its own.
func (e *env) events(key string, ids ...string) {
	e.Helper()
	for _, id := range ids {
		e.accepted(arrival(id, key))
	}
}

// newAsk makes an ask of a new call for up to 100 keys with up to 100 events.
func newAsk() inbox.Ask {
	a := inbox.Ask{Stream: stream, Keys: 100, Events: 100, Bytes: 1 << 20, Lease: longLease}
	rand.Read(a.Nonce[:])
	return a
}

// ask sends an ask.
func (e *env) ask(a inbox.Ask) inbox.Claimed {
	e.Helper()
	c, err := e.store.Claim(context.Background(), a)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	if len(c.Claims) > a.Keys {
		e.Fatalf("Claim of %d keys returned %d", a.Keys, len(c.Claims))
	}
	for _, k := range c.Claims {
		if k.Stream != a.Stream || k.Token == 0 || len(k.Records) == 0 || len(k.Records) > a.Events {
			e.Fatalf("Claim returned stream %q, key %q, token %d, %d records", k.Stream, k.Key, k.Token, len(k.Records))
		}
		for _, r := range k.Records {
			if r.Stream != k.Stream || r.Key != k.Key || r.State != inbox.StatePending {
				e.Fatalf("Claim of key %q returned the %v record %q of key %q in stream %q", k.Key, r.State, r.ID, r.Key, r.Stream)
			}
		}
	}
	return c
}

// claims claims all there is as a new caller.
func (e *env) claims() []inbox.Claim {
	e.Helper()
	return e.ask(newAsk()).Claims
}

// claim claims as a new caller, and must get one key.
func (e *env) claim(key string) inbox.Claim {
	e.Helper()
	return e.claimFor(key, longLease)
}

func (e *env) claimFor(key string, lease time.Duration) inbox.Claim {
	e.Helper()
	a := newAsk()
	a.Lease = lease
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
func (e *env) lapsed(key string) inbox.Claim {
	e.Helper()
	c := e.claimFor(key, e.short)
	e.wait()
	return c
}

func keysOf(claims []inbox.Claim) (keys []string) {
	for _, c := range claims {
		keys = append(keys, c.Key)
	}
	return keys
}

func idsOf(records []inbox.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, strings.TrimPrefix(r.ID, "p/"))
	}
	return ids
}

// wantRecords checks which events a claim brought, and in which order.
func (e *env) wantRecords(c inbox.Claim, ids ...string) {
	e.Helper()
	if got := idsOf(c.Records); !slices.Equal(got, ids) {
		e.Fatalf("a claim of key %q brought the events %q, want %q", c.Key, got, ids)
	}
}

// settlement makes the settlement of kind k for a record of a claim.
func settlement(k inbox.Kind, c inbox.Claim, id string) inbox.Settlement {
	s := inbox.Settlement{Kind: k, Stream: c.Stream, Key: c.Key, Token: c.Token}
	switch k {
	case inbox.KindExtend:
		s.Lease = longLease
	case inbox.KindRelease:
	default:
		s.ID = "p/" + id
	}
	switch k {
	case inbox.KindRetry, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown:
		s.Error, s.Failures = "it failed", []inbox.Failure{{Attempt: 1, At: failedAt, Error: "it failed"}}
	}
	return s
}

// failedAt is some time of a worker's clock.
var failedAt = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC) // to the microsecond, as it is kept

func done(c inbox.Claim, id string) inbox.Settlement  { return settlement(inbox.KindDone, c, id) }
func begin(c inbox.Claim, id string) inbox.Settlement { return settlement(inbox.KindBegin, c, id) }
func release(c inbox.Claim) inbox.Settlement          { return settlement(inbox.KindRelease, c, "") }

func retry(c inbox.Claim, id string, delay time.Duration) inbox.Settlement {
	s := settlement(inbox.KindRetry, c, id)
	s.Delay = delay
	return s
}

// settle sends settlements in one batch and returns one error for each.
func (e *env) settle(s ...inbox.Settlement) []error {
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
		if err != nil && !errors.Is(err, inbox.ErrStale) {
			e.Fatalf("%v of %q (%d of %d): %v", s[i].Kind, s[i].ID, i, len(s), err)
		}
	}
	return errs
}

// applied sends settlements that must all succeed.
func (e *env) applied(s ...inbox.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if err != nil {
			e.Fatalf("%v of %q in key %q (%d of %d) was not applied: %v", s[i].Kind, s[i].ID, s[i].Key, i, len(s), err)
		}
	}
}

// stale sends settlements that must all be refused.
func (e *env) stale(s ...inbox.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if err == nil {
			e.Fatalf("%v of %q in key %q with token %d was applied, want ErrStale", s[i].Kind, s[i].ID, s[i].Key, s[i].Token)
		}
	}
}

// get returns the records of an event.
func (e *env) get(id string) []inbox.Record {
	e.Helper()
	return e.list(inbox.Query{ID: "p/" + id, N: 100})
}

// record returns the one record of an event.
func (e *env) record(id string) inbox.Record {
	e.Helper()
	rs := e.get(id)
	if len(rs) != 1 {
		e.Fatalf("event %q has %d records, want 1", id, len(rs))
	}
	return rs[0]
}

// wantState checks the state and the attempts of an event with one record.
func (e *env) wantState(id string, s inbox.State, attempts int) inbox.Record {
	e.Helper()
	r := e.record(id)
	if r.State != s || r.Attempts != attempts {
		e.Fatalf("event %q is %v after %d attempts, want %v after %d", id, r.State, r.Attempts, s, attempts)
	}
	return r
}

// in lists the events in a state.
func (e *env) in(s inbox.State) []string {
	e.Helper()
	return idsOf(e.list(inbox.Query{State: s, N: 1000}))
}

func (e *env) list(q inbox.Query) []inbox.Record {
	e.Helper()
	rs, err := e.store.List(context.Background(), q)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	if len(rs) > q.N {
		e.Fatalf("List of %d records returned %d", q.N, len(rs))
	}
	for i, r := range rs {
		if r.Seq <= q.After || i > 0 && r.Seq <= rs[i-1].Seq {
			e.Fatalf("List behind %d returned the numbers %d ... %d", q.After, rs[0].Seq, r.Seq)
		}
	}
	return rs
}

// wantTotals checks the number of records by state.
func (e *env) wantTotals(pending, done, dead, quarantined, conflicts, unknown int) inbox.Totals {
	e.Helper()
	t, err := e.store.Totals(context.Background())
	if err != nil {
		e.Fatalf("Totals: %v", err)
	}
	want := inbox.Totals{
		Pending: pending, Done: done, Dead: dead, Quarantined: quarantined, Conflicts: conflicts, Unknown: unknown, Oldest: t.Oldest,
	}
	if t != want {
		e.Fatalf("the totals are %+v, want %+v", t, want)
	}
	return t
}
