package boltinbox_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/retry"
)

func keyOf(i int) string { return fmt.Sprint("key-", i%7) }
func idOf(i int) string  { return fmt.Sprintf("event-%04d", i) }

var effects = []byte("effects")

// effect writes the effect of an event and completes it in one commit. It fails
// behind all of that when failure is set.
func effect(ctx context.Context, f *file, b *inbox.Box, r inbox.Record, failure error) error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(effects)
		if err != nil {
			return err
		}
		if err := bucket.Put([]byte(r.ID), append(bucket.Get([]byte(r.ID)), '1')); err != nil {
			return err
		}
		return errors.Join(b.With(f.Tx(tx)).Complete(ctx), failure)
	})
}

// mark is what effect left: one digit for each time.
func mark(t testing.TB, f *file, id string) (m string) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(effects); b != nil {
			m = string(b.Get([]byte(id)))
		}
		return nil
	}))
	return m
}

func TestEffectAndCompletionAreOneCommit(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), event("k", "rolled back"), event("k", "good"), event("k", "unsure"), event("k", "last"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	failure := errors.New("the business says no")
	err = b.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		switch r.ID {
		case "p/rolled back":
			if r.Attempts == 1 {
				return inbox.OutcomeOf(effect(ctx, f, b, r, failure))
			}
		case "p/unsure":
			require.NoError(t, effect(ctx, f, b, r, nil))
			return inbox.Failed(errors.New("it was committed, and the handler does not know"))
		case "p/last":
			defer cancel()
		}
		return inbox.OutcomeOf(effect(ctx, f, b, r, nil))
	}, &inbox.WorkOptions{Backoff: retry.Constant(time.Millisecond)})
	require.NoError(t, err)
	for _, id := range []string{"p/rolled back", "p/good", "p/unsure", "p/last"} {
		require.Equal(t, "1", mark(t, f, id), id)
		rs, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, inbox.StateDone, rs[0].State, id)
	}
}

// A transaction of a worker that has lost its key is refused, and so rolled back.
func TestCompletionOfAStaleOwnerIsRefused(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), event("k", "a"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	err = b.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		token, _ := inbox.TokenFrom(ctx)
		errs, err := f.Settle(ctx, inbox.Params{}, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: r.Stream, Key: r.Key, Token: token}})
		require.NoError(t, errors.Join(append(errs, err)...))
		c, err := f.Claim(ctx, inbox.Ask{Nonce: [16]byte{1}, Stream: r.Stream, Keys: 1, Events: 1, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, c.Claims, 1)
		cancel()
		err = effect(ctx, f, b, r, nil)
		require.ErrorIs(t, err, inbox.ErrStale)
		return inbox.OutcomeOf(err)
	}, nil)
	require.NoError(t, err)
	require.Empty(t, mark(t, f, "p/a"))
}

func TestAcceptInATransaction(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	failure := errors.New("no")
	for _, want := range []error{failure, nil} {
		err := f.db.Update(func(tx *bbolt.Tx) error {
			got, err := b.With(f.Tx(tx)).Accept(t.Context(), event("k", "a"))
			require.NoError(t, err)
			require.Equal(t, []inbox.Answer{inbox.Accepted}, got)
			return want
		})
		require.ErrorIs(t, err, want)
	}
	totals, err := b.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, totals.Pending)
}

func TestUnusableTransactions(t *testing.T) {
	f, other := open(t), openPath(t, filepath.Join(t.TempDir(), "other.db"))
	ctx := t.Context()
	a := []inbox.Arrival{{Event: event("k", "a"), Streams: []string{"s"}}}
	_, err := f.Tx(nil).Accept(ctx, inbox.Params{}, a)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	tx, err := f.db.Begin(true)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = f.Tx(tx).Totals(ctx)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).Accept(ctx, inbox.Params{}, a)
		require.ErrorIs(t, err, bbolterrors.ErrTxNotWritable)
		totals, err := f.Tx(tx).Totals(ctx)
		require.NoError(t, err)
		require.Equal(t, inbox.Totals{}, totals)
		return nil
	}))
	require.NoError(t, other.db.Update(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).List(ctx, inbox.Query{State: inbox.StateDone, N: 1})
		require.ErrorContains(t, err, "another file")
		return nil
	}))
}

// Two boxes, each with workers, on one file: every event once, in the order of
// its key.
func TestTwoWorkersOnOneFile(t *testing.T) {
	f := verified(t, open(t))
	const n = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	worked := map[string][]string{}
	total := 0
	var workers sync.WaitGroup
	var boxes []*inbox.Box
	for range 2 {
		s, err := boltinbox.New(f.db, nil)
		require.NoError(t, err)
		b, err := inbox.New(s, nil)
		require.NoError(t, err)
		boxes = append(boxes, b)
		workers.Go(func() {
			err := b.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
				mu.Lock()
				defer mu.Unlock()
				if len(worked[r.Key]) == 3 && r.Attempts == 1 {
					return inbox.Failed(nil) // blocks its key for a moment
				}
				worked[r.Key] = append(worked[r.Key], r.ID)
				if total++; total == n {
					cancel()
				}
				return inbox.Done()
			}, &inbox.WorkOptions{Concurrency: 4, Batch: 3, Poll: 5 * time.Millisecond, Backoff: retry.Constant(10 * time.Millisecond)})
			if err != nil {
				t.Errorf("Work: %v", err)
			}
		})
	}
	for i := range n {
		_, err := boxes[i%2].Accept(t.Context(), event(keyOf(i), idOf(i)))
		require.NoError(t, err)
	}
	workers.Wait()
	require.Equal(t, n, total)
	for key, ids := range worked {
		require.IsIncreasing(t, ids, key)
	}
	totals, err := boxes[0].Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: n}, totals)
}
