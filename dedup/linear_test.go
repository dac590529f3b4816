package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pawl-go/pawl/dedup"
)

// Concurrent claims and settlements are answered as if they had happened one
// after the other, each between its call and its return.
func TestClaimsAndSettlementsAreLinearizable(t *testing.T) {
	for name, wrap := range map[string]func(*dedup.Memory) dedup.Store{
		"memory": func(m *dedup.Memory) dedup.Store { return m },
		"merged": func(m *dedup.Memory) dedup.Store { return &patched{Store: m} },
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				history := record(t, newGuard(t, wrap(dedup.NewMemory()), nil))
				if got := porcupine.CheckOperationsTimeout(oneID, history, 20*time.Second); got != porcupine.Ok {
					t.Fatalf("an order of the calls that explains their answers: %v", got)
				}
			}
		})
	}
}

// The check itself can fail: here a store lets two owners in.
func TestTheCheckFindsASecondOwner(t *testing.T) {
	m := dedup.NewMemory()
	broken := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		claims, err := m.Claim(ctx, p, asks)
		for i := range claims {
			if claims[i].State == dedup.InFlight {
				claims[i].State, claims[i].Token = dedup.Acquired, 1
			}
		}
		return claims, err
	}}
	history := record(t, newGuard(t, broken, nil))
	if got := porcupine.CheckOperationsTimeout(oneID, history, 20*time.Second); got != porcupine.Illegal {
		t.Errorf("two owners of one ID: %v", got)
	}
}

// A call is a claim (Kind zero) or a settlement.
type call struct {
	id    string
	kind  dedup.Kind
	token uint64
	text  string // the result of a completion
}

// An answer is that to a call.
type answer struct {
	claim dedup.Claim
	stale bool
}

// record lets a few workers claim and settle a few IDs, with tokens that are
// theirs, or were.
func record(t *testing.T, g *dedup.Guard) []porcupine.Operation {
	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			tokens := map[string]uint64{}
			for step := range 50 {
				c := call{id: fmt.Sprint(rand.IntN(4))}
				if c.token = tokens[c.id]; c.token != 0 && rand.IntN(3) > 0 {
					c.kind = dedup.Kind(1 + rand.IntN(6))
					c.text = fmt.Sprint(worker, "-", step)
				}
				begin := clock.Add(1)
				a, err := perform(g, c)
				end := clock.Add(1)
				if err != nil {
					t.Error(err)
					return
				}
				if a.claim.Token != 0 {
					tokens[c.id] = a.claim.Token
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: worker, Input: c, Call: begin, Output: a, Return: end})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func perform(g *dedup.Guard, c call) (answer, error) {
	var err error
	switch c.kind {
	case 0:
		claim, err := g.Claim(context.Background(), dedup.Request{ID: c.id})
		return answer{claim: claim}, err
	case dedup.KindForget:
		err = g.Forget(context.Background(), c.id)
	default:
		s := dedup.Settlement{Kind: c.kind, ID: c.id, Token: c.token, Lease: time.Hour, Retention: time.Hour}
		if c.kind == dedup.KindComplete {
			s.Result = []byte(c.text)
		}
		err = g.Settle(context.Background(), s)
	}
	if errors.Is(err, dedup.ErrStale) {
		return answer{stale: true}, nil
	}
	return answer{}, err
}

// known is what the model knows of an ID: leases and retentions do not end
// within a test.
type known struct {
	state   dedup.State // InFlight: claimed. Acquired: free, as new or released
	last    dedup.Kind  // that ended the claim
	token   uint64
	attempt int
	text    string
}

var oneID = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(call).id
			byID[id] = append(byID[id], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byID {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return known{state: dedup.Acquired} },
	Step: func(state, input, output any) (bool, any) {
		k, c, a := state.(known), input.(call), output.(answer)
		if c.kind == 0 {
			return k.claimed(a.claim)
		}
		return k.settled(c, a)
	},
}

func (k known) claimed(c dedup.Claim) (bool, any) {
	ok := c.State == k.state && c.State != 0
	switch k.state {
	case dedup.Acquired:
		ok = ok && c.Token > k.token && c.Attempt == k.attempt+1
		return ok, known{state: dedup.InFlight, token: c.Token, attempt: c.Attempt}
	case dedup.Unknown:
		ok = ok && c.Token == k.token
	case dedup.Done:
		ok = ok && string(c.Result) == k.text
	}
	return ok && c.Attempt == k.attempt, k
}

func (k known) settled(c call, a answer) (bool, any) {
	if c.kind == dedup.KindForget {
		return !a.stale, known{state: dedup.Acquired, token: k.token}
	}
	if c.kind == dedup.KindRetain { // nothing that a claim would see
		return !a.stale, k
	}
	open := k.state == dedup.InFlight || k.state == dedup.Unknown
	next := k
	next.last = c.kind
	switch {
	case k.token != c.token, k.attempt == 0:
		return a.stale, k
	case c.kind == dedup.KindExtend:
		return a.stale == (k.state != dedup.InFlight), k
	case open && c.kind == dedup.KindComplete:
		next.state, next.text = dedup.Done, c.text
	case open && c.kind == dedup.KindRelease:
		next.state = dedup.Acquired
	case open && c.kind == dedup.KindHold:
		next.state = dedup.Unknown
	default: // ended before: the same way succeeds again
		return a.stale == (k.last != c.kind), k
	}
	return !a.stale, next
}
