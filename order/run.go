package order

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// RunOptions set up [Buffer.Run] and [Buffer.RunTx]. The zero value of each field
// is a working default.
type RunOptions struct {
	// Mode says whether a message may be handed over twice or may be lost when a
	// process dies. The zero value is Idempotent. RunTx does not use it.
	Mode Mode

	// Concurrency is how many keys are worked at once. Zero means 16.
	Concurrency int

	// Batch is how many messages of a key are taken at once, before other keys have
	// their turn. Zero means 64; the most is 1,000.
	Batch int

	// PerTx is how many messages RunTx puts into one transaction. Zero means 64.
	PerTx int

	// MaxAttempts is how often a message is tried before it is parked; attempts that
	// were interrupted, by a crash or the end of Run, count as well. Zero means 10,
	// which with the default backoff takes about four minutes.
	MaxAttempts int

	// Backoff is the time between attempts. Zero means exponential from 1 second to
	// 1 minute, with equal jitter.
	Backoff retry.Backoff

	// Lease is how long a key is held without renewal; it is renewed at every third.
	// Shorter finds dead workers sooner and survives shorter pauses. Zero means 30
	// seconds; the least is one millisecond.
	Lease time.Duration

	// Poll is how often the store is asked when nothing wakes the worker: for what
	// other processes pushed. What this buffer pushes wakes it at once. Zero means
	// 250 milliseconds.
	Poll time.Duration

	// Grace is how long running handlers have to end when ctx has ended. Zero means
	// 10 seconds.
	Grace time.Duration

	// Timeout ends the context of a handler that takes longer for one message. Zero
	// means that nothing does, but the loss of the lease; for Options.OnLate it means
	// Options.StoreTimeout.
	Timeout time.Duration

	// pace says for how long a key may not deliver; zero: the message, its next, may
	// be handed over. Nil: always. For Lanes.
	pace func(m *Message) time.Duration
}

// Mode is when a delivery is recorded.
type Mode uint8

const (
	// Idempotent records a delivery after the handler: a message is handed over at
	// least once. What is repeated after a crash are the messages of a key since the
	// last record, which is made when the run of a key ends, when a message fails,
	// and after a message if 100 milliseconds have passed since the last one.
	Idempotent Mode = iota
	// AtMostOnce records a delivery before the handler: a message whose handler
	// fails, or whose process dies, is lost, and so is one whose record was applied
	// without an answer. It costs a step of the store for each message.
	AtMostOnce
)

// Run hands messages to handle until ctx ends: of each key one at a time and in
// the order of the numbers, the keys side by side, by this call and by others, here
// and in other processes. It also looks at gaps and hands over late messages, as
// the options say.
//
// When handle returns an error or panics, the message is tried again after a
// backoff, and its key waits for it; no other key does. After MaxAttempts the
// message is parked: the key delivers nothing more until a person resumes or drops
// it ([Buffer.Parked]). Attempts are counted before handle runs, so a message that
// kills the process is parked like any other, without being handed over again. A
// message and those taken with it whose run was broken off are tried one by one.
//
// The context of handle carries the fencing token of the key ([TokenFrom]). It
// ends when the lease is lost, with a cause that wraps [ErrStale]: another worker
// may have taken over, and nothing that this one did since the last record will be
// recorded. A handler that ignores its context for ever keeps its key and its place
// among Concurrency.
//
// When ctx ends, nothing new is begun. Running handlers have Grace to end; then
// their contexts are cancelled with [ErrDraining]. Keys are given back as their
// handlers return, for other workers to take at once. Run then returns nil, or
// [ErrAbandoned] if a handler has not returned after Grace once more. [ErrInvalid]
// is returned at once.
func (b *Buffer) Run(ctx context.Context, handle func(context.Context, Message) error, opts *RunOptions) error {
	if handle == nil {
		return invalid("nil handler")
	}
	return b.work(ctx, &worker{buf: b, handle: handle}, opts)
}

// RunTx is Run with a handler that works in transactions: the effects of a message
// and the move of the cursor commit together, so an effect happens once. The
// attempts are counted before, in a step of their own. The store makes
// the handler: its method InTx.
//
// Late messages are not part of that: [Options.OnLate] runs outside of any
// transaction, and is handed a message at least once, as under Run. It should be
// idempotent.
func (b *Buffer) RunTx(ctx context.Context, handle TxHandler, opts *RunOptions) error {
	if handle == nil {
		return invalid("nil handler")
	}
	return b.work(ctx, &worker{buf: b, tx: handle}, opts)
}

func (b *Buffer) work(ctx context.Context, w *worker, opts *RunOptions) error {
	if b.bound {
		return invalid("run in a transaction")
	}
	var err error
	if w.opts, err = opts.withDefaults(); err != nil {
		return err
	}
	return w.work(ctx)
}
