package watchdogtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// What is listed.
var listCases = []testCase{
	{name: "ListIsInTheOrderOfBytes", run: listOrder},
	{name: "ListInPages", run: listPages},
	{name: "ScopesAreApart", run: scopesApart},
	{name: "NowIsTheStoresTime", run: nowMoves},
}

func listOrder(e *env) {
	if page := e.list("", 10); len(page.Records) != 0 || page.Now.IsZero() {
		e.Fatalf("an empty scope has the page %+v", page)
	}
	names := []string{"b", "a", "ab", "B", "é", "z", "a b", "10", "9", "客户", "~", "\x01"}
	for _, name := range names {
		e.join(name)
	}
	slices.Sort(names)
	if got := namesOf(e.list("", 100)); !slices.Equal(got, names) {
		e.Fatalf("the names are listed as %q, want %q", got, names)
	}
}

func namesOf(p watchdog.Page) (names []string) {
	for _, r := range p.Records {
		names = append(names, r.Name)
	}
	return names
}

func listPages(e *env) {
	var names, got []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("w%02d", i))
		e.join(names[i])
	}
	for after := ""; ; {
		page := namesOf(e.list(after, 10))
		if len(page) > 10 {
			e.Fatalf("a page of 10 has %d records", len(page))
		}
		if got = append(got, page...); len(page) < 10 {
			break
		}
		after = page[9]
	}
	if !slices.Equal(got, names) {
		e.Fatalf("the pages list %q, want %q", got, names)
	}
	if got := namesOf(e.list("w1", 3)); !slices.Equal(got, []string{"w10", "w11", "w12"}) {
		e.Fatalf("after w1, which is no name, are %q", got)
	}
	if got := namesOf(e.list("w24", 3)); len(got) != 0 {
		e.Fatalf("after the last are %q", got)
	}
}

func scopesApart(e *env) {
	w := e.join("w")
	o := e.granted(e.take("w", time.Hour, 5), 1)
	before := e.look("w")
	mine := e.p.Scope
	for _, scope := range []string{newScope(), mine + "0", mine[:len(mine)-1]} {
		e.p.Scope = scope
		e.refused("the beat in another scope", w.beat().Err, watchdog.ErrGone)
		e.refused("the end of an attempt in another scope", e.act(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Hour})[0].Err, watchdog.ErrGone)
		e.join("w", func(b *watchdog.Beat) { b.Position = 77 })
		e.join("other")
		e.granted(e.take("w", time.Hour, 5), 1)
		if n := len(e.list("", 10).Records); n != 2 {
			e.Fatalf("a scope of two has %d records", n)
		}
		e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "w"})
	}
	e.p.Scope = mine
	if after := e.look("w"); after != before || len(e.list("", 10).Records) != 1 {
		e.Fatalf("other scopes changed the record from %+v to %+v", before, after)
	}
}

func nowMoves(e *env) {
	a := e.list("", 10).Now
	e.sleep(20 * time.Millisecond)
	b := e.list("", 10).Now
	if d := b.Sub(a); d < 20*time.Millisecond || d > 20*time.Second {
		e.Fatalf("20ms later, or a little more, the store's time is %v later", d)
	}
	if a.Nanosecond()%1000 != 0 {
		e.Fatalf("the store's time %v is not in microseconds", a)
	}
}
