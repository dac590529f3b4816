// Package boltorder keeps the messages of [order] in a bbolt file: the durable
// store for a service of one process, with no server beside it.
//
// A message that was answered Buffered is on the disk, and so is every move of a
// cursor, every gap and every skip: neither a crash of the process nor a power cut
// loses one. With [Store.InTx] what a handler writes to the same file and the move of
// the cursor are one commit: the effect then happens exactly once, and a crash at
// any moment leaves either all of it or nothing.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time. Where
//     several share the keys, use pgorder or redisorder.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter.
//   - A clock that is set. Time is the wall clock of the process. Set forward, it
//     ends leases and the time of gaps early; set back, they last longer. Tokens
//     rise all the same.
//   - Forgetting on the disk. bbolt leaves erased bytes in the file until it
//     needs the space; a copy made with "bbolt compact" has none of them.
//
// # Use
//
// Open the file, make stores and buffers, and close the file last. New makes no
// bucket; the first push does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltorder.New(db, nil)
//	...
//	buffer, err := order.New(store, &order.Options{Scope: "inbound"})
//
// Set Timeout: without it, bbolt.Open waits for ever for another process that has
// the file. Many stores, also those of other packages, can share one file: each
// keeps to its own top bucket.
//
// Call Sweep of the buffer now and then. Nothing else forgets messages that have
// been delivered, and their bodies: of those that are remembered for their digest
// alone, since they are among the last Options.Window of their key, it erases the
// body once KeepBody has passed.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. The buffer joins concurrent pushes, and the settlements of
// keys that are worked side by side, into one commit; single calls in turn are as
// slow as the disk.
//
// Never call a buffer that is not bound to the transaction from within an Update
// or Batch of the same file: it would wait for the very transaction it is called
// from, until its context ends, and without a deadline for ever. Bind it:
// buffer.With(store.Tx(tx)).
//
// # Layout
//
// The top bucket, "pawl/order" unless Options say otherwise, holds layout, the
// kind and version of the bucket, and a bucket scope:<scope> for each scope, with
//
//	keys       key -> lease, due time, epochs that have not ended, arrivals
//	epochs     key, NUL, epoch -> base, cursor, head, counts, attempts, gap
//	messages   place -> message; a place is key, NUL, epoch, number
//	ranges     place of the first -> kind and length: void, skipped, unordered
//	gaps       place of the first -> record of a gap
//	parked     place -> nothing
//	late       key, NUL, time, epoch, number -> nothing: late messages by when they can be handed over
//	ends       place of the cursor -> when it came there, if it passed a message
//	ids        message ID -> place
//	due        time, key -> nothing: keys by when they can be claimed
//	heads      time, key -> nothing: keys by when the message to deliver next came
//	claimed    nonce, key -> nothing
//	totals     counts of the scope
//
// Epochs, numbers and times have 8 bytes, the highest first. A delivered message
// stays where it is: only the cursor moves. Without ID and payload a message takes
// about 60 bytes with its place. A key that is idle takes about 150 bytes and its
// own length twice. A record that cannot be read is an error for the whole batch that
// needs it, and nothing of that batch is applied: it is never taken for none.
package boltorder
