package lww

import (
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write testdata where a file is missing; those that are there are never changed")

// fixed is a register without chance in it.
func fixed(lamport uint64, region uint8, value string, seen ...Stamp) Register {
	b := body{value: []byte(value)}
	for i := range b.salt {
		b.salt[i] = byte(0xa0 + i)
	}
	b.hash = hashBody(b.salt, b.value)
	return b.written(Stamp{lamport, region}, NewVector(seen...))
}

func fixedTombstone(lamport uint64, region uint8, seen ...Stamp) Register {
	s, v := Stamp{lamport, region}, NewVector(seen...)
	return Register{stamp: s, state: Deleted, seen: v, digest: digest(hashBody([16]byte{7}, nil), s, Deleted, v)}
}

// samples are what the golden files hold.
func samples() map[string]any {
	present := fixed(0x0102030405060708, 3, "a value", Stamp{5, 1}, Stamp{300, 200})
	gone := fixedTombstone(math.MaxUint64, 255, Stamp{math.MaxUint64 - 1, 0})
	empty := fixed(1, 0, "")
	entries := []Entry{{"k", empty}, {"käse", fixed(9, 2, "here", Stamp{8, 2}).Stub()}, {"session/17", present}, {"gone", gone}}
	return map[string]any{
		"register-present":   present,
		"register-empty":     empty,
		"register-tombstone": gone,
		"register-remote":    present.Stub(),
		"vector":             NewVector(Stamp{1, 0}, Stamp{300, 7}, Stamp{math.MaxUint64, 255}),
		"vector-empty":       Vector{},
		"delta": Delta{From: 1, To: 2, Since: NewVector(Stamp{4, 1}), Upto: NewVector(Stamp{9, 1}, Stamp{8, 2}), After: Stamp{3, 1},
			Last: gone.stamp, More: true, Sum: [32]byte{1, 2, 3}, Entries: entries},
		"delta-empty": Delta{From: 0, To: 255},
	}
}

// fixedMap holds what the golden snapshot holds.
func fixedMap(t *testing.T) *Map {
	m, err := New(2, &Options{Regions: []uint8{1, 3}})
	require.NoError(t, err)
	entries := []Entry{{"a", fixed(1, 1, "one")}, {"b", fixedTombstone(2, 2, Stamp{1, 1})}, {"c", fixed(3, 3, "home").Stub()}, {"far", fixed(1<<50, 3, "far")}}
	changes, err := m.Merge(entries...)
	require.NoError(t, err)
	require.Equal(t, SetAside, changes[3].Outcome)
	m.see(NewVector(Stamp{1, 1}, Stamp{2, 2}))
	return m
}

func golden(t *testing.T, name string, got []byte) []byte {
	file := filepath.Join("testdata", "v1", name+".hex")
	if _, err := os.Stat(file); *update && os.IsNotExist(err) {
		var s strings.Builder
		for line := range hexLines(got) {
			s.WriteString(line + "\n")
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(s.String()), 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	require.NoError(t, err)
	return want
}

func hexLines(b []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for len(b) > 0 {
			n := min(32, len(b))
			if !yield(hex.EncodeToString(b[:n])) {
				return
			}
			b = b[n:]
		}
	}
}

// What this version writes is what the first version wrote, and what the first
// version wrote is read as what it was.
func TestTheEncodingIsStable(t *testing.T) {
	for name, want := range samples() {
		t.Run(name, func(t *testing.T) {
			encoded, err := want.(encoding.BinaryMarshaler).MarshalBinary()
			require.NoError(t, err)
			stored := golden(t, name, encoded)
			require.Equal(t, stored, encoded)
			got, err := read(want, stored)
			require.NoError(t, err)
			require.Equal(t, want, got)

			prefix := []byte("prefix")
			appended, err := want.(encoding.BinaryAppender).AppendBinary(prefix)
			require.NoError(t, err)
			require.Equal(t, "prefix"+string(encoded), string(appended))
		})
	}
}

// read decodes as the type of an example.
func read(example any, b []byte) (any, error) {
	switch example.(type) {
	case Register:
		var r Register
		err := r.UnmarshalBinary(b)
		return r, err
	case Vector:
		var v Vector
		err := v.UnmarshalBinary(b)
		return v, err
	case Delta:
		var d Delta
		err := d.UnmarshalBinary(b)
		return d, err
	}
	panic("no such type")
}

func TestTheSnapshotIsStable(t *testing.T) {
	m := fixedMap(t)
	stored := golden(t, "snapshot", m.Snapshot())
	require.Equal(t, stored, m.Snapshot())
	loaded, err := Load(stored, 2, &Options{Regions: []uint8{1, 3}})
	require.NoError(t, err)
	require.Equal(t, m.entries, loaded.entries)
	require.Equal(t, m.aside, loaded.aside)
	require.Equal(t, m.have, loaded.have)
	require.Equal(t, m.clock, loaded.clock)
	require.Equal(t, m.sum, loaded.sum)
	require.Equal(t, m.bytes, loaded.bytes)
	require.Equal(t, m.ahead, loaded.ahead)
	require.Equal(t, m.dead, loaded.dead)
}

// The digest is part of the encoding: another one would make two writes of one.
func TestTheDigestIsStable(t *testing.T) {
	r := fixed(17, 3, "a value", Stamp{5, 1})
	require.Equal(t, "1923abd567115f1c72b4c809bd205b4f447d17a6cc668253f210ed55c84da54e", hex.EncodeToString(r.digest[:]))
}

func TestWhatIsDamagedIsRefused(t *testing.T) {
	for name, sample := range samples() {
		encoded, err := sample.(encoding.BinaryMarshaler).MarshalBinary()
		require.NoError(t, err)
		refused := func(b []byte, msg ...any) {
			got, err := read(sample, b)
			require.ErrorIs(t, err, ErrEncoding, msg...)
			require.Equal(t, fmt.Sprintf("%T", sample), fmt.Sprintf("%T", got))
			zero, _ := read(sample, nil)
			require.Equal(t, zero, got, "nothing was read")
		}
		for n := range encoded {
			refused(encoded[:n], name, "%d of %d bytes", n, len(encoded))
			for bit := range 8 {
				flipped := append([]byte{}, encoded...)
				flipped[n] ^= 1 << bit
				refused(flipped, "%s with bit %d of byte %d flipped", name, bit, n)
			}
		}
		refused(append(encoded[:len(encoded):len(encoded)], 0))
		later := append([]byte{}, encoded...)
		later[0] = 2
		refused(sealed(later))
		_, err = read(sample, sealed(later))
		require.ErrorContains(t, err, "version 2")
	}
	var r Register
	v, err := NewVector(Stamp{1, 1}).MarshalBinary()
	require.NoError(t, err)
	require.ErrorIs(t, r.UnmarshalBinary(v), ErrEncoding, "another kind")
	for _, at := range [][]byte{{2, 3, 1, 2, 1}, {2, 3, 1, 3, 2}, {1, 3, 0}} { // out of order, twice, nothing
		var v Vector
		require.ErrorIs(t, v.UnmarshalBinary(sealed(append(append([]byte{version, kindVector}, at...), 0, 0, 0, 0))), ErrEncoding)
	}
	_, err = Load(v, 1, nil)
	require.ErrorIs(t, err, ErrEncoding)
	_, err = Register{}.MarshalBinary()
	require.ErrorIs(t, err, ErrInvalid)
	_, err = Delta{Entries: []Entry{{Key: "key"}}}.MarshalBinary()
	require.ErrorIs(t, err, ErrInvalid)
}

// sealed gives bytes the checksum that they should have.
func sealed(b []byte) []byte {
	end := len(b) - 4
	return binary.BigEndian.AppendUint32(b[:end:end], crc32.Checksum(b[:end], castagnoli))
}

// Bytes with a right checksum that are anything else: nothing panics or takes
// memory beyond them, and what is accepted was understood.
func TestHostileBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	snapshot := fixedMap(t).Snapshot()
	for name, sample := range samples() {
		whole, err := sample.(encoding.BinaryMarshaler).MarshalBinary()
		require.NoError(t, err)
		for range 5000 {
			b := sealed(mangled(random, whole))
			got, err := read(sample, b)
			if err != nil {
				require.ErrorIs(t, err, ErrEncoding, name)
				continue
			}
			accepted++
			again, err := got.(encoding.BinaryMarshaler).MarshalBinary()
			require.NoError(t, err)
			same, err := read(sample, again)
			require.NoError(t, err)
			require.Equal(t, got, same)
		}
	}
	require.Positive(t, accepted, "some changes only change numbers")
	for range 5000 {
		m, err := Load(sealed(mangled(random, snapshot)), 2, nil)
		if err == nil {
			_, err = Load(m.Snapshot(), 2, nil)
		}
		if err != nil {
			require.ErrorIs(t, err, ErrEncoding)
		}
	}
}

// mangled changes, cuts out or doubles a few bytes between frame and checksum.
func mangled(random *rand.Rand, whole []byte) []byte {
	b := append([]byte{}, whole...)
	for range 1 + random.IntN(3) {
		if len(b) <= 6 {
			break
		}
		at := 2 + random.IntN(len(b)-6)
		switch random.IntN(4) {
		case 0:
			b[at] = byte(random.Uint32())
		case 1:
			b[at] = []byte{0, 1, 0x7f, 0x80, 0xff}[random.IntN(5)]
		case 2:
			b = append(b[:at], b[at+1:]...)
		case 3:
			b = append(b[:at+1], b[at:]...)
		}
	}
	return b
}

// A length that promises more than there is does not reserve it.
func TestPromisedLengths(t *testing.T) {
	for _, b := range [][]byte{
		binary.AppendUvarint([]byte{version, kindVector}, math.MaxUint64),
		binary.AppendUvarint(append([]byte{version, kindDelta, 1, 2, 0, 0}, make([]byte, 9+9+1+32)...), 1<<40),
	} {
		b = sealed(append(b, 0, 0, 0, 0))
		var v Vector
		var d Delta
		allocated := testing.AllocsPerRun(10, func() {
			if v.UnmarshalBinary(b) == nil || d.UnmarshalBinary(b) == nil {
				t.Error("accepted")
			}
		})
		require.Less(t, allocated, 20.0)
	}
}

// A value cannot be put under another stamp, nor changed, without its digest.
func TestValuesBelongToTheirDigests(t *testing.T) {
	r := fixed(5, 1, "value")
	for name, change := range map[string]func(*Register){
		"value":  func(r *Register) { r.value = []byte("other") },
		"stamp":  func(r *Register) { r.stamp.Lamport++ },
		"region": func(r *Register) { r.stamp.Region++ },
		"seen":   func(r *Register) { r.seen = NewVector(Stamp{1, 2}) },
		"salt":   func(r *Register) { r.salt[0]++ },
		"digest": func(r *Register) { r.digest[0]++ },
	} {
		changed := r
		change(&changed)
		b, err := changed.MarshalBinary()
		require.NoError(t, err)
		require.ErrorIs(t, changed.UnmarshalBinary(b), ErrEncoding, name)
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamp := rapid.Custom(func(t *rapid.T) Stamp {
			return Stamp{rapid.Uint64Min(1).Draw(t, "lamport"), rapid.Byte().Draw(t, "region")}
		})
		entry := rapid.Custom(func(t *rapid.T) Entry {
			s, seen := stamp.Draw(t, "stamp"), NewVector(rapid.SliceOfN(stamp, 0, 4).Draw(t, "seen")...)
			r := erased(s, seen)
			if rapid.Bool().Draw(t, "value") {
				r = newBody(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")).written(s, seen)
			}
			if rapid.Bool().Draw(t, "stub") {
				r = r.Stub()
			}
			return Entry{rapid.StringMatching(`[a-zä-ö☃]{1,20}`).Draw(t, "key"), r}
		})
		want := Delta{From: rapid.Byte().Draw(t, "from"), To: rapid.Byte().Draw(t, "to"), More: rapid.Bool().Draw(t, "more"),
			Since: NewVector(rapid.SliceOfN(stamp, 0, 5).Draw(t, "since")...), Upto: NewVector(rapid.SliceOfN(stamp, 0, 5).Draw(t, "upto")...),
			After: stamp.Draw(t, "after"), Last: stamp.Draw(t, "last"), Entries: rapid.SliceOfN(entry, 1, 6).Draw(t, "entries")}
		b, err := want.MarshalBinary()
		require.NoError(t, err)
		var got Delta
		require.NoError(t, got.UnmarshalBinary(b))
		clear(b)
		require.Equal(t, want, got, "it keeps nothing of the bytes")
	})
}

// What is stored for a key stays small.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		value any
		want  int
	}{
		{fixed(1, 1, ""), 6 + 1 + 9 + 32 + 1 + 16 + 1},
		{fixed(1, 1, "").Stub(), 6 + 1 + 9 + 32 + 1},
		{fixedTombstone(1, 1, Stamp{1, 2}), 6 + 1 + 9 + 32 + 3},
	} {
		b, err := c.value.(encoding.BinaryMarshaler).MarshalBinary()
		require.NoError(t, err)
		require.Len(t, b, c.want)
	}
}

func TestLoadRefuses(t *testing.T) {
	m := fixedMap(t)
	snapshot := m.Snapshot()
	for _, o := range []Options{{MaxKeys: 2}, {MaxBytes: 10}} {
		_, err := Load(snapshot, 2, &o)
		require.ErrorIs(t, err, ErrFull)
	}
	_, err := Load(snapshot, 2, &Options{MaxValue: 2})
	require.ErrorIs(t, err, ErrInvalid)
	twice := message(nil, kindSnapshot, func(b []byte) []byte {
		b = appendVector(binary.BigEndian.AppendUint64(b, 1), Vector{})
		b = appendEntries(b, []Entry{{"key", fixed(1, 1, "a")}, {"key", fixed(2, 1, "b")}})
		return appendEntries(b, nil)
	})
	_, err = Load(twice, 1, nil)
	require.ErrorIs(t, err, ErrEncoding)

	// A clock that is below what there is would stamp twice.
	low := message(nil, kindSnapshot, func(b []byte) []byte {
		b = appendVector(binary.BigEndian.AppendUint64(b, 1), Vector{})
		return appendEntries(appendEntries(b, []Entry{{"key", fixed(5, 1, "a")}}), nil)
	})
	m, err = Load(low, 1, nil)
	require.NoError(t, err)
	c, err := m.Set("other", nil)
	require.NoError(t, err)
	require.EqualValues(t, 6, c.Now.stamp.Lamport)
}
