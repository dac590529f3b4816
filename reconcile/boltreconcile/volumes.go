package boltreconcile

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A cell is how much one writer has counted of a series in a window.
type cell struct {
	n       int64
	expires int64 // from when on it may be forgotten
}

func (c *cell) append(b []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(append(b, layout), c.n), c.expires)
}

func decodeCell(b []byte) (c cell, err error) {
	d := decode(b)
	c.n, c.expires = d.Varint(), d.Varint()
	return c, d.End("a cell")
}

func (st *step) tallyAll(p *reconcile.CheckParams, cells []reconcile.Cell) error {
	for i := range cells {
		if err := st.tallyOne(p, &cells[i]); err != nil {
			return err
		}
	}
	return nil
}

func (st *step) tallyOne(p *reconcile.CheckParams, c *reconcile.Cell) (err error) {
	start, keep := c.Start.UnixMicro(), p.Keep.Microseconds()
	if start < st.now-keep || start > st.now+keep {
		return nil
	}
	key := append(startKey(p.Kind, c.Series, start), c.Writer[:]...)
	var before, after cell
	if b := st.cells.Get(key); b != nil {
		if before, err = decodeCell(b); err != nil {
			return err
		}
	}
	after.n, after.expires = max(before.n, c.N), start+keep+1
	if after == before {
		return nil
	}
	from, to := expiringKey(before.expires, cellExpires, key), expiringKey(after.expires, cellExpires, key)
	if err := st.relist(st.expiring, row{key: from}, row{key: to}); err != nil {
		return err
	}
	return st.write(st.cells, key, after.append(nil))
}

func (st *step) volumes(kind, after string, n int, starts []time.Time) (volumes []reconcile.Volume, err error) {
	for len(volumes) < n {
		series, since, found := st.seriesBehind(kind, after)
		if !found {
			return volumes, nil
		}
		v := reconcile.Volume{Series: series, Since: time.UnixMicro(since), N: make([]int64, len(starts))}
		for i, start := range starts {
			for _, b := range behind(st.cells, startKey(kind, series, start.UnixMicro()), nil) {
				c, err := decodeCell(b)
				if err != nil {
					return nil, err
				}
				v.N[i] += c.n
			}
		}
		volumes = append(volumes, v)
		after = series
	}
	return volumes, nil
}

// seriesBehind returns the series that follows another one, and its first start. No series
// has a NUL.
func (st *step) seriesBehind(kind, after string) (series string, since int64, found bool) {
	prefix := nameKey(kind)
	k, _ := st.cells.Cursor().Seek(append(append(bytes.Clone(prefix), after...), 1))
	if !bytes.HasPrefix(k, prefix) {
		return "", 0, false
	}
	name, rest, _ := bytes.Cut(k[len(prefix):], []byte{0})
	return string(name), int64(binary.BigEndian.Uint64(rest) ^ startSign), true
}

// startKey is what the keys of the cells of a window begin with.
func startKey(kind, series string, start int64) []byte {
	return binary.BigEndian.AppendUint64(nameKey(kind, series, ""), uint64(start)^startSign)
}

// startSign makes starts before 1970 come before the others.
const startSign = 1 << 63
