package boltinbox_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
)

func TestNewIsRefused(t *testing.T) {
	_, err := boltinbox.New(nil, nil)
	require.Error(t, err)
	_, err = boltinbox.New(open(t).db, &boltinbox.Options{Bucket: strings.Repeat("x", bbolt.MaxKeySize+1)})
	require.Error(t, err)
}

func TestNewWritesNothing(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket([]byte("pawl/inbox")))
		return nil
	}))
	totals, err := f.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{}, totals)
	require.NoError(t, f.Migrate(t.Context()))
	before := lastTx(t, f)
	require.NoError(t, f.Migrate(t.Context()), "it may be repeated")
	require.Equal(t, before, lastTx(t, f))
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, "inbox 2", string(tx.Bucket([]byte("pawl/inbox")).Get([]byte("layout"))))
		return nil
	}))
}

func TestCheck(t *testing.T) {
	f := open(t) // with NoSync
	require.ErrorIs(t, f.Check(t.Context()), inbox.ErrAtRisk)
	f.db.NoSync = false
	require.ErrorIs(t, f.Check(t.Context()), inbox.ErrAtRisk, "NoGrowSync is still set")
	f.db.NoGrowSync = false
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.db.Close())
	require.ErrorIs(t, f.Check(t.Context()), bbolterrors.ErrDatabaseNotOpen)

	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	s, err := boltinbox.New(db, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), bbolterrors.ErrDatabaseReadOnly)
	_, err = s.Accept(t.Context(), inbox.Params{}, nil)
	require.Error(t, err)
}

// A bucket of another kind, or of another version, is left alone.
func TestForeignBucketsAreLeftAlone(t *testing.T) {
	for name, layout := range map[string]string{"none": "", "another kind": "dedup 1", "an earlier version": "inbox 1", "a later version": "inbox 3"} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte("pawl/inbox"))
				require.NoError(t, err)
				return b.Put([]byte("layout"), []byte(layout))
			}))
			ctx := t.Context()
			before := lastTx(t, f)
			_, accept := f.Accept(ctx, inbox.Params{}, []inbox.Arrival{{Event: event("k", "a"), Streams: []string{"s"}}})
			_, claim := f.Claim(ctx, inbox.Ask{Stream: "s", Keys: 1, Events: 1, Lease: time.Minute})
			_, settle := f.Settle(ctx, inbox.Params{}, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: "s", Key: "k", Token: 1}})
			_, list := f.List(ctx, inbox.Query{State: inbox.StateDone, N: 1})
			_, totals := f.Totals(ctx)
			_, sweep := f.Sweep(ctx, 1)
			for step, err := range map[string]error{
				"accept": accept, "claim": claim, "settle": settle, "list": list, "totals": totals, "sweep": sweep,
				"check": f.Check(ctx), "migrate": f.Migrate(ctx),
			} {
				require.ErrorContains(t, err, "not made by this version", step)
			}
			require.Equal(t, before, lastTx(t, f))
		})
	}
}

// A value of a later layout is an error that names no ID, and nothing is lost.
func TestValuesThatCannotBeRead(t *testing.T) {
	for _, bucket := range []string{"ids", "events", "pending", "keys"} {
		t.Run(bucket, func(t *testing.T) {
			f := open(t)
			b, err := inbox.New(f, &inbox.Options{StoreTimeout: 50 * time.Millisecond})
			require.NoError(t, err)
			_, err = b.Accept(t.Context(), event("k", "49123"))
			require.NoError(t, err)
			for _, damage := range []func([]byte) []byte{
				func(v []byte) []byte { return append([]byte{3}, v[1:]...) },
				func(v []byte) []byte { return v[:min(len(v), 3)] },
				func([]byte) []byte { return nil },
			} {
				var good []byte
				change := func(to func([]byte) []byte) {
					require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
						top := tx.Bucket([]byte("pawl/inbox")).Bucket([]byte(bucket))
						k, v := top.Cursor().First()
						return top.Put(append([]byte{}, k...), to(append([]byte{}, v...)))
					}))
				}
				change(func(v []byte) []byte { good = v; return damage(v) })
				_, accept := b.Accept(t.Context(), event("k", "49123"), event("k", "new"))
				_, claim := f.Claim(t.Context(), inbox.Ask{Stream: inbox.DefaultStream, Keys: 1, Events: 1, Lease: time.Minute})
				err := errors.Join(accept, claim)
				require.ErrorContains(t, err, "cannot be read")
				require.NotContains(t, err.Error(), "49123")
				if bucket == "ids" {
					_, err := b.Get(t.Context(), "p/49123")
					require.ErrorContains(t, err, "cannot be read", "an event that cannot be read is not one that is not known")
				}
				change(func([]byte) []byte { return good })
			}
			require.NoError(t, f.db.View(f.Verify))
			_, err = b.Accept(t.Context(), event("k", "new"))
			require.NoError(t, err)
			c, err := f.Claim(t.Context(), inbox.Ask{Stream: inbox.DefaultStream, Keys: 1, Events: 9, Bytes: 1e6, Lease: time.Minute})
			require.NoError(t, err)
			require.Equal(t, []string{"p/49123", "p/new"}, []string{c.Claims[0].Records[0].ID, c.Claims[0].Records[1].ID})
		})
	}
}

// The file survives being closed, also in the middle of a sweep.
func TestSweepGoesOnAfterARestart(t *testing.T) {
	f := openPath(t, filepath.Join(t.TempDir(), "inbox.db"))
	const n = 1200
	var arrivals []inbox.Arrival
	for i := range n {
		arrivals = append(arrivals, inbox.Arrival{Event: event(idOf(i), idOf(i)), Raw: true, Digest: [32]byte{byte(i)}})
	}
	_, err := f.Accept(t.Context(), inbox.Params{Retention: 1, Keep: 1}, arrivals)
	require.NoError(t, err)
	time.Sleep(time.Millisecond) // Keep is a nanosecond
	removed := 0
	for round := range 3 {
		got, err := f.Sweep(t.Context(), 400)
		require.NoError(t, err)
		require.Equal(t, 400, got, "round %d", round)
		removed += got
		require.NoError(t, f.db.View(f.Verify))
		require.NoError(t, f.db.Close())
		f.open(t)
	}
	require.Equal(t, n, removed)
	totals, err := f.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{}, totals)
}
