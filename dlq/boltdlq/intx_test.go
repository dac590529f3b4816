package boltdlq_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
)

// Whatever a handler does but succeed is rolled back, and recorded all the same.
func TestInTxCommitsWhatSucceedsAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		q := newQueue(t, f, nil)
		for _, id := range []string{"fails", "panics", "hopeless", "good"} {
			_, err := q.Put(t.Context(), dead("", id))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, q.Run(ctx, f.InTx(q, func(_ context.Context, tx *bbolt.Tx, l dlq.Letter) error {
			require.NoError(t, effect(tx, l.Seq))
			switch {
			case l.ID == "fails" && l.Tries == 1:
				return errFailed
			case l.ID == "panics" && l.Tries == 1:
				panic("in a handler")
			case l.ID == "hopeless":
				return dlq.GiveUp(errFailed)
			}
			return nil
		}), &dlq.RunOptions{Stream: "s"}))
		for id, want := range map[string]struct {
			state           dlq.State
			failed, effects int
		}{
			"fails": {dlq.StateResolved, 2, 1}, "panics": {dlq.StateResolved, 2, 1}, "good": {dlq.StateResolved, 1, 1},
			"hopeless": {dlq.StateReview, 2, 0},
		} {
			r := newest(t, f, id)
			require.Equal(t, want.state, r.State, id)
			require.Equal(t, want.failed, r.Log.Total(), id)
			require.Len(t, effects(t, f)[r.Seq], want.effects, id)
		}
	})
}

// A handler whose letter a person has changed meanwhile commits nothing.
func TestInTxOfAChangedLetterIsRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		q := newQueue(t, f, nil)
		_, err := q.Put(t.Context(), dead("k", "a"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var ran []int
		require.NoError(t, q.Run(ctx, f.InTx(q, func(_ context.Context, tx *bbolt.Tx, l dlq.Letter) error {
			ran = append(ran, l.Tries)
			if len(ran) == 1 {
				edit(t, f.Tx(tx), "a") // which is rolled back, too
			}
			return effect(tx, l.Seq)
		}), &dlq.RunOptions{Stream: "s"}))
		r := newest(t, f, "a")
		require.Equal(t, []int{1, 2}, ran)
		require.Equal(t, dlq.StateResolved, r.State)
		require.Nil(t, r.Original)
		require.Len(t, effects(t, f)[r.Seq], 1)
	})
}

// A rehearsal leaves nothing, with the sandbox and without it.
func TestInTxOfARehearsalIsRolledBack(t *testing.T) {
	f := verified(t, open(t))
	q := newQueue(t, f, nil)
	for _, failure := range []error{nil, errFailed} {
		for _, sandbox := range []dlq.Wrap{nil, boltdlq.Sandbox(f.db)} {
			ran := false
			r, err := q.DryRun(t.Context(), f.InTx(q, func(_ context.Context, tx *bbolt.Tx, l dlq.Letter) error {
				ran = true
				require.NoError(t, effect(tx, l.Seq))
				return failure
			}), dlq.Letter{Stream: "s", ID: "a", Seq: 1}, &dlq.DryRunOptions{Sandbox: sandbox})
			require.NoError(t, err)
			require.True(t, ran)
			require.Equal(t, failure == nil, r.Verdict == dlq.WouldPass)
			require.Empty(t, effects(t, f))
		}
	}
}

// Outside of a queue there is no letter that could be resolved, and nothing happens.
func TestInTxOutsideOfAQueue(t *testing.T) {
	f := verified(t, open(t))
	err := f.InTx(newQueue(t, f, nil), func(_ context.Context, tx *bbolt.Tx, l dlq.Letter) error {
		return effect(tx, l.Seq)
	})(t.Context(), dlq.Letter{Stream: "s", ID: "a", Seq: 1})
	require.ErrorIs(t, err, dlq.ErrInvalid)
	require.Empty(t, effects(t, f))
	put(t, f, letter("k", "after"))
}
