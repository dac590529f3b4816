package order_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// everySecond tries again after a second.
var everySecond = &order.RunOptions{Backoff: retry.Constant(time.Second), MaxAttempts: 3}

// enqueueMany enqueues operations 1 to n of a customer.
func enqueueMany(t testing.TB, l *order.Lanes, customer string, n int) {
	t.Helper()
	for i := range n {
		enqueue(t, l, fmt.Sprint(customer, i+1), customer)
	}
}

// A rate is kept to the microsecond, and each account has its own.
func TestLanesRate(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A", "bob", "B", "cid", "C")
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route, Rate: func(account string) order.Rate {
			switch account {
			case "A":
				return order.Rate{PerSecond: 3} // a third of a second is no whole number of anything
			case "B":
				return order.Rate{PerSecond: 2, Burst: 3}
			}
			return order.Rate{}
		}})
		enqueueMany(t, l, "ann", 5)
		enqueueMany(t, l, "bob", 7)
		enqueueMany(t, l, "cid", 3)
		g := newGateway()
		stop := startLanes(t, l, g, &order.RunOptions{Poll: time.Hour})
		later(time.Minute)
		stop()
		slices.Sort(g.sent)
		g.want(t, "A/1/ann1@0s#1", "A/2/ann2@333.334ms#1", "A/3/ann3@666.668ms#1", "A/4/ann4@1.000002s#1", "A/5/ann5@1.333336s#1",
			"B/1/bob1@0s#1", "B/2/bob2@0s#1", "B/3/bob3@0s#1", "B/4/bob4@1.5s#1", "B/5/bob5@1.5s#1", "B/6/bob6@1.5s#1", "B/7/bob7@3s#1",
			"C/1/cid1@0s#1", "C/2/cid2@0s#1", "C/3/cid3@0s#1")
	})
}

// A lane that has been quiet has its burst again, and no more.
func TestLanesRateAfterSilence(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A")
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route,
			Rate: func(string) order.Rate { return order.Rate{PerSecond: 1, Burst: 2} }})
		g := newGateway()
		stop := startLanes(t, l, g, nil)
		enqueue(t, l, "1", "ann")
		later(time.Hour)
		for i := range 3 {
			enqueue(t, l, fmt.Sprint(i+2), "ann")
		}
		later(time.Minute)
		stop()
		g.want(t, "A/1/1@0s#1", "A/2/2@1h0m0s#1", "A/3/3@1h0m0s#1", "A/4/4@1h0m2s#1")
	})
}

// Several processes send no faster than the rate: in any time as much as the time
// allows and a burst of each. Nor do they waste much of it.
func TestLanesRateOfTwoProcesses(t *testing.T) {
	for _, burst := range []int{1, 5} {
		t.Run(fmt.Sprint("burst=", burst), func(t *testing.T) {
			laneBubble(t, func(t *testing.T) {
				const rate, n, processes = 2, 200, 2
				mem, g := order.NewMemory(), newGateway()
				board := newSwitchboard("ann", "A")
				var times []time.Duration
				var by []uint64
				var mu sync.Mutex
				g.answer = func(s order.Sending) error {
					mu.Lock()
					defer mu.Unlock()
					times, by = append(times, time.Since(g.begin)), append(by, s.Position.Number)
					time.Sleep(time.Millisecond)
					return nil
				}
				for p := range processes {
					l := newLanes(t, mem, &order.LanesOptions{Route: board.route, Rate: func(string) order.Rate {
						return order.Rate{PerSecond: rate, Burst: burst}
					}})
					if p == 0 {
						enqueueMany(t, l, "ann", n)
					}
					defer startLanes(t, l, g, &order.RunOptions{Poll: 7 * time.Millisecond})()
				}
				later(2 * time.Minute) // 100 s will do
				mu.Lock()
				defer mu.Unlock()
				if len(by) != n || !slices.IsSorted(by) {
					t.Fatalf("sent %v", by)
				}
				for i, at := range times {
					if most := processes*float64(burst) + rate*at.Seconds(); float64(i+1) > most+0.01 {
						t.Errorf("%d were sent within %v, at most %.1f", i+1, at, most)
					}
				}
				if least := time.Duration(n) * time.Second / rate; times[n-1] > least*11/10 {
					t.Errorf("it took %v, and %v would have done", times[n-1], least)
				}
			})
		})
	}
}

// Processes that send in turn count what the others sent.
func TestLanesRateInTurn(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		const n = 60
		mem, g := order.NewMemory(), newGateway()
		board := newSwitchboard("ann", "A")
		var lanes []*order.Lanes
		for range 2 {
			l := newLanes(t, mem, &order.LanesOptions{Route: board.route, Rate: func(string) order.Rate { return order.Rate{PerSecond: 1} }})
			lanes = append(lanes, l)
			defer startLanes(t, l, g, &order.RunOptions{Poll: time.Hour})() // it looks when it has enqueued something
		}
		for i := range n {
			later(500 * time.Millisecond) // twice as fast as the rate
			enqueue(t, lanes[i%2], fmt.Sprint(i), "ann")
		}
		if sent := g.count(); sent < n/2-1 || sent > n/2+2 {
			t.Errorf("%d were sent in %v", sent, time.Since(g.begin))
		}
		later(time.Hour)
		if sent := g.count(); sent != n {
			t.Errorf("%d were sent in the end", sent)
		}
	})
}

// Failures are counted by their cause. A timeout is tried again in its place, under
// the same message ID; what was refused or has no receipt leaves the lane, which goes
// on.
func TestLanesCauses(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A", "bob", "B")
		type failed struct {
			number uint64
			cause  order.Cause
			err    error
		}
		refused, lost := errors.New("refused"), errors.New("no receipt")
		var handed []failed
		again := true
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route, OnFailed: func(_ context.Context, s order.Sending, c order.Cause, err error) error {
			handed = append(handed, failed{s.Position.Number, c, err})
			if again {
				again = false
				return errors.New("the queue is down")
			}
			return nil
		}})
		enqueueMany(t, l, "ann", 6)
		g := newGateway()
		g.answer = func(s order.Sending) error {
			if s.Account == "B" {
				return nil
			}
			switch n := s.Position.Number; {
			case n == 1 && s.Attempt == 1:
				return fmt.Errorf("send: %w", context.DeadlineExceeded)
			case n == 1 && s.Attempt == 2:
				return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
			case n == 2:
				return order.Failed(order.CauseRefused, refused)
			case n == 3:
				return fmt.Errorf("provider: %w", order.Failed(order.CauseNoReceipt, lost))
			case n == 4 && s.Attempt == 1:
				return errors.New("503")
			case n == 5 && s.Attempt == 1:
				panic("a bug")
			case n == 6 && s.Attempt == 1:
				runtime.Goexit()
			}
			return nil
		}
		stop := startLanes(t, l, g, everySecond)
		later(500 * time.Millisecond)
		enqueueMany(t, l, "bob", 1) // while A waits
		later(time.Minute)
		stop()
		g.want(t, "A/1/ann1@0s#1", "B/1/bob1@500ms#1", "A/1/ann1@1s#2", "A/1/ann1@2s#3", "A/2/ann2@2s#1", "A/2/ann2@3s#2", "A/3/ann3@3s#1", "A/4/ann4@3s#1",
			"A/4/ann4@4s#2", "A/5/ann5@4s#1", "A/5/ann5@5s#2", "A/6/ann6@5s#1", "A/6/ann6@6s#2")
		ids := map[string]bool{}
		for _, s := range g.sendings {
			if s.Account == "A" && s.Position.Number == 1 {
				ids[s.MessageID] = true
			}
		}
		if len(ids) != 1 || !ids["out:A:1"] {
			t.Errorf("the first was sent under %v", ids)
		}
		if len(handed) != 3 || handed[0].cause != order.CauseRefused || handed[1].cause != order.CauseRefused || !errors.Is(handed[1].err, refused) ||
			handed[2].cause != order.CauseNoReceipt || handed[2].number != 3 || !errors.Is(handed[2].err, lost) {
			t.Errorf("handed over %+v", handed)
		}
		// The hand-over that failed counts as a failed attempt of a refused message.
		wantStats(t, l, "A", order.LaneStats{Enqueued: 6, Sent: 4, Retries: 6, Failed: order.Failures{Timeout: 2, Refused: 2, NoReceipt: 1, Other: 3}})
		wantStats(t, l, "B", order.LaneStats{Enqueued: 1, Sent: 1})
	})
}

// Without OnFailed a message that was refused is counted and the lane goes on.
func TestLanesWithoutOnFailed(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A")
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route})
		enqueueMany(t, l, "ann", 2)
		g := newGateway()
		g.answer = func(s order.Sending) error {
			if s.Position.Number == 1 {
				return order.Failed(order.CauseRefused, nil)
			}
			return nil
		}
		stop := startLanes(t, l, g, nil)
		later(time.Minute)
		stop()
		g.want(t, "A/1/ann1@0s#1", "A/2/ann2@0s#1")
		wantStats(t, l, "A", order.LaneStats{Enqueued: 2, Sent: 1, Failed: order.Failures{Refused: 1}})
	})
}

// When the attempts are used up the lane waits for a person, and no other lane
// does.
func TestLanesParked(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A", "bob", "B")
		b := newBuffer(t, order.NewMemory(), nil)
		l, err := order.NewLanes(b, &order.LanesOptions{Route: board.route})
		if err != nil {
			t.Fatal(err)
		}
		enqueueMany(t, l, "ann", 2)
		g := newGateway()
		broken := true
		g.answer = func(s order.Sending) error {
			if s.Operation == "ann1" && broken {
				return errors.New("503")
			}
			return nil
		}
		stop := startLanes(t, l, g, everySecond)
		later(time.Minute)
		enqueueMany(t, l, "bob", 1)
		g.want(t, "A/1/ann1@0s#1", "A/1/ann1@1s#2", "A/1/ann1@2s#3", "B/1/bob1@1m0s#1")
		wantStats(t, l, "A", order.LaneStats{Enqueued: 2, Retries: 2, Failed: order.Failures{Other: 3, Parked: 1}})
		a, err := l.Account(t.Context(), "A")
		if err != nil || !a.Parked || a.Ledgers[0].Buffered != 1 || a.Oldest != time.Minute {
			t.Errorf("%+v, %v", a, err)
		}
		parked, err := b.Parked(t.Context(), order.Query{})
		if err != nil || len(parked) != 1 {
			t.Fatalf("%+v, %v", parked, err)
		}
		if s, ok := l.Sending(parked[0]); !ok || s.Customer != "ann" || s.Operation != "ann1" || s.MessageID != "out:A:1" || s.Attempt != 3 {
			t.Errorf("%+v", s)
		}
		broken = false
		if err := b.Resume(t.Context(), parked[0].Key, parked[0].Position, "jo", ""); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		stop()
		g.want(t, "A/1/ann1@0s#1", "A/1/ann1@1s#2", "A/1/ann1@2s#3", "B/1/bob1@1m0s#1", "A/1/ann1@1m0s#1", "A/2/ann2@1m0s#1")
	})
}

// A message of a customer who has moved is sent by the old account, or handed over,
// as OnSwitch says; those of others of that account are not touched.
func TestLanesOnSwitch(t *testing.T) {
	for _, policy := range []order.SwitchPolicy{order.SendOld, order.FailSwitched} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			laneBubble(t, func(t *testing.T) {
				board := newSwitchboard("ann", "A", "bob", "A", "cid", "A")
				var handed []string
				l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: func(ctx context.Context, customer string) (string, error) {
					account, err := board.route(ctx, customer)
					if account == "" && err == nil {
						err = fmt.Errorf("closed: %w", order.ErrNoAccount)
					}
					return account, err
				}, OnSwitch: policy, OnFailed: func(_ context.Context, s order.Sending, c order.Cause, err error) error {
					handed = append(handed, fmt.Sprint(s.Operation, " ", c, " ", err != nil))
					return nil
				}})
				for _, customer := range []string{"ann", "bob", "cid"} {
					enqueue(t, l, customer+"1", customer)
				}
				enqueue(t, l, "bob2", "bob")
				board.move("ann", "B")
				board.move("cid", "")
				g := newGateway()
				stop := startLanes(t, l, g, nil)
				synctest.Wait()
				stop()
				if policy == order.SendOld {
					g.want(t, "A/1/ann1@0s#1", "A/2/bob1@0s#1", "A/3/cid1@0s#1", "A/4/bob2@0s#1")
					wantStats(t, l, "A", order.LaneStats{Enqueued: 4, Sent: 4})
					return
				}
				g.want(t, "A/2/bob1@0s#1", "A/4/bob2@0s#1")
				if want := []string{"ann1 switched true", "cid1 switched true"}; !slices.Equal(handed, want) {
					t.Errorf("handed over %v, want %v", handed, want)
				}
				wantStats(t, l, "A", order.LaneStats{Enqueued: 4, Sent: 2, Failed: order.Failures{Switched: 2}})
			})
		})
	}
}

// While nobody can say where a customer is, nothing of the lane is sent under
// FailSwitched.
func TestLanesRouteFails(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A")
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route, OnSwitch: order.FailSwitched})
		enqueueMany(t, l, "ann", 1)
		board.err = errors.New("the directory is down")
		g := newGateway()
		stop := startLanes(t, l, g, everySecond)
		later(time.Second)
		g.want(t)
		board.mu.Lock()
		board.err = nil
		board.mu.Unlock()
		later(time.Second)
		stop()
		g.want(t, "A/1/ann1@2s#3")
	})
}

// Two workers on one store: one message of an account at a time, in order, and
// accounts side by side.
func TestLanesTwoWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		board := newSwitchboard("ann", "A", "bob", "B", "cid", "C")
		g := newGateway()
		var mu sync.Mutex
		running, most := 0, 0
		g.answer = func(s order.Sending) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			if s.Position.Number%7 == 0 && s.Attempt == 1 {
				return errors.New("503")
			}
			return nil
		}
		for i := range 2 {
			l := newLanes(t, s, &order.LanesOptions{Route: board.route})
			if i == 0 {
				for _, customer := range []string{"ann", "bob", "cid"} {
					enqueueMany(t, l, customer, 20)
				}
			}
			defer startLanes(t, l, g, &order.RunOptions{Poll: 3 * time.Millisecond, Backoff: retry.Constant(time.Millisecond)})()
		}
		later(time.Minute)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.overlap || most != 3 {
			t.Errorf("overlap %t, %d at once, want the three accounts", g.overlap, most)
		}
		next := map[string]uint64{"A": 1, "B": 1, "C": 1}
		for _, x := range g.sendings {
			n := x.Position.Number
			if n != next[x.Account] {
				t.Errorf("account %s sent number %d, want %d", x.Account, n, next[x.Account])
			}
			if n%7 != 0 || x.Attempt == 2 {
				next[x.Account]++
			}
		}
		if next["A"] != 21 || next["B"] != 21 || next["C"] != 21 {
			t.Errorf("sent up to %v", next)
		}
	})
}

// A process that dies between the gateway's answer and its record sends again, under
// the same message ID, and only the message that it was about.
func TestLanesCrashBetweenSendAndRecord(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		mem := order.NewMemory()
		dying := newFaulty(mem)
		board := newSwitchboard("ann", "A")
		first := newLanes(t, dying, &order.LanesOptions{Route: board.route})
		enqueueMany(t, first, "ann", 3)
		g := newGateway()
		g.answer = func(s order.Sending) error {
			if s.Position.Number == 2 && s.Attempt == 1 { // from here on nothing of this process arrives
				dying.set(func(f *faulty) { f.before = func(step) error { return errBroken } })
			}
			return nil
		}
		stop := startLanes(t, first, g, nil)
		synctest.Wait()
		second := newLanes(t, mem, &order.LanesOptions{Route: board.route})
		stop2 := startLanes(t, second, g, nil)
		later(time.Minute)
		stop()
		stop2()
		g.want(t, "A/1/ann1@0s#1", "A/2/ann2@0s#1", "A/2/ann2@30s#2", "A/3/ann3@30s#1")
		if a, b := g.sendings[1], g.sendings[2]; a.MessageID != b.MessageID || a.Position != b.Position {
			t.Errorf("sent as %+v and again as %+v", a, b)
		}
	})
}

// In the mode AtMostOnce a message is not sent again, whatever became of it.
func TestLanesAtMostOnce(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A")
		var handed []string
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route, OnFailed: func(_ context.Context, s order.Sending, c order.Cause, err error) error {
			handed = append(handed, fmt.Sprint(s.Operation, " ", c))
			return nil
		}})
		enqueueMany(t, l, "ann", 2)
		g := newGateway()
		g.answer = func(s order.Sending) error {
			if s.Position.Number == 1 {
				return context.DeadlineExceeded
			}
			return nil
		}
		stop := startLanes(t, l, g, &order.RunOptions{Mode: order.AtMostOnce})
		later(time.Minute)
		stop()
		g.want(t, "A/1/ann1@0s#1", "A/2/ann2@0s#1")
		if !slices.Equal(handed, []string{"ann1 timeout"}) {
			t.Errorf("handed over %v", handed)
		}
		wantStats(t, l, "A", order.LaneStats{Enqueued: 2, Sent: 1, Failed: order.Failures{Timeout: 1}})
	})
}

// Statistics are bounded, and so is what is kept of rates: neither mixes up accounts.
func TestLanesManyAccounts(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		const n = 10_100
		route := func(_ context.Context, customer string) (string, error) { return customer, nil }
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: route, Rate: func(string) order.Rate { return order.Rate{PerSecond: 1} }})
		for i := range n {
			enqueue(t, l, fmt.Sprint("1/", i), fmt.Sprint("account", i))
			enqueue(t, l, fmt.Sprint("2/", i), fmt.Sprint("account", i))
		}
		g := newGateway()
		stop := startLanes(t, l, g, &order.RunOptions{Poll: time.Hour})
		later(time.Minute)
		stop()
		last := map[string]time.Duration{}
		for _, s := range g.sendings {
			last[s.Account] = max(last[s.Account], s.Age)
		}
		if len(g.sendings) != 2*n || len(last) != n {
			t.Fatalf("%d were sent by %d accounts", len(g.sendings), len(last))
		}
		for account, age := range last {
			if age != time.Second {
				t.Fatalf("%s has sent its second after %v", account, age)
			}
		}
		stats := l.Stats()
		if len(stats) != 10_001 || stats[""].Enqueued != 2*(n-10_000) || stats[""].Sent != 2*(n-10_000) {
			t.Errorf("%d accounts are counted, the rest as %+v", len(stats), stats[""])
		}
	})
}

// Its methods panic.
type hostileError struct{}

func (hostileError) Error() string { panic("no") }
func (hostileError) Is(error) bool { panic("no") }
func (hostileError) As(any) bool   { panic("no") }

// Causes have names, and an error has the cause that Failed gave it.
func TestCauses(t *testing.T) {
	for err, want := range map[error]order.Cause{
		errors.New("x"):                                   order.CauseOther,
		hostileError{}:                                    order.CauseOther,
		context.DeadlineExceeded:                          order.CauseTimeout,
		context.Canceled:                                  order.CauseOther,
		&net.DNSError{IsTimeout: true}:                    order.CauseTimeout,
		&net.DNSError{}:                                   order.CauseOther,
		order.Failed(order.CauseRefused, nil):             order.CauseRefused,
		order.Failed(order.CauseNoReceipt, os.ErrInvalid): order.CauseNoReceipt,
		order.Failed(order.CauseRefused, context.DeadlineExceeded): order.CauseRefused,
	} {
		if got := order.CauseOf(err); got != want {
			t.Errorf("%T has the cause %v, want %v", err, got, want)
		}
	}
	if err := order.Failed(order.CauseRefused, os.ErrInvalid); !errors.Is(err, os.ErrInvalid) || err.Error() != os.ErrInvalid.Error() {
		t.Errorf("it does not wrap: %v", err)
	}
	for c, want := range map[order.Cause]string{order.CauseOther: "other", order.CauseTimeout: "timeout", order.CauseRefused: "refused",
		order.CauseNoReceipt: "no receipt", order.CauseNoAccount: "no account", order.CauseSwitched: "switched", order.CauseParked: "parked"} {
		if c.String() != want {
			t.Errorf("%d is called %s", c, c)
		}
	}
}

// A message that leaves its lane unsent is no delivery: its number is skipped, and
// the record says why, waits for a person if nobody took it, and can be listed.
func TestLanesSayWhatTheyGaveUp(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			buffer, err := order.New(order.NewMemory(), nil)
			require.NoError(t, err)
			options := &order.LanesOptions{Route: func(context.Context, string) (string, error) { return "a", nil }}
			if taken {
				options.OnFailed = func(context.Context, order.Sending, order.Cause, error) error { return nil }
			}
			lanes, err := order.NewLanes(buffer, options)
			require.NoError(t, err)
			for _, op := range []string{"one", "two", "three"} {
				_, err := lanes.Enqueue(t.Context(), order.Outbound{Operation: op, Customer: "c"})
				require.NoError(t, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			sent := 0
			begin := time.Now()
			require.NoError(t, lanes.Run(ctx, func(_ context.Context, s order.Sending) error {
				if sent++; sent == 3 {
					stop()
				}
				if s.Operation == "two" {
					return order.Failed(order.CauseNoReceipt, errors.New("no receipt"))
				}
				return nil
			}, nil))
			require.Less(t, time.Since(begin), time.Millisecond, "the lane went on at once")

			found, err := lanes.LookupOperation(t.Context(), "two")
			require.NoError(t, err)
			require.Equal(t, order.StateSkipped, found.State)
			require.Equal(t, order.ReasonDropped, found.Gap.Reason)
			require.Equal(t, "lanes", found.Gap.Actor)
			require.Equal(t, "no receipt", found.Gap.Note)
			gaps, err := buffer.Gaps(t.Context(), order.Query{Unresolved: true})
			require.NoError(t, err)
			require.Len(t, gaps, map[bool]int{false: 1, true: 0}[taken])
			account, err := lanes.Account(t.Context(), "a")
			require.NoError(t, err)
			require.EqualValues(t, 2, account.Ledgers[0].Delivered)
			require.EqualValues(t, 1, account.Ledgers[0].Skipped)
			require.Zero(t, buffer.Stats().Parked)
			require.EqualValues(t, 1, buffer.Stats().Dropped)
		})
	}
}
