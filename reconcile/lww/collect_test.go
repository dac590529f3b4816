package lww_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

func TestTombstonesWaitForEveryRegion(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "x")
	sync(t, maps...)
	del(t, a, "key")
	require.Zero(t, a.Collect(10))
	apply(t, b, delta(t, a, b))
	apply(t, a, delta(t, b, a))
	require.Zero(t, a.Collect(10), "c has not passed it")
	require.Zero(t, b.Collect(10))
	apply(t, c, delta(t, b, c))
	require.Zero(t, a.Collect(10), "that c has passed it is not known")
	apply(t, a, delta(t, c, a))
	require.Zero(t, a.Collect(0))
	require.Equal(t, 1, a.Collect(10))
	require.Zero(t, a.Collect(10))
	require.Equal(t, lww.Absent, a.Get("key").State())
	require.Zero(t, a.Stats().Tombstones)
	require.EqualValues(t, 1, a.Stats().Forgotten)
	require.Zero(t, a.Stats().Bytes)

	// Who has it still does not bring it back, nor does he differ.
	merged := apply(t, a, everything(t, b, a))
	require.Equal(t, lww.Collected, merged.Changes[0].Outcome)
	require.False(t, merged.Diverged)
	require.Zero(t, a.Stats().Keys)
}

func TestCollectIsBounded(t *testing.T) {
	m := newMap(t, 1, nil)
	for i := range 10 {
		del(t, m, fmt.Sprint(i))
	}
	require.Equal(t, 3, m.Collect(3))
	require.Equal(t, 7, m.Collect(100))
}

// A copy of the value that is still under way when the tombstone goes finds no way in.
func TestWhatWasDeletedStaysDeleted(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "key", "x")
	late := delta(t, a, b)
	sync(t, maps...)
	del(t, b, "key")
	sync(t, maps...)
	require.Equal(t, 1, b.Collect(10))
	require.Equal(t, 1, a.Collect(10))

	c := apply(t, b, late).Changes[0]
	require.Equal(t, lww.Collected, c.Outcome)
	require.Equal(t, "x", string(c.Lost.Value()), "what comes too late is returned")
	changes, err := b.Merge(late.Entries...)
	require.NoError(t, err)
	require.Equal(t, lww.Collected, changes[0].Outcome)
	require.Equal(t, lww.Absent, b.Get("key").State())
	require.EqualValues(t, 2, b.Stats().Collected)

	set(t, a, "key", "again")
	apply(t, b, late)
	sync(t, maps...)
	require.Equal(t, "again", value(b, "key"))
}

// Region 3 writes, and learns of region 2's tombstone, which is greater. It says so
// before its own write, which is slower, has come. Were the tombstone collected then,
// the write would be taken for a new one.
func TestATombstoneWaitsForWhatWasWrittenBeforeIt(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, c, "key", "x")
	slow := delta(t, c, a)
	set(t, b, "busy", "x")
	del(t, b, "key")
	apply(t, a, delta(t, b, a))
	apply(t, c, delta(t, b, c))
	apply(t, b, delta(t, a, b))
	require.NoError(t, a.Acknowledge(2, b.Vector()))
	require.NoError(t, a.Acknowledge(3, c.Vector())) // overtakes slow
	require.Zero(t, a.Collect(10))
	require.Equal(t, lww.Ignored, apply(t, a, slow).Changes[0].Outcome)
	require.Equal(t, 1, a.Collect(10))
	require.Equal(t, lww.Collected, apply(t, a, slow).Changes[0].Outcome)
	require.Equal(t, lww.Absent, a.Get("key").State())
}

// A tombstone that was pushed ahead of the vector is not one that was passed.
func TestAPushedTombstoneIsNotCollected(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "other", "x")
	_, err := b.Merge(lww.Entry{Key: "key", Register: del(t, a, "key").Now})
	require.NoError(t, err)
	require.NoError(t, b.Acknowledge(1, a.Vector()))
	require.Zero(t, b.Collect(10))
	apply(t, b, delta(t, a, b))
	require.Equal(t, 1, b.Collect(10))

	// Nor is it where its region has retired.
	_, err = b.Merge(lww.Entry{Key: "key", Register: del(t, a, "key").Now})
	require.NoError(t, err)
	b.AddRegion(3)
	require.NoError(t, b.Acknowledge(3, a.Vector()))
	require.NoError(t, b.RetireRegion(1))
	require.Zero(t, b.Collect(10))
}

func TestRegionsComeAndGo(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, c, "key", "x")
	sync(t, maps...)
	del(t, a, "key")
	sync(t, a, b)
	require.Zero(t, a.Collect(10))
	require.Equal(t, []uint8{1, 2, 3}, a.Regions())
	require.NoError(t, a.Acknowledge(3, lww.NewVector(lww.Stamp{Lamport: 100, Region: 3})))
	require.Zero(t, a.Collect(10))
	require.NoError(t, a.RetireRegion(3))
	require.Equal(t, []uint8{1, 2}, a.Regions())
	require.Equal(t, 1, a.Collect(10))

	// Its writes are still taken, from others and from itself.
	set(t, c, "last", "x")
	apply(t, b, delta(t, c, b))
	apply(t, a, delta(t, b, a))
	require.Equal(t, "x", value(a, "last"))

	require.ErrorIs(t, a.RetireRegion(1), lww.ErrInvalid)
	require.ErrorIs(t, a.RetireRegion(9), lww.ErrRegion)

	// A new one begins with a snapshot, and tombstones wait for it.
	for _, m := range []*lww.Map{a, b} {
		m.AddRegion(4)
		m.RetireRegion(3)
	}
	d, err := lww.Load(a.SnapshotFor(4), 4, &lww.Options{Regions: []uint8{1, 2}})
	require.NoError(t, err)
	require.Equal(t, "x", value(d, "last"))
	require.Equal(t, []uint8{1, 2, 4}, d.Regions(), "of region 3 there are writes, and it has retired")
	del(t, a, "last")
	sync(t, a, b)
	require.Zero(t, a.Collect(10))
	sync(t, a, b, d)
	for _, m := range []*lww.Map{a, b, d} {
		m.Collect(10)
		require.Zero(t, m.Stats().Tombstones, "region %d", m.Region())
	}
	c4 := set(t, d, "key", "new").Now.Stamp()
	require.EqualValues(t, 4, c4.Region)
	sync(t, a, b, d)
	require.Equal(t, "new", value(b, "key"))
	a.AddRegion(3)
	require.Equal(t, []uint8{1, 2, 3, 4}, a.Regions())
}
