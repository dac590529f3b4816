package boltorder_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

var effects = []byte("effects")

// effect writes that a message of a key had its effect. It fails when it is not the
// next one: one that comes twice, or out of order.
func effect(tx *bbolt.Tx, m order.Message) error {
	b, err := tx.CreateBucketIfNotExists(effects)
	if err != nil {
		return err
	}
	if last := lastEffect(tx, m.Key); m.Position.Number != last+1 {
		return fmt.Errorf("%w: number %d after number %d", errOrder, m.Position.Number, last)
	}
	return b.Put([]byte(m.Key), binary.BigEndian.AppendUint64(nil, m.Position.Number))
}

var errOrder = errors.New("not the next one")

// lastEffect is the number of a key that had its effect last.
func lastEffect(tx *bbolt.Tx, key string) uint64 {
	if b := tx.Bucket(effects); b != nil {
		if v := b.Get([]byte(key)); v != nil {
			return binary.BigEndian.Uint64(v)
		}
	}
	return 0
}

func wantEffects(t testing.TB, f *file, key string, want uint64) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.Equal(t, want, lastEffect(tx, key))
		return nil
	}))
}

// messages are the numbers of a key from from to to.
func messages(key string, from, to uint64) (ms []order.Message) {
	for n := from; n <= to; n++ {
		ms = append(ms, order.Message{Key: key, Position: order.Position{Number: n}, Payload: fmt.Appendf(nil, "body %d", n)})
	}
	return ms
}

func newBuffer(t testing.TB, s order.Store, opts *order.Options) *order.Buffer {
	t.Helper()
	b, err := order.New(s, opts)
	require.NoError(t, err)
	return b
}

func pushAll(t testing.TB, b *order.Buffer, ms ...order.Message) {
	t.Helper()
	answers, err := b.Push(t.Context(), ms...)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, order.Buffered, a.State)
	}
}

// runTx delivers in transactions until the last of n messages was committed.
func runTx(t testing.TB, f *file, b *order.Buffer, key string, n uint64, h order.TxHandler, opts *order.RunOptions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := b.RunTx(ctx, func(ctx context.Context, run *order.TxRun) (int, error) {
		delivered, err := h(ctx, run)
		if delivered > 0 {
			if m := run.Messages[delivered-1]; m.Key == key && m.Position.Number == n {
				cancel()
			}
		}
		return delivered, err
	}, opts)
	require.NoError(t, err)
	require.NoError(t, f.db.View(f.Verify))
	a, err := b.Account(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, n+1, a.Ledgers[0].Cursor, "%+v", a)
	wantEffects(t, f, key, n)
}

var quick = &order.RunOptions{Backoff: retry.Constant(time.Millisecond)}

func TestEffectsAndCursorAreOneCommit(t *testing.T) {
	f := verified(t, open(t))
	b := newBuffer(t, f, nil)
	pushAll(t, b, messages("k", 1, 200)...)
	before := lastTx(t, f)
	runTx(t, f, b, "k", 200, f.InTx(func(ctx context.Context, tx *bbolt.Tx, m order.Message) error {
		if _, ok := order.TokenFrom(ctx); !ok {
			return errors.New("no token")
		}
		return effect(tx, m)
	}), nil)
	// Four runs of up to 64: a claim and a commit each.
	require.LessOrEqual(t, lastTx(t, f)-before, 12)
}

// A failure in the middle of a transaction costs those before it nothing, and they
// have their effect once.
func TestFailureInTheMiddle(t *testing.T) {
	var calls atomic.Int32
	for name, fail := range map[string]func(tx *bbolt.Tx) error{
		"error": func(*bbolt.Tx) error { return errors.New("not now") },
		"panic": func(*bbolt.Tx) error { panic("not now") },
		"it commits by itself": func(tx *bbolt.Tx) error {
			return tx.Commit()
		},
		"it rolls back by itself": func(tx *bbolt.Tx) error { return tx.Rollback() },
		"goexit": func(*bbolt.Tx) error {
			runtime.Goexit()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := verified(t, open(t))
			b := newBuffer(t, f, nil)
			pushAll(t, b, messages("k", 1, 9)...)
			var failures []int
			runTx(t, f, b, "k", 9, f.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error {
				calls.Add(1)
				if err := effect(tx, m); err != nil {
					return err
				}
				if m.Position.Number == 4 && m.Attempt <= 2 {
					failures = append(failures, m.Attempt)
					return fail(tx)
				}
				return nil
			}), quick)
			require.Contains(t, failures, 1)
			require.Equal(t, uint64(9), b.Stats().Delivered)
		})
	}
}

// A message that never succeeds parks its key with nothing of it in the file.
func TestPoisonInATransactionParks(t *testing.T) {
	f := verified(t, open(t))
	b := newBuffer(t, f, nil)
	pushAll(t, b, messages("k", 1, 5)...)
	pushAll(t, b, messages("other", 1, 5)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := b.RunTx(ctx, f.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error {
		if err := effect(tx, m); err != nil {
			return err
		}
		if m.Key == "k" && m.Position.Number == 3 {
			if m.Attempt == 3 {
				cancel() // once this attempt has ended
			}
			return errors.New("never")
		}
		return nil
	}), &order.RunOptions{Backoff: retry.Constant(time.Millisecond), MaxAttempts: 3})
	require.NoError(t, err)
	parked, err := b.Parked(t.Context(), order.Query{})
	require.NoError(t, err)
	require.Len(t, parked, 1)
	require.Equal(t, uint64(3), parked[0].Position.Number)
	require.Equal(t, 3, parked[0].Attempt)
	wantEffects(t, f, "k", 2)
	wantEffects(t, f, "other", 5)
}

// A commit that fails leaves nothing, and is tried again.
func TestCommitThatFails(t *testing.T) {
	f := verified(t, open(t))
	b := newBuffer(t, f, nil)
	pushAll(t, b, messages("k", 1, 3)...)
	failed := 0
	inTx := f.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error {
		if m.Position.Number == 2 && m.Attempt == 1 {
			f.db.MaxSize = 1 // the commit needs a larger file
			if err := tx.Bucket(effects).Put([]byte("large"), make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return effect(tx, m)
	})
	runTx(t, f, b, "k", 3, func(ctx context.Context, run *order.TxRun) (int, error) {
		n, err := inTx(ctx, run)
		if f.db.MaxSize = 0; err != nil {
			require.ErrorIs(t, err, bbolterrors.ErrMaxSizeReached)
			require.Zero(t, n)
			wantEffects(t, f, "k", 1)
			failed++
		}
		return n, err
	}, &order.RunOptions{Backoff: retry.Constant(time.Millisecond), PerTx: 1})
	require.Equal(t, 1, failed)
}

// A worker that has lost its key commits nothing.
func TestTransactionOfAStaleOwner(t *testing.T) {
	f := verified(t, open(t))
	b := newBuffer(t, f, nil)
	pushAll(t, b, messages("k", 1, 3)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inTx := f.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error { return effect(tx, m) })
	var stale error
	err := b.RunTx(ctx, func(ctx context.Context, run *order.TxRun) (int, error) {
		token, _ := order.TokenFrom(ctx)
		p := order.Params{Scope: "default", Window: 10}
		errs, err := f.Settle(ctx, p, []order.Settlement{{Kind: order.KindRelease, Key: "k", Token: token, Unbegun: true}})
		require.NoError(t, errors.Join(append(errs, err)...))
		c, err := f.Claim(ctx, p, order.Ask{Nonce: [16]byte{1}, Keys: 1, Messages: 1, Bytes: 1, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, c.Claims, 1)
		n, err := inTx(ctx, run)
		stale = err
		cancel()
		return n, err
	}, nil)
	require.NoError(t, err)
	require.ErrorIs(t, stale, order.ErrStale)
	wantEffects(t, f, "k", 0)
	a, err := b.Account(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, uint64(1), a.Ledgers[0].Cursor)
	require.True(t, a.Claimed, "by the other")
}

// A push is part of the caller's transaction: stored with what else it writes, or
// not at all.
func TestPushInATransaction(t *testing.T) {
	f := verified(t, open(t))
	b := newBuffer(t, f, nil)
	failure := errors.New("no")
	for _, want := range []error{failure, nil} {
		err := f.db.Update(func(tx *bbolt.Tx) error {
			answers, err := b.With(f.Tx(tx)).Push(t.Context(), messages("k", 1, 1)...)
			require.NoError(t, err)
			require.Equal(t, order.Buffered, answers[0].State)
			return want
		})
		require.ErrorIs(t, err, want)
	}
	totals, err := b.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, totals.Buffered)
}

func TestUnusableTransactions(t *testing.T) {
	f, other := open(t), open(t)
	ctx := t.Context()
	p := order.Params{Scope: "default", Window: 10, MaxAhead: 10, MaxBuffered: 10}
	a := []order.Arrival{{Message: messages("k", 1, 1)[0]}}
	steps := func(s order.Store) map[string]error {
		_, push := s.Push(ctx, p, a)
		_, claim := s.Claim(ctx, p, order.Ask{Keys: 1, Messages: 1, Lease: time.Minute})
		_, settle := s.Settle(ctx, p, []order.Settlement{{Kind: order.KindForget, Key: "k"}})
		_, account := s.Account(ctx, "default", "k")
		_, find := s.Find(ctx, p, []order.Place{{Key: "k"}})
		_, gaps := s.Gaps(ctx, "default", order.Query{N: 1})
		_, parked := s.Parked(ctx, "default", order.Query{N: 1})
		_, totals := s.Totals(ctx, "default")
		return map[string]error{"push": push, "claim": claim, "settle": settle, "account": account, "find": find, "gaps": gaps, "parked": parked, "totals": totals}
	}
	tx, err := f.db.Begin(true)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	for _, unusable := range []*bbolt.Tx{nil, tx} {
		for step, err := range steps(f.Tx(unusable)) {
			require.ErrorIs(t, err, bbolterrors.ErrTxClosed, step)
			require.ErrorIs(t, err, order.ErrInvalid, step)
		}
	}
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		for step, err := range steps(f.Tx(tx)) {
			switch step {
			case "push", "claim", "settle":
				require.ErrorIs(t, err, bbolterrors.ErrTxNotWritable, step)
			default:
				require.NoError(t, err, step)
			}
		}
		return nil
	}))
	require.NoError(t, other.db.Update(func(tx *bbolt.Tx) error {
		for step, err := range steps(f.Tx(tx)) {
			require.ErrorContains(t, err, "another file", step)
		}
		return nil
	}))
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).Push(ctx, p, a)
		require.ErrorIs(t, err, context.Canceled)
		return nil
	}))
	_, err = f.Push(ctx, p, a)
	require.ErrorIs(t, err, context.Canceled)
}
