package lww_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

func TestADeltaHasWhatTheOtherHasNotSeen(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "one", "1")
	set(t, a, "two", "1")
	set(t, a, "one", "2")
	d := delta(t, a, b)
	require.Len(t, d.Entries, 2, "of each key the latest")
	require.True(t, apply(t, b, d).Advanced)
	require.True(t, b.Vector().Equal(a.Vector()))

	require.NoError(t, a.Acknowledge(2, b.Vector()))
	require.Empty(t, delta(t, a, b).Entries)
	set(t, a, "three", "1")
	d = delta(t, a, b)
	require.Len(t, d.Entries, 1)
	require.Equal(t, "three", d.Entries[0].Key)
	require.Len(t, everything(t, a, b).Entries, 3)
	require.Equal(t, lww.Unchanged, apply(t, b, everything(t, a, b)).Changes[0].Outcome)
}

// A region passes on what it has from others.
func TestDeltasCarryWhatOthersWrote(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "a")
	apply(t, b, delta(t, a, b))
	require.True(t, apply(t, c, delta(t, b, c)).Advanced)
	require.Equal(t, "a", value(c, "key"))
	require.True(t, c.Vector().Covers(lww.Stamp{Lamport: 1, Region: 1}))
	require.False(t, apply(t, c, delta(t, a, c)).Rewound)
}

func pages(t require.TestingT, from, to *lww.Map, size int) []lww.Delta {
	p, err := from.Delta(to.Region(), from.Acknowledged(to.Region()), size)
	require.NoError(t, err)
	return p
}

func TestPages(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	for i := range 10 {
		set(t, a, fmt.Sprint("key", i), "0123456789")
	}
	p := pages(t, a, b, 1)
	require.Len(t, p, 10, "a write at a time, if a page holds no two")
	require.Len(t, pages(t, a, b, 200), 4)
	require.Len(t, pages(t, a, b, 0), 1)

	advanced := 0
	for _, d := range p {
		require.False(t, b.Vector().Covers(lww.Stamp{Lamport: 10, Region: 1}))
		if apply(t, b, d).Advanced {
			advanced++
		}
	}
	require.Equal(t, 1, advanced)
	require.True(t, b.Vector().Equal(a.Vector()))
	require.Equal(t, "0123456789", value(b, "key9"))

	none := pages(t, b, a, 0)
	require.Len(t, none, 1, "nothing is a page, too, which acknowledges")
}

// What comes of a delta with a page missing, or out of order, is merged, and is not
// taken for all there is.
func TestLostPagesDoNotMoveTheVector(t *testing.T) {
	for name, order := range map[string][]int{
		"first lost": {1, 2, 3}, "one lost": {0, 1, 3}, "last lost": {0, 1, 2}, "swapped": {0, 2, 1, 3}, "last first": {3, 0, 1, 2},
		"repeated within": {0, 1, 1, 2, 3}, "last alone": {3},
	} {
		t.Run(name, func(t *testing.T) {
			maps := regions(t, 2, lww.Options{})
			a, b := maps[0], maps[1]
			for i := range 4 {
				set(t, a, fmt.Sprint("key", i), "x")
			}
			p := pages(t, a, b, 1)
			for _, i := range order {
				merged := apply(t, b, p[i])
				require.False(t, merged.Advanced)
				require.Equal(t, "x", value(b, fmt.Sprint("key", i)))
			}
			require.Zero(t, b.Vector().At(1))
			for i, d := range p {
				require.Equal(t, i == 3, apply(t, b, d).Advanced)
			}
			require.EqualValues(t, 4, b.Vector().At(1))
		})
	}
}

// Pages of two deltas of different times are not one.
func TestPagesOfTwoDeltasAreNotOne(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "one", "x")
	set(t, a, "two", "x")
	early := pages(t, a, b, 1)
	set(t, a, "one", "y")
	set(t, a, "three", "x")
	late := pages(t, a, b, 1)
	require.False(t, apply(t, b, early[0]).Advanced)
	require.False(t, apply(t, b, late[len(late)-1]).Advanced)

	// Nor where the one goes on just after the other.
	b = newMap(t, 2, &lww.Options{Regions: []uint8{1}})
	early = pages(t, a, b, 1)
	set(t, a, "four", "x")
	late = pages(t, a, b, 1)
	apply(t, b, early[0])
	for _, d := range late[1:] {
		require.False(t, apply(t, b, d).Advanced)
	}
	require.Zero(t, b.Vector().At(1))
}

// Who has seen a region has seen its clock, whether a write is left of it or not.
func TestVectorsRaiseTheClock(t *testing.T) {
	a, b := newMap(t, 1, nil), newMap(t, 2, &lww.Options{Regions: []uint8{1}})
	for range 5 {
		del(t, a, "key")
	}
	a.Collect(1)
	a.AddRegion(2)
	d := delta(t, a, b)
	require.Empty(t, d.Entries)
	require.True(t, apply(t, b, d).Advanced)
	require.EqualValues(t, 5, b.Stats().Clock)
}

// Two regions of which one has a third one's write, pushed, have not seen the same.
func TestPushedWritesAreNoDivergence(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "x")
	_, err := b.Merge(lww.Entry{Key: "pushed", Register: set(t, c, "pushed", "x").Now})
	require.NoError(t, err)
	merged := apply(t, b, delta(t, a, b))
	require.True(t, merged.Advanced)
	require.True(t, a.Vector().Equal(b.Vector()))
	require.False(t, merged.Diverged)
	sync(t, maps...)
	set(t, a, "key", "y")
	require.False(t, apply(t, b, delta(t, a, b)).Diverged)
}

// Who overwrites what was pushed to him has seen it.
func TestPushedWritesAreSeen(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "a")
	_, err := b.Merge(a.Export(2, "key")...)
	require.NoError(t, err)
	set(t, b, "key", "b")
	_, err = c.Merge(b.Export(3, "key")...)
	require.NoError(t, err)
	last := lww.Entry{Key: "key", Register: set(t, c, "key", "c").Now}
	for _, m := range []*lww.Map{a, b} {
		changes, err := m.Merge(last)
		require.NoError(t, err)
		require.False(t, changes[0].Conflict, "region %d", m.Region())
	}
}

// A delta since more than this map has seen leaves a hole.
func TestADeltaWithAHoleBeforeIt(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "one", "x")
	since := a.Vector()
	set(t, a, "two", "x")
	p, err := a.Delta(2, since, 0)
	require.NoError(t, err)
	require.False(t, apply(t, b, p[0]).Advanced)
	require.Equal(t, "x", value(b, "two"))
	require.Zero(t, b.Vector().At(1))
	require.True(t, apply(t, b, everything(t, a, b)).Advanced)
}

func TestPushedWrites(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "one", "x")
	pushed := lww.Entry{Key: "two", Register: set(t, a, "two", "x").Now}
	changes, err := b.Merge(pushed)
	require.NoError(t, err)
	require.Equal(t, lww.Applied, changes[0].Outcome)
	require.Zero(t, b.Vector().At(1), "there may be others before it")
	require.Equal(t, lww.Stamp{Lamport: 3, Region: 2}, set(t, b, "three", "x").Now.Stamp())
	// A delta of b carries what it has ahead of its vector.
	require.Len(t, delta(t, b, a).Entries, 2)
	merged := apply(t, b, delta(t, a, b))
	require.True(t, merged.Advanced)
	require.False(t, merged.Diverged)
	require.Equal(t, "x", value(b, "one"))
}

func TestChangesComeInTheOrderOfTheirWrites(t *testing.T) {
	b := newMap(t, 2, nil)
	late, early := set(t, b, "key", "early").Now, lww.Register{}
	early, late = late, set(t, b, "key", "late").Now
	a := newMap(t, 1, &lww.Options{Regions: []uint8{2}})
	changes, err := a.Merge(lww.Entry{Key: "key", Register: late}, lww.Entry{Key: "key", Register: early})
	require.NoError(t, err)
	require.Equal(t, late.Stamp(), changes[0].Now.Stamp())
	require.Equal(t, lww.Applied, changes[1].Outcome, "the lesser stamp is merged first")
	require.Equal(t, early.Digest(), changes[0].Lost.Digest())
}

func TestDeltasOfOthersAreRefused(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "x")
	_, err := c.Apply(delta(t, a, b))
	require.ErrorIs(t, err, lww.ErrInvalid, "it may hold what must not be here")
	d := delta(t, a, b)
	d.From = 2
	_, err = b.Apply(d)
	require.ErrorIs(t, err, lww.ErrInvalid)
	d.From = 9
	_, err = b.Apply(d)
	require.ErrorIs(t, err, lww.ErrRegion)
	require.Zero(t, b.Stats().Keys)

	_, err = a.Delta(1, lww.Vector{}, 0)
	require.ErrorIs(t, err, lww.ErrInvalid)
	_, err = a.Delta(2, lww.Vector{}, -1)
	require.ErrorIs(t, err, lww.ErrInvalid)
	_, err = a.Delta(9, lww.Vector{}, 0)
	require.ErrorIs(t, err, lww.ErrRegion)
	require.ErrorIs(t, a.Acknowledge(9, lww.Vector{}), lww.ErrRegion)
	require.True(t, a.Acknowledged(9).Equal(lww.Vector{}))
}

func TestResidency(t *testing.T) {
	maps := regions(t, 3, lww.Options{Residency: func(from, to uint8, key string) bool {
		return from == 1 && to != 1 && key == "home"
	}})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "home", "old")
	set(t, a, "free", "travels")
	sync(t, maps...)
	at := set(t, a, "home", "body").Now
	sync(t, maps...)
	for _, m := range []*lww.Map{b, c} {
		r := m.Get("home")
		require.Equal(t, lww.Remote, r.State())
		require.Nil(t, r.Value())
		require.Equal(t, at.Stamp(), r.Stamp(), "that there is a newer value is known")
		require.Equal(t, at.Digest(), r.Digest())
		require.Equal(t, "travels", value(m, "free"))
		require.Equal(t, []string{"home"}, m.Keys(lww.Remote, "", 9))
		require.Zero(t, m.Stats().Diverged, "the same write is the same with and without its body")
	}
	require.Equal(t, "body", value(a, "home"))
	require.Equal(t, lww.Remote, a.Export(2, "home", "never")[0].Register.State())
	require.Len(t, a.Export(2, "home", "never"), 1)

	// Bytes of no delta and of no snapshot for another region have the body.
	encoded, err := everything(t, a, b).MarshalBinary()
	require.NoError(t, err)
	require.NotContains(t, string(encoded), "body")
	require.NotContains(t, string(a.SnapshotFor(2)), "body")
	require.Contains(t, string(a.Snapshot()), "body")

	// It can be filled by hand, and another region can write over it.
	changes, err := b.Merge(lww.Entry{Key: "home", Register: at})
	require.NoError(t, err)
	require.Equal(t, lww.Filled, changes[0].Outcome)
	require.Equal(t, "body", value(b, "home"))
	require.EqualValues(t, len("home")+len("body")+len("free")+len("travels"), b.Stats().Bytes)
	over := set(t, c, "home", "from abroad")
	require.Equal(t, lww.Remote, over.Lost.State())
	sync(t, maps...)
	require.Equal(t, "from abroad", value(a, "home"))
	require.False(t, slices.ContainsFunc(maps, func(m *lww.Map) bool { return m.Stats().Diverged > 0 || m.Stats().Conflicts > 0 }))
}

// Who may have a value and hears of it from who may not can fetch it. A value that has
// come abroad by hand goes no further.
func TestRemoteValuesCanBeFetched(t *testing.T) {
	maps := regions(t, 4, lww.Options{Residency: func(from, to uint8, key string) bool { return from == 1 && (to == 2 || to == 4) }})
	a, b, c, d := maps[0], maps[1], maps[2], maps[3]
	at := set(t, a, "key", "body").Now
	apply(t, b, delta(t, a, b))
	apply(t, c, delta(t, b, c))
	require.Equal(t, []string{"key"}, c.Keys(lww.Remote, "", 10))
	require.Empty(t, delta(t, a, c).Entries[1:])
	changes, err := c.Merge(a.Export(3, "key")...)
	require.NoError(t, err)
	require.Equal(t, lww.Filled, changes[0].Outcome)
	require.Equal(t, "body", value(c, "key"))

	_, err = b.Merge(lww.Entry{Key: "key", Register: at})
	require.NoError(t, err)
	require.Equal(t, lww.Remote, b.Export(4, "key")[0].Register.State(), "whoever sends it")
	set(t, b, "key", "by another")
	apply(t, a, delta(t, b, a))
	apply(t, d, delta(t, a, d))
	require.Equal(t, "by another", value(d, "key"), "that was not written where the other was")
}
