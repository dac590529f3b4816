package lww_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/reconcile/lww"
)

// same compares two registers by what identifies a write, and by what is here of it.
func same(t require.TestingT, want, got lww.Register, msg ...any) {
	require.Equal(t, want.Stamp(), got.Stamp(), msg...)
	require.Equal(t, want.State(), got.State(), msg...)
	require.Equal(t, want.Digest(), got.Digest(), msg...)
	require.Equal(t, string(want.Value()), string(got.Value()), msg...)
}

// drawRegisters are writes of a few regions to one key, some of which saw others, some
// with one stamp, some without their value.
func drawRegisters(t *rapid.T) []lww.Register {
	pool := []lww.Register{{}}
	for range rapid.IntRange(1, 8).Draw(t, "writes") {
		from := rapid.SampledFrom(pool).Draw(t, "upon")
		region := rapid.Uint8Range(1, 3).Draw(t, "region")
		r, err := from.Delete(region)
		if rapid.IntRange(0, 3).Draw(t, "value") > 0 {
			r, err = from.Set(region, []byte(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "text")))
		}
		require.NoError(t, err)
		pool = append(pool, r)
		if rapid.Bool().Draw(t, "stub") {
			pool = append(pool, r.Stub())
		}
	}
	return pool
}

func TestMergeIsALattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := drawRegisters(t)
		a := rapid.SampledFrom(pool).Draw(t, "a")
		b := rapid.SampledFrom(pool).Draw(t, "b")
		c := rapid.SampledFrom(pool).Draw(t, "c")
		merge := func(a, b lww.Register) lww.Register { return a.Merge(b).Now }

		same(t, merge(a, b), merge(b, a), "commutative")
		same(t, merge(merge(a, b), c), merge(a, merge(b, c)), "associative")
		same(t, a, merge(a, a), "idempotent")
		same(t, merge(a, b), merge(merge(a, b), b), "idempotent")

		one, other := a.Merge(b), b.Merge(a)
		same(t, one.Lost, other.Lost, "what is lost")
		require.Equal(t, one.Conflict, other.Conflict)
		require.Equal(t, one.Clash, other.Clash)
		require.GreaterOrEqual(t, one.Now.Stamp().Compare(one.Lost.Stamp()), 0)
		if a.Digest() != b.Digest() {
			kept := one.Now.Digest() == a.Digest() && one.Lost.Digest() == b.Digest()
			require.True(t, kept || one.Now.Digest() == b.Digest() && one.Lost.Digest() == a.Digest(), "one stays, the other is returned")
		}
	})
}

func TestTheGreaterStampStays(t *testing.T) {
	var nothing lww.Register
	low, err := nothing.Set(9, []byte("low"))
	require.NoError(t, err)
	high, err := low.Set(1, []byte("high"))
	require.NoError(t, err)
	require.Equal(t, lww.Stamp{Lamport: 2, Region: 1}, high.Stamp(), "above what it saw, whatever the regions")

	c := low.Merge(high)
	require.Equal(t, lww.Applied, c.Outcome)
	same(t, high, c.Now)
	same(t, low, c.Lost)
	require.False(t, c.Conflict, "high saw low")
	require.Equal(t, lww.Ignored, high.Merge(low).Outcome)
	require.Equal(t, lww.Unchanged, high.Merge(high).Outcome)

	// One Lamport: the greater region, and neither saw the other.
	a, err := nothing.Set(1, []byte("a"))
	require.NoError(t, err)
	b, err := nothing.Set(2, []byte("b"))
	require.NoError(t, err)
	c = b.Merge(a)
	same(t, b, c.Now)
	require.True(t, c.Conflict)
	require.False(t, c.Clash)
}

func TestARegionThatStampsTwiceIsFound(t *testing.T) {
	var nothing lww.Register
	a, err := nothing.Set(1, []byte("a"))
	require.NoError(t, err)
	b, err := nothing.Set(1, []byte("b"))
	require.NoError(t, err)
	gone, err := nothing.Delete(1)
	require.NoError(t, err)
	again, err := nothing.Delete(1)
	require.NoError(t, err)

	c := a.Merge(b)
	require.True(t, c.Clash)
	require.False(t, c.Conflict, "a region has seen its own")
	same(t, c.Now, b.Merge(a).Now)
	same(t, c.Lost, b.Merge(a).Lost)
	for _, r := range []lww.Register{a, b} {
		same(t, gone, r.Merge(gone).Now, "a tombstone stays before a value")
		require.True(t, gone.Merge(r).Clash)
	}
	require.True(t, gone.Merge(again).Clash, "two tombstones are two writes, too")

	// It is found on the digests alone.
	require.True(t, a.Stub().Merge(b.Stub()).Clash)
	require.Equal(t, a.Merge(b).Now.Digest(), a.Stub().Merge(b).Now.Digest())
}

func TestAStubIsFilledByItsValue(t *testing.T) {
	var nothing lww.Register
	r, err := nothing.Set(1, []byte("at home"))
	require.NoError(t, err)
	stub := r.Stub()
	require.Equal(t, lww.Remote, stub.State())
	require.Nil(t, stub.Value())
	require.Equal(t, r.Digest(), stub.Digest())

	c := stub.Merge(r)
	require.Equal(t, lww.Filled, c.Outcome)
	same(t, r, c.Now)
	require.True(t, c.Lost.Stamp().IsZero())
	require.Equal(t, lww.Unchanged, r.Merge(stub).Outcome)

	gone, err := r.Delete(2)
	require.NoError(t, err)
	same(t, gone, gone.Stub(), "a tombstone has nothing to keep")
}

// The digest of a value is another each time, so that nobody finds a value by trying.
func TestDigestsAreSalted(t *testing.T) {
	var nothing lww.Register
	a, err := nothing.Set(1, []byte("+49 151 23456789"))
	require.NoError(t, err)
	b, err := nothing.Set(1, []byte("+49 151 23456789"))
	require.NoError(t, err)
	require.NotEqual(t, a.Digest(), b.Digest())
}

func TestTheClockEnds(t *testing.T) {
	last := lastStamp(t)
	_, err := last.Set(1, nil)
	require.ErrorIs(t, err, lww.ErrOverflow)
	_, err = last.Delete(1)
	require.ErrorIs(t, err, lww.ErrOverflow)
}

// lastStamp is a write of region 2 with the greatest Lamport there is. It is made
// where no clock gets by counting: on a map that was raised.
func lastStamp(t require.TestingT) lww.Register {
	m, err := lww.New(2, nil)
	require.NoError(t, err)
	require.ErrorIs(t, m.Raise(math.MaxUint64), lww.ErrInvalid)
	require.NoError(t, m.Raise(math.MaxUint64-1))
	c, err := m.Set("key", []byte("last"))
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxUint64), c.Now.Stamp().Lamport)
	return c.Now
}

func TestRegistersKeepTheirValue(t *testing.T) {
	var nothing lww.Register
	value := []byte("value")
	r, err := nothing.Set(1, value)
	require.NoError(t, err)
	value[0] = 'x'
	require.Equal(t, "value", string(r.Value()))
	empty, err := nothing.Set(1, nil)
	require.NoError(t, err)
	require.Equal(t, lww.Present, empty.State())
	require.NotNil(t, empty.Value())
}

func TestVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (lww.Vector, map[uint8]uint64) {
			model := map[uint8]uint64{}
			var stamps []lww.Stamp
			for range rapid.IntRange(0, 6).Draw(t, label) {
				s := lww.Stamp{Lamport: rapid.Uint64Range(0, 5).Draw(t, "lamport"), Region: rapid.Uint8Range(0, 4).Draw(t, "region")}
				stamps = append(stamps, s)
				model[s.Region] = max(model[s.Region], s.Lamport)
			}
			return lww.NewVector(stamps...), model
		}
		v, inV := draw("v")
		w, inW := draw("w")
		joined := v.Join(w)
		all := true
		for region := range uint8(5) {
			require.Equal(t, inV[region], v.At(region))
			require.Equal(t, max(inV[region], inW[region]), joined.At(region))
			require.True(t, v.Covers(lww.Stamp{Lamport: inV[region], Region: region}))
			require.False(t, v.Covers(lww.Stamp{Lamport: inV[region] + 1, Region: region}))
			all = all && inV[region] >= inW[region]
		}
		require.Equal(t, all, v.CoversAll(w))
		require.True(t, joined.Equal(w.Join(v)))
		require.Equal(t, v.CoversAll(w) && w.CoversAll(v), v.Equal(w))
	})
}

func TestStrings(t *testing.T) {
	s := lww.Stamp{Lamport: 17, Region: 3}
	require.Equal(t, "17@3", s.String())
	require.Equal(t, "[17@3 4@9]", lww.NewVector(lww.Stamp{Lamport: 4, Region: 9}, s).String())
	for state, want := range map[lww.State]string{lww.Absent: "absent", lww.Present: "present", lww.Deleted: "deleted", lww.Remote: "remote", 9: "state 9"} {
		require.Equal(t, want, state.String())
	}
	seen := map[string]bool{}
	for o := range lww.Collected + 2 {
		seen[o.String()] = true
	}
	require.Len(t, seen, 8, fmt.Sprint(seen))
}
