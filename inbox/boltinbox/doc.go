// Package boltinbox keeps the events of [inbox] in a bbolt file: the durable
// store for a service of one process, with no server beside it.
//
// Events are on the disk when their acceptance is answered, all those of a call
// in one commit, and so is what became of them; neither a crash of the process nor
// a power cut loses either. With [Store.Tx] the effect of an event, if it is a
// write to the same file, and the completion of the event are one commit: the
// effect then happens exactly once, and a crash at any moment leaves either both
// or nothing.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time: a second
//     replica of the service cannot share it.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter.
//   - A clock that is set. Time is the wall clock of the process. Set forward, it
//     ends leases, delays and retentions early, and a handler may run beside
//     another. Set back, they last longer by as much, and events that were accepted
//     before wait until it is as late again.
//   - Forgetting on the disk. bbolt leaves erased bytes in the file until it
//     needs the space; a copy made with "bbolt compact" has none of them.
//
// # Use
//
// Open the file, make stores and boxes, and close the file last. New makes no
// bucket; the first step does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltinbox.New(db, nil)
//	...
//	box, err := inbox.New(store, nil)
//
// Set Timeout: without it, bbolt.Open waits for ever for another process that has
// the file. Many stores, also those of other packages, can share one file: each
// keeps to its own top bucket.
//
// Call [inbox.Box.Sweep] now and then, every minute with a few thousand records, say.
// Nothing else removes events and their payloads, and without it the file grows for
// ever.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. The box joins concurrent acceptances into one commit, and
// the settlements of events that end together into another, so many goroutines
// get far more events per second than one. Duplicates cost no flush, but wait for
// the writer like any other.
//
// A transaction of the application on the same file holds up every acceptance
// while it is open: keep it short, and wait for no remote within it. Never call a
// box that is not bound to the transaction from within an Update or Batch of the
// same file: it would wait for the very transaction it is called from, for ever.
// Bind it: box.With(store.Tx(tx)).
//
// # Layout
//
// The top bucket, "pawl/inbox" unless Options say otherwise, holds what follows.
// Numbers within keys are big-endian, so that keys are in the order of the numbers;
// times are microseconds since 1970. Every value that is not empty begins with the
// version of its layout, a byte.
//
//	layout    "inbox 2"
//	totals    the number of records by state
//	swept ..  where the next Sweep goes on
//	ids       event ID -> digest of its first arrival, Seq of each of its records
//	messages  message ID NUL Seq -> nothing
//	externals external ID NUL Seq -> nothing
//	events    Seq -> the event as it arrived, as long as it is not redacted
//	pending   Seq -> attempts, token, next time, last error, failures, actions
//	settled   Seq -> state, attempts, token, times, last error, failures, actions
//	kept      state, Seq -> nothing; all that have ended and are not done
//	outside   time, Seq -> nothing; ended, with a body that is kept outside, by Erases
//	keys      stream NUL key -> token, nonce, end of the lease, next time
//	queue     stream NUL key NUL Seq -> nothing; pending records of a key, in order
//	due       stream NUL time key -> nothing; when a key can be claimed
//	claimed   nonce stream NUL key -> nothing; what an ask has claimed
package boltinbox
