package lww

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The index finds what a look at every entry finds, in the order of the stamps, and
// does not grow with what was overwritten.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		entries := map[string]Register{}
		put := func(key string, s Stamp) {
			old := entries[key].stamp
			entries[key] = Register{stamp: s}
			x.add(key, s)
			x.dropped(old, entries)
		}
		lamport := uint64(0)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
			region := rapid.Uint8Range(0, 2).Draw(t, "region")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				old := entries[key].stamp
				delete(entries, key)
				x.dropped(old, entries)
			case 1: // late, as of a push: between others
				if s := (Stamp{max(1, lamport/2), region}); s.Compare(entries[key].stamp) > 0 {
					put(key, s)
				}
			default:
				lamport++
				put(key, Stamp{lamport, region})
			}
		}
		v := NewVector(Stamp{rapid.Uint64Range(0, lamport).Draw(t, "0"), 0}, Stamp{rapid.Uint64Range(0, lamport).Draw(t, "1"), 1})
		want := map[string]Stamp{}
		for key, r := range entries {
			if !v.Covers(r.stamp) {
				want[key] = r.stamp
			}
		}
		got := map[string]Stamp{}
		var last Stamp
		for _, e := range x.since(v, entries) {
			require.NotContains(t, got, e.Key)
			require.GreaterOrEqual(t, e.Register.stamp.Compare(last), 0)
			got[e.Key], last = e.Register.stamp, e.Register.stamp
		}
		require.Equal(t, want, got)
		for _, r := range x {
			require.LessOrEqual(t, len(r.items), 2*len(entries)+64)
		}
	})
}
