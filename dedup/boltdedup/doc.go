// Package boltdedup keeps the claims of [dedup] in a bbolt file: the durable
// store for a service of one process, with no server beside it.
//
// A claim, and a completion, is on the disk when it is answered, so neither a
// crash of the process nor a power cut loses it. With [Store.Tx] a claim, a
// write of the caller to the same file and the completion are one commit: the
// effect then happens exactly once, and a crash at any moment leaves either all
// of it or nothing.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time. Where
//     several share the messages, use pgdedup or redisdedup.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter.
//   - A clock that is set. Time is the wall clock of the process. Set forward, it
//     ends leases and retentions early; set back, they last longer. Tokens rise
//     all the same.
//   - Forgetting on the disk. bbolt leaves erased bytes in the file until it
//     needs the space; a copy made with "bbolt compact" has none of them.
//
// # Use
//
// Open the file, make stores and guards, and close the file last. New makes no
// bucket; the first claim does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltdedup.New(db, nil)
//	...
//	guard, err := dedup.New(store, &dedup.Options{Scope: "invoices"})
//
// Set Timeout: without it, bbolt.Open waits for ever for another process that has
// the file. Many stores, also those of other packages, can share one file: each
// keeps to its own top bucket.
//
// Call [Store.Sweep] now and then. Nothing else removes expired records of IDs
// that never come again.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. The guard joins concurrent calls into one commit, so many
// goroutines get far more claims per second than one; single calls in turn are
// as slow as the disk. A claim that changes nothing, such as a duplicate, costs
// no flush, but waits for the writer like any other.
//
// Never call a guard that is not bound to the transaction from within an Update
// or Batch of the same file: it would wait for the very transaction it is called
// from, until its context ends, and without a deadline for ever. Bind it:
// guard.With(store.Tx(tx)).
//
// A call that waits for the writer does not see its context end before it has
// its turn; nothing is written then.
//
// # Layout
//
// The top bucket, "pawl/dedup" unless Options say otherwise, holds
//
//	layout           the kind and version of the bucket
//	swept            the record at which the next Sweep goes on, if not at the first
//	open:<scope>     a bucket for each scope: ID -> record, claimed or held
//	closed:<scope>   a bucket for each scope: ID -> record, done or released
//
// IDs are stored as they are, in byte order. The sequence of an open or closed
// bucket is the highest token that was erased from it with its record. A record begins with the version of
// its own layout; without fingerprint and result it takes about 40 bytes. A record
// that cannot be read is an error for its ID, never a new ID.
package boltdedup
