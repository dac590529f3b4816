package seqgen_test

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

	"github.com/pawl-go/pawl/seqgen"
)

// Concurrent calls of Next and Bump by two processes in mode Single, and by one
// owner in mode Block, are answered as if they had happened one after the other,
// each between its call and its return.
func TestSequenceIsLinearizable(t *testing.T) {
	for name, makeGenerators := range map[string]func(seqgen.Store) []*seqgen.Generator{
		"single, two processes": func(s seqgen.Store) []*seqgen.Generator {
			return []*seqgen.Generator{newGenerator(t, s, nil), newGenerator(t, s, nil)}
		},
		"block, one owner": func(s seqgen.Store) []*seqgen.Generator {
			return []*seqgen.Generator{newGenerator(t, s, blocksOf(3))}
		},
		"gapless, two processes": func(s seqgen.Store) []*seqgen.Generator {
			return []*seqgen.Generator{newGenerator(t, s, nil).With(s), newGenerator(t, s, nil).With(s)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				store := &patched{Store: seqgen.NewMemory()}
				lose(store)
				gs := makeGenerators(store)
				history := record(t, gs)
				if got := porcupine.CheckOperationsTimeout(sequence, history, 20*time.Second); got != porcupine.Ok {
					t.Fatalf("an order of the calls that explains their answers: %v", got)
				}
				store.mend()
				for _, g := range gs {
					if err := g.Close(ctx); err != nil && !errors.Is(err, seqgen.ErrInvalid) {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// lose loses every third answer once, so that steps are sent twice. Others wait
// before so many of them have come in between that the log forgets the first.
func lose(s *patched) {
	var mu sync.Mutex
	back := sync.NewCond(&mu)
	var lost [16]byte // its answer was lost, and it was not sent again yet
	n, between := 0, 0
	s.reserve = func(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
		mu.Lock()
		defer mu.Unlock()
		nonce := asks[0].Nonce
		for lost != ([16]byte{}) && lost != nonce && between >= seqgen.LogSize/2 {
			back.Wait()
		}
		between++
		grants, err := s.Store.Reserve(ctx, p, asks)
		switch {
		case lost == nonce:
			lost = [16]byte{}
			back.Broadcast()
		case lost == ([16]byte{}) && asks[0].Mode != seqgen.Gapless:
			if n++; n%3 == 0 {
				lost, between = nonce, 0
				return nil, errLost
			}
		}
		return grants, err
	}
}

// The check itself can fail: here a store hands out a number twice.
func TestTheCheckFindsANumberThatComesTwice(t *testing.T) {
	memory := seqgen.NewMemory()
	broken := &patched{Store: memory}
	broken.reserve = func(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
		grants, err := memory.Reserve(ctx, p, asks)
		for i := range grants {
			if grants[i].Lo > 1 {
				grants[i].Lo--
				grants[i].Hi--
			}
		}
		return grants, err
	}
	history := record(t, []*seqgen.Generator{newGenerator(t, broken, nil)})
	if got := porcupine.CheckOperationsTimeout(sequence, history, 20*time.Second); got != porcupine.Illegal {
		t.Errorf("a number that comes twice: %v", got)
	}
}

// A call is Next, or Bump.
type call struct {
	key  string
	bump bool
}

// record lets a few workers draw numbers of two keys, and bump them.
func record(t *testing.T, gs []*seqgen.Generator) []porcupine.Operation {
	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			g := gs[worker%len(gs)]
			for range 40 {
				c := call{key: fmt.Sprint(rand.IntN(2)), bump: rand.IntN(25) == 0}
				begin := clock.Add(1)
				p, err := perform(g, c)
				end := clock.Add(1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: worker, Input: c, Call: begin, Output: p, Return: end})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func perform(g *seqgen.Generator, c call) (seqgen.Position, error) {
	if c.bump {
		epoch, err := g.Bump(ctx, c.key)
		return seqgen.Position{Epoch: epoch}, err
	}
	p, err := g.Next(ctx, c.key)
	if errors.Is(err, seqgen.ErrInvalid) { // a view
		p, err = g.NextTx(ctx, c.key)
	}
	return p, err
}

var sequence = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(call).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return seqgen.Position{} },
	Step: func(state, input, output any) (bool, any) {
		at, c, got := state.(seqgen.Position), input.(call), output.(seqgen.Position)
		want := seqgen.Position{Epoch: max(at.Epoch, 1), Number: at.Number + 1}
		if c.bump {
			want = seqgen.Position{Epoch: at.Epoch + 1}
			if at.Epoch == 0 && got.Epoch == 2 { // a block was reserved before, and no number handed out
				want.Epoch = 2
			}
		}
		return got == want, want
	},
}
