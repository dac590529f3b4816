package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

func ok(context.Context, reconcile.Op) ([]byte, error) { return []byte("ok"), nil }

func never(t *testing.T) reconcile.CallFunc {
	return func(context.Context, reconcile.Op) ([]byte, error) {
		t.Error("it was sent")
		return nil, nil
	}
}

func TestDoIsNilOnlyWhenConfirmed(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name    string
		receipt bool
		err     error
		state   reconcile.State
		again   bool
	}{
		{"success", false, nil, reconcile.Confirmed, false},
		{"success with a receipt to come", true, nil, reconcile.Accepted, false},
		{"pending", false, fmt.Errorf("202: %w", reconcile.ErrAccepted), reconcile.Accepted, false},
		{"an error", false, boom, reconcile.Unknown, false},
		{"a deadline", false, context.DeadlineExceeded, reconcile.Unknown, false},
		{"not done", false, fmt.Errorf("wrapped: %w", reconcile.NotDone(boom)), reconcile.Failed, true},
		{"refused", false, reconcile.Refused(boom), reconcile.Failed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: c.receipt})
			var during reconcile.State
			err := l.Do(t.Context(), reconcile.Op{Key: "k"}, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
				e, err := l.Lookup(ctx, op.Key)
				if during = e.State; err != nil {
					t.Error(err)
				}
				if token, ok := reconcile.TokenFrom(ctx); !ok || token != e.Token {
					t.Errorf("token %d, want %d", token, e.Token)
				}
				return nil, c.err
			}, nil)
			if during != reconcile.Started {
				t.Errorf("during the call it was %v", during)
			}
			want(t, l, "k", c.state)
			if (err == nil) != (c.state == reconcile.Confirmed) {
				t.Fatalf("Do: %v", err)
			}
			if err != nil {
				if e := stateOf(t, err); e.State != c.state || e.Again != c.again {
					t.Errorf("Do says %+v", e)
				}
				if !c.receipt && !errors.Is(c.err, reconcile.ErrAccepted) && !errors.Is(err, c.err) {
					t.Errorf("%v does not wrap the cause", err)
				}
			}
			sent := false
			err = l.Do(t.Context(), reconcile.Op{Key: "k"}, func(context.Context, reconcile.Op) ([]byte, error) { sent = true; return nil, nil }, nil)
			if sent != c.again || (err == nil) != (c.state == reconcile.Confirmed || c.again) {
				t.Errorf("another Do: sent %t, %v", sent, err)
			}
		})
	}
}

func TestResults(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{ResultSize: 8})
	for range 2 {
		got, err := l.DoResult(t.Context(), reconcile.Op{Key: "small"}, ok, nil)
		if string(got) != "ok" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	big := func(context.Context, reconcile.Op) ([]byte, error) { return make([]byte, 9), nil }
	got, err := l.DoResult(t.Context(), reconcile.Op{Key: "big"}, big, nil)
	if size := (*reconcile.ResultSizeError)(nil); len(got) != 9 || !errors.As(err, &size) || size.Size != 9 || size.Limit != 8 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if e := want(t, l, "big", reconcile.Confirmed); len(e.Result) != 0 || !strings.Contains(e.Note, "9 bytes") {
		t.Fatalf("stored %q, note %q", e.Result, e.Note)
	}
	if err := l.Do(t.Context(), reconcile.Op{Key: "big2"}, big, nil); err != nil {
		t.Fatalf("Do of a confirmed operation: %v", err)
	}
}

func TestReceipts(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
	if err := l.Receipt(t.Context(), "early", reconcile.Receipt{State: reconcile.Confirmed}); !errors.Is(err, reconcile.ErrNotFound) {
		t.Fatalf("a receipt of nothing: %v", err)
	}
	// The webhook is faster than the answer.
	err := l.Do(t.Context(), reconcile.Op{Key: "fast"}, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
		return nil, l.Receipt(ctx, op.Key, reconcile.Receipt{State: reconcile.Confirmed, Result: []byte("delivered")})
	}, nil)
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	if e := want(t, l, "fast", reconcile.Confirmed); string(e.Result) != "delivered" {
		t.Fatalf("result %q", e.Result)
	}
	// The usual order, and then one that contradicts.
	_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, ok, nil)
	want(t, l, "k", reconcile.Accepted)
	for range 2 {
		if err := l.Receipt(t.Context(), "k", reconcile.Receipt{State: reconcile.Confirmed}); err != nil {
			t.Fatal(err)
		}
	}
	ended := (*reconcile.EndedError)(nil)
	if err := l.Receipt(t.Context(), "k", reconcile.Receipt{State: reconcile.Failed, Note: "131026"}); !errors.As(err, &ended) || ended.State != reconcile.Confirmed {
		t.Fatalf("a contradiction: %v", err)
	}
	if e := want(t, l, "k", reconcile.Confirmed); e.Review != reconcile.Contradicting || e.Note != "131026" {
		t.Fatalf("review %q, note %q", e.Review, e.Note)
	}
	if st := l.Stats(); st.Strays != 1 || st.Contradictions != 1 || st.Receipts != 3 {
		t.Errorf("stats %+v", st)
	}
}

// The call says that it failed, and the receipt that came before says that it happened.
func TestTheCallContradictsItsReceipt(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
	err := l.Do(t.Context(), reconcile.Op{Key: "k"}, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
		if err := l.Receipt(ctx, op.Key, reconcile.Receipt{State: reconcile.Confirmed}); err != nil {
			t.Error(err)
		}
		return nil, reconcile.Refused(errors.New("400"))
	}, nil)
	if err != nil {
		t.Fatalf("it is confirmed, and Do says %v", err)
	}
	if e := want(t, l, "k", reconcile.Confirmed); e.Review != reconcile.Contradicting || len(e.Log) != 3 {
		t.Errorf("review %q, history %+v", e.Review, e.Log)
	}
}

func TestFingerprintConflict(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	if err := l.Do(t.Context(), reconcile.Op{Key: "k", Fingerprint: [32]byte{1}}, ok, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Do(t.Context(), reconcile.Op{Key: "k", Fingerprint: [32]byte{2}}, never(t), nil); !errors.Is(err, reconcile.ErrConflict) {
		t.Fatalf("got %v", err)
	}
}

func TestConcurrentDosSendOnce(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	var sent, nils atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			err := l.Do(t.Context(), reconcile.Op{Key: "k"}, func(context.Context, reconcile.Op) ([]byte, error) { sent.Add(1); return nil, nil }, nil)
			if err == nil {
				nils.Add(1)
			} else if !errors.Is(err, reconcile.ErrStarted) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if sent.Load() != 1 || nils.Load() < 1 {
		t.Errorf("sent %d times, %d nils", sent.Load(), nils.Load())
	}
}

func TestAPanicLeavesItUnknown(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	func() {
		defer func() {
			if p := recover(); p != "secret" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, func(context.Context, reconcile.Op) ([]byte, error) { panic("secret") }, nil)
	}()
	if e := want(t, l, "k", reconcile.Unknown); strings.Contains(e.Note, "secret") {
		t.Error("the record repeats the panic")
	}
}

// A panic in Run is no answer, and ends nothing else.
func TestAPanicInRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 2
		l := newLedger(t, reconcile.NewMemory(), nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "a"}, r.call, nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "b"}, r.call, nil)
		run(t, l, r.call, func(ctx context.Context, op reconcile.Op) (reconcile.Evidence, error) {
			if op.Key == "a" {
				panic("probe")
			}
			return r.probe(ctx, op)
		})
		time.Sleep(3 * time.Hour)
		want(t, l, "b", reconcile.Confirmed)
		if e := want(t, l, "a", reconcile.Unknown); e.Review != "" || r.did("a") != 1 {
			t.Errorf("review %q", e.Review)
		}
	})
}

func TestTheLeaseIsRenewedAndItsLossCancels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down atomic.Bool
		s := &reconciletest.Faulty{Store: reconcile.NewMemory(), Before: func(step string) error {
			if step == "extend" && down.Load() {
				return errLost
			}
			return nil
		}}
		l := newLedger(t, s, nil)
		if err := l.Do(t.Context(), reconcile.Op{Key: "long"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			time.Sleep(10 * time.Minute)
			return nil, ctx.Err()
		}, nil); err != nil {
			t.Fatalf("a long call: %v", err)
		}
		down.Store(true)
		err := l.Do(t.Context(), reconcile.Op{Key: "lost"}, func(ctx context.Context, _ reconcile.Op) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, nil)
		if !errors.Is(err, reconcile.ErrUnknown) || !errors.Is(err, reconcile.ErrStale) {
			t.Fatalf("got %v", err)
		}
		want(t, l, "lost", reconcile.Unknown)
		synctest.Wait() // a loss is counted after the cancellation, when Do may be back
		if st := l.Stats(); st.LeasesLost != 1 || st.Streak != 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestACallerThatGaveUpSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &reconciletest.Faulty{Store: reconcile.NewMemory(), After: func(step string) error {
			if step == "begin" {
				<-gate
			}
			return nil
		}}
		l := newLedger(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := l.Do(ctx, reconcile.Op{Key: "k"}, never(t), nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		close(gate)
		synctest.Wait()
		if e := want(t, l, "k", reconcile.Failed); !e.Again {
			t.Fatal("it cannot be sent again")
		}
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, ok, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// Whichever reply of the store is lost once: the operation is sent once and is Confirmed.
func TestEveryReplyLostOnce(t *testing.T) {
	for _, step := range []string{"begin", "confirm", "doubt", "claim", "defer", "send"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				lost := false
				s := &reconciletest.Faulty{Store: reconcile.NewMemory(), After: func(s string) error {
					if s == step && !lost {
						lost = true
						return errLost
					}
					return nil
				}}
				r := newRemote()
				l := newLedger(t, s, nil)
				if err := l.Do(t.Context(), reconcile.Op{Key: "good"}, r.call, nil); err != nil {
					t.Fatal(err)
				}
				r.set(func(r *remote) { r.down = true })
				_ = l.Do(t.Context(), reconcile.Op{Key: "bad"}, r.call, nil)
				r.set(func(r *remote) { r.down = false })
				stop := run(t, l, r.call, r.probe)
				time.Sleep(time.Hour)
				e := want(t, l, "bad", reconcile.Confirmed)
				if d := e.Sent.Sub(e.Created); d > 2*time.Minute+50*time.Second { // no lease had to lapse
					t.Errorf("it took %v", d)
				}
				stop()
				if !lost {
					t.Fatalf("no %s was sent", step)
				}
				if r.did("good") != 1 || r.did("bad") != 1 {
					t.Errorf("done %d and %d times", r.did("good"), r.did("bad"))
				}
			})
		})
	}
}

func TestStoreDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := map[string]bool{"begin": true}
		s := &reconciletest.Faulty{Store: reconcile.NewMemory(), Before: func(step string) error {
			if down[step] {
				return errLost
			}
			return nil
		}}
		l := newLedger(t, s, nil)
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, never(t), nil); !errors.Is(err, reconcile.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		down = map[string]bool{"confirm": true}
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, ok, nil); !errors.Is(err, reconcile.ErrUnavailable) {
			t.Fatalf("sent, not recorded, and Do says %v", err)
		}
		time.Sleep(time.Minute)
		err := l.Do(t.Context(), reconcile.Op{Key: "k"}, never(t), nil)
		if e := stateOf(t, err); e.State != reconcile.Unknown {
			t.Fatalf("got %+v", e)
		}
	})
}

func TestADueOperationIsLookedAtByDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, r.probe)
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, never(t), r.probe); stateOf(t, err).Wait != 2*time.Minute {
			t.Fatalf("before it is due: %v", err)
		}
		time.Sleep(3 * time.Minute)
		if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, never(t), r.probe); err != nil {
			t.Fatalf("when it is due: %v", err)
		}
	})
}

func TestFull(t *testing.T) {
	m := reconcile.NewMemory()
	m.SetLimit(1)
	l := newLedger(t, m, nil)
	if err := l.Do(t.Context(), reconcile.Op{Key: "a"}, ok, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Do(t.Context(), reconcile.Op{Key: "b"}, never(t), nil); !errors.Is(err, reconcile.ErrFull) || errors.Is(err, reconcile.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestDrainLetsCallsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRemote()
		r.lose = 1
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: 24 * time.Hour})
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		begun := make(chan struct{})
		stop := run(t, l, func(ctx context.Context, op reconcile.Op) ([]byte, error) {
			close(begun)
			time.Sleep(5 * time.Second)
			return r.call(ctx, op)
		}, nil)
		<-begun
		stop()
		want(t, l, "k", reconcile.Confirmed)
	})
}

// A claim whose reply was lost is sent again as it was, and gets what it was granted: nobody
// waits for leases to lapse.
func TestALostClaimIsFoundAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &losesAClaim{Store: reconcile.NewMemory()}
		r := newRemote()
		r.lose = 1
		l := newLedger(t, s, nil)
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, r.call, nil)
		run(t, l, r.call, r.probe)
		time.Sleep(2*time.Minute + 20*time.Second)
		if want(t, l, "k", reconcile.Confirmed); !s.lost {
			t.Error("no claim was lost")
		}
	})
}

// losesAClaim loses the reply to the first claim that took something.
type losesAClaim struct {
	reconcile.Store
	lost bool
}

func (s *losesAClaim) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	es, next, err := s.Store.Claim(ctx, p, a)
	if len(es) > 0 && !s.lost {
		s.lost = true
		return nil, 0, errLost
	}
	return es, next, err
}

// Calls that arrive while the store is asked form the next question to it.
func TestSingleCallsAreJoined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var begins, settles atomic.Int32
		s := &reconciletest.Faulty{Store: reconcile.NewMemory(), Before: func(step string) error {
			if step == "begin" {
				begins.Add(1)
			} else {
				settles.Add(1)
			}
			time.Sleep(10 * time.Millisecond) // a round trip
			return nil
		}}
		l := newLedger(t, s, nil)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if err := l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint(i)}, ok, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if begins.Load() > 4 || settles.Load() > 4 {
			t.Errorf("64 calls made %d questions and %d settlements", begins.Load(), settles.Load())
		}
	})
}
