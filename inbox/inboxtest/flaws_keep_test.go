package inboxtest

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// keepFlaws are ways to get wrong what is kept with a record, and for how long.
var keepFlaws = []flaw{
	{"the payload stays", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.Payload = before.Payload })},
	{"the context stays", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.Context = before.Context })},
	{"the error stays", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.LastError = before.LastError })},
	{"the failures stay", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.Failures = before.Failures })},
	{"the trace stays", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.Trace = before.Trace })},
	{"the form stays", "Once/RedactedHasNoBody", leaves(func(before, r *inbox.Record) { r.Form |= before.Form })},
	{"the form is none", "Once/RedactedHasNoBody", leaves(func(_, r *inbox.Record) { r.Form = 0 })},
	{"nobody knows when it was deleted", "Once/RedactedHasNoBody", leaves(func(_, r *inbox.Record) { r.Deleted = time.Time{} })},
	{"a redaction ends the record", "Once/RedactedHasNoBody", leaves(func(_, r *inbox.Record) { r.Settled = time.Now() })},
	{"a redacted record cannot be found", "Once/RedactedKeepsTheRest", leaves(func(_, r *inbox.Record) { r.MessageID = "" })},
	{"a redacted record is gone", "Once/RedactedIsStillKnown", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) {
			if c.Kind == inbox.ChangeRedact {
				c.Kind = inbox.ChangeForget
			}
		})
	}},
	{"replays without a body", "Once/RedactedIsNotReplayed", func(a *alteration) {
		a.changed = eachAnswer(func(c inbox.Change, err error) error { return unless(err, inbox.ErrState) })
	}},
	{"redacted for ever", "Once/RedactedEndsAsBefore", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Retention, p.Keep = time.Hour, time.Hour }
	}},

	{"unknown is dead", "Once/UnknownIsKeptWithItsError", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) {
			if s.Kind == inbox.KindUnknown {
				s.Kind = inbox.KindDead
			}
		})
	}},
	{"unknown expires", "Once/UnknownDoesNotExpire", func(a *alteration) {
		a.listed = eachRecord(func(r *inbox.Record) { r.Expires = time.Now() })
	}},
	{"unknown is forgotten", "Once/UnknownIsNeverForgotten", func(a *alteration) {
		a.swept = func() {
			for _, r := range a.every() {
				if r.State == inbox.StateUnknown {
					a.do(inbox.ChangeForget, r)
				}
			}
		}
	}},
	{"unknown is redacted", "Once/UnknownIsNeverForgotten", func(a *alteration) {
		a.swept = func() {
			for _, r := range a.every() {
				if r.State == inbox.StateUnknown {
					a.do(inbox.ChangeRedact, r)
				}
			}
		}
	}},
	{"unknown is not counted", "Once/TotalsFollow", func(a *alteration) {
		a.totals = func(t *inbox.Totals) { t.Unknown = 0 }
	}},
	{"unknown cannot be replayed", "Once/UnknownMayBeReplayed", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Kind = inbox.ChangeForget })
	}},
	{"unknown cannot be resolved", "Once/UnknownMayBeResolved", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Kind = inbox.ChangeRedact })
	}},

	{"failures to the millisecond", "Once/FailuresAreKeptAsGiven", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) {
			s.Failures = slices.Clone(s.Failures)
			for i := range s.Failures {
				s.Failures[i].At = s.Failures[i].At.Truncate(time.Millisecond)
			}
		})
	}},
	{"failures add up", "Once/FailuresAreReplaced", func(a *alteration) {
		var all []inbox.Failure
		a.settle = eachSettlement(func(s *inbox.Settlement) {
			all = append(all, s.Failures...)
			s.Failures = all
		})
	}},
	{"done has no failures", "Once/DoneKeepsTheFailures", func(a *alteration) {
		a.listed = eachRecord(func(r *inbox.Record) {
			if r.State == inbox.StateDone {
				r.Failures = nil
			}
		})
	}},
	{"failures shared", "Once/FailuresAreNotShared", lastFailures},
	{"failures of a stale owner", "Once/StaleFailuresAreNotKept", lastFailures},

	{"the form is lost", "Once/FormIsKept", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.Form &= inbox.FormOutside })
	}},
	{"the form of the last arrival", "Once/FormOfTheFirstIsKept", func(a *alteration) {
		last := map[string]inbox.Form{}
		a.accept = eachArrival(func(x *inbox.Arrival) { last[x.ID] = x.Form })
		a.listed = eachRecord(func(r *inbox.Record) { r.Form = last[r.ID] })
	}},
	{"the trace is lost", "Once/EveryFieldIsKept", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.Trace = "" })
	}},

	{"bodies as long as records", "Once/BodiesAreKeptSoLong", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Bodies = 0 }
	}},
	{"bodies of all alike", "Once/BodiesAreKeptSoLong", func(a *alteration) {
		a.listed = eachRecord(func(r *inbox.Record) { r.Erases = r.Settled.Add(time.Hour) })
	}},
	{"sweeps redact nothing", "Once/SweepRedactsWithoutAnAction", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Bodies = 0 }
	}},
	{"sweeps redact as persons do", "Once/SweepRedactsWithoutAnAction", func(a *alteration) {
		a.sweep = func() {
			for _, r := range a.every() {
				a.do(inbox.ChangeRedact, r)
			}
		}
	}},
	{"sweeps redact early", "Once/SweepRedactsNothingEarly", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Bodies = time.Second }
	}},
	{"sweeps remove references", "Once/BodyOutsideStaysUntilItIsRedacted", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.Form = 0 })
	}},
	{"sweeps redact references", "Once/BodyOutsideStaysUntilItIsRedacted", func(a *alteration) {
		a.sweep = func() {
			for _, r := range a.every() {
				a.do(inbox.ChangeRedact, r)
			}
		}
	}},
	{"keys of the dead stay", "Once/LapsedKeyWithNothingPendingIsForgotten", func(a *alteration) {
		a.sweep = a.tells(inbox.KindExtend)
	}},
	{"keys of the living go", "Once/ClaimedKeyWithNothingPendingStays", func(a *alteration) {
		a.sweep = a.tells(inbox.KindRelease)
	}},
}

// leaves changes what is listed of a redacted record.
func leaves(change func(before, r *inbox.Record)) func(*alteration) {
	return func(a *alteration) {
		before := map[uint64]inbox.Record{}
		a.change = eachChange(func(c *inbox.Change) {
			for _, r := range a.of(c.ID) {
				before[r.Seq] = r
			}
		})
		a.listed = eachRecord(func(r *inbox.Record) {
			if b, ok := before[r.Seq]; ok && r.Form == inbox.FormRedacted {
				change(&b, r)
			}
		})
	}
}

// lastFailures keeps the failures that were sent last, in the caller's slice.
func lastFailures(a *alteration) {
	last := map[string][]inbox.Failure{}
	a.settle = eachSettlement(func(s *inbox.Settlement) { last[s.ID] = s.Failures })
	a.listed = eachRecord(func(r *inbox.Record) { r.Failures = last[r.ID] })
}

// findFlaws are ways to get queries wrong.
var findFlaws = []flaw{
	{"one ID is like the other", "Once/FindByMessageID", func(a *alteration) {
		a.query = func(q *inbox.Query) { q.MessageID, q.ExternalID = q.ExternalID, q.MessageID }
	}},
	{"external IDs are not kept", "Once/FindByExternalID", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.ExternalID = "" })
	}},
	{"found from the beginning", "Once/FindPages", func(a *alteration) {
		a.query = func(q *inbox.Query) { q.After = 0 }
	}},
	{"found without case", "Once/FindIsExact", func(a *alteration) {
		a.query = func(q *inbox.Query) { q.MessageID = strings.ToLower(q.MessageID) }
	}},
	{"the last field counts", "Once/TheFirstFieldOfAQueryCounts", func(a *alteration) {
		a.query = func(q *inbox.Query) {
			if q.State != 0 {
				q.MessageID, q.ExternalID = "", ""
			}
		}
	}},
	{"outside at once", "Once/OutsideIsListedWhenItErases", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Keep = time.Second }
	}},
	{"nothing is outside", "Once/OutsideIsListedWhenItErases", func(a *alteration) {
		a.query = func(q *inbox.Query) { q.After |= map[bool]uint64{true: 1 << 62}[q.Outside] }
	}},
	{"outside without pages", "Once/OutsidePages", func(a *alteration) {
		a.query = func(q *inbox.Query) { q.After = 0 }
	}},
}
