package seqgen_test

import (
	"testing"

	"github.com/pawl-go/pawl/seqgen"
)

// The hot path of mode Block does not allocate, by handle or by key.
func TestNextDoesNotAllocate(t *testing.T) {
	g := newGenerator(t, seqgen.NewMemory(), &seqgen.Options{Mode: seqgen.Block, Block: seqgen.MaxBlock})
	defer shut(t, g)
	s, err := g.Key("lane")
	if err != nil {
		t.Fatal(err)
	}
	next(t, g, "lane")
	for name, call := range map[string]func() error{
		"handle": func() error { _, err := s.Next(ctx); return err },
		"key":    func() error { _, err := g.Next(ctx, "lane"); return err },
	} {
		allocs := testing.AllocsPerRun(10_000, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("by %s, Next allocates %v times", name, allocs)
		}
	}
}
