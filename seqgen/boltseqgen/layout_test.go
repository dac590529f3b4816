package boltseqgen_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
)

var params = seqgen.Params{Scope: "default", Retention: time.Hour}

func ask(key string, nonce byte) seqgen.Ask {
	return seqgen.Ask{Key: key, Mode: seqgen.Single, N: 1, Nonce: [16]byte{nonce}}
}

// lastTx is the number of the last commit.
func lastTx(t testing.TB, f *file) (id int) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

func TestNewWritesNothing(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket([]byte("pawl/seqgen")))
		return nil
	}))
	states, err := f.Look(t.Context(), "default", []string{"k"})
	require.NoError(t, err)
	require.Equal(t, []seqgen.State{{Key: "k"}}, states)
	require.NoError(t, f.Migrate(t.Context()))
	before := lastTx(t, f)
	require.NoError(t, f.Migrate(t.Context()), "it may be repeated")
	require.Equal(t, before, lastTx(t, f))
}

func TestCheckOfAFileThatCannotBeWritten(t *testing.T) {
	f := open(t)
	require.NoError(t, f.Migrate(t.Context()))
	f.db.NoSync = false
	require.ErrorIs(t, f.Check(t.Context()), seqgen.ErrAtRisk, "NoGrowSync is still set")
	require.NoError(t, f.db.Close())
	require.ErrorIs(t, f.Check(t.Context()), bbolterrors.ErrDatabaseNotOpen)

	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	s, err := boltseqgen.New(db, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), bbolterrors.ErrDatabaseReadOnly)
	_, err = s.Reserve(t.Context(), params, []seqgen.Ask{ask("k", 1)})
	require.Error(t, err)
}

// A bucket of another kind, or of a later version, is left alone.
func TestForeignBucketsAreLeftAlone(t *testing.T) {
	for name, layout := range map[string]string{"none": "", "another kind": "dedup 1", "a later version": "seqgen 2"} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte("pawl/seqgen"))
				require.NoError(t, err)
				_, err = b.CreateBucket([]byte("scope:default"))
				return errors.Join(err, b.Put([]byte("layout"), []byte(layout)))
			}))
			before := lastTx(t, f)
			ctx := t.Context()
			_, reserve := f.Reserve(ctx, params, []seqgen.Ask{ask("k", 1)})
			_, settle := f.Settle(ctx, params, []seqgen.Change{{Kind: seqgen.KindBump, Key: "k"}})
			_, look := f.Look(ctx, "default", []string{"k"})
			_, voids := f.Voids(ctx, seqgen.VoidQuery{Scope: "default", Key: "k", Limit: 1})
			_, sweep := f.Sweep(ctx, 1)
			for step, err := range map[string]error{
				"reserve": reserve, "settle": settle, "look": look, "voids": voids, "sweep": sweep,
				"check": f.Check(ctx), "migrate": f.Migrate(ctx),
			} {
				require.ErrorContains(t, err, "not made by this version", step)
			}
			require.Equal(t, before, lastTx(t, f))
		})
	}
}

// A record of a later layout, or one that is cut off, is an error for its key that
// names it not, never a new key; and other keys of the same batch go on.
func TestRecordsThatCannotBeRead(t *testing.T) {
	f := verified(t, open(t))
	ctx := t.Context()
	_, err := f.Reserve(ctx, params, []seqgen.Ask{ask("49123", 1)})
	require.NoError(t, err)
	nonce := byte(2)
	for name, damage := range map[string]func([]byte) []byte{
		"a later layout": func(v []byte) []byte { return append([]byte{2}, v[1:]...) },
		"cut off":        func(v []byte) []byte { return v[:5] },
		"empty":          func([]byte) []byte { return nil },
	} {
		var good []byte
		change := func(to func([]byte) []byte) {
			require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("pawl/seqgen")).Bucket([]byte("scope:default")).Bucket([]byte("keys"))
				v := append([]byte{}, b.Get([]byte("49123"))...)
				return b.Put([]byte("49123"), to(v))
			}))
		}
		change(func(v []byte) []byte { good = v; return damage(v) })
		grants, err := f.Reserve(ctx, params, []seqgen.Ask{ask("49123", nonce), ask("other", nonce)})
		require.NoError(t, err, name)
		require.NoError(t, grants[1].Err, name)
		outcomes, err := f.Settle(ctx, params, []seqgen.Change{{Kind: seqgen.KindBump, Key: "49123"}, {Kind: seqgen.KindAbandon, Key: "other", Nonce: [16]byte{nonce}}})
		require.NoError(t, err, name)
		require.NoError(t, outcomes[1].Err, name)
		states, err := f.Look(ctx, "default", []string{"49123", "other"})
		require.NoError(t, err, name)
		require.NoError(t, states[1].Err, name)
		for _, err := range []error{grants[0].Err, outcomes[0].Err, states[0].Err} {
			require.ErrorContains(t, err, "cannot be read", name)
			require.NotContains(t, err.Error(), "49123")
		}
		g, err := seqgen.New(f, &seqgen.Options{SettleTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		within, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err = g.Next(within, "49123")
		cancel()
		require.Error(t, err, name)
		change(func([]byte) []byte { return good })
		nonce++
	}
	grants, err := f.Reserve(ctx, params, []seqgen.Ask{ask("49123", 99)})
	require.NoError(t, err)
	require.Equal(t, uint64(2), grants[0].Lo)
}

// What changes nothing is not committed.
func TestRepeatsAreNotCommitted(t *testing.T) {
	f := verified(t, open(t))
	ctx := t.Context()
	open := seqgen.Ask{Key: "k", Mode: seqgen.Block, Open: true, N: 10, Nonce: [16]byte{1}}
	grants, err := f.Reserve(ctx, params, []seqgen.Ask{open})
	require.NoError(t, err)
	changes := []seqgen.Change{
		{Kind: seqgen.KindReturn, Key: "k", Epoch: 1, Token: grants[0].Token, Lo: 4},
		{Kind: seqgen.KindAbandon, Key: "k", Nonce: [16]byte{2}},
	}
	_, err = f.Settle(ctx, params, changes)
	require.NoError(t, err)
	before := lastTx(t, f)
	outcomes, err := f.Settle(ctx, params, changes)
	require.NoError(t, err)
	require.NoError(t, errors.Join(outcomes[0].Err, outcomes[1].Err))
	_, err = f.Reserve(ctx, params, []seqgen.Ask{{Key: "k", Mode: seqgen.Single, N: 1, Nonce: [16]byte{3}}, open})
	require.NoError(t, err)
	_, err = f.Sweep(ctx, 100)
	require.NoError(t, err)
	require.Equal(t, before, lastTx(t, f))
}

// Stores of one bucket are one, those of another know nothing of it, and nor do the
// scopes of one store.
func TestStoresShareAFile(t *testing.T) {
	f := verified(t, open(t))
	same, err := boltseqgen.New(f.db, &boltseqgen.Options{})
	require.NoError(t, err)
	other, err := boltseqgen.New(f.db, &boltseqgen.Options{Bucket: "another"})
	require.NoError(t, err)
	for _, tt := range []struct {
		store seqgen.Store
		scope string
		want  uint64
	}{{f, "a", 1}, {same, "a", 2}, {other, "a", 1}, {f, "b", 1}} {
		g, err := seqgen.New(tt.store, &seqgen.Options{Scope: tt.scope})
		require.NoError(t, err)
		at, err := g.Next(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, tt.want, at.Number)
	}
}

// Every scope has its turn, however little a call of Sweep may do, and voids are
// dropped once their time is over and not before, also after a restart.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		ctx := t.Context()
		for i := range 600 {
			p := params
			p.Scope = fmt.Sprint("scope", i%3)
			key := fmt.Sprint("k", i)
			if _, err := f.Reserve(ctx, p, []seqgen.Ask{ask(key, 1)}); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				p.Retention = 24 * time.Hour
			}
			_, err := f.Settle(ctx, p, []seqgen.Change{{Kind: seqgen.KindVoid, Key: key, Epoch: 1, Lo: 1, Hi: 1}})
			require.NoError(t, err)
		}
		n, err := f.Sweep(ctx, 1000)
		require.NoError(t, err)
		require.Zero(t, n)
		time.Sleep(params.Retention)
		dropped := 0
		for round := range 700 { // each sees one void
			n, err := f.Sweep(ctx, 1)
			require.NoError(t, err)
			dropped += n
			if round == 300 {
				require.NoError(t, f.db.Close())
				f.open(t)
			}
		}
		require.Equal(t, 300, dropped)
		time.Sleep(24 * time.Hour)
		for range 2 { // the first one goes on where the last one stopped
			n, err := f.Sweep(ctx, 1000)
			require.NoError(t, err)
			dropped += n
		}
		require.Equal(t, 600, dropped)
		_, err = f.Sweep(ctx, 0)
		require.ErrorIs(t, err, seqgen.ErrInvalid)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = f.Sweep(ended, 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Numbers that are drawn together share commits.
func TestConcurrentCallsShareCommits(t *testing.T) {
	f := verified(t, open(t))
	f.db.NoSync = false // or nobody ever waits for a commit
	g, err := seqgen.New(f, nil)
	require.NoError(t, err)
	const n = 300
	before := lastTx(t, f)
	numbers := make(chan uint64, n)
	for range n {
		go func() {
			at, err := g.Next(context.Background(), "k")
			if err != nil {
				t.Error(err)
			}
			numbers <- at.Number
		}()
	}
	seen := map[uint64]bool{}
	for range n {
		seen[<-numbers] = true
	}
	require.Len(t, seen, n)
	require.True(t, seen[1] && seen[n])
	if commits := lastTx(t, f) - before; commits > n/3 {
		t.Errorf("%d numbers at once took %d commits", n, commits)
	}
}
