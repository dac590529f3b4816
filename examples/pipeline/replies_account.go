package main

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl/reconcile"
)

// count asks the stores and the gateway's log what became of the replies, once the
// gateway has ended.
func (r *replies) count(ctx context.Context, log string, a *account) error {
	wanted := map[string]string{} // operation to ordering key
	accounts := map[string]bool{}
	for _, e := range a.list {
		if e.Reply {
			wanted[operationOf(e.ID)] = e.Key
			accounts[accountOf(e.Key)] = true
		}
	}
	a.replies = len(wanted)
	if err := a.readLog(log, wanted); err != nil {
		return err
	}
	var lanes, operations uint64
	failed := 0
	for name := range accounts {
		l, err := r.lanes.Account(ctx, name)
		if err != nil {
			return err
		}
		a.addsUp(l)
		for _, e := range l.Ledgers {
			lanes += e.Delivered + e.Skipped
		}
	}
	if lanes != uint64(len(wanted)) {
		a.note("%d replies are due, and %d went through the lanes", len(wanted), lanes)
	}
	letters, err := r.letters.Totals(ctx, "", 1000)
	if err != nil {
		return err
	}
	for _, l := range letters {
		a.Dead += l.Waiting + l.Review + l.Discarded + l.Rejected
	}
	for after := ""; ; {
		page, err := r.ledger.List(ctx, reconcile.Query{After: after, N: 1000})
		if err != nil {
			return err
		}
		for _, e := range page {
			operations++
			switch {
			case e.Review != "":
				a.InReview++
			case e.State == reconcile.Failed:
				failed++
			case e.Open():
				a.note("an operation is still %v", e.State)
			case e.State == reconcile.Confirmed && wasUnknown(e.Log):
				a.UnknownSettled++
			}
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Key
	}
	found, err := r.open(ctx)
	if err != nil {
		return err
	}
	a.Findings, a.raised = len(found), r.checks.Stats().Raised+r.checks.Stats().Reopened
	if failed != a.Dead {
		a.note("%d operations failed, and %d replies are dead letters", failed, a.Dead)
	}
	if operations != uint64(len(wanted)) {
		a.note("%d replies are due, and the ledger has %d operations", len(wanted), operations)
	}
	return nil
}

// readLog compares what the gateway did with what it should have done.
func (a *account) readLog(log string, wanted map[string]string) error {
	list, err := readReplies(log)
	if err != nil {
		return err
	}
	had := map[string]bool{}
	for _, s := range list {
		if key, ok := wanted[s.operation]; !ok || key != s.key {
			a.note("the gateway's log has a reply to no event of these")
		}
		had[s.operation] = true
	}
	a.Sent, a.SentTwice = len(had), len(list)-len(had)
	return nil
}

// wasUnknown says whether nobody could tell, at some time, whether an operation had
// happened: a call without an answer, or a process that died.
func wasUnknown(log []reconcile.Transition) bool {
	return slices.ContainsFunc(log, func(t reconcile.Transition) bool { return t.State == reconcile.Unknown }) ||
		slices.ContainsFunc(pairs(log), func(p [2]reconcile.Transition) bool {
			return p[0].State == reconcile.Started && p[1].By == "probe"
		})
}

func pairs(log []reconcile.Transition) (list [][2]reconcile.Transition) {
	for i := 1; i < len(log); i++ {
		list = append(list, [2]reconcile.Transition{log[i-1], log[i]})
	}
	return list
}
