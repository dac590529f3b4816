package boltdedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/dedup"
)

// What can become of a record, whatever the clock does: it survives its
// encoding, tokens rise with every owner, and what has never expired stays.
func TestRecordHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r record
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(-int64(time.Hour/1000), int64(time.Hour/1000)).Draw(t, "passed")
			p := dedup.Params{
				Lease:     drawDuration(t, "lease"),
				Retention: drawDuration(t, "retention"),
				OnLapse:   dedup.Lapse(rapid.IntRange(0, 1).Draw(t, "policy")),
				Complete:  rapid.Bool().Draw(t, "complete"),
			}
			before, changed := r, false
			if rapid.Bool().Draw(t, "ask") {
				var c dedup.Claim
				c, changed = r.ask(now, p, drawAsk(t))
				if changed {
					require.Equal(t, dedup.Acquired, c.State)
					require.Greater(t, c.Token, before.token, "a token rises with every owner")
				}
				require.GreaterOrEqual(t, c.Left, time.Duration(0))
				require.GreaterOrEqual(t, c.Age, time.Duration(0))
			} else {
				s := dedup.Settlement{
					Kind:   dedup.Kind(rapid.IntRange(1, 4).Draw(t, "kind")),
					Token:  r.token + rapid.Uint64Range(0, 1).Draw(t, "other token"),
					Result: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "result"),
					Lease:  drawDuration(t, "extension"),
				}
				var err error
				changed, err = r.settle(now, p, &s)
				require.False(t, changed && err != nil, "a refused settlement changes nothing")
				require.Equal(t, before.token, r.token)
			}
			if !changed {
				require.Equal(t, before, r)
			}
			if before.forever() && changed {
				require.NotEqual(t, absent, r.state)
			}
			if r.state == absent {
				continue
			}
			require.Equal(t, !r.forever(), r.expires != 0)
			got, err := decode(r.append(nil))
			require.NoError(t, err)
			requireSame(t, r, got)
		}
	})
}

func drawDuration(t *rapid.T, label string) time.Duration {
	return time.Duration(rapid.Int64Range(1000, int64(dedup.MaxDuration)).Draw(t, label))
}

func drawAsk(t *rapid.T) *dedup.Ask {
	a := &dedup.Ask{Request: dedup.Request{ID: "id"}}
	a.Nonce[0] = rapid.ByteRange(1, 3).Draw(t, "nonce")
	a.Fingerprint[0] = rapid.ByteRange(0, 2).Draw(t, "fingerprint")
	return a
}

// requireSame compares what is stored: an empty result is as good as none.
func requireSame(t require.TestingT, want, got record) {
	require.Equal(t, string(want.result), string(got.result))
	want.result, got.result = nil, nil
	require.Equal(t, want, got)
}

// FuzzDecode feeds decode with anything: it never panics, and what it accepts it
// has understood.
func FuzzDecode(f *testing.F) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	p := dedup.Params{Lease: 30 * time.Second, Retention: 8 * 24 * time.Hour}
	var r record
	c, _ := r.ask(now, p, &dedup.Ask{Nonce: [16]byte{1}, Request: dedup.Request{ID: "id", Fingerprint: [32]byte{2}}})
	f.Add(r.append(nil))
	s := c.Complete([]byte("result"))
	if _, err := r.settle(now+5, p, &s); err != nil {
		f.Fatal(err)
	}
	f.Add(r.append(nil))
	f.Add([]byte{})
	f.Add([]byte{recordLayout})
	f.Add([]byte{recordLayout, byte(held), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			require.Equal(t, record{}, r)
			return
		}
		again, err := decode(r.append(nil))
		require.NoError(t, err)
		requireSame(t, r, again)
	})
}

func TestDecodeRefusesWhatIsCutOffOrTooLong(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	p := dedup.Params{Lease: 30 * time.Second, Retention: 8 * 24 * time.Hour}
	var r record
	r.ask(now, p, &dedup.Ask{Nonce: [16]byte{1}, Request: dedup.Request{ID: "id", Fingerprint: [32]byte{2}}})
	whole := r.append(nil)
	for n := range whole {
		_, err := decode(whole[:n])
		require.ErrorIs(t, err, errRecord, "%d of %d bytes", n, len(whole))
	}
	_, err := decode(append(whole, 0))
	require.ErrorIs(t, err, errRecord)
}

// The documentation promises small records.
func TestRecordSizes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	p := dedup.Params{Lease: 30 * time.Second, Retention: 8 * 24 * time.Hour}
	var r record
	c, _ := r.ask(now, p, &dedup.Ask{Nonce: [16]byte{1}, Request: dedup.Request{ID: "id"}})
	require.Len(t, r.append(nil), 38)
	s := c.Complete(nil)
	_, err := r.settle(now+20_000, p, &s)
	require.NoError(t, err)
	require.LessOrEqual(t, len(r.append(nil)), 22)
}

// The wall clock may be set back while an owner is at work: its token stays
// good, nobody else gets in, and the next owner's token is higher all the same.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	p := dedup.Params{Lease: time.Minute, Retention: time.Hour}
	var r record
	first, _ := r.ask(now, p, &dedup.Ask{Nonce: [16]byte{1}})
	now -= time.Hour.Microseconds()
	second, changed := r.ask(now, p, &dedup.Ask{Nonce: [16]byte{2}})
	require.False(t, changed)
	require.Equal(t, dedup.InFlight, second.State)
	require.Zero(t, second.Age)
	s := first.Release()
	_, err := r.settle(now, p, &s)
	require.NoError(t, err)
	second, changed = r.ask(now, p, &dedup.Ask{Nonce: [16]byte{2}})
	require.True(t, changed)
	require.Equal(t, first.Token+1, second.Token)
}
