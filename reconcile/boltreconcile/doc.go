// Package boltreconcile keeps the operations, observations and findings of [reconcile] in a
// bbolt file: the durable store for a service of one process, with no server beside it.
//
// An operation is on the disk before it is sent, and so is what became of it when that is
// answered, all those of a call in one commit; neither a crash of the process nor a power
// cut loses any of it. With [Store.Tx] an operation is recorded in the transaction that
// makes it necessary, and with [Store.InTx] an effect that is a write to the same file, and
// its confirmation, are one commit: the effect then happens exactly once. A crash at any
// moment leaves both or nothing.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time: a second
//     replica of the service cannot share it.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter.
//   - A clock that is set. Time is the wall clock of the process. Set forward, it
//     ends leases, quiet periods and retentions early. Set back, they last longer by as
//     much. Tokens and versions rise in any case.
//   - What List, Counts and Read show may be undone by a power cut in the moment of the
//     commit that it is from. What Begin, Settle, Append and Report answer is not.
//   - Forgetting on the disk. bbolt leaves erased bytes in the file until it
//     needs the space; a copy made with "bbolt compact" has none of them.
//
// # Use
//
// Open the file, make the store and what stands on it, and close the file last. New makes no
// bucket; the first step does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltreconcile.New(db, nil)
//	...
//	ledger, err := reconcile.New(store, nil)
//	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
//
// [Store.Checks] is the store for checks. Set Timeout: without it, bbolt.Open waits for ever
// for another process that has the file. Many stores, also those of other packages, can share
// one file: each keeps to its own top bucket.
//
// Call [Store.Sweep] now and then, every minute with a few thousand, say; it serves all
// three. Nothing else removes what has expired, and without it the file grows for ever.
// Operations that are open, or wait for a person, are never removed.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. A ledger joins operations that are begun at the same time into one
// commit, and settlements that end together into another. Reading takes no lock.
//
// A transaction of the application on the same file holds up every operation while it
// is open: keep it short, and wait for no remote within it. Never call a ledger or timeline
// that is not bound to the transaction from within an Update or Batch of the same file: it
// would wait for the very transaction it is called from, for ever. Bind it:
// ledger.With(store.Tx(tx)). [Store.InTx] is such a transaction.
//
// # Layout
//
// The top bucket, "pawl/reconcile" unless Options say otherwise, holds what follows.
// Numbers within keys are big-endian, so that keys are in the order of the numbers;
// times are microseconds since 1970. Every value begins with the version of its layout, a
// byte; only layout, the lease in due, and rows that are nothing but their key have none.
// The sequences of operations and findings are the greatest token and version that were
// forgotten.
//
//	layout        "reconcile 1"
//	operations    kind NUL key -> the operation without what is in the next three
//	payloads      kind NUL key -> payload
//	results       kind NUL key -> result
//	logs          kind NUL key -> transitions
//	due           kind NUL time key -> end of the lease; what a claim may take
//	claims        nonce kind NUL key -> nothing; what a claim was granted
//	ages          kind NUL account NUL time key -> nothing; open ones by Created
//	totals        kind NUL account -> operations by state
//	subjects      kind NUL subject -> number of observations, dropped ones, end of the retention
//	observations  kind NUL subject NUL time event -> observation
//	events        kind NUL event -> key of the observation
//	owns          kind NUL own NUL message -> nothing; the messages of an ID of the caller's
//	findings      kind NUL check NUL subject -> the finding without its log
//	changes       kind NUL check NUL subject -> log
//	looks         kind NUL check NUL time subject -> nothing; unresolved ones by Due
//	opened        kind NUL check NUL time subject -> nothing; those that are open, by Opened
//	checks        kind NUL check -> unresolved findings by state
//	cells         kind NUL series NUL start writer -> count
//	index         kind NUL list NUL ... -> nothing; see below
//	expiring      time what key -> nothing; when the row with a key may be forgotten
//
// The subject of an observation is m and the message ID, or, without one, o and the caller's
// own ID. The index lists operations by account (a account NUL key), those that are open (o
// key), failed (f key) and in review (r key), and unresolved findings (u check NUL subject).
// What expires are operations (o), subjects (s), findings (f) and cells (c).
package boltreconcile
