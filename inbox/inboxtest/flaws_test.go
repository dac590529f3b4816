package inboxtest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	set     func(*alteration)
}

var storeFlaws = []flaw{
	{"accepts in part", "Once/EveryEventOfABatchIsStored", func(a *alteration) {
		a.accept = func(_ *inbox.Params, arrivals []inbox.Arrival) []inbox.Arrival {
			return arrivals[:min(len(arrivals), 999)]
		}
		a.accepted = func(arrivals []inbox.Arrival, answers []inbox.Answer) []inbox.Answer {
			for len(answers) < len(arrivals) {
				answers = append(answers, inbox.Accepted)
			}
			return answers
		}
	}},
	{"counts what has failed and what has not in two looks", "Once/ConcurrentFailuresStayPending", func(a *alteration) {
		count := func(failed bool) (n int) {
			rs, _ := a.Memory.List(context.Background(), inbox.Query{State: inbox.StatePending, N: 1000})
			for _, r := range rs {
				if (r.LastError != "") == failed {
					n++
				}
			}
			return n
		}
		a.totals = func(t *inbox.Totals) {
			t.Pending = count(true)
			time.Sleep(time.Millisecond)
			t.Pending += count(false)
		}
	}},
	{"forgets duplicates", "Once/RepeatedAcceptFindsItsRecords", func(a *alteration) {
		a.accepted = func(_ []inbox.Arrival, answers []inbox.Answer) []inbox.Answer {
			return changed(answers, inbox.Duplicate, inbox.Accepted)
		}
	}},
	{"conflict ignored", "Once/OtherDigestIsConflict", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.Digest = [32]byte{} })
	}},
	{"conflict overwrites", "Once/ConflictDoesNotChangeTheFirst", func(a *alteration) {
		last := map[string][]byte{}
		a.accept = eachArrival(func(x *inbox.Arrival) { last[x.ID] = x.Payload })
		overwrite := func(rs []inbox.Record) {
			for i := range rs {
				rs[i].Payload = slices.Clone(last[rs[i].ID])
			}
		}
		a.listed = overwrite
		a.claimed = func(_ inbox.Ask, c *inbox.Claimed) { overwrite(c.Claims[0].Records) }
	}},
	{"every conflict kept", "Once/ConflictIsKeptOnceForADigest", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) {
			if !strings.HasPrefix(string(x.Payload), "payload of") {
				rand.Read(x.Digest[:])
			}
		})
	}},
	{"works what it could not decode", "Once/RawIsQuarantined", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) {
			if x.Raw {
				x.Raw, x.Streams = false, []string{stream}
			}
		})
	}},
	{"checks and then sets", "Once/ConcurrentArrivalsStoreOne", func(a *alteration) {
		known := map[string]bool{}
		a.accept = func(_ *inbox.Params, arrivals []inbox.Arrival) []inbox.Arrival {
			before := known[arrivals[0].ID]
			a.mu.Unlock()
			time.Sleep(time.Millisecond) // others check meanwhile
			a.mu.Lock()
			if !before {
				arrivals[0].ID += strings.Repeat("x", len(known)) // an insert that nothing stops
				known[arrivals[0].ID] = true
			}
			return arrivals
		}
	}},
	{"strings end at NUL", "Once/PayloadsAreBytes", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) {
			s, _, _ := strings.Cut(string(x.Payload), "\x00")
			x.Payload = []byte(s)
		})
	}},
	{"names without case", "Once/NamesAreExact", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.ID = strings.ToLower(x.ID) })
	}},
	{"time without fractions", "Once/EveryFieldIsKept", func(a *alteration) {
		a.accept = eachArrival(func(x *inbox.Arrival) { x.Occurred = x.Occurred.Truncate(time.Second) })
	}},
	{"two owners of a key", "Once/ClaimedKeyIsNotClaimedAgain", func(a *alteration) {
		a.ask = func(x *inbox.Ask) { x.Lease = time.Microsecond }
		a.claimed = func(inbox.Ask, *inbox.Claimed) {
			a.mu.Unlock()
			time.Sleep(time.Millisecond)
			a.mu.Lock()
		}
	}},
	{"lease in the client's clock", "Once/LapsedKeyIsDue", func(a *alteration) {
		a.ask = func(x *inbox.Ask) { x.Lease += time.Hour } // of a client that is an hour ahead
	}},
	{"order broken", "Once/RecordsComeInOrder", func(a *alteration) {
		a.claimed = eachClaim(func(c *inbox.Claim) {
			slices.SortFunc(c.Records, func(x, y inbox.Record) int { return strings.Compare(x.ID, y.ID) })
		})
	}},
	{"keys in any order", "Once/KeysComeInTheOrderInWhichTheyBecameDue", func(a *alteration) {
		a.ask = func(x *inbox.Ask) { x.Keys = 100 }
		a.claimed = func(ask inbox.Ask, c *inbox.Claimed) {
			slices.SortFunc(c.Claims, func(x, y inbox.Claim) int { return strings.Compare(x.Key, y.Key) })
			c.Claims = c.Claims[:min(len(c.Claims), ask.Keys)]
		}
	}},
	{"attempt written after the handler", "Once/AttemptIsWrittenBeforeTheHandler", func(a *alteration) {
		a.claimed = eachClaim(func(c *inbox.Claim) { c.Records[0].Attempts = 1 })
	}},
	{"begins all records of a claim", "Once/ClaimBeginsTheFirst", func(a *alteration) {
		a.claimed = eachClaim(func(c *inbox.Claim) {
			for i := range c.Records {
				c.Records[i].Attempts = max(c.Records[i].Attempts, 1)
			}
		})
	}},
	{"claim not repeatable", "Once/SameNonceSameAnswer", func(a *alteration) {
		a.ask = func(x *inbox.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"claim not repeatable, all sent twice", "Twice/RecordsComeInOrder", func(a *alteration) {
		a.ask = func(x *inbox.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"no fence", "Once/StaleOwnerChangesNothing", func(a *alteration) {
		current := map[string]uint64{}
		a.claimed = eachClaim(func(c *inbox.Claim) { current[c.Key] = c.Token })
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Token = current[s.Key] })
	}},
	{"tokens restart", "Once/TokensRise", func(a *alteration) {
		real := map[string]uint64{}
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Token = real[s.Key] })
		a.claimed = eachClaim(func(c *inbox.Claim) { real[c.Key], c.Token = c.Token, 1 })
	}},
	{"a record that has just ended is begun", "Once/BeginOfWhatTheBatchEndedIsStale", func(a *alteration) {
		a.settled = func(s []inbox.Settlement, errs []error) []error {
			for i := 1; i < len(s); i++ {
				if s[i].Kind == inbox.KindBegin && s[i].ID == s[i-1].ID && errs[i-1] == nil {
					errs[i] = nil
				}
			}
			return errs
		}
	}},
	{"settlement not repeatable", "Once/AnEndTwiceSucceeds", func(a *alteration) {
		a.settled = once()
	}},
	{"settlement not repeatable, all sent twice", "Twice/DoneEndsTheRecord", func(a *alteration) {
		a.settled = once()
	}},
	{"retry blocks nothing", "Once/RetryBlocksItsKeyAndNoOther", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Delay = 0 })
	}},
	{"the error is lost", "Once/DeadIsKeptWithItsError", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Error = "" })
	}},
	{"what was given up on is done", "Once/ListSelectsAState", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) {
			if s.Kind == inbox.KindDead {
				s.Kind = inbox.KindDone
			}
		})
	}},
	{"retention for all alike", "Once/QuarantineIsKeptWithItsError", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Keep = p.Retention }
	}},
	{"forgets early", "Once/NothingIsForgottenEarly", func(a *alteration) {
		a.settle = func(p *inbox.Params, _ []inbox.Settlement) { p.Retention = time.Second }
	}},
	{"lost when it is opened again", "Once/ReopenKeepsWhatWasAccepted", func(a *alteration) {
		a.reopen = func() { a.Memory = inbox.NewMemory() }
	}},
	{"pages overlap", "Once/ListPages", func(a *alteration) {
		a.listed = func(rs []inbox.Record) {
			for i := range rs {
				rs[i].Seq -= rs[i].Seq % 2
			}
		}
	}},
	{"differs from memory", "Once/RandomHistoriesAgreeWithMemory", func(a *alteration) {
		a.settle = eachSettlement(func(s *inbox.Settlement) { s.Lease = min(s.Lease, 30*time.Second) })
	}},
}
