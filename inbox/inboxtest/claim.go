package inboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Who gets which keys, with which records.
var claimCases = []testCase{
	{name: "RecordsComeInOrder", run: recordsComeInOrder},
	{name: "ClaimBeginsTheFirst", run: claimBeginsTheFirst},
	{name: "AttemptIsWrittenBeforeTheHandler", run: attemptIsWrittenBefore},
	{name: "AtMostSoManyKeys", run: atMostKeys},
	{name: "AtMostSoManyEvents", run: atMostEvents},
	{name: "AtMostSoManyBytes", run: atMostBytes},
	{name: "ClaimedKeyIsNotClaimedAgain", run: claimedIsNotClaimed},
	{name: "ArrivalsOfAClaimedKeyWait", run: arrivalsOfClaimedWait},
	{name: "StreamsAreSeparate", run: streamsAreSeparate},
	{name: "SameNonceSameAnswer", run: sameNonceSameAnswer, once: true},
	{name: "SameNonceShowsWhatIsLeft", run: sameNonceShowsWhatIsLeft, once: true},
	{name: "SameNonceWithNothingLeftIsANewAsk", run: sameNonceNothingLeft, once: true},
	{name: "SameNonceAfterALapseIsANewAsk", run: sameNonceAfterLapse, once: true},
	{name: "LeftCountsDown", run: leftCountsDown},
}

// When keys are due.
var dueCases = []testCase{
	{name: "KeysComeInTheOrderInWhichTheyBecameDue", run: keysComeInOrder},
	{name: "ReleasedKeyGoesBehindTheOthers", run: releasedGoesBehind},
	{name: "RetryBlocksItsKeyAndNoOther", run: retryBlocksItsKey},
	{name: "RetryKeepsTheOrder", run: retryKeepsTheOrder},
	{name: "RetryWithoutDelayIsDueAtOnce", run: retryWithoutDelay},
	{name: "LapsedKeyIsDue", run: lapsedKeyIsDue},
	{name: "NextIsTheEndOfADelay", run: nextIsTheEndOfADelay},
	{name: "NextIsTheEndOfALease", run: nextIsTheEndOfALease},
	{name: "NextIsZeroWithNothingPending", run: nextIsZero},
}

func recordsComeInOrder(e *env) {
	e.events("k", "c", "a")
	e.accepted(arrival("d", "k"), arrival("x", "other"), arrival("b", "k"))
	claims := e.claims()
	if len(claims) != 2 {
		e.Fatalf("a claim got the keys %q, want 2", keysOf(claims))
	}
	for _, c := range claims {
		if c.More {
			e.Fatalf("the claim of key %q says that there is more", c.Key)
		}
		if c.Key == "k" {
			e.wantRecords(c, "c", "a", "d", "b")
		} else {
			e.wantRecords(c, "x")
		}
	}
}

func claimBeginsTheFirst(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	if a, b := c.Records[0].Attempts, c.Records[1].Attempts; a != 1 || b != 0 {
		e.Fatalf("the records of a claim have %d and %d attempts, want 1 and 0", a, b)
	}
}

func attemptIsWrittenBefore(e *env) {
	e.events("k", "a", "b")
	for attempt := 1; attempt <= 3; attempt++ {
		c := e.lapsed("k") // its worker died in the handler
		if got := c.Records[0].Attempts; got != attempt {
			e.Fatalf("claim %d got a record with %d attempts", attempt, got)
		}
		e.wantState("a", inbox.StatePending, attempt)
		e.wantState("b", inbox.StatePending, 0)
	}
}

func atMostKeys(e *env) {
	for i := range 5 {
		e.events(fmt.Sprint("k", i), fmt.Sprint("a", i))
	}
	seen := map[string]bool{}
	for _, want := range []int{2, 2, 1, 0} {
		a := newAsk()
		a.Keys = 2
		claims := e.ask(a).Claims
		if len(claims) != want {
			e.Fatalf("a claim of 2 keys got %q, want %d", keysOf(claims), want)
		}
		for _, c := range claims {
			if seen[c.Key] {
				e.Fatalf("the key %q was claimed twice", c.Key)
			}
			seen[c.Key] = true
		}
	}
}

func atMostEvents(e *env) {
	e.events("k", "a", "b", "c")
	a := newAsk()
	a.Events = 2
	c := e.ask(a).Claims[0]
	e.wantRecords(c, "a", "b")
	if !c.More {
		e.Fatal("a claim of 2 of 3 records does not say that there is more")
	}
	e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), release(c))
	a = newAsk()
	a.Events = 1
	c = e.ask(a).Claims[0]
	e.wantRecords(c, "c")
	if c.More {
		e.Fatal("a claim of the last record says that there is more")
	}
}

func atMostBytes(e *env) {
	payload := string(make([]byte, 400))
	for _, id := range []string{"a", "b", "c", "d"} {
		e.accepted(arrivalOf(id, "k", payload))
	}
	a := newAsk()
	a.Bytes = 1000
	c := e.ask(a).Claims[0]
	e.wantRecords(c, "a", "b", "c") // the third brings them over the limit
	if !c.More {
		e.Fatal("a claim that was cut off does not say that there is more")
	}
	e.applied(release(c))
	a = newAsk()
	a.Bytes = 1
	e.wantRecords(e.ask(a).Claims[0], "a")
}

func claimedIsNotClaimed(e *env) {
	e.events("k", "a", "b")
	e.events("other", "x")
	a := newAsk()
	a.Keys = 1
	first := e.ask(a).Claims[0]
	second := e.claim("other")
	e.nothing()
	e.applied(done(first, "a"), begin(first, "b"), done(first, "b"), release(first))
	e.applied(done(second, "x"), release(second))
	e.nothing()
	e.wantTotals(0, 3, 0, 0, 0, 0)
}

func arrivalsOfClaimedWait(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	e.events("k", "b")
	e.nothing()
	e.applied(done(c, "a"))
	e.nothing() // still claimed
	e.events("k", "c")
	e.nothing()
	e.applied(release(c))
	e.wantRecords(e.claim("k"), "b", "c")
}

func streamsAreSeparate(e *env) {
	for _, s := range []string{"crm", "crm2", "c"} {
		a := arrival("event-"+s, "k")
		a.Streams = []string{s}
		e.accepted(a)
	}
	e.nothing()
	for _, s := range []string{"c", "crm", "crm2"} {
		a := newAsk()
		a.Stream = s
		claims := e.ask(a).Claims
		if len(claims) != 1 {
			e.Fatalf("the stream %s has %d keys to claim, want 1", s, len(claims))
		}
		e.wantRecords(claims[0], "event-"+s)
		stranger := done(claims[0], "event-"+s)
		stranger.Stream = "other"
		e.stale(stranger)
		e.applied(done(claims[0], "event-"+s), release(claims[0]))
	}
}

func sameNonceSameAnswer(e *env) {
	e.events("k", "a", "b")
	e.events("l", "x")
	a := newAsk()
	first := e.ask(a).Claims
	e.events("m", "y") // what comes meanwhile is not part of the answer
	for range 3 {
		again := e.ask(a).Claims
		if len(again) != len(first) {
			e.Fatalf("an ask that got %q got %q when it was sent again", keysOf(first), keysOf(again))
		}
		for _, c := range again {
			i := slices.IndexFunc(first, func(f inbox.Claim) bool { return f.Key == c.Key })
			if i < 0 || first[i].Token != c.Token || !slices.Equal(idsOf(first[i].Records), idsOf(c.Records)) ||
				c.Records[0].Attempts != 1 {
				e.Fatalf("an ask that got %+v got %+v when it was sent again", first, c)
			}
		}
	}
	e.wantRecords(e.claim("m"), "y")
}

func sameNonceShowsWhatIsLeft(e *env) {
	e.events("k", "a", "b")
	e.events("l", "x")
	a := newAsk()
	for _, c := range e.ask(a).Claims {
		if c.Key == "l" {
			e.applied(done(c, "x"), release(c))
		} else {
			e.applied(done(c, "a"), begin(c, "b"))
		}
	}
	left := e.ask(a).Claims
	if len(left) != 1 || left[0].Key != "k" {
		e.Fatalf("an ask sent again got %q, want the key that is still claimed", keysOf(left))
	}
	e.wantRecords(left[0], "b")
	if got := left[0].Records[0].Attempts; got != 1 {
		e.Fatalf("the record that was begun has %d attempts, want 1", got)
	}
	e.applied(done(left[0], "b"), release(left[0]))
}

func sameNonceNothingLeft(e *env) {
	e.events("k", "a")
	a := newAsk()
	c := e.ask(a).Claims[0]
	e.applied(done(c, "a"), release(c))
	if got := e.ask(a).Claims; len(got) != 0 {
		e.Fatalf("a spent ask got %q", keysOf(got))
	}
	e.tick()
	e.events("k", "b")
	again := e.ask(a).Claims
	if len(again) != 1 || again[0].Token <= c.Token {
		e.Fatalf("a spent ask got %+v, want the key with a token over %d", again, c.Token)
	}
}

func sameNonceAfterLapse(e *env) {
	e.events("k", "a")
	a := newAsk()
	a.Lease = e.short
	c := e.ask(a).Claims[0]
	e.wait()
	again := e.ask(a).Claims
	if len(again) != 1 || again[0].Token <= c.Token || again[0].Records[0].Attempts != 2 {
		e.Fatalf("an ask whose leases have lapsed got %+v, want a new claim with a token over %d", again, c.Token)
	}
}

func leftCountsDown(e *env) {
	e.events("k", "a")
	a := newAsk()
	c := e.ask(a).Claims[0]
	if c.Left <= 0 || c.Left > longLease {
		e.Fatalf("a new claim has %v left of a lease of %v", c.Left, longLease)
	}
	e.sleep(e.short)
	again := e.ask(a).Claims
	if len(again) != 1 || again[0].Left > c.Left-e.short*9/10 {
		e.Fatalf("after %v the claim has %v left of %v", e.short, again[0].Left, c.Left)
	}
}

func keysComeInOrder(e *env) {
	for _, k := range []string{"third", "first", "second"} {
		e.tick()
		e.events(k, "of "+k)
	}
	e.events("third", "another") // does not make it due again
	for _, k := range []string{"third", "first", "second"} {
		a := newAsk()
		a.Keys = 1
		if got := keysOf(e.ask(a).Claims); !slices.Equal(got, []string{k}) {
			e.Fatalf("a claim got %q, want %q", got, k)
		}
	}
}

func releasedGoesBehind(e *env) {
	e.events("busy", "a", "b")
	e.tick()
	e.events("quiet", "x")
	e.tick()
	a := newAsk()
	a.Keys, a.Events = 1, 1
	c := e.ask(a).Claims[0]
	e.applied(done(c, "a"), release(c))
	e.tick()
	for _, k := range []string{"quiet", "busy"} {
		a := newAsk()
		a.Keys = 1
		if got := keysOf(e.ask(a).Claims); !slices.Equal(got, []string{k}) {
			e.Fatalf("a claim got %q, want %q", got, k)
		}
	}
}

func retryBlocksItsKey(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(retry(c, "a", longLease))
	r := e.wantState("a", inbox.StatePending, 1)
	if r.LastError != "it failed" || r.Next.IsZero() {
		e.Fatalf("a record that failed has the last error %q and is due at %v", r.LastError, r.Next)
	}
	e.nothing()
	e.events("k", "c")
	e.nothing()
	e.events("other", "x")
	e.wantRecords(e.claim("other"), "x")
}

func retryKeepsTheOrder(e *env) {
	e.events("k", "a", "b")
	for attempt := 1; attempt <= 3; attempt++ {
		c := e.claim("k")
		e.wantRecords(c, "a", "b")
		if got := c.Records[0]; got.Attempts != attempt || attempt > 1 && got.LastError != "it failed" {
			e.Fatalf("attempt %d brought the record %+v", attempt, got)
		}
		e.applied(retry(c, "a", e.short))
		e.wait()
	}
	c := e.claim("k")
	e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), release(c))
	e.wantState("a", inbox.StateDone, 4)
	e.wantState("b", inbox.StateDone, 1)
}

func retryWithoutDelay(e *env) {
	e.events("k", "a")
	e.applied(retry(e.claim("k"), "a", 0))
	if got := e.claim("k").Records[0].Attempts; got != 2 {
		e.Fatalf("a record that was tried again has %d attempts, want 2", got)
	}
}

func lapsedKeyIsDue(e *env) {
	e.events("k", "a", "b")
	first := e.lapsed("k")
	second := e.claim("k")
	e.wantRecords(second, "a", "b")
	if second.Token <= first.Token {
		e.Fatalf("the second owner has token %d, want more than %d", second.Token, first.Token)
	}
}

func nextIsTheEndOfADelay(e *env) {
	e.events("k", "a")
	e.events("l", "x")
	for _, c := range e.claims() {
		if c.Key == "k" {
			e.applied(retry(c, "a", longLease))
		} else {
			e.applied(retry(c, "x", 2*longLease))
		}
	}
	e.wantNext(longLease)
}

func nextIsTheEndOfALease(e *env) {
	e.events("k", "a")
	e.claimFor("k", longLease)
	e.wantNext(longLease)
}

// wantNext checks what a claim that gets nothing says about the next.
func (e *env) wantNext(d time.Duration) {
	e.Helper()
	c := e.ask(newAsk())
	if len(c.Claims) != 0 {
		e.Fatalf("a claim got the keys %q, want none", keysOf(c.Claims))
	}
	if c.Next < 0 || c.Next > d {
		e.Fatalf("the next key is due in %v, want at most %v", c.Next, d)
	}
	if e.c.Bubble && c.Next != 0 && c.Next != d { // zero: the store does not know
		e.Fatalf("the next key is due in %v, want %v", c.Next, d)
	}
}

func nextIsZero(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	if got := e.ask(newAsk()); len(got.Claims) != 0 || got.Next != 0 {
		e.Fatalf("with nothing pending the next key is due in %v", got.Next)
	}
}
