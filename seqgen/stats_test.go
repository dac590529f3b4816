package seqgen_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

func TestStatsAndHooks(t *testing.T) {
	memory := seqgen.NewMemory()
	var mu sync.Mutex
	var events []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	var log bytes.Buffer
	opts := blocksOf(4)
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opts.Hooks = &seqgen.Hooks{
		Reserved: func(key string, r seqgen.Range, _ time.Duration) { note("reserved %s %d-%d", key, r.Lo, r.Hi) },
		Voided: func(key string, r seqgen.Range, kind seqgen.VoidKind, reason seqgen.Reason) {
			note("voided %s %d/%d-%d %v %v", key, r.Epoch, r.Lo, r.Hi, kind, reason)
		},
		Waited: func(_ context.Context, key string, _ time.Duration) { note("waited %s", key) },
		Lost:   func(key string, err error) { note("lost %s", key) },
	}
	a := newGenerator(t, memory, opts)
	b := newGenerator(t, memory, blocksOf(4))
	wantNext(t, a, "key", 1, 1)
	wantNext(t, b, "key", 1, 5)
	for n := uint64(2); n <= 4; n++ {
		wantNext(t, a, "key", 1, n)
	}
	wantNextErr(t, a, "key", seqgen.ErrStale)
	if err := a.Open(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	wantNext(t, a, "key", 1, 9)
	s := a.Stats()
	if s.Block != 5 || s.Reserves != 2 || s.Stale != 1 || s.OrphanedVoids != 4 || s.CertainVoids != 0 || s.Keys != 1 || s.Waits < 1 || s.Returned != 1 {
		t.Errorf("the counters are %+v", s)
	}
	shut(t, b) // had 6 to 8 left
	shut(t, a)
	mu.Lock()
	defer mu.Unlock()
	got := strings.Join(events, "\n")
	for _, want := range []string{"reserved key 1-4", "waited key", "lost key", "voided key 1/5-8 orphaned taken over", "reserved key 9-12"} {
		if !strings.Contains(got, want) {
			t.Errorf("no event %q in:\n%s", want, got)
		}
	}
	if n := b.Stats().CertainVoids; n != 3 {
		t.Errorf("the other's close made %d numbers certain, want 3", n)
	}
	if !strings.Contains(log.String(), "a key was lost") || strings.Contains(log.String(), "key=key") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{seqgen.Single.String(), "single"}, {seqgen.Block.String(), "block"}, {seqgen.Gapless.String(), "gapless"},
		{seqgen.Mode(0).String(), "no mode"}, {seqgen.Certain.String(), "certain"}, {seqgen.Orphaned.String(), "orphaned"},
		{seqgen.VoidKind(0).String(), "no kind"}, {seqgen.KindReturn.String(), "return"}, {seqgen.Kind(0).String(), "nothing"},
		{seqgen.Reason(0).String(), "no reason"}, {seqgen.Unwitnessed.String(), "not witnessed"},
		{seqgen.Position{Epoch: 2, Number: 7}.String(), "2/7"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if (seqgen.Position{Epoch: 2, Number: 1}).Compare(seqgen.Position{Epoch: 1, Number: 9}) != 1 {
		t.Error("positions are not compared by epoch first")
	}
	if n := (seqgen.Range{}).Len(); n != 0 {
		t.Errorf("the zero range has %d numbers", n)
	}
}
