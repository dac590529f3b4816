package seqgentest

import (
	"strings"

	"github.com/pawl-go/pawl/seqgen"
)

// Keys and scopes that look alike, or that a store's own syntax could mistake.
var nameCases = []testCase{
	{name: "KeysAreComparedByteByByte", run: keysByteByByte},
	{name: "LongestKeys", run: longestKeys},
	{name: "ScopesAreSeparate", run: scopesAreSeparate},
	{name: "ScopeAndKeyDoNotRunTogether", run: scopeAndKey},
}

// oddKeys are all different, and valid.
var oddKeys = []string{
	"a", "A", "b", "aa", "a ", " a", "a\n", "\n", "\t", "\r\n", "\x01", "\x7f", "0", "00", "-1",
	"a:b", ":a", "a:", "::", "a/b", "../a", "a%3Ab", "a%", "%", "_", "%s", "%%", "*", "a*", "?", "[a]", "\\", "\\0", `\x00`,
	"{a}", "{}", "}{", "a{b}c", "'", "''", `"`, "a';--", "$1", "NULL", "null", "true", `{"a":1}`,
	"é", "e\u0301", "ß", "ss", "İ", "i", "ı", "日本語", "🙂", "🙂🙂", "\u200b", "\ufeff", "\u202e", "\U0010ffff", "\ud7ff", "\uffff",
	"user@example.org", "biz:acct:1", "biz%3Aacct:1",
}

func keysByteByByte(e *env) {
	asks := make([]seqgen.Ask, len(oddKeys))
	for i, key := range oddKeys {
		asks[i] = single(key, i+2)
	}
	for i, g := range e.reserve(asks...) {
		e.wantGrant(g, 1, 1, uint64(i+2))
	}
	for i, key := range oddKeys {
		e.wantAt(key, 1, uint64(i+2))
		e.apply(void(key, 1, uint64(i+2), uint64(i+2)))
	}
	for i, key := range oddKeys {
		e.wantVoids(key, 1, rng{uint64(i + 2), uint64(i + 2), certain, seqgen.GaveUp})
	}
}

func longestKeys(e *env) {
	const most = seqgen.MaxKey
	for i, key := range []string{
		strings.Repeat("x", most), strings.Repeat("x", most-1), strings.Repeat("x", most-1) + "y",
		strings.Repeat("🙂", most/4), strings.Repeat("🙂", most/4-1) + "🙃", strings.Repeat("%", most),
		strings.Repeat(":", most), strings.Repeat("\n", most), strings.Repeat("'", most),
	} {
		e.grant(open(key, i+1), 1, 1, uint64(i+1))
		e.apply(bump(key, 0))
		e.wantVoids(key, 1, rng{1, uint64(i + 1), orphaned, seqgen.Bumped})
	}
}

func scopesAreSeparate(e *env) {
	mine := single("key", 5)
	e.grant(mine, 1, 1, 5)
	e.apply(void("key", 1, 2, 2))
	for _, scope := range []string{
		e.p.Scope + ".", e.p.Scope + "-", e.p.Scope + "_", e.p.Scope[:len(e.p.Scope)-1],
		strings.ToUpper(e.p.Scope), e.p.Scope + strings.Repeat("x", 64-len(e.p.Scope)),
	} {
		other := *e
		other.p.Scope = scope
		other.wantAt("key", 0, 0)
		other.grant(mine, 1, 1, 5) // also nonces are a scope's own
		other.grant(single("key", 1), 1, 6, 6)
		other.wantVoids("key", 1)
		other.apply(bump("key", 0))
	}
	e.wantAt("key", 1, 5)
	e.wantVoids("key", 1, rng{2, 2, certain, seqgen.GaveUp})
}

// scopeAndKey uses pairs that are the same text once they are joined, with and
// without the usual separators.
func scopeAndKey(e *env) {
	s := e.p.Scope
	for i, pair := range []struct{ scope, key string }{
		{s, "ab"}, {s + "a", "b"}, {s + "ab", "b"},
		{s, ".c"}, {s + ".", "c"}, {s, "-c"}, {s + "-", "c"}, {s, "_c"}, {s + "_", "c"},
		{s, ":c"}, {s + ".c", ":c"}, {s, ".c:c"}, {s, "/c"}, {s, "}c"}, {s, s}, {s, s + ":c"},
	} {
		p := e.p
		p.Scope = pair.scope
		e.wantGrant(e.reserveIn(p, single(pair.key, i+1))[0], 1, 1, uint64(i+1))
	}
}
