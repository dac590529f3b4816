package boltdlq_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
)

func TestNewIsRefused(t *testing.T) {
	_, err := boltdlq.New(nil, nil)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = boltdlq.New(open(t).db, &boltdlq.Options{Bucket: strings.Repeat("x", bbolt.MaxKeySize+1)})
	require.ErrorIs(t, err, dlq.ErrInvalid)
}

func TestNewWritesNothing(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket(bucketName))
		return nil
	}))
	totals, err := f.Totals(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, totals)
	require.NoError(t, f.Migrate(t.Context()))
	before := lastTx(t, f)
	require.NoError(t, f.Migrate(t.Context()), "it may be repeated")
	require.Equal(t, before, lastTx(t, f))
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, "dlq 1", string(tx.Bucket(bucketName).Get([]byte("layout"))))
		return nil
	}))
}

func TestCheck(t *testing.T) {
	f := open(t) // with NoSync
	require.ErrorIs(t, f.Check(t.Context()), dlq.ErrAtRisk)
	f.db.NoSync = false
	require.ErrorIs(t, f.Check(t.Context()), dlq.ErrAtRisk, "NoGrowSync is still set")
	f.db.NoGrowSync = false
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.db.Close())
	require.ErrorIs(t, f.Check(t.Context()), bbolterrors.ErrDatabaseNotOpen)

	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	s, err := boltdlq.New(db, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), bbolterrors.ErrDatabaseReadOnly)
	_, err = s.Put(t.Context(), params, []dlq.Put{letter("k", "a")})
	require.ErrorIs(t, err, bbolterrors.ErrDatabaseReadOnly)
}

// A bucket of another kind, or of another version, is left alone.
func TestForeignBucketsAreLeftAlone(t *testing.T) {
	for name, layout := range map[string]string{"none": "", "another kind": "inbox 1", "a later version": "dlq 2"} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket(bucketName)
				require.NoError(t, err)
				return b.Put([]byte("layout"), []byte(layout))
			}))
			ctx := t.Context()
			before := lastTx(t, f)
			_, put := f.Put(ctx, params, []dlq.Put{letter("k", "a")})
			_, claim := f.Claim(ctx, ask(1))
			_, settle := f.Settle(ctx, params, []dlq.Settlement{{Kind: dlq.KindRelease, Stream: "s", Lane: "kk", Token: 1}})
			_, change := f.Change(ctx, params, []dlq.Change{{Kind: dlq.ChangeNote, Stream: "s"}})
			_, job := f.SaveJob(ctx, params, dlq.Job{Stream: "s", ID: "j"})
			_, alert := f.Alert(ctx, []dlq.Alarm{{Stream: "s", Fingerprint: "aa", Window: time.Minute}})
			_, list := f.List(ctx, dlq.Query{Stream: "s", N: 1})
			_, groups := f.Groups(ctx, "s", "", 1)
			_, _, audit := f.Audit(ctx, dlq.AuditQuery{Stream: "s", N: 1})
			_, jobs := f.Jobs(ctx, "s", "", 1)
			_, totals := f.Totals(ctx, "", 1)
			_, sweep := f.Sweep(ctx, 1)
			for step, err := range map[string]error{
				"put": put, "claim": claim, "settle": settle, "change": change, "save a job": job, "alert": alert, "list": list,
				"groups": groups, "audit": audit, "jobs": jobs, "totals": totals, "sweep": sweep,
				"check": f.Check(ctx), "migrate": f.Migrate(ctx),
			} {
				require.ErrorContains(t, err, "not made by this version", step)
				require.ErrorContains(t, err, "boltdlq: "+step)
			}
			require.Equal(t, before, lastTx(t, f))
		})
	}
}

// A value of a later layout, or one that was cut off, is an error that names no ID.
func TestValuesThatCannotBeRead(t *testing.T) {
	for _, bucket := range []string{
		"letters", "bodies", "originals", "logs", "lanes", "groups", "totals", "entries", "jobs", "alarms",
	} {
		t.Run(bucket, func(t *testing.T) {
			f := open(t)
			ctx := t.Context()
			_, err := f.SaveJob(ctx, params, dlq.Job{Stream: "s", ID: "j", Nonce: nonce()})
			require.NoError(t, err)
			_, err = f.Alert(ctx, []dlq.Alarm{{Nonce: nonce(), Stream: "s", Fingerprint: "aa", Window: time.Hour}})
			require.NoError(t, err)
			put(t, f, letter("k", "49123"))
			edit(t, f, "49123")
			everything := func() error {
				_, again := f.Put(ctx, params, []dlq.Put{letter("k", "49123"), letter("k", "new")})
				_, job := f.SaveJob(ctx, params, dlq.Job{Stream: "s", ID: "j", Nonce: nonce(), Version: 1})
				_, alert := f.Alert(ctx, []dlq.Alarm{{Nonce: nonce(), Stream: "s", Fingerprint: "aa", Window: time.Hour}})
				_, claim := f.Claim(ctx, ask(10))
				_, list := f.List(ctx, dlq.Query{Stream: "s", N: 10})
				_, groups := f.Groups(ctx, "s", "", 10)
				_, _, audit := f.Audit(ctx, dlq.AuditQuery{Stream: "s", N: 10})
				_, jobs := f.Jobs(ctx, "s", "", 10)
				_, totals := f.Totals(ctx, "", 10)
				return errors.Join(again, job, alert, claim, list, groups, audit, jobs, totals)
			}
			whole := contents(t, f)
			for name, damage := range map[string]func([]byte) []byte{
				"of a later version": func(v []byte) []byte { return append([]byte{2}, v[1:]...) },
				"cut off":            func(v []byte) []byte { return v[:min(len(v)-1, 3)] },
				"empty":              func([]byte) []byte { return nil },
			} {
				var good []byte
				replace := func(to func([]byte) []byte) {
					require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
						b := tx.Bucket(bucketName).Bucket([]byte(bucket))
						k, v := b.Cursor().First()
						return b.Put(append([]byte{}, k...), to(append([]byte{}, v...)))
					}))
				}
				replace(func(v []byte) []byte { good = v; return damage(v) })
				if bucket == "bodies" || bucket == "originals" { // any bytes are a body
					if name == "cut off" {
						replace(func([]byte) []byte { return good })
						continue
					}
				}
				err := everything()
				require.ErrorContains(t, err, "cannot be read", name)
				require.NotContains(t, err.Error(), "49123")
				replace(func([]byte) []byte { return good })
				restore(t, f, whole)
			}
			require.NoError(t, f.db.View(f.Verify))
			require.NoError(t, everything())
			require.NoError(t, f.db.View(f.Verify))
		})
	}
}

// The file survives being closed, also in the middle of a sweep.
func TestSweepGoesOnAfterARestart(t *testing.T) { synctest.Test(t, sweepGoesOn) }

func sweepGoesOn(t *testing.T) {
	f := openPath(t, filepath.Join(t.TempDir(), "dlq.db"))
	const n = 1200
	var letters []dlq.Put
	for i := range n {
		letters = append(letters, letter("", idOf(i)))
	}
	put(t, f, letters...)
	for {
		c, err := f.Claim(t.Context(), ask(n))
		require.NoError(t, err)
		if len(c.Claims) == 0 {
			break
		}
		_, err = f.Settle(t.Context(), params, resolveAll(c.Claims))
		require.NoError(t, err)
	}
	time.Sleep(params.Retention)
	removed := 0
	for round := 0; removed < n; round++ {
		got, err := f.Sweep(t.Context(), 400)
		require.NoError(t, err)
		require.Less(t, round, 2*n/400+1, "lanes expire too")
		removed += got
		require.LessOrEqual(t, got, 400)
		require.NoError(t, f.db.View(f.Verify))
		require.NoError(t, f.db.Close())
		f.open(t)
	}
	_, err := f.Sweep(t.Context(), 2*n) // the lanes
	require.NoError(t, err)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketName).ForEachBucket(func(name []byte) error {
			require.Zero(t, tx.Bucket(bucketName).Bucket(name).Stats().KeyN, "rows in %s", name)
			return nil
		})
	}))
}

func TestSweepOfLessThanOneIsRefused(t *testing.T) {
	f := open(t)
	_, err := f.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, dlq.ErrInvalid)
}

// One call of Sweep costs n, however much has expired and however much has not.
func TestSweepIsBounded(t *testing.T) { synctest.Test(t, sweepIsBounded) }

func sweepIsBounded(t *testing.T) {
	f := verified(t, open(t))
	const n = 1000
	var letters []dlq.Put
	for i := range n {
		letters = append(letters, letter("", idOf(i)))
	}
	put(t, f, letters...)
	before := lastTx(t, f)
	removed, err := f.Sweep(t.Context(), n)
	require.NoError(t, err)
	require.Zero(t, removed, "what is unresolved stays")
	require.Equal(t, before, lastTx(t, f), "and is not looked at")

	c, err := f.Claim(t.Context(), ask(n))
	require.NoError(t, err)
	require.Len(t, c.Claims, n)
	_, err = f.Settle(t.Context(), params, resolveAll(c.Claims))
	require.NoError(t, err)
	time.Sleep(params.Retention)
	before = lastTx(t, f)
	removed, err = f.Sweep(t.Context(), 300)
	require.NoError(t, err)
	require.LessOrEqual(t, removed, 300)
	require.Equal(t, before+2, lastTx(t, f), "250 things in a commit")
}
