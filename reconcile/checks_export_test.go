package reconcile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/reconcile"
)

func TestExport(t *testing.T) {
	f := &fault{}
	hostile := "\u202e<script>\x1b[31m\u2028\u0085\U000e0041\"\\é"
	f.set(hostile, true)
	for i := range 700 {
		f.set(fmt.Sprint("s", i), true)
	}
	c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Own: []reconcile.Check{f.check()}})
	_ = c.Once(t.Context())
	var out bytes.Buffer
	n, err := c.Export(t.Context(), &out, reconcile.FindingQuery{State: reconcile.Open})
	if err != nil || n != 701 {
		t.Fatalf("exported %d, %v", n, err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var g reconcile.Finding
		if err := json.Unmarshal([]byte(line), &g); err != nil || g.State != reconcile.Open || g.Check != "fault" || g.Count != 1 || len(g.Log) != 1 {
			t.Fatalf("%s: %v", line, err)
		}
		seen[g.Subject] = true
		if strings.ContainsAny(line, "<>\u202e\x1b\u2028\u0085\U000e0041") {
			t.Fatalf("raw: %q", line)
		}
	}
	if len(seen) != 701 || !seen[hostile] {
		t.Fatalf("%d subjects, the hostile one %t", len(seen), seen[hostile])
	}
	if _, err := c.Export(t.Context(), brokenWriter{}, reconcile.FindingQuery{}); !errors.Is(err, errLost) {
		t.Fatalf("to a broken pipe: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errLost }
