package pgdlq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
)

// A settlement that was applied is not found to be so once the letter was claimed
// again, also after a person has taken it from its new worker.
func TestLateCopyOfASettlement(t *testing.T) {
	t.Parallel()
	store, _, _ := newStore(t)
	for _, kind := range []dlq.ChangeKind{dlq.ChangeApprove, dlq.ChangeEdit} {
		put(t, store, letter("a", kind.String()))
		first := claim(t, store, time.Minute)
		require.Len(t, first, 1)
		late := settlement(dlq.KindRetry, first[0])
		settle(t, store, late)
		settle(t, store, late)
		second := claim(t, store, time.Minute)
		require.Len(t, second, 1)
		for range 2 {
			errs, err := store.Settle(t.Context(), params, []dlq.Settlement{late})
			require.NoError(t, err)
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], dlq.ErrStale)
			_, err = store.Change(t.Context(), params, []dlq.Change{change(kind, second[0].Record)})
			require.NoError(t, err)
		}
		_, err := store.Change(t.Context(), params, []dlq.Change{change(dlq.ChangeForget, second[0].Record)})
		require.NoError(t, err)
	}
}

// An entry has a number above all that can be read: who reads on behind the last one
// misses none, also of transactions that are still under way.
func TestAuditIsInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	note := func(s dlq.Store, verb string) error {
		c := dlq.Change{Kind: dlq.ChangeNote, Nonce: nonce(), Stream: orders, Verb: verb, Actor: "ann"}
		_, err := s.Change(context.Background(), params, []dlq.Change{c})
		return err
	}
	tx := begin(t, pool)
	require.NoError(t, note(store.Tx(tx), "first"))
	done := make(chan error)
	go func() { done <- note(store, "second") }()
	waitForLock(t, pool, schema)
	entries, _, err := store.Audit(t.Context(), dlq.AuditQuery{Stream: orders, N: 10})
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	entries, _, err = store.Audit(t.Context(), dlq.AuditQuery{Stream: orders, N: 10})
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "first", entries[0].Verb)
	require.Equal(t, "second", entries[1].Verb)
}
