package lww_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

func load(t *testing.T, snapshot []byte, region uint8, others ...uint8) *lww.Map {
	m, err := lww.Load(snapshot, region, &lww.Options{Regions: others})
	require.NoError(t, err)
	return m
}

func TestARegionFindsItsOwnWritesAgain(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, b, "old", "x")
	sync(t, a, b)
	backup := b.Snapshot()
	set(t, b, "lost", "x")
	set(t, b, "old", "y")
	sync(t, a, b)

	b = load(t, backup, 2, 1)
	merged := apply(t, b, everything(t, a, b))
	require.True(t, merged.Rewound)
	require.True(t, merged.Advanced)
	require.False(t, merged.Diverged)
	require.Equal(t, "x", value(b, "lost"))
	require.Equal(t, "y", value(b, "old"))
	require.EqualValues(t, 1, b.Stats().Rewound)
	require.False(t, apply(t, b, everything(t, a, b)).Rewound)
	require.Equal(t, lww.Stamp{Lamport: 4, Region: 2}, set(t, b, "new", "x").Now.Stamp())
	require.False(t, apply(t, a, delta(t, b, a)).Changes[0].Clash)
}

func TestRaiseKeepsARegionFromStampingTwice(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	backup := b.Snapshot()
	set(t, b, "key", "before")
	sync(t, a, b)
	b = load(t, backup, 2, 1)
	require.NoError(t, b.Raise(a.Vector().At(2)))
	set(t, b, "key", "after")
	c := apply(t, a, delta(t, b, a)).Changes[0]
	require.Equal(t, lww.Applied, c.Outcome)
	require.False(t, c.Clash)
	require.Equal(t, "after", value(a, "key"))
}

// It wrote before it knew. On the same key both are found; on another key the new
// write is taken for one that was seen, and only the sums tell.
func TestARegionThatWroteBeforeItKnew(t *testing.T) {
	var log strings.Builder
	maps := regions(t, 2, lww.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	a, b := maps[0], maps[1]
	set(t, b, "old", "x")
	sync(t, a, b)
	backup, own := b.Snapshot(), b.Vector().At(2)
	set(t, b, "same", "before")
	set(t, b, "only here", "before")
	sync(t, a, b)

	b = load(t, backup, 2, 1)
	set(t, b, "same", "after")
	set(t, b, "other", "after")
	fromB, err := b.Delta(1, a.Vector(), 0)
	require.NoError(t, err)
	require.Empty(t, fromB[0].Entries, "a has seen these stamps")
	require.True(t, apply(t, a, fromB[0]).Diverged)
	require.EqualValues(t, 1, a.Stats().Diverged)
	require.Contains(t, log.String(), "differ")

	// All of it: where they meet one stays, the same on both sides. What only one has
	// looks to the other as if it had been collected.
	outcomes := func(m lww.Merged) map[string]lww.Change {
		changes := map[string]lww.Change{}
		for _, c := range m.Changes {
			changes[c.Key] = c
		}
		return changes
	}
	atA := outcomes(apply(t, a, everything(t, b, a)))
	require.True(t, atA["same"].Clash)
	require.Equal(t, lww.Collected, atA["other"].Outcome)
	require.Equal(t, "after", string(atA["other"].Lost.Value()))
	merged := apply(t, b, everything(t, a, b))
	require.True(t, merged.Diverged)
	require.Equal(t, lww.Collected, outcomes(merged)["only here"].Outcome)
	require.Equal(t, value(a, "same"), value(b, "same"))

	for _, m := range []*lww.Map{a, b} {
		changes, err := m.Restamp(2, own)
		require.NoError(t, err)
		require.Len(t, changes, 2)
	}
	sync(t, a, b)
	for _, m := range []*lww.Map{a, b} {
		require.Equal(t, "x", value(m, "old"))
		require.Equal(t, "after", value(m, "other"))
		require.Equal(t, "before", value(m, "only here"))
		require.Equal(t, value(a, "same"), value(m, "same"))
	}
	require.False(t, apply(t, a, everything(t, b, a)).Diverged)
	require.False(t, apply(t, b, everything(t, a, b)).Diverged)
}

// Restamp keeps the order of the writes, tombstones among them, and what saw what.
func TestRestamp(t *testing.T) {
	m := newMap(t, 1, nil)
	set(t, m, "kept", "x")
	set(t, m, "a", "1")
	del(t, m, "b")
	set(t, m, "a", "2")
	set(t, m, "c", "3")
	changes, err := m.Restamp(1, 1)
	require.NoError(t, err)
	var keys []string
	for _, c := range changes {
		keys = append(keys, c.Key)
	}
	require.Equal(t, []string{"b", "a", "c"}, keys)
	require.Equal(t, "2", value(m, "a"))
	require.Equal(t, "(deleted)", value(m, "b"))
	require.EqualValues(t, 8, m.Stats().Clock)
	require.EqualValues(t, 8, m.Vector().At(1))
	require.EqualValues(t, 1, m.Get("kept").Stamp().Lamport)
	again, err := m.Restamp(1, 100)
	require.NoError(t, err)
	require.Empty(t, again)

	// What is not here stays.
	abroad := newMap(t, 2, &lww.Options{Regions: []uint8{1}})
	_, err = abroad.Merge(lww.Entry{Key: "home", Register: m.Get("a").Stub()}, lww.Entry{Key: "c", Register: m.Get("c")})
	require.NoError(t, err)
	changes, err = abroad.Restamp(1, 0)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, lww.Remote, abroad.Get("home").State())
	require.EqualValues(t, 2, abroad.Get("c").Stamp().Region)
}

// A start: the last snapshot, and the log of what was written since.
func TestSnapshotAndLog(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "key", "x")
	del(t, a, "gone")
	sync(t, a, b)
	snapshot := a.Snapshot()
	var log []lww.Entry
	for i := range 5 {
		c := set(t, a, fmt.Sprint("key", i%2), fmt.Sprint(i))
		log = append(log, lww.Entry{Key: c.Key, Register: c.Now})
	}
	sync(t, a, b)

	loaded := load(t, snapshot, 1, 2)
	changes, err := loaded.Replay(log...)
	require.NoError(t, err)
	require.Len(t, changes, 5)
	require.True(t, loaded.Vector().Equal(a.Vector()))
	merged := apply(t, loaded, everything(t, b, loaded))
	require.False(t, merged.Rewound)
	require.False(t, merged.Diverged)
	require.Equal(t, "4", value(loaded, "key0"))
	want, got := a.Stats(), loaded.Stats()
	require.Equal(t, want.Clock, got.Clock)
	require.Equal(t, want.Keys, got.Keys)
	require.Equal(t, want.Tombstones, got.Tombstones)
	require.Equal(t, want.Bytes, got.Bytes)
	require.Greater(t, set(t, loaded, "next", "x").Now.Stamp().Lamport, want.Clock)
	_, err = loaded.Replay()
	require.NoError(t, err)
}
