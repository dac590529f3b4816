package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func about(event, message, own, status string) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: status, Said: time.Now()}
}

func appendTo(t *testing.T, tl *reconcile.Timeline, os ...reconcile.Observation) {
	t.Helper()
	if _, err := tl.Append(t.Context(), os...); err != nil {
		t.Fatal(err)
	}
}

// accept sends an operation that the remote takes, and whose receipt is to come.
func accept(t *testing.T, l *reconcile.Ledger, key string) {
	t.Helper()
	if err := l.Do(t.Context(), reconcile.Op{Key: key, Account: "acct"}, ok, nil); !errors.Is(err, reconcile.ErrAccepted) {
		t.Fatalf("%s: %v", key, err)
	}
}

func TestSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		tl := newTimeline(t, nil)
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(),
			Silent: []reconcile.Silent{{Source: reconcile.InLedger(l, nil), Timeline: tl, After: 20 * time.Minute}}})
		for i := range 250 { // more than a page
			accept(t, l, fmt.Sprintf("heard-%03d", i))
			appendTo(t, tl, about("", fmt.Sprint("m", i), fmt.Sprintf("heard-%03d", i), "sent"))
		}
		for _, k := range []string{"late", "receipt", "silent"} {
			accept(t, l, k)
			appendTo(t, tl, about("", "m-"+k, k, "accepted")) // what the API answered, and no sign of life
		}
		runChecks(t, c)
		time.Sleep(20 * time.Minute)
		h.want(t, nil, nil)
		time.Sleep(2 * time.Minute)
		h.want(t, []string{"silent late false", "silent receipt false", "silent silent false"}, nil)
		appendTo(t, tl, about("e", "m-late", "late", "delivered"))
		if err := l.Receipt(t.Context(), "receipt", reconcile.Receipt{State: reconcile.Confirmed}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h.want(t, []string{"silent late false", "silent receipt false", "silent silent false"},
			[]string{"late: it was said to be delivered", "receipt: nothing is expected of it any more"})
		fs := findings(t, c, reconcile.FindingQuery{Unresolved: true})
		if len(fs) != 1 || fs[0].Subject != "silent" || fs[0].Account != "acct" || !strings.Contains(fs[0].Detail, "20m") {
			t.Fatalf("found %+v", fs)
		}
	})
}

func TestAStatusMayPrecedeItsMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		known := map[string]bool{}
		down := false
		set := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		h := &raisedHook{}
		store := reconcile.NewCheckMemory()
		opts := &reconcile.CheckOptions{Hooks: h.hooks(), Stray: &reconcile.Stray{After: 10 * time.Minute,
			Known: func(_ context.Context, ref reconcile.Ref) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return false, errLost
				}
				return known[ref.Message+ref.Own+ref.Event], nil
			}}}
		c := newChecks(t, store, opts)
		for _, ref := range []reconcile.Ref{{Message: "early"}, {Own: "never:here"}, {Event: "ev"}, {Message: "early"}} {
			if err := c.Stray(t.Context(), ref, "acct"); err != nil {
				t.Fatal(err)
			}
		}
		if fs := findings(t, c, reconcile.FindingQuery{State: reconcile.Suspected}); len(fs) != 3 {
			t.Fatalf("suspected %+v", fs)
		}
		stop := runChecks(t, c)
		time.Sleep(9 * time.Minute)
		h.want(t, nil, nil)
		stop()

		set(func() { known["early"], down = true, true }) // the process is another one when it is asked
		c = newChecks(t, store, opts)
		runChecks(t, c)
		time.Sleep(5 * time.Minute)
		h.want(t, nil, nil) // nobody could say, so nothing is raised
		if c.Stats().Unclear == 0 {
			t.Fatal("it was not counted that nobody could say")
		}
		set(func() { down = false })
		time.Sleep(2 * time.Minute)
		h.want(t, []string{"stray event:ev false", "stray own:never:here false"}, nil)
		if fs := findings(t, c, reconcile.FindingQuery{}); len(fs) != 2 {
			t.Fatalf("a message that turned up left something: %+v", fs)
		}
		set(func() { known["ev"] = true })
		time.Sleep(time.Hour)
		h.want(t, []string{"stray event:ev false", "stray own:never:here false"}, []string{"event:ev: the message is known"})
		for _, ref := range []reconcile.Ref{{}, {Message: "+4915100000000"}, {Own: "a\x00"}} {
			if err := c.Stray(t.Context(), ref, ""); !errors.Is(err, reconcile.ErrInvalid) {
				t.Errorf("%+v: %v", ref, err)
			}
		}
	})
}

func TestStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		l := newLedger(t, reconcile.NewMemory(), nil)
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(), Stuck: []reconcile.Stuck{{Ledger: l, After: 30 * time.Minute}}})
		runChecks(t, c)
		_ = l.Do(t.Context(), reconcile.Op{Key: "done"}, ok, nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k", Account: "acct"}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, errLost }, nil)
		time.Sleep(29 * time.Minute)
		h.want(t, nil, nil)
		time.Sleep(3 * time.Minute)
		h.want(t, []string{"stuck operation:k false"}, nil)
		if f := found(t, c, reconcile.Open); f.Account != "acct" || f.Detail != "unknown for more than 30m0s" {
			t.Fatalf("found %+v", f)
		}
		if err := l.Resolve(t.Context(), reconcile.Resolution{Key: "k"}); err == nil {
			t.Fatal("resolved without evidence")
		}
		run(t, l, r.call, func(context.Context, reconcile.Op) (reconcile.Evidence, error) {
			return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
		})
		time.Sleep(time.Hour)
		h.want(t, []string{"stuck operation:k false"}, []string{"operation:k: it is confirmed"})
	})
}

// While the remote is away that is one finding, and none of the operations.
func TestAnOutageIsNotManyStuckOperations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.down = true
		l := newLedger(t, reconcile.NewMemory(), nil)
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(), Stuck: []reconcile.Stuck{{Ledger: l, After: time.Hour}}})
		runChecks(t, c)
		for i := range 10 {
			_ = l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint("k", i)}, r.call, nil)
		}
		run(t, l, r.call, r.probe)
		time.Sleep(3 * time.Hour)
		h.want(t, []string{"stuck outage false"}, nil)
		r.set(func(r *remote) { r.down = false })
		time.Sleep(4 * time.Hour)
		h.want(t, []string{"stuck outage false"}, []string{"outage: the remote answers"})
		for i := range 10 {
			want(t, l, fmt.Sprint("k", i), reconcile.Confirmed)
		}
	})
}

func TestUnknownTypes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &raisedHook{}
		store := &lossyChecks{CheckStore: reconcile.NewCheckMemory(), lose: map[string]int{}, refuse: map[string]int{"report": 6}}
		c := newChecks(t, store, &reconcile.CheckOptions{Hooks: h.hooks(), Types: &reconcile.Types{Quiet: 48 * time.Hour}})
		runChecks(t, c)
		for range 7 {
			c.UnknownType("ycloud", "whatsapp.new", "v3")
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		f := found(t, c, reconcile.Open)
		if f.Subject != "ycloud whatsapp.new v3" || f.Count != 7 || !f.First.Before(f.Last) && f.Count != 7 {
			t.Fatalf("found %+v", f)
		}
		if c.Stats().Pending != 0 {
			t.Fatalf("%d pending", c.Stats().Pending)
		}
		time.Sleep(47 * time.Hour)
		c.UnknownType("ycloud", "whatsapp.new", "v3")
		time.Sleep(47 * time.Hour)
		h.want(t, []string{"types ycloud whatsapp.new v3 false"}, nil)
		time.Sleep(2 * time.Hour)
		h.want(t, []string{"types ycloud whatsapp.new v3 false"}, []string{"ycloud whatsapp.new v3: none came for 48h0m0s"})
		c.UnknownType("", strings.Repeat("é", 500)+"\x00\xff", "a b\u202e")
		for i := range 2000 {
			c.UnknownType("x", fmt.Sprint(i), "")
		}
		if s := c.Stats(); s.Pending != 1000 || s.Lost != 1001 {
			t.Fatalf("stats %+v", s)
		}
		time.Sleep(time.Minute)
		for _, f := range findings(t, c, reconcile.FindingQuery{}) {
			if len(f.Subject) > 400 {
				t.Fatalf("a subject of %d bytes", len(f.Subject))
			}
		}
	})
}

// A fakeProvider has what a map says, and counts what it is asked.
type fakeProvider struct {
	mu    sync.Mutex
	has   map[string][]string // statuses by message
	asked []string
	err   error
}

func (p *fakeProvider) Lookup(_ context.Context, id string) ([]reconcile.Observation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, id)
	if p.err != nil {
		return nil, p.err
	}
	if p.has[id] == nil {
		return nil, fmt.Errorf("wrapped: %w", reconcile.ErrNoMessage)
	}
	var os []reconcile.Observation
	for _, s := range p.has[id] {
		os = append(os, reconcile.Observation{Ref: reconcile.Ref{Message: id}, Status: s, Said: time.Now().Add(-time.Minute)})
	}
	return os, nil
}

func TestLocalAndProviderStateDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		tl := newTimeline(t, nil)
		p := &fakeProvider{has: map[string][]string{"pm-gap": {"sent", "delivered"}, "pm-same": {"sent"}, "pm-conflict": {"failed"}}}
		h := &raisedHook{}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Hooks: h.hooks(), Compare: []reconcile.Comparison{{
			Source: reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) {
				return reconcile.Ref{Own: e.Key, Message: "pm-" + e.Key}, ""
			}),
			Timeline: tl, Provider: p, Again: 3 * time.Hour,
			Select: func(e reconcile.Expected, local reconcile.Projected) bool {
				return e.Age > 15*time.Minute && local.Status == "" || e.Subject == "conflict" || e.Subject == "same"
			},
		}}})
		for _, k := range []string{"gap", "same", "conflict", "lost", "fresh"} {
			accept(t, l, k)
		}
		appendTo(t, tl, about("e1", "pm-same", "same", "sent"), about("e2", "pm-conflict", "conflict", "delivered"), about("e3", "pm-fresh", "fresh", "sent"))
		runChecks(t, c)
		time.Sleep(time.Minute)
		h.want(t, []string{"differs conflict false"}, nil)
		time.Sleep(30 * time.Minute)
		h.want(t, []string{"differs conflict false", "differs gap false", "differs lost false"}, []string{"gap: the timeline has it, and nothing contradicts"})
		p.mu.Lock()
		got := strings.Join(p.asked, " ")
		p.mu.Unlock()
		if got != "pm-conflict pm-same pm-gap pm-lost" && got != "pm-conflict pm-same pm-gap pm-lost pm-lost" {
			t.Fatalf("asked %q", got)
		}
		history, err := tl.Read(t.Context(), reconcile.Ref{Message: "pm-gap"})
		if err != nil || len(history.Observations) != 2 || history.Observations[0].Source != reconcile.SourceLookup || history.Observations[0].Own != "gap" {
			t.Fatalf("the timeline has %+v, %v", history, err)
		}
		p.mu.Lock()
		p.has["pm-lost"] = []string{"sent"} // its reads lagged
		p.mu.Unlock()
		time.Sleep(6 * time.Hour)
		fs := findings(t, c, reconcile.FindingQuery{Unresolved: true})
		if len(fs) != 1 || fs[0].Subject != "conflict" || !strings.HasPrefix(fs[0].Detail, "the provider contradicts") {
			t.Fatalf("left %+v", fs)
		}
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		p := &fakeProvider{has: map[string][]string{}}
		for i := range 25 {
			accept(t, l, fmt.Sprintf("k%02d", i))
			p.has[fmt.Sprintf("k%02d", i)] = []string{"sent"}
		}
		limited := 0
		refuse := false
		compare := reconcile.Comparison{
			Source:   reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) { return reconcile.Ref{Own: e.Key}, e.Key }),
			Timeline: newTimeline(t, nil), Provider: p, PerPass: 10, Again: 24 * time.Hour,
			Select: func(reconcile.Expected, reconcile.Projected) bool { return true },
			Limit: func(context.Context) error {
				if refuse {
					return errLost
				}
				limited++
				return nil
			},
		}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Compare: []reconcile.Comparison{compare}})
		for pass, want := range []int{10, 20, 25, 25} {
			if err := c.Once(t.Context()); err != nil || len(p.asked) != want || limited != want {
				t.Fatalf("pass %d: asked %d, limited %d, %v", pass, len(p.asked), limited, err)
			}
		}
		time.Sleep(25 * time.Hour)
		refuse = true
		if err := c.Once(t.Context()); !errors.Is(err, errLost) || len(p.asked) != 25 {
			t.Fatalf("refused by the limit: asked %d, %v", len(p.asked), err)
		}
		refuse, p.err = false, errLost
		for range 30 { // one that cannot be asked holds up none of the others
			_ = c.Once(t.Context())
		}
		distinct := map[string]bool{}
		for _, id := range p.asked[25:] {
			distinct[id] = true
		}
		if len(distinct) != 25 {
			t.Fatalf("asked for %d different messages of 25 while the provider failed", len(distinct))
		}
	})
}

// A long list is looked at in several passes, whole.
func TestLongListsAreLookedAtInParts(t *testing.T) {
	const n = 10_500
	source := reconcile.Source{
		Page: func(_ context.Context, after string, most int) (xs []reconcile.Expected, err error) {
			i := 0
			if after != "" {
				fmt.Sscanf(after, "m%06d", &i)
				i++
			}
			for ; i < n && len(xs) < most; i++ {
				s := fmt.Sprintf("m%06d", i)
				xs = append(xs, reconcile.Expected{Subject: s, Ref: reconcile.Ref{Message: s}, Age: time.Hour})
			}
			return xs, nil
		},
		One: func(context.Context, string) (reconcile.Expected, bool, error) {
			return reconcile.Expected{}, false, nil
		},
	}
	tl := newTimeline(t, nil)
	c := newChecks(t, &countsOnly{}, &reconcile.CheckOptions{Most: 20_000, Silent: []reconcile.Silent{{Source: source, Timeline: tl}}})
	for pass, want := range []uint64{10_000, n, n} {
		if err := c.Once(t.Context()); err != nil || c.Stats().Raised != want {
			t.Fatalf("pass %d: %d found, %v", pass, c.Stats().Raised, err)
		}
	}
	source.Page = func(context.Context, string, int) ([]reconcile.Expected, error) {
		return []reconcile.Expected{{Subject: "b"}, {Subject: "a"}}, nil
	}
	c = newChecks(t, &countsOnly{}, &reconcile.CheckOptions{Silent: []reconcile.Silent{{Source: source, Timeline: tl}}})
	if err := c.Once(t.Context()); err == nil {
		t.Fatal("a source whose subjects do not ascend was believed")
	}
}

// countsOnly is a store that raises whatever it is told, for what is too much for the memory store.
type countsOnly struct{ reconcile.CheckStore }

func (*countsOnly) Report(_ context.Context, _ reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	os := make([]reconcile.Outcome, len(rs))
	for i := range os {
		os[i] = reconcile.Raised
	}
	return os, nil
}

func (*countsOnly) Claim(context.Context, reconcile.CheckParams, string, int, time.Duration) ([]reconcile.Finding, error) {
	return nil, nil
}

func (*countsOnly) Open(context.Context, string) ([]reconcile.OpenFindings, error) { return nil, nil }
