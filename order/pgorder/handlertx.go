package pgorder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A handlerTx is the transaction of a handler. What begins it, and the savepoint
// of a message, is sent with the statement that comes next.
type handlerTx struct {
	conn    *pgx.Conn
	ctx     context.Context // of the message at hand
	pending []string        // to be sent before anything else
	mark    bool            // there is a savepoint, or one is pending
	nested  int             // for the names of savepoints of the handler's own
	broken  error           // what is pending could not be sent
	over    bool            // it was committed
}

const savepoint = "pawl_message"

// nextSavepoint begins a message. The savepoints before it are not released: that
// would be one more statement for each message, and the commit does it.
func (t *handlerTx) nextSavepoint() {
	if t.mark && len(t.pending) > 0 { // the message before did not send a thing
		return
	}
	t.pending = append(t.pending, "SAVEPOINT "+savepoint)
	t.mark = true
}

// state says why the transaction cannot be committed.
func (t *handlerTx) state() error {
	if t.broken == nil && t.conn.PgConn().TxStatus() == 'E' {
		return errors.New("pgorder: a statement failed in the transaction, and the handler returned no error")
	}
	return t.broken
}

// undo rolls back to the last savepoint.
func (t *handlerTx) undo(ctx context.Context) error {
	if t.broken != nil || t.conn.IsClosed() {
		return errors.Join(t.broken, pgx.ErrTxClosed)
	}
	if len(t.pending) > 0 && t.conn.PgConn().TxStatus() != 'E' { // the message did not write a thing
		return nil
	}
	_, err := t.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
	return err
}

// rollback ends the transaction, unless it was committed. It does so also when
// the context has ended, and within a moment: otherwise the pool closes the
// connection, which ends it as well.
func (t *handlerTx) rollback() {
	if t.over || t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' {
		t.over = true
		return
	}
	t.over = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 5*time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "ROLLBACK")
}

func (t *handlerTx) queuePending(b *pgx.Batch) {
	for _, sql := range t.pending {
		b.Queue(sql)
	}
	t.pending = nil
}

// flush sends what is pending by itself.
func (t *handlerTx) flush(ctx context.Context) error {
	if t.over {
		return pgx.ErrTxClosed
	}
	if len(t.pending) == 0 {
		return nil
	}
	var b pgx.Batch
	t.queuePending(&b)
	if err := execAll(t.conn.SendBatch(ctx, &b), b.Len()); err != nil {
		t.broken = fmt.Errorf("pgorder: begin: %w", err)
	}
	return t.broken
}

// send sends what is pending and a statement in one round trip. It fails when
// what was pending does.
func (t *handlerTx) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	var b pgx.Batch
	n := len(t.pending)
	t.queuePending(&b)
	b.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, &b)
	for range n {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			t.broken = err // also if it is the statement that could not be prepared
			return nil, err
		}
	}
	return results, nil
}

// alone says whether a statement has to be sent by itself: nothing is pending, or
// the arguments begin with options, which a batch does not know.
func (t *handlerTx) alone(args []any) bool {
	if len(t.pending) == 0 || t.over {
		return true
	}
	if len(args) > 0 {
		switch args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
			return true
		}
	}
	return false
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.alone(args) {
		if err := t.flush(ctx); err != nil {
			return pgconn.CommandTag{}, err
		}
		return t.conn.Exec(ctx, sql, args...)
	}
	results, err := t.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if cerr := results.Close(); err == nil {
		err = cerr
	}
	return tag, err
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.alone(args) {
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
		return t.conn.Query(ctx, sql, args...)
	}
	results, err := t.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return &batchRows{rows, results}, nil
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// batchRows are rows that end their batch.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // a failure of the statement is that of the rows
}

// oneRow is the result of QueryRow.
type oneRow struct {
	rows pgx.Rows
	err  error
}

func (r oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.flush(ctx); err != nil {
		return failedBatch{err: err}
	}
	return t.conn.SendBatch(ctx, b)
}

// failedBatch are the results of a batch that was not sent.
type failedBatch struct {
	pgx.BatchResults
	err error
}

func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedBatch) Query() (pgx.Rows, error)         { return nil, f.err }
func (f failedBatch) QueryRow() pgx.Row                { return oneRow{err: f.err} }
func (f failedBatch) Close() error                     { return f.err }

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.flush(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, src)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.conn.Prepare(ctx, name, sql)
}

// LargeObjects works in pgx's own transactions only.
func (t *handlerTx) LargeObjects() pgx.LargeObjects {
	panic("pgorder: large objects are not to be had in a handler's transaction")
}

// Conn flushes first: what the caller does with the connection is not seen.
func (t *handlerTx) Conn() *pgx.Conn {
	_ = t.flush(t.ctx) // remembered in t.broken, and the handler has failed then
	return t.conn
}

var errNotYours = errors.New("pgorder: the transaction of a handler is committed or rolled back by the buffer")

func (t *handlerTx) Commit(context.Context) error   { return errNotYours }
func (t *handlerTx) Rollback(context.Context) error { return errNotYours }

// Begin makes a savepoint of the handler's own.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	t.nested++
	n := &nestedTx{handlerTx: t, name: fmt.Sprintf("pawl_nested_%d", t.nested)}
	_, err := t.conn.Exec(ctx, "SAVEPOINT "+n.name)
	return n, err
}

type nestedTx struct {
	*handlerTx
	name  string
	ended bool
}

func (n *nestedTx) Commit(ctx context.Context) error { return n.end(ctx, "RELEASE SAVEPOINT ") }

func (n *nestedTx) Rollback(ctx context.Context) error { return n.end(ctx, "ROLLBACK TO SAVEPOINT ") }

func (n *nestedTx) end(ctx context.Context, how string) error {
	if n.ended {
		return pgx.ErrTxClosed
	}
	n.ended = true
	_, err := n.conn.Exec(ctx, how+n.name)
	return err
}
