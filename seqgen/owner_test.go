package seqgen_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// Two processes on one key in mode Single share its numbers: each gets higher ones
// than any that were returned before.
func TestTwoProcessesOnOneKeySingle(t *testing.T) {
	store := seqgen.NewMemory()
	a, b := newGenerator(t, store, nil), newGenerator(t, store, nil)
	for n := uint64(1); n < 100; n += 2 {
		wantNext(t, a, "key", 1, n)
		wantNext(t, b, "key", 1, n+1)
	}
}

// Two processes on one key in mode Block: the second takes it, the first uses up
// what it had reserved and is refused then, for good.
func TestTwoProcessesOnOneKeyBlock(t *testing.T) {
	store := seqgen.NewMemory()
	var lost []error
	opts := blocksOf(10)
	opts.Hooks = &seqgen.Hooks{Lost: func(_ string, err error) { lost = append(lost, err) }}
	a, b := newGenerator(t, store, opts), newGenerator(t, store, blocksOf(10))
	wantNext(t, a, "key", 1, 1)
	wantNext(t, b, "key", 1, 11)
	wantVoids(t, store, "key", 1, span{1, 10, orphaned})
	for n := uint64(2); n <= 10; n++ {
		wantNext(t, a, "key", 1, n)
	}
	for range 3 {
		wantNextErr(t, a, "key", seqgen.ErrStale)
	}
	for n := uint64(12); n <= 35; n++ {
		wantNext(t, b, "key", 1, n)
	}
	if len(lost) != 1 || !errors.Is(lost[0], seqgen.ErrStale) {
		t.Errorf("the hook was told of %v", lost)
	}

	// A person decides that the first is to have it.
	if err := a.Open(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	p := next(t, a, "key")
	if p.Number <= 35 {
		t.Fatalf("after Open the first got %v", p)
	}
	shut(t, b)
	shut(t, a)
	for _, v := range voidsOf(t, store, "key", 1) {
		if v.kind == orphaned && v.lo > 35 {
			t.Errorf("after clean closings %v is orphaned", v)
		}
	}
}

// A clean Close makes certain what a takeover had orphaned.
func TestCloseAfterATakeover(t *testing.T) {
	store := seqgen.NewMemory()
	a, b := newGenerator(t, store, blocksOf(100)), newGenerator(t, store, blocksOf(100))
	for n := uint64(1); n <= 40; n++ {
		wantNext(t, a, "key", 1, n)
	}
	wantNext(t, b, "key", 1, 101)
	wantVoids(t, store, "key", 1, span{1, 100, orphaned})
	shut(t, a)
	wantVoids(t, store, "key", 1, span{1, 40, orphaned}, span{41, 100, certain})
	shut(t, b)
	wantNext(t, newGenerator(t, store, blocksOf(1)), "key", 1, 102)
}

// A process that is killed leaves at most what it had reserved, all of it
// recorded.
func TestKill(t *testing.T) {
	store := seqgen.NewMemory()
	killed := newGenerator(t, store, blocksOf(64))
	for n := uint64(1); n <= 200; n++ {
		wantNext(t, killed, "key", 1, n)
	}
	settled(t, killed)
	g := newGenerator(t, store, blocksOf(64))
	first := next(t, g, "key").Number
	voids := voidsOf(t, store, "key", 1)
	if len(voids) != 1 || voids[0].kind != orphaned || voids[0].hi != first-1 || voids[0].lo > 201 || voids[0].hi-voids[0].lo >= 192 {
		t.Fatalf("after a kill at 200 the next owner begins at %d, and void is %v", first, voids)
	}
	shut(t, g)
}

// settled waits until no refill is under way.
func settled(t *testing.T, g *seqgen.Generator) {
	t.Helper()
	for last := g.Stats().Reserves; ; time.Sleep(5 * time.Millisecond) {
		if n := g.Stats().Reserves; n == last {
			return
		} else {
			last = n
		}
	}
}

// A bump fences the old owner, which is at work and may use up what it has
// reserved in the old epoch.
func TestBumpWithAnOldOwnerAtWork(t *testing.T) {
	store := seqgen.NewMemory()
	old, g := newGenerator(t, store, blocksOf(10)), newGenerator(t, store, blocksOf(10))
	wantNext(t, old, "key", 1, 1)
	if epoch, err := g.Bump(ctx, "key"); err != nil || epoch != 2 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	wantNext(t, g, "key", 2, 1)
	for n := uint64(2); n <= 10; n++ {
		wantNext(t, old, "key", 1, n)
	}
	wantNextErr(t, old, "key", seqgen.ErrStale)
	wantVoids(t, store, "key", 1, span{1, 10, orphaned})
	shut(t, old)
	wantVoids(t, store, "key", 1, span{1, 10, orphaned}) // all were used
	wantNext(t, g, "key", 2, 2)
	shut(t, g)
	wantVoids(t, store, "key", 2)
}

// Who bumps a key that it owns leaves no hole in the old epoch.
func TestBumpByTheOwner(t *testing.T) {
	store := seqgen.NewMemory()
	g := newGenerator(t, store, blocksOf(10))
	wantNext(t, g, "key", 1, 1)
	for epoch := uint64(2); epoch < 20; epoch++ {
		if got, err := g.Bump(ctx, "key"); err != nil || got != epoch {
			t.Fatalf("Bump returned %d, %v", got, err)
		}
		wantVoids(t, store, "key", epoch-1)
		wantNext(t, g, "key", epoch, 1)
		wantNext(t, g, "key", epoch, 2)
	}
	shut(t, g)
}

func TestOpenTwiceLeavesNoHole(t *testing.T) {
	store := seqgen.NewMemory()
	g := newGenerator(t, store, blocksOf(10))
	for n := uint64(1); n < 30; n++ {
		if err := g.Open(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		wantNext(t, g, "key", 1, n)
	}
	shut(t, g)
	wantVoids(t, store, "key", 1)
}

func TestClosedGenerator(t *testing.T) {
	for _, opts := range []*seqgen.Options{nil, block} {
		store := seqgen.NewMemory()
		g := newGenerator(t, store, opts)
		s, err := g.Key("key")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(ctx); err != nil {
			t.Fatal(err)
		}
		shut(t, g)
		shut(t, g)
		wantNextErr(t, g, "key", seqgen.ErrClosed)
		wantNextErr(t, g, "other", seqgen.ErrClosed)
		_, err = s.Next(ctx)
		wantErr(t, err, seqgen.ErrClosed)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if n := g.Stats().Keys; n != 0 {
			t.Errorf("a closed generator has %d keys", n)
		}
	}
}

func TestClosedHandle(t *testing.T) {
	for _, opts := range []*seqgen.Options{nil, block} {
		g := newGenerator(t, seqgen.NewMemory(), opts)
		wantNext(t, g, "key", 1, 1)
		s, _ := g.Key("key")
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		_, err := s.Next(ctx)
		wantErr(t, err, seqgen.ErrClosed)
		wantNext(t, g, "key", 1, 2)
		again, _ := g.Key("key")
		if again == s {
			t.Error("a closed handle is given out")
		}
		if p, err := again.Next(ctx); err != nil || p.Number != 3 {
			t.Errorf("Next returned %v, %v", p, err)
		}
		shut(t, g)
	}
}

func TestCloseIdle(t *testing.T) {
	store := seqgen.NewMemory()
	g := newGenerator(t, store, block)
	wantNext(t, g, "busy", 1, 1)
	wantNext(t, g, "idle", 1, 1)
	for range 2 {
		if n, err := g.CloseIdle(ctx, time.Hour); n != 0 || err != nil {
			t.Fatalf("CloseIdle returned %d, %v", n, err)
		}
	}
	wantNext(t, g, "busy", 1, 2)
	if n, err := g.CloseIdle(ctx, time.Nanosecond); n != 1 || err != nil {
		t.Fatalf("CloseIdle returned %d, %v", n, err)
	}
	if n := g.Stats().Keys; n != 1 {
		t.Errorf("%d keys are left", n)
	}
	wantNext(t, g, "idle", 1, 2)
	wantNext(t, g, "busy", 1, 3)
	shut(t, g)
	wantVoids(t, store, "idle", 1)
}

func TestMaxKeys(t *testing.T) {
	g := newGenerator(t, seqgen.NewMemory(), &seqgen.Options{Mode: seqgen.Block, MaxKeys: 2})
	next(t, g, "a")
	next(t, g, "b")
	wantNextErr(t, g, "c", seqgen.ErrFull)
	wantNext(t, g, "a", 1, 2)
	s, _ := g.Key("b")
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	wantNext(t, g, "c", 1, 1)
	wantNextErr(t, g, "b", seqgen.ErrFull)
	shut(t, g)

	singles := newGenerator(t, seqgen.NewMemory(), &seqgen.Options{MaxKeys: 2})
	for n := uint64(1); n < 50; n++ {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			wantNext(t, singles, key, 1, n)
		}
	}
	if n := singles.Stats().Keys; n != 2 {
		t.Errorf("%d keys are kept, want 2", n)
	}
}

func TestManyGoroutinesOnManyKeys(t *testing.T) {
	for _, opts := range []*seqgen.Options{nil, {Mode: seqgen.Block, Block: 3}} {
		store := seqgen.NewMemory()
		g := newGenerator(t, store, opts)
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		const workers, each = 8, 500
		var mu sync.Mutex
		got := map[string]map[uint64]bool{}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				last := map[string]uint64{}
				for n := range each {
					key := keys[(w+n)%len(keys)]
					p, err := g.Next(ctx, key)
					if err != nil {
						t.Error(err)
						return
					}
					if p.Number <= last[key] {
						t.Errorf("a goroutine got %d after %d", p.Number, last[key])
					}
					last[key] = p.Number
					mu.Lock()
					if got[key] == nil {
						got[key] = map[uint64]bool{}
					}
					if got[key][p.Number] {
						t.Errorf("%s/%d came twice", key, p.Number)
					}
					got[key][p.Number] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		shut(t, g)
		for _, key := range keys {
			for n := uint64(1); n <= uint64(len(got[key])); n++ {
				if !got[key][n] {
					t.Errorf("%s/%d was not handed out", key, n)
				}
			}
			wantVoids(t, store, key, 1)
		}
		if s := g.Stats(); s.Single+s.Block != workers*each || s.Keys != 0 || s.Waiting != 0 {
			t.Errorf("the counters are %+v", s)
		}
	}
}
