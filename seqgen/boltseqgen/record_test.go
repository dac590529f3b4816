package boltseqgen

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/seqgen"
)

// Records survive their encoding, whatever is in them.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record{epoch: number(t), last: number(t), mode: seqgen.Mode(rapid.Byte().Draw(t, "mode")), token: number(t),
			owned: rapid.Bool().Draw(t, "owned"), used: number(t)}
		for range rapid.IntRange(0, seqgen.LogSize).Draw(t, "steps") {
			e := logEntry{epoch: number(t), lo: number(t), hi: number(t), token: number(t)}
			copy(e.nonce[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "nonce"))
			r.log = append(r.log, e)
		}
		b := r.append(nil)
		got, err := decodeRecord(b)
		require.NoError(t, err)
		require.Equal(t, r, got)

		v := voidRow{hi: number(t), kind: seqgen.VoidKind(rapid.Byte().Draw(t, "kind")), reason: seqgen.Reason(rapid.Byte().Draw(t, "reason")),
			token: number(t), at: rapid.Int64().Draw(t, "at"), expires: rapid.Int64().Draw(t, "expires")}
		gotVoid, err := decodeVoid(v.append(nil))
		require.NoError(t, err)
		require.Equal(t, v, gotVoid)
	})
}

func number(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "number") }

func TestDecodeRefusesWhatIsCutOffOrTooLong(t *testing.T) {
	r := record{epoch: 1, last: 300, token: 300, used: 300}
	whole := r.append(nil)
	e := logEntry{epoch: 1, lo: 1, hi: 300, token: 300}
	logged := record{epoch: 1, last: 300, token: 300, used: 300, log: []logEntry{e}}
	for n := range whole {
		_, err := decodeRecord(whole[:n])
		require.ErrorIs(t, err, boltrow.ErrRecord, "%d of %d bytes", n, len(whole))
	}
	long := logged.append(nil)
	for n := len(whole) + 1; n < len(long); n++ {
		_, err := decodeRecord(long[:n])
		require.ErrorIs(t, err, boltrow.ErrRecord, "%d of %d bytes", n, len(long))
	}
	v := voidRow{hi: 300, at: 300, expires: 300}
	void := v.append(nil)
	for n := range void {
		_, err := decodeVoid(void[:n])
		require.ErrorIs(t, err, boltrow.ErrRecord, "%d of %d bytes", n, len(void))
	}
	_, err := decodeVoid(append(void, 0))
	require.ErrorIs(t, err, boltrow.ErrRecord)
	_, err = decodeRecord(append([]byte{layout + 1}, whole[1:]...))
	require.ErrorIs(t, err, boltrow.ErrRecord)
}

// FuzzDecode feeds the decoders with anything: they never panic, and what they
// accept they have understood.
func FuzzDecode(f *testing.F) {
	r := record{epoch: 1, last: 300, log: []logEntry{{epoch: 1, lo: 1, hi: 300}}}
	f.Add(r.append(nil))
	v := voidRow{hi: 300}
	f.Add(v.append(nil))
	f.Add([]byte{})
	f.Add([]byte{layout, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRecord(b); err == nil {
			again, err := decodeRecord(r.append(nil))
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
		if v, err := decodeVoid(b); err == nil {
			again, err := decodeVoid(v.append(nil))
			require.NoError(t, err)
			require.Equal(t, v, again)
		}
	})
}

// The documentation promises that a key takes at most about 1,200 bytes.
func TestRecordSizes(t *testing.T) {
	const token = 1_800_000_000_000_000
	r := record{epoch: 1, last: 1e12, token: token, used: 1e12}
	for range seqgen.LogSize {
		r.log = append(r.log, logEntry{epoch: 1, lo: 1e12, hi: 1e12, token: token})
	}
	require.LessOrEqual(t, len(r.append(nil)), 1250)
}
