package lww_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile/lww"
)

// Regions write, delete, collect, start again from their snapshots and exchange
// deltas over a network that loses, repeats, delays and reorders them. After every
// step no write is lost unseen, no conflict goes unreported, nothing that was deleted
// is back, and no value has left its home; in the end all have the same, which is what
// a model has that knows all writes.
func TestRandomRegionsConverge(t *testing.T) { rapid.Check(t, converge) }

func TestLongRandomRegionsConverge(t *testing.T) {
	for range testenv.LongCount(t, 10, 200) {
		rapid.Check(t, converge)
	}
}

func converge(t *rapid.T) {
	w := newWorld(t)
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		w.step()
	}
	w.finish()
}

type world struct {
	*rapid.T
	opts    []lww.Options
	maps    []*lww.Map
	seen    []map[lww.Stamp]bool // by each region, in fact
	network []packet
	whole   bool // every delta is one page and nothing is pushed, so that conflicts are exact
	page    int

	writes map[lww.Stamp]write
	latest map[string]lww.Register
	lost   map[lww.Stamp]bool // those that somebody was told of
}

// A write is what was seen when it was made.
type write struct {
	key     string
	seen    map[lww.Stamp]bool
	deleted bool
}

type packet struct {
	to    int
	bytes []byte
	seen  map[lww.Stamp]bool // by its sender when it was made
}

func newWorld(t *rapid.T) *world {
	n := rapid.IntRange(2, 4).Draw(t, "regions")
	w := &world{T: t, writes: map[lww.Stamp]write{}, latest: map[string]lww.Register{}, lost: map[lww.Stamp]bool{},
		whole: rapid.Bool().Draw(t, "whole"), page: 1 << 20}
	if !w.whole {
		w.page = rapid.SampledFrom([]int{1, 150, 1 << 20}).Draw(t, "page")
	}
	for i := range n {
		o := lww.Options{Residency: staysHome}
		for r := range n {
			o.Regions = append(o.Regions, uint8(r+1))
		}
		w.opts = append(w.opts, o)
		w.maps = append(w.maps, newMap(t, uint8(i+1), &o))
		w.seen = append(w.seen, map[lww.Stamp]bool{})
	}
	return w
}

func staysHome(from, to uint8, key string) bool {
	return from == 1 && to != 1 && strings.HasPrefix(key, "h")
}

func (w *world) step() {
	i := rapid.IntRange(0, len(w.maps)-1).Draw(w.T, "region")
	m := w.maps[i]
	key := rapid.SampledFrom([]string{"a", "b", "h1"}).Draw(w.T, "key")
	switch rapid.IntRange(0, 11).Draw(w.T, "step") {
	case 0, 1, 2:
		w.wrote(i, set(w, m, key, fmt.Sprint("by ", m.Region())))
	case 3:
		w.wrote(i, del(w, m, key))
	case 4, 5, 6:
		w.send(i, rapid.IntRange(0, len(w.maps)-1).Draw(w.T, "to"))
	case 7, 8, 9:
		if len(w.network) == 0 {
			return
		}
		at := rapid.IntRange(0, len(w.network)-1).Draw(w.T, "packet")
		p := w.network[at]
		if rapid.IntRange(0, 3).Draw(w.T, "again") > 0 { // otherwise it comes once more
			w.network = append(w.network[:at:at], w.network[at+1:]...)
		}
		if rapid.IntRange(0, 5).Draw(w.T, "arrives") > 0 {
			w.deliver(p)
		}
	case 10:
		m.Collect(rapid.IntRange(0, 3).Draw(w.T, "collect"))
	case 11:
		if rapid.Bool().Draw(w.T, "start again") {
			loaded, err := lww.Load(m.Snapshot(), m.Region(), &w.opts[i])
			require.NoError(w, err)
			require.True(w, loaded.Vector().Equal(m.Vector()))
			require.Equal(w, m.Stats().Keys, loaded.Stats().Keys)
			require.Equal(w, m.Stats().Bytes, loaded.Stats().Bytes)
			w.maps[i] = loaded
		} else if !w.whole {
			w.push(i, rapid.IntRange(0, len(w.maps)-1).Draw(w.T, "to"), key)
		}
	}
	w.check(i)
}

func (w *world) wrote(i int, c lww.Change) {
	require.False(w, c.Conflict)
	s := c.Now.Stamp()
	require.NotContains(w, w.writes, s, "no stamp comes twice")
	for seen := range w.seen[i] {
		require.Positive(w, s.Compare(seen), "a write is above all that was seen")
	}
	w.writes[s] = write{c.Key, maps.Clone(w.seen[i]), c.Now.State() == lww.Deleted}
	w.seen[i][s] = true
	if s.Compare(w.latest[c.Key].Stamp()) > 0 {
		w.latest[c.Key] = c.Now
	}
	w.lost[c.Lost.Stamp()] = true
}

func (w *world) send(from, to int) {
	if from == to {
		return
	}
	a, b := w.maps[from], w.maps[to]
	for _, d := range pages(w, a, b, w.page) {
		encoded, err := d.MarshalBinary()
		require.NoError(w, err)
		w.network = append(w.network, packet{to, encoded, maps.Clone(w.seen[from])})
	}
}

func (w *world) deliver(p packet) lww.Merged {
	var d lww.Delta
	require.NoError(w, d.UnmarshalBinary(p.bytes))
	merged, err := w.maps[p.to].Apply(d)
	require.NoError(w, err)
	require.False(w, merged.Rewound)
	require.False(w, merged.Diverged)
	require.True(w, merged.Held.IsZero())
	w.merged(p.to, d.Entries, merged.Changes)
	if merged.Advanced {
		maps.Copy(w.seen[p.to], p.seen)
	}
	if w.whole {
		require.True(w, merged.Advanced)
	}
	return merged
}

func (w *world) push(from, to int, key string) {
	if from == to {
		return
	}
	entries := w.maps[from].Export(uint8(to+1), key)
	changes, err := w.maps[to].Merge(entries...)
	require.NoError(w, err)
	w.merged(to, entries, changes)
}

func (w *world) merged(to int, entries []lww.Entry, changes []lww.Change) {
	require.Len(w, changes, len(entries))
	for i, c := range changes {
		s := entries[i].Register.Stamp()
		require.Equal(w, entries[i].Key, c.Key)
		require.False(w, c.Clash)
		for before := range w.writes[s].seen { // of this key alone: others may not have come
			if w.writes[before].key == c.Key {
				w.seen[to][before] = true
			}
		}
		w.seen[to][s] = true
		l := c.Lost.Stamp()
		w.lost[l] = true
		if c.Outcome != lww.Applied && c.Outcome != lww.Ignored || l.IsZero() {
			continue
		}
		now := c.Now.Stamp()
		knew := now.Region == l.Region || w.writes[now].seen[l]
		require.True(w, c.Conflict || knew, "%v lost to %v, which had not seen it, and nobody was told", l, now)
		if w.whole {
			require.NotEqual(w, knew, c.Conflict, "%v lost to %v", l, now)
		}
	}
}

// check looks at a region: what was deleted and passed is not back, and what stays at
// home is not here.
func (w *world) check(i int) {
	m := w.maps[i]
	for key := range w.latest {
		r := m.Get(key)
		if staysHome(r.Stamp().Region, m.Region(), key) {
			require.NotEqual(w, lww.Present, r.State())
		}
		for s := range w.seen[i] {
			if r.State() != lww.Absent && w.writes[s].key == key {
				require.GreaterOrEqual(w, r.Stamp().Compare(s), 0, "%s has %v, and %v was seen", key, r.Stamp(), s)
			}
			if r.State() == lww.Absent && w.writes[s].key == key && s == w.latest[key].Stamp() {
				require.True(w, w.writes[s].deleted, "%s is gone, and was never deleted", key)
			}
		}
	}
}

func (w *world) finish() {
	w.network = nil
	w.page = 1 << 20
	w.whole = false // conflicts of what was pushed before come up here
	for range 3 {
		for from := range w.maps {
			for to := range w.maps {
				w.send(from, to)
				for _, p := range w.network {
					require.True(w, w.deliver(p).Advanced)
				}
				w.network = nil
			}
		}
	}
	for i, m := range w.maps {
		m.Collect(1 << 20)
		require.Zero(w, m.Stats().Tombstones, "all have passed all")
		require.True(w, m.Vector().Equal(w.maps[0].Vector()))
		for key, want := range w.latest {
			got := m.Get(key)
			if want.State() == lww.Deleted {
				require.Equal(w, lww.Absent, got.State())
				continue
			}
			require.Equal(w, want.Stamp(), got.Stamp())
			require.Equal(w, want.Digest(), got.Digest())
			if got.State() == lww.Present {
				require.Equal(w, want.Value(), got.Value())
			} else {
				require.True(w, strings.HasPrefix(key, "h") && want.Stamp().Region == 1, "a value is missing")
			}
		}
		w.check(i)
	}
	for s, written := range w.writes {
		if s != w.latest[written.key].Stamp() && !written.deleted {
			require.True(w, w.lost[s], "%v is gone, and nobody was told", s)
		}
	}
}
