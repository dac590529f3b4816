package deduptest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/dedup"
)

// Listing what waits for a settlement.
var heldCases = []testCase{
	{name: "HeldListsClaimsPutOnHold", run: heldListsPutOnHold},
	{name: "LapsedHoldIsListed", run: lapsedHoldIsListed},
	{name: "HeldListsNothingElse", run: heldListsNothingElse},
	{name: "HeldPages", run: heldPages},
	{name: "HeldIsInByteOrder", run: heldIsInByteOrder},
	{name: "HeldEndsWithASettlement", run: heldEndsWithASettlement},
	{name: "HeldAge", run: heldAge},
	{name: "HeldAttempt", run: heldAttempt},
	{name: "HeldOfOtherScopesIsNotListed", run: heldOfOtherScopes},
}

// wantHeld checks a page of held claims against the owners they belong to.
func (e *env) wantHeld(page []dedup.Claim, owners ...dedup.Claim) {
	e.Helper()
	ids := make([]string, len(page))
	for i, c := range page {
		ids[i] = c.ID
	}
	if len(page) != len(owners) {
		e.Fatalf("%d claims are listed as held, want %d: %q", len(page), len(owners), ids)
	}
	for i, c := range page {
		if c.ID != owners[i].ID {
			e.Fatalf("held claim %d is %q, want %q; all: %q", i, c.ID, owners[i].ID, ids)
		}
		e.wantUnknown(c, owners[i])
	}
}

func heldListsPutOnHold(e *env) {
	e.wantHeld(e.held("", 10))
	b := e.acquire(e.p, "b")
	a := e.acquire(e.hold, "a")
	e.applied(a.Hold(), b.Hold())
	e.wantHeld(e.held("", 10), a, b)
}

func lapsedHoldIsListed(e *env) {
	l := e.lapsed(e.hold, "lapsed")
	e.wantHeld(e.held("", 10), l) // although nobody asked for it since
	e.wantUnknown(e.probe("lapsed"), l)
	e.wantHeld(e.held("", 10), l)
}

func heldListsNothingElse(e *env) {
	e.acquire(e.hold, "running")
	e.acquire(e.p, "running-rerun")
	done := e.acquire(e.hold, "done")
	released := e.acquire(e.hold, "released")
	forgotten := e.acquire(e.hold, "forgotten")
	e.applied(forgotten.Hold())
	e.applied(done.Complete(nil), released.Release(), forget("forgotten"))
	e.lapsed(e.p, "lapsed-rerun")
	e.wantHeld(e.held("", 10))
}

func heldPages(e *env) {
	const all, page = 53, 7
	owners := make([]dedup.Claim, all)
	put := make([]dedup.Settlement, all)
	for i := range all {
		owners[i] = e.acquire(e.p, fmt.Sprintf("held-%03d", i*31%all))
		put[i] = owners[i].Hold()
	}
	e.applied(put...)
	slices.SortFunc(owners, func(a, b dedup.Claim) int { return strings.Compare(a.ID, b.ID) })

	after := ""
	for got := 0; ; {
		cs := e.held(after, page)
		e.wantHeld(cs, owners[got:min(got+page, all)]...)
		got += len(cs)
		if len(cs) < page {
			break
		}
		after = cs[len(cs)-1].ID
	}
	e.wantHeld(e.held("", all), owners...)
	e.wantHeld(e.held("", 1), owners[0])
	e.wantHeld(e.held("held-", 2), owners[:2]...) // after need not be a held ID
	e.wantHeld(e.held("held-009x", 2), owners[10:12]...)
	e.wantHeld(e.held(owners[all-1].ID, page))
	e.wantHeld(e.held("zzz", page))
}

func heldIsInByteOrder(e *env) {
	owners := make([]dedup.Claim, 0, len(oddIDs))
	for _, id := range oddIDs {
		c := e.acquire(e.p, id)
		e.applied(c.Hold())
		owners = append(owners, c)
	}
	slices.SortFunc(owners, func(a, b dedup.Claim) int { return strings.Compare(a.ID, b.ID) })
	e.wantHeld(e.held("", len(owners)), owners...)
	for i, c := range owners {
		e.wantHeld(e.held(c.ID, 2), owners[i+1:min(i+3, len(owners))]...)
	}
}

func heldEndsWithASettlement(e *env) {
	for _, id := range []string{"completed", "extended", "forgotten", "released"} {
		e.acquire(e.shortLease(e.hold), id)
	}
	e.wait()
	page := e.held("", 10)
	if len(page) != 4 {
		e.Fatalf("%d claims are listed as held, want 4", len(page))
	}
	e.applied(page[0].Complete([]byte("r")), page[1].Extend(longLease), forget(page[2].ID), page[3].Release())
	e.wantHeld(e.held("", 10))
	e.wantDone(e.probe("completed"), []byte("r"))
	e.want(e.probe("extended"), dedup.InFlight)
	e.wantAcquired(e.probe("forgotten"), 1)
	e.wantAcquired(e.probe("released"), 2)
}

func heldAge(e *env) {
	put := e.acquire(e.p, "put-on-hold")
	e.lapsed(e.hold, "lapsed")
	e.applied(put.Hold())
	e.sleep(e.short)
	for _, c := range e.held("", 10) {
		e.wantAge(c, 3*e.short) // since the grant, not since the hold
	}
}

func heldAttempt(e *env) {
	first := e.acquire(e.p, "third")
	e.applied(first.Release())
	second := e.acquire(e.p, "third")
	e.applied(second.Release())
	third := e.wantAcquired(e.ask(e.hold, newAsk("third")), 3)
	e.applied(third.Hold())
	e.wantHeld(e.held("", 10), third)
}

func heldOfOtherScopes(e *env) {
	mine := e.acquire(e.p, "mine")
	e.applied(mine.Hold())
	for _, scope := range []string{e.p.Scope + "0", e.p.Scope + ".", e.p.Scope[:len(e.p.Scope)-1]} {
		p := e.p
		p.Scope = scope
		c := e.acquire(p, "of-another")
		e.appliedUnder(p, c.Hold())
	}
	e.wantHeld(e.held("", 10), mine)
}
