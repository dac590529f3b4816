package inbox

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the events of a [Box]. Implement it to bring your own database;
// run [github.com/pawl-go/pawl/inbox/inboxtest] against it before you trust it.
// The comments here are the specification, and each sentence has a subtest there.
//
// A record is one event in one stream: an event that two streams work is two
// records. Records have a number, Seq, which rises in the order in which they
// were stored. A worker does not claim records but keys: the ordering key of a
// stream has the lease and the token, and its owner works the records of the key.
// So they are worked one at a time and in order, across any number of processes.
//
// Every method is safe for concurrent use, and every step may be sent twice,
// because clients re-send after a broken connection: a repeated Accept finds its
// own records, a repeated Claim is recognised by its nonce, a repeated settlement
// by its token. Items of a batch take effect in order, as if each had been sent
// alone.
//
// Time is the store's own. No time read by a caller decides anything.
//
// The box has validated the arguments: IDs and keys are 1 to 512 bytes of UTF-8
// without NUL, streams match [A-Za-z0-9._-]{1,64}, durations are positive and at
// most [MaxDuration]. A store does not retain slices after it returns, and what
// it returns is the caller's to keep.
type Store interface {
	// Accept stores arrivals and returns one answer for each, in order. When it
	// returns, the answers are durable, as far as this store can make them so.
	// With an error, nothing is known: each arrival may be stored or not, and
	// sending all of them again is harmless.
	//
	// What an arrival is answered, the first rule that fits:
	//
	//  1. No record has its ID: Accepted, and a pending record is stored for each of
	//     its streams, behind all others of its key. If the arrival is Raw:
	//     Quarantined, and one record is stored in the state StateQuarantined, which
	//     belongs to no stream.
	//  2. The first arrival of the ID had the same digest: Duplicate, or Quarantined
	//     if the arrival is Raw. Nothing changes.
	//  3. Another digest: Conflict. The stored records do not change. The arrival is
	//     kept beside them, once for each digest and at most [MaxConflicts] times
	//     for an ID, in the state StateConflict, which is never worked.
	//
	// A record that has been settled, and one that was never worked, may be
	// forgotten when its retention has passed, and not before: p.Retention after
	// it was done, p.Keep after any other end. Until it is removed it is a record
	// like any other. A pending record is never forgotten, and neither is one in
	// StateUnknown.
	Accept(ctx context.Context, p Params, arrivals []Arrival) ([]Answer, error)

	// Claim takes keys of a stream for one worker, at most a.Keys, in the order in
	// which they became due, and returns for each its first pending records, in the
	// order of Seq, at most a.Events; it stops after the record that brings their
	// payloads to a.Bytes. More says that the key has further ones.
	//
	// A key can be claimed if it has a pending record, if it is not claimed or its
	// lease has lapsed, and if the delay of its last retry has passed. It then has
	// a new token, max(previous + 1, the store's time in microseconds), and a lease
	// of a.Lease, and its first record is begun: see KindBegin.
	//
	// When the nonce is that of an earlier claim, and keys taken by it are still
	// claimed under a running lease, the answer is those keys as they are now, and
	// nothing changes: they have the same token, no attempt is counted, and a key
	// may have no record left. When there are no such keys, the ask is a new one.
	//
	// When fewer than a.Keys were claimed, Claimed.Next is the time until the next
	// key can be claimed, because a delay ends or a lease lapses; zero means that
	// there is none, or that the store does not know. It is never later than that. It
	// is earlier where a lease lapses on a key that has nothing pending any more, and the
	// store does not look.
	Claim(ctx context.Context, a Ask) (Claimed, error)

	// Settle records what became of claimed keys and their records. It returns one
	// error per settlement, in order, or a nil slice when all were applied; the
	// second error means that nothing is known of any of them.
	//
	// Every settlement needs the token of its key, which is claimed, lapsed or not.
	// Where Seq is not zero, a record with another number is not the one that is meant:
	// its event was forgotten and accepted again, or it was replayed. Beside that:
	//
	//   - KindBegin counts an attempt of a record, which must be the first pending
	//     one of its key. Repeated, it counts nothing.
	//   - KindDone, KindDead, KindQuarantine and KindUnknown end a record that was begun
	//     under the token; the retention begins. The key stays claimed.
	//   - KindRetry keeps the error of a record that was begun under the token and
	//     releases the key, which is due again after Settlement.Delay.
	//   - KindRelease releases the key, which is due at once.
	//   - KindExtend makes the lease end Settlement.Lease from now.
	//
	// A key may be forgotten when it has had no pending record for p.Retention.
	//
	// An end that was applied before with the same token succeeds again and changes
	// nothing, until the record is replayed or removed; so do a retry and a release,
	// until the key is claimed again. Anything else is [ErrStale], and nothing
	// changes.
	Settle(ctx context.Context, p Params, s []Settlement) ([]error, error)

	// Change applies what a person decided about records, whatever their keys are
	// doing. It returns one error per change, in order, or a nil slice when all were
	// applied; the second error means that nothing is known of any of them.
	//
	// A change is about the records of an event, or about the one of them with the
	// number c.Seq if that is not zero. Each of them to which the kind applies is
	// changed, and each but a forgotten one keeps the change as an [Action] with the
	// store's time behind its earlier ones, of which the last [MaxActions] stay.
	//
	//   - ChangeReplay: a record with a stream that has ended, and whose body was not
	//     redacted, is pending again: with a new Seq, behind all others of its key,
	//     due at once, no attempt counted. Its failures and last error stay.
	//   - ChangeResolve: a record in StateDead, StateQuarantined, StateConflict or
	//     StateUnknown is done: p.Retention begins.
	//   - ChangeRedact: a record that has ended loses payload, context, last error,
	//     failures and trace. Its Form is FormRedacted alone, Deleted the store's time.
	//   - ChangeForget: every record of the event is removed, a pending one, too, and
	//     its ID is new again. c.Seq is zero. What its worker settles afterwards is
	//     ErrStale.
	//
	// A record that was last changed with the same nonce was changed by this very call:
	// it counts as changed, and nothing happens to it. Where no record was changed,
	// the error is [ErrNotFound] if there is none that c.ID and c.Seq name, and
	// otherwise [ErrState]; ChangeForget succeeds in either case.
	Change(ctx context.Context, p Params, c []Change) ([]error, error)

	// List returns at most q.N records that the query selects, by ascending Seq,
	// beginning behind q.After. Fewer than q.N means that there are no more. A record
	// that has the state of the query all the while is there, whatever else happens to it.
	List(ctx context.Context, q Query) ([]Record, error)

	// Totals counts the records that are stored, by state. Each number is exact up
	// to [MaxCount], where a store may stop counting. A record that has one state all
	// the while counts once, whatever else happens to it: one that fails stays pending.
	Totals(ctx context.Context) (Totals, error)
}

// A Sweeper is a [Store] that removes what its retention has left behind when it
// is told to. Sweep looks at up to n records, removes those whose retention has
// passed, and returns how many it removed; it goes on where the last call
// stopped. Pending records stay, and so does one whose body is kept outside
// (FormOutside) until it is redacted. A record that stays and whose Erases has
// passed is redacted as by ChangeRedact, without an Action, unless its body is kept
// outside.
type Sweeper interface {
	Sweep(ctx context.Context, n int) (removed int, err error)
}

// A Widener is a [Store] that works joined calls faster side by side than one after
// another: MergeWidth is how many of them a box sends at once, 1 to 8. Wrap it with
// the store, or one call is under way at a time.
type Widener interface {
	MergeWidth() int
}

// Params are what a box tells its store about times.
type Params struct {
	Retention time.Duration // of records that are done
	Keep      time.Duration // of records that were given up, quarantined, or in conflict
	// Bodies is how long a record that is done keeps its body, at most Retention.
	// Zero: as long as it is kept itself.
	Bodies time.Duration
}

// An Arrival is an event on its way into a store.
type Arrival struct {
	Event
	Digest  [32]byte // of the payload
	Streams []string // at least one, none twice; empty if Raw
	Raw     bool     // a body that could not be decoded: kept and not worked
	Reason  string   // why, if Raw
	// Form says what Payload and Context are. A store keeps it with the record, and
	// looks at FormOutside and FormRedacted alone.
	Form Form
}

// An Ask is a request for work. The nonce is random and 128 bits long; the same
// nonce means the same call, sent again.
type Ask struct {
	Nonce  [16]byte
	Stream string
	Keys   int
	Events int // of each key
	Bytes  int // of payload and context of each key; one event in any case
	Lease  time.Duration
}

// Claimed is the answer to an [Ask].
type Claimed struct {
	Claims []Claim
	Next   time.Duration
}

// A Claim is a key that a worker holds, with the records it may work.
type Claim struct {
	Stream, Key string
	Token       uint64 // rises with every owner of the key
	Left        time.Duration
	More        bool
	Records     []Record
}

// A Settlement says what became of a claimed key or of one of its records.
type Settlement struct {
	Kind        Kind
	Stream, Key string
	Token       uint64
	ID          string        // of the event; empty for KindExtend and KindRelease
	Seq         uint64        // of the record; zero: whichever the event has
	Error       string        // of KindRetry, KindDead, KindQuarantine, KindUnknown: what went wrong
	Failures    []Failure     // of the same kinds: in place of those the record has
	Delay       time.Duration // KindRetry; zero: due at once
	Lease       time.Duration // KindExtend
}

// Kind is the kind of a [Settlement].
type Kind uint8

// The kinds of settlement.
const (
	KindBegin Kind = iota + 1
	KindDone
	KindRetry
	KindDead
	KindQuarantine
	KindRelease
	KindExtend
	KindUnknown
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case KindBegin:
		return "begin"
	case KindDone:
		return "done"
	case KindRetry:
		return "retry"
	case KindDead:
		return "dead"
	case KindQuarantine:
		return "quarantine"
	case KindRelease:
		return "release"
	case KindExtend:
		return "extend"
	case KindUnknown:
		return "unknown"
	}
	return "none"
}

// A Change is what a person decided about the records of an event. The nonce is
// random; the same nonce means the same call, sent again.
type Change struct {
	Kind   ChangeKind
	Nonce  [16]byte
	ID     string
	Seq    uint64 // zero: all records of the event
	Actor  string // who, 1 to 256 bytes
	Reason string // why, at most MaxError bytes
}

// ChangeKind is the kind of a [Change].
type ChangeKind uint8

// The kinds of change.
const (
	ChangeReplay ChangeKind = iota + 1
	ChangeResolve
	ChangeRedact
	ChangeForget
)

// String returns the kind's name in lower case.
func (k ChangeKind) String() string {
	switch k {
	case ChangeReplay:
		return "replay"
	case ChangeResolve:
		return "resolve"
	case ChangeRedact:
		return "redact"
	case ChangeForget:
		return "forget"
	}
	return "none"
}

// A Query selects records by the first of its fields that is set: those of an
// event, those with a message ID, those with an external ID, those in a state, and
// last, those whose bodies are kept outside (FormOutside) and whose Erases has
// passed by the store's clock.
type Query struct {
	ID         string
	MessageID  string
	ExternalID string
	State      State
	Outside    bool
	After      uint64 // Seq; zero begins at the first
	N          int
}

// Totals are the records of a store by state.
type Totals struct {
	Pending, Done, Dead, Quarantined, Conflicts, Unknown int
	// Oldest is the time since the first pending record was stored; zero if there
	// is none. A record that was replayed counts from then.
	Oldest time.Duration
}

// Errors of a store that a caller branches on.
var (
	// ErrStale says that the key is no longer the caller's: its lease lapsed and
	// another worker took over, or it was released, or the record has ended
	// otherwise. Nothing was changed.
	ErrStale = errors.New("inbox: stale claim")
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("inbox: no such record")
	// ErrState says that the record is in a state in which it cannot be changed like
	// that. Nothing was changed.
	ErrState = errors.New("inbox: the record's state does not allow it")
)

const (
	// MaxConflicts is how many arrivals with other content are kept for one ID.
	// Further ones are answered Conflict and counted, and not kept.
	MaxConflicts = 16

	// MaxCount is how many records of a state are counted in any case.
	MaxCount = 1_000_000

	// MaxDuration is the longest lease, delay and retention, a hundred years of 365
	// days: times then stay exact in every store.
	MaxDuration = 100 * 365 * 24 * time.Hour
)
