package ordertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/order"
)

// What can be asked about keys.
var accountCases = []testCase{
	{name: "AccountOfNobody", run: accountNobody},
	{name: "AccountListsLedgersInOrder", run: accountOrder},
	{name: "AccountLimitsEndedEpochs", run: accountEnded},
	{name: "OldestIsWhatIsDeliveredNext", run: accountOldest},
	{name: "OldestOfAnEpochThatWaits", run: accountOldestWaiting},
	{name: "FindAnswersInOrder", run: findOrder},
	{name: "TotalsCountAllKeys", run: totalsCount},
}

func accountNobody(e *env) {
	if a := e.account("nobody"); len(a.Ledgers) != 0 || a.Arrivals != (order.Arrivals{}) || a.Claimed || a.Parked {
		e.Fatalf("the account of a key that does not exist is %+v", a)
	}
	if t := e.totals(); t != (order.Totals{}) {
		e.Fatalf("the totals of an empty store are %+v", t)
	}
}

func accountOrder(e *env) {
	for _, epoch := range []uint64{3, 9, 5} {
		e.answered(order.Buffered, at("k", epoch, 1))
	}
	want := func(epochs ...uint64) {
		e.Helper()
		var got []uint64
		for _, l := range e.account("k").Ledgers {
			got = append(got, l.Epoch)
		}
		if !slices.Equal(got, epochs) {
			e.Fatalf("the ledgers are of the epochs %v, want %v", got, epochs)
		}
	}
	want(3, 5, 9)
	e.deliverAllOf("k", 3, 1)
	want(5, 9, 3)
	e.deliverAllOf("k", 5, 1)
	want(9, 5, 3)
}

func accountEnded(e *env) {
	const epochs = order.MaxEpochs + 5
	for i := range uint64(epochs) {
		e.answered(order.Buffered, at("k", i+1, 1))
		e.deliverAllOf("k", i+1, 1)
	}
	ledgers := e.account("k").Ledgers
	if len(ledgers) != order.MaxEpochs+1 || ledgers[0].Epoch != epochs || ledgers[1].Epoch != epochs-1 || ledgers[1].Delivered != 1 {
		e.Fatalf("after %d epochs there are %d ledgers: %+v", epochs, len(ledgers), ledgers)
	}
}

func accountOldest(e *env) {
	e.buffered("k", 3)
	e.wait()
	e.buffered("k", 1)
	if a := e.account("k"); a.Oldest > 2*e.short && e.virtual || e.virtual && a.Oldest != 0 {
		e.Fatalf("the message that is delivered next came just now, and Oldest is %v", a.Oldest)
	}
	e.deliverAll("k", 1)
	a, t := e.account("k"), e.totals()
	if a.Oldest < 2*e.short || t.Oldest < a.Oldest || e.virtual && (a.Oldest != 2*e.short || t.Oldest != a.Oldest) {
		e.Fatalf("the message that is delivered next came %v ago, and Oldest is %v of the key, %v of all", 2*e.short, a.Oldest, t.Oldest)
	}
	e.buffered("k", 2)
	e.deliverAll("k", 2, 3)
	if a, t := e.account("k"), e.totals(); a.Oldest != 0 || t.Oldest != 0 {
		e.Fatalf("nothing waits, and Oldest is %v of the key, %v of all", a.Oldest, t.Oldest)
	}
}

func accountOldestWaiting(e *env) {
	wantOldest := func(want time.Duration) {
		e.Helper()
		a, t := e.account("k").Oldest, e.totals().Oldest
		if a < want || t < a || e.virtual && (a != want || t != want) {
			e.Fatalf("what is delivered next came %v ago, and Oldest is %v of the key, %v of all", want, a, t)
		}
	}
	e.applied(unordered("k", 3)) // the active epoch has nothing that waits
	e.answered(order.Buffered, at("k", 3, 1))
	e.wait()
	e.answered(order.Buffered, at("k", 2, 9))
	e.wait()
	wantOldest(2 * e.short) // of the lowest epoch that waits, although 3 waits longer
	e.buffered("k", 2)
	e.wait()
	wantOldest(2 * e.short)
	e.buffered("k", 1)
	e.deliverAll("k", 1, 2)
	wantOldest(4 * e.short)
}

func findOrder(e *env) {
	e.answered(order.Buffered, withID("a", 1, 1, "id", "body"))
	e.buffered("b", 2)
	places := []order.Place{
		{Key: "b", Position: order.Position{Epoch: 1, Number: 2}}, {ID: "id"}, {ID: "nobody"},
		{Key: "b", Position: order.Position{Epoch: 1, Number: 1}}, {Key: "b", Position: order.Position{Epoch: 2, Number: 1}},
		{Key: "a", Position: order.Position{Epoch: 1, Number: 1}}, {ID: "id"},
	}
	want := []order.State{
		order.StateBuffered, order.StateBuffered, order.StateUnknown, order.StateMissing, order.StateUnknown,
		order.StateBuffered, order.StateBuffered,
	}
	found, err := e.store.Find(context.Background(), e.p, places)
	if err != nil || len(found) != len(places) {
		e.Fatalf("Find of %d places returned %d and %v", len(places), len(found), err)
	}
	for i, f := range found {
		if f.State != want[i] || places[i].ID == "" && (f.Key != places[i].Key || f.Position != places[i].Position) {
			e.Fatalf("place %d, %+v, is found as %s at %s %v", i, places[i], stateName(f.State), f.Key, f.Position)
		}
	}
}

func totalsCount(e *env) {
	e.p.GapLook = 0
	e.buffered("idle", 1)
	e.deliverAll("idle", 1)
	e.buffered("waits", 1, 2)
	e.answered(order.Buffered, at("waits", 2, 5)) // of an epoch that waits, too
	e.parkKey("parked", 1, 2, 3)
	e.buffered("gap", 4)
	e.skipAndLate("late")
	t := e.totals()
	t.Oldest = 0
	if want := (order.Totals{Keys: 5, Buffered: 6, Parked: 1, LateWaiting: 1, OpenGaps: 1, Unresolved: 1}); t != want {
		e.Fatalf("the totals are %+v, want %+v", t, want)
	}
}

// parkKey makes a key whose first message is parked, while others may be due.
func (e *env) parkKey(key string, numbers ...uint64) {
	e.Helper()
	e.buffered(key, numbers...)
	for _, c := range e.claims() {
		if c.Key == key {
			e.applied(park(c, numbers[0]))
		} else {
			e.applied(unbegun(c))
		}
	}
}

// skipAndLate makes a key with a late message, while others may be due.
func (e *env) skipAndLate(key string) {
	e.Helper()
	e.buffered(key, 3)
	for _, c := range e.claims() {
		if c.Key == key {
			e.applied(skip(c, 3), deliver(c, 4))
		}
		e.applied(unbegun(c))
	}
	e.answered(order.Late, at(key, 1, 2))
}

// Lists, page by page.
var listCases = []testCase{
	{name: "GapsPages", run: gapsPages},
	{name: "GapsOfOneKey", run: gapsOneKey},
	{name: "ParkedPages", run: parkedPages},
	{name: "ParkedMessagesAreWhole", run: parkedWhole},
}

func gapsPages(e *env) {
	e.p.GapLook = 0
	var want []string
	keys := []string{"b", "A", "a", "ä", "b "}
	for _, key := range keys {
		e.buffered(key, 3)
		for _, c := range e.claims() {
			if c.Key == key {
				e.applied(skip(c, 3), deliver(c, 4))
			}
			e.applied(release(c))
		}
		e.buffered(key, 5, 7)
		e.answered(order.Buffered, at(key, 12, 1))
	}
	slices.Sort(keys)
	for _, key := range keys {
		want = append(want, fmt.Sprint(key, " 1 1"), fmt.Sprint(key, " 1 4"))
	}
	for _, n := range []int{1, 2, 3, 100} {
		var got []string
		q := order.Query{N: n}
		for range 2 * len(want) {
			page := e.gaps(q)
			for _, g := range page {
				got = append(got, fmt.Sprint(g.Key, " ", g.Epoch, " ", g.From))
				q.After = order.Cursor{Key: g.Key, Position: order.Position{Epoch: g.Epoch, Number: g.From}}
			}
			if len(page) < n {
				break
			}
		}
		if !slices.Equal(got, want) {
			e.Fatalf("in pages of %d the gaps are %q, want %q", n, got, want)
		}
	}
}

func gapsOneKey(e *env) {
	e.buffered("a", 2)
	e.buffered("ab", 2)
	e.buffered("b", 2)
	if gaps := e.allGaps("ab"); len(gaps) != 1 || gaps[0].Key != "ab" {
		e.Fatalf("the gaps of one key are %+v", gaps)
	}
	if gaps := e.gaps(order.Query{N: 10, Unresolved: true}); len(gaps) != 3 {
		e.Fatalf("%d open gaps are listed as unresolved, want 3", len(gaps))
	}
}

func parkedPages(e *env) {
	var want []string
	for i := range 7 {
		key := fmt.Sprint("k", 6-i)
		e.buffered(key, 1)
		e.applied(park(e.claim(key), 1))
		want = append(want, key)
	}
	slices.Sort(want)
	for _, n := range []int{1, 3, 7, 8} {
		var got []string
		q := order.Query{N: n}
		for range 2 * len(want) {
			page := e.parked(q)
			for _, m := range page {
				got = append(got, m.Key)
				q.After = order.Cursor{Key: m.Key, Position: m.Position}
			}
			if len(page) < n {
				break
			}
		}
		if !slices.Equal(got, want) {
			e.Fatalf("in pages of %d parked are %q, want %q", n, got, want)
		}
	}
	if p := e.parked(order.Query{Key: "k3", N: 10}); len(p) != 1 || p[0].Key != "k3" {
		e.Fatalf("parked of one key are %+v", p)
	}
}

func parkedWhole(e *env) {
	a := withID("k", 1, 1, "id", "the payload")
	a.Context = []byte("trace")
	e.answered(order.Buffered, a)
	e.lapsed("k")
	s := park(e.claim("k"), 1)
	s.Error = strings.Repeat("ä", 500)
	e.applied(s)
	p := e.parked(order.Query{N: 10})
	if len(p) != 1 {
		e.Fatalf("%d messages are parked, want 1", len(p))
	}
	m := p[0]
	if m.Key != "k" || m.Position != a.Position || m.ID != "id" || string(m.Payload) != "the payload" || string(m.Context) != "trace" ||
		m.Error != s.Error || m.Attempt != 2 || m.Late {
		e.Fatalf("the parked message is %+v", m)
	}
	if m.Age < 2*e.short {
		e.Fatalf("the parked message is %v old, and came %v ago", m.Age, 2*e.short)
	}
}
