package reconcile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Types is about events of a type or a schema version that the consumer does not know, told to
// [Checks.UnknownType]: each is one finding with how often it came and when first and last.
// It resolves itself when none came for Quiet.
type Types struct {
	// Name of the check. Empty means "types".
	Name string
	// Quiet is for how long none must come. Zero means 7 days.
	Quiet time.Duration
}

func (t Types) check() (Check, error) {
	t.Name = cmp.Or(t.Name, "types")
	t.Quiet = cmp.Or(t.Quiet, 7*24*time.Hour)
	if t.Quiet < minLease || t.Quiet > MaxDuration {
		return Check{}, invalid("check %q quiet for %v, not %v to %v", t.Name, t.Quiet, minLease, MaxDuration)
	}
	// Whatever is seen is due Quiet later: what is due was not seen since.
	return Check{Name: t.Name, Holds: func(_ context.Context, f Finding) (Verdict, error) {
		if since := f.Read.Sub(f.Last); since < t.Quiet {
			return Verdict{Wait: t.Quiet - since}, nil
		}
		return Verdict{Gone: true, Note: fmt.Sprintf("none came for %v", t.Quiet)}, nil
	}}, nil
}

// UnknownType tells that an event came whose type, or schema version, the consumer does not
// know: an inbox says so in Event.Unknown. The source is the provider's name. It is counted
// in memory, and written down by Run and Once: at most 1,000 different ones in
// between, more are counted in CheckStats.Lost. What is longer than 128 bytes is cut, with a
// hash behind it; bytes that are not UTF-8 are left out.
func (c *Checks) UnknownType(source, typ, version string) {
	if c.opts.Types == nil || !c.types.add(strings.Join([]string{brief(source), brief(typ), brief(version)}, " "), 1) {
		c.counts.lost.Add(1)
	}
}

// brief cuts a text that came from outside.
func brief(s string) string {
	clean := strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
	clean = strings.ReplaceAll(clean, " ", "_") // which separates
	switch {
	case clean == "":
		return "-"
	case len(clean) <= 128 && len(s) <= 128:
		return clean
	}
	cut := min(len(clean), 112)
	for cut > 0 && cut < len(clean) && !utf8.RuneStart(clean[cut]) {
		cut--
	}
	sum := sha256.Sum256([]byte(s))
	return clean[:cut] + "~" + hex.EncodeToString(sum[:6])
}

// typeCounts are what was told and not written down.
type typeCounts struct {
	mu sync.Mutex
	n  map[string]int64
}

const maxTypes = 1000

func (t *typeCounts) add(subject string, n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.n[subject]; !ok && len(t.n) >= maxTypes {
		return false
	}
	if t.n == nil {
		t.n = map[string]int64{}
	}
	t.n[subject] += n
	return true
}

func (t *typeCounts) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.n)
}

// flush writes down what was counted in memory.
func (c *Checks) flush(ctx context.Context) error {
	if c.volume != nil {
		if err := c.volume.flush(ctx); err != nil {
			return err
		}
	}
	if c.opts.Types == nil {
		return nil
	}
	c.types.mu.Lock()
	counted := c.types.n
	c.types.n = nil
	c.types.mu.Unlock()
	k := c.names[cmp.Or(c.opts.Types.Name, "types")]
	var rs []Report
	for subject, n := range counted {
		r := c.sighting(ReportRaise, k, Sighting{Subject: subject, N: n, Detail: "events of a type or version that is not known"})
		r.Delay = cmp.Or(c.opts.Types.Quiet, 7*24*time.Hour)
		rs = append(rs, r)
	}
	for len(rs) > 0 {
		n := min(len(rs), pageSize)
		if _, err := c.report(ctx, rs[:n]); err != nil {
			for _, r := range rs { // counted twice, if only the answer was lost
				if !c.types.add(r.Subject, r.N) {
					c.counts.lost.Add(uint64(r.N))
				}
			}
			return err
		}
		rs = rs[n:]
	}
	return nil
}
