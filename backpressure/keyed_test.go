package backpressure_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func TestKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := backpressure.NewKeyed(&backpressure.KeyedOptions{Rate: 2, Burst: 3})
		require.NoError(t, err)
		for _, key := range []string{"a", "b"} {
			for range 3 {
				require.True(t, k.Allow(key, 1).Admit)
			}
			v := k.Allow(key, 1)
			require.Equal(t, backpressure.NoTokens, v.Reason)
			require.Equal(t, 500*time.Millisecond, v.RetryAfter)
		}
		time.Sleep(500 * time.Millisecond)
		require.True(t, k.Allow("a", 1).Admit)
		require.Equal(t, backpressure.KeyedStats{Admitted: 7, Refused: 2, Keys: 2}, k.Stats())

		for _, cost := range []int{0, -1, math.MinInt, 4} {
			require.Equal(t, backpressure.CostInvalid, k.Allow("a", cost).Reason)
		}
		require.Equal(t, backpressure.KeyInvalid, k.Allow("", 1).Reason)
		require.ErrorIs(t, k.Allow(strings.Repeat("x", 513), 1).Err(), backpressure.ErrInvalid)
	})
}

// However many keys come, the table holds no more than it may, keys in debt keep
// their debt, and whoever comes with ever new keys does not get a full bucket for
// each.
func TestKeyedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := backpressure.NewKeyed(&backpressure.KeyedOptions{Rate: 1, Burst: 1, Keys: 100})
		require.NoError(t, err)
		admitted := 0
		for i := range 10_000 {
			if k.Allow(strconv.Itoa(i), 1).Admit {
				admitted++
			}
		}
		require.LessOrEqual(t, k.Stats().Keys, 100)
		require.LessOrEqual(t, admitted, 100+16)
		require.Positive(t, k.Stats().Shared)

		time.Sleep(time.Second) // all buckets are full: their keys can go
		before := k.Stats().Shared
		require.True(t, k.Allow("new", 1).Admit)
		require.False(t, k.Allow("new", 1).Admit)
		require.Equal(t, before, k.Stats().Shared)
		require.LessOrEqual(t, k.Stats().Keys, 100)
	})
}

func TestKeyedOptions(t *testing.T) {
	for name, o := range map[string]*backpressure.KeyedOptions{
		"nil": nil, "NaN": {Rate: math.NaN()}, "negative": {Rate: -1}, "burst": {Rate: 1, Burst: 6},
		"no keys": {Rate: 1, Keys: -1}, "too many keys": {Rate: 1, Keys: math.MaxInt},
	} {
		_, err := backpressure.NewKeyed(o)
		require.ErrorIs(t, err, backpressure.ErrInvalid, name)
	}
}
