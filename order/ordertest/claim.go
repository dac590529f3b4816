package ordertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/order"
)

// Which keys a claim takes.
var claimCases = []testCase{
	{name: "NothingToClaim", run: claimNothing},
	{name: "ClaimedKeyIsNotClaimedAgain", run: claimOnce},
	{name: "LapsedKeyIsDue", run: claimLapsed},
	{name: "ClaimTakesAtMostTheKeysAsked", run: claimKeys},
	{name: "KeysComeInTheOrderInWhichTheyBecameDue", run: claimOrder},
	{name: "ReleasedKeyGoesToTheEndOfTheLine", run: claimReleasedLast},
	{name: "KeyWithNothingDueIsNotClaimed", run: claimNotDue},
	{name: "TokensRise", run: claimTokens},
	{name: "TokenIsAtLeastTheTime", run: claimTokenTime},
	{name: "LeftIsTheLease", run: claimLeft},
	{name: "SameNonceSameAnswer", run: claimSameNonce},
	{name: "SameNonceAfterAPartialDelivery", run: claimSameNonceRest},
	{name: "SameNonceAfterTheReleaseIsNew", run: claimSameNonceReleased},
	{name: "SameNonceAfterTheLapseIsNew", run: claimSameNonceLapsed, once: true},
	{name: "NextIsTheTimeUntilTheNextKey", run: claimNext},
	{name: "MessagesCarryTheirAge", run: claimAge},
}

func claimNothing(e *env) {
	if c := e.ask(newAsk()); len(c.Claims) != 0 || c.Next != 0 {
		e.Fatalf("a claim on an empty store returned %+v", c)
	}
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	e.nothing()
}

func claimOnce(e *env) {
	e.buffered("k", 1)
	e.claim("k")
	e.nothing()
	e.buffered("k", 2)
	e.nothing()
	if a := e.account("k"); !a.Claimed {
		e.Fatalf("the account of a claimed key is %+v", a)
	}
}

func claimLapsed(e *env) {
	e.buffered("k", 1)
	first := e.lapsed("k")
	if a := e.account("k"); a.Claimed {
		e.Fatal("the account says that a lapsed key is claimed")
	}
	second := e.claim("k")
	if second.Token <= first.Token {
		e.Fatalf("the token %d came after %d", second.Token, first.Token)
	}
}

func claimKeys(e *env) {
	for i := range 7 {
		e.buffered(fmt.Sprint("k", i), 1)
	}
	var keys []string
	for _, want := range []int{3, 3, 1, 0} {
		a := newAsk()
		a.Keys = 3
		c := e.ask(a)
		if len(c.Claims) != want {
			e.Fatalf("a claim of 3 keys got %q, want %d", keysOf(c.Claims), want)
		}
		keys = append(keys, keysOf(c.Claims)...)
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != 7 {
		e.Fatalf("the claims got the keys %q", keys)
	}
}

func claimOrder(e *env) {
	keys := []string{"c", "a", "d", "b"}
	for _, k := range keys {
		e.buffered(k, 1)
		e.tick()
	}
	e.buffered("c", 2) // due before, and stays where it is
	var got []string
	for range keys {
		a := newAsk()
		a.Keys = 1
		got = append(got, keysOf(e.ask(a).Claims)...)
	}
	if !slices.Equal(got, keys) {
		e.Fatalf("the keys came as %q, want %q", got, keys)
	}
}

func claimReleasedLast(e *env) {
	e.buffered("a", 1, 2)
	e.tick()
	e.buffered("b", 1)
	one := newAsk()
	one.Keys = 1
	c := e.claimAs("a", one)
	e.tick()
	e.applied(deliver(c, 2), release(c))
	one = newAsk()
	one.Keys = 1
	e.claimAs("b", one)
	e.claim("a")
}

func claimNotDue(e *env) {
	e.buffered("k", 2) // 1 is missing, and its look is far away
	e.nothing()
	e.buffered("k", 1)
	c := e.claim("k")
	e.applied(retry(c, 1, longLease))
	e.nothing()
	e.buffered("parked", 1)
	e.applied(park(e.claim("parked"), 1))
	e.nothing()
}

func claimTokens(e *env) {
	var last uint64
	e.buffered("k", 1)
	for range 5 {
		c := e.claim("k")
		if c.Token <= last {
			e.Fatalf("the token %d came after %d", c.Token, last)
		}
		last = c.Token
		e.applied(release(c))
	}
}

func claimTokenTime(e *env) {
	e.buffered("a", 1)
	first := e.claim("a")
	e.sleep(2 * time.Millisecond)
	e.buffered("b", 1)
	second := e.claim("b")
	if second.Token < first.Token+2000 {
		e.Fatalf("the first token of a key is %d, 2 ms after %d of another; want microseconds", second.Token, first.Token)
	}
}

func claimLeft(e *env) {
	e.buffered("k", 1)
	c := e.claimFor("k", longLease)
	if c.Left <= longLease/2 || c.Left > longLease {
		e.Fatalf("of a lease of %v, %v is left", longLease, c.Left)
	}
}

func claimSameNonce(e *env) {
	e.buffered("a", 1, 2)
	e.buffered("b", 1)
	a := newAsk()
	first := e.ask(a).Claims
	e.buffered("c", 1)
	e.buffered("a", 3)
	second := e.ask(a).Claims
	if len(first) != 2 || len(second) != 2 {
		e.Fatalf("the first claim got %q, and sent again %q", keysOf(first), keysOf(second))
	}
	for _, c := range second {
		i := slices.IndexFunc(first, func(o order.Claim) bool { return o.Key == c.Key })
		if i < 0 || first[i].Token != c.Token {
			e.Fatalf("the first claim was %+v, and sent again %+v", first, second)
		}
		e.wantRun(c, numbersOf(first[i].Run)...)
		for _, m := range c.Run {
			if m.Attempt != 1 {
				e.Fatalf("a claim sent again began %v once more: attempt %d", m.Position, m.Attempt)
			}
		}
	}
	e.claim("c")
}

func claimSameNonceRest(e *env) {
	e.buffered("k", 1, 2, 3)
	a := newAsk()
	c := e.claimAs("k", a)
	e.buffered("k", 4)
	e.applied(deliver(c, 3))
	again := e.claimAs("k", a)
	e.wantRun(again, 3)
	e.wantAttempts(again, 1)
}

func claimSameNonceReleased(e *env) {
	e.buffered("k", 1)
	a := newAsk()
	first := e.claimAs("k", a)
	e.applied(release(first))
	second := e.claimAs("k", a)
	if second.Token <= first.Token {
		e.Fatalf("after the release the nonce got token %d, want more than %d", second.Token, first.Token)
	}
	e.wantAttempts(second, 2)
}

func claimSameNonceLapsed(e *env) {
	e.buffered("k", 1)
	a := newAsk()
	a.Lease = e.short
	first := e.claimAs("k", a)
	e.wait()
	second := e.claimAs("k", a)
	if second.Token <= first.Token {
		e.Fatalf("after the lapse the nonce got token %d, want more than %d", second.Token, first.Token)
	}
	e.wantAttempts(second, 2)
}

func claimNext(e *env) {
	e.buffered("k", 1)
	c := e.claim("k")
	e.applied(retry(c, 1, longLease))
	got := e.ask(newAsk())
	if got.Next < 0 || got.Next > longLease || got.Next != 0 && got.Next < longLease/2 {
		e.Fatalf("a key is due in %v, and Next is %v", longLease, got.Next)
	}
}

func claimAge(e *env) {
	e.buffered("k", 1)
	e.wait()
	e.buffered("k", 2)
	c := e.claim("k")
	if c.Run[0].Age < 2*e.short || c.Run[0].Age < c.Run[1].Age+e.short {
		e.Fatalf("the messages are %v and %v old, the first %v more", c.Run[0].Age, c.Run[1].Age, 2*e.short)
	}
	if e.virtual && (c.Run[0].Age != 2*e.short || c.Run[1].Age != 0) {
		e.Fatalf("the messages are %v and %v old, want %v and 0", c.Run[0].Age, c.Run[1].Age, 2*e.short)
	}
}

// What a run holds, and when its messages begin.
var runCases = []testCase{
	{name: "RunIsUnbroken", run: runUnbroken},
	{name: "RunEndsAtMessages", run: runMessages},
	{name: "RunEndsAtBytes", run: runBytes},
	{name: "AttemptIsWrittenBeforeTheHandler", run: runAttempt},
	{name: "BegunBeforeIsBegunAlone", run: runAlone},
	{name: "RunEndsBeforeOneBegunBefore", run: runEndsBefore},
	{name: "RetryUnbeginsWhatIsBehind", run: runRetryUnbegins},
	{name: "ParkUnbeginsWhatIsBehind", run: runParkUnbegins},
	{name: "ReleaseUnbegun", run: runUnbegun},
	{name: "ReleaseUnbegunAfterCrashes", run: runUnbegunCrashed},
	{name: "PoisonThatKillsTheProcessThreeTimes", run: runPoison},
	{name: "AttemptOfTheNextIsItsOwn", run: runNextAttempt},
}

func runUnbroken(e *env) {
	e.buffered("k", 3, 1, 2, 5, 6)
	c := e.claim("k")
	e.wantRun(c, 1, 2, 3)
	if c.Gap != nil {
		e.Fatalf("a claim with a run has the gap %+v", c.Gap)
	}
	e.applied(deliver(c, 4), release(c))
	e.nothing()
}

func runMessages(e *env) {
	e.buffered("k", 1, 2, 3, 4, 5)
	a := newAsk()
	a.Messages = 3
	c := e.claimAs("k", a)
	e.wantRun(c, 1, 2, 3)
	if !c.More {
		e.Fatal("a run that the limit of messages ended has no more")
	}
	e.applied(deliver(c, 4), release(c))
	if c = e.claim("k"); c.More {
		e.Fatal("a run that holds all has more")
	}
	e.wantRun(c, 4, 5)
}

func runBytes(e *env) {
	for n := uint64(1); n <= 4; n++ {
		e.answered(order.Buffered, withPayload("k", 1, n, "0123456789"))
	}
	a := newAsk()
	a.Bytes = 11
	c := e.claimAs("k", a)
	e.wantRun(c, 1, 2)
	if !c.More {
		e.Fatal("a run that the limit of bytes ended has no more")
	}
	e.applied(deliver(c, 3), release(c))
	a = newAsk()
	a.Bytes = 1
	c = e.claimAs("k", a)
	e.wantRun(c, 3)
	e.applied(deliver(c, 4), release(c))
	a = newAsk()
	a.Bytes = 10
	e.wantRun(e.claimAs("k", a), 4)
}

func runAttempt(e *env) {
	e.buffered("k", 1)
	for attempt := 1; attempt <= 3; attempt++ {
		c := e.lapsed("k") // the process died
		e.wantAttempts(c, attempt)
		if got := e.find("k", 1, 1).Message; got == nil || got.Attempt != attempt {
			e.Fatalf("in attempt %d Find says %+v", attempt, got)
		}
	}
}

func runAlone(e *env) {
	e.buffered("k", 1, 2, 3)
	e.wantAttempts(e.lapsed("k"), 1, 1, 1)
	for n := uint64(1); n <= 3; n++ {
		c := e.claim("k")
		e.wantRun(c, n)
		e.wantAttempts(c, 2)
		e.applied(deliver(c, n+1), release(c))
	}
}

func runEndsBefore(e *env) {
	e.buffered("k", 1, 2)
	c := e.claim("k")
	e.applied(deliver(c, 2), release(c)) // 2 was begun, and may have been handed over
	e.buffered("k", 3, 4)
	c = e.claim("k")
	e.wantRun(c, 2)
	e.wantAttempts(c, 2)
	e.applied(deliver(c, 3), release(c))
	c = e.claim("k")
	e.wantRun(c, 3, 4)
	e.wantAttempts(c, 1, 1)
}

func runRetryUnbegins(e *env) {
	e.buffered("k", 1, 2, 3)
	c := e.claim("k")
	e.applied(deliver(c, 2), retry(c, 2, 0))
	c = e.claim("k")
	e.wantRun(c, 2)
	e.wantAttempts(c, 2)
	if c.Run[0].Error != "it failed" {
		e.Fatalf("the error of the last attempt is %q", c.Run[0].Error)
	}
	e.applied(deliver(c, 3), release(c))
	c = e.claim("k")
	e.wantRun(c, 3)
	e.wantAttempts(c, 1)
	if c.Run[0].Error != "" {
		e.Fatalf("a message that never failed has the error %q", c.Run[0].Error)
	}
}

func runParkUnbegins(e *env) {
	e.buffered("k", 1, 2, 3)
	e.applied(park(e.claim("k"), 1))
	e.applied(person(order.KindDrop, "k", 1))
	c := e.claim("k")
	e.wantRun(c, 2, 3)
	e.wantAttempts(c, 1, 1)
}

func runUnbegun(e *env) {
	e.buffered("k", 1, 2, 3)
	c := e.claim("k")
	e.applied(deliver(c, 2), unbegun(c))
	c = e.claim("k")
	e.wantRun(c, 2, 3)
	e.wantAttempts(c, 1, 1)
	e.applied(unbegun(c))
	e.wantAttempts(e.claim("k"), 1, 1)
}

func runUnbegunCrashed(e *env) {
	e.buffered("k", 1, 2)
	e.lapsed("k")
	c := e.claim("k")
	e.wantAttempts(c, 2)
	e.applied(unbegun(c))
	c = e.claim("k")
	e.wantRun(c, 1)
	e.wantAttempts(c, 2)
	e.applied(deliver(c, 2), release(c))
	e.wantAttempts(e.claim("k"), 1) // 2 was unbegun with it
}

func runPoison(e *env) {
	e.buffered("k", 1, 2)
	e.buffered("other", 1)
	e.deliverOther("other")
	for attempt := 1; attempt <= 3; attempt++ {
		c := e.lapsed("k")
		if c.Run[0].Attempt != attempt {
			e.Fatalf("a message that killed its process %d times has attempt %d", attempt-1, c.Run[0].Attempt)
		}
	}
	c := e.claim("k")
	e.wantRun(c, 1)
	e.wantAttempts(c, 4)
	e.applied(park(c, 1))
	e.nothing()
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Parked: 1, Buffered: 1})
}

// deliverOther delivers all that one of several due keys holds, and releases the
// others untouched.
func (e *env) deliverOther(key string) {
	e.Helper()
	for _, c := range e.claims() {
		if c.Key == key {
			e.applied(deliver(c, c.Run[len(c.Run)-1].Position.Number+1), release(c))
		} else {
			e.applied(unbegun(c))
		}
	}
}

func runNextAttempt(e *env) {
	e.buffered("k", 1, 2)
	a := newAsk()
	a.Messages = 1
	c := e.claimAs("k", a)
	e.applied(retry(c, 1, 0))
	c = e.claim("k")
	e.wantAttempts(c, 2)
	e.applied(deliver(c, 2), release(c))
	e.wantAttempts(e.claim("k"), 1)
}
