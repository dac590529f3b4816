package ordertest

import "github.com/pawl-go/pawl/order"

// What is remembered of messages that have ended, and what by their IDs.
var windowCases = []testCase{
	{name: "WindowIsExact", run: windowExact},
	{name: "SkippedAndVoidAreExactForEver", run: windowRanges},
	{name: "BeyondTheWindowIsSettled", run: windowBeyond},
	{name: "LastOfAnEpochThatHasEnded", run: windowLast},
}

// fill pushes and delivers the numbers from first to last.
func (e *env) fill(key string, first, last uint64) {
	e.Helper()
	var arrivals []order.Arrival
	for n := first; n <= last; n++ {
		arrivals = append(arrivals, at(key, 1, n))
	}
	for i, a := range e.push(arrivals...) {
		if a.State != order.Buffered {
			e.Fatalf("%v was answered %s", arrivals[i].Position, arrivedName(a.State))
		}
	}
	c := e.claim(key)
	e.applied(deliver(c, last+1), release(c))
}

func windowExact(e *env) {
	e.fill("k", 1, 3*window)
	cursor := uint64(3*window + 1)
	for n := cursor - window + 1; n < cursor; n++ {
		e.wantState("k", order.StateDelivered, n)
		if a := e.answered(order.Duplicate, at("k", 1, n)); a.Unverified {
			e.Fatalf("the duplicate of number %d, %d below the cursor, is unverified in a window of %d", n, cursor-n, window)
		}
		e.answered(order.Conflict, withPayload("k", 1, n, "other"))
	}
	e.wantState("k", order.StateUnknown, cursor)
}

func windowRanges(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 3)
	c := e.claimGap("k")
	e.applied(void(c, 1, 2), skip(c, 3), release(c))
	e.fill("k", 4, 4+3*window)
	e.wantState("k", order.StateVoid, 1)
	e.wantState("k", order.StateSkipped, 2)
	l := e.ledger("k", 1)
	if l.Void != 1 || l.Skipped != 1 {
		e.Fatalf("the ledger is %+v, want one void and one skipped", l)
	}
	e.answered(order.Late, at("k", 1, 2))
	e.answered(order.Late, at("k", 1, 1))
}

func windowBeyond(e *env) {
	e.fill("k", 1, 200)
	for _, n := range []uint64{1, 2, 100} {
		if s := e.find("k", 1, n).State; s != order.StateSettled && s != order.StateDelivered {
			e.Fatalf("number %d, long delivered, is %s", n, stateName(s))
		}
	}
	a := e.push(at("k", 1, 1), withPayload("k", 1, 2, "other"))
	if a[0].State != order.Duplicate || a[1].State != order.Conflict && (a[1].State != order.Duplicate || !a[1].Unverified) {
		e.Fatalf("numbers that are long delivered were answered %+v, want duplicate, and conflict or an unverified duplicate", a)
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 201, Head: 201, Delivered: 200})
}

func windowLast(e *env) {
	e.fill("k", 1, 20)
	e.answered(order.Buffered, at("k", 2, 1))
	if !e.ledger("k", 1).Ended {
		e.Fatal("a delivered epoch has not ended when the next began")
	}
	for _, n := range []uint64{19, 20} {
		if s := e.find("k", 1, n).State; s != order.StateDelivered && s != order.StateSettled {
			e.Fatalf("number %d of an epoch that was delivered and has ended is %s", n, stateName(s))
		}
	}
	if s := e.find("k", 1, 21).State; s != order.StateUnknown {
		e.Fatalf("a number above the head of an ended epoch is %s", stateName(s))
	}
	e.answered(order.StaleEpoch, at("k", 1, 20))
	e.answered(order.StaleEpoch, at("k", 1, 21))
}

// Message IDs, and positions that the store assigns.
var idCases = []testCase{
	{name: "FoundByID", run: idFound},
	{name: "BodyIsKeptWithAnID", run: idKept},
	{name: "BodyIsKeptBeyondTheWindow", run: idBeyondWindow},
	{name: "FirstWithAnIDKeepsIt", run: idFirst},
	{name: "IDsOfAScopeAreOneNameSpace", run: idNameSpace},
	{name: "AssignedTakesTheNextNumber", run: assignNext},
	{name: "AssignedIsRemembered", run: assignRemembered},
	{name: "AssignedFollowsTheHighestEpoch", run: assignHighest},
	{name: "AssignedBeginsAHigherEpoch", run: assignBegins},
	{name: "AssignedKnowsPushedIDs", run: assignKnowsPushed},
	{name: "AssignedToAFullKey", run: assignFull},
	{name: "AssignedTwiceInOneBatch", run: assignTwiceInBatch},
}

func idFound(e *env) {
	e.answered(order.Buffered, withID("k", 1, 2, "id", "body"))
	f := e.findPlace(order.Place{ID: "id"})
	if f.State != order.StateBuffered || f.Key != "k" || f.Position != (order.Position{Epoch: 1, Number: 2}) {
		e.Fatalf("the ID is found as %s at %s %v", stateName(f.State), f.Key, f.Position)
	}
	if f.Message == nil || f.Message.ID != "id" || string(f.Message.Payload) != "body" {
		e.Fatalf("the message found is %+v", f.Message)
	}
	if f := e.findPlace(order.Place{ID: "other"}); f.State != order.StateUnknown || f.Message != nil {
		e.Fatalf("an unknown ID is found: %+v", f)
	}
	if f := e.find("nobody", 1, 1); f.State != order.StateUnknown || f.Key != "nobody" {
		e.Fatalf("an unknown key is found: %+v", f)
	}
}

func idKept(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.deliverAll("k", 1)
	f := e.findPlace(order.Place{ID: "id"})
	if f.State != order.StateDelivered || f.Message == nil || string(f.Message.Payload) != "body" {
		e.Fatalf("a delivered message with an ID is found as %s, %+v", stateName(f.State), f.Message)
	}
}

func idBeyondWindow(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.fill("k", 2, 4*window)
	f := e.findPlace(order.Place{ID: "id"})
	if f.Message == nil || string(f.Message.Payload) != "body" || f.State != order.StateDelivered && f.State != order.StateSettled {
		e.Fatalf("a message with an ID that left the window is found as %s, %+v", stateName(f.State), f.Message)
	}
	if a := e.answered(order.Duplicate, withID("k", 1, 1, "id", "body")); a.Unverified {
		e.Fatal("the duplicate of a message that is kept by its ID is unverified")
	}
	e.answered(order.Conflict, withID("k", 1, 1, "id", "other"))
}

func idFirst(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "first"))
	e.answered(order.Buffered, withID("k", 1, 2, "id", "second"))
	if f := e.findPlace(order.Place{ID: "id"}); f.Position.Number != 1 {
		e.Fatalf("of two messages with one ID, number %d is found", f.Position.Number)
	}
	e.wantRun(e.claim("k"), 1, 2)
}

func idNameSpace(e *env) {
	e.answered(order.Buffered, withID("a", 1, 1, "id", "first"))
	e.answered(order.Buffered, withID("b", 1, 1, "id", "second"))
	if f := e.findPlace(order.Place{ID: "id"}); f.Key != "a" {
		e.Fatalf("of two keys that have a message with one ID, %q is found", f.Key)
	}
}

// assign pushes a message that the store gives its position.
func (e *env) assign(want order.Arrived, key, id string) order.Answer {
	e.Helper()
	a := e.push(assigned(key, id))[0]
	if a.State != want {
		e.Fatalf("the assigned %q was answered %s, want %s", id, arrivedName(a.State), arrivedName(want))
	}
	return a
}

func assignNext(e *env) {
	for i, id := range []string{"a", "b", "c"} {
		a := e.assign(order.Buffered, "k", id)
		if a.Key != "k" || a.Position != (order.Position{Epoch: 1, Number: uint64(i + 1)}) {
			e.Fatalf("the assigned %q is at %s %v", id, a.Key, a.Position)
		}
	}
	c := e.claim("k")
	e.wantRun(c, 1, 2, 3)
	if c.Run[1].ID != "b" || string(c.Run[1].Payload) != "payload of b" {
		e.Fatalf("the second assigned message is %+v", c.Run[1])
	}
}

func assignRemembered(e *env) {
	first := e.assign(order.Buffered, "a", "id")
	again := e.assign(order.Duplicate, "b", "id") // another route, the same operation
	if again.Key != "a" || again.Position != first.Position {
		e.Fatalf("an assigned message sent again is at %s %v, want a %v", again.Key, again.Position, first.Position)
	}
	e.deliverAll("a", 1)
	if again := e.assign(order.Duplicate, "a", "id"); again.Position != first.Position {
		e.Fatalf("an assigned message sent again after its delivery is at %v", again.Position)
	}
	if a := e.account("b"); len(a.Ledgers) != 0 {
		e.Fatalf("the key of a duplicate began: %+v", a)
	}
}

func assignHighest(e *env) {
	e.answered(order.Buffered, at("k", 1, 2))
	e.answered(order.Buffered, at("k", 7, 5))
	if a := e.assign(order.Buffered, "k", "id"); a.Position != (order.Position{Epoch: 7, Number: 6}) {
		e.Fatalf("the assigned message is at %v, want the head of the highest epoch", a.Position)
	}
}

func assignBegins(e *env) {
	e.p.Start = 5
	for _, step := range []struct {
		id    string
		epoch uint64
		want  order.Position
	}{
		{"a", 0, order.Position{Epoch: 1, Number: 5}},
		{"b", 1, order.Position{Epoch: 1, Number: 6}},
		{"c", 3, order.Position{Epoch: 3, Number: 5}},
		{"d", 2, order.Position{Epoch: 3, Number: 6}}, // not higher: the highest there is
		{"e", 3, order.Position{Epoch: 3, Number: 7}},
	} {
		a := assigned("k", step.id)
		a.Position.Epoch = step.epoch
		if got := e.answered(order.Buffered, a); got.Position != step.want {
			e.Fatalf("the assigned %q with epoch %d is at %v, want %v", step.id, step.epoch, got.Position, step.want)
		}
	}
	e.p.Start = 0
	if a := e.assign(order.Buffered, "other", "f"); a.Position != (order.Position{Epoch: 1, Number: 1}) {
		e.Fatalf("the first assigned message is at %v", a.Position)
	}
	e.answered(order.Buffered, at("zero", 0, 3))
	if a := e.assign(order.Buffered, "zero", "g"); a.Position != (order.Position{Epoch: 1, Number: 1}) {
		e.Fatalf("behind epoch 0 an assigned message is at %v", a.Position)
	}
}

func assignKnowsPushed(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "payload of id"))
	if a := e.assign(order.Duplicate, "k", "id"); a.Position.Number != 1 {
		e.Fatalf("the assigned message is at %v", a.Position)
	}
}

func assignFull(e *env) {
	e.p.MaxBuffered = 2
	e.buffered("k", 2) // so that the next is not the cursor
	e.assign(order.Buffered, "k", "a")
	e.assign(order.Full, "k", "b")
	e.assign(order.Duplicate, "k", "a")
}

func assignTwiceInBatch(e *env) {
	answers := e.push(assigned("k", "a"), assigned("k", "a"), assigned("k", "b"))
	e.wantAnswers(answers, order.Buffered, order.Duplicate, order.Buffered)
	if answers[0].Position != answers[1].Position || answers[2].Position.Number != 2 {
		e.Fatalf("the positions are %v, %v and %v", answers[0].Position, answers[1].Position, answers[2].Position)
	}
}
