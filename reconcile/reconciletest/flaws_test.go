package reconciletest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

// A broken store is the memory store with one flaw, and the subtest that has to find it.
var broken = []struct {
	flaw, found string
	make        func() reconcile.Store
}{
	{"what waits is not told from what failed", "Once/WaitingIsCounted", func() reconcile.Store { return &nothingWaits{reconcile.NewMemory()} }},
	{"no fence", "Once/StaleOwnerChangesNothing", func() reconcile.Store { return &flawed{settle: anyToken} }},
	{"begin not repeatable", "Once/SameNonceSameGrant", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, _ *reconcile.Params, asks []reconcile.Ask) {
			for i := range asks {
				asks[i].Nonce[0]++
				asks[i].Nonce[1] = byte(time.Now().UnixMicro() / 1000)
			}
		}}
	}},
	{"claim not repeatable", "Twice/ClaimTakesWhatIsDue", func() reconcile.Store { return &flawed{claim: freshNonce} }},
	{"fingerprint not compared", "Once/OtherFingerprintIsConflict", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, _ *reconcile.Params, asks []reconcile.Ask) {
			for i := range asks {
				asks[i].Fingerprint = [32]byte{}
			}
		}}
	}},
	{"quiet period ignored", "Once/QuietFollowsTheLease", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, p *reconcile.Params, _ []reconcile.Ask) { p.Quiet = 0 }}
	}},
	{"kinds run together", "Once/KindsAreSeparate", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, p *reconcile.Params, _ []reconcile.Ask) { p.Kind = "one" }}
	}},
	{"keys cut short", "Once/KeysAreComparedByteByByte", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, _ *reconcile.Params, asks []reconcile.Ask) {
			for i := range asks {
				asks[i].Key = asks[i].Key[:min(len(asks[i].Key), 255)]
			}
		}}
	}},
	{"payload lost", "Once/FirstIsGranted", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, _ *reconcile.Params, asks []reconcile.Ask) {
			for i := range asks {
				asks[i].Payload = nil
			}
		}}
	}},
	{"acceptance confirms", "Once/EachVerb", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, _ *reconcile.Params, s *reconcile.Settlement) {
			if s.Verb == reconcile.VerbAccept {
				s.Verb = reconcile.VerbConfirm
			}
		}}
	}},
	{"unknown is failed", "Once/EachVerb", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, _ *reconcile.Params, s *reconcile.Settlement) {
			if s.Verb == reconcile.VerbDoubt {
				s.Verb, s.Again = reconcile.VerbFail, true
			}
		}}
	}},
	{"receipts not repeatable", "Once/ReceiptsThatContradict", func() reconcile.Store {
		return &flawed{settle: func(f *flawed, _ *reconcile.Params, s *reconcile.Settlement) {
			f.calls++
			s.Nonce[0], s.Nonce[1] = byte(f.calls), byte(f.calls>>8)
		}}
	}},
	{"decisions without a look", "Once/ResolveNeedsWhatWasSeen", func() reconcile.Store {
		return &flawed{settle: func(f *flawed, p *reconcile.Params, s *reconcile.Settlement) {
			if s.Verb == reconcile.VerbResolve {
				anyToken(f, p, s)
			}
		}}
	}},
	{"receipts of failures dropped", "Once/ReceiptEndsWhatIsOpen", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, _ *reconcile.Params, s *reconcile.Settlement) {
			if s.Verb == reconcile.VerbReceipt {
				s.State = reconcile.Confirmed
			}
		}}
	}},
	{"receipts pass by what is looked at", "Once/AReceiptTakesAFailedOneFromItsLook", func() reconcile.Store {
		return &flawed{settle: func(f *flawed, p *reconcile.Params, s *reconcile.Settlement) {
			es, _ := f.memory().List(context.Background(), reconcile.Query{Kind: p.Kind, Key: s.Key, N: 1})
			if s.Verb == reconcile.VerbReceipt && len(es) == 1 && es[0].State == reconcile.Failed && es[0].Again {
				s.Verb, s.Token, s.Lease = reconcile.VerbExtend, es[0].Token, time.Minute
			}
		}}
	}},
	{"never expires", "Once/EndedIsForgottenAfterRetention", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, p *reconcile.Params, _ *reconcile.Settlement) { p.Retention = reconcile.MaxDuration }}
	}},
	{"expires early", "Once/NotForgottenBeforeRetention", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, p *reconcile.Params, _ *reconcile.Settlement) { p.Retention = 1000 }}
	}},
	{"looks not counted", "Once/DeferCountsLooks", func() reconcile.Store {
		return &flawed{settle: func(_ *flawed, _ *reconcile.Params, s *reconcile.Settlement) { s.Looked = false }}
	}},
	{"check then set", "Once/ConcurrentAsksElectOne", func() reconcile.Store { return &checkThenSet{Store: reconcile.NewMemory()} }},
	{"open list with everything", "Once/ListSelects", func() reconcile.Store { return &listsAll{reconcile.NewMemory()} }},
	{"claims beyond its bound", "Once/ClaimIsBoundedAndInOrder", func() reconcile.Store {
		return &flawed{claim: func(_ *flawed, _ *reconcile.Params, a *reconcile.ClaimAsk) { a.N = 1000 }}
	}},
	{"a rule wrong somewhere", "Once/RandomHistoryMatchesTheModel", func() reconcile.Store {
		return &flawed{settle: func(f *flawed, _ *reconcile.Params, s *reconcile.Settlement) {
			if f.calls++; s.Verb == reconcile.VerbDefer && f.calls%3 == 0 {
				s.Verb = reconcile.VerbDoubt
			}
		}}
	}},
	{"grants what is for later", "Once/LaterIsRecordedAndClaimed", func() reconcile.Store {
		return &flawed{begin: func(_ *flawed, _ *reconcile.Params, asks []reconcile.Ask) {
			for i := range asks {
				asks[i].Later = false
			}
		}}
	}},
	{"sweeps what waits for a person", "Once/SweepTakesWhatExpiredOnly", func() reconcile.Store { return &sweepsAll{Memory: reconcile.NewMemory()} }},
	{"context ignored", "Once/CancelledContext", func() reconcile.Store { return &deaf{reconcile.NewMemory()} }},
}

// The suite has to fail each of them, with the subtest that is named for it. A failing
// suite needs a process of its own.
func TestTheSuiteFindsFlaws(t *testing.T) {
	if flaw := os.Getenv("PAWL_FLAW"); flaw != "" {
		for _, b := range broken {
			if b.flaw == flaw {
				reconciletest.Run(t, reconciletest.Config{New: func(*testing.T) reconcile.Store { return b.make() }, Bubble: true})
			}
		}
		return
	}
	for _, b := range broken {
		t.Run(b.flaw, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestTheSuiteFindsFlaws$/^"+strings.ReplaceAll(b.found, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), "PAWL_FLAW="+b.flaw)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestTheSuiteFindsFlaws/"+b.found) {
				t.Errorf("not found by %s: %v\n%s", b.found, err, out)
			}
		})
	}
}

// flawed alters what it hands on to a memory store.
type flawed struct {
	reconcile.Store
	mu     sync.Mutex
	once   sync.Once
	calls  int
	begin  func(f *flawed, p *reconcile.Params, asks []reconcile.Ask)
	claim  func(f *flawed, p *reconcile.Params, a *reconcile.ClaimAsk)
	settle func(f *flawed, p *reconcile.Params, s *reconcile.Settlement)
}

func (f *flawed) memory() reconcile.Store {
	f.once.Do(func() { f.Store = reconcile.NewMemory() })
	return f.Store
}

func (f *flawed) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	kind, keys := p.Kind, make([]string, len(asks))
	asks = slices.Clone(asks)
	for i := range asks {
		keys[i] = asks[i].Key
	}
	if f.begin != nil {
		f.begin(f, &p, asks)
	}
	as, err := f.memory().Begin(ctx, p, asks)
	for i := range as {
		as[i].Entry.Kind, as[i].Entry.Key = kind, keys[i]
	}
	return as, err
}

func (f *flawed) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	if f.claim != nil {
		f.claim(f, &p, &a)
	}
	return f.memory().Claim(ctx, p, a)
}

func (f *flawed) Settle(ctx context.Context, p reconcile.Params, ss []reconcile.Settlement) ([]error, error) {
	ss = slices.Clone(ss)
	if f.settle != nil {
		f.mu.Lock()
		for i := range ss {
			f.settle(f, &p, &ss[i])
		}
		f.mu.Unlock()
	}
	return f.memory().Settle(ctx, p, ss)
}

func (f *flawed) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	return f.memory().List(ctx, q)
}

func (f *flawed) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	return f.memory().Counts(ctx, kind, after, first, n)
}

// anyToken settles with whichever token the record has.
func anyToken(f *flawed, p *reconcile.Params, s *reconcile.Settlement) {
	es, _ := f.memory().List(context.Background(), reconcile.Query{Kind: p.Kind, Key: s.Key, N: 1})
	if len(es) == 1 {
		s.Token = es[0].Token
	}
}

func freshNonce(f *flawed, _ *reconcile.Params, a *reconcile.ClaimAsk) {
	f.calls++
	a.Nonce = [16]byte{byte(f.calls), byte(f.calls >> 8), 7}
}

// checkThenSet looks first and grants later, in two steps.
type checkThenSet struct{ reconcile.Store }

func (c *checkThenSet) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	es, err := c.List(ctx, reconcile.Query{Kind: p.Kind, Key: asks[0].Key, N: 1})
	if err != nil || len(es) > 0 {
		return c.Store.Begin(ctx, p, asks)
	}
	time.Sleep(time.Millisecond)
	as, err := c.Store.Begin(ctx, p, asks)
	if err == nil {
		as[0].Grant = reconcile.Send
	}
	return as, err
}

// listsAll does not know what is open.
type listsAll struct{ reconcile.Store }

func (l *listsAll) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	q.Open = false
	return l.Store.List(ctx, q)
}

// nothingWaits counts what is to be sent again as failed.
type nothingWaits struct{ reconcile.Store }

func (w *nothingWaits) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	cs, err := w.Store.Counts(ctx, kind, after, first, n)
	for i := range cs {
		cs[i].Waiting = 0
	}
	return cs, err
}

// deaf does not hear that its context has ended.
type deaf struct{ reconcile.Store }

func (d *deaf) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	return d.Store.List(context.WithoutCancel(ctx), q)
}

// sweepsAll forgets whatever has ended.
type sweepsAll struct {
	*reconcile.Memory
	p reconcile.Params
}

func (s *sweepsAll) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	s.p = p
	return s.Memory.Begin(ctx, p, asks)
}

func (s *sweepsAll) Sweep(ctx context.Context, n int) (removed int, err error) {
	es, err := s.List(ctx, reconcile.Query{Kind: s.p.Kind, N: n})
	for _, e := range es {
		if e.State.Ended() {
			_, err = s.Settle(ctx, s.p, []reconcile.Settlement{{Verb: reconcile.VerbForget, Key: e.Key}})
			removed++
		}
	}
	return removed, err
}
