package dlqtest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	set     func(*alteration)
}

var flaws = []flaw{
	{"a put is not recognised", "Once/PutOfTheSameNonceAnswersTheSame", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { rand.Read(l.Nonce[:]) })
	}},
	{"a put is not recognised, all sent twice", "Twice/DuplicateAddsItsFailure", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { rand.Read(l.Nonce[:]) })
	}},
	{"a late copy makes a new letter", "Once/PutOfTheSameNonceAfterTheEnd", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { rand.Read(l.Nonce[:]) })
	}},
	{"a dead ID blocks", "Once/EndedLetterBlocksNothing", func(a *alteration) {
		known := map[string]bool{}
		a.put = eachPut(func(l *dlq.Put) { l.IfBlocked = l.IfBlocked || known[l.ID]; known[l.ID] = true })
		a.answered = eachAnswer(dlq.NotBlocked, dlq.Duplicate)
	}},
	{"a duplicate loses its failure", "Once/DuplicateAddsItsFailure", func(a *alteration) {
		known := map[string]bool{}
		a.put = eachPut(func(l *dlq.Put) {
			if known[l.ID] {
				l.Failure = dlq.Failure{}
			}
			known[l.ID] = true
		})
	}},
	{"everything parks", "Once/IfBlockedParksBehindAKey", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { l.IfBlocked = false })
	}},
	{"nothing parks", "Once/IfBlockedParksBehindAKey", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) {
			if l.IfBlocked {
				l.Key = "nobody's"
			}
		})
	}},
	{"no capacity", "Once/CapacityIsOfUnresolvedLetters", func(a *alteration) {
		a.put = func(p *dlq.Params, _ []dlq.Put) { p.Capacity = 1 << 30 }
	}},
	{"streams run together", "Once/StreamsAreApart", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { l.Stream = stream })
	}},
	{"the first failure is lost", "Once/LogKeepsFirstAndLast", func(a *alteration) {
		a.listed = eachRecord(func(r *dlq.Record) {
			if len(r.Log.Last) > 0 {
				r.Log.First = r.Log.Last[len(r.Log.Last)-1]
			}
		})
	}},
	{"the middle is dropped", "Once/LogKeepsFirstAndLast", func(a *alteration) {
		a.listed = eachRecord(func(r *dlq.Record) { r.Log.Folds = nil })
	}},
	{"strings end at NUL", "Once/BodiesAreBytes", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) {
			s, _, _ := strings.Cut(string(l.Body), "\x00")
			l.Body = []byte(s)
		})
	}},
	{"names without case", "Once/NamesAreExact", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { l.Key = strings.ToLower(l.Key) })
	}},
	{"times without fractions", "Once/EveryFieldIsKept", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { l.Failure.At = l.Failure.At.Truncate(time.Second) })
	}},
	{"two owners of a lane", "Once/ClaimedLaneIsNotClaimedAgain", func(a *alteration) {
		a.ask = func(x *dlq.Ask) { x.Lease = time.Microsecond }
		a.claimed = func(dlq.Ask, *dlq.Claimed) { time.Sleep(time.Millisecond) }
	}},
	{"lease in the client's clock", "Once/LapsedLaneIsDue", func(a *alteration) {
		a.ask = func(x *dlq.Ask) { x.Lease += time.Hour } // of a client that is an hour ahead
	}},
	{"a claim is not recognised", "Once/SameNonceSameAnswer", func(a *alteration) {
		a.ask = func(x *dlq.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"a claim is not recognised, all sent twice", "Twice/LettersOfAKeyComeInOrder", func(a *alteration) {
		a.ask = func(x *dlq.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"lanes in any order", "Once/LanesComeInTheOrderInWhichTheyBecameDue", func(a *alteration) {
		a.ask = func(x *dlq.Ask) { x.N = 100 }
		a.claimed = func(ask dlq.Ask, c *dlq.Claimed) {
			slices.SortFunc(c.Claims, func(x, y dlq.Claim) int { return strings.Compare(x.Lane, y.Lane) })
			c.Claims = c.Claims[:min(len(c.Claims), ask.N)]
		}
	}},
	{"keys do not hold anything up", "Once/LettersOfAKeyComeInOrder", func(a *alteration) {
		a.put = eachPut(func(l *dlq.Put) { l.Key = "" })
	}},
	{"a try is counted after it", "Once/ClaimBeginsTheFirstLetterOfALane", func(a *alteration) {
		a.claimed = eachClaim(func(c *dlq.Claim) { c.Record.Tries-- })
	}},
	{"no fence", "Once/StaleOwnerChangesNothing", func(a *alteration) {
		current := map[string]uint64{}
		a.claimed = eachClaim(func(c *dlq.Claim) { current[c.Lane] = c.Token })
		a.settle = eachSettlement(func(s *dlq.Settlement) { s.Token = current[s.Lane] })
	}},
	{"tokens restart", "Once/TokensRise", func(a *alteration) {
		real := map[string]uint64{}
		a.settle = eachSettlement(func(s *dlq.Settlement) { s.Token = real[s.Lane] })
		a.claimed = eachClaim(func(c *dlq.Claim) { real[c.Lane], c.Token = c.Token, 1 })
	}},
	{"a put is lost to a worker", "Once/APutWithAFailureTakesTheLetterFromItsWorker", func(a *alteration) {
		claims := map[string]dlq.Claim{}
		a.claimed = eachClaim(func(c *dlq.Claim) { claims[c.Lane] = *c })
		a.settled = func(s []dlq.Settlement, errs []error) {
			for i := range s {
				if claims[s[i].Lane].Token == s[i].Token {
					errs[i] = nil
				}
			}
		}
	}},
	{"a settlement is not recognised", "Once/SettlementTwiceSucceeds", func(a *alteration) {
		applied := map[string]bool{}
		a.settled = func(s []dlq.Settlement, errs []error) {
			for i := range s {
				name := fmt.Sprint(s[i].Kind, s[i].Lane, s[i].Token)
				if errs[i] == nil && applied[name] {
					errs[i] = dlq.ErrStale
				}
				applied[name] = true
			}
		}
	}},
	{"a release counts as a try", "Once/ReleaseIsNoTry", func(a *alteration) {
		a.settle = eachSettlement(func(s *dlq.Settlement) {
			if s.Kind == dlq.KindRelease {
				s.Kind, s.Failure = dlq.KindRetry, failure(printA, "released")
			}
		})
	}},
	{"a retry blocks nothing", "Once/RetryBlocksItsKeyAndNoOther", func(a *alteration) {
		a.settle = eachSettlement(func(s *dlq.Settlement) { s.Delay = 0 })
	}},
	{"review is forgotten", "Once/ReviewWaitsForAPerson", func(a *alteration) {
		a.settle = eachSettlement(func(s *dlq.Settlement) {
			if s.Kind == dlq.KindReview {
				s.Kind = dlq.KindResolve
			}
		})
	}},
	{"the worker wins over the person", "Once/AChangeTakesTheLetterFromItsWorker", func(a *alteration) {
		a.settled = func(_ []dlq.Settlement, errs []error) { clear(errs) }
	}},
	{"an edit loses the original", "Once/EditKeepsTheOriginal", func(a *alteration) {
		a.listed = eachRecord(func(r *dlq.Record) { r.Original = nil })
	}},
	{"an edit overwrites another", "Once/BeforeIsCompared", func(a *alteration) {
		a.change = eachChange(func(c *dlq.Change) { c.Before = [32]byte{} })
	}},
	{"a skip ends a letter", "Once/SkipPutsALetterAside", func(a *alteration) {
		a.change = eachChange(func(c *dlq.Change) {
			if c.Kind == dlq.ChangeSkip {
				c.Kind = dlq.ChangeDiscard
			}
		})
	}},
	{"a change is not recognised", "Once/SameNonceIsTheSameChange", func(a *alteration) {
		a.change = eachChange(func(c *dlq.Change) { rand.Read(c.Nonce[:]) })
	}},
	{"ended letters come back", "Once/EndedLettersAreNotChanged", func(a *alteration) {
		a.changed = func(_ []dlq.Change, errs []error) { clear(errs) }
	}},
	{"the audit loses its reason", "Once/EveryChangeIsAnEntry", func(a *alteration) {
		a.change = eachChange(func(c *dlq.Change) { c.Reason = "" })
	}},
	{"the audit goes with its letter", "Once/EntriesOutliveTheirLetter", func(a *alteration) {
		a.entries = func(e []dlq.Entry) []dlq.Entry {
			if slices.ContainsFunc(e, func(x dlq.Entry) bool { return x.Verb == "forget" }) {
				return nil
			}
			return e
		}
	}},
	{"a job is made twice", "Once/SaveJobCreatesOnce", func(a *alteration) {
		a.saved = func(_ *dlq.Job, err *error) { *err = nil }
	}},
	{"a save resets the counts", "Once/CountsSurviveASave", func(a *alteration) {
		a.saved = func(j *dlq.Job, _ *error) { j.Released = 0 }
	}},
	{"a job counts nothing", "Once/AJobCountsItsLetters", func(a *alteration) {
		a.change = eachChange(func(c *dlq.Change) { c.Job = "" })
	}},
	{"every alarm is the first", "Once/OneAlarmInAWindow", func(a *alteration) {
		a.alarm = func(alarms []dlq.Alarm) { alarms[0].Stream += "x" + rand.Text() }
	}},
	{"an alarm for ever", "Once/OneAlarmInAWindow", func(a *alteration) {
		a.alarm = func(alarms []dlq.Alarm) { alarms[0].Window = dlq.MaxDuration }
	}},
	{"a filter is dropped", "Once/ListSelects", func(a *alteration) {
		a.query = func(q *dlq.Query) {
			if q.Key != "" {
				q.Fingerprint = ""
			}
		}
	}},
	{"time is not a filter", "Once/ListSelectsByTime", func(a *alteration) {
		a.query = func(q *dlq.Query) { q.Until = time.Time{} }
	}},
	{"pages end early", "Once/ListPages", func(a *alteration) {
		a.listed = func(q dlq.Query, p *dlq.Page) {
			if q.N < 20 {
				p.Next = 0
			}
		}
	}},
	{"heads bring the body", "Once/ListOfHeads", func(a *alteration) {
		a.query = func(q *dlq.Query) { q.Heads = false }
	}},
	{"groups never end", "Once/AGroupBeginsAndEnds", func(a *alteration) {
		first := time.Time{}
		a.groups = func(gs []dlq.Group) {
			for i := range gs {
				if first.IsZero() {
					first = gs[i].First
				}
				gs[i].First = first
			}
		}
	}},
	{"groups count all states", "Once/GroupsCountUnresolvedLetters", func(a *alteration) {
		a.groups = func(gs []dlq.Group) {
			for i := range gs {
				gs[i].Waiting, gs[i].Review = gs[i].Waiting+gs[i].Review, 0
			}
		}
	}},
	{"the oldest of no letters", "Once/TotalsCountByState", func(a *alteration) {
		a.totals = func(ts []dlq.Totals) {
			for i := range ts {
				ts[i].Oldest = time.Hour
			}
		}
	}},
	{"forgets early", "Once/NothingIsForgottenEarly", func(a *alteration) {
		a.settle = func(p *dlq.Params, s []dlq.Settlement) []dlq.Settlement { p.Retention = time.Second; return s }
	}},
	{"the audit is forgotten early", "Once/NothingIsForgottenEarly", func(a *alteration) {
		a.change = func(p *dlq.Params, c []dlq.Change) []dlq.Change { p.Audit = time.Second; return c }
	}},
	{"forgets two seconds early", "Once/NothingIsForgottenASecondEarly", func(a *alteration) {
		a.change = func(p *dlq.Params, c []dlq.Change) []dlq.Change { p.Retention -= 2 * time.Second; return c }
	}},
	{"forgets a claimed lane", "Once/AnEmptyLaneIsKeptWhileItsLeaseRuns", func(a *alteration) {
		a.settled = func(_ []dlq.Settlement, errs []error) { errs[0] = dlq.ErrStale }
	}},
	{"shares the caller's slices", "Once/SlicesAreNotShared", func(a *alteration) {
		bodies := map[string][]byte{}
		a.put = eachPut(func(l *dlq.Put) { bodies[l.ID] = l.Body })
		a.listed = eachRecord(func(r *dlq.Record) { r.Original = bodies[r.ID] })
	}},
	{"sweep without bounds", "Once/SweepIsBounded", func(a *alteration) {
		a.sweep = func(n *int) { *n *= 1000 }
	}},
	{"checks and then sets", "Once/ConcurrentPutsAddOne", func(a *alteration) {
		known := map[string]bool{}
		a.put = func(_ *dlq.Params, letters []dlq.Put) {
			before := known[letters[0].ID]
			a.mu.Unlock()
			time.Sleep(time.Millisecond) // others check meanwhile
			a.mu.Lock()
			if !before {
				letters[0].ID += strings.Repeat("x", len(known)) // an insert that nothing stops
				known[letters[0].ID] = true
			}
		}
	}},
	{"lost when it is opened again", "Once/ReopenKeepsLetters", func(a *alteration) {
		a.reopen = func() { a.Memory = dlq.NewMemory() }
	}},
	{"differs from memory", "Once/RandomHistoriesAgreeWithMemory", func(a *alteration) {
		a.settle = eachSettlement(func(s *dlq.Settlement) { s.Lease /= 2 })
	}},
}
