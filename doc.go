// Package pawl is the front page of a library of reliability primitives for services that
// receive, order, send and account for messages: webhooks from WhatsApp providers, many
// accounts on one platform, queues that back up. It exports nothing; import what you need.
//
// # The promise
//
// A message accepted is never lost, is worked at least once and in order, and its effect
// happens once where it commits in the same transaction or where the remote honours a
// key; where neither holds, Pawl says Unknown instead of guessing. Everything dropped,
// skipped or given up on is counted and can be listed.
//
// What is not promised: exactly once at a remote that knows no keys and cannot be asked;
// order where nobody numbers; more durability than the store has. A store on Redis can
// forget its last writes in a crash or a failover; bbolt and PostgreSQL keep what was
// answered.
//
// # The packages
//
//   - [github.com/pawl-go/pawl/inbox]: a webhook is answered only when it is stored, then
//     worked in order per key. Beside it whatsapp, ycloud, wechat, standardwebhooks and
//     signature verify and decode.
//   - [github.com/pawl-go/pawl/dedup]: one effect per message ID.
//   - [github.com/pawl-go/pawl/order]: messages of a key in the order of their numbers,
//     with an account that adds up; lanes for what goes out.
//   - [github.com/pawl-go/pawl/seqgen]: numbers that survive a restart.
//   - [github.com/pawl-go/pawl/reconcile]: calls to a remote that end Confirmed, Failed or
//     Unknown; what was said about messages; what is not as it should be. Its lww converges
//     between regions.
//   - [github.com/pawl-go/pawl/dlq]: what could not be processed, tried again later and
//     decided on by a person.
//   - [github.com/pawl-go/pawl/retry]: when to try again, and when to stop.
//   - [github.com/pawl-go/pawl/backpressure]: shape, admit, degrade, shed. Its watchdog
//     tells a worker that is stuck from one that is idle; its forecast says what is coming.
//   - [github.com/pawl-go/pawl/pawlotel]: metrics and traces of all of them.
//
// # One shape
//
// Those that keep state do it behind a small interface: in memory, in a bbolt file, in
// Redis or in PostgreSQL (boltdedup, redisdedup, pgdedup, and so on for the others), and a
// public suite that any store has to pass (deduptest, ...). Everywhere New takes a store
// and options whose zero value works, does no I/O and starts nothing; Migrate, Check,
// Sweep and Run do what their names say, and Tx joins the caller's transaction. Whoever
// has read dedup knows the others.
//
// # Which one guards an effect
//
// A write to your own database: the transaction of the store that you use anyway. A call
// to a remote: a [github.com/pawl-go/pawl/reconcile.Ledger]. Anything else that must not
// happen twice: a [github.com/pawl-go/pawl/dedup.Guard].
package pawl
