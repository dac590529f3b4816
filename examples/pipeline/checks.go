package main

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// newChecks looks, beside all else, for replies of which nothing is heard and for those
// that do not come to an end. The times are those of a run that takes seconds: in
// production they are minutes and hours. A finding goes by itself when its reply is
// settled; what is still open at the end is for a person.
func (r *replies) newChecks(s reconcile.CheckStore) (*reconcile.Checks, error) {
	const every = 100 * time.Millisecond
	said := func(e reconcile.Entry) (reconcile.Ref, string) { return reconcile.Ref{Message: e.Key}, e.Key }
	return reconcile.NewChecks(s, &reconcile.CheckOptions{
		Kind: stream,
		Silent: []reconcile.Silent{{
			Source:   reconcile.InLedger(r.ledger, said),
			Timeline: r.timeline,
			After:    time.Second,
			Every:    every,
		}},
		Stuck: []reconcile.Stuck{{Ledger: r.ledger, After: 2 * time.Second, Every: every}},
	})
}

// open are the findings that hold, or did when they were last looked at.
func (r *replies) open(ctx context.Context) ([]reconcile.Finding, error) {
	return r.checks.Findings(ctx, reconcile.FindingQuery{Kind: stream, Unresolved: true, N: 1000})
}
