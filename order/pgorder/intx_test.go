package pgorder_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/retry"
)

// A desk is a business table beside a buffer whose messages write to it.
type desk struct {
	t     *testing.T
	store *pgorder.Store
	buf   *order.Buffer
	pool  *pgxpool.Pool
	table string
}

func newDesk(t *testing.T, opts *order.Options, change ...func(*pgxpool.Config)) *desk {
	store, pool, schema := newStore(t, change...)
	buf, err := order.New(store, opts)
	require.NoError(t, err)
	d := &desk{t, store, buf, pool, schema + ".effects"}
	_, err = pool.Exec(t.Context(), "CREATE TABLE "+d.table+" (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint)")
	require.NoError(t, err)
	return d
}

func (d *desk) push(key string, from, to uint64) {
	d.t.Helper()
	var batch []order.Message
	for n := from; n <= to; n++ {
		batch = append(batch, order.Message{Key: key, Position: order.Position{Epoch: 1, Number: n}, Payload: fmt.Append(nil, n)})
	}
	answers, err := d.buf.Push(d.t.Context(), batch...)
	require.NoError(d.t, err)
	for _, a := range answers {
		require.Equal(d.t, order.Buffered, a.State)
	}
}

// write is what a message effects.
func (d *desk) write(ctx context.Context, tx pgx.Tx, m order.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+d.table+" (key, number) VALUES ($1, $2)", m.Key, int64(m.Position.Number))
	return err
}

// effects returns the numbers that were written for a key, in order.
func (d *desk) effects(key string) []int64 {
	d.t.Helper()
	rows, err := d.pool.Query(context.Background(), "SELECT number FROM "+d.table+" WHERE key = $1 ORDER BY id", key)
	require.NoError(d.t, err)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(d.t, err)
	return numbers
}

// run works until done says so.
func (d *desk) run(h order.TxHandler, opts *order.RunOptions, done func() bool) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(d.t, d.buf.RunTx(ctx, h, opts)) })
	assert.Eventually(d.t, done, time.Minute, 5*time.Millisecond)
	cancel()
	wg.Wait()
}

func (d *desk) delivered(key string, n int) func() bool {
	return func() bool { return len(d.effects(key)) >= n }
}

func upTo(n int64) (numbers []int64) {
	for i := int64(1); i <= n; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

var quick = &order.RunOptions{Backoff: retry.Constant(time.Millisecond)}

func TestInTxDeliversInOrder(t *testing.T) {
	d := newDesk(t, nil)
	for _, key := range []string{"a", "b", "c"} {
		d.push(key, 1, 150)
	}
	d.run(d.store.InTx(d.write), quick, func() bool { return len(d.effects("a"))+len(d.effects("b"))+len(d.effects("c")) == 450 })
	for _, key := range []string{"a", "b", "c"} {
		assert.Equal(t, upTo(150), d.effects(key))
		account, err := d.buf.Account(t.Context(), key)
		require.NoError(t, err)
		assert.EqualValues(t, 150, account.Ledgers[0].Delivered)
		assert.False(t, account.Claimed)
	}
}

// A message that fails leaves nothing behind, and those before it commit.
func TestInTxFailureRollsBackToTheSavepoint(t *testing.T) {
	for _, fails := range []uint64{1, 2, 5, 10} {
		for name, spoil := range map[string]func(context.Context, pgx.Tx) error{
			"error": func(context.Context, pgx.Tx) error { return errors.New("no") },
			"panic": func(context.Context, pgx.Tx) error { panic("no") },
			"bad statement": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT nonsense")
				return err
			},
			"failing statement": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1 / $1::integer", 0)
				return err
			},
			"lost connection": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
				return err
			},
			"commit by itself": func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		} {
			for _, first := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d/%s/%t", fails, name, first), func(t *testing.T) {
					t.Parallel()
					d := newDesk(t, nil, func(c *pgxpool.Config) { c.MaxConns = 3 })
					d.push("a", 1, 10)
					failed, attempts := 0, 0
					h := d.store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
						if m.Position.Number == fails {
							attempts = m.Attempt
						}
						if m.Position.Number != fails || failed == 2 {
							return d.write(ctx, tx, m)
						}
						failed++
						if !first {
							if err := d.write(ctx, tx, m); err != nil {
								return err
							}
						}
						return spoil(ctx, tx)
					})
					d.run(h, quick, d.delivered("a", 10))
					assert.Equal(t, upTo(10), d.effects("a"))
					assert.Equal(t, 2, failed)
					assert.Equal(t, 3, attempts)
				})
			}
		}
	}
}

// Everything a handler may do with its transaction, as the first of a message.
func TestInTxStatements(t *testing.T) {
	d := newDesk(t, nil)
	d.push("a", 1, 40)
	insert := "INSERT INTO " + d.table + " (key, number) VALUES ($1, $2) RETURNING number"
	h := d.store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		n := int64(m.Position.Number)
		var got int64
		switch n % 10 {
		case 0: // nothing at all, and then something else
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return d.write(ctx, tx, m) })
		case 1:
			return tx.QueryRow(ctx, insert, m.Key, n).Scan(&got)
		case 2:
			rows, err := tx.Query(ctx, insert, m.Key, n)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		case 3:
			_, err := tx.Exec(ctx, insert, pgx.QueryExecModeExec, m.Key, n)
			return err
		case 4:
			var b pgx.Batch
			b.Queue(insert, m.Key, n)
			return tx.SendBatch(ctx, &b).Close()
		case 5:
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "no_such_table"}, []string{"a"}, pgx.CopyFromRows(nil))
			if err == nil {
				return errors.New("copied to nowhere")
			}
			return d.writeAlone(ctx, m)
		case 6:
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				if err := d.write(ctx, tx, m); err != nil {
					return err
				}
				return errors.New("take it back")
			})
			if err == nil {
				return errors.New("not taken back")
			}
			return d.write(ctx, tx, m)
		case 7:
			_, err := tx.Conn().Exec(ctx, insert, m.Key, n)
			return err
		case 8:
			if err := tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&got); !errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("no rows: %w", err)
			}
			return d.write(ctx, tx, m)
		default:
			_, err := tx.Exec(ctx, "INSERT INTO "+d.table+" (key, number) VALUES (@key, @n)", pgx.NamedArgs{"key": m.Key, "n": n})
			return err
		}
	})
	d.run(h, &order.RunOptions{Backoff: retry.Constant(time.Millisecond), MaxAttempts: 3}, func() bool {
		a, err := d.buf.Account(t.Context(), "a")
		return err == nil && (a.Ledgers[0].Delivered == 40 || a.Parked)
	})
	parked, err := d.buf.Parked(t.Context(), order.Query{N: 1})
	require.NoError(t, err)
	require.NotEmpty(t, parked, "a statement that failed and was not rolled back fails the message")
	require.EqualValues(t, 5, parked[0].Position.Number)
}

// writeAlone does nothing: the transaction is broken.
func (d *desk) writeAlone(context.Context, order.Message) error { return nil }
