package seqgentest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	store   func() seqgen.Store
}

var flaws = []flaw{
	{"nonce ignored", "Once/RepeatedAskGetsTheSameNumbers", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Nonce = newNonce() }
	})},
	{"nonce ignored, all sent twice", "Twice/NumbersGoOn", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Nonce = newNonce() }
	})},
	{"only the last nonce is known", "Once/RepeatedAskAfterOthers", altered(func(a *alteration) {
		last := map[string][16]byte{}
		seen := map[[16]byte]bool{}
		a.ask = func(k *seqgen.Ask) {
			nonce := k.Nonce
			if seen[nonce] && last[k.Key] != nonce {
				k.Nonce = newNonce()
			}
			seen[nonce], last[k.Key] = true, nonce
		}
	})},
	{"modes run together", "Once/ModeIsFixedByTheFirstReservation", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) {
			if k.Mode == seqgen.Gapless {
				k.Mode = seqgen.Single
			}
		}
	})},
	{"mode checked before the nonce", "Once/TheFirstRuleThatFits", altered(func(a *alteration) {
		a.refuse = func(k *seqgen.Ask, s seqgen.State) error {
			if s.Mode != 0 && s.Mode != k.Mode {
				return seqgen.ErrMode
			}
			return nil
		}
	})},
	{"no fence", "Once/OnlyTheOwnerReserves", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) {
			if !k.Open {
				k.Token = a.state(k.Key).Token
			}
		}
	})},
	{"the old owner goes on after a takeover", "Once/OpenTakesTheKey", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) {
			if !k.Open {
				k.Token = a.state(k.Key).Token
			}
		}
	})},
	{"bump does not fence", "Once/BumpFencesTheOwner", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Open = true }
	})},
	{"used forgotten", "Once/TakeoverOrphansTheRest", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Used = 0 }
	})},
	{"a rule wrong somewhere", "Once/RandomHistoryMatchesTheReference", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Used = 0 }
	})},
	{"a takeover orphans nothing", "Once/TakeoverOrphansTheRest", altered(func(a *alteration) {
		a.voids = func(_ seqgen.VoidQuery, voids []seqgen.Void) []seqgen.Void {
			return slices.DeleteFunc(voids, func(v seqgen.Void) bool { return v.Kind == orphaned })
		}
	})},
	{"seen ignored", "Once/SeenAboveLastIsRolledBack", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Seen = seqgen.Position{} }
	})},
	{"seen ignored without a record", "Once/SeenWithoutARecordIsRolledBack", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Seen = seqgen.Position{} }
	})},
	{"seen compared as text", "Once/SeenAboveLastIsRolledBack", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) {
			if fmt.Sprint(k.Seen.Number) <= fmt.Sprint(a.state(k.Key).Last) {
				k.Seen = seqgen.Position{}
			}
		}
	})},
	{"seen compared by number first", "Once/SeenIsComparedByEpochFirst", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) {
			if s := a.state(k.Key); k.Seen.Number > s.Last {
				k.Seen.Epoch = s.Epoch
			}
		}
	})},
	{"numbers are floating-point", "Once/NumbersAround2To53", altered(func(a *alteration) {
		a.grant = func(_ *seqgen.Ask, g *seqgen.Grant) { g.Lo, g.Hi = uint64(float64(g.Lo)), uint64(float64(g.Hi)) }
	})},
	{"voids are floating-point", "Once/VoidsAreInTheOrderOfNumbers", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool { c.Lo, c.Hi = uint64(float64(c.Lo)), uint64(float64(c.Hi)); return true }
	})},
	{"token counts from one", "Once/TokenIsTheTimeInMicroseconds", altered(func(a *alteration) {
		n := uint64(0)
		a.grant = func(_ *seqgen.Ask, g *seqgen.Grant) { n++; g.Token = n }
	})},
	{"a return leaves a hole", "Once/ReturnLeavesNoHole", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool { return c.Kind != seqgen.KindReturn }
	})},
	{"a return without a fence", "Once/ReturnTwice", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool { c.Token = a.state(c.Key).Token; return true }
	})},
	{"a late return does nothing", "Once/LateReturnMakesTheOrphanedCertain", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool {
			return c.Kind != seqgen.KindReturn || c.Token == a.state(c.Key).Token
		}
	})},
	{"late copies of returned asks are granted", "Once/ReturnSpendsItsNonces", altered(func(a *alteration) {
		given := map[[16]byte]seqgen.Grant{}
		a.grant = func(k *seqgen.Ask, g *seqgen.Grant) {
			if old, ok := given[k.Nonce]; ok {
				*g = old
			} else if g.Err == nil {
				given[k.Nonce] = *g
			}
		}
	})},
	{"voids not joined", "Once/TouchingVoidsAreJoined", altered(func(a *alteration) {
		a.voids = func(_ seqgen.VoidQuery, voids []seqgen.Void) (split []seqgen.Void) {
			for _, v := range voids {
				for n := v.Lo; n <= v.Hi && len(split) < 1000; n++ {
					one := v
					one.Lo, one.Hi = n, n
					split = append(split, one)
				}
			}
			return split
		}
	})},
	{"voids cut", "Once/VoidsInARange", altered(func(a *alteration) {
		a.voids = func(q seqgen.VoidQuery, voids []seqgen.Void) []seqgen.Void {
			for i := range voids {
				voids[i].Lo, voids[i].Hi = max(voids[i].Lo, q.From), min(voids[i].Hi, q.To)
			}
			return voids
		}
	})},
	{"voids in the order of texts", "Once/VoidsAreInTheOrderOfNumbers", altered(func(a *alteration) {
		a.voids = func(_ seqgen.VoidQuery, voids []seqgen.Void) []seqgen.Void {
			slices.SortFunc(voids, func(a, b seqgen.Void) int { return strings.Compare(fmt.Sprint(a.Lo), fmt.Sprint(b.Lo)) })
			return voids
		}
	})},
	{"limit of voids ignored", "Once/VoidsPages", altered(func(a *alteration) {
		a.query = func(q *seqgen.VoidQuery) { q.Limit = 1000 }
	})},
	{"voids of all epochs", "Once/VoidOfAnOlderEpoch", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool {
			if c.Kind == seqgen.KindVoid {
				c.Epoch = a.state(c.Key).Epoch
			}
			return true
		}
	})},
	{"abandoned asks are not remembered", "Once/AbandonOfWhatDidNotArrive", altered(func(a *alteration) {
		granted := map[[16]byte]bool{}
		a.grant = func(k *seqgen.Ask, g *seqgen.Grant) { granted[k.Nonce] = granted[k.Nonce] || g.Err == nil }
		a.change = func(c *seqgen.Change) bool { return c.Kind != seqgen.KindAbandon || granted[c.Nonce] }
	})},
	{"bump not repeatable", "Once/BumpTwice", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool { c.Nonce = newNonce(); return true }
	})},
	{"bump not repeatable, all sent twice", "Twice/BumpOpensTheNextEpoch", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool { c.Nonce = newNonce(); return true }
	})},
	{"bump ignores what was seen", "Once/BumpIsAboveTheSeenEpoch", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool {
			if c.Kind == seqgen.KindBump {
				c.Epoch = 0
			}
			return true
		}
	})},
	{"raise overwrites", "Once/RaiseOnlyRaises", altered(func(a *alteration) {
		a.change = func(c *seqgen.Change) bool {
			if s := a.state(c.Key); c.Kind == seqgen.KindRaise && s.Last > c.Hi {
				c.Hi = s.Last // its token, then
			}
			return true
		}
	})},
	{"a batch takes effect backwards", "Once/RepeatedKeyInABatch", func() seqgen.Store { return backwards{seqgen.NewMemory()} }},
	{"one error for all", "Once/EachItemHasItsOwnAnswer", func() seqgen.Store { return spoilt{seqgen.NewMemory()} }},
	{"check then set", "Once/ConcurrentAsksShareNoNumber", func() seqgen.Store { return checkThenSet{seqgen.NewMemory()} }},
	{"context ignored", "Once/CancelledContext", func() seqgen.Store { return deaf{seqgen.NewMemory()} }},
	{"keys without case", "Once/KeysAreComparedByteByByte", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Key = strings.ToLower(k.Key) }
	})},
	{"keys cut short", "Once/LongestKeys", altered(func(a *alteration) {
		a.ask = func(k *seqgen.Ask) { k.Key = k.Key[:min(len(k.Key), 255)] }
	})},
	{"scopes run together", "Once/ScopesAreSeparate", altered(func(a *alteration) { a.scope = "one" })},
	{"nothing survives", "Once/SurvivesReopen", altered(func(*alteration) {})},
}

// An alteration changes calls on their way to the memory store, and answers on
// their way back.
type alteration struct {
	seqgen.Store
	mu     sync.Mutex
	ask    func(*seqgen.Ask)
	refuse func(*seqgen.Ask, seqgen.State) error
	grant  func(*seqgen.Ask, *seqgen.Grant)
	change func(*seqgen.Change) (apply bool)
	query  func(*seqgen.VoidQuery)
	voids  func(seqgen.VoidQuery, []seqgen.Void) []seqgen.Void
	scope  string
	used   string // the scope of the last call
}

func altered(set func(*alteration)) func() seqgen.Store {
	return func() seqgen.Store {
		a := &alteration{Store: seqgen.NewMemory()}
		set(a)
		return a
	}
}

func (a *alteration) state(key string) seqgen.State {
	states, _ := a.Store.Look(context.Background(), a.used, []string{key})
	return states[0]
}

func (a *alteration) enter(scope *string) {
	if a.scope != "" {
		*scope = a.scope
	}
	a.used = *scope
}

func (a *alteration) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(&p.Scope)
	var grants []seqgen.Grant
	for _, k := range asks {
		if a.ask != nil {
			a.ask(&k)
		}
		if a.refuse != nil {
			if s := a.state(k.Key); a.refuse(&k, s) != nil {
				grants = append(grants, seqgen.Grant{Err: a.refuse(&k, s), Mode: s.Mode})
				continue
			}
		}
		g, err := a.Store.Reserve(ctx, p, []seqgen.Ask{k})
		if err != nil {
			return nil, err
		}
		if a.grant != nil {
			a.grant(&k, &g[0])
		}
		grants = append(grants, g[0])
	}
	return grants, nil
}

func (a *alteration) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(&p.Scope)
	var outcomes []seqgen.Outcome
	for _, c := range changes {
		if a.change != nil && !a.change(&c) {
			outcomes = append(outcomes, seqgen.Outcome{})
			continue
		}
		o, err := a.Store.Settle(ctx, p, []seqgen.Change{c})
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o[0])
	}
	return outcomes, nil
}

func (a *alteration) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(&scope)
	return a.Store.Look(ctx, scope, keys)
}

func (a *alteration) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(&q.Scope)
	if a.query != nil {
		a.query(&q)
	}
	voids, err := a.Store.Voids(ctx, q)
	if a.voids != nil && err == nil {
		voids = a.voids(q, voids)
	}
	return voids, err
}

type backwards struct{ seqgen.Store }

func (s backwards) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	asks = slices.Clone(asks)
	slices.Reverse(asks)
	grants, err := s.Store.Reserve(ctx, p, asks)
	slices.Reverse(grants)
	return grants, err
}

// spoilt gives everybody the first error of a batch.
type spoilt struct{ seqgen.Store }

func (s spoilt) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	grants, err := s.Store.Reserve(ctx, p, asks)
	for _, g := range grants {
		if g.Err != nil {
			for i := range grants {
				grants[i] = g
			}
			break
		}
	}
	return grants, err
}

// checkThenSet reads the counter and writes it in two steps.
type checkThenSet struct{ seqgen.Store }

func (s checkThenSet) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	var grants []seqgen.Grant
	for _, a := range asks {
		states, err := s.Store.Look(ctx, p.Scope, []string{a.Key})
		if err != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond)
		g := seqgen.Grant{Epoch: max(states[0].Epoch, 1), Lo: states[0].Last + 1, Hi: states[0].Last + uint64(a.N)}
		if _, err := s.Store.Settle(ctx, p, []seqgen.Change{raise(a.Key, g.Epoch, g.Hi, 0)}); err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// deaf ignores the context.
type deaf struct{ seqgen.Store }

func (d deaf) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	return d.Store.Reserve(context.WithoutCancel(ctx), p, asks)
}
