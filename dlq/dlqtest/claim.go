package dlqtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What a claim gets.
var claimCases = []testCase{
	{name: "ClaimBeginsTheFirstLetterOfALane", run: claimBegins},
	{name: "ClaimOfNothing", run: claimNothing},
	{name: "LettersOfAKeyComeInOrder", run: claimOrder},
	{name: "AReviewHoldsUpItsKeyAndNoOther", run: claimBlocked},
	{name: "LettersWithoutKeyAreApart", run: claimApart},
	{name: "ALetterIsDueAfterItsDelay", run: claimDelay},
	{name: "AParkedLetterWaitsForItsOwnDelay", run: claimParkedDelay},
	{name: "LanesComeInTheOrderInWhichTheyBecameDue", run: claimDueOrder},
	{name: "AReleasedLaneComesBehindOthers", run: claimReleasedOrder},
	{name: "AnUnblockedLaneComesBehindOthers", run: claimUnblockedOrder},
	{name: "ClaimTakesAtMostN", run: claimAtMost},
	{name: "ClaimStopsAtItsBytes", run: claimBytes},
	{name: "ClaimedLaneIsNotClaimedAgain", run: claimOnce},
	{name: "LapsedLaneIsDue", run: claimLapsed},
	{name: "SameNonceSameAnswer", run: claimNonce},
	{name: "SameNonceAfterAllIsSettled", run: claimNonceSpent},
	{name: "SameNonceAfterTheLease", run: claimNonceLapsed},
	{name: "SameNonceAndALetterTakenAway", run: claimNonceTaken},
	{name: "NextIsTheNextDelay", run: claimNext},
	{name: "TokensRise", run: claimTokens},
	{name: "LeftIsTheLease", run: claimLeft},
}

func claimBegins(e *env) {
	e.letters("k", "a", "b")
	c := e.claim("a")
	if c.Record.Tries != 1 || string(c.Record.Body) != "body of a" || c.Record.Fingerprint != printA || c.Record.Log.Total() != 1 || c.Lane != "kk" {
		e.Fatalf("a claim is %+v", c)
	}
	e.wantState("a", dlq.StateWaiting, 1)
	e.wantState("b", dlq.StateWaiting, 0)
}

func claimNothing(e *env) {
	e.nothing()
	a := newAsk()
	a.Stream = "unknown"
	if c := e.ask(a); len(c.Claims) != 0 || c.Next != 0 {
		e.Fatalf("a claim of an unknown stream got %+v", c)
	}
}

func claimOrder(e *env) {
	e.letters("k", "c", "a", "b")
	for _, id := range []string{"c", "a", "b"} {
		c := e.claim(id)
		e.nothing()
		e.applied(resolve(c))
	}
	e.nothing()
}

func claimBlocked(e *env) {
	e.letters("k", "a", "b")
	e.letters("other", "c")
	e.applied(resolve(e.claimable("a", "c")[1]))
	e.wantTotals(2, 0, 1, 0, 0)
	e.nothing()
}

func claimApart(e *env) {
	e.letters("", "a", "b")
	e.letters("a", "c") // the key a is not the letter a
	e.claimable("a", "b", "c")
}

func claimDelay(e *env) {
	l := letter("a", "k")
	l.Delay = longLease
	e.answered(dlq.Added, l)
	e.nothing()
	l = letter("b", "other")
	l.Delay = e.short
	e.answered(dlq.Added, l)
	e.wait()
	e.claim("b")
}

func claimParkedDelay(e *env) {
	e.letters("k", "a")
	l := letter("b", "k")
	l.Delay = longLease
	e.answered(dlq.Added, l)
	e.applied(resolve(e.claim("a")))
	e.nothing()
}

func claimDueOrder(e *env) {
	for i, key := range []string{"q", "w", "e", "r", "t"} {
		e.letters(key, fmt.Sprint("l", i))
	}
	a := newAsk()
	a.N = 2
	for _, want := range [][]string{{"l0", "l1"}, {"l2", "l3"}, {"l4"}} {
		a.Nonce = nonce()
		if got := claimedIDs(e.ask(a).Claims); !slices.Equal(got, want) {
			e.Fatalf("a claim got the letters %q, want %q", got, want)
		}
	}
}

func claimReleasedOrder(e *env) {
	e.letters("k1", "a", "b")
	c := e.claim("a")
	e.letters("k2", "c")
	e.applied(resolve(c)) // b becomes due now, after c
	e.tick()
	a := newAsk()
	a.N = 1
	if got := claimedIDs(e.ask(a).Claims); !slices.Equal(got, []string{"c"}) {
		e.Fatalf("a claim got the letters %q, want c, which was due first", got)
	}
}

func claimUnblockedOrder(e *env) {
	for _, k := range []dlq.ChangeKind{dlq.ChangeDiscard, dlq.ChangeSkip, dlq.ChangeForget} {
		id := k.String()
		e.letters(id, "first of "+id, "next of "+id)
		e.letters("", "other than "+id)
		e.does(k, "first of "+id) // the next becomes due now
		e.tick()
		a := newAsk()
		a.N = 1
		if got := claimedIDs(e.ask(a).Claims); !slices.Equal(got, []string{"other than " + id}) {
			e.Fatalf("after the %v a claim got the letters %q, want the other, which was due first", k, got)
		}
		e.claim("next of " + id)
	}
}

func claimAtMost(e *env) {
	for i := range 5 {
		e.letters(fmt.Sprint("k", i), fmt.Sprint("l", i))
	}
	a := newAsk()
	a.N = 3
	if c := e.ask(a).Claims; len(c) != 3 {
		e.Fatalf("a claim of 3 lanes got %d", len(c))
	}
	a = newAsk()
	if c := e.ask(a).Claims; len(c) != 2 {
		e.Fatalf("the next claim got %d lanes, want 2", len(c))
	}
}

func claimBytes(e *env) {
	for i := range 4 {
		l := letter(fmt.Sprint("l", i), "")
		l.Body = make([]byte, 1000)
		e.answered(dlq.Added, l)
		e.tick()
	}
	a := newAsk()
	a.Bytes = 1500
	if c := e.ask(a).Claims; len(c) != 2 {
		e.Fatalf("a claim of 1500 bytes got %d letters of 1000, want 2", len(c))
	}
	a = newAsk()
	a.Bytes = 1
	if c := e.ask(a).Claims; len(c) != 1 {
		e.Fatalf("a claim of one byte got %d letters, want 1", len(c))
	}
	e.does(dlq.ChangeEdit, "l3")
	e.claim("l3")
}

func claimOnce(e *env) {
	e.letters("k", "a", "b")
	e.claim("a")
	e.nothing()
}

func claimLapsed(e *env) {
	e.letters("k", "a", "b")
	c := e.lapsed("a")
	d := e.claim("a")
	if d.Token <= c.Token || d.Record.Tries != 2 {
		e.Fatalf("the claim %+v was followed by %+v", c, d)
	}
}

func claimNonce(e *env) {
	e.letters("k", "a")
	e.letters("other", "b")
	a := newAsk()
	first := e.ask(a).Claims
	e.letters("third", "c")
	second := e.ask(a).Claims
	if len(first) != 2 || len(second) != 2 {
		e.Fatalf("an ask got %q, and sent again %q", claimedIDs(first), claimedIDs(second))
	}
	for _, c := range second {
		if c.Record.Tries != 1 || !slices.ContainsFunc(first, func(f dlq.Claim) bool { return f.Lane == c.Lane && f.Token == c.Token }) {
			e.Fatalf("an ask got %+v, and sent again %+v", first, second)
		}
	}
	e.claim("c")
}

func claimNonceSpent(e *env) {
	e.letters("k", "a", "b")
	a := newAsk()
	e.applied(resolve(e.ask(a).Claims[0]))
	if c := e.ask(a).Claims; len(c) != 1 || c[0].Record.ID != "b" {
		e.Fatalf("an ask whose claims are settled got %q, want b", claimedIDs(c))
	}
}

func claimNonceLapsed(e *env) {
	e.letters("k", "a")
	a := newAsk()
	a.Lease = e.short
	first := e.ask(a).Claims[0]
	e.wait()
	a.Lease = longLease
	if c := e.ask(a).Claims; len(c) != 1 || c[0].Token <= first.Token || c[0].Record.Tries != 2 {
		e.Fatalf("an ask whose lease has lapsed got %+v, want a new claim", c)
	}
}

func claimNonceTaken(e *env) {
	e.letters("k", "a")
	e.letters("other", "b")
	a := newAsk()
	e.ask(a)
	e.does(dlq.ChangeEdit, "a")
	if c := e.ask(a).Claims; len(c) != 1 || c[0].Record.ID != "b" {
		e.Fatalf("an ask, one of whose letters was taken away, got %q, want b", claimedIDs(c))
	}
}

func claimNext(e *env) {
	l := letter("a", "k")
	l.Delay = longLease
	e.answered(dlq.Added, l)
	if c := e.ask(newAsk()); c.Next < 0 || c.Next > longLease {
		e.Fatalf("a lane is due in an hour, and Next is %v", c.Next)
	}
	e.letters("other", "b")
	b := newAsk()
	b.Lease = longLease / 2
	if c := e.ask(b); len(c.Claims) != 1 || c.Next < 0 || c.Next > longLease/2 {
		e.Fatalf("a lease ends in half an hour, and Next is %v after %d claims", c.Next, len(c.Claims))
	}
}

func claimTokens(e *env) {
	e.letters("k", "a")
	var last uint64
	before := e.record("a").Put.UnixMicro()
	for range 4 {
		c := e.claim("a")
		if c.Token <= last || c.Token < uint64(before) {
			e.Fatalf("the token %d follows %d and the time %d", c.Token, last, before)
		}
		last = c.Token
		e.applied(release(c))
	}
	e.applied(resolve(e.claim("a")))
	e.letters("k", "b")
	if c := e.claim("b"); c.Token <= last {
		e.Fatalf("the token %d follows %d", c.Token, last)
	}
}

func claimLeft(e *env) {
	e.letters("k", "a")
	if c := e.claimFor("a", time.Hour); c.Left <= 0 || c.Left > time.Hour || e.virtual && c.Left != time.Hour {
		e.Fatalf("what is left of a lease of an hour is %v", c.Left)
	}
}
