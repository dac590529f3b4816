package order_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// A switchboard routes customers to accounts, and can be changed.
type switchboard struct {
	mu       sync.Mutex
	accounts map[string]string
	err      error
}

func (s *switchboard) route(_ context.Context, customer string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	return s.accounts[customer], nil
}

func (s *switchboard) move(customer, account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts == nil {
		s.accounts = map[string]string{}
	}
	s.accounts[customer] = account
}

func newSwitchboard(pairs ...string) *switchboard {
	s := &switchboard{}
	for i := 0; i < len(pairs); i += 2 {
		s.move(pairs[i], pairs[i+1])
	}
	return s
}

func newLanes(t testing.TB, s order.Store, opts *order.LanesOptions) *order.Lanes {
	t.Helper()
	l, err := order.NewLanes(newBuffer(t, s, &order.Options{Scope: "lanes"}), opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func enqueue(t testing.TB, l *order.Lanes, operation, customer string) order.Queued {
	t.Helper()
	q, err := l.Enqueue(context.Background(), order.Outbound{Operation: operation, Customer: customer, Payload: []byte("to " + customer)})
	if err != nil {
		t.Fatalf("Enqueue %s: %v", operation, err)
	}
	return q
}

// wantQueued checks where an operation is.
func wantQueued(t testing.TB, got order.Queued, account string, epoch, number uint64, id string, repeated bool) {
	t.Helper()
	want := order.Queued{Account: account, Position: order.Position{Epoch: epoch, Number: number}, MessageID: id, Repeated: repeated}
	if got != want {
		t.Errorf("queued as %+v, want %+v", got, want)
	}
}

// A gateway notes what it is asked to send.
type gateway struct {
	mu       sync.Mutex
	sent     []string // account/number/operation@time#attempt
	sendings []order.Sending
	begin    time.Time
	answer   func(s order.Sending) error
	busy     map[string]bool
	overlap  bool
}

func newGateway() *gateway { return &gateway{begin: time.Now(), busy: map[string]bool{}} }

func (g *gateway) send(_ context.Context, s order.Sending) error {
	g.mu.Lock()
	g.sendings = append(g.sendings, s)
	g.sent = append(g.sent, fmt.Sprintf("%s/%d/%s@%v#%d", s.Account, s.Position.Number, s.Operation, time.Since(g.begin), s.Attempt))
	answer := g.answer
	g.overlap = g.overlap || g.busy[s.Account]
	g.busy[s.Account] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.busy[s.Account] = false
	}()
	if answer == nil {
		return nil
	}
	return answer(s)
}

func (g *gateway) want(t testing.TB, want ...string) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if fmt.Sprint(g.sent) != fmt.Sprint(want) {
		t.Errorf("sent\n%v, want\n%v", g.sent, want)
	}
	if g.overlap {
		t.Error("two messages of one account at once")
	}
}

// count is how many were sent.
func (g *gateway) count() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sendings)
}

func startLanes(t testing.TB, l *order.Lanes, g *gateway, opts *order.RunOptions) (stop func()) {
	return startRun(t, func(ctx context.Context) error { return l.Run(ctx, g.send, opts) })
}

// laneBubble runs a test in virtual time over a memory store.
func laneBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func wantStats(t testing.TB, l *order.Lanes, account string, want order.LaneStats) {
	t.Helper()
	synctest.Wait()
	if got := l.Stats()[account]; got != want {
		t.Errorf("account %q counted %+v, want %+v", account, got, want)
	}
}

// An operation that is enqueued again is where it was: while it waits, when it was
// sent, and after the customer has moved, or has no account any more.
func TestLanesEnqueueTwice(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		board := newSwitchboard("ann", "A", "bob", "A")
		l := newLanes(t, s, &order.LanesOptions{Route: board.route})
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", false)
		wantQueued(t, enqueue(t, l, "op-2", "bob"), "A", 1, 2, "out:A:2", false)
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", true)
		board.move("ann", "B")
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", true)
		g := newGateway()
		stop := startLanes(t, l, g, nil)
		synctest.Wait()
		stop()
		g.want(t, "A/1/op-1@0s#1", "A/2/op-2@0s#1")
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", true)
		board.move("ann", "")
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", true)
		board.err = errors.New("the directory is down")
		wantQueued(t, enqueue(t, l, "op-1", "ann"), "A", 1, 1, "out:A:1", true)
		if _, err := l.Enqueue(t.Context(), order.Outbound{Operation: "op-3", Customer: "ann"}); !errors.Is(err, board.err) {
			t.Errorf("an operation that is new was answered %v", err)
		}
		board.err = nil
		wantStats(t, l, "A", order.LaneStats{Enqueued: 2, Repeated: 5, Sent: 2})
		if a := account(t, newBuffer(t, s, &order.Options{Scope: "lanes"}), "B"); len(a.Ledgers) > 0 {
			t.Errorf("the move alone made a lane: %+v", a)
		}
	})
}

// The same operation from many goroutines is enqueued once.
func TestLanesEnqueueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		board := newSwitchboard("ann", "A")
		var mu sync.Mutex
		first := 0
		var all sync.WaitGroup
		for range 20 {
			l := newLanes(t, s, &order.LanesOptions{Route: board.route}) // a process each
			all.Go(func() {
				q, err := l.Enqueue(context.Background(), order.Outbound{Operation: "op", Customer: "ann"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || q.MessageID != "out:A:1" {
					t.Errorf("%+v, %v", q, err)
				}
				if !q.Repeated {
					first++
				}
			})
		}
		all.Wait()
		if first != 1 {
			t.Errorf("it was new %d times", first)
		}
	})
}

// A customer who moves A -> B -> A takes the next numbers of each. Nobody else of B
// notices, and no position and no message ID comes twice.
func TestLanesMove(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		board := newSwitchboard("ann", "A", "bob", "B")
		l := newLanes(t, s, &order.LanesOptions{Route: board.route})
		seen := map[string]bool{}
		add := func(op, customer, account string, number uint64) {
			q := enqueue(t, l, op, customer)
			wantQueued(t, q, account, 1, number, fmt.Sprintf("out:%s:%d", account, number), false)
			if seen[q.MessageID] {
				t.Errorf("%s came twice", q.MessageID)
			}
			seen[q.MessageID] = true
		}
		add("1", "ann", "A", 1)
		add("2", "bob", "B", 1)
		add("3", "bob", "B", 2)
		board.move("ann", "B")
		add("4", "ann", "B", 3)
		add("5", "bob", "B", 4)
		board.move("ann", "C") // a lane that was never used
		add("6", "ann", "C", 1)
		board.move("ann", "A")
		add("7", "ann", "A", 2)
		add("8", "bob", "B", 5)
		g := newGateway()
		stop := startLanes(t, l, g, &order.RunOptions{Concurrency: 1})
		synctest.Wait()
		stop()
		byLane := map[string][]string{}
		for _, x := range g.sendings {
			byLane[x.Account] = append(byLane[x.Account], x.Operation+x.Customer)
		}
		if got, want := fmt.Sprint(byLane), "map[A:[1ann 7ann] B:[2bob 3bob 4ann 5bob 8bob] C:[6ann]]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		for _, name := range []string{"A", "B", "C"} {
			a, err := l.Account(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if x := a.Ledgers[0]; x.Skipped+x.Void+x.Missing+x.Late != 0 || x.Delivered != x.Head-1 || len(a.Ledgers) != 1 {
				t.Errorf("lane %s has %+v", name, a.Ledgers)
			}
		}
	})
}

// An account that is registered anew begins at 1 in a new epoch, with message IDs of
// its own, behind what waits of the old one.
func TestLanesEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		board := newSwitchboard("ann", "A")
		epoch := uint64(0)
		l := newLanes(t, s, &order.LanesOptions{Route: board.route, Epoch: func(string) uint64 { return epoch }, BizType: "sms"})
		wantQueued(t, enqueue(t, l, "1", "ann"), "A", 1, 1, "sms:A:1", false)
		wantQueued(t, enqueue(t, l, "2", "ann"), "A", 1, 2, "sms:A:2", false)
		epoch = 5
		wantQueued(t, enqueue(t, l, "3", "ann"), "A", 5, 1, "sms:A~5:1", false)
		wantQueued(t, enqueue(t, l, "1", "ann"), "A", 1, 1, "sms:A:1", true)
		epoch = 2 // by a process that has not heard of it
		wantQueued(t, enqueue(t, l, "4", "ann"), "A", 5, 2, "sms:A~5:2", false)
		g := newGateway()
		stop := startLanes(t, l, g, nil)
		g.want(t, "A/1/1@0s#1", "A/2/2@0s#1", "A/1/3@0s#1", "A/2/4@0s#1")
		stop()
		for id, want := range map[string]order.State{
			"sms:A:1": order.StateDelivered, "sms:A~5:2": order.StateDelivered, "sms:A~5:3": order.StateUnknown, "sms:A~4:1": order.StateUnknown, "sms:Z:1": order.StateUnknown,
		} {
			found, err := l.Lookup(t.Context(), id)
			if err != nil || found.State != want {
				t.Errorf("%s is %v, %v, want %v", id, found.State, err, want)
			}
		}
	})
}

// A message is found by its message ID and by its operation, with what it was
// enqueued with.
func TestLanesLookup(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "a:b%")
		l := newLanes(t, order.NewMemory(), &order.LanesOptions{Route: board.route})
		q, err := l.Enqueue(t.Context(), order.Outbound{Operation: "op 1", Customer: "ann", Payload: []byte("hello"), Context: []byte("trace")})
		if err != nil {
			t.Fatal(err)
		}
		wantQueued(t, q, "a:b%", 1, 1, "out:a%3Ab%25:1", false)
		byID, err := l.Lookup(t.Context(), q.MessageID)
		if err != nil {
			t.Fatal(err)
		}
		byOperation, err := l.LookupOperation(t.Context(), "op 1")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []order.Found{byID, byOperation} {
			if f.State != order.StateBuffered || f.Key != q.Account || f.Position != q.Position || f.Message == nil {
				t.Fatalf("found %+v", f)
			}
			s, ok := l.Sending(*f.Message)
			if !ok || s.Customer != "ann" || s.Operation != "op 1" || s.MessageID != q.MessageID || string(s.Payload) != "hello" || string(s.Context) != "trace" {
				t.Errorf("it is %+v, %t", s, ok)
			}
		}
		if f, err := l.LookupOperation(t.Context(), "another"); err != nil || f.State != order.StateUnknown {
			t.Errorf("%+v, %v", f, err)
		}
		if _, ok := l.Sending(order.Message{Context: []byte("of somebody else")}); ok {
			t.Error("a message of somebody else is a sending")
		}
		for _, id := range []string{"", "out", "out:A", "in:A:1", "out:A:0", "out:A:01", "out:A:+1", "out:A~1:1", "out:A~0:1", "out:A~x:1", "out:A~:1", "out:A~2~3:1", "out:A~+2:1",
			"out:A:9223372036854775808", "out:A~9223372036854775808:1", "out:A%3a:1", "out::1"} {
			if _, err := l.Lookup(t.Context(), id); !errors.Is(err, order.ErrInvalid) {
				t.Errorf("%q is answered %v", id, err)
			}
		}
	})
}

func TestLanesRefuse(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A", "long", strings.Repeat("x", 401), "tilde", "A~2", "nul", "a\x00", "bytes", "\xff", "colons", strings.Repeat(":", 200))
		mem := order.NewMemory()
		l := newLanes(t, mem, &order.LanesOptions{Route: board.route})
		for name, m := range map[string]order.Outbound{
			"no operation": {Customer: "ann"}, "no customer": {Operation: "op"}, "long operation": {Operation: strings.Repeat("x", 513), Customer: "ann"},
			"NUL": {Operation: "a\x00b", Customer: "ann"}, "not UTF-8": {Operation: "op", Customer: "\xff"},
			"large payload": {Operation: "op", Customer: "ann", Payload: make([]byte, 256<<10+1)},
			"large context": {Operation: "op", Customer: "ann", Context: make([]byte, 3<<10+1)},
			"long account":  {Operation: "op", Customer: "long"}, "account with ~": {Operation: "op", Customer: "tilde"},
			"account with NUL": {Operation: "op", Customer: "nul"}, "account not UTF-8": {Operation: "op", Customer: "bytes"},
			"long message ID": {Operation: "op", Customer: "colons"},
		} {
			if _, err := l.Enqueue(t.Context(), m); !errors.Is(err, order.ErrInvalid) {
				t.Errorf("%s is answered %v", name, err)
			}
		}
		if _, err := l.Enqueue(t.Context(), order.Outbound{Operation: "op", Customer: "nobody"}); !errors.Is(err, order.ErrNoAccount) {
			t.Errorf("no account is answered %v", err)
		}
		wantStats(t, l, "", order.LaneStats{Failed: order.Failures{NoAccount: 1}})
		wantErr(t, l.Run(t.Context(), nil, nil), order.ErrInvalid)
		wantErr(t, l.Run(t.Context(), newGateway().send, &order.RunOptions{Batch: -1}), order.ErrInvalid)
		if totals, err := newBuffer(t, mem, &order.Options{Scope: "lanes"}).Totals(t.Context()); err != nil || totals != (order.Totals{}) {
			t.Errorf("something was stored: %+v, %v", totals, err)
		}
		// The longest of everything is taken.
		board.move(strings.Repeat("c", 512), strings.Repeat("a", 400))
		q, err := l.Enqueue(t.Context(), order.Outbound{Operation: strings.Repeat("o", 512), Customer: strings.Repeat("c", 512), Context: make([]byte, 3<<10)})
		if err != nil || q.Position.Number != 1 {
			t.Errorf("%+v, %v", q, err)
		}
	})
}

func TestNewLanesRefuses(t *testing.T) {
	route := newSwitchboard().route
	good := newBuffer(t, order.NewMemory(), nil)
	for name, tt := range map[string]struct {
		b *order.Buffer
		o *order.LanesOptions
	}{
		"nil buffer":    {nil, &order.LanesOptions{Route: route}},
		"nil options":   {good, nil},
		"no route":      {good, &order.LanesOptions{}},
		"policy":        {good, &order.LanesOptions{Route: route, OnSwitch: 7}},
		"business type": {good, &order.LanesOptions{Route: route, BizType: strings.Repeat("x", 65)}},
		"its bytes":     {good, &order.LanesOptions{Route: route, BizType: "\xff"}},
		"no memory":     {newBuffer(t, order.NewMemory(), &order.Options{KeepBody: -1}), &order.LanesOptions{Route: route}},
		"no numbers": {newBuffer(t, order.NewMemory(), &order.Options{OnUnavailable: func(context.Context, []order.Message) []error { return nil }}),
			&order.LanesOptions{Route: route}},
	} {
		if _, err := order.NewLanes(tt.b, tt.o); !errors.Is(err, order.ErrInvalid) {
			t.Errorf("%s is answered %v", name, err)
		}
	}
}

// A lane that is full says so and stores nothing; what it has already is still
// found.
func TestLanesFull(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		board := newSwitchboard("ann", "A", "bob", "B")
		l, err := order.NewLanes(newBuffer(t, order.NewMemory(), &order.Options{MaxBuffered: 2}), &order.LanesOptions{Route: board.route})
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, l, "1", "ann")
		enqueue(t, l, "2", "ann")
		_, err = l.Enqueue(t.Context(), order.Outbound{Operation: "3", Customer: "ann"})
		wantErr(t, err, order.ErrFull)
		wantQueued(t, enqueue(t, l, "2", "ann"), "A", 1, 2, "out:A:2", true)
		wantQueued(t, enqueue(t, l, "4", "bob"), "B", 1, 1, "out:B:1", false)
		stop := startLanes(t, l, newGateway(), nil)
		synctest.Wait()
		stop()
		wantQueued(t, enqueue(t, l, "3", "ann"), "A", 1, 3, "out:A:3", false)
	})
}

// Enqueue says that the store did not answer, and repeating it is harmless, also
// when it was stored all the same.
func TestLanesUnavailable(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		board := newSwitchboard("ann", "A")
		l := newLanes(t, s, &order.LanesOptions{Route: board.route})
		s.set(func(f *faulty) { f.after = fail("push") })
		_, err := l.Enqueue(t.Context(), order.Outbound{Operation: "1", Customer: "ann"})
		wantErr(t, err, order.ErrUnavailable)
		s.set(func(f *faulty) { f.after = nil })
		wantQueued(t, enqueue(t, l, "1", "ann"), "A", 1, 1, "out:A:1", true)
		s.set(func(f *faulty) { f.before = fail("find") })
		board.move("ann", "")
		_, err = l.Enqueue(t.Context(), order.Outbound{Operation: "1", Customer: "ann"})
		wantErr(t, err, order.ErrNoAccount)
		wantErr(t, err, order.ErrUnavailable)
	})
}

// No phone number of an operation, a customer or an account comes into an error or
// a log.
func TestLanesKeepPhoneNumbersToThemselves(t *testing.T) {
	laneBubble(t, func(t *testing.T) {
		const phone = "+4917012345678"
		var logged bytes.Buffer
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, &order.Options{MaxBuffered: 4, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		board := newSwitchboard(phone, "acc"+phone, phone+"x", "acc~"+phone)
		l, err := order.NewLanes(b, &order.LanesOptions{Route: board.route})
		if err != nil {
			t.Fatal(err)
		}
		add := func(m order.Outbound) error {
			_, err := l.Enqueue(t.Context(), m)
			return err
		}
		for i := range 4 {
			if err := add(order.Outbound{Operation: fmt.Sprint("op", phone, i), Customer: phone}); err != nil {
				t.Fatal(err)
			}
		}
		errs := []error{
			add(order.Outbound{Operation: "op" + phone, Customer: phone}),                                           // full
			add(order.Outbound{Operation: "op" + phone, Customer: phone + "nobody"}),                                // no account
			add(order.Outbound{Operation: "op" + phone, Customer: phone + "x"}),                                     // no good one
			add(order.Outbound{Operation: "op\x00" + phone, Customer: phone}),                                       // no good operation
			add(order.Outbound{Operation: "op" + phone, Customer: "\xff" + phone}),                                  // no good customer
			add(order.Outbound{Operation: "op" + phone, Customer: phone, Payload: make([]byte, 1<<20)}),             // too large
			func() error { _, err := l.Lookup(t.Context(), "in:acc"+phone+":1"); return err }(),                     // not of these lanes
			func() error { _, err := l.LookupOperation(t.Context(), phone+strings.Repeat("x", 600)); return err }(), // no good operation
		}
		s.set(func(f *faulty) { f.before = fail("push") })
		errs = append(errs, add(order.Outbound{Operation: "op" + phone, Customer: phone}))
		s.set(func(f *faulty) { f.before = nil })
		g := newGateway()
		g.answer = func(s order.Sending) error {
			switch s.Position.Number {
			case 1:
				return order.Failed(order.CauseRefused, errors.New("not "+s.Customer))
			case 2:
				panic("no " + s.Customer)
			}
			return errors.New("no " + s.Customer)
		}
		stop := startLanes(t, l, g, &order.RunOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Second)})
		later(time.Minute)
		stop()
		for i, err := range errs {
			if err == nil || strings.Contains(err.Error(), phone[1:]) {
				t.Errorf("error %d is %v", i, err)
			}
		}
		for line := range strings.Lines(logged.String()) {
			if strings.Contains(line, phone[1:]) {
				t.Errorf("logged: %s", line)
			}
		}
		if !strings.Contains(logged.String(), "was not sent") || !strings.Contains(logged.String(), "parked") {
			t.Errorf("too little was logged:\n%s", logged.String())
		}
	})
}
