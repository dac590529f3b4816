package watchdogtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// The store beside the reference.
var modelCases = []testCase{
	{name: "RandomHistoryMatchesTheReference", run: randomHistory, once: true},
}

// randomHistory sends the same steps to the store and to a Memory. Times and tokens
// are their own; all else has to agree. Waits are either over at once or never.
func randomHistory(e *env) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	h := &history{e: e, r: r, model: watchdog.NewMemory(), claims: map[string][2]uint64{}}
	for i := range 6 { // two for each name
		h.instances = append(h.instances, e.instance(fmt.Sprint(i%3)).last)
	}
	e.p.Most = 3
	for step := range 250 {
		e.tick()
		if r.IntN(2) == 0 {
			h.beat()
		} else {
			h.act()
		}
		if e.Failed() {
			e.Fatalf("at step %d of the history with seed %d", step, seed)
		}
	}
}

type history struct {
	e         *env
	r         *rand.Rand
	model     *watchdog.Memory
	instances []watchdog.Beat
	claims    map[string][2]uint64 // the last of each name, of the store and of the model
	last      watchdog.Action
}

func (h *history) beat() {
	i := h.r.IntN(len(h.instances))
	b := &h.instances[i]
	if h.r.IntN(5) == 0 { // another instance
		b.Nonce, b.Seq = newNonce(), 0
	}
	if h.r.IntN(4) > 0 {
		b.Seq++
	}
	b.Seq = max(b.Seq, 1)
	b.Join, b.Leave, b.Busy = h.r.IntN(2) == 0, h.r.IntN(12) == 0, h.r.IntN(3) > 0
	b.State, b.Position, b.Turns, b.Handler = watchdog.State(h.r.IntN(8)), h.r.Uint64N(2), h.r.Uint64N(2), h.r.Uint64N(2)
	b.Detail = fmt.Sprint(h.r.IntN(100))
	got := h.e.beat(*b)
	want, err := h.model.Beat(context.Background(), h.e.p, []watchdog.Beat{*b})
	if err != nil || !sameError(got.Err, want[0].Err) || (got.Token == 0) != (want[0].Token == 0) {
		h.e.Errorf("the beat %+v was answered %+v, and by the reference %+v (%v)", *b, got, want, err)
	}
	h.compare()
}

func (h *history) act() {
	name := fmt.Sprint(h.r.IntN(3))
	a := watchdog.Action{Kind: watchdog.Kind(1 + h.r.IntN(5)), Name: name, Nonce: newNonce(), Wait: time.Microsecond, Most: 2}
	if h.r.IntN(2) == 0 {
		a.Wait = 24 * time.Hour
	}
	if a.Kind == watchdog.KindForget && h.r.IntN(3) > 0 {
		a.Kind = watchdog.KindTake
	}
	if h.r.IntN(8) == 0 && h.last.Kind == watchdog.KindTake {
		a = h.last // sent again, perhaps late
		name = a.Name
	}
	h.last = a
	store, found := h.e.find(name)
	model, _ := h.e.findIn(h.model, name)
	ours, theirs := a, a
	if found && a.Kind != watchdog.KindForget {
		ours.Token, theirs.Token = store.Token, model.Token
		if h.r.IntN(3) == 0 {
			ours.Seq, theirs.Seq = store.Seq, store.Seq
		}
		if h.r.IntN(6) == 0 {
			ours.Token, theirs.Token = 1, 1
		}
	}
	claims := h.claims[name]
	ours.Claim, theirs.Claim = claims[0], claims[1]
	got := h.e.act(ours)[0]
	answers, err := h.model.Act(context.Background(), h.e.p.Scope, []watchdog.Action{theirs})
	if err != nil {
		h.e.Fatalf("the reference: %v", err)
	}
	want := answers[0]
	if !sameError(got.Err, want.Err) || got.Attempt != want.Attempt || got.First != want.First || (got.Claim == 0) != (want.Claim == 0) {
		h.e.Errorf("the action %+v was answered %+v, and by the reference %+v", ours, got, want)
	}
	if got.Claim != 0 {
		h.claims[name] = [2]uint64{got.Claim, want.Claim}
	}
	h.compare()
}

func (e *env) findIn(s watchdog.Store, name string) (r watchdog.Record, found bool) {
	old := e.store
	defer func() { e.store = old }()
	e.store = s
	return e.find(name)
}

func sameError(a, b error) bool { return a == nil && b == nil || b != nil && errors.Is(a, b) }

// compare compares all records, without what is each store's own.
func (h *history) compare() {
	got := h.e.list("", 10).Records
	page, err := h.model.List(context.Background(), h.e.p.Scope, "", 10)
	if err != nil || len(got) != len(page.Records) {
		h.e.Fatalf("there are %d records, and in the reference %d (%v)", len(got), len(page.Records), err)
	}
	for i, want := range page.Records {
		if g := got[i]; g.Name != want.Name || plain(g.Record) != plain(want.Record) {
			h.e.Errorf("the record is\n%+v, and in the reference\n%+v", g, want)
		}
	}
}

// plain keeps of times and durations whether they are set.
func plain(r watchdog.Record) watchdog.Record {
	set := func(n *uint64) { *n = min(*n, 1) }
	set(&r.Token)
	set(&r.Claim)
	for _, d := range []*time.Duration{&r.Stalled, &r.Quiet, &r.Running} {
		*d = min(*d, 1)
	}
	for _, t := range []*time.Time{&r.JoinedAt, &r.BeatAt, &r.NextAt, &r.ActedAt} {
		if !t.IsZero() {
			*t = time.Unix(1, 0)
		}
	}
	r.StateAt = time.Time{}
	return r
}
