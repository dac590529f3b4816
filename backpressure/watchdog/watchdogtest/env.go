package watchdogtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// An env is what one subtest works with: a store, a scope nobody else uses, and the
// clock. Its helpers end the subtest when the store does not answer.
type env struct {
	*testing.T
	store watchdog.Store
	p     watchdog.Params
	sleep func(time.Duration) // moves the store's clock
	twice bool
}

// interval is that of the suite's beats: long enough for a slow server to be well
// within one, and short enough to wait for several.
const interval = 50 * time.Millisecond

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{T: t, store: c.New(t), sleep: c.Sleep, twice: twice}
	if e.store == nil {
		t.Fatal("watchdogtest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if twice {
		e.store = &twiceStore{Store: e.store, t: t}
	}
	e.p = watchdog.Params{Scope: newScope(), Most: 1000}
	return e
}

func newScope() string {
	var b [10]byte
	rand.Read(b[:])
	return "suite-" + hex.EncodeToString(b[:])
}

func newNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// tick makes the store's clock move on, so that times differ even where virtual time
// stands still between two calls.
func (e *env) tick() { e.sleep(2 * time.Millisecond) }

// A worker sends beats as one instance of a name.
type worker struct {
	e    *env
	last watchdog.Beat
}

// join makes a new instance of a name, which must be taken.
func (e *env) join(name string, change ...func(*watchdog.Beat)) *worker {
	e.Helper()
	w := e.instance(name)
	w.last.Join = true
	w.ok(w.beat(change...))
	w.last.Join = false
	return w
}

// instance is one that has sent nothing yet.
func (e *env) instance(name string) *worker {
	return &worker{e, watchdog.Beat{Name: name, Nonce: newNonce(), Interval: interval, State: watchdog.Flowing, Position: 1, Pending: 1, Busy: true}}
}

// beat sends the next heartbeat, which is the last one but for the changes.
func (w *worker) beat(change ...func(*watchdog.Beat)) watchdog.Ack {
	w.e.Helper()
	w.last.Seq++
	for _, c := range change {
		c(&w.last)
	}
	return w.e.beat(w.last)
}

// ok sends the next heartbeat after a while, and returns the record it makes.
func (w *worker) next(change ...func(*watchdog.Beat)) watchdog.Record {
	w.e.Helper()
	w.e.tick()
	w.ok(w.beat(change...))
	return w.e.look(w.last.Name)
}

func (w *worker) ok(a watchdog.Ack) watchdog.Ack {
	w.e.Helper()
	if a.Err != nil || a.Token == 0 {
		w.e.Fatalf("the beat %+v was answered with token %d (%v)", w.last, a.Token, a.Err)
	}
	return a
}

func (e *env) beat(b watchdog.Beat) watchdog.Ack {
	e.Helper()
	return e.beats(e.p, b)[0]
}

func (e *env) beats(p watchdog.Params, beats ...watchdog.Beat) []watchdog.Ack {
	e.Helper()
	acks, err := e.store.Beat(context.Background(), p, beats)
	if err != nil || len(acks) != len(beats) {
		e.Fatalf("Beat of %d was answered with %d answers (%v)", len(beats), len(acks), err)
	}
	for i, a := range acks {
		if a.Err != nil && !known(a.Err) {
			e.Fatalf("Beat of %q (%d of %d): %v", beats[i].Name, i, len(beats), a.Err)
		}
	}
	return acks
}

// refused checks the answer to something that must be refused.
func (e *env) refused(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s was answered %v, want %v", what, err, want)
	}
}

func known(err error) bool {
	for _, one := range []error{watchdog.ErrFenced, watchdog.ErrGone, watchdog.ErrFull, watchdog.ErrChanged, watchdog.ErrBusy, watchdog.ErrGivenUp} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func (e *env) list(after string, limit int) watchdog.Page {
	e.Helper()
	page, err := e.store.List(context.Background(), e.p.Scope, after, limit)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	return page
}

// find returns the record of a name, if there is one.
func (e *env) find(name string) (r watchdog.Record, found bool) {
	e.Helper()
	for _, entry := range e.list("", 1000).Records {
		if entry.Name == name {
			return entry.Record, true
		}
	}
	return r, false
}

func (e *env) look(name string) watchdog.Record {
	e.Helper()
	r, found := e.find(name)
	if !found {
		e.Fatalf("there is no record of %q", name)
	}
	return r
}

func (e *env) act(actions ...watchdog.Action) []watchdog.Outcome {
	e.Helper()
	outcomes, err := e.store.Act(context.Background(), e.p.Scope, actions)
	if err != nil || len(outcomes) != len(actions) {
		e.Fatalf("Act of %d was answered with %d answers (%v)", len(actions), len(outcomes), err)
	}
	for i, o := range outcomes {
		if o.Err != nil && !known(o.Err) {
			e.Fatalf("%v of %q (%d of %d): %v", actions[i].Kind, actions[i].Name, i, len(actions), o.Err)
		}
	}
	return outcomes
}

// unchanged sends an action that must be refused and change nothing.
func (e *env) unchanged(a watchdog.Action, want error) {
	e.Helper()
	before := e.look(a.Name)
	e.refused(a.Kind.String(), e.act(a)[0].Err, want)
	if after := e.look(a.Name); after != before {
		e.Fatalf("a %v answered %v changed the record from %+v to %+v", a.Kind, want, before, after)
	}
}

// take asks for an attempt at a worker as it is.
func (e *env) take(name string, wait time.Duration, most int) watchdog.Action {
	e.Helper()
	r := e.look(name)
	return watchdog.Action{Kind: watchdog.KindTake, Name: name, Nonce: newNonce(), Token: r.Token, Seq: r.Seq, Wait: wait, Most: most}
}

// granted sends a take that must be granted.
func (e *env) granted(a watchdog.Action, attempt int) watchdog.Outcome {
	e.Helper()
	o := e.act(a)[0]
	if o.Err != nil || o.Attempt != attempt || o.Claim == 0 || o.First {
		e.Fatalf("a take was answered %+v, want attempt %d", o, attempt)
	}
	return o
}

// applied sends an action that must be.
func (e *env) applied(a watchdog.Action) {
	e.Helper()
	if o := e.act(a)[0]; o.Err != nil {
		e.Fatalf("a %v was answered %v", a.Kind, o.Err)
	}
}
