package seqgen_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

func TestMemoryIsBounded(t *testing.T) {
	m := seqgen.NewMemory()
	m.SetLimit(2)
	g := newGenerator(t, m, nil)
	wantNext(t, g, "a", 1, 1)
	wantNext(t, g, "b", 1, 1)
	wantNextErr(t, g, "c", seqgen.ErrFull)
	if _, err := g.Bump(ctx, "d"); !errors.Is(err, seqgen.ErrFull) {
		t.Errorf("Bump returned %v", err)
	}
	wantNext(t, g, "a", 1, 2)
	m.SetLimit(0)
	wantNext(t, g, "c", 1, 1)
	if n := m.Len(); n != 3 {
		t.Errorf("the store has %d keys", n)
	}
}

func TestMemorySweepsVoids(t *testing.T) {
	m := seqgen.NewMemory()
	now := time.Now()
	m.SetClock(func() time.Time { return now })
	p := seqgen.Params{Scope: "default", Retention: time.Hour}
	for n := range 10 {
		key := fmt.Sprint(n)
		g := newGenerator(t, m, nil)
		for range 5 {
			next(t, g, key)
		}
		out, err := m.Settle(ctx, p, []seqgen.Change{{Kind: seqgen.KindVoid, Key: key, Epoch: 1, Lo: 2, Hi: 3, Reason: seqgen.GaveUp}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	now = now.Add(time.Hour - time.Microsecond)
	if n, err := m.Sweep(ctx, 100); n != 0 || err != nil {
		t.Errorf("before its time, Sweep dropped %d, %v", n, err)
	}
	now = now.Add(time.Microsecond)
	if n, err := m.Sweep(ctx, 3); n != 3 || err != nil {
		t.Errorf("Sweep of 3 keys dropped %d, %v", n, err)
	}
	if n, err := m.Sweep(ctx, 100); n != 7 || err != nil {
		t.Errorf("Sweep dropped %d, %v", n, err)
	}
	wantVoids(t, m, "3", 1)
	_, err := m.Sweep(ctx, 0)
	wantErr(t, err, seqgen.ErrInvalid)
}

func TestMemoryClone(t *testing.T) {
	m := seqgen.NewMemory()
	g := newGenerator(t, m, blocksOf(10))
	wantNext(t, g, "key", 1, 1)
	next(t, newGenerator(t, m, blocksOf(10)), "key")
	c := m.Clone()
	if _, err := newGenerator(t, m, blocksOf(10)).Bump(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	shut(t, g)
	wantVoids(t, c, "key", 1, span{1, 10, orphaned})
	wantVoids(t, m, "key", 1, span{1, 1, orphaned}, span{2, 10, certain}, span{11, 20, orphaned})
}
