package backpressure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is read out of order, or set back, makes no tokens of nothing.
func TestClockBackMakesNoTokens(t *testing.T) {
	s, err := NewShaper(&ShaperOptions{Lines: []LineOptions{
		{Name: "im", Rate: 1000, Burst: 10}, {Name: "floored", Rate: 1000, Burst: 10, Floor: 500},
	}})
	require.NoError(t, err)
	for _, name := range []string{"im", "floored"} {
		l := s.lines[name]
		now := time.Hour
		n := 0
		for i := range 1000 {
			at := now
			if i%2 == 1 {
				at = now - time.Minute
			}
			if l.allow(at, 1).Admit {
				n++
			}
		}
		require.Equal(t, 10, n, name)
		require.True(t, l.allow(now+2*time.Millisecond, 1).Admit)
	}
}

func TestKeyedClockBack(t *testing.T) {
	k, err := NewKeyed(&KeyedOptions{Rate: 1000, Burst: 10})
	require.NoError(t, err)
	p := &k.parts[0]
	n := 0
	for i := range 1000 {
		if p.allow(k.start.Add(time.Hour-time.Duration(i%2)*time.Minute), "a", 1, k.opts).Admit {
			n++
		}
	}
	require.Equal(t, 10, n)
}
