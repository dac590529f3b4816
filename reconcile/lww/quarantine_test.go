package lww_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

// ahead are two regions of which the second's clock has run away, with a write of
// that clock, and one from before.
func ahead(t *testing.T, lamport uint64, opts lww.Options) (a, b *lww.Map, far lww.Stamp) {
	maps := regions(t, 2, opts)
	a, b = maps[0], maps[1]
	set(t, b, "early", "fine")
	require.NoError(t, b.Raise(lamport-1))
	return a, b, set(t, b, "key", "far").Now.Stamp()
}

func TestFarClocksAreSetAside(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{})
	set(t, a, "key", "mine")
	before := a.Stats().Clock
	merged := apply(t, a, delta(t, b, a))
	require.Equal(t, lww.Applied, merged.Changes[0].Outcome, "what is not too far is merged")
	require.Equal(t, lww.SetAside, merged.Changes[1].Outcome)
	require.Equal(t, "mine", string(merged.Changes[1].Now.Value()))
	require.Equal(t, far, merged.Held)
	require.False(t, merged.Advanced)
	require.Equal(t, "mine", value(a, "key"))
	require.Equal(t, before, a.Stats().Clock, "the clock stays")
	require.Equal(t, lww.Stamp{Lamport: before + 1, Region: 1}, set(t, a, "next", "x").Now.Stamp())

	q := a.Quarantined("", 10)
	require.Len(t, q, 1)
	require.Equal(t, "key", q[0].Key)
	require.Equal(t, "far", string(q[0].Register.Value()))
	require.Empty(t, a.Quarantined("key", 10))
	require.Empty(t, a.Quarantined("", 0))

	// It stays one, survives a snapshot, and goes nowhere.
	apply(t, a, delta(t, b, a))
	require.Equal(t, 1, a.Stats().Quarantined)
	require.Len(t, everything(t, a, b).Entries, 3)
	loaded, err := lww.Load(a.Snapshot(), 1, &lww.Options{Regions: []uint8{2}})
	require.NoError(t, err)
	require.Len(t, loaded.Quarantined("", 10), 1)
	require.Equal(t, a.Stats().Bytes, loaded.Stats().Bytes)
	peer, err := lww.Load(a.SnapshotFor(3), 3, &lww.Options{Regions: []uint8{1, 2}})
	require.NoError(t, err)
	require.Zero(t, peer.Stats().Quarantined)

	changes, err := a.Release("key", far)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, "mine", string(changes[0].Lost.Value()))
	require.True(t, changes[0].Conflict)
	require.Equal(t, "far", value(a, "key"))
	require.Zero(t, a.Stats().Quarantined)
	require.Equal(t, far.Lamport, a.Stats().Clock)
	require.True(t, apply(t, a, delta(t, b, a)).Advanced)
	require.Greater(t, set(t, a, "key", "again").Now.Stamp().Lamport, far.Lamport)
	_, err = a.Release("key", far)
	require.ErrorIs(t, err, lww.ErrNotFound)
	_, err = a.Discard("key", far)
	require.ErrorIs(t, err, lww.ErrNotFound)
}

func TestTheBound(t *testing.T) {
	for _, c := range []struct {
		lamport, most uint64
		want          lww.Outcome
	}{
		{15, 10, lww.Applied}, {16, 10, lww.SetAside}, {5 + 1<<32, 0, lww.Applied}, {6 + 1<<32, 0, lww.SetAside},
		{math.MaxUint64, 10, lww.SetAside}, {math.MaxUint64, math.MaxUint64 - 5, lww.Applied}, {math.MaxUint64, math.MaxUint64 - 6, lww.SetAside},
	} {
		a, b, _ := ahead(t, c.lamport, lww.Options{MaxAhead: c.most})
		for range 5 {
			set(t, a, "busy", "x")
		}
		changes, err := a.Merge(lww.Entry{Key: "key", Register: b.Get("key")})
		require.NoError(t, err)
		require.Equal(t, c.want, changes[0].Outcome, "%d, at most %d ahead", c.lamport, c.most)
	}
}

// A region that wrote much while it was cut off is not one whose clock ran away: each
// write raises the mark for the next.
func TestALongPartitionIsNoRunaway(t *testing.T) {
	maps := regions(t, 2, lww.Options{MaxAhead: 10, MaxQuarantine: 1})
	a, b := maps[0], maps[1]
	for i := range 100 {
		set(t, b, string(rune('A'+i)), "x")
	}
	merged := apply(t, a, delta(t, b, a))
	require.True(t, merged.Advanced)
	require.Equal(t, 100, a.Stats().Keys)
}

// Once set aside, only a person takes it out, whatever the clock does meanwhile.
func TestWhatIsSetAsideStaysThere(t *testing.T) {
	a, b, far := ahead(t, 1000, lww.Options{MaxAhead: 100})
	apply(t, a, delta(t, b, a))
	require.NoError(t, a.Raise(999))
	require.Equal(t, lww.SetAside, apply(t, a, delta(t, b, a)).Changes[1].Outcome)
	require.Equal(t, lww.Absent, a.Get("key").State())

	got, err := a.Discard("key", far)
	require.NoError(t, err)
	require.Equal(t, "far", string(got[0].Value()))
	require.Zero(t, a.Stats().Quarantined)
	require.EqualValues(t, len("early")+len("fine"), a.Stats().Bytes)
	require.Equal(t, lww.Applied, apply(t, a, delta(t, b, a)).Changes[1].Outcome, "it is within the bound now")
}

// While a write is set aside nothing that it may have replaced is taken for seen, and
// no tombstone goes.
func TestTheVectorWaitsForTheQuarantine(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{})
	apply(t, b, delta(t, a, b))
	del(t, a, "gone")
	apply(t, b, delta(t, a, b))
	apply(t, a, delta(t, b, a))
	require.Zero(t, a.Vector().At(2))
	require.Zero(t, a.Collect(10))
	_, err := a.Release("key", far)
	require.NoError(t, err)
	require.True(t, apply(t, a, delta(t, b, a)).Advanced)
	require.Equal(t, 1, a.Collect(10))
}

// The writes that are too far come last, on a page of their own; that holds the whole
// delta.
func TestAPageHoldsItsDelta(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{})
	p := pages(t, b, a, 1)
	require.Len(t, p, 2)
	require.True(t, apply(t, a, p[0]).Held.IsZero())
	merged := apply(t, a, p[1])
	require.Equal(t, far, merged.Held)
	require.False(t, merged.Advanced)

	// Also if a later page is not too far any more.
	set(t, b, "later", "x")
	p = pages(t, b, a, 1)
	require.Len(t, p, 3)
	apply(t, a, p[0])
	apply(t, a, p[1])
	require.NoError(t, a.Raise(far.Lamport))
	merged = apply(t, a, p[2])
	require.Equal(t, lww.Applied, merged.Changes[0].Outcome)
	require.Equal(t, far, merged.Held)
	require.False(t, merged.Advanced)
	require.Zero(t, a.Vector().At(2))
}

// A log of this region's own with a stamp that is too far ahead is not whole.
func TestReplayOfAFarClock(t *testing.T) {
	m := newMap(t, 1, nil)
	early := lww.Entry{Key: "early", Register: set(t, m, "early", "x").Now}
	require.NoError(t, m.Raise(1<<40))
	far := lww.Entry{Key: "far", Register: set(t, m, "far", "x").Now}
	m = newMap(t, 1, nil)
	changes, err := m.Replay(early, far)
	require.NoError(t, err)
	require.Equal(t, lww.SetAside, changes[1].Outcome)
	require.Zero(t, m.Vector().At(1))
	_, err = m.Replay(early)
	require.NoError(t, err)
	require.EqualValues(t, 1, m.Vector().At(1))
	require.True(t, m.Acknowledged(1).Equal(m.Vector()))
}

// A vector can be far ahead without any write that is: it is not believed either.
func TestFarVectorsAreNotBelieved(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, b, "key", "x")
	d := delta(t, b, a)
	d.Upto = lww.NewVector(lww.Stamp{Lamport: 1 << 40, Region: 2})
	merged := apply(t, a, d)
	require.False(t, merged.Advanced)
	require.Equal(t, uint64(1<<40), merged.Held.Lamport)
	require.Equal(t, "x", value(a, "key"))
	require.EqualValues(t, 1, a.Stats().Clock)
	require.Zero(t, a.Vector().At(2))

	require.NoError(t, a.Raise(1<<40))
	require.True(t, apply(t, a, d).Advanced)
}

func TestTheQuarantineIsBounded(t *testing.T) {
	maps := regions(t, 2, lww.Options{MaxQuarantine: 2, MaxAhead: 10})
	a, b := maps[0], maps[1]
	require.NoError(t, b.Raise(1000))
	one := set(t, b, "one", "x").Now
	set(t, b, "two", "x")
	apply(t, a, delta(t, b, a))
	set(t, b, "fine", "x")
	_, err := a.Apply(delta(t, b, a))
	require.ErrorIs(t, err, lww.ErrFull)
	require.Len(t, a.Quarantined("", 10), 2)
	_, err = a.Release("one", one.Stamp())
	require.NoError(t, err)
	apply(t, a, delta(t, b, a))
	require.Equal(t, "x", value(a, "fine"))
	require.Len(t, a.Quarantined("", 10), 1)
}

func TestReleaseNeedsRoom(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{MaxKeys: 2})
	_, err := a.Merge(lww.Entry{Key: "key", Register: b.Get("key")})
	require.NoError(t, err)
	set(t, a, "one", "x")
	set(t, a, "two", "x")
	_, err = a.Release("key", far)
	require.ErrorIs(t, err, lww.ErrFull)
	require.Len(t, a.Quarantined("", 10), 1)
	del(t, a, "one")
	require.NoError(t, a.RetireRegion(2))
	require.Equal(t, 1, a.Collect(1))
	_, err = a.Release("key", far)
	require.NoError(t, err)
	require.Equal(t, "far", value(a, "key"))
	require.EqualValues(t, len("two")+1+len("key")+len("far"), a.Stats().Bytes)
}

// A region that stamped twice, and too far ahead: both writes are kept.
func TestTwoWritesOfOneStampAreSetAside(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{})
	_, other, again := ahead(t, 1<<40, lww.Options{})
	require.Equal(t, far, again)
	stub := b.Get("key").Stub()
	for _, r := range []lww.Register{stub, other.Get("key"), b.Get("key"), stub} {
		changes, err := a.Merge(lww.Entry{Key: "key", Register: r})
		require.NoError(t, err)
		require.Equal(t, lww.SetAside, changes[0].Outcome)
	}
	q := a.Quarantined("", 1)
	require.Len(t, q, 2, "the rest of a key comes with it")
	for _, e := range q {
		require.Equal(t, "far", string(e.Register.Value()), "a stub is filled there, too")
	}
	changes, err := a.Release("key", far)
	require.NoError(t, err)
	require.Len(t, changes, 2)
	require.True(t, changes[1].Clash)
	require.EqualValues(t, len("key")+len("far"), a.Stats().Bytes)
}

// The region whose clock ran away begins again from what the other has, and all goes
// on as if it had not.
func TestAMendedRegion(t *testing.T) {
	a, b, far := ahead(t, 1<<40, lww.Options{})
	apply(t, a, delta(t, b, a))
	_, err := a.Discard("key", far)
	require.NoError(t, err)
	b = load(t, a.SnapshotFor(2), 2, 1)
	require.NoError(t, a.RetireRegion(2))
	a.AddRegion(2)
	set(t, b, "key", "sane")
	del(t, a, "gone")
	sync(t, a, b)
	require.Equal(t, "sane", value(a, "key"))
	require.Less(t, a.Stats().Clock, uint64(10))
	require.Equal(t, 1, a.Collect(10))
	require.Equal(t, 1, b.Collect(10))
}
