// Package boltseqgen keeps the numbers of [seqgen] in a bbolt file: the durable
// store for a service of one process, with no server beside it.
//
// A number is on the disk before it is handed out, so neither a crash of the
// process nor a power cut makes it come twice. With [Store.Tx] a number and a write
// of the caller to the same file are one commit: mode Gapless.
//
// What is not guaranteed:
//
//   - Other processes. bbolt locks the file for one process at a time. Where
//     several number the same keys, use pgseqgen or redisseqgen.
//   - A disk that loses what it has flushed, and a file opened with NoSync:
//     [Store.Check] reports the latter. A copy of the file that is put back from a
//     backup hands numbers out again, unless a witness knows better: see
//     seqgen.Options.Witness.
//
// No clock decides who gets which number.
//
// # Use
//
// Open the file, make stores and generators; at the end close the generators, which
// returns what is left of their blocks, and the file last. New makes no
// bucket; the first reservation does, or [Store.Migrate].
//
//	db, err := bbolt.Open("service.db", 0o600, &bbolt.Options{
//		Timeout:      time.Second,
//		FreelistType: bbolt.FreelistMapType,
//	})
//	...
//	store, err := boltseqgen.New(db, nil)
//	...
//	generator, err := seqgen.New(store, nil)
//	...
//	err = generator.Close(ctx) // at the end, before db.Close
//
// Set Timeout: without it, bbolt.Open waits for ever for another process that has
// the file. Many stores, also those of other packages, can share one file: each
// keeps to its own top bucket.
//
// Call [Store.Sweep] now and then. Nothing else drops voids whose retention has
// passed. Keys are never dropped.
//
// # One writer
//
// A bbolt file has one writing transaction at a time, and one commit costs two
// flushes of the disk. The generator joins concurrent calls into one commit, so
// many goroutines get far more numbers per second than one; single calls in turn
// are as slow as the disk. In mode Block a flush is shared by the numbers of a
// block.
//
// Never call a generator that is not bound to the transaction from within an
// Update or Batch of the same file: it would wait for the very transaction it is
// called from, until its context ends, and without a deadline for ever. Bind it:
// generator.With(store.Tx(tx)).
//
// # Layout
//
// The top bucket, "pawl/seqgen" unless Options say otherwise, holds layout, the
// kind and version of the bucket, and a bucket scope:<scope> for each scope, with
//
//	keys     key -> epoch, last number, mode, owner, and the last steps with a nonce
//	voids    key, NUL, epoch, first number -> last number, kind, reason, times
//	swept    the void at which the next Sweep goes on, if not at the first
//
// A key takes at most about 1,200 bytes. A record that cannot be read is an error for
// its key, never a new key.
package boltseqgen
