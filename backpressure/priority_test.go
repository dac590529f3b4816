package backpressure_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func TestPriorityHeader(t *testing.T) {
	for c := backpressure.ClassLowest; c <= backpressure.ClassHighest; c++ {
		for _, user := range []int8{-64, -1, 0, 63} {
			h := http.Header{}
			backpressure.Priority{Class: c, User: user}.SetHeader(h)
			got, ok := backpressure.PriorityFromHeader(h)
			require.True(t, ok)
			require.Equal(t, backpressure.Priority{Class: c, User: user}, got)
		}
	}
	for _, value := range []string{"", "high", "high;", ";1", "high;64", "high;-65", "high;1000", "HIGH;1", "vip;1", "high;1;2", "class 7;0"} {
		got, ok := backpressure.PriorityFromHeader(http.Header{backpressure.PriorityHeader: {value}})
		require.False(t, ok, value)
		require.Zero(t, got, "the middle")
	}
}

func TestPriorityIsInherited(t *testing.T) {
	p, ok := backpressure.PriorityFrom(t.Context())
	require.False(t, ok)
	require.Equal(t, backpressure.ClassMiddle, p.Class)
	p = backpressure.Priority{Class: backpressure.ClassHigh, User: 5}
	ctx, cancel := context.WithTimeout(backpressure.WithPriority(t.Context(), p), time.Hour)
	defer cancel()
	c := backpressure.CallFrom(ctx)
	require.Equal(t, p, c.Priority)
	require.InDelta(t, time.Hour, time.Until(c.Deadline), float64(time.Minute))
}

// The level of a user stays for the hour, differs from user to user, and is spread
// evenly.
func TestUserLevel(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	counts := make(map[int8]int)
	changed := 0
	for i := range 12800 {
		user := "user-" + strconv.Itoa(i)
		level := backpressure.UserLevel(user, at)
		require.Equal(t, level, backpressure.UserLevel(user, at.Add(59*time.Minute)))
		if level != backpressure.UserLevel(user, at.Add(time.Hour)) {
			changed++
		}
		counts[level]++
	}
	require.Greater(t, changed, 12000)
	for level := -64; level < 64; level++ {
		require.InDelta(t, 100, counts[int8(level)], 50, "level %d", level)
	}
	require.Zero(t, backpressure.UserLevel("", at))
}
