package seqgen_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

// Processes draw numbers of a key, are killed, close, take the key from each other
// and bump it, while the store fails before or after its steps. After every step
// no number has come twice; in the end every number below the last is one that was
// handed out, or void, or both if it is orphaned.
func TestRandomProcesses(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				script := rapid.SliceOfN(rapid.IntRange(0, 99), 10, 120).Draw(rt, "script")
				failing := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 20).Draw(rt, "failing")
				blockSize := rapid.IntRange(1, 9).Draw(rt, "block")
				var err error
				synctest.Test(t, func(t *testing.T) { err = simulate(mode, blockSize, script, failing) })
				if err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

type world struct {
	memory  *seqgen.Memory
	witness *seqgen.Memory
	mode    seqgen.Mode
	block   int
	mu      sync.Mutex // for what the stores see

	failing   []int
	step      int
	processes []*process
	used      map[seqgen.Position]int
	crashes   int
}

type process struct {
	id    int
	g     *seqgen.Generator
	alive bool
	last  seqgen.Position
}

var errKilled = errors.New("killed")

func simulate(mode seqgen.Mode, block int, script, failing []int) error {
	w := &world{memory: seqgen.NewMemory(), witness: seqgen.NewMemory(), mode: mode, block: block, failing: failing,
		used: map[seqgen.Position]int{}}
	w.start()
	for i, what := range script {
		w.fail(failing)
		if i%5 == 4 { // the store is well now and then, long before the log has forgotten a nonce
			w.fail([]int{0})
			time.Sleep(10 * time.Second)
		}
		p := w.processes[len(w.processes)-1-what%min(3, len(w.processes))]
		if err := w.act(p, what); err != nil {
			return err
		}
	}
	w.fail([]int{0})
	for _, p := range w.processes {
		if !p.alive {
			continue
		}
		if err := p.g.Close(ctx); err != nil && !errors.Is(err, seqgen.ErrRolledBack) {
			return fmt.Errorf("close: %w", err)
		}
		w.kill(p)
	}
	synctest.Wait()
	return w.account()
}

func (w *world) start() {
	p := &process{id: len(w.processes), alive: true}
	opts := &seqgen.Options{Mode: w.mode, Block: w.block, MaxBlock: w.block, SettleTimeout: time.Second}
	opts.Witness = w.faulty(p, w.witness)
	g, err := seqgen.New(w.faulty(p, w.memory), opts)
	if err != nil {
		panic(err)
	}
	p.g = g
	w.processes = append(w.processes, p)
}

// faulty is a store as a process sees it: no step of a killed one arrives.
func (w *world) faulty(p *process, s seqgen.Store) seqgen.Store {
	fails := func(mark int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !p.alive {
			return errKilled
		}
		w.step++
		if w.failing[w.step%len(w.failing)] == mark {
			return errLost
		}
		return nil
	}
	return &seqgentest.Faulty{Store: s,
		Before: func(seqgentest.Step) error { return fails(1) },
		After:  func(seqgentest.Step) error { return fails(2) },
	}
}

func (w *world) fail(pattern []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = pattern
}

func (w *world) kill(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.alive = false
}

func (w *world) act(p *process, what int) error {
	switch {
	case what >= 97 && p.alive:
		w.crashes++
		w.kill(p)
		w.start()
	case what >= 94 && p.alive:
		if err := p.g.Close(ctx); err == nil {
			w.kill(p)
		}
		w.start()
	case what >= 92:
		w.start()
	case what >= 90 && p.alive:
		if epoch, err := p.g.Bump(ctx, "key"); err == nil && epoch <= p.last.Epoch {
			return fmt.Errorf("a bump opened epoch %d after %v", epoch, p.last)
		}
	case what >= 86 && p.alive && w.mode == seqgen.Block:
		_ = p.g.Open(ctx, "key")
	case p.alive:
		return w.next(p)
	}
	synctest.Wait()
	return nil
}

func (w *world) next(p *process) error {
	n, err := p.g.Next(ctx, "key")
	synctest.Wait()
	if errors.Is(err, seqgen.ErrRolledBack) || errors.Is(err, seqgen.ErrMode) || errors.Is(err, seqgen.ErrExhausted) {
		return fmt.Errorf("process %d: %w", p.id, err)
	}
	if err != nil {
		return nil
	}
	if other, twice := w.used[n]; twice {
		return fmt.Errorf("%v was handed out by processes %d and %d", n, other, p.id)
	}
	if n.Compare(p.last) <= 0 {
		return fmt.Errorf("process %d got %v after %v", p.id, n, p.last)
	}
	w.used[n], p.last = p.id, n
	return nil
}

// account checks that every number has a fate.
func (w *world) account() error {
	g, _ := seqgen.New(w.memory, nil)
	state, err := g.Look(ctx, "key")
	if err != nil {
		return err
	}
	unexplained := 0
	for epoch := uint64(1); epoch <= state.Epoch; epoch++ {
		voids, err := g.Voids(ctx, "key", epoch, 1, seqgen.MaxNumber)
		if err != nil {
			return err
		}
		void := map[uint64]seqgen.VoidKind{}
		for _, v := range voids {
			for n := v.Lo; n <= v.Hi; n++ {
				if void[n] != 0 {
					return fmt.Errorf("%d/%d is void twice", epoch, n)
				}
				void[n] = v.Kind
			}
		}
		last := uint64(0)
		for p := range w.used {
			if p.Epoch == epoch {
				last = max(last, p.Number)
			}
		}
		if epoch == state.Epoch {
			if last > state.Last {
				return fmt.Errorf("%d/%d was handed out, and the store is at %+v", epoch, last, state)
			}
			last = state.Last
		}
		for n := uint64(1); n <= last; n++ {
			_, used := w.used[seqgen.Position{Epoch: epoch, Number: n}]
			switch {
			case used && void[n] == certain:
				return fmt.Errorf("%d/%d is certainly void, and was handed out", epoch, n)
			case !used && void[n] == 0 && !(state.Owned && epoch == state.Epoch && n > state.Used):
				unexplained++
			}
		}
	}
	if w.mode == seqgen.Single && unexplained <= 6*w.crashes { // see the package comment
		return nil
	}
	if unexplained > 0 {
		return fmt.Errorf("%d numbers have no fate", unexplained)
	}
	return nil
}
