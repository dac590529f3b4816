package inboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// changeFlaws are ways to get wrong what persons change.
var changeFlaws = []flaw{
	{"changes what is not there", "Once/ChangeOfNothingIsNotFound", func(a *alteration) {
		a.changed = eachAnswer(func(_ inbox.Change, err error) error { return unless(err, inbox.ErrNotFound) })
	}},
	{"forgets only what is there", "Once/ChangeOfNothingIsNotFound", func(a *alteration) {
		known := map[string]bool{}
		a.accept = eachArrival(func(x *inbox.Arrival) { known[x.ID] = true })
		a.changed = eachAnswer(func(c inbox.Change, err error) error {
			if c.Kind == inbox.ChangeForget && !known[c.ID] {
				return inbox.ErrNotFound
			}
			return err
		})
	}},
	{"does not look at the state", "Once/ChangeInAnotherStateIsRefused", func(a *alteration) {
		a.changed = eachAnswer(func(_ inbox.Change, err error) error { return unless(err, inbox.ErrState) })
	}},
	{"refused is not found", "Once/ChangeInAnotherStateIsRefused", func(a *alteration) {
		a.changed = eachAnswer(func(_ inbox.Change, err error) error {
			if errors.Is(err, inbox.ErrState) {
				return inbox.ErrNotFound
			}
			return err
		})
	}},
	{"redacts what is pending", "Once/ChangeInAnotherStateIsRefused", func(a *alteration) {
		gone := map[string]bool{}
		a.change = func(_ *inbox.Params, cs []inbox.Change) {
			for _, c := range cs {
				gone[c.ID] = gone[c.ID] || c.Kind == inbox.ChangeRedact
			}
		}
		a.listed = eachRecord(func(r *inbox.Record) {
			if gone[r.ID] {
				r.Payload = nil
			}
		})
	}},
	{"changes the first record", "Once/ChangeIsForAllRecordsOfTheEvent", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) {
			if rs := a.of(c.ID); c.Kind != inbox.ChangeForget && len(rs) > 0 && c.Seq == 0 {
				c.Seq = rs[0].Seq
			}
		})
	}},
	{"changes all records", "Once/ChangeWithANumberIsForOneRecord", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Seq = 0 })
	}},
	{"keeps nobody's name", "Once/ChangeKeepsWhoAndWhy", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Actor = "operator" })
	}},
	{"cuts reasons", "Once/ChangeKeepsWhoAndWhy", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Reason = c.Reason[:min(len(c.Reason), 255)] })
	}},
	{"keeps the first actions", "Once/ActionsAreTheLast", func(a *alteration) {
		first := map[string][]inbox.Action{}
		a.listed = func(rs []inbox.Record) {
			for i := range rs {
				rs[i].Actions = first[rs[i].ID]
			}
		}
		a.change = eachChange(func(c *inbox.Change) {
			if as := first[c.ID]; len(as) < inbox.MaxActions {
				first[c.ID] = append(as, inbox.Action{Kind: c.Kind, At: time.Now(), Actor: c.Actor, Reason: c.Reason})
			}
		})
	}},
	{"change not repeatable", "Once/SameNonceChangesOnce", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { rand.Read(c.Nonce[:]) })
	}},
	{"change not repeatable, all sent twice", "Twice/ResolvedIsDone", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { rand.Read(c.Nonce[:]) })
	}},
	{"all changes are one", "Once/AnotherNonceChangesAgain", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) { c.Nonce = [16]byte{1} })
	}},
	{"changes in any order", "Once/BatchOfChangesIsAppliedInOrder", func(a *alteration) {
		a.change = func(_ *inbox.Params, c []inbox.Change) { slices.Reverse(c) }
		a.changed = func(_ []inbox.Change, errs []error) []error { slices.Reverse(errs); return errs }
	}},
	{"one refusal for the batch", "Once/BatchOfChangesAnswersEach", func(a *alteration) {
		a.changed = func(_ []inbox.Change, errs []error) []error {
			for _, err := range errs {
				if err != nil {
					return slices.Repeat([]error{err}, len(errs))
				}
			}
			return nil
		}
	}},
	{"errors that are nil", "Once/AppliedChangesReturnNoErrors", func(a *alteration) {
		a.changed = func(_ []inbox.Change, errs []error) []error { return errs }
	}},
	{"what was resolved is kept like the dead", "Once/ResolvedIsDone", func(a *alteration) {
		a.change = func(p *inbox.Params, _ []inbox.Change) { p.Retention = p.Keep }
	}},
	{"resolves what is done", "Once/ResolveOfADoneRecordIsRefused", func(a *alteration) {
		a.changed = eachAnswer(func(c inbox.Change, err error) error {
			if c.Kind == inbox.ChangeResolve {
				return nil
			}
			return err
		})
	}},
	{"looks and then replays", "Once/ConcurrentReplaysReplayOnce", func(a *alteration) {
		ended := map[inbox.Change]bool{}
		a.change = eachChange(func(c *inbox.Change) {
			rs := a.of(c.ID)
			ended[*c] = len(rs) > 0 && rs[0].State != inbox.StatePending
			a.mu.Unlock()
			time.Sleep(time.Millisecond) // others look meanwhile
			a.mu.Lock()
		})
		a.changed = eachAnswer(func(c inbox.Change, err error) error {
			if ended[c] {
				return nil
			}
			return err
		})
	}},

	{"replayed by name", "Once/ReplayedIsBehindAllOthers", func(a *alteration) {
		a.claimed = eachClaim(func(c *inbox.Claim) {
			slices.SortFunc(c.Records, func(x, y inbox.Record) int { return strings.Compare(x.ID, y.ID) })
		})
	}},
	{"replayed under the old number", "Once/ReplayedIsPending", func(a *alteration) {
		old := map[string]uint64{}
		a.change = eachChange(func(c *inbox.Change) {
			if rs := a.of(c.ID); c.Kind == inbox.ChangeReplay && len(rs) > 0 && rs[0].State != inbox.StatePending {
				old[c.ID] = rs[0].Seq
			}
		})
		a.listed = eachRecord(func(r *inbox.Record) {
			if n := old[r.ID]; n > 0 {
				r.Seq = n
			}
		})
	}},
	{"replayed later", "Once/ReplayedIsDueAtOnce", func(a *alteration) {
		a.changed = func([]inbox.Change, []error) []error {
			c, _ := a.Memory.Claim(context.Background(), newAsk())
			for _, c := range c.Claims {
				a.Memory.Settle(context.Background(), inbox.Params{Retention: time.Hour}, []inbox.Settlement{retry(c, idsOf(c.Records)[0], time.Minute)})
			}
			return nil
		}
	}},
	{"replay frees the key", "Once/ReplayOfAClaimedKeyWaits", func(a *alteration) {
		release := a.releases()
		a.changed = func([]inbox.Change, []error) []error { release(); return nil }
	}},
	{"replay ends a delay", "Once/ReplayDoesNotEndADelay", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Delay = 0 })
	}},
	{"attempts go on after a replay", "Once/ReplayedCountsAttemptsAnew", func(a *alteration) {
		before := map[string]int{}
		a.change = eachChange(func(c *inbox.Change) { before[c.ID] = a.of(c.ID)[0].Attempts })
		a.claimed = eachClaim(func(c *inbox.Claim) {
			for i, r := range c.Records {
				c.Records[i].Attempts += before[r.ID]
			}
		})
	}},
	{"an end from before a replay counts", "Once/AnEndFromBeforeAReplayIsStale", func(a *alteration) {
		current := map[string]uint64{}
		a.claimed = eachClaim(func(c *inbox.Claim) { current[c.Key] = c.Token })
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Token = current[s.Key] })
	}},
	{"a replay clears the failures", "Once/ReplayedKeepsItsFailures", func(a *alteration) {
		a.listed = eachRecord(func(r *inbox.Record) {
			if r.State == inbox.StatePending {
				r.LastError, r.Failures = "", nil
			}
		})
	}},
	{"replays what has no stream", "Once/ReplayOfWhatHasNoStreamIsRefused", func(a *alteration) {
		a.changed = eachAnswer(func(c inbox.Change, err error) error { return unless(err, inbox.ErrState) })
	}},
	{"a replayed event is new", "Once/ReplayedIsStillKnown", func(a *alteration) {
		replayed := map[string]bool{}
		a.change = eachChange(func(c *inbox.Change) { replayed[c.ID] = true })
		a.accepted = func(arrivals []inbox.Arrival, answers []inbox.Answer) []inbox.Answer {
			for i, x := range arrivals {
				if replayed[x.ID] {
					answers[i] = inbox.Accepted
				}
			}
			return answers
		}
	}},
	{"age from the acceptance", "Once/ReplayedCountsItsAgeAnew", func(a *alteration) {
		a.listed = eachRecord(func(r *inbox.Record) { r.Age = time.Since(r.Received) })
	}},
	{"oldest from the acceptance", "Once/ReplayedCountsItsAgeAnew", func(a *alteration) {
		a.totals = func(t *inbox.Totals) {
			for _, r := range a.every() {
				if r.State == inbox.StatePending {
					t.Oldest = max(t.Oldest, time.Since(r.Received))
				}
			}
		}
	}},
	{"forgets what was replayed", "Once/ReplayedIsNotForgotten", func(a *alteration) {
		a.swept = func() {
			for _, r := range a.every() {
				if len(r.Actions) > 0 {
					a.do(inbox.ChangeForget, r)
				}
			}
		}
	}},

	{"forgets nothing", "Once/ForgetRemovesEveryRecord", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) {
			if c.Kind == inbox.ChangeForget {
				c.ID = "p/absent"
			}
		})
	}},
	{"forgets the record and not the event", "Once/ForgottenByAPersonIsNew", func(a *alteration) {
		forgotten := a.forgotten()
		a.accepted = func(arrivals []inbox.Arrival, answers []inbox.Answer) []inbox.Answer {
			for i, x := range arrivals {
				if forgotten[x.ID] {
					answers[i] = inbox.Conflict
				}
			}
			return answers
		}
	}},
	{"a forgotten record is in the way", "Once/ForgetOfAPendingLetsTheNextPass", func(a *alteration) {
		forgotten := a.forgotten()
		a.claimed = func(_ inbox.Ask, c *inbox.Claimed) {
			if len(forgotten) > 0 {
				c.Claims = nil
			}
		}
	}},
	{"a forgotten key is due for ever", "Once/ForgetOfTheOnlyPendingLeavesNothing", func(a *alteration) {
		forgotten := a.forgotten()
		a.claimed = func(_ inbox.Ask, c *inbox.Claimed) {
			if len(forgotten) > 0 {
				c.Next = time.Second
			}
		}
	}},
	{"forgetting frees the key", "Once/ForgetOfWhatIsWorkedMakesItsWorkerStale", func(a *alteration) {
		release := a.releases()
		a.changed = func([]inbox.Change, []error) []error { release(); return nil }
	}},
	{"settles what was forgotten", "Once/ForgetOfWhatIsWorkedMakesItsWorkerStale", func(a *alteration) {
		forgotten := a.forgotten()
		a.settled = eachError(func(s inbox.Settlement, err error) error {
			if forgotten[s.ID] {
				return nil
			}
			return err
		})
	}},
	{"settles what came after", "Once/ForgottenAndAcceptedAgainIsAnother", func(a *alteration) {
		forgotten := a.forgotten()
		a.settle = eachSettlement(func(s *inbox.Settlement) {
			if forgotten[s.ID] {
				first := *s
				first.Kind = inbox.KindBegin
				a.Memory.Settle(context.Background(), inbox.Params{}, []inbox.Settlement{first})
			}
		})
	}},
	{"does not look at the number of a record", "Once/SettlementOfAForgottenRecordLeavesTheNext", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Seq = 0 })
	}},
	{"forgets by prefix", "Once/ForgetLeavesOthers", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) {
			for _, r := range a.every() {
				if c.Kind == inbox.ChangeForget && strings.HasPrefix(r.ID, c.ID) {
					a.do(inbox.ChangeForget, r)
				}
			}
		})
	}},
	{"forgets what comes meanwhile", "Once/ConcurrentForgettingLeavesNothing", func(a *alteration) {
		a.change = eachChange(func(c *inbox.Change) {
			rs := a.of(c.ID)
			a.mu.Unlock()
			time.Sleep(time.Millisecond)
			a.mu.Lock()
			for _, r := range a.every() {
				if len(rs) > 0 && r.Key == rs[0].Key {
					a.do(inbox.ChangeForget, r)
				}
			}
		})
	}},
	{"changes lost when it is opened again", "Once/ReopenKeepsChanges", func(a *alteration) {
		a.reopen = func() { a.listed = eachRecord(func(r *inbox.Record) { r.Actions = nil }) }
	}},
	{"changes differ from memory", "Once/RandomHistoriesAgreeWithMemory", func(a *alteration) {
		a.change = func(p *inbox.Params, _ []inbox.Change) { p.Retention = p.Keep + 1 }
	}},
}
