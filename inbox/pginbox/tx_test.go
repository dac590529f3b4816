package pginbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

// What is accepted in a transaction is there when it has committed, and was never
// there when it has not.
func TestTxAccept(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	bound := d.box.With(d.store.Tx(tx))
	answers, err := bound.Accept(t.Context(), event("k", "a"), event("k", "b"), event("k", "a"))
	require.NoError(t, err)
	require.Equal(t, []inbox.Answer{inbox.Accepted, inbox.Accepted, inbox.Duplicate}, answers)
	_, err = bound.Get(t.Context(), "p/a")
	require.NoError(t, err)
	claimed, err := d.store.Claim(t.Context(), newAsk(time.Minute))
	require.NoError(t, err)
	require.Empty(t, claimed.Claims)
	require.NoError(t, tx.Rollback(t.Context()))
	d.accept("k", "a")
}

// A transaction that commits late, after claims have gone past the numbers of its
// events, is found all the same.
func TestTxAcceptedLate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = d.box.With(d.store.Tx(tx)).Accept(t.Context(), event("k", "late"))
	require.NoError(t, err)
	for _, id := range []string{"1", "2", "3"} {
		d.accept(id, id)
		d.work(func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
	}
	require.NoError(t, tx.Commit(t.Context()))
	var ids []string
	d.work(func(_ context.Context, r inbox.Record) inbox.Outcome {
		ids = append(ids, r.ID)
		return inbox.Done()
	})
	require.Equal(t, []string{"p/late"}, ids)
}

func TestTxRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.store.Tx(nil).Accept(t.Context(), params, []inbox.Arrival{arrival("k", "a")})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	tx, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = d.store.Tx(tx).Claim(t.Context(), newAsk(time.Minute))
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = d.store.Tx(tx).Accept(t.Context(), params, []inbox.Arrival{arrival("k", "a")})
	require.ErrorIs(t, err, pginbox.ErrIsolation)
}

// A settlement waits for a transaction that holds its key, and says that it did
// nothing; others of the batch are applied.
func TestSettleOfALockedKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.accept("free", "a")
	d.accept("locked", "b")
	claimed, err := d.store.Claim(t.Context(), newAsk(time.Minute))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 2)
	free, locked := claimed.Claims[0], claimed.Claims[1]
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	errs, err := d.store.Tx(tx).Settle(t.Context(), params, []inbox.Settlement{settlement(inbox.KindDone, locked, "p/b")})
	require.NoError(t, err)
	require.Nil(t, errs)

	batch := []inbox.Settlement{
		settlement(inbox.KindDone, locked, "p/b"), settlement(inbox.KindRelease, locked, ""),
		settlement(inbox.KindDone, free, "p/a"), settlement(inbox.KindRelease, free, ""),
	}
	errs, err = d.store.Settle(t.Context(), params, batch)
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pginbox.ErrBusy)
	require.ErrorIs(t, errs[1], pginbox.ErrBusy)
	require.NoError(t, errors.Join(errs[2:]...))
	// Meanwhile claims do not wait.
	d.accept("other", "c")
	claimed, err = d.store.Claim(t.Context(), newAsk(time.Minute))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)

	require.NoError(t, tx.Commit(t.Context()))
	errs, err = d.store.Settle(t.Context(), params, batch)
	require.NoError(t, err)
	require.Nil(t, errs)
}

// An acceptance waits for a transaction that is accepting the same event, and not
// for ever.
func TestAcceptOfALockedEvent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = d.store.Tx(tx).Accept(t.Context(), params, []inbox.Arrival{arrival("k", "a")})
	require.NoError(t, err)
	_, err = d.store.Accept(t.Context(), params, []inbox.Arrival{arrival("k", "a")})
	require.ErrorIs(t, err, pginbox.ErrBusy)
	require.NoError(t, tx.Rollback(t.Context()))
	answers, err := d.store.Accept(t.Context(), params, []inbox.Arrival{arrival("k", "a")})
	require.NoError(t, err)
	require.Equal(t, []inbox.Answer{inbox.Accepted}, answers)
}

// An effect and the completion of its event are one commit.
func TestInTx(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.accept("a", "1", "2", "3")
	d.accept("b", "4", "5")
	failed := map[string]bool{}
	d.work(d.store.InTx(d.box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		if err := d.write(ctx, tx, r); err != nil {
			return inbox.Failed(err)
		}
		if r.Key == "a" && !failed[r.ID] { // each fails once, after it has written; a key has one handler at a time
			failed[r.ID] = true
			switch r.ID {
			case "p/1":
				return inbox.Failed(errors.New("no"))
			case "p/2":
				panic("no")
			}
			_, _ = tx.Exec(ctx, "SELECT 1/0") // the transaction is aborted, and Done cannot commit
		}
		return inbox.Done()
	}))
	assert.Equal(t, []string{"p/1", "p/2", "p/3"}, d.effects("a"))
	assert.Equal(t, []string{"p/4", "p/5"}, d.effects("b"))
}

// A worker that slept through its lease changes nothing when it wakes up.
func TestInTxOfAPausedOwner(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.accept("a", "1")
	first := true
	d.work(d.store.InTx(d.box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		if first {
			first = false
			// Another owner takes the key away, as if the lease had lapsed.
			_, err := d.pool.Exec(ctx, "UPDATE "+d.schema+".inbox_keys SET token = token + 1, lease_until = now.t, due = now.t"+
				" FROM (SELECT "+d.schema+".inbox_now() AS t) AS now")
			require.NoError(t, err)
		}
		return inbox.OutcomeOf(d.write(ctx, tx, r))
	}))
	assert.Equal(t, []string{"p/1"}, d.effects(""))
	assert.Positive(t, d.box.Stats().Stale)
}
