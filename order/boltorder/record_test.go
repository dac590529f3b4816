package boltorder

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// Every kind of record survives its encoding, whatever is in it.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keyRow{token: number(t), until: micro(t), due: micro(t), late: number(t), head: micro(t),
			live: rapid.SliceOfN(rapid.Uint64(), 1, order.MaxEpochs).Draw(t, "live")}
		k.nonce[3] = rapid.Byte().Draw(t, "nonce")
		for _, n := range k.counts() {
			*n = number(t)
		}
		gotKey, err := decodeKey(k.append(nil))
		require.NoError(t, err)
		require.Equal(t, k, gotKey)

		e := epochRow{due: micro(t), err: text(t), gap: gapState{opened: micro(t)}}
		for _, n := range e.numbers() {
			*n = number(t)
		}
		draw(t, e.flags())
		gotEpoch, err := decodeEpoch(e.append(nil))
		require.NoError(t, err)
		require.Equal(t, string(e.err), string(gotEpoch.err))
		e.err, gotEpoch.err = nil, nil
		require.Equal(t, e, gotEpoch)

		g := gapRow{reason: order.Reason(rapid.Byte().Draw(t, "reason")), resolution: order.Resolution(rapid.Byte().Draw(t, "resolution")),
			to: number(t), opened: micro(t), resolved: micro(t), asked: number(t), arrived: number(t), actor: text(t), note: text(t)}
		draw(t, g.flags())
		gotGap, err := decodeGap(g.append(nil))
		require.NoError(t, err)
		require.Equal(t, []string{string(g.actor), string(g.note)}, []string{string(gotGap.actor), string(gotGap.note)})
		g.actor, g.note, gotGap.actor, gotGap.note = nil, nil, nil, nil
		require.Equal(t, g, gotGap)

		var sums totals
		for _, n := range sums.numbers() {
			*n = number(t)
		}
		gotTotals, err := decodeTotals(sums.append(nil))
		require.NoError(t, err)
		require.Equal(t, sums, gotTotals)

		s := span{kind: spanKind(rapid.Uint8Range(1, 3).Draw(t, "kind")), from: rapid.Uint64Range(1, order.MaxNumber).Draw(t, "from")}
		s.to = rapid.Uint64Range(s.from, order.MaxNumber+1).Draw(t, "to")
		gotSpan, err := decodeSpan(s.from, s.append(nil))
		require.NoError(t, err)
		require.Equal(t, s, gotSpan)
	})
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := message{pushed: micro(t), id: text(t), context: text(t), payload: text(t)}
		draw(t, m.flags())
		m.digest[5] = rapid.Byte().Draw(t, "digest")
		if m.late {
			m.due = micro(t)
		}
		if m.waiting {
			m.attempts, m.noted, m.err = number(t), number(t), text(t)
		}
		got, err := decodeMessage(m.append(nil))
		require.NoError(t, err)
		requireSame(t, m, got)
	})
}

// requireSame compares what is stored: an empty text is as good as none.
func requireSame(t require.TestingT, want, got message) {
	for _, m := range []*message{&want, &got} {
		for _, b := range []*[]byte{&m.id, &m.context, &m.payload, &m.err} {
			*b = append([]byte{}, *b...)
		}
	}
	require.Equal(t, want, got)
}

func number(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "number") }

func micro(t *rapid.T) int64 { return rapid.Int64Range(-1, math.MaxInt64).Draw(t, "time") }

func text(t *rapid.T) []byte { return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text") }

func draw(t *rapid.T, flags []*bool) {
	for _, f := range flags {
		*f = rapid.Bool().Draw(t, "flag")
	}
}

// Places sort as the store lists them, and come apart again.
func TestPlacesSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (key string, p order.Position) {
			key = rapid.StringMatching("[a-b\x01~é]{1,3}").Draw(t, "key")
			return key, order.Position{Epoch: rapid.Uint64Max(300).Draw(t, "epoch"), Number: rapid.Uint64Range(1, order.MaxNumber).Draw(t, "number")}
		}
		k1, p1 := draw()
		k2, p2 := draw()
		b1, b2 := place(order.Cursor{Key: k1, Position: p1}), place(order.Cursor{Key: k2, Position: p2})
		want := k1 < k2 || k1 == k2 && p1.Compare(p2) < 0
		require.Equal(t, want, string(b1) < string(b2))
		key, epoch, n := splitPlace(b1)
		require.Equal(t, k1, key)
		require.Equal(t, p1, order.Position{Epoch: epoch, Number: n})
		due := rapid.Int64Range(1, math.MaxInt64).Draw(t, "due")
		prefix := append([]byte(k1), 0)
		gotDue, got, err := splitLate(prefix, lateKey(k1, due, b1))
		require.NoError(t, err)
		require.Equal(t, due, gotDue)
		require.Equal(t, b1, got)
	})
}

// What is cut off is refused, wherever the end of it cannot be told from that of a
// text; and so is another version.
func TestDecodeRefusesWhatIsCutOff(t *testing.T) {
	k := keyRow{token: 300, until: 5, live: []uint64{1 << 40}}
	e := epochRow{base: 1, cursor: 5, head: 1 << 40}
	m := message{known: true, late: true, waiting: true, due: 300, attempts: 300, err: []byte("error"), id: []byte("id"), context: []byte("c")}
	g := gapRow{to: 300, actor: []byte("me")}
	s := span{skipped, 1, 300}
	sums := totals{unresolved: 300}
	for name, tt := range map[string]struct {
		b      []byte
		decode func([]byte) error
	}{
		"key":     {k.append(nil), func(b []byte) error { _, err := decodeKey(b); return err }},
		"epoch":   {e.append(nil), func(b []byte) error { _, err := decodeEpoch(b); return err }},
		"message": {m.append(nil), func(b []byte) error { _, err := decodeMessage(b); return err }},
		"gap":     {g.append(nil), func(b []byte) error { _, err := decodeGap(b); return err }},
		"span":    {s.append(nil), func(b []byte) error { _, err := decodeSpan(1, b); return err }},
		"totals":  {sums.append(nil), func(b []byte) error { _, err := decodeTotals(b); return err }},
	} {
		require.NoError(t, tt.decode(tt.b), name)
		for n := range tt.b {
			require.ErrorIs(t, tt.decode(append([]byte{}, tt.b[:n]...)), boltrow.ErrRecord, "%s: %d of %d bytes", name, n, len(tt.b))
		}
		require.ErrorIs(t, tt.decode(append([]byte{layout + 1}, tt.b[1:]...)), boltrow.ErrRecord, name)
	}
}

// FuzzDecode feeds the decoders with anything: they never panic, and what they
// accept they have understood.
func FuzzDecode(f *testing.F) {
	m := message{known: true, late: true, waiting: true, due: 300, err: []byte("error"), id: []byte("id"), payload: []byte("body")}
	f.Add(m.append(nil))
	k := keyRow{token: 300, live: []uint64{1}}
	f.Add(k.append(nil))
	f.Add([]byte{})
	f.Add([]byte{layout, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeEpoch(b)
		decodeGap(b)
		decodeTotals(b)
		decodeSpan(1, b)
		if k, err := decodeKey(b); err == nil {
			again, err := decodeKey(k.append(nil))
			require.NoError(t, err)
			require.Equal(t, k, again)
		}
		if m, err := decodeMessage(b); err == nil {
			again, err := decodeMessage(m.append(nil))
			require.NoError(t, err)
			requireSame(t, m, again)
		}
	})
}

// The documentation promises small records.
func TestRecordSizes(t *testing.T) {
	const now = 1_800_000_000_000_000
	m := message{known: true, pushed: now}
	place := placeKey(epochKey("conversation", 1), 1000)
	require.LessOrEqual(t, len(m.append(nil))+len(place), 60)
	k := keyRow{token: now, live: []uint64{1}, arrivals: order.Arrivals{Pushed: 1e6, Accepted: 1e6}}
	e := epochRow{base: 1, cursor: 1e6, head: 1e6, delivered: 1e6}
	row := append(k.append(nil), e.append(nil)...)
	require.LessOrEqual(t, len(row)+len(epochKey("", 1)), 150)
}
