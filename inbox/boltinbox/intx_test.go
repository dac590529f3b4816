package boltinbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/retry"
)

// put writes the effect of an event to a transaction, one digit for each time.
func put(tx *bbolt.Tx, r inbox.Record) error {
	b, err := tx.CreateBucketIfNotExists(effects)
	if err != nil {
		return err
	}
	return b.Put([]byte(r.ID), append(b.Get([]byte(r.ID)), '1'))
}

// Whatever a handler answers but Done is rolled back, and recorded all the same.
func TestInTxCommitsWhatIsDoneAndNothingElse(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	ids := []string{"fails", "panics", "dead", "strange", "unsure", "good"}
	for _, id := range ids {
		_, err := b.Accept(t.Context(), event("k", id))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	no := errors.New("no")
	err = b.Work(ctx, f.InTx(b, func(_ context.Context, tx *bbolt.Tx, r inbox.Record) inbox.Outcome {
		require.NoError(t, put(tx, r))
		switch {
		case r.ID == "p/fails" && r.Attempts == 1:
			return inbox.Failed(no)
		case r.ID == "p/panics" && r.Attempts == 1:
			panic("in a handler")
		case r.ID == "p/dead":
			return inbox.Dead(no)
		case r.ID == "p/strange":
			return inbox.Quarantine(no)
		case r.ID == "p/unsure":
			return inbox.Unknown(no)
		case r.ID == "p/good":
			cancel()
		}
		return inbox.Done()
	}), &inbox.WorkOptions{Backoff: retry.Constant(time.Millisecond)})
	require.NoError(t, err)
	for id, want := range map[string]struct {
		state    inbox.State
		attempts int
		mark     string
	}{
		"fails": {inbox.StateDone, 2, "1"}, "panics": {inbox.StateDone, 2, "1"}, "good": {inbox.StateDone, 1, "1"},
		"dead": {inbox.StateDead, 1, ""}, "strange": {inbox.StateQuarantined, 1, ""}, "unsure": {inbox.StateUnknown, 1, ""},
	} {
		rs, err := b.Get(t.Context(), "p/"+id)
		require.NoError(t, err)
		require.Equal(t, want.state, rs[0].State, id)
		require.Equal(t, want.attempts, rs[0].Attempts, id)
		require.Equal(t, want.mark, mark(t, f, "p/"+id), id)
	}
}

// A handler whose key was taken over meanwhile commits nothing.
func TestInTxOfAStaleOwnerIsRolledBack(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), event("k", "a"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	err = b.Work(ctx, f.InTx(b, func(ctx context.Context, tx *bbolt.Tx, r inbox.Record) inbox.Outcome {
		token, _ := inbox.TokenFrom(ctx)
		errs, err := f.Tx(tx).Settle(ctx, inbox.Params{}, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: r.Stream, Key: r.Key, Token: token}})
		require.NoError(t, errors.Join(append(errs, err)...))
		require.NoError(t, put(tx, r))
		cancel()
		return inbox.Done()
	}), nil)
	require.NoError(t, err)
	require.Empty(t, mark(t, f, "p/a"))
	totals, err := b.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, totals.Pending)
}
