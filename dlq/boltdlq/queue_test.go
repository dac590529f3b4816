package boltdlq_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/retry"
)

var errFailed = errors.New("it failed")

func dead(key, id string) dlq.Dead {
	return dlq.Dead{Message: dlq.Message{Stream: "s", ID: id, Key: key, Payload: []byte(id)}, Cause: errFailed}
}

func newQueue(t testing.TB, s dlq.Store, o *dlq.Options) *dlq.Queue {
	t.Helper()
	q, err := dlq.New(s, o)
	require.NoError(t, err)
	return q
}

// Letters that are put together share commits.
func TestConcurrentPutsShareCommits(t *testing.T) {
	f := verified(t, open(t))
	f.db.NoSync = false // or nobody ever waits for a commit
	q := newQueue(t, f, nil)
	const n = 300
	before := lastTx(t, f)
	failed := make(chan error, n)
	for i := range n {
		go func() {
			_, err := q.Put(context.Background(), dead(keyOf(i), idOf(i)))
			failed <- err
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
	if commits := lastTx(t, f) - before; commits > n/3 {
		t.Errorf("%d letters at once took %d commits", n, commits)
	}
	totals, err := f.Totals(t.Context(), "", 1)
	require.NoError(t, err)
	require.Equal(t, n, totals[0].Waiting)
}

// The schedule, through a file: 5, 10, 15 and 25 minutes, and with the fourth
// failed retry the letter is in review.
func TestScheduleEndsInReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		q := newQueue(t, f, &dlq.Options{Spread: -1})
		start := time.Now()
		_, err := q.Put(t.Context(), dead("k", "a"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		var at []time.Duration
		require.NoError(t, q.Run(ctx, func(context.Context, dlq.Letter) error {
			at = append(at, time.Since(start).Round(time.Minute))
			return errFailed
		}, &dlq.RunOptions{Stream: "s"}))
		require.Equal(t, []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, 55 * time.Minute}, at)
		r := newest(t, f, "a")
		require.Equal(t, dlq.StateReview, r.State)
		require.Equal(t, 5, r.Log.Total())
	})
}

// A handler that writes to the file resolves its letter in the same commit, and so has
// its effect once, also when it fails afterwards.
func TestAHandlerResolvesInItsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		q := newQueue(t, f, nil)
		for _, id := range []string{"good", "rolled back", "unsure"} {
			_, err := q.Put(t.Context(), dead("", id))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		require.NoError(t, q.Run(ctx, func(ctx context.Context, l dlq.Letter) error {
			err := f.db.Update(func(tx *bbolt.Tx) error {
				if err := effect(tx, l.Seq); err != nil {
					return err
				}
				err := q.With(f.Tx(tx)).Complete(ctx)
				if l.ID == "rolled back" && l.Tries == 1 {
					err = errFailed
				}
				return err
			})
			if l.ID == "unsure" {
				return errFailed // it was committed, and the handler does not know
			}
			return err
		}, &dlq.RunOptions{Stream: "s"}))
		for id, failures := range map[string]int{"good": 1, "rolled back": 2, "unsure": 1} {
			r := newest(t, f, id)
			require.Equal(t, dlq.StateResolved, r.State, id)
			require.Equal(t, failures, r.Log.Total(), id)
			require.Len(t, effects(t, f)[r.Seq], 1, id)
		}
	})
}

// Two queues, each with workers, on one file: every letter once, in the order of its
// key.
func TestTwoWorkersOnOneFile(t *testing.T) {
	f := verified(t, open(t))
	const n = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	worked := map[string][]string{}
	total := 0
	var workers sync.WaitGroup
	var queues []*dlq.Queue
	for range 2 {
		s, err := boltdlq.New(f.db, nil)
		require.NoError(t, err)
		q := newQueue(t, s, &dlq.Options{Backoff: retry.Constant(time.Millisecond)})
		queues = append(queues, q)
		workers.Go(func() {
			err := q.Run(ctx, func(_ context.Context, l dlq.Letter) error {
				mu.Lock()
				defer mu.Unlock()
				if len(worked[l.Key]) == 3 && l.Tries == 1 {
					return errFailed // blocks its key for a moment
				}
				worked[l.Key] = append(worked[l.Key], l.ID)
				if total++; total == n {
					cancel()
				}
				return nil
			}, &dlq.RunOptions{Stream: "s", Poll: 5 * time.Millisecond})
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	for i := range n {
		_, err := queues[i%2].Put(t.Context(), dead(keyOf(i), idOf(i)))
		require.NoError(t, err)
	}
	workers.Wait()
	require.Equal(t, n, total)
	for key, ids := range worked {
		require.IsIncreasing(t, ids, key)
	}
	totals, err := f.Totals(t.Context(), "", 2)
	require.NoError(t, err)
	require.Equal(t, []dlq.Totals{{Stream: "s", Resolved: n}}, totals)
}
