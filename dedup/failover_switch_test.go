package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// The moments at which a failover goes from one store to the other.

func newFailover(t *testing.T, primary, standby dedup.Store, opts *dedup.FailoverOptions) (*dedup.Failover, *dedup.Guard) {
	t.Helper()
	f, err := dedup.NewFailover(primary, standby, opts)
	if err != nil {
		t.Fatal(err)
	}
	return f, newGuard(t, f, nil)
}

// A primary that swallows what it is sent is as good as down.
func TestFailoverFromAPrimaryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &patched{Store: dedup.NewMemory(),
			claim: func(ctx context.Context, _ dedup.Params, _ []dedup.Ask) ([]dedup.Claim, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			settle: func(ctx context.Context, _ dedup.Params, _ []dedup.Settlement) ([]error, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
		f, g := newFailover(t, primary, dedup.NewMemory(), nil)
		for i := range 20 {
			start := time.Now()
			if err := g.Do(t.Context(), dedup.Request{ID: fmt.Sprint(i)}, nop); err != nil {
				t.Error(err)
			}
			d := time.Since(start)
			if i == 0 && d > 4*time.Second || i > 0 && d != 0 {
				t.Errorf("call %d took %v", i, d)
			}
		}
		if !f.Stats().Down {
			t.Error("the standby is not in charge")
		}
		time.Sleep(time.Minute) // what was being tried
	})
}

// A caller's own short deadline counts as no answer, too, or such callers would
// never be served.
func TestFailoverCountsWhatCallersGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &patched{Store: dedup.NewMemory(), claim: func(ctx context.Context, _ dedup.Params, _ []dedup.Ask) ([]dedup.Claim, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		f, g := newFailover(t, primary, dedup.NewMemory(), nil)
		for i := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := g.ClaimBatch(ctx, []dedup.Request{{ID: fmt.Sprint(i)}, {ID: "b"}})
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
		}
		if !f.Stats().Down {
			t.Error("the standby is not in charge")
		}
		time.Sleep(time.Minute)
	})
}

// An ask that the primary may be about to grant is granted by nobody else.
func TestFailoverDoesNotGrantWhatThePrimaryMayGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		var down atomic.Bool
		gate := make(chan struct{})
		primary := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
			if down.Load() {
				return nil, errLost
			}
			claims, err := m.Claim(ctx, p, asks)
			<-gate // its reply is slow
			return claims, err
		}}
		_, g := newFailover(t, primary, dedup.NewMemory(), nil)
		var first dedup.Claim
		var wg sync.WaitGroup
		wg.Go(func() { first = claim(t, g, "a") })
		synctest.Wait()
		down.Store(true)
		claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "a"}, {ID: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, claims[0], dedup.InFlight)
		wantState(t, claims[1], dedup.Acquired)
		close(gate)
		wg.Wait()
		wantState(t, first, dedup.Acquired)
	})
}

// The same on the way back.
func TestFailoverDoesNotGrantWhatTheStandbyMayGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		gate := make(chan struct{})
		var slow atomic.Bool
		standby := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
			claims, err := m.Claim(ctx, p, asks)
			if slow.Load() {
				<-gate
			}
			return claims, err
		}}
		primary := &flaky{Store: dedup.NewMemory(), down: true}
		f, g := newFailover(t, primary, standby, nil)
		claim(t, g, "switches")
		slow.Store(true)
		var first dedup.Claim
		var wg sync.WaitGroup
		wg.Go(func() { first = claim(t, g, "a") })
		synctest.Wait()
		primary.set(func(f *flaky) { f.down = false })
		time.Sleep(2 * time.Second)
		if err := f.HandBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "a"}, {ID: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, claims[0], dedup.InFlight)
		wantState(t, claims[1], dedup.Acquired)
		slow.Store(false)
		close(gate)
		wg.Wait()
		wantState(t, first, dedup.Acquired)
	})
}

// A claim that is sent twice gets the same answer, whichever store is in charge
// by then.
func TestFailoverRecognisesAClaimThatIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		p := dedup.Params{Scope: "s", Lease: time.Minute, Retention: time.Hour}
		ask := dedup.Ask{Request: dedup.Request{ID: "a", Fingerprint: dedup.Fingerprint([]byte("1"))}, Nonce: [16]byte{1}}
		send := func(p dedup.Params, ask dedup.Ask) dedup.Claim {
			t.Helper()
			claims, err := r.failover.Claim(t.Context(), p, []dedup.Ask{ask})
			if err != nil {
				t.Fatal(err)
			}
			return claims[0]
		}
		first := send(p, ask)
		wantState(t, first, dedup.Acquired)
		time.Sleep(10 * time.Second)
		r.primaryDown(true)
		r.run(t, "other") // the standby is in charge
		again := send(p, ask)
		if again.State != dedup.Acquired || again.Token != first.Token || again.Attempt != 1 || again.Left != 50*time.Second {
			t.Errorf("got %+v, want the claim %+v with 50s left", again, first)
		}
		rival := ask
		rival.Nonce[0] = 2
		wantState(t, send(p, rival), dedup.InFlight)
		rival.Fingerprint[0]++
		wantState(t, send(p, rival), dedup.Conflict)

		// Claim and completion in one step.
		p.Complete = true
		ask.ID, ask.Nonce[0] = "b", 3
		first = send(p, ask)
		again = send(p, ask)
		if again.State != dedup.Acquired || again.Token != first.Token {
			t.Errorf("got %+v, want the claim %+v", again, first)
		}
		ask.Nonce[0] = 4
		wantState(t, send(p, ask), dedup.Done)
	})
}

// FirstSeen whose answers the primary loses, and which the standby then answers,
// is one mark and not two.
func TestFailoverOfAFirstSeenWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primary.set(func(f *flaky) { f.claimAfter = 2 })
		first, err := r.guard.FirstSeen(t.Context(), "a")
		if err != nil || !first[0] {
			t.Fatal(first, err)
		}
		r.recovered(t)
		if s := r.failover.Stats(); s.Twice != 0 || s.WrittenBack != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Stores need not be comparable.
type taggedStore struct {
	dedup.Store
	_ []string
}

func TestFailoverOverStoresThatAreValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &flaky{Store: dedup.NewMemory(), claimAfter: 2}
		f, g := newFailover(t, taggedStore{Store: primary}, taggedStore{Store: dedup.NewMemory()}, nil)
		if _, err := g.FirstSeen(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := f.HandBack(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A refusal is an answer, so it is no outage.
func TestFailoverTakesARefusalForAnAnswer(t *testing.T) {
	asked := 0
	primary := &patched{Store: dedup.NewMemory(), claim: func(context.Context, dedup.Params, []dedup.Ask) ([]dedup.Claim, error) {
		asked++
		return nil, fmt.Errorf("%w: not for this server", dedup.ErrInvalid)
	}}
	f, g := newFailover(t, primary, dedup.NewMemory(), nil)
	for range 3 {
		_, err := g.Claim(t.Context(), dedup.Request{ID: "a"})
		wantErr(t, err, dedup.ErrInvalid)
	}
	if f.Stats().Down || asked != 3 {
		t.Errorf("down %v after %d asks", f.Stats().Down, asked)
	}
}

// An answer that lacks one ID's is no answer: the outage of a part counts.
func TestFailoverFromAPrimaryThatIsPartlyDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		primary := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
			claims, err := m.Claim(ctx, p, asks)
			for i := range claims {
				if claims[i].ID == "bad" {
					claims[i] = dedup.Claim{ID: "bad", Err: errLost}
				}
			}
			return claims, err
		}}
		f, g := newFailover(t, primary, dedup.NewMemory(), nil)
		claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "a"}, {ID: "bad"}})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, claims[0], dedup.Acquired)
		wantState(t, claims[1], dedup.Acquired)
		if !f.Stats().Down {
			t.Error("the standby is not in charge")
		}
	})
}
