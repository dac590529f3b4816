package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// txMemory is a view of a memory store whose steps are applied when it commits, and not
// otherwise. Like a transaction it is for one goroutine; what it answers is what the store
// would, if each is the only step of its key.
type txMemory struct {
	reconcile.Store
	steps []func()
}

func (x *txMemory) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	x.steps = append(x.steps, func() { _, _ = x.Store.Begin(ctx, p, asks) })
	as := make([]reconcile.Answer, len(asks))
	for i, a := range asks {
		as[i] = reconcile.Answer{Grant: reconcile.AsIs, Entry: reconcile.Entry{Op: a.Op, State: reconcile.Failed, Again: true}}
	}
	return as, nil
}

func (x *txMemory) Settle(ctx context.Context, p reconcile.Params, s []reconcile.Settlement) ([]error, error) {
	x.steps = append(x.steps, func() { _, _ = x.Store.Settle(ctx, p, s) })
	return nil, nil
}

func (x *txMemory) commit() {
	for _, f := range x.steps {
		f()
	}
	x.steps = nil
}

func TestARecordedOperationIsSentOnceItIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, r := reconcile.NewMemory(), newRemote()
		l := newLedger(t, store, nil)
		run(t, l, r.call, nil) // nobody can ask: an operation that is Unknown would be for a person
		rolledBack, committed := &txMemory{Store: store}, &txMemory{Store: store}
		for _, tx := range []*txMemory{rolledBack, committed} {
			key := map[bool]string{true: "committed", false: "rolled back"}[tx == committed]
			if err := l.With(tx).Record(t.Context(), reconcile.Op{Key: key, Account: "acct", Payload: []byte("body")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if calls, _ := r.called(); calls != 0 {
			t.Fatal("it was sent before the commit")
		}
		committed.commit()
		time.Sleep(20 * time.Second) // Run polls every 10
		e := want(t, l, "committed", reconcile.Confirmed)
		if e.Attempts != 1 || r.did("committed") != 1 || r.did("rolled back") != 0 {
			t.Fatalf("sent %d and %d times, %d attempts", r.did("committed"), r.did("rolled back"), e.Attempts)
		}
		if _, err := l.Lookup(t.Context(), "rolled back"); !errors.Is(err, reconcile.ErrNotFound) {
			t.Fatalf("what was rolled back is there: %v", err)
		}
		if s := l.Stats(); s.Sent != 1 || s.Resent != 0 || s.ResentConfirmed != 0 {
			t.Fatalf("stats %+v", s)
		}
	})
}

func TestRecordIsIdempotent(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	op := reconcile.Op{Key: "k", Fingerprint: [32]byte{1}}
	for range 3 {
		if err := l.Record(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	if e := want(t, l, "k", reconcile.Failed); !e.Again || e.Attempts != 0 || len(e.Log) != 1 {
		t.Fatalf("recorded %+v", e)
	}
	if err := l.Do(t.Context(), op, ok, nil); err != nil { // a Do sends it, too
		t.Fatal(err)
	}
	if err := l.Record(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	want(t, l, "k", reconcile.Confirmed)
	op.Fingerprint[0] = 2
	if err := l.Record(t.Context(), op); !errors.Is(err, reconcile.ErrConflict) {
		t.Fatalf("another operation of the key: %v", err)
	}
	if err := l.Record(t.Context(), reconcile.Op{}); !errors.Is(err, reconcile.ErrInvalid) {
		t.Fatalf("no key: %v", err)
	}
	small := reconcile.NewMemory()
	small.SetLimit(1)
	l = newLedger(t, small, nil)
	if err := errors.Join(l.Record(t.Context(), reconcile.Op{Key: "a"})); err != nil {
		t.Fatal(err)
	}
	if err := l.Record(t.Context(), reconcile.Op{Key: "b"}); !errors.Is(err, reconcile.ErrFull) {
		t.Fatalf("no room: %v", err)
	}
}

// An operation whose first send is refused by the network is the queue's to send again.
func TestARecordedOperationThatCouldNotBeSentIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), nil)
		if err := l.Record(t.Context(), reconcile.Op{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		n := 0
		run(t, l, func(context.Context, reconcile.Op) ([]byte, error) {
			if n++; n < 3 {
				return nil, reconcile.NotDone(errLost)
			}
			return nil, nil
		}, nil)
		time.Sleep(time.Hour)
		if e := want(t, l, "k", reconcile.Confirmed); n != 3 || e.Attempts != 3 {
			t.Fatalf("sent %d times, %d attempts", n, e.Attempts)
		}
	})
}

func TestConfirmInTheCallsTransaction(t *testing.T) {
	store := reconcile.NewMemory()
	commitFails := errors.New("commit: connection reset")
	for name, c := range map[string]struct {
		commits bool
		returns error
		want    reconcile.State
	}{
		"committed":                          {true, nil, reconcile.Confirmed},
		"committed, and the answer was lost": {true, commitFails, reconcile.Confirmed},
		"not committed, and nobody knows":    {false, commitFails, reconcile.Unknown},
		"rolled back for certain":            {false, reconcile.NotDone(commitFails), reconcile.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, store, &reconcile.Options{Kind: strings.NewReplacer(" ", "-", ",", "").Replace(name)})
			err := l.Do(t.Context(), reconcile.Op{Key: "k"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
				tx := &txMemory{Store: store}
				if err := l.With(tx).Confirm(ctx, []byte("in tx")); err != nil {
					return nil, err
				}
				if c.commits {
					tx.commit()
				}
				return nil, c.returns
			}, nil)
			if e := want(t, l, "k", c.want); c.commits && string(e.Result) != "in tx" {
				t.Errorf("result %q", e.Result)
			}
			if (err == nil) != (c.want == reconcile.Confirmed) {
				t.Errorf("Do: %v", err)
			}
		})
	}
}

func TestConfirmOfAStaleOwnerIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := reconcile.NewMemory()
		l := newLedger(t, store, nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			if err := l.Receipt(ctx, "k", reconcile.Receipt{State: reconcile.Failed}); err != nil {
				t.Error(err)
			}
			if err := l.With(store).Confirm(ctx, nil); !errors.Is(err, reconcile.ErrEnded) {
				t.Errorf("after a receipt: %v", err)
			}
			return nil, reconcile.NotDone(errLost)
		}, nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "s"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			es, _, err := store.Claim(ctx, reconcile.Params{Kind: "default"}, reconcile.ClaimAsk{N: 1, Nonce: [16]byte{1}})
			if err != nil || len(es) != 0 {
				t.Errorf("claimed %d, %v", len(es), err)
			}
			e, _ := l.Lookup(ctx, "s")
			if _, err := store.Settle(ctx, reconcile.Params{Kind: "default", Retention: time.Hour}, []reconcile.Settlement{
				{Verb: reconcile.VerbResolve, Key: "s", Token: e.Token, Nonce: [16]byte{2}, State: reconcile.Failed, By: "alice"}}); err != nil {
				t.Error(err)
			}
			if err := l.With(store).Confirm(ctx, nil); !errors.Is(err, reconcile.ErrStale) {
				t.Errorf("of a stale owner: %v", err)
			}
			return nil, errLost
		}, nil)
		want(t, l, "s", reconcile.Failed)
	})
}

func TestViewsRefuseWhatATransactionCannotDo(t *testing.T) {
	store := reconcile.NewMemory()
	l := newLedger(t, store, nil)
	other := newLedger(t, store, &reconcile.Options{Kind: "other"})
	receipts := newLedger(t, store, &reconcile.Options{Kind: "receipts", Receipt: true})
	view := l.With(store)
	errs := map[string]error{
		"Do":              view.Do(t.Context(), reconcile.Op{Key: "k"}, ok, nil),
		"Run":             view.Run(t.Context(), ok, nil, nil),
		"Confirm outside": view.Confirm(t.Context(), nil),
		"nil store":       l.With(nil).Record(t.Context(), reconcile.Op{Key: "k"}),
		"nil store too":   l.With((*reconcile.Memory)(nil)).Receipt(t.Context(), "k", reconcile.Receipt{State: reconcile.Failed}),
	}
	_, errs["nil store List"] = l.With(nil).List(t.Context(), reconcile.Query{N: 1})
	_, errs["nil store Counts"] = l.With(nil).Counts(t.Context(), "", 1)
	if err := l.Do(t.Context(), reconcile.Op{Key: "in"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
		errs["Confirm without a view"] = l.Confirm(ctx, nil)
		errs["Confirm of another ledger"] = other.With(store).Confirm(ctx, nil)
		errs["Confirm of too much"] = view.Confirm(ctx, make([]byte, 1<<20))
		return nil, nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	_ = receipts.Do(t.Context(), reconcile.Op{Key: "in"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
		errs["Confirm of what has a receipt"] = receipts.With(store).Confirm(ctx, nil)
		return nil, nil
	}, nil)
	for name, err := range errs {
		if !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, receipts, "in", reconcile.Accepted)

	// What a view does, too.
	if err := view.Record(t.Context(), reconcile.Op{Key: "v"}); err != nil {
		t.Fatal(err)
	}
	if err := view.Receipt(t.Context(), "v", reconcile.Receipt{State: reconcile.Failed}); err != nil {
		t.Fatal(err)
	}
	if err := view.Receipt(t.Context(), "nobody", reconcile.Receipt{State: reconcile.Failed}); !errors.Is(err, reconcile.ErrNotFound) {
		t.Fatalf("a receipt of nothing: %v", err)
	}
	want(t, view, "v", reconcile.Failed)
}
