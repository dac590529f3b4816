// Package boltdlq keeps the letters of [dlq] in a bbolt file: the durable store for a
// service of one process, with no server beside it.
//
// Letters are on the disk when they are answered, all those of a call in one commit,
// and so is what became of them and what people decided, with its entry in the audit;
// neither a crash of the process nor a power cut loses any of it. With [Store.Tx] a
// letter is put in the transaction in which its message leaves where it was, and with
// [Store.InTx] the effect of a letter, if it is a write to the same file, and its
// resolution are one commit: the effect then happens exactly once. A crash at any
// moment leaves both or nothing.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time: a second
//     replica of the service cannot share it.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter.
//   - A clock that is set. Time is the wall clock of the process. Set forward, it
//     ends leases, delays and retentions early, and a handler may run beside
//     another. Set back, they last longer by as much, and letters that were put
//     before wait until it is as late again.
//   - Forgetting on the disk. bbolt leaves erased bytes in the file until it
//     needs the space; a copy made with "bbolt compact" has none of them.
//   - Tamper-proof audit. Nothing in this package changes an entry, but whoever can
//     write the file can.
//
// # Use
//
// Open the file, make stores and queues, and close the file last. New makes no
// bucket; the first step does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltdlq.New(db, nil)
//	...
//	queue, err := dlq.New(store, nil)
//
// Set Timeout: without it, bbolt.Open waits for ever for another process that has
// the file. Many stores, also those of other packages, can share one file: each
// keeps to its own top bucket.
//
// Call [Store.Sweep] now and then, every minute with a few thousand, say. Nothing
// else removes letters that have ended and their payloads, and without it the file
// grows for ever. What is unresolved is never removed: Options.Capacity of the queue
// bounds it.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. A queue joins letters that are put at the same time into one
// commit, and settlements that end together into another. Reading takes no lock.
//
// A transaction of the application on the same file holds up every letter while it
// is open: keep it short, and wait for no remote within it. Never call a queue that
// is not bound to the transaction from within an Update or Batch of the same file: it
// would wait for the very transaction it is called from, for ever. Bind it:
// queue.With(store.Tx(tx)). [Store.InTx] and [Sandbox] are such transactions.
//
// # Layout
//
// The top bucket, "pawl/dlq" unless Options say otherwise, holds what follows.
// Numbers within keys are big-endian, so that keys are in the order of the numbers;
// times are microseconds since 1970. Every value that is not empty begins with the
// version of its layout, a byte; only layout and due have none. Seq rises over all
// streams together.
//
//	layout     "dlq 1"
//	letters    stream NUL Seq -> the letter without what is in the next three
//	bodies     stream NUL Seq -> body
//	originals  stream NUL Seq -> the body before the first edit
//	logs       stream NUL Seq -> what went wrong
//	lanes      stream NUL lane -> token, nonce, end of the lease, where it is listed
//	due        stream NUL time Seq -> lane; when a lane can be claimed, with its first letter
//	claimed    nonce stream NUL lane -> nothing; what an ask has claimed
//	groups     stream NUL fingerprint -> letters that wait, and in review; first, last
//	totals     stream -> letters by state
//	entries    stream NUL Seq -> a line of the audit
//	jobs       stream NUL job -> a redrive job with its counts
//	alarms     stream NUL fingerprint -> nonce, end of the window
//	index      stream NUL kind value NUL Seq -> nothing; see below
//	expiring   time kind key -> nothing; when the row with a key may be forgotten
//
// The index finds letters by ID (i), key (k), state (s), fingerprint (f), job (j) and,
// while they are unresolved, lane (l), and entries by ID (I), job (J) and nonce (N).
// What expires are letters (l), entries (e), jobs (j), alarms (a) and lanes (k).
package boltdlq
