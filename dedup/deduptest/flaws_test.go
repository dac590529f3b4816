package deduptest

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	store   func() dedup.Store
}

// flaws that alter what goes into or comes out of the memory store, and flaws
// inside a store made of the suite's own model.
var flaws = []flaw{
	{"mark before", "Once/AnotherAskIsInFlight", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) { p.Complete = true }
	})},
	{"lost result", "Once/CompletedIsDoneWithResult", altered(func(a *alteration) {
		a.settle = eachSettlement(func(s *dedup.Settlement) { s.Result = nil })
	})},
	{"result ends at NUL", "Once/ResultsAreBytes", altered(func(a *alteration) {
		a.settle = eachSettlement(func(s *dedup.Settlement) { s.Result, _, _ = bytes.Cut(s.Result, []byte{0}) })
	})},
	{"conflict ignored", "Once/ConflictComesFirst", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.Fingerprint = [32]byte{} })
	})},
	{"fingerprint shortened", "Once/FingerprintIsComparedInFull", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { clear(a.Fingerprint[8:]) })
	})},
	{"claim not repeatable", "Once/RepeatedAskGetsSameAnswer", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.Nonce = newAsk("").Nonce })
	})},
	{"claim not repeatable, all sent twice", "Twice/FirstAskIsAcquired", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.Nonce = newAsk("").Nonce })
	})},
	{"first seen not repeatable", "Once/FirstSeenRepeated", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.Nonce = newAsk("").Nonce })
	})},
	{"first seen does not complete", "Once/FirstSeenCompletes", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) { p.Complete = false }
	})},
	{"expiry early", "Once/NotForgottenBeforeRetention", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) { p.Retention = min(p.Retention, p.Lease) }
		a.settle = func(p *dedup.Params, _ []dedup.Settlement) { p.Retention = min(p.Retention, p.Lease) }
	})},
	{"never expires", "Once/ForgottenAfterRetention", altered(func(a *alteration) {
		a.settle = func(p *dedup.Params, _ []dedup.Settlement) { p.Retention = dedup.MaxDuration }
	})},
	{"hold is rerun", "Once/LapsedUnderHoldIsUnknown", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) { p.OnLapse = dedup.Rerun }
	})},
	{"scopes run together", "Once/ScopesAreSeparate", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) { p.Scope = "one" }
		a.settle = func(p *dedup.Params, _ []dedup.Settlement) { p.Scope = "one" }
	})},
	{"scope and ID joined", "Once/ScopeAndIDDoNotRunTogether", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, asks []dedup.Ask) {
			for i := range asks {
				asks[i].ID = p.Scope + asks[i].ID
			}
			p.Scope = "one"
		}
	})},
	{"IDs without case", "Once/IDsAreComparedByteByByte", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.ID = strings.ToLower(a.ID) })
	})},
	{"IDs cut short", "Once/LongestIDs", altered(func(a *alteration) {
		a.claim = eachAsk(func(a *dedup.Ask) { a.ID = a.ID[:min(len(a.ID), 255)] })
	})},
	{"lease in whole seconds", "Once/ShortestLeaseIsALease", altered(func(a *alteration) {
		a.claim = func(p *dedup.Params, _ []dedup.Ask) {
			if p.Lease = p.Lease.Truncate(time.Second); p.Lease == 0 { // "no expiry", as many servers say
				p.Lease = dedup.MaxDuration
			}
		}
	})},
	{"context ignored", "Once/CancelledContext", func() dedup.Store { return deaf{dedup.NewMemory()} }},
	{"errors without places", "Once/SettlementErrorsArePositioned", func() dedup.Store { return terse{dedup.NewMemory()} }},
	{"answers from the first", "Once/RepeatedIDInBatch", func() dedup.Store { return hasty{dedup.NewMemory()} }},

	{"no fence", "Once/StaleOwnerCannotComplete", broken(func(b *brokenModel) { b.settle = ignoreToken })},
	{"no fence for the next owner", "Once/LateOwnerAndNextOwnerNeverBothWin", broken(func(b *brokenModel) { b.settle = ignoreToken })},
	{"release by a stale owner", "Once/StaleOwnerCannotRelease", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if s.Kind == dedup.KindRelease {
				return ignoreToken(m, now, p, s)
			}
			return m.settle(now, p, s)
		}
	})},
	{"client clock", "Once/AnotherAskIsInFlight", broken(func(b *brokenModel) {
		calls := 0
		b.clock = func() time.Time { // of two callers, one of which is two hours ahead
			calls++
			return time.Now().Add(time.Duration(calls%2) * 2 * time.Hour)
		}
	})},
	{"check then set", "Once/ConcurrentAsksElectOne", func() dedup.Store { return &checkThenSet{Store: dedup.NewMemory()} }},
	{"check then set for first seen", "Once/ConcurrentFirstSeenElectsOne", func() dedup.Store { return &checkThenSet{Store: dedup.NewMemory()} }},
	{"completion not repeatable", "Once/CompleteTwiceSucceeds", broken(func(b *brokenModel) { b.settle = onlyOnce })},
	{"release not repeatable", "Once/ReleaseTwiceSucceeds", broken(func(b *brokenModel) { b.settle = onlyOnce })},
	{"settlement not repeatable, all sent twice", "Twice/CompletedIsDoneWithResult", broken(func(b *brokenModel) { b.settle = onlyOnce })},
	{"duplicates counted as owners", "Once/AttemptCountsOwnersNotDuplicates", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			c := m.claim(now, p, a)
			if c.State == dedup.InFlight {
				m.recs[key{p.Scope, a.ID}].attempt++
			}
			return c
		}
	})},
	{"last result wins", "Once/FirstResultStays", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			err := m.settle(now, p, s)
			if r := m.recs[key{p.Scope, s.ID}]; err == nil && r != nil && s.Kind == dedup.KindComplete {
				r.result = s.Result
			}
			return err
		}
	})},
	{"result shared with the caller", "Once/SlicesAreNotShared", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			err := m.settle(now, p, s)
			if r := m.recs[key{p.Scope, s.ID}]; err == nil && r != nil && len(r.result) > 0 {
				r.result = s.Result
			}
			return err
		}
	})},
	{"held expires", "Once/HeldNeverExpires", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			k := key{p.Scope, a.ID}
			if r := m.recs[k]; r != nil && r.unknown(now) && now.After(r.changed.Add(r.retention)) {
				delete(m.recs, k)
			}
			return m.claim(now, p, a)
		}
	})},
	{"token restarts at 1", "Once/TokenRisesAfterForget", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			c := m.claim(now, p, a)
			if r := m.recs[key{p.Scope, a.ID}]; c.State == dedup.Acquired {
				r.token = uint64(c.Attempt)
				c.Token = r.token
			}
			return c
		}
	})},
	{"token is the time alone", "Once/TokenRisesAcrossOwners", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			if r := m.recs[key{p.Scope, a.ID}]; r != nil && r.phase != claimed {
				r.token = 0
			}
			return m.claim(now, p, a)
		}
	})},
	{"release erases", "Once/ReleaseKeepsTheRecord", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			err := m.settle(now, p, s)
			if err == nil && s.Kind == dedup.KindRelease {
				delete(m.recs, key{p.Scope, s.ID})
			}
			return err
		}
	})},
	{"spent ask acquires", "Once/LateCopyOfSpentAskChangesNothing", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			if r := m.recs[key{p.Scope, a.ID}]; r != nil && r.phase == released {
				r.nonce = [16]byte{}
			}
			return m.claim(now, p, a)
		}
	})},
	{"duplicates prolong", "Once/DuplicatesDoNotProlongTheRetention", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			c := m.claim(now, p, a)
			m.recs[key{p.Scope, a.ID}].changed = now
			return c
		}
	})},
	{"retention counts from the claim", "Once/RetentionCountsFromCompletion", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			err := m.settle(now, p, s)
			if r := m.recs[key{p.Scope, s.ID}]; r != nil {
				r.changed = r.granted
			}
			return err
		}
	})},
	{"extension does not keep the record", "Once/ExtensionIsAChange", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			r := m.recs[key{p.Scope, s.ID}]
			if r == nil || s.Kind != dedup.KindExtend {
				return m.settle(now, p, s)
			}
			before := r.changed
			err := m.settle(now, p, s)
			r.changed = before
			return err
		}
	})},
	{"retain does nothing", "Once/RetainedStaysLonger", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if s.Kind == dedup.KindRetain {
				return nil
			}
			return m.settle(now, p, s)
		}
	})},
	{"retain is for ever", "Once/RetainedIsForgottenInItsTime", altered(func(a *alteration) {
		a.settle = eachSettlement(func(s *dedup.Settlement) {
			if s.Kind == dedup.KindRetain {
				s.Retention = dedup.MaxDuration
			}
		})
	})},
	{"retain shortens", "Once/RetainShortensNothing", broken(func(b *brokenModel) {
		b.settle = retains(func(r *record, now time.Time, s dedup.Settlement) {
			r.retention = now.Add(s.Retention).Sub(r.changed)
		})
	})},
	{"retain counts from the completion", "Once/RetainCountsFromNow", broken(func(b *brokenModel) {
		b.settle = retains(func(r *record, _ time.Time, s dedup.Settlement) {
			r.retention = max(r.retention, s.Retention)
		})
	})},
	{"retain completes", "Once/RetainMakesNoRecord", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if s.Kind == dedup.KindRetain {
				p.Complete = true
				m.claim(now, p, dedup.Ask{Request: dedup.Request{ID: s.ID}, Nonce: [16]byte{1}})
			}
			return m.settle(now, p, s)
		}
	})},
	{"retain extends the lease", "Once/RetainLeavesAloneWhatIsNotDone", broken(func(b *brokenModel) {
		b.settle = retains(func(r *record, now time.Time, s dedup.Settlement) {
			r.leaseEnd = now.Add(s.Retention)
		})
	})},
	{"retain takes the claim away", "Once/RetainLeavesAloneWhatIsNotDone", broken(func(b *brokenModel) {
		b.settle = retains(func(r *record, _ time.Time, _ dedup.Settlement) {
			if r.phase == claimed {
				r.phase, r.token = released, r.token+1
			}
		})
	})},
	{"retain keeps what was released", "Once/RetainDoesNotProlongWhatIsNotDone", broken(func(b *brokenModel) {
		b.settle = retains(func(r *record, now time.Time, s dedup.Settlement) {
			r.retention = max(r.retention, now.Add(s.Retention).Sub(r.changed))
		})
	})},
	{"retain is remembered for the completion", "Once/RetainDoesNotProlongWhatIsNotDone", broken(func(b *brokenModel) {
		kept := map[string]time.Duration{}
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if s.Kind == dedup.KindRetain {
				kept[s.ID] = s.Retention
			}
			p.Retention = max(p.Retention, kept[s.ID])
			return m.settle(now, p, s)
		}
	})},
	{"retain revives", "Once/RetainRevivesNothing", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if r := m.recs[key{p.Scope, s.ID}]; s.Kind == dedup.KindRetain && r != nil && r.phase == done {
				r.retention = max(r.retention, now.Add(s.Retention).Sub(r.changed))
			}
			return m.settle(now, p, s)
		}
	})},
	{"retain needs the token", "Once/RetainNeedsNoToken", broken(func(b *brokenModel) {
		b.settle = func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
			if r := m.recs[key{p.Scope, s.ID}]; s.Kind == dedup.KindRetain && r != nil && s.Token != 0 && s.Token != r.token {
				return dedup.ErrStale
			}
			return m.settle(now, p, s)
		}
	})},
	{"retain last in a batch", "Once/RetainInABatchTakesItsTurn", func() dedup.Store { return retainsLast{dedup.NewMemory()} }},
	{"policy of the asker", "Once/PolicyIsTheOwnersNotTheAskers", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			if r := m.recs[key{p.Scope, a.ID}]; r != nil {
				r.onLapse = p.OnLapse
			}
			return m.claim(now, p, a)
		}
	})},
	{"fingerprint of the last owner", "Once/FingerprintOutlivesItsOwner", broken(func(b *brokenModel) {
		b.claim = func(m *model, now time.Time, p dedup.Params, a dedup.Ask) dedup.Claim {
			c := m.claim(now, p, a)
			if c.State == dedup.Acquired {
				m.recs[key{p.Scope, a.ID}].fingerprint = a.Fingerprint
			}
			return c
		}
	})},
	{"late completion refused", "Once/LateOwnerOfALapsedClaimMayComplete", broken(func(b *brokenModel) { b.settle = inTimeOnly })},
	{"late extension refused", "Once/ExtendAfterLapseRevives", broken(func(b *brokenModel) { b.settle = inTimeOnly })},
	{"one wrong cell", "Once/EverySettlementInEveryState", broken(func(b *brokenModel) { b.settle = inTimeOnly })},
	{"a rule wrong somewhere", "Once/RandomHistoryMatchesTheModel", broken(func(b *brokenModel) { b.settle = inTimeOnly })},
	{"lapsed hold not listed", "Once/LapsedHoldIsListed", broken(func(b *brokenModel) {
		b.held = func(page []dedup.Claim, m *model, scope string) []dedup.Claim {
			return slices.DeleteFunc(page, func(c dedup.Claim) bool { return m.recs[key{scope, c.ID}].phase != held })
		}
	})},
	{"held in the order of a language", "Once/HeldIsInByteOrder", broken(func(b *brokenModel) {
		b.held = func(page []dedup.Claim, _ *model, _ string) []dedup.Claim {
			slices.SortFunc(page, func(a, b dedup.Claim) int {
				return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID))
			})
			return page
		}
	})},
}
