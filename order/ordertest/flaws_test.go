package ordertest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/order"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	set     func(*alteration)
}

var flaws = []flaw{
	{"the payload is the identity", "Once/EqualPayloads", func(a *alteration) {
		seen := map[string]uint64{}
		a.push = eachArrival(func(x *order.Arrival) {
			if n := seen[string(x.Payload)]; n != 0 {
				x.Position.Number = n
			}
			seen[string(x.Payload)] = x.Position.Number
		})
	}},
	{"a re-send moves the first", "Once/ResendAsNewNumber", func(a *alteration) {
		last := map[string]uint64{}
		a.claimed = eachClaim(func(c *order.Claim) {
			c.Run = slices.DeleteFunc(c.Run, func(m order.Message) bool { return last[string(m.Payload)] > m.Position.Number })
		})
		a.push = eachArrival(func(x *order.Arrival) { last[string(x.Payload)] = x.Position.Number })
	}},
	{"conflict taken for a duplicate", "Once/SameNumberOtherBody", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) { x.Digest = [16]byte{} })
	}},
	{"conflict forgotten at delivery", "Once/WindowIsExact", func(a *alteration) {
		a.settle = func(p *order.Params, s []order.Settlement) []order.Settlement { p.Window = 0; return s }
		a.push = func(p *order.Params, _ []order.Arrival) { p.Window = 0 }
		a.pushed = func(arrivals []order.Arrival, answers []order.Answer) {
			for i := range answers {
				if answers[i].State == order.Conflict {
					answers[i].State = order.Duplicate
				}
			}
		}
	}},
	{"duplicate stored again", "Twice/NewNumberIsBuffered", func(a *alteration) {
		a.pushed = func(_ []order.Arrival, answers []order.Answer) {
			for i := range answers {
				if answers[i].State == order.Duplicate {
					answers[i].State = order.Buffered
				}
			}
		}
	}},
	{"every key starts at 1", "Once/StartAt101", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.Start = 1 }
	}},
	{"numbers are floats", "Once/Around2To53", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) { x.Position.Number = uint64(float64(x.Position.Number)) })
	}},
	{"numbers end at 2^62", "Once/MaxNumber", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) { x.Position.Number = min(x.Position.Number, 1<<62) })
	}},
	{"takes any number", "Once/TooFarAhead", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.MaxAhead = 1 << 60 }
	}},
	{"never full", "Once/FullKeyTakesOnlyTheCursor", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.MaxBuffered = 1 << 30 }
	}},
	{"names without case", "Once/NamesAreExact", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) { x.Key = strings.ToLower(x.Key) })
	}},
	{"strings end at NUL", "Once/PayloadsAreBytes", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) {
			s, _, _ := strings.Cut(string(x.Payload), "\x00")
			x.Payload = []byte(s)
		})
	}},
	{"checks and then sets", "Once/ConcurrentPushesStoreOne", func(a *alteration) {
		known := map[order.Position]bool{}
		a.push = eachArrival(func(x *order.Arrival) {
			before := known[x.Position]
			a.mu.Unlock()
			time.Sleep(time.Millisecond) // others check meanwhile
			a.mu.Lock()
			if !before {
				x.Position.Number += uint64(len(known)) // an insert that nothing stops
				known[x.Position] = true
			}
		})
	}},
	{"no epochs", "Once/LowerEpochIsDrainedFirst", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) { x.Position.Epoch = 1 })
	}},
	{"abandons without a record", "Once/AbandonSkipsWithRecords", func(a *alteration) {
		a.gaps = func(gaps []order.Gap) {
			for i := range gaps {
				gaps[i].Reason = 0
			}
		}
	}},
	{"always abandons", "Once/EpochBumpWithOldMessagesInFlight", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.Abandon = true }
	}},
	{"two owners of a key", "Once/ClaimedKeyIsNotClaimedAgain", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { x.Lease = time.Microsecond }
		a.claimed = func(order.Ask, *order.Claimed) {
			a.mu.Unlock()
			time.Sleep(time.Millisecond)
			a.mu.Lock()
		}
	}},
	{"lease in the client's clock", "Once/LapsedKeyIsDue", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { x.Lease += time.Hour } // of a client that is an hour ahead
	}},
	{"keys in any order", "Once/KeysComeInTheOrderInWhichTheyBecameDue", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { x.Keys = 100 }
		a.claimed = func(ask order.Ask, c *order.Claimed) {
			slices.SortFunc(c.Claims, func(x, y order.Claim) int { return strings.Compare(x.Key, y.Key) })
			c.Claims = c.Claims[:min(len(c.Claims), ask.Keys)]
		}
	}},
	{"claim not repeatable", "Once/SameNonceSameAnswer", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"claim not repeatable, all sent twice", "Twice/RunIsUnbroken", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { rand.Read(x.Nonce[:]) }
	}},
	{"delivers past a hole", "Once/RunIsUnbroken", func(a *alteration) {
		a.ask = func(p *order.Params, x *order.Ask) { p.GapLook = 0 }
		a.claimed = eachClaim(func(c *order.Claim) {
			if len(c.Run) > 0 {
				next := c.Run[len(c.Run)-1]
				next.Position.Number += 2
				c.Run = append(c.Run, next)
			}
		})
	}},
	{"attempt written after the handler", "Once/PoisonThatKillsTheProcessThreeTimes", func(a *alteration) {
		a.claimed = eachClaim(func(c *order.Claim) {
			for i := range c.Run {
				c.Run[i].Attempt = 1
			}
		})
	}},
	{"a failure counts for those behind it", "Once/RetryUnbeginsWhatIsBehind", func(a *alteration) {
		failed := false
		a.settle = eachSettlement(func(s *order.Settlement) { failed = failed || s.Kind == order.KindRetry })
		a.claimed = eachClaim(func(c *order.Claim) {
			for i := range c.Run {
				if failed {
					c.Run[i].Attempt = 2
				}
			}
		})
	}},
	{"no fence", "Once/TwoHoldersWithAPausedOne", func(a *alteration) {
		current := map[string]uint64{}
		a.claimed = eachClaim(func(c *order.Claim) { current[c.Key] = c.Token })
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Token != 0 {
				s.Token = current[s.Key]
			}
		})
	}},
	{"tokens restart", "Once/TokensRise", func(a *alteration) {
		real := map[string]uint64{}
		a.settle = eachSettlement(func(s *order.Settlement) { s.Token = real[s.Key] })
		a.claimed = eachClaim(func(c *order.Claim) { real[c.Key], c.Token = c.Token, 1 })
	}},
	{"settlement not repeatable", "Once/SettlementTwiceSucceeds", func(a *alteration) {
		applied := map[order.Settlement]bool{}
		a.settled = eachError(func(s order.Settlement, err error) error {
			if err == nil && applied[s] {
				return order.ErrStale
			}
			applied[s] = true
			return err
		})
	}},
	{"settlement not repeatable, all sent twice", "Twice/DeliverMovesTheCursor", func(a *alteration) {
		applied := map[order.Settlement]bool{}
		a.settled = eachError(func(s order.Settlement, err error) error {
			if err == nil && applied[s] {
				return order.ErrStale
			}
			applied[s] = true
			return err
		})
	}},
	{"the cursor counts deliveries", "Once/CursorNeverGoesBack", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindDeliver && s.To == 2 {
				s.To = 4
			}
		})
	}},
	{"void is skipped", "Once/VoidIsCrossedAtOnce", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindVoid && s.From == 1 {
				s.Kind, s.Reason = order.KindSkip, order.ReasonTimeout
			}
		})
	}},
	{"what is void is not awaited", "Once/VoidNumberThatArrivesIsDelivered", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) {
			if x.Position.Number == 4 {
				x.Position.Number = 1
			}
		})
	}},
	{"the gap's clock restarts", "Once/ArrivalsShortenTheGap", func(a *alteration) {
		a.gaps = func(gaps []order.Gap) {
			for i := range gaps {
				gaps[i].Age = 0
			}
		}
	}},
	{"the gap's clock is the client's", "Once/GapOpenAcrossARestart", func(a *alteration) {
		a.reopen = func() { a.gaps = func(gaps []order.Gap) { gaps[0].Asked = 0 } }
	}},
	{"late goes back", "Once/LateMessageAfterASkipThenItsSuccessor", func(a *alteration) {
		a.claimed = eachClaim(func(c *order.Claim) {
			if len(c.Late) > 0 {
				c.Run = append(slices.Clone(c.Late), c.Run...)
				c.Late = nil
			}
		})
	}},
	{"late in silence", "Once/LateIsHandedOverOnce", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.Late = false }
	}},
	{"late does not count", "Once/LateCountsInItsRecord", func(a *alteration) {
		a.gaps = func(gaps []order.Gap) {
			for i := range gaps {
				gaps[i].Arrived = 0
			}
		}
	}},
	{"retry blocks nothing", "Once/RetryBlocksItsKeyAndNoOther", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) { s.Delay = 0 })
	}},
	{"no rest for a key", "Once/ReleaseWithADelayPutsTheRunOff", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindRelease {
				s.Delay = 0
			}
		})
	}},
	{"assigned epochs are the store's alone", "Once/AssignedBeginsAHigherEpoch", func(a *alteration) {
		a.push = eachArrival(func(x *order.Arrival) {
			if x.Assign {
				x.Position.Epoch = 0
			}
		})
	}},
	{"the error is lost", "Once/ParkHoldsTheKey", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) { s.Error = "" })
	}},
	{"IDs are not kept where late messages are not", "Once/DroppedMessageKeepsItsIDWhenSentAgain", func(a *alteration) {
		a.push = func(p *order.Params, arrivals []order.Arrival) {
			for i := range arrivals {
				if !p.Late && arrivals[i].Position.Epoch == 1 {
					arrivals[i].ID = ""
				}
			}
		}
	}},
	{"a drop sent again undoes a resolution", "Once/DropAgainKeepsWhatWasResolved", func(a *alteration) {
		a.settle = func(p *order.Params, s []order.Settlement) []order.Settlement {
			for _, x := range s {
				if x.Kind == order.KindDrop {
					x.Kind, x.To = order.KindResolve, x.From+1
					_, _ = a.Memory.Settle(context.Background(), *p, []order.Settlement{x})
				}
			}
			return s
		}
	}},
	{"a nack drops the message", "Once/NackInOneLaneWhileAnotherFlows", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindRetry {
				s.Kind, s.To = order.KindDeliver, s.From+1
			}
		})
	}},
	{"forgetting leaves the token", "Once/ForgottenOwnerIsStale", func(a *alteration) {
		a.settled = eachError(func(s order.Settlement, err error) error {
			if s.Kind == order.KindDeliver {
				return nil
			}
			return err
		})
	}},
	{"reports of the outage are lost", "Once/UnorderedAheadIsCrossed", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindUnordered {
				s.From = 1 << 40
			}
		})
		a.settled = func(_ []order.Settlement, errs []error) []error { return make([]error, len(errs)) }
	}},
	{"the sum below the cursor is wrong", "Once/SkipKeepsARecord", eachLedger(func(l *order.Ledger) { l.Skipped = 0 })},
	{"the sum above the cursor is wrong", "Once/NewNumberIsBuffered", eachLedger(func(l *order.Ledger) { l.Missing = 0 })},
	{"arrivals are not counted", "Once/RepeatedNumberIsDuplicate", func(a *alteration) {
		a.account = func(x *order.Account) { x.Arrivals.Duplicate = 0 }
	}},
	{"retention for none", "Once/SweepForgetsBodies", func(a *alteration) {
		a.found = func(found []order.Found) {
			if found[0].State == order.StateUnknown {
				found[0].State = order.StateDelivered
			}
		}
	}},
	{"bodies are not kept", "Once/BodyIsKeptWithAnID", func(a *alteration) {
		a.found = func(found []order.Found) {
			if found[0].State == order.StateDelivered {
				found[0].Message = nil
			}
		}
	}},
	{"lost when it is opened again", "Once/ReopenKeepsMessages", func(a *alteration) {
		a.reopen = func() { a.Memory = order.NewMemory() }
	}},
	{"pages overlap", "Once/GapsPages", func(a *alteration) {
		a.gaps = func(gaps []order.Gap) {
			for i := range gaps {
				gaps[i].From -= gaps[i].From % 2
			}
		}
	}},
	{"ranges are per number", "Once/HugeGapIsSkippedAtOnce", func(a *alteration) {
		a.settle = func(_ *order.Params, s []order.Settlement) []order.Settlement {
			for i := range s {
				if s[i].Kind == order.KindVoid {
					s[i].To = min(s[i].To, s[i].From+1000)
				}
			}
			return s
		}
	}},
	{"differs from the model", "Once/RandomHistoriesAgreeWithTheModel", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) { s.Delay = min(s.Delay, 30*time.Second) })
	}},
}

func eachArrival(f func(*order.Arrival)) func(*order.Params, []order.Arrival) {
	return func(_ *order.Params, arrivals []order.Arrival) {
		for i := range arrivals {
			f(&arrivals[i])
		}
	}
}

func eachClaim(f func(*order.Claim)) func(order.Ask, *order.Claimed) {
	return func(_ order.Ask, c *order.Claimed) {
		for i := range c.Claims {
			f(&c.Claims[i])
		}
	}
}

func eachSettlement(f func(*order.Settlement)) func(*order.Params, []order.Settlement) []order.Settlement {
	return func(_ *order.Params, s []order.Settlement) []order.Settlement {
		for i := range s {
			f(&s[i])
		}
		return s
	}
}

func eachError(f func(order.Settlement, error) error) func([]order.Settlement, []error) []error {
	return func(s []order.Settlement, errs []error) []error {
		for i := range s {
			errs[i] = f(s[i], errs[i])
		}
		return errs
	}
}

func eachLedger(f func(*order.Ledger)) func(*alteration) {
	return func(a *alteration) {
		a.account = func(x *order.Account) {
			for i := range x.Ledgers {
				f(&x.Ledgers[i])
			}
		}
	}
}
