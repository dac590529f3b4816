package boltorder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
)

func TestNewIsRefused(t *testing.T) {
	_, err := boltorder.New(nil, nil)
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = boltorder.New(open(t).db, &boltorder.Options{Bucket: strings.Repeat("x", bbolt.MaxKeySize+1)})
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = open(t).Sweep(t.Context(), params(), 0)
	require.ErrorIs(t, err, order.ErrInvalid)
}

func TestNewWritesNothing(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket([]byte("pawl/order")))
		return nil
	}))
	totals, err := f.Totals(t.Context(), "default")
	require.NoError(t, err)
	require.Equal(t, order.Totals{}, totals)
	require.NoError(t, f.Migrate(t.Context()))
	before := lastTx(t, f)
	require.NoError(t, f.Migrate(t.Context()), "it may be repeated")
	require.Equal(t, before, lastTx(t, f))
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, "order 1", string(tx.Bucket([]byte("pawl/order")).Get([]byte("layout"))))
		return nil
	}))
}

func TestCheck(t *testing.T) {
	f := open(t) // with NoSync
	require.ErrorIs(t, f.Check(t.Context()), order.ErrAtRisk)
	f.db.NoSync = false
	require.ErrorIs(t, f.Check(t.Context()), order.ErrAtRisk, "NoGrowSync is still set")
	f.db.NoGrowSync = false
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.db.Close())
	require.ErrorIs(t, f.Check(t.Context()), bbolterrors.ErrDatabaseNotOpen)

	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	s, err := boltorder.New(db, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), bbolterrors.ErrDatabaseReadOnly)
	_, err = s.Push(t.Context(), params(), arrivals("k", 1, 1))
	require.Error(t, err)
}

// A bucket of another kind, or of a later version, is left alone.
func TestForeignBucketsAreLeftAlone(t *testing.T) {
	for name, layout := range map[string]string{"none": "", "another kind": "dedup 1", "a later version": "order 2"} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte("pawl/order"))
				require.NoError(t, err)
				return b.Put([]byte("layout"), []byte(layout))
			}))
			before := lastTx(t, f)
			ctx, p := t.Context(), params()
			_, push := f.Push(ctx, p, arrivals("k", 1, 1))
			_, claim := f.Claim(ctx, p, ask(1))
			_, settle := f.Settle(ctx, p, []order.Settlement{{Kind: order.KindRelease, Key: "k", Token: 1}})
			_, account := f.Account(ctx, p.Scope, "k")
			_, find := f.Find(ctx, p, []order.Place{{Key: "k"}})
			_, gaps := f.Gaps(ctx, p.Scope, order.Query{N: 1})
			_, parked := f.Parked(ctx, p.Scope, order.Query{N: 1})
			_, totals := f.Totals(ctx, p.Scope)
			_, sweep := f.Sweep(ctx, p, 1)
			for step, err := range map[string]error{
				"push": push, "claim": claim, "settle": settle, "account": account, "find": find, "gaps": gaps,
				"parked": parked, "totals": totals, "sweep": sweep, "check": f.Check(ctx), "migrate": f.Migrate(ctx),
			} {
				require.ErrorContains(t, err, "not made by this version", step)
			}
			require.Equal(t, before, lastTx(t, f))
		})
	}
}

// A value of a later layout, or one that is cut off, is an error that names no key
// and no ID, and nothing is lost.
func TestValuesThatCannotBeRead(t *testing.T) {
	for _, bucket := range []string{"keys", "epochs", "messages", "totals"} {
		t.Run(bucket, func(t *testing.T) {
			f := open(t)
			ctx, p := t.Context(), params()
			_, err := f.Push(ctx, p, arrivals("49123", 1, 3))
			require.NoError(t, err)
			for _, damage := range []func([]byte) []byte{
				func(v []byte) []byte { return append([]byte{2}, v[1:]...) },
				func(v []byte) []byte { return v[:min(len(v), 3)] },
				func([]byte) []byte { return nil },
			} {
				var good []byte
				change := func(to func([]byte) []byte) {
					require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
						scope := tx.Bucket([]byte("pawl/order")).Bucket([]byte("scope:default"))
						if bucket == "totals" {
							return scope.Put([]byte(bucket), to(append([]byte{}, scope.Get([]byte(bucket))...)))
						}
						b := scope.Bucket([]byte(bucket))
						k, v := b.Cursor().First()
						return b.Put(append([]byte{}, k...), to(append([]byte{}, v...)))
					}))
				}
				change(func(v []byte) []byte { good = v; return damage(v) })
				before := lastTx(t, f)
				_, push := f.Push(ctx, p, arrivals("49123", 1, 4))
				_, claim := f.Claim(ctx, p, ask(1))
				err := errors.Join(push, claim)
				require.ErrorContains(t, err, "cannot be read")
				require.NotContains(t, err.Error(), "49123")
				require.Equal(t, before, lastTx(t, f), "nothing is committed")
				change(func([]byte) []byte { return good })
			}
			require.NoError(t, f.db.View(f.Verify))
			c, err := f.Claim(ctx, p, ask(9))
			require.NoError(t, err)
			require.Len(t, c.Claims, 1)
			require.Len(t, c.Claims[0].Run, 3)
		})
	}
}

// What changes nothing is not committed: a duplicate costs no flush of the disk.
func TestDuplicatesAreNotCommitted(t *testing.T) {
	f := verified(t, open(t))
	ctx, p := t.Context(), params()
	_, err := f.Push(ctx, p, arrivals("k", 2, 3)) // it waits for the first
	require.NoError(t, err)
	before := lastTx(t, f)
	_, err = f.Claim(ctx, p, ask(1))
	require.NoError(t, err)
	_, err = f.Settle(ctx, p, []order.Settlement{{Kind: order.KindRelease, Key: "k", Token: 7}, {Kind: order.KindForget, Key: "nobody"}})
	require.NoError(t, err)
	_, err = f.Sweep(ctx, p, 1000)
	require.NoError(t, err)
	require.Equal(t, before, lastTx(t, f))
}

// Stores of one bucket are one, those of another know nothing of it, and nor do the
// scopes of one store.
func TestStoresShareAFile(t *testing.T) {
	f := verified(t, open(t))
	same, err := boltorder.New(f.db, &boltorder.Options{})
	require.NoError(t, err)
	other, err := boltorder.New(f.db, &boltorder.Options{Bucket: "another"})
	require.NoError(t, err)
	for _, tt := range []struct {
		buf  *order.Buffer
		want order.Arrived
	}{
		{newBuffer(t, f, nil), order.Buffered},
		{newBuffer(t, same, nil), order.Duplicate},
		{newBuffer(t, other, nil), order.Buffered},
		{newBuffer(t, f, &order.Options{Scope: "second"}), order.Buffered},
	} {
		got, err := tt.buf.Push(t.Context(), messages("k", 1, 1)...)
		require.NoError(t, err)
		require.Equal(t, tt.want, got[0].State)
	}
}

// The body of a message does not stay longer than it should in a key that has come
// to rest, though its digest does; and what nobody needs any more leaves nothing.
func TestSweepErasesBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		ctx, p := t.Context(), params()
		a := arrivals("k", 1, 4)
		a[1].ID = "id-2"
		_, err := f.Push(ctx, p, a)
		require.NoError(t, err)
		c, err := f.Claim(ctx, p, ask(9))
		require.NoError(t, err)
		_, err = f.Settle(ctx, p, []order.Settlement{
			{Kind: order.KindDeliver, Key: "k", Token: c.Claims[0].Token, To: 4}, {Kind: order.KindRelease, Key: "k", Token: c.Claims[0].Token}})
		require.NoError(t, err)
		body := func(n uint64) string {
			found, err := f.Find(ctx, p, []order.Place{{Key: "k", Position: order.Position{Number: n}}})
			require.NoError(t, err)
			require.NotNil(t, found[0].Message)
			return string(found[0].Message.Payload)
		}
		_, err = f.Sweep(ctx, p, 100)
		require.NoError(t, err)
		require.Empty(t, body(1), "it has no ID")
		require.Equal(t, "body 2", body(2))
		require.Equal(t, "body 4", body(4), "it is not delivered")
		time.Sleep(p.KeepBody)
		n, err := f.Sweep(ctx, p, 100)
		require.NoError(t, err)
		require.Zero(t, n, "all are remembered by their digests")
		require.Empty(t, body(2))
		answers, err := f.Push(ctx, p, a)
		require.NoError(t, err)
		for _, got := range answers {
			require.Equal(t, order.Duplicate, got.State)
			require.False(t, got.Unverified)
		}
		require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
			require.Equal(t, 1, entries(tx, "ids"))
			return nil
		}))
	})
}

// A key that goes on leaves nothing behind but its ranges, whatever became of its
// numbers.
func TestSweepLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		b := newBuffer(t, f, &order.Options{Window: 2, KeepBody: time.Hour, KeepGaps: time.Hour, GapTimeout: time.Minute,
			OnLate: func(context.Context, order.Message) error { return nil }})
		stop := start(t, b)
		for n := uint64(1); n <= 400; n++ {
			if n%10 == 0 {
				continue // skipped
			}
			m := messages("k", n, n)[0]
			if n%3 == 0 {
				m.ID = m.Key + string(m.Payload)
			}
			pushAll(t, b, m)
			if n%50 == 49 {
				time.Sleep(2 * time.Minute)
				late, err := b.Push(t.Context(), messages("k", n-9, n-9)...)
				require.NoError(t, err)
				require.Equal(t, order.Late, late[0].State)
			}
		}
		time.Sleep(time.Hour)
		stop()
		gaps, err := b.Gaps(t.Context(), order.Query{N: 1000})
		require.NoError(t, err)
		for _, g := range gaps {
			if !g.Open {
				require.NoError(t, b.ResolveGap(t.Context(), g, order.ResolutionLost, "me", ""))
			}
		}
		time.Sleep(2 * time.Hour)
		for range 20 {
			_, err := b.Sweep(t.Context(), 100)
			require.NoError(t, err)
			require.NoError(t, f.db.View(f.Verify))
		}
		require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
			for name, most := range map[string]int{"messages": 2, "ids": 2, "ends": 2, "gaps": 0, "late": 0, "parked": 0, "claimed": 0} {
				require.LessOrEqual(t, entries(tx, name), most, name)
			}
			return nil
		}))
	})
}
