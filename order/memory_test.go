package order_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

var memoryParams = order.Params{
	Scope: "s", Start: 1, Window: 1024, MaxBuffered: 10_000, MaxAhead: 1_000_000,
	GapLook: time.Second, KeepBody: time.Hour, KeepGaps: time.Hour,
}

func numbered(key string, n uint64) order.Arrival {
	payload := fmt.Sprint(key, " ", n)
	a := order.Arrival{Message: order.Message{Key: key, Position: order.Position{Epoch: 1, Number: n}, Payload: []byte(payload)}}
	copy(a.Digest[:], payload)
	return a
}

func pushed(t testing.TB, m *order.Memory, p order.Params, arrivals ...order.Arrival) {
	t.Helper()
	answers, err := m.Push(context.Background(), p, arrivals)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.State != order.Buffered {
			t.Fatalf("%v was answered %v", arrivals[i].Position, a.State)
		}
	}
}

func claimed(t testing.TB, m *order.Memory, p order.Params) []order.Claim {
	t.Helper()
	a := order.Ask{Keys: 10, Messages: 64, Bytes: 1 << 20, Lease: time.Minute}
	rand.Read(a.Nonce[:])
	c, err := m.Claim(context.Background(), p, a)
	if err != nil {
		t.Fatal(err)
	}
	return c.Claims
}

func settled(t testing.TB, m *order.Memory, p order.Params, s ...order.Settlement) {
	t.Helper()
	if errs, err := m.Settle(context.Background(), p, s); err != nil || errs != nil {
		t.Fatal(errs, err)
	}
}

func TestMemoryDeliversInOrder(t *testing.T) {
	m, p := order.NewMemory(), memoryParams
	const n = 1000
	var got []uint64
	for from := uint64(1); from < n; from += 100 {
		for i := from + 99; i >= from; i-- {
			pushed(t, m, p, numbered("k", i))
		}
		for c := claimed(t, m, p); len(c) == 1; c = claimed(t, m, p) {
			for _, msg := range c[0].Run {
				got = append(got, msg.Position.Number)
				if want := fmt.Sprint("k ", msg.Position.Number); string(msg.Payload) != want || msg.Attempt != 1 {
					t.Fatalf("message %+v", msg)
				}
			}
			s := order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c[0].Token, Epoch: 1, To: got[len(got)-1] + 1}
			settled(t, m, p, s, order.Settlement{Kind: order.KindRelease, Key: "k", Token: c[0].Token, Epoch: 1})
		}
	}
	if len(got) != n || !slices.IsSorted(got) {
		t.Fatalf("delivered %v", got)
	}
	account, err := m.Account(context.Background(), "s", "k")
	want := order.Ledger{Epoch: 1, Base: 1, Cursor: n + 1, Head: n + 1, Delivered: n}
	if err != nil || account.Ledgers[0] != want {
		t.Fatalf("the account is %+v (%v)", account, err)
	}
}

func TestMemorySkipsAGapAndTakesTheLateOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := order.NewMemory(), memoryParams
		p.Late = true
		pushed(t, m, p, numbered("k", 1), numbered("k", 4))
		c := claimed(t, m, p)[0]
		settled(t, m, p, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c.Token, Epoch: 1, To: 2},
			order.Settlement{Kind: order.KindRelease, Key: "k", Token: c.Token})
		if len(claimed(t, m, p)) != 0 {
			t.Fatal("a gap was claimed before its look")
		}
		time.Sleep(p.GapLook)
		c = claimed(t, m, p)[0]
		if c.Gap == nil || c.Gap.From != 2 || c.Gap.To != 4 || c.Gap.Age != p.GapLook {
			t.Fatalf("the gap is %+v", c.Gap)
		}
		settled(t, m, p, order.Settlement{Kind: order.KindSkip, Key: "k", Token: c.Token, Epoch: 1, To: 4, Reason: order.ReasonTimeout},
			order.Settlement{Kind: order.KindRelease, Key: "k", Token: c.Token})
		answers, err := m.Push(context.Background(), p, []order.Arrival{numbered("k", 3), numbered("k", 3)})
		if err != nil || answers[0].State != order.Late || answers[1].State != order.Duplicate {
			t.Fatal(answers, err)
		}
		c = claimed(t, m, p)[0]
		if len(c.Late) != 1 || len(c.Run) != 1 || c.Late[0].Position.Number != 3 || c.Run[0].Position.Number != 4 {
			t.Fatalf("the claim is %+v", c)
		}
		account, _ := m.Account(context.Background(), "s", "k")
		want := order.Ledger{Epoch: 1, Base: 1, Cursor: 4, Head: 5, Delivered: 1, Skipped: 1, Late: 1, Buffered: 1}
		if account.Ledgers[0] != want || account.LateWaiting != 1 {
			t.Fatalf("the account is %+v", account)
		}
	})
}

// TestMemoryManyIdleKeys shows what a key costs that has nothing to do: memory,
// and neither a goroutine nor a timer, nor time of those that have.
func TestMemoryManyIdleKeys(t *testing.T) {
	keys := 1_000_000
	if testing.Short() || raceEnabled {
		keys = 20_000
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the collector would take most of the time
	m, p := order.NewMemory(), memoryParams
	goroutines, before := runtime.NumGoroutine(), heapInUse()
	arrivals := make([]order.Arrival, 1000)
	for first := 0; first < keys; first += len(arrivals) {
		for i := range arrivals {
			arrivals[i] = numbered(fmt.Sprint("key ", first+i), 1)
		}
		pushed(t, m, p, arrivals...)
		ask := order.Ask{Keys: len(arrivals), Messages: 1, Bytes: 1, Lease: time.Minute, Nonce: [16]byte{1, byte(first), byte(first >> 8), byte(first >> 16)}}
		c, err := m.Claim(context.Background(), p, ask)
		if err != nil || len(c.Claims) != len(arrivals) {
			t.Fatal(len(c.Claims), err)
		}
		var s []order.Settlement
		for _, k := range c.Claims {
			s = append(s, order.Settlement{Kind: order.KindDeliver, Key: k.Key, Token: k.Token, Epoch: 1, To: 2},
				order.Settlement{Kind: order.KindRelease, Key: k.Key, Token: k.Token})
		}
		settled(t, m, p, s...)
	}
	perKey := (heapInUse() - before) / uint64(keys)
	t.Logf("an idle key costs %d bytes, its name of 10 bytes included", perKey)
	if perKey > 900 {
		t.Errorf("an idle key costs %d bytes, want at most 900", perKey)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines run, want %d", n, goroutines)
	}
	start := time.Now()
	for n := uint64(2); n < 1002; n++ {
		pushed(t, m, p, numbered("key 7", n))
		c := claimed(t, m, p)
		settled(t, m, p, order.Settlement{Kind: order.KindDeliver, Key: "key 7", Token: c[0].Token, Epoch: 1, To: n + 1},
			order.Settlement{Kind: order.KindRelease, Key: "key 7", Token: c[0].Token})
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("1000 messages of one key among %d took %v", keys, took)
	}
	total, err := m.Totals(context.Background(), "s")
	if err != nil || total != (order.Totals{Keys: keys}) {
		t.Errorf("the totals are %+v (%v)", total, err)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestMemoryEndedEpochs shows that an epoch that has ended costs what the doc of
// Memory says, whatever there was in its window.
func TestMemoryEndedEpochs(t *testing.T) {
	const epochs, numbers = 2000, 200
	m, p := order.NewMemory(), memoryParams
	before := heapInUse()
	arrivals := make([]order.Arrival, numbers)
	for epoch := uint64(1); epoch <= epochs; epoch++ {
		for i := range arrivals {
			arrivals[i] = numbered("k", uint64(i+1))
			arrivals[i].Position.Epoch = epoch
		}
		pushed(t, m, p, arrivals...)
		for range 4 {
			if c := claimed(t, m, p); len(c) == 1 {
				to := c[0].Run[len(c[0].Run)-1].Position.Number + 1
				settled(t, m, p, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c[0].Token, Epoch: epoch, To: to},
					order.Settlement{Kind: order.KindRelease, Key: "k", Token: c[0].Token})
			}
		}
	}
	perEpoch := (heapInUse() - before) / epochs
	t.Logf("an epoch of %d numbers that has ended costs %d bytes", numbers, perEpoch)
	if perEpoch > 600 {
		t.Errorf("an epoch of %d numbers that has ended costs %d bytes, want at most 600", numbers, perEpoch)
	}
	account, err := m.Account(context.Background(), "s", "k")
	if err != nil || len(account.Ledgers) != order.MaxEpochs+1 || account.Ledgers[1].Delivered != numbers {
		t.Errorf("the account is %+v (%v)", account, err)
	}
	runtime.KeepAlive(m)
}

// TestMemoryForgetsTheWindowOfAnEpochThatHasEnded shows what becomes of a message
// whose KeepBody has passed, and which is remembered for the window alone.
func TestMemoryForgetsTheWindowOfAnEpochThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, m, p := context.Background(), order.NewMemory(), memoryParams
		a := numbered("k", 1)
		a.ID = "id"
		pushed(t, m, p, a)
		c := claimed(t, m, p)[0]
		settled(t, m, p, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c.Token, Epoch: 1, To: 2},
			order.Settlement{Kind: order.KindRelease, Key: "k", Token: c.Token})
		time.Sleep(2 * p.KeepBody)
		if n, err := m.Sweep(ctx, p, 10); err != nil || n != 0 {
			t.Fatalf("Sweep forgot %d (%v) of what is within the window", n, err)
		}
		state := func() order.State {
			found, err := m.Find(ctx, p, []order.Place{{ID: "id"}})
			if err != nil {
				t.Fatal(err)
			}
			return found[0].State
		}
		if s := state(); s != order.StateDelivered {
			t.Fatalf("a message within the window is %v by its ID", s)
		}
		a.Position.Epoch, a.ID = 2, ""
		pushed(t, m, p, a)
		if s := state(); s != order.StateUnknown {
			t.Fatalf("a message of an epoch that has ended is %v by its ID, long after KeepBody", s)
		}
	})
}
