package lww_test

import (
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile/lww"
)

func newMap(t require.TestingT, region uint8, opts *lww.Options) *lww.Map {
	m, err := lww.New(region, opts)
	require.NoError(t, err)
	return m
}

// regions makes maps of regions 1 to n, that know each other.
func regions(t require.TestingT, n int, opts lww.Options) []*lww.Map {
	for r := range n {
		opts.Regions = append(opts.Regions, uint8(r+1))
	}
	maps := make([]*lww.Map, n)
	for i := range maps {
		maps[i] = newMap(t, uint8(i+1), &opts)
	}
	return maps
}

func set(t require.TestingT, m *lww.Map, key, value string) lww.Change {
	c, err := m.Set(key, []byte(value))
	require.NoError(t, err)
	return c
}

func del(t require.TestingT, m *lww.Map, key string) lww.Change {
	c, err := m.Delete(key)
	require.NoError(t, err)
	return c
}

// delta is all that from has and to is not known to have seen, as one page.
func delta(t require.TestingT, from, to *lww.Map) lww.Delta {
	pages, err := from.Delta(to.Region(), from.Acknowledged(to.Region()), 1<<30)
	require.NoError(t, err)
	require.Len(t, pages, 1)
	return pages[0]
}

// everything is all that from has, whatever to has seen.
func everything(t require.TestingT, from, to *lww.Map) lww.Delta {
	pages, err := from.Delta(to.Region(), lww.Vector{}, 1<<30)
	require.NoError(t, err)
	require.Len(t, pages, 1)
	return pages[0]
}

func apply(t require.TestingT, to *lww.Map, d lww.Delta) lww.Merged {
	m, err := to.Apply(d)
	require.NoError(t, err)
	return m
}

// sync brings all maps to the same, and tells them so.
func sync(t require.TestingT, maps ...*lww.Map) {
	for range 3 {
		for _, from := range maps {
			for _, to := range maps {
				if from != to {
					apply(t, to, delta(t, from, to))
				}
			}
		}
	}
}

func value(m *lww.Map, key string) string {
	r := m.Get(key)
	if r.State() != lww.Present {
		return "(" + r.State().String() + ")"
	}
	return string(r.Value())
}
