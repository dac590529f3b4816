package deduptest

import (
	"strings"

	"github.com/pawl-go/pawl/dedup"
)

// IDs and scopes that look alike, or that a store's own syntax could mistake.
var nameCases = []testCase{
	{name: "IDsAreComparedByteByByte", run: idsAreComparedByteByByte},
	{name: "LongestIDs", run: longestIDs},
	{name: "ScopesAreSeparate", run: scopesAreSeparate},
	{name: "ScopeAndIDDoNotRunTogether", run: scopeAndIDDoNotRunTogether},
}

// oddIDs are all different, and valid.
var oddIDs = []string{
	"a", "A", "b", "aa", "a ", " a", "a\n", "\n", "\t", "\r\n", "\x01", "\x7f", "0", "00", "-1",
	"a:b", ":a", "a:", "::", "a/b", "../a", "a%3Ab", "a%", "%", "_", "%s", "%%", "*", "a*", "?", "[a]", "\\", "\\0", `\x00`,
	"{a}", "{}", "}{", "a{b}c", "'", "''", `"`, "a';--", "$1", "NULL", "null", "true", `{"a":1}`,
	"é", "e\u0301", "ß", "ss", "İ", "i", "ı", "日本語", "🙂", "🙂🙂", "\u200b", "\ufeff", "\u202e", "\U0010ffff", "\ud7ff", "\uffff",
	"user@example.org", "biz:acct:1", "biz%3Aacct:1",
}

func idsAreComparedByteByByte(e *env) {
	asks := make([]dedup.Ask, len(oddIDs))
	for i, id := range oddIDs {
		asks[i] = newAsk(id)
	}
	cs := e.claim(e.p, asks...)
	s := make([]dedup.Settlement, len(cs))
	for i, c := range cs {
		e.wantAcquired(c, 1)
		s[i] = c.Complete([]byte("result of " + c.ID))
	}
	e.applied(s...)
	for _, id := range oddIDs {
		e.wantDone(e.probe(id), []byte("result of "+id))
	}
}

func longestIDs(e *env) {
	const most = 512
	ids := []string{
		strings.Repeat("x", most), strings.Repeat("x", most-1), strings.Repeat("x", most-1) + "y",
		strings.Repeat("🙂", most/4), strings.Repeat("🙂", most/4-1) + "🙃", strings.Repeat("%", most),
		strings.Repeat(":", most), strings.Repeat("\n", most), strings.Repeat("'", most),
	}
	for _, id := range ids {
		c := e.wantAcquired(e.ask(e.p, newAsk(id)), 1)
		e.applied(c.Hold())
	}
	if held := e.held("", len(ids)+1); len(held) != len(ids) {
		e.Fatalf("%d claims are listed as held, want %d", len(held), len(ids))
	}
	for i, id := range ids {
		c := e.want(e.probe(id), dedup.Unknown)
		e.applied(c.Complete([]byte{byte(i)}))
		e.wantDone(e.probe(id), []byte{byte(i)})
	}
}

func scopesAreSeparate(e *env) {
	other := e.p
	for _, scope := range []string{
		e.p.Scope + ".", e.p.Scope + "-", e.p.Scope + "_", e.p.Scope[:len(e.p.Scope)-1],
		strings.ToUpper(e.p.Scope), e.p.Scope + strings.Repeat("x", 64-len(e.p.Scope)),
	} {
		other.Scope = scope
		e.wantAcquired(e.ask(other, newAskAs("id", 2)), 1)
	}
	e.tick() // tokens are times: two scopes may well grant the same one at one instant
	mine := e.wantAcquired(e.ask(e.p, newAskAs("id", 1)), 1)
	e.applied(mine.Complete([]byte("mine")))
	e.want(e.ask(other, newAsk("id")), dedup.InFlight)
	for i, err := range e.settle(other, mine.Release(), mine.Complete(nil)) {
		if err == nil {
			e.Fatalf("settlement %d with another scope's token was applied", i)
		}
	}
	e.appliedUnder(other, forget("id"))
	e.wantDone(e.probe("id"), []byte("mine"))
}

// scopeAndIDDoNotRunTogether uses pairs that are the same text once they are
// joined, with and without the usual separators.
func scopeAndIDDoNotRunTogether(e *env) {
	s := e.p.Scope
	for _, pair := range []struct{ scope, id string }{
		{s, "ab"}, {s + "a", "b"}, {s + "ab", "b"},
		{s, ".c"}, {s + ".", "c"}, {s, "-c"}, {s + "-", "c"}, {s, "_c"}, {s + "_", "c"},
		{s, ":c"}, {s + ".c", ":c"}, {s, ".c:c"}, {s, "/c"}, {s, "}c"}, {s, s}, {s, s + ":c"},
	} {
		p := e.p
		p.Scope = pair.scope
		e.wantAcquired(e.ask(p, newAsk(pair.id)), 1)
	}
}
