package pginbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a claim has seen of due times counts while the server's clock goes on. When
// it goes back, what becomes due is below what was seen, and claims begin at the front.
func TestScoutAfterTheClockWentBack(t *testing.T) {
	sc := &scout{every: time.Hour, stale: time.Hour}
	claim := func(now time.Time) look {
		l := sc.begin()
		sc.end(l, &ending{now: now.UnixMicro(), low: 1, mark: 1, full: false})
		return l
	}
	now := time.Unix(1_700_000_000, 0)
	claim(now)
	require.Equal(t, now.Add(-dueLag).UnixMicro(), claim(now.Add(time.Second)).dueFloor)
	claim(now.Add(-time.Hour))
	require.LessOrEqual(t, sc.begin().dueFloor, now.Add(-time.Hour).UnixMicro())
	claim(now.Add(time.Minute))
	require.Equal(t, now.Add(time.Minute-dueLag).UnixMicro(), sc.begin().dueFloor)
}

// A floor rises to a mark only when a later claim has seen that all transactions
// from before the mark have ended; a claim without a transaction makes no mark.
func TestScoutWaitsForTransactions(t *testing.T) {
	sc := &scout{every: time.Hour, stale: time.Hour}
	claim := func(low, mark, oldest, newest int64) {
		sc.end(sc.begin(), &ending{now: 1, low: low, mark: mark, oldest: oldest, newest: newest, full: true})
	}
	claim(1, 5, 70, 0) // at the front
	claim(6, 5, 70, 0)
	claim(6, 5, 90, 0)
	require.Zero(t, sc.floor, "nothing is known of transactions")
	claim(6, 5, 70, 80) // a mark
	claim(9, 8, 79, 85)
	require.Zero(t, sc.floor, "one of before the mark goes on")
	claim(9, 8, 80, 85)
	require.EqualValues(t, 6, sc.floor)
	claim(7, 8, 85, 0) // the next mark; a record is pending
	require.EqualValues(t, 7, sc.floor)
	claim(9, 8, 90, 0)
	require.EqualValues(t, 7, sc.floor, "without a mark nothing is known of 8")
}
