package ordertest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/order"
)

// What a push is answered, rule by rule.
var pushCases = []testCase{
	{name: "NewNumberIsBuffered", run: pushNew},
	{name: "EqualPayloads", run: pushEqualPayloads},
	{name: "ResendAsNewNumber", run: pushResendAsNew},
	{name: "RepeatedNumberIsDuplicate", run: pushRepeated},
	{name: "SameNumberOtherBody", run: pushOtherBody},
	{name: "SameNumberOtherID", run: pushOtherID},
	{name: "ConflictDoesNotChangeTheFirst", run: pushConflictKeeps},
	{name: "SameMessageTwiceInOneBatch", run: pushTwiceInBatch},
	{name: "BatchTakesEffectInOrder", run: pushBatchOrder},
	{name: "EveryMessageOfALargeBatchIsStored", run: pushLargeBatch},
	{name: "StaleHead", run: pushStaleHead},
	{name: "NumberBelowTheBaseIsStale", run: pushBelowBase},
	{name: "StartAtTheFirstThatArrives", run: pushStartAtFirst},
	{name: "StartAt101", run: pushStartAt101},
	{name: "Around2To53", run: pushAround2To53},
	{name: "MaxNumber", run: pushMaxNumber},
	{name: "TooFarAhead", run: pushTooFar},
	{name: "FullKeyTakesOnlyTheCursor", run: pushFull},
	{name: "FullConcernsOneKey", run: pushFullOneKey},
	{name: "RefusedLeavesNothingBehind", run: pushRefusedLeavesNothing},
	{name: "FieldsAreKept", run: pushFields},
	{name: "PayloadsAreBytes", run: pushBytes},
	{name: "NamesAreExact", run: pushNames},
	{name: "ScopesAreApart", run: pushScopes},
	{name: "SlicesAreNotRetained", run: pushNotRetained},
	{name: "ArrivalsAreCounted", run: pushCounts, once: true},
}

func pushNew(e *env) {
	e.buffered("k", 1, 3)
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 2, Missing: 1})
	e.wantState("k", order.StateBuffered, 1, 3)
	e.wantState("k", order.StateMissing, 2)
	e.wantState("k", order.StateUnknown, 4)
}

func pushEqualPayloads(e *env) {
	for n := uint64(1); n <= 3; n++ {
		e.answered(order.Buffered, withPayload("k", 1, n, "tick"))
	}
	c := e.claim("k")
	e.wantRun(c, 1, 2, 3)
	for _, m := range c.Run {
		if string(m.Payload) != "tick" {
			e.Fatalf("message %v has the payload %q", m.Position, m.Payload)
		}
	}
}

func pushResendAsNew(e *env) {
	e.answered(order.Buffered, withPayload("k", 1, 1, "hello"))
	e.answered(order.Buffered, withPayload("k", 1, 3, "hello"))
	e.answered(order.Buffered, withPayload("k", 1, 2, "world"))
	e.wantRun(e.claim("k"), 1, 2, 3)
}

func pushRepeated(e *env) {
	e.buffered("k", 1, 2)
	if a := e.answered(order.Duplicate, at("k", 1, 2)); a.Unverified {
		e.Fatal("the duplicate of a buffered message is unverified")
	}
	e.deliverAll("k", 1, 2)
	if a := e.answered(order.Duplicate, at("k", 1, 1)); a.Unverified {
		e.Fatal("the duplicate of a message delivered just now is unverified")
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 3, Delivered: 2})
}

func pushOtherBody(e *env) {
	e.buffered("k", 1, 2)
	e.answered(order.Conflict, withPayload("k", 1, 1, "other"))
	e.deliverAll("k", 1, 2)
	e.answered(order.Conflict, withPayload("k", 1, 2, "other"))
	e.answered(order.Duplicate, at("k", 1, 2))
}

func pushOtherID(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "a", "same"))
	e.answered(order.Conflict, withID("k", 1, 1, "b", "same"))
	e.answered(order.Duplicate, withID("k", 1, 1, "a", "same"))
}

func pushConflictKeeps(e *env) {
	e.buffered("k", 1)
	e.answered(order.Conflict, withPayload("k", 1, 1, "other"))
	if m := e.claim("k").Run[0]; string(m.Payload) != string(at("k", 1, 1).Payload) {
		e.Fatalf("after a conflict the payload is %q", m.Payload)
	}
}

func pushTwiceInBatch(e *env) {
	a := at("k", 1, 1)
	other := withPayload("k", 1, 1, "other")
	e.wantAnswers(e.push(a, a, other), order.Buffered, order.Duplicate, order.Conflict)
	e.wantRun(e.claim("k"), 1)
}

func (e *env) wantAnswers(answers []order.Answer, want ...order.Arrived) {
	e.Helper()
	for i, a := range answers {
		if a.State != want[i] {
			e.Fatalf("arrival %d was answered %s, want %s", i, arrivedName(a.State), arrivedName(want[i]))
		}
	}
}

func pushBatchOrder(e *env) {
	e.p.Start = 0
	answers := e.push(at("k", 1, 5), at("other", 1, 1), at("k", 1, 4), at("k", 1, 6), at("k", 1, 6))
	e.wantAnswers(answers, order.Buffered, order.Buffered, order.StaleEpoch, order.Buffered, order.Duplicate)
	e.wantLedger("k", order.Ledger{Epoch: 1, Base: 5, Cursor: 5, Head: 7, Buffered: 2})
}

func pushLargeBatch(e *env) {
	const numbers, keys = 512, 7
	arrivals := make([]order.Arrival, numbers)
	for i := range arrivals {
		arrivals[i] = at(fmt.Sprint("k", i%keys), 1, uint64(numbers/keys+1-i/keys))
	}
	for i, a := range e.push(arrivals...) {
		if a.State != order.Buffered {
			e.Fatalf("arrival %d of %d was answered %s", i, numbers, arrivedName(a.State))
		}
	}
	if t := e.totals(); t.Buffered != numbers || t.Keys != keys {
		e.Fatalf("the totals are %+v, want %d buffered in %d keys", t, numbers, keys)
	}
}

func pushStaleHead(e *env) {
	e.buffered("k", 1, 2)
	e.deliverAll("k", 1, 2)
	e.answered(order.Duplicate, at("k", 1, 1))
	e.answered(order.Conflict, withPayload("k", 1, 2, "a replay"))
	e.nothing()
	e.buffered("k", 3)
	e.deliverAll("k", 3)
}

func pushBelowBase(e *env) {
	e.p.Start = 10
	e.buffered("k", 12)
	e.wantLedger("k", order.Ledger{Epoch: 1, Base: 10, Cursor: 10, Head: 13, Buffered: 1, Missing: 2})
	e.answered(order.StaleEpoch, at("k", 1, 9))
	e.buffered("k", 10)
	e.deliverAll("k", 10)
	e.answered(order.StaleEpoch, at("k", 1, 9))
	e.wantState("k", order.StateUnknown, 9)
}

func pushStartAtFirst(e *env) {
	e.p.Start = 0
	e.buffered("k", 7, 9, 8)
	e.wantLedger("k", order.Ledger{Epoch: 1, Base: 7, Cursor: 7, Head: 10, Buffered: 3})
	e.deliverAll("k", 7, 8, 9)
}

func pushStartAt101(e *env) {
	e.p.Start = 0
	e.buffered("late-comer", 101, 102)
	e.deliverAll("late-comer", 101, 102)
	e.p.Start = 101
	e.buffered("told", 102, 101)
	e.deliverAll("told", 101, 102)
	e.p.Start = 1
	e.buffered("strict", 101)
	e.nothing() // 1 to 100 are missing
	e.wantLedger("strict", order.Ledger{Epoch: 1, Cursor: 1, Head: 102, Buffered: 1, Missing: 100})
}

func pushAround2To53(e *env) {
	const n = uint64(1) << 53
	e.p.Start = n - 2
	e.buffered("k", n+2, n+1, n, n-1, n-2)
	e.wantState("k", order.StateBuffered, n-2, n-1, n, n+1, n+2)
	e.wantState("k", order.StateUnknown, n+3)
	e.answered(order.Duplicate, at("k", 1, n+1))
	c := e.claim("k")
	e.wantRun(c, n-2, n-1, n, n+1, n+2)
	e.applied(deliver(c, n+1), unbegun(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Base: n - 2, Cursor: n + 1, Head: n + 3, Delivered: 3, Buffered: 2})
	e.deliverAll("k", n+1, n+2)
	// Numbers as large as those of clocks, which differ in the last digits only.
	const id = uint64(1727000000000123456)
	e.p.Start = id
	for i := uint64(3); i > 0; i-- {
		e.answered(order.Buffered, at("snow", id, id+i-1))
	}
	c = e.claim("snow")
	e.wantRun(c, id, id+1, id+2)
	e.applied(deliver(c, id+3), release(c))
}

func pushMaxNumber(e *env) {
	const last = uint64(order.MaxNumber)
	e.p.Start = last - 2
	e.answered(order.Buffered, at("k", last, last))
	e.answered(order.Buffered, at("k", last, last-2))
	c := e.claim("k")
	e.wantRun(c, last-2)
	e.applied(deliver(c, last-1), release(c))
	e.wantLedger("k", order.Ledger{Epoch: last, Base: last - 2, Cursor: last - 1, Head: last + 1, Delivered: 1, Buffered: 1, Missing: 1})
	e.answered(order.Buffered, at("k", last, last-1))
	c = e.claim("k")
	e.wantRun(c, last-1, last)
	e.applied(deliver(c, last+1), release(c))
	e.wantLedger("k", order.Ledger{Epoch: last, Base: last - 2, Cursor: last + 1, Head: last + 1, Delivered: 3})
	e.answered(order.Duplicate, at("k", last, last))
	e.nothing()
}

func pushTooFar(e *env) {
	e.p.MaxAhead = 10
	e.buffered("k", 1, 10)
	e.answered(order.TooFar, at("k", 1, 11))
	e.answered(order.TooFar, at("k", 1, 9e15))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 11, Buffered: 2, Missing: 8})
	e.deliverAll("k", 1)
	e.buffered("k", 11)
	e.answered(order.TooFar, at("k", 1, 12))
}

func pushFull(e *env) {
	e.p.MaxBuffered = 3
	e.buffered("k", 2, 3, 4)
	e.answered(order.Full, at("k", 1, 5))
	e.answered(order.Duplicate, at("k", 1, 4))
	e.answered(order.Full, at("k", 2, 2)) // of a later epoch, too
	e.buffered("k", 1)                    // what lets the others go
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 5, Buffered: 4})
	e.deliverAll("k", 1, 2, 3, 4)
	e.buffered("k", 5)
}

func pushFullOneKey(e *env) {
	e.p.MaxBuffered = 1
	e.buffered("k", 2)
	e.answered(order.Full, at("k", 1, 3))
	e.buffered("other", 2)
}

func pushRefusedLeavesNothing(e *env) {
	e.p.MaxAhead = 5
	e.p.Start = 10
	e.answered(order.TooFar, at("k", 1, 15))
	e.answered(order.StaleEpoch, at("k", 1, 9))
	if a := e.account("k"); len(a.Ledgers) != 0 {
		e.Fatalf("a key that took nothing has the ledgers %+v", a.Ledgers)
	}
	e.buffered("k", 11)
	e.answered(order.TooFar, at("k", 2, 15))
	e.answered(order.StaleEpoch, at("k", 2, 9))
	if a := e.account("k"); len(a.Ledgers) != 1 || a.Ledgers[0].Epoch != 1 {
		e.Fatalf("an epoch that took nothing has a ledger: %+v", a.Ledgers)
	}
}

func pushFields(e *env) {
	a := withID("k", 1, 1, "id-1", "the payload")
	a.Context = []byte("trace")
	a.Attempt, a.Late, a.Error, a.Age = 7, true, "of the caller", longLease // the store's, and ignored
	e.answered(order.Buffered, a)
	m := e.claim("k").Run[0]
	if m.Key != "k" || m.Position != a.Position || m.ID != "id-1" || string(m.Payload) != "the payload" || string(m.Context) != "trace" {
		e.Fatalf("the message is %+v", m)
	}
	if m.Attempt != 1 || m.Late || m.Error != "" || m.Age >= longLease {
		e.Fatalf("the message has attempt %d, late %t, error %q, age %v", m.Attempt, m.Late, m.Error, m.Age)
	}
	f := e.find("k", 1, 1)
	if f.Message == nil || f.Message.ID != "id-1" || string(f.Message.Payload) != "the payload" || string(f.Message.Context) != "trace" {
		e.Fatalf("Find says %+v", f.Message)
	}
}

func pushBytes(e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bodies := [][]byte{all, nil, {0}, {0xff, 0xfe, 0}, bytes.Repeat([]byte{0, 1, 0xc3}, 40_000)}
	for i, b := range bodies {
		a := withPayload("k", 1, uint64(i+1), string(b))
		if i != 1 {
			a.Context = b[:min(len(b), 4096)]
		}
		e.answered(order.Buffered, a)
	}
	for i, m := range e.claim("k").Run {
		if !bytes.Equal(m.Payload, bodies[i]) || i != 1 && !bytes.Equal(m.Context, bodies[i][:min(len(bodies[i]), 4096)]) {
			e.Fatalf("payload %d of %d bytes came back with %d, its context with %d", i, len(bodies[i]), len(m.Payload), len(m.Context))
		}
	}
}

func pushNames(e *env) {
	names := []string{
		"a", "A", "a ", " a", "ä", "a\u0308", "%", "_", "a:1", "a/1", "{a}", "a{b", "*", "?", "'", "\"", "\\", "\n", "日本", "\U0001F600",
		strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("日", 170),
	}
	for _, name := range names {
		e.answered(order.Buffered, withID(name, 1, 1, name, "payload of "+name))
	}
	claims := e.claims()
	if len(claims) != len(names) {
		e.Fatalf("%d keys were claimed, want %d", len(claims), len(names))
	}
	for _, c := range claims {
		if want := "payload of " + c.Key; string(c.Run[0].Payload) != want || c.Run[0].ID != c.Key {
			e.Fatalf("key %q has the message %q with the payload %q", c.Key, c.Run[0].ID, c.Run[0].Payload)
		}
	}
	for _, name := range names {
		if f := e.findPlace(order.Place{ID: name}); f.Key != name {
			e.Fatalf("the message with the ID %q is found at the key %q", name, f.Key)
		}
	}
}

func pushScopes(e *env) {
	a := withID("k", 1, 1, "id", "payload")
	e.answered(order.Buffered, a)
	e.deliverAll("k", 1)
	first := e.p.Scope
	e.p.Scope = "scope-10"
	if a := e.account("k"); len(a.Ledgers) != 0 {
		e.Fatalf("another scope knows the key: %+v", a)
	}
	if f := e.findPlace(order.Place{ID: "id"}); f.State != order.StateUnknown {
		e.Fatalf("another scope knows the ID: %+v", f)
	}
	e.nothing()
	e.answered(order.Buffered, a)
	c := e.claim("k")
	e.applied(park(c, 1))
	e.p.Scope = first
	if t := e.totals(); t.Keys != 1 || t.Buffered+t.Parked != 0 || len(e.parked(order.Query{N: 10})) != 0 {
		e.Fatalf("a scope counts what is in another: %+v", t)
	}
	e.nothing()
}

func pushNotRetained(e *env) {
	a := withPayload("k", 1, 1, "the payload")
	a.Context = []byte("trace")
	e.answered(order.Buffered, a)
	copy(a.Payload, "overwritten")
	copy(a.Context, "XXXXX")
	ask := newAsk()
	first := e.claimAs("k", ask).Run[0]
	copy(first.Payload, "overwritten")
	second := e.claimAs("k", ask).Run[0]
	if string(second.Payload) != "the payload" || string(second.Context) != "trace" {
		e.Fatalf("the payload is %q and the context %q after the caller changed its own", second.Payload, second.Context)
	}
}

func pushCounts(e *env) {
	e.p.MaxAhead, e.p.MaxBuffered, e.p.Start = 20, 3, 2
	e.buffered("k", 2, 4)
	e.answered(order.Duplicate, at("k", 1, 2))
	e.answered(order.Conflict, withPayload("k", 1, 4, "other"))
	e.answered(order.StaleEpoch, at("k", 1, 1))
	e.answered(order.TooFar, at("k", 1, 22))
	e.buffered("k", 6)
	e.answered(order.Full, at("k", 1, 7))
	c := e.claim("k")
	e.applied(deliver(c, 3), skip(c, 4), release(c))
	e.answered(order.Late, at("k", 1, 3))
	e.answered(order.StaleEpoch, at("k", 0, 3))
	want := order.Arrivals{Pushed: 10, Accepted: 3, Duplicate: 1, Conflict: 1, Late: 1, Stale: 2, Full: 1, TooFar: 1}
	if got := e.account("k").Arrivals; got != want {
		e.Fatalf("the arrivals are %+v, want %+v", got, want)
	}
}
