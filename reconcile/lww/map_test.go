package lww_test

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	gosync "sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

func TestWritesAreStampedAboveWhatWasMerged(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	for range 5 {
		set(t, b, "busy", "x")
	}
	set(t, b, "key", "first")
	apply(t, a, delta(t, b, a))
	c := set(t, a, "key", "second")
	require.Equal(t, lww.Stamp{Lamport: 7, Region: 1}, c.Now.Stamp())
	require.Equal(t, "first", string(c.Lost.Value()))
	require.False(t, c.Conflict)

	merged := apply(t, b, delta(t, a, b))
	require.Len(t, merged.Changes, 1)
	require.Equal(t, lww.Applied, merged.Changes[0].Outcome)
	require.False(t, merged.Changes[0].Conflict, "it saw what it replaces")
	require.Equal(t, "second", value(b, "key"))
	require.Equal(t, lww.Stamp{Lamport: 8, Region: 2}, set(t, b, "other", "x").Now.Stamp())
}

func TestAWriteThatLosesIsReturned(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "key", "a")
	set(t, b, "key", "b")

	fromA, fromB := delta(t, a, b), delta(t, b, a)
	won := apply(t, a, fromB).Changes[0]
	require.Equal(t, lww.Applied, won.Outcome)
	require.True(t, won.Conflict)
	require.Equal(t, "a", string(won.Lost.Value()))
	lost := apply(t, b, fromA).Changes[0]
	require.Equal(t, lww.Ignored, lost.Outcome)
	require.True(t, lost.Conflict)
	require.Equal(t, "a", string(lost.Lost.Value()))
	require.Equal(t, "b", value(a, "key"))
	require.Equal(t, "b", value(b, "key"))

	s := b.Stats()
	require.EqualValues(t, 1, s.Ignored)
	require.EqualValues(t, 1, s.Conflicts)
	require.EqualValues(t, 1, s.Written)
	require.Equal(t, lww.Unchanged, apply(t, a, fromB).Changes[0].Outcome)
}

// A region that has seen the conflict has decided over both when it writes.
func TestASeenConflictIsNotOneAgain(t *testing.T) {
	maps := regions(t, 3, lww.Options{})
	a, b, c := maps[0], maps[1], maps[2]
	set(t, a, "key", "a")
	set(t, c, "key", "c")
	apply(t, b, delta(t, c, b))
	require.True(t, apply(t, b, delta(t, a, b)).Changes[0].Conflict)
	set(t, b, "key", "b")
	for _, m := range []*lww.Map{a, c} {
		got := apply(t, m, delta(t, b, m)).Changes[0]
		require.Equal(t, lww.Applied, got.Outcome)
		require.False(t, got.Conflict, "region %d", m.Region())
	}
}

func TestDelete(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	a, b := maps[0], maps[1]
	set(t, a, "key", "value")
	d := delta(t, a, b)
	del(t, b, "busy")
	del(t, b, "key") // before it came
	require.Equal(t, lww.Ignored, apply(t, b, d).Changes[0].Outcome)
	require.Equal(t, "(deleted)", value(b, "key"))
	require.Equal(t, "(absent)", value(b, "never"))
	require.Equal(t, 2, b.Stats().Tombstones)
	set(t, b, "key", "back")
	require.Equal(t, 1, b.Stats().Tombstones)
	sync(t, a, b)
	require.Equal(t, "back", value(a, "key"))
	require.Equal(t, "(deleted)", value(a, "busy"))
}

func TestKeysInAState(t *testing.T) {
	m := newMap(t, 1, nil)
	for i := range 5 {
		set(t, m, fmt.Sprint("key", i), "x")
	}
	del(t, m, "gone")
	require.Equal(t, []string{"key1", "key2"}, m.Keys(lww.Present, "key0", 2))
	require.Equal(t, []string{"gone"}, m.Keys(lww.Deleted, "", 10))
	require.Empty(t, m.Keys(lww.Remote, "", 10))
	require.Empty(t, m.Keys(lww.Present, "", -1))
}

func TestBadOptions(t *testing.T) {
	large := int64(math.MaxInt32) + 1
	for _, o := range []lww.Options{
		{MaxKeys: -1}, {MaxKeys: int(large)}, {MaxValue: -1}, {MaxValue: 16<<20 + 1}, {MaxBytes: -1}, {MaxQuarantine: -1},
	} {
		_, err := lww.New(1, &o)
		require.ErrorIs(t, err, lww.ErrInvalid, "%+v", o)
		_, err = lww.Load(newMap(t, 1, nil).Snapshot(), 1, &o)
		require.ErrorIs(t, err, lww.ErrInvalid, "%+v", o)
	}
}

func TestBadArguments(t *testing.T) {
	m := newMap(t, 1, &lww.Options{MaxValue: 4})
	for _, key := range []string{"", strings.Repeat("k", 513), "a\x00b", "\xff"} {
		_, err := m.Set(key, nil)
		require.ErrorIs(t, err, lww.ErrInvalid, "%q", key)
		_, err = m.Delete(key)
		require.ErrorIs(t, err, lww.ErrInvalid, "%q", key)
		_, err = m.Merge(lww.Entry{Key: key, Register: set(t, newMap(t, 1, nil), "good", "").Now})
		require.ErrorIs(t, err, lww.ErrInvalid, "%q", key)
		require.Equal(t, lww.Absent, m.Get(key).State())
	}
	set(t, m, strings.Repeat("k", 512), "1234")
	_, err := m.Set("+4915123456789", []byte("12345"))
	var size *lww.SizeError
	require.ErrorAs(t, err, &size)
	require.Equal(t, 5, size.Size)
	require.ErrorIs(t, err, lww.ErrInvalid)
	require.NotContains(t, err.Error(), "4915123456789")

	_, err = m.Merge(lww.Entry{Key: "zero"})
	require.ErrorIs(t, err, lww.ErrInvalid)
	_, err = m.Merge(lww.Entry{Key: "large", Register: set(t, newMap(t, 1, nil), "large", "12345").Now})
	require.ErrorAs(t, err, &size)
	_, err = m.Merge(lww.Entry{Key: "foreign", Register: set(t, newMap(t, 7, nil), "foreign", "1").Now})
	require.ErrorIs(t, err, lww.ErrRegion)
	_, err = m.Replay(lww.Entry{Key: "foreign", Register: set(t, newMap(t, 7, nil), "foreign", "1").Now})
	require.ErrorIs(t, err, lww.ErrInvalid)
	_, err = m.Replay(lww.Entry{Key: "large", Register: set(t, newMap(t, 1, nil), "large", "12345").Now})
	require.ErrorAs(t, err, &size)
	require.Equal(t, 1, m.Stats().Keys)
	require.EqualValues(t, 1, m.Stats().Clock)
}

func TestLimits(t *testing.T) {
	m := newMap(t, 1, &lww.Options{MaxKeys: 2, MaxBytes: 10})
	set(t, m, "a", "1234")
	set(t, m, "b", "1234") // 10 bytes
	_, err := m.Set("c", nil)
	require.ErrorIs(t, err, lww.ErrFull)
	_, err = m.Delete("c")
	require.ErrorIs(t, err, lww.ErrFull)
	_, err = m.Set("a", []byte("12345"))
	require.ErrorIs(t, err, lww.ErrFull)
	require.Equal(t, "1234", value(m, "a"))
	del(t, m, "a")
	set(t, m, "b", "12345678")
	require.EqualValues(t, 10, m.Stats().Bytes)
	require.Equal(t, 2, m.Collect(10)+m.Stats().Keys)
	require.EqualValues(t, 9, m.Stats().Bytes)
	set(t, m, "c", "")
}

// A merge that has no room for all takes nothing, and finds it all again later.
func TestAFullMapTakesNothingOfADelta(t *testing.T) {
	for _, o := range []lww.Options{{MaxKeys: 3}, {MaxBytes: 12}, {MaxValue: 3}} {
		b := newMap(t, 2, &lww.Options{Regions: []uint8{1}})
		set(t, b, "old", "x")
		o.Regions = []uint8{2}
		a := newMap(t, 1, &o)
		apply(t, a, everything(t, b, a))
		before := a.Stats()
		set(t, b, "old", "xy")
		set(t, b, "k1", "123")
		set(t, b, "k2", "1234")
		set(t, b, "k3", "123")
		d := everything(t, b, a)
		_, err := a.Apply(d)
		require.Error(t, err, "%+v", o)
		_, err = a.Merge(d.Entries...)
		require.Error(t, err, "%+v", o)
		require.Equal(t, before, a.Stats())
		require.Equal(t, "x", value(a, "old"))
		require.EqualValues(t, 1, a.Vector().At(2))

		larger, err := lww.Load(a.Snapshot(), 1, &lww.Options{Regions: []uint8{2}})
		require.NoError(t, err)
		require.True(t, apply(t, larger, d).Advanced)
		require.Equal(t, "1234", value(larger, "k2"))
	}
}

// What cannot come in needs no room.
func TestAFullMapStillMergesWhatNeedsNoRoom(t *testing.T) {
	maps := regions(t, 2, lww.Options{MaxKeys: 1, MaxBytes: 8})
	a, b := maps[0], maps[1]
	set(t, a, "key", "12345")
	d := delta(t, a, b)
	apply(t, b, d)
	set(t, b, "key", "1234")
	apply(t, b, d) // older, and longer
	apply(t, a, delta(t, b, a))
	require.Equal(t, "1234", value(a, "key"))
	del(t, b, "key")
	sync(t, a, b)
	require.Equal(t, 1, b.Collect(1))
	set(t, b, "new", "12345")
	require.Equal(t, lww.Collected, apply(t, b, d).Changes[0].Outcome)
	require.Equal(t, "12345", value(b, "new"))
}

func TestOverflow(t *testing.T) {
	m := newMap(t, 1, &lww.Options{Regions: []uint8{2}, MaxAhead: math.MaxUint64})
	set(t, m, "mine", "x")
	c, err := m.Merge(lww.Entry{Key: "key", Register: lastStamp(t)})
	require.NoError(t, err)
	require.Equal(t, lww.Applied, c[0].Outcome)
	_, err = m.Set("mine", []byte("y"))
	require.ErrorIs(t, err, lww.ErrOverflow)
	_, err = m.Delete("key")
	require.ErrorIs(t, err, lww.ErrOverflow)
	_, err = m.Restamp(1, 0)
	require.ErrorIs(t, err, lww.ErrOverflow)
	require.Equal(t, "x", value(m, "mine"))
	require.Equal(t, "last", value(m, "key"))
	low := newMap(t, 2, nil)
	set(t, low, "other", "still merged")
	_, err = m.Merge(lww.Entry{Key: "other", Register: low.Get("other")})
	require.NoError(t, err)
	require.Equal(t, "still merged", value(m, "other"))
}

func TestTheLogHasNoKeysAndNoValues(t *testing.T) {
	var log strings.Builder
	a := newMap(t, 1, &lww.Options{Regions: []uint8{2}, Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxAhead: 10})
	for range 2 { // region 2 stamps twice
		b := newMap(t, 2, nil)
		set(t, b, "+4915123456789", "secret")
		_, err := a.Merge(lww.Entry{Key: "+4915123456789", Register: b.Get("+4915123456789")})
		require.NoError(t, err)
	}
	require.Contains(t, log.String(), "same stamp")
	_, err := a.Merge(lww.Entry{Key: "+4915123456789", Register: lastStamp(t)})
	require.NoError(t, err)
	require.Contains(t, log.String(), "too far ahead")
	require.NotContains(t, log.String(), "4915123456789")
	require.NotContains(t, log.String(), "secret")
}

// Under the race detector: all methods at once, and in the end both have the same.
func TestConcurrentUse(t *testing.T) {
	maps := regions(t, 2, lww.Options{})
	var wg gosync.WaitGroup
	for i, m := range maps {
		other := maps[1-i]
		for w := range 2 {
			wg.Go(func() {
				for n := range 300 {
					key := fmt.Sprint("key", n%7)
					if n%5 == w {
						del(t, m, key)
					} else {
						set(t, m, key, fmt.Sprint(n))
					}
					m.Get(key)
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				pages, err := m.Delta(other.Region(), m.Acknowledged(other.Region()), 0)
				if err != nil {
					t.Error(err)
				}
				for _, p := range pages {
					if _, err := other.Apply(p); err != nil {
						t.Error(err)
					}
				}
				m.Collect(3)
				m.Stats()
				m.Snapshot()
				m.Export(other.Region(), "key1")
				m.Keys(lww.Deleted, "", 9)
			}
		})
	}
	wg.Wait()
	sync(t, maps...)
	require.EqualValues(t, 1200, maps[0].Stats().Written+maps[1].Stats().Written)
	for n := range 7 {
		key := fmt.Sprint("key", n)
		require.Equal(t, strings.ReplaceAll(value(maps[0], key), "(deleted)", "(absent)"),
			strings.ReplaceAll(value(maps[1], key), "(deleted)", "(absent)"))
	}
	require.Zero(t, maps[0].Stats().Diverged+maps[1].Stats().Diverged)
}
