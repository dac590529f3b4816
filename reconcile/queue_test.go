package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A remote whose reads lag behind its writes answers "not found" of what it has done. Whoever
// believes it too early commits twice: https://github.com/HadjievK/AgentRecovery
// (discussion 2) saw it in 20 of 20 runs. Here the naive way does, and the ledger does not.
func TestVerifyTooEarlyCommitsTwice(t *testing.T) {
	const lag = 20 * time.Second
	bubble(t, func(t *testing.T) {
		naive := newRemote()
		naive.lag, naive.lose = lag, 1
		op := reconcile.Op{Key: "order-1"}
		if _, err := naive.call(t.Context(), op); err == nil {
			t.Fatal("the answer was not lost")
		}
		if ev, _ := naive.probe(t.Context(), op); ev.Seen == reconcile.SeenNothing {
			_, _ = naive.call(t.Context(), op)
		}
		if n := naive.did("order-1"); n != 2 {
			t.Fatalf("the naive way did it %d times: the test reproduces nothing", n)
		}
	})
	for _, quiet := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
		bubble(t, func(t *testing.T) {
			r := newRemote()
			r.lag, r.lose = lag, 1
			l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Quiet: quiet, SettleTime: 30 * time.Second})
			if err := l.Do(t.Context(), reconcile.Op{Key: "order-1"}, r.call, r.probe); !errors.Is(err, reconcile.ErrUnknown) || !errors.Is(err, errLost) {
				t.Fatalf("Do: %v", err)
			}
			run(t, l, r.call, r.probe)
			time.Sleep(time.Hour)
			if n := r.did("order-1"); n != 1 {
				t.Errorf("with a quiet period of %v it was done %d times", quiet, n)
			}
			if e := want(t, l, "order-1", reconcile.Confirmed); string(e.Result) != "found" || e.Attempts != 1 {
				t.Errorf("confirmed as %+v", e)
			}
		})
	}
}

// The settle time alone is not enough: a sender that is paused longer than its lease has to
// be fenced off before "not found" counts, and the time counts from then.
func TestNotFoundCountsOnlyAfterTheTokenHasMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := reconcile.NewMemory()
		p := reconcile.Params{Kind: "default", Lease: 30 * time.Second, Quiet: time.Minute, Retention: 90 * 24 * time.Hour}
		as, err := s.Begin(t.Context(), p, []reconcile.Ask{{Op: reconcile.Op{Key: "k"}, Nonce: [16]byte{1}}})
		if err != nil { // its process dies here, or is paused
			t.Fatal(err)
		}
		dead := as[0].Entry
		r := newRemote()
		l := newLedger(t, s, &reconcile.Options{Quiet: time.Minute, SettleTime: 10 * time.Minute})
		time.Sleep(24 * time.Hour) // much longer than the settle time
		run(t, l, r.call, r.probe)
		time.Sleep(9 * time.Minute)
		if calls, probes := r.called(); calls != 0 || probes == 0 {
			t.Fatalf("%d calls and %d probes within the settle time after the token moved", calls, probes)
		}
		errs, err := s.Settle(t.Context(), p, []reconcile.Settlement{{Verb: reconcile.VerbConfirm, Key: "k", Token: dead.Token}})
		if err != nil || errs == nil || !errors.Is(errs[0], reconcile.ErrStale) {
			t.Fatalf("the first sender is not fenced off: %v, %v", errs, err)
		}
		time.Sleep(30 * time.Minute)
		if n := r.did("k"); n != 1 {
			t.Errorf("it was done %d times", n)
		}
		if e := want(t, l, "k", reconcile.Confirmed); e.Attempts != 2 {
			t.Errorf("%d attempts", e.Attempts)
		}
	})
}

func TestQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), nil)
		err := l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		if e := stateOf(t, err); e.State != reconcile.Unknown || e.Wait != 2*time.Minute {
			t.Fatalf("got %+v", e)
		}
		run(t, l, r.call, r.probe)
		time.Sleep(2*time.Minute - time.Second)
		if calls, probes := r.called(); calls != 1 || probes != 0 {
			t.Fatalf("%d calls, %d probes within the quiet period", calls, probes)
		}
		if es, err := l.List(t.Context(), reconcile.Query{Open: true, N: 10}); err != nil || len(es) != 1 || es[0].Age() < time.Minute {
			t.Fatalf("the queue is %+v, %v", es, err)
		}
		time.Sleep(time.Minute)
		want(t, l, "k", reconcile.Confirmed)
	})
}

// A remote that knows keys and cannot be asked is sent the operation again under its key.
func TestResentUnderTheSameKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.keys, r.lose = true, 2
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: 24 * time.Hour})
		op := reconcile.Op{Key: "k", Account: "a", Payload: []byte("hello")}
		if err := l.Do(t.Context(), op, r.call, nil); !errors.Is(err, reconcile.ErrUnknown) {
			t.Fatal(err)
		}
		var payload atomic.Value
		run(t, l, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
			payload.Store(string(op.Payload))
			if key, ok := reconcile.KeyFrom(ctx); !ok || key != "k" {
				t.Errorf("sent under %q", key)
			}
			return r.call(ctx, op)
		}, nil)
		time.Sleep(time.Hour)
		e := want(t, l, "k", reconcile.Confirmed)
		if r.did("k") != 1 || e.Attempts != 3 || payload.Load() != "hello" {
			t.Errorf("done %d times in %d attempts, payload %v", r.did("k"), e.Attempts, payload.Load())
		}
		cs, err := l.Counts(t.Context(), "", 10)
		if err != nil || len(cs) != 1 || cs[0].Account != "a" || cs[0].Resent != 1 || cs[0].ResentConfirmed != 1 || cs[0].SuccessRate() != 1 {
			t.Errorf("counted %+v, %v", cs, err)
		}
		if st := l.Stats(); st.Sent != 3 || st.Resent != 2 || st.ResentConfirmed != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// Beyond the horizon nothing is sent: a person is asked, with or without a probe.
func TestBeyondTheHorizonAPersonDecides(t *testing.T) {
	for _, ask := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRemote()
			r.down = true // nothing is done
			l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{
				Horizon: 24 * time.Hour, SettleTime: time.Minute,
				Authorize: func(_ context.Context, a reconcile.Action) (string, error) {
					if a.Name != "resolve" || a.Key != "k" {
						return "", errors.New("not yours")
					}
					return "alice", nil
				},
			})
			if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil); !errors.Is(err, reconcile.ErrUnknown) {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Hour)
			r.set(func(r *remote) { r.down = false })
			probe := r.probe
			if !ask {
				probe = nil
			}
			run(t, l, r.call, probe)
			time.Sleep(time.Hour)
			if calls, _ := r.called(); calls != 1 {
				t.Fatalf("%d calls", calls)
			}
			es, err := l.List(t.Context(), reconcile.Query{Review: true, N: 10})
			if err != nil || len(es) != 1 || !strings.Contains(es[0].Review, "key") {
				t.Fatalf("for review: %+v, %v", es, err)
			}
			if e := stateOf(t, l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, r.probe)); e.Review == "" {
				t.Fatalf("another Do: %+v", e)
			}
			res := reconcile.Resolution{Key: "k", Token: es[0].Token, State: reconcile.Failed, Again: true, Evidence: "not in the provider's console"}
			stale := res
			stale.Token--
			if err := l.Resolve(t.Context(), stale); !errors.Is(err, reconcile.ErrChanged) {
				t.Fatalf("a decision about what has changed: %v", err)
			}
			if err := l.Resolve(t.Context(), res); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			e := want(t, l, "k", reconcile.Confirmed)
			found := false
			for _, tr := range e.Log {
				found = found || tr.By == "alice" && tr.Note == res.Evidence
			}
			if !found || r.did("k") != 1 {
				t.Errorf("done %d times, history %+v", r.did("k"), e.Log)
			}
		})
	}
}

// Without keys and without a probe nothing is sent a second time.
func TestNoKeysAndNoProbe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		run(t, l, r.call, nil)
		time.Sleep(24 * time.Hour)
		if e := want(t, l, "k", reconcile.Unknown); e.Review == "" || r.did("k") != 1 {
			t.Errorf("review %q, done %d times", e.Review, r.did("k"))
		}
	})
}

// An outage of the remote is no news of any operation: nobody is asked to resolve them, the
// remote is tried with one at a time, and all is made good afterwards.
func TestAnOutageIsNotAStuckOperation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 40
		var told []bool
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{
			MaxLooks: 2,
			Hooks:    &reconcile.Hooks{Outage: func(_ context.Context, begun bool, _ time.Duration) { told = append(told, begun) }},
		})
		for i := range 40 {
			_ = l.Do(t.Context(), reconcile.Op{Key: string(rune('A' + i))}, r.call, nil)
		}
		r.set(func(r *remote) { r.down = true })
		stop := run(t, l, r.call, r.probe)
		time.Sleep(12 * time.Hour)
		if _, probes := r.called(); probes < 12 || probes > 1000 {
			t.Errorf("%d probes in 12 hours of outage", probes)
		}
		if st := l.Stats(); st.Outage < 11*time.Hour || st.Reviews != 0 {
			t.Errorf("during the outage: %+v", st)
		}
		r.set(func(r *remote) { r.down = false })
		time.Sleep(2 * time.Hour)
		stop()
		synctest.Wait()
		cs, err := l.Counts(t.Context(), "", 1)
		if err != nil || cs[0].Confirmed != 40 || cs[0].Review != 0 {
			t.Errorf("afterwards %+v, %v", cs, err)
		}
		if len(told) != 2 || !told[0] || told[1] || l.Stats().Outage != 0 {
			t.Errorf("told %v", told)
		}
	})
}

// An operation is stuck when the remote answers, and not so that it can be told.
func TestAStuckOperationIsForAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{MaxLooks: 3})
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		var looks atomic.Int32
		run(t, l, r.call, func(context.Context, reconcile.Op) (reconcile.Evidence, error) {
			looks.Add(1)
			return reconcile.Evidence{}, nil
		})
		time.Sleep(24 * time.Hour)
		if e := want(t, l, "k", reconcile.Unknown); e.Review == "" || looks.Load() != 3 {
			t.Errorf("review %q after %d looks", e.Review, looks.Load())
		}
	})
}

func TestPendingForTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.pending = true
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true, Patience: 6 * time.Hour})
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil); !errors.Is(err, reconcile.ErrAccepted) {
			t.Fatal(err)
		}
		run(t, l, r.call, r.probe)
		time.Sleep(5 * time.Hour)
		if e := want(t, l, "k", reconcile.Accepted); e.Review != "" {
			t.Fatalf("review %q", e.Review)
		}
		time.Sleep(5 * time.Hour)
		if e := want(t, l, "k", reconcile.Accepted); e.Review == "" || r.did("k") != 1 {
			t.Errorf("review %q, done %d times", e.Review, r.did("k"))
		}
		if _, probes := r.called(); probes > 40 {
			t.Errorf("%d probes", probes)
		}
	})
}

// A refusal of the second attempt does not say that the first did not happen.
func TestRefusedWhenSentAgain(t *testing.T) {
	for name, mark := range map[string]func(error) error{"refused": reconcile.Refused, "not done": reconcile.NotDone} {
		bubble(t, func(t *testing.T) {
			r := newRemote()
			r.lose = 1
			l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: 24 * time.Hour})
			_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
			run(t, l, func(context.Context, reconcile.Op) ([]byte, error) { return nil, mark(errors.New("duplicate")) }, nil)
			time.Sleep(10 * time.Minute)
			e := want(t, l, "k", reconcile.Unknown)
			if (name == "refused") != (e.Review != "") {
				t.Errorf("%s: review %q", name, e.Review)
			}
		})
	}
}

// Where the first certainly did not happen, the queue goes on sending what nobody else would.
func TestAbsentAndNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.down = true
		l := newLedger(t, reconcile.NewMemory(), nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		r.set(func(r *remote) { r.down = false })
		n := 0
		run(t, l, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
			if n++; n < 3 {
				return nil, reconcile.NotDone(errors.New("429"))
			}
			return r.call(ctx, op)
		}, r.probe)
		time.Sleep(24 * time.Hour)
		if e := want(t, l, "k", reconcile.Confirmed); r.did("k") != 1 || e.Attempts != 4 {
			t.Errorf("done %d times in %d attempts", r.did("k"), e.Attempts)
		}
	})
}

// What is sent again and again, and never arrives, is for a person.
func TestSendsThatVanish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		sent := 0
		vanish := func(context.Context, reconcile.Op) ([]byte, error) { sent++; return nil, errLost }
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{MaxSends: 3})
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, vanish, nil)
		run(t, l, vanish, r.probe)
		time.Sleep(48 * time.Hour)
		if e := want(t, l, "k", reconcile.Unknown); e.Review == "" || sent != 3 || e.Attempts != 3 {
			t.Errorf("review %q after %d sends", e.Review, sent)
		}
	})
}

// A probe that took all the time there was leaves none for the call.
func TestNothingIsSentWhenTheTimeIsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.down = true
		l := newLedger(t, reconcile.NewMemory(), nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		r.set(func(r *remote) { r.down = false })
		probes := 0
		run(t, l, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
			if ctx.Err() != nil {
				t.Error("sent after its time was up")
			}
			return r.call(ctx, op)
		}, func(ctx context.Context, op reconcile.Op) (reconcile.Evidence, error) {
			if probes++; probes < 3 {
				time.Sleep(2 * time.Minute)
			}
			return r.probe(ctx, op)
		})
		time.Sleep(6 * time.Hour)
		if want(t, l, "k", reconcile.Confirmed); r.did("k") != 1 || probes < 2 {
			t.Errorf("done %d times after %d probes", r.did("k"), probes)
		}
	})
}

// What a receipt says while somebody is about to send an operation counts: it is not sent.
func TestAReceiptComesBeforeTheSending(t *testing.T) {
	for _, said := range []reconcile.State{reconcile.Failed, reconcile.Confirmed} {
		bubble(t, func(t *testing.T) {
			s := &receiptFirst{Store: reconcile.NewMemory(), said: said}
			l := newLedger(t, s, nil)
			s.ledger = l
			if err := l.Record(t.Context(), reconcile.Op{Key: "k"}); err != nil {
				t.Fatal(err)
			}
			run(t, l, never(t), nil)
			time.Sleep(24 * time.Hour)
			if e := want(t, l, "k", reconcile.Failed); e.Again || e.Attempts != 0 || e.Open() != (said == reconcile.Confirmed) {
				t.Errorf("a receipt that says %v left %+v", said, e)
			}
		})
	}
}

// receiptFirst is a store to which a receipt comes between a claim and what follows it.
type receiptFirst struct {
	reconcile.Store
	ledger *reconcile.Ledger
	said   reconcile.State
}

func (s *receiptFirst) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	es, next, err := s.Store.Claim(ctx, p, a)
	if len(es) > 0 {
		_ = s.ledger.Receipt(ctx, "k", reconcile.Receipt{State: s.said}) // a contradiction is an error
	}
	return es, next, err
}
