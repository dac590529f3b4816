package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func newChecks(t *testing.T, s reconcile.CheckStore, opts *reconcile.CheckOptions) *reconcile.Checks {
	t.Helper()
	c, err := reconcile.NewChecks(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runChecks runs them until the test ends.
func runChecks(t *testing.T, c *reconcile.Checks) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func findings(t *testing.T, c *reconcile.Checks, q reconcile.FindingQuery) []reconcile.Finding {
	t.Helper()
	q.N = 1000
	fs, err := c.Findings(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// found returns the one finding there is, which has to be in a state.
func found(t *testing.T, c *reconcile.Checks, s reconcile.FindingState) reconcile.Finding {
	t.Helper()
	fs := findings(t, c, reconcile.FindingQuery{})
	if len(fs) != 1 || fs[0].State != s {
		t.Fatalf("found %+v, want one that is %v", fs, s)
	}
	return fs[0]
}

// A fault is something that can be wrong, and the check that looks for it.
type fault struct {
	mu     sync.Mutex
	wrong  map[string]bool
	broken error
	finds  int
}

func (f *fault) set(subject string, wrong bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wrong == nil {
		f.wrong = map[string]bool{}
	}
	f.wrong[subject] = wrong
}

func (f *fault) check() reconcile.Check {
	return reconcile.Check{
		Name: "fault",
		Find: func(_ context.Context, report func(...reconcile.Sighting) error) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.finds++
			for s, wrong := range f.wrong {
				if wrong {
					if err := report(reconcile.Sighting{Subject: s, Account: "acct", Detail: "it is wrong"}); err != nil {
						return err
					}
				}
			}
			return f.broken
		},
		Holds: func(_ context.Context, g reconcile.Finding) (reconcile.Verdict, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return reconcile.Verdict{Gone: !f.wrong[g.Subject], Note: "it is right again"}, nil
		},
	}
}

// raisedHook counts what the hooks say.
type raisedHook struct {
	mu           sync.Mutex
	raised, gone []string
	failed       int
}

func (h *raisedHook) hooks() *reconcile.CheckHooks {
	return &reconcile.CheckHooks{
		Raised: func(_ context.Context, check string, s reconcile.Sighting, again bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.raised = append(h.raised, fmt.Sprint(check, " ", s.Subject, " ", again))
		},
		Gone: func(_ context.Context, f reconcile.Finding, note string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.gone = append(h.gone, f.Subject+": "+note)
		},
		Failed: func(context.Context, string, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.failed++
		},
	}
}

func (h *raisedHook) want(t *testing.T, raised, gone []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.raised, raised) || !slices.Equal(h.gone, gone) {
		t.Fatalf("hooks heard %q and %q, want %q and %q", h.raised, h.gone, raised, gone)
	}
}

func TestAFindingIsRaisedOnceByManyProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, f, h := reconcile.NewCheckMemory(), &fault{}, &raisedHook{}
		f.set("s", true)
		var all []*reconcile.Checks
		for range 3 {
			c := newChecks(t, store, &reconcile.CheckOptions{Own: []reconcile.Check{f.check()}, Hooks: h.hooks()})
			runChecks(t, c)
			all = append(all, c)
		}
		time.Sleep(3 * time.Hour)
		h.want(t, []string{"fault s false"}, nil)
		got := found(t, all[0], reconcile.Open)
		if age := got.Read.Sub(got.Last); age > 10*time.Minute || got.Count < 10 || got.Times != 1 || got.Account != "acct" {
			t.Fatalf("after three hours %+v, seen %v ago", got, age)
		}
		f.set("s", false)
		time.Sleep(time.Hour)
		h.want(t, []string{"fault s false"}, []string{"s: it is right again"})
		if got = found(t, all[1], reconcile.Resolved); got.Note != "it is right again" || got.By != "" {
			t.Fatalf("gone: %+v", got)
		}
		f.set("s", true)
		time.Sleep(time.Hour)
		h.want(t, []string{"fault s false", "fault s true"}, []string{"s: it is right again"})
		if got = found(t, all[2], reconcile.Open); got.Times != 2 || len(got.Log) != 3 {
			t.Fatalf("again: %+v", got)
		}
		s := all[0].Stats()
		if len(s.Open) != 1 || s.Open[0].Check != "fault" || s.Open[0].Open != 1 || s.Open[0].Oldest <= 0 || s.Open[0].Oldest > time.Hour || time.Since(s.At) > time.Minute {
			t.Fatalf("stats %+v", s)
		}
		var raised, gone uint64
		for _, c := range all {
			raised += c.Stats().Raised + c.Stats().Reopened
			gone += c.Stats().Gone
		}
		if raised != 2 || gone != 1 {
			t.Fatalf("raised %d, gone %d", raised, gone)
		}
	})
}

func TestAPersonResolvesForAsLongAsItHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, h := &fault{}, &raisedHook{}
		f.set("s", true)
		var asked []reconcile.Action
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Own: []reconcile.Check{f.check()}, Hooks: h.hooks(),
			Authorize: func(_ context.Context, a reconcile.Action) (string, error) {
				asked = append(asked, a)
				return "alice", nil
			}})
		runChecks(t, c)
		time.Sleep(time.Minute)
		open := found(t, c, reconcile.Open)
		if err := c.Acknowledge(t.Context(), open, "looking"); err != nil {
			t.Fatal(err)
		}
		if err := c.Resolve(t.Context(), open, "done"); !errors.Is(err, reconcile.ErrChanged) {
			t.Fatalf("resolved what somebody else had acknowledged: %v", err)
		}
		if err := c.Resolve(t.Context(), found(t, c, reconcile.Acknowledged), "done"); err != nil {
			t.Fatal(err)
		}
		if err := c.Resolve(t.Context(), found(t, c, reconcile.Resolved), "twice"); !errors.Is(err, reconcile.ErrNotOpen) {
			t.Fatalf("resolved twice: %v", err)
		}
		if want := (reconcile.Action{Name: "resolve", Kind: "default", Key: "s", Check: "fault"}); len(asked) != 4 || asked[2] != want {
			t.Fatalf("asked for %+v", asked)
		}
		time.Sleep(3 * 24 * time.Hour)
		got := found(t, c, reconcile.Resolved)
		if got.By != "alice" || got.Note != "done" || got.Count < 100 || len(got.Log) != 3 || got.Log[1].By != "alice" {
			t.Fatalf("after three days %+v", got)
		}
		f.set("s", false)
		time.Sleep(25 * time.Hour) // more than the lull
		f.set("s", true)
		time.Sleep(2 * time.Minute)
		h.want(t, []string{"fault s false", "fault s true"}, nil)
		if s := c.Stats(); s.Resolved != 1 {
			t.Fatalf("stats %+v", s)
		}
	})
}

func TestNobodyDecidesWithoutAuthorize(t *testing.T) {
	f := &fault{}
	f.set("+49 151 0000000", true)
	refuse := errors.New("not you")
	for name, authorize := range map[string]func(context.Context, reconcile.Action) (string, error){
		"nil":     nil,
		"refuses": func(context.Context, reconcile.Action) (string, error) { return "mallory", refuse },
		"nobody":  func(context.Context, reconcile.Action) (string, error) { return "", nil },
		"panics":  func(context.Context, reconcile.Action) (string, error) { panic("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Own: []reconcile.Check{f.check()}, Authorize: authorize})
			if err := c.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			open := found(t, c, reconcile.Open)
			for _, err := range []error{c.Resolve(t.Context(), open, "r"), c.Acknowledge(t.Context(), open, "r"), c.Forget(t.Context(), open.Check, open.Subject)} {
				if !errors.Is(err, reconcile.ErrUnauthorized) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "151") {
					t.Errorf("got %v", err)
				}
			}
			found(t, c, reconcile.Open)
			if s := c.Stats(); s.Refused != 3 {
				t.Errorf("refused %d", s.Refused)
			}
		})
	}
}

func TestForgetErasesAFinding(t *testing.T) {
	f := &fault{}
	f.set("s", true)
	c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Own: []reconcile.Check{f.check()},
		Authorize: func(context.Context, reconcile.Action) (string, error) { return "alice", nil }})
	_ = c.Once(t.Context())
	if err := errors.Join(c.Forget(t.Context(), "fault", "s"), c.Forget(t.Context(), "fault", "s")); err != nil {
		t.Fatal(err)
	}
	if fs := findings(t, c, reconcile.FindingQuery{}); len(fs) != 0 {
		t.Fatalf("left %+v", fs)
	}
	_ = c.Once(t.Context()) // it still holds
	if f := found(t, c, reconcile.Open); f.Times != 1 || len(f.Log) != 1 {
		t.Fatalf("found anew as %+v", f)
	}
}

func TestWhatFailsIsSaidAndTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, h := &fault{broken: errors.New("cannot see")}, &raisedHook{}
		f.set("s", true)
		panics := reconcile.Check{Name: "panics", Find: func(context.Context, func(...reconcile.Sighting) error) error { panic("+4915100000000") }}
		bad := reconcile.Check{Name: "bad", Find: func(_ context.Context, report func(...reconcile.Sighting) error) error {
			return report(reconcile.Sighting{Subject: "a\x00b"})
		}}
		var log bytes.Buffer
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Own: []reconcile.Check{panics, bad, f.check()}, Hooks: h.hooks(),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		err := c.Once(t.Context())
		if err == nil || !errors.Is(err, reconcile.ErrInvalid) || !strings.Contains(err.Error(), "cannot see") || strings.Contains(err.Error(), "4915") {
			t.Fatalf("Once says %v", err)
		}
		found(t, c, reconcile.Open) // what was seen before the failure is kept
		stop := runChecks(t, c)
		time.Sleep(5 * time.Minute)
		stop()
		if h.failed < 15 || c.Stats().Failures < 15 {
			t.Fatalf("heard of %d failures, counted %d", h.failed, c.Stats().Failures)
		}
		if s := log.String(); strings.Contains(s, "4915") || strings.Contains(s, "subject=s") || !strings.Contains(s, "check=fault") {
			t.Fatalf("logged %s", s)
		}
	})
}

// A lossy store fails or loses answers, once each time it is told to.
type lossyChecks struct {
	reconcile.CheckStore
	mu     sync.Mutex
	lose   map[string]int // answers of a method that are lost
	refuse map[string]int // calls that are not applied
}

func (l *lossyChecks) around(step string, do func() error) error {
	l.mu.Lock()
	refuse, lose := l.refuse[step] > 0, l.lose[step] > 0
	if refuse {
		l.refuse[step]--
	} else if lose {
		l.lose[step]--
	}
	l.mu.Unlock()
	if refuse {
		return errLost
	}
	if err := do(); err != nil || !lose {
		return err
	}
	return errLost
}

func (l *lossyChecks) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) (os []reconcile.Outcome, err error) {
	err = l.around("report", func() error { os, err = l.CheckStore.Report(ctx, p, rs); return err })
	return os, err
}

func (l *lossyChecks) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) (fs []reconcile.Finding, err error) {
	err = l.around("claim", func() error { fs, err = l.CheckStore.Claim(ctx, p, check, n, hold); return err })
	return fs, err
}

func (l *lossyChecks) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	return l.around("tally", func() error { return l.CheckStore.Tally(ctx, p, cells) })
}

func TestALostAnswerRaisesOnceAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, h := &fault{}, &raisedHook{}
		f.set("s", true)
		store := &lossyChecks{CheckStore: reconcile.NewCheckMemory(), lose: map[string]int{"report": 1, "claim": 1}, refuse: map[string]int{}}
		c := newChecks(t, store, &reconcile.CheckOptions{Own: []reconcile.Check{f.check()}, Hooks: h.hooks()})
		if err := c.Once(t.Context()); err == nil {
			t.Fatal("the lost claim was not said")
		}
		h.want(t, []string{"fault s false"}, nil)
		if got := found(t, c, reconcile.Open); got.Count != 1 {
			t.Fatalf("counted %d times", got.Count)
		}
		runChecks(t, c)
		f.set("s", false)
		store.mu.Lock()
		store.lose["claim"], store.lose["report"] = 3, 1
		store.mu.Unlock()
		time.Sleep(time.Hour)
		found(t, c, reconcile.Resolved)
		if c.Stats().Errors != 6 {
			t.Fatalf("%d errors", c.Stats().Errors)
		}
	})
}

func TestFindingsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fault{}
		for i := range 20 {
			f.set(fmt.Sprint("s", i), true)
		}
		c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Most: 5, Own: []reconcile.Check{f.check()}})
		_ = c.Once(t.Context())
		if n := len(findings(t, c, reconcile.FindingQuery{})); n != 5 {
			t.Fatalf("kept %d", n)
		}
		if s := c.Stats(); s.TooMany != 15 || s.Raised != 5 {
			t.Fatalf("stats %+v", s)
		}
		for _, g := range findings(t, c, reconcile.FindingQuery{}) {
			f.set(g.Subject, false)
		}
		runChecks(t, c)
		time.Sleep(time.Hour)
		if n := len(findings(t, c, reconcile.FindingQuery{Unresolved: true})); n != 5 {
			t.Fatalf("%d of those that had no room before", n)
		}
	})
}

// What a check sees once only, a difference that a lookup itself removes, is written as
// soon as the store is back, and a bad sighting keeps no other.
func TestSightingsWaitForTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &lossyChecks{CheckStore: reconcile.NewCheckMemory(), lose: map[string]int{}, refuse: map[string]int{"report": 4}}
		pass := 0
		c := newChecks(t, store, &reconcile.CheckOptions{Own: []reconcile.Check{{Name: "once", Find: func(_ context.Context, report func(...reconcile.Sighting) error) error {
			if pass++; pass > 1 {
				return nil
			}
			for i := range 150 {
				if err := report(reconcile.Sighting{Subject: fmt.Sprint("s", i)}, reconcile.Sighting{Subject: ""}); err != nil {
					continue
				}
			}
			return nil
		}}}})
		for c.Once(t.Context()) != nil {
			if pass > 5 {
				t.Fatal("the store is back, and the pass fails")
			}
		}
		if n := len(findings(t, c, reconcile.FindingQuery{})); n != 150 || c.Stats().Lost != 0 {
			t.Fatalf("%d of 150 were written, %d lost", n, c.Stats().Lost)
		}
	})
}
