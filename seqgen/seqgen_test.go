package seqgen_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

func TestNumbersGoOnAfterARestart(t *testing.T) {
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		t.Run(mode.String(), func(t *testing.T) {
			store := seqgen.NewMemory()
			for run := range uint64(3) {
				g := newGenerator(t, store, &seqgen.Options{Mode: mode})
				for n := uint64(1); n <= 1000; n++ {
					wantNext(t, g, "lane", 1, 1000*run+n)
				}
				shut(t, g)
			}
			wantVoids(t, store, "lane", 1)
		})
	}
}

func TestGaplessInATransaction(t *testing.T) {
	store := seqgen.NewMemory()
	g := newGenerator(t, store, &seqgen.Options{Mode: seqgen.Gapless})
	number := func(tx seqgen.Store, want uint64) {
		t.Helper()
		p, err := g.With(tx).NextTx(ctx, "invoices")
		if err != nil || p != (seqgen.Position{Epoch: 1, Number: want}) {
			t.Fatalf("NextTx returned %v, %v; want 1/%d", p, err, want)
		}
	}
	number(store, 1)
	rolledBack := store.Clone()
	number(rolledBack, 2)
	number(rolledBack, 3)
	number(store, 2) // the rollback has returned it
	number(store, 3)
	wantVoids(t, store, "invoices", 1)
	wantNextErr(t, g, "invoices", seqgen.ErrInvalid)
	if n := g.Stats().Gapless; n != 5 {
		t.Errorf("%d numbers were counted, want 5", n)
	}
}

func TestViewsAndGeneratorsAreNotMistaken(t *testing.T) {
	g := newGenerator(t, seqgen.NewMemory(), block)
	view := g.With(seqgen.NewMemory())
	_, err := g.NextTx(ctx, "key")
	wantErr(t, err, seqgen.ErrInvalid)
	wantNextErr(t, view, "key", seqgen.ErrInvalid)
	_, err = view.Key("key")
	wantErr(t, err, seqgen.ErrInvalid)
	wantErr(t, view.Open(ctx, "key"), seqgen.ErrInvalid)
	wantErr(t, view.Close(ctx), seqgen.ErrInvalid)
	_, err = g.With(nil).NextTx(ctx, "key")
	wantErr(t, err, seqgen.ErrInvalid)
	_, err = g.With((*seqgen.Memory)(nil)).Bump(ctx, "key")
	wantErr(t, err, seqgen.ErrInvalid)
	if epoch, err := view.Bump(ctx, "key"); err != nil || epoch != 1 {
		t.Errorf("Bump of a view returned %d, %v", epoch, err)
	}
	wantErr(t, newGenerator(t, seqgen.NewMemory(), nil).Open(ctx, "key"), seqgen.ErrInvalid)
}

func TestModesDoNotMix(t *testing.T) {
	store := seqgen.NewMemory()
	singles := newGenerator(t, store, nil)
	blocks := newGenerator(t, store, block)
	wantNext(t, singles, "key", 1, 1)
	err := wantNextErr(t, blocks, "key", seqgen.ErrMode)
	var mode *seqgen.ModeError
	if !errors.As(err, &mode) || mode.Asked != seqgen.Block || mode.Stored != seqgen.Single || !strings.Contains(err.Error(), "Bump") {
		t.Errorf("the error is %v", err)
	}
	_, err = singles.With(store).NextTx(ctx, "key")
	wantErr(t, err, seqgen.ErrMode)
	if epoch, err := blocks.Bump(ctx, "key"); err != nil || epoch != 2 {
		t.Fatalf("Bump returned %d, %v", epoch, err)
	}
	wantNext(t, blocks, "key", 2, 1)
	wantNextErr(t, singles, "key", seqgen.ErrMode)
	shut(t, blocks)
	wantVoids(t, store, "key", 1)
	if n := blocks.Stats().Mode + singles.Stats().Mode; n != 3 {
		t.Errorf("%d answers of another mode were counted, want 3", n)
	}
}

func TestOptions(t *testing.T) {
	s := seqgen.NewMemory()
	for name, o := range map[string]*seqgen.Options{
		"scope":              {Scope: "a b"},
		"long scope":         {Scope: strings.Repeat("x", 65)},
		"mode":               {Mode: seqgen.Gapless + 1},
		"negative block":     {Block: -1},
		"huge block":         {Block: seqgen.MaxBlock + 1},
		"huge largest block": {MaxBlock: math.MaxInt},
		"negative largest":   {MaxBlock: -1},
		"block above most":   {Block: 100, MaxBlock: 99},
		"negative keys":      {MaxKeys: -1},
		"negative retention": {Retention: -1},
		"long retention":     {Retention: seqgen.MaxDuration + 1},
		"settle timeout":     {SettleTimeout: -time.Second},
		"nil witness":        {Witness: (*seqgen.Memory)(nil)},
	} {
		if _, err := seqgen.New(s, o); !errors.Is(err, seqgen.ErrInvalid) {
			t.Errorf("%s: New returned %v", name, err)
		}
	}
	for _, nothing := range []seqgen.Store{nil, (*seqgen.Memory)(nil)} {
		if _, err := seqgen.New(nothing, nil); !errors.Is(err, seqgen.ErrInvalid) {
			t.Errorf("New on no store returned %v", err)
		}
	}
	o := &seqgen.Options{Scope: "a", Hooks: &seqgen.Hooks{}}
	g := newGenerator(t, s, o)
	o.Scope, o.Hooks.Reserved = "b", func(string, seqgen.Range, time.Duration) { t.Error("options were not copied") }
	wantNext(t, g, "key", 1, 1)
	wantNext(t, newGenerator(t, s, &seqgen.Options{Scope: "b"}), "key", 1, 1)
	wantNext(t, newGenerator(t, s, &seqgen.Options{Scope: "a"}), "key", 1, 2)
}

func TestBadKeys(t *testing.T) {
	for _, opts := range []*seqgen.Options{nil, block} {
		g := newGenerator(t, seqgen.NewMemory(), opts)
		for _, key := range []string{"", strings.Repeat("x", 513), "a\x00b", "\xff", strings.Repeat("y", 1<<20)} {
			wantNextErr(t, g, key, seqgen.ErrInvalid)
			for name, err := range map[string]error{
				"Key":     second(g.Key(key)),
				"Bump":    second(g.Bump(ctx, key)),
				"Look":    second(g.Look(ctx, key)),
				"Voids":   second(g.Voids(ctx, key, 1, 1, 2)),
				"NextTx":  second(g.With(seqgen.NewMemory()).NextTx(ctx, key)),
				"Observe": g.Observe(ctx, key, seqgen.Position{Epoch: 1, Number: 1}),
			} {
				if !errors.Is(err, seqgen.ErrInvalid) {
					t.Errorf("%s of a bad key returned %v", name, err)
				}
				if len(key) > 2 && strings.Contains(err.Error(), key) {
					t.Errorf("%s shows the key: %v", name, err)
				}
			}
		}
		if n := g.Stats().Keys; n != 0 {
			t.Errorf("%d bad keys are kept", n)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestBadPositionsAndRanges(t *testing.T) {
	g := newGenerator(t, seqgen.NewMemory(), nil)
	for _, p := range []seqgen.Position{{}, {Epoch: 1}, {Number: 1}, {Epoch: 1, Number: 1 << 63}, {Epoch: math.MaxUint64, Number: 1}} {
		wantErr(t, g.Observe(ctx, "key", p), seqgen.ErrInvalid)
	}
	for _, q := range [][3]uint64{{0, 1, 2}, {1, 0, 2}, {1, 2, 1}, {1, 1, 1 << 63}, {1 << 63, 1, 1}} {
		_, err := g.Voids(ctx, "key", q[0], q[1], q[2])
		wantErr(t, err, seqgen.ErrInvalid)
	}
}

func TestErrorsShowNoKey(t *testing.T) {
	const key = "49170123456789"
	store := &patched{Store: seqgen.NewMemory()}
	a, b := newGenerator(t, store, blocksOf(1)), newGenerator(t, store, blocksOf(1))
	next(t, a, key)
	next(t, b, key)
	_, stale := a.Next(ctx, key)
	_, mode := newGenerator(t, store, nil).Next(ctx, key)
	c := newGenerator(t, store, nil)
	if err := c.Observe(ctx, "x"+key, seqgen.Position{Epoch: 1, Number: 9}); err != nil {
		t.Fatal(err)
	}
	_, behind := c.Next(ctx, "x"+key)
	store.fail(false)
	_, down := newGenerator(t, store, nil).Next(ctx, key)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, cancelled := newGenerator(t, store, nil).Next(gone, key)
	for _, err := range []error{stale, mode, behind, down, cancelled} {
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("the error is %v", err)
		}
	}
	wantErr(t, stale, seqgen.ErrStale)
	wantErr(t, behind, seqgen.ErrRolledBack)
	wantErr(t, down, seqgen.ErrUnavailable)
	wantErr(t, down, errLost)
	wantErr(t, cancelled, context.Canceled)
	store.mend()
	shut(t, a)
	shut(t, b)
}
