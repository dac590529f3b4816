package boltreconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
)

func TestNewIsRefused(t *testing.T) {
	_, err := boltreconcile.New(nil, nil)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = boltreconcile.New(open(t).db, &boltreconcile.Options{Bucket: strings.Repeat("x", bbolt.MaxKeySize+1)})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
}

// A file that nothing was written to has nothing in it, and reading makes nothing.
func TestNewWritesNothing(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket(bucketName))
		return nil
	}))
	ctx, before := t.Context(), lastTx(t, f)
	counts, err := f.Counts(ctx, "k", "", true, 10)
	require.NoError(t, err)
	require.Empty(t, counts)
	require.Empty(t, read(t, f.Timeline(), reconcile.Ref{Message: "m"}))
	open, err := f.Checks().Open(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, open)
	require.Equal(t, before, lastTx(t, f))

	require.NoError(t, f.Migrate(ctx))
	before = lastTx(t, f)
	require.NoError(t, f.Migrate(ctx), "it may be repeated")
	require.Equal(t, before, lastTx(t, f))
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, "reconcile 1", string(tx.Bucket(bucketName).Get([]byte("layout"))))
		return nil
	}))
}

func TestCheck(t *testing.T) {
	f := open(t) // with NoSync
	require.ErrorIs(t, f.Check(t.Context()), reconcile.ErrAtRisk)
	f.db.NoSync = false
	require.ErrorIs(t, f.Check(t.Context()), reconcile.ErrAtRisk, "NoGrowSync is still set")
	f.db.NoGrowSync = false
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.db.Close())
	require.ErrorIs(t, f.Check(t.Context()), bbolterrors.ErrDatabaseNotOpen)

	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	s, err := boltreconcile.New(db, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), bbolterrors.ErrDatabaseReadOnly)
	_, err = s.Begin(t.Context(), params, []reconcile.Ask{ask("a")})
	require.ErrorIs(t, err, bbolterrors.ErrDatabaseReadOnly)
}

// A bucket of another kind, or of another version, is left alone.
func TestForeignBucketsAreLeftAlone(t *testing.T) {
	for name, layout := range map[string]string{"none": "", "another kind": "inbox 1", "a later version": "reconcile 2"} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket(bucketName)
				require.NoError(t, err)
				return b.Put([]byte("layout"), []byte(layout))
			}))
			before := lastTx(t, f)
			for step, err := range everything(t, f) {
				require.ErrorContains(t, err, "not made by this version", step)
				require.ErrorContains(t, err, "boltreconcile: "+step)
			}
			require.Equal(t, before, lastTx(t, f))
		})
	}
}

// A value of a later layout, or one that was cut off, is an error that names no ID, and
// changes nothing.
func TestValuesThatCannotBeRead(t *testing.T) {
	for _, bucket := range []string{
		"operations", "payloads", "results", "logs", "totals", "subjects", "observations", "events", "findings", "changes", "checks", "cells",
	} {
		t.Run(bucket, func(t *testing.T) {
			f := open(t)
			accept := with(reconcile.VerbAccept, begin(t, f, "49123")[0])
			settle(t, f, accept)
			appended(t, f.Timeline(), said("49123", "49123", "own"))
			reported(t, f.Checks(), reconcile.Raised, report(reconcile.ReportRaise, "49123"))
			cell := reconcile.Cell{Series: "49123", Start: time.Unix(time.Now().Unix(), 0), N: 1}
			require.NoError(t, f.Checks().Tally(t.Context(), checks, []reconcile.Cell{cell}))
			whole := contents(t, f)
			for name, damage := range map[string]func([]byte) []byte{
				"of a later version": func(v []byte) []byte { return append([]byte{2}, v[1:]...) },
				"cut off":            func(v []byte) []byte { return v[:min(len(v)-1, 2)] },
				"empty":              func([]byte) []byte { return nil },
			} {
				if name == "cut off" && (bucket == "payloads" || bucket == "results") {
					continue // any bytes are one
				}
				require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
					b := tx.Bucket(bucketName).Bucket([]byte(bucket))
					k, v := b.Cursor().First()
					return b.Put(append([]byte{}, k...), damage(append([]byte{}, v...)))
				}))
				failed := 0
				for step, err := range everything(t, f) {
					if step == "check" || err == nil { // with NoSync it is at risk
						continue
					}
					failed++
					require.ErrorContains(t, err, "cannot be read", "%s, %s", name, step)
					require.NotContains(t, err.Error(), "49123")
				}
				require.NotZero(t, failed, name)
				restore(t, f, whole)
			}
			require.NoError(t, f.db.View(f.Verify))
		})
	}
}

// Several stores, in one bucket or in others, share a file.
func TestStoresShareAFile(t *testing.T) {
	f := verified(t, open(t))
	same, err := boltreconcile.New(f.db, &boltreconcile.Options{})
	require.NoError(t, err)
	other, err := boltreconcile.New(f.db, &boltreconcile.Options{Bucket: "another"})
	require.NoError(t, err)
	for _, tt := range []struct {
		store *boltreconcile.Store
		want  reconcile.Grant
	}{{f.Store, reconcile.Send}, {same, reconcile.AsIs}, {other, reconcile.Send}} {
		got, err := tt.store.Begin(t.Context(), params, []reconcile.Ask{ask("a")})
		require.NoError(t, err)
		require.Equal(t, tt.want, got[0].Grant)
	}
	require.NoError(t, f.db.View(other.Verify))
}

// What changes nothing is not committed, and costs no flush of the disk.
func TestWhatChangesNothingIsNotCommitted(t *testing.T) {
	f := verified(t, open(t))
	ctx := t.Context()
	a, conflict := ask("a"), ask("a")
	a.Fingerprint, conflict.Fingerprint = [32]byte{1}, [32]byte{2}
	answers, err := f.Begin(ctx, params, []reconcile.Ask{a})
	require.NoError(t, err)
	en := answers[0].Entry
	observation, raised := said("e", "m", "o"), report(reconcile.ReportRaise, "s")
	raised.Delay = time.Hour
	cells := []reconcile.Cell{{Series: "s", Start: time.Now(), N: 3}}
	confirm := with(reconcile.VerbConfirm, en)
	receipt := reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "a", Nonce: nonce(), State: reconcile.Confirmed}
	settle(t, f, confirm, receipt)
	appended(t, f.Timeline(), observation)
	reported(t, f.Checks(), reconcile.Raised, raised)
	require.NoError(t, f.Checks().Tally(ctx, checks, cells))

	before := lastTx(t, f)
	later := ask("a")
	later.Later = true
	answers, err = f.Begin(ctx, params, []reconcile.Ask{a, conflict, ask("a"), later})
	require.NoError(t, err)
	for i, want := range []reconcile.Grant{reconcile.AsIs, reconcile.Conflict, reconcile.AsIs, reconcile.AsIs} {
		require.Equal(t, want, answers[i].Grant)
	}
	require.Empty(t, claim(t, f, 10))
	settle(t, f, confirm, receipt, reconcile.Settlement{Verb: reconcile.VerbForget, Key: "none"})
	errs, err := f.Settle(ctx, params, []reconcile.Settlement{with(reconcile.VerbFail, en), with(reconcile.VerbFail, reconcile.Entry{Token: 1})})
	require.NoError(t, err)
	for _, err := range errs {
		require.ErrorIs(t, err, reconcile.ErrStale)
	}
	as, err := f.Timeline().Append(ctx, timeline, []reconcile.Observation{observation})
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Repeated}, as)
	reported(t, f.Checks(), reconcile.Raised, raised)
	reported(t, f.Checks(), reconcile.Nothing, report(reconcile.ReportClear, "nobody"))
	_, err = f.Checks().Claim(ctx, checks, "c", 10, time.Hour)
	require.NoError(t, err)
	cells[0].N = 2
	require.NoError(t, f.Checks().Tally(ctx, checks, cells))
	_, err = f.Sweep(ctx, 1000)
	require.NoError(t, err)
	require.Equal(t, before, lastTx(t, f))
}

// A page ends with the operation that brings it to its bound, and the next goes on.
func TestPagesAreBounded(t *testing.T) {
	f := verified(t, open(t))
	const n = 20
	for i := range n {
		a := ask(keyOf(i))
		a.Payload = make([]byte, 1<<20)
		_, err := f.Begin(t.Context(), params, []reconcile.Ask{a})
		require.NoError(t, err)
	}
	q := reconcile.Query{Kind: "k", N: 100}
	var sizes []int
	found := 0
	for {
		es, err := f.List(t.Context(), q)
		require.NoError(t, err)
		sizes = append(sizes, len(es))
		if len(es) == 0 {
			break
		}
		for _, e := range es {
			require.Equal(t, keyOf(found), e.Key)
			found++
		}
		q.After = es[len(es)-1].Key
	}
	require.Equal(t, []int{8, 8, 4, 0}, sizes)
}

// An ID that very many messages share does not fill the memory: the first observations
// are returned, and that there are more.
func TestReadingsAreBounded(t *testing.T) {
	f := verified(t, open(t))
	const messages, each = 251, 100
	for i := range messages {
		var os []reconcile.Observation
		for j := range each {
			os = append(os, said(fmt.Sprintf("%04d-%04d", i, j), fmt.Sprint("m", messages-i), "own"))
		}
		appended(t, f.Timeline(), os...)
	}
	h := read(t, f.Timeline(), reconcile.Ref{Own: "own"})
	require.True(t, h.More)
	require.Len(t, h.Observations, reconcile.MaxHistory)
	require.IsNonDecreasing(t, received(h))
	require.Equal(t, "0000-0000", h.Observations[0].Event)
	require.Equal(t, "0099-0099", h.Observations[reconcile.MaxHistory-1].Event)
	require.False(t, read(t, f.Timeline(), reconcile.Ref{Message: "m7"}).More)

	for left := messages * each; left > 0; {
		n, err := f.Timeline().Forget(t.Context(), timeline, reconcile.Ref{Own: "own"})
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, min(left, reconcile.MaxHistory))
		require.Less(t, n, reconcile.MaxHistory+each, "one commit is bounded, too")
		left -= n
	}
	for name, rows := range contents(t, f) {
		require.Empty(t, rows, name)
	}
}

func received(h reconcile.History) (at []int64) {
	for _, o := range h.Observations {
		at = append(at, o.Received.UnixMicro())
	}
	return at
}
