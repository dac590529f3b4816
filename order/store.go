package order

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the messages and cursors of a [Buffer]. Implement it to bring
// your own database; run [github.com/pawl-go/pawl/order/ordertest] against it
// before you trust it. The comments here are the specification, and each
// sentence has a subtest there.
//
// # What is stored
//
// A key has epochs, and an epoch is one sequence of numbers with a base, a cursor
// and a head. The base is its first number; the cursor is the number that is to
// be delivered next; the head is one more than the highest number that is known.
// Below the cursor every number has ended, in exactly one way: it was delivered,
// is void, was skipped, or came late after it had been skipped or void. At the
// cursor or above, every number below the head is buffered, parked, unordered
// (delivered outside of the buffer, and not yet crossed), void, or missing. So
// both sums of a [Ledger] hold after every step. The cursor never goes back.
//
// The cursor never stands on a void or unordered number: every step that moves it,
// or that makes the number at it void or unordered, carries it over all that
// follow. Crossing an unordered number counts as delivered.
//
// Of the epochs of a key the lowest that has not ended is the active one: it alone
// is delivered. It ends when a higher epoch exists and its cursor has reached its
// head, in the step that brings this about.
//
// A key has one lease, with a token, whatever its epochs.
//
// # What holds for every method
//
// Every method is safe for concurrent use. A step is atomic per key. A batch is
// not a transaction: each item has its own answer, and when a method returns an
// error, some items may have been applied and others not. Items of a batch take
// effect in order, as if each had been sent alone.
//
// Every step may be sent twice, because clients re-send after a broken
// connection: a repeated Push finds its own message, a repeated Claim is
// recognised by its nonce, a repeated settlement by its token and its target.
//
// Time is the store's own. No time read by a caller decides anything.
//
// The buffer has validated the arguments: scopes match [A-Za-z0-9._-]{1,64}, keys
// and message IDs are 1 to 512 bytes of UTF-8 without NUL (an ID may be empty),
// numbers are 1 to [MaxNumber], epochs 0 to [MaxNumber], durations at most
// [MaxDuration]. A store does not retain slices after it returns, and what it
// returns is the caller's to keep. No number passes through a floating-point one.
type Store interface {
	// Push stores arrivals and returns one answer for each, in order. When it
	// returns, the answers are durable, as far as this store can make them so. An
	// answer whose Err is set is none: whether it was applied is not known, and
	// sending it again is harmless.
	//
	// What an arrival is answered, the first rule that fits:
	//
	//  1. It is to be assigned (Arrival.Assign): if a message with its ID is
	//     remembered in the scope, whatever its key: Duplicate, with the key and the
	//     position of that message. Otherwise its epoch is the highest of the key, or
	//     its own if that is higher, and at least 1; its number is the head of that
	//     epoch, or the base of a new one, which is p.Start and at least 1. The rules
	//     go on, and only Full and Buffered can follow.
	//  2. Its epoch is below the active one: StaleEpoch.
	//  3. Its epoch is not known to the key: if the key has [MaxEpochs] epochs that
	//     have not ended, Full. Otherwise the epoch exists from now on, once the
	//     arrival is Buffered: its base is p.Start, or the arrival's number if p.Start
	//     is zero, and it is counted by the rules below. If the epoch is higher than
	//     all others and p.Abandon is set, every lower epoch that has not ended is
	//     abandoned: its missing, buffered and parked numbers are skipped, with a gap
	//     record for each unbroken range (ReasonAbandoned), and it ends.
	//  4. Its number is below the base: StaleEpoch.
	//  5. Its number is below the cursor and was skipped or is void: Late. The number
	//     leaves the range and counts as late from then on, and the gap record it
	//     belongs to, if there is one, counts it in Arrived. If p.Late is set the
	//     message is stored as waiting to be handed over late, and the key is due;
	//     otherwise only its digest is kept, as of a delivered one. But if p.Late is
	//     set and p.MaxBuffered late messages of the key are waiting already, parked
	//     ones included: Full, and nothing changes.
	//  6. Its number is below the cursor and its digest is remembered: Duplicate if the
	//     digests are equal, Conflict if not. Nothing changes.
	//  7. Its number is below the cursor: Duplicate, with Answer.Unverified.
	//  8. Its number is buffered or parked: Duplicate or Conflict, by the digest. It is
	//     unordered: Duplicate, with Answer.Unverified.
	//  9. Its number is p.MaxAhead or more above the cursor: TooFar.
	// 10. p.MaxBuffered messages of the key are buffered already, and the number is
	//     not the cursor of the active epoch: Full.
	// 11. Buffered. If the number was void, it leaves the range. A number beyond the
	//     head makes those between missing.
	//
	// Every answer is counted in the key's Arrivals; for a key that does not exist
	// yet TooFar, Full and StaleEpoch may go uncounted, and leave nothing behind. An
	// assigned arrival that is answered by rule 1 is counted as a Duplicate at the
	// key that has it, or not at all.
	//
	// A message stays remembered, with its digest, while its number is less than
	// p.Window below the cursor of an epoch that has not ended; with an ID also until
	// p.KeepBody after it ended, with its payload. It is forgotten by Sweep or
	// earlier, once neither holds. The payload of a message without an ID may be
	// dropped as soon as the message has ended. The IDs of a scope are one name
	// space: of several messages with one ID, the first keeps it while it is
	// remembered; what has the ID beside it need not be found by it afterwards.
	Push(ctx context.Context, p Params, arrivals []Arrival) ([]Answer, error)

	// Claim takes keys for one worker, at most a.Keys, in the order in which they
	// became due. A key is due when it is not claimed, or its lease has lapsed, and
	//
	//   - a late message waits and its delay has passed, or
	//   - the message at the cursor of the active epoch is buffered (not parked), and
	//     the delay of its last retry has passed, or
	//   - the number at the cursor of the active epoch is missing, the gap there is
	//     open, and its next look has come: p.GapLook after it opened, and later what
	//     KindWait says.
	//
	// The key then has a new token, max(previous + 1, the store's time in
	// microseconds), and a lease of a.Lease. The claim carries all that is due: late
	// messages, at most a.Messages and, unless it is zero, a.Late; and either the run
	// or the gap.
	//
	// The run is the unbroken row of buffered messages from the cursor on, at most
	// a.Messages, ending after the message that brings their payloads to a.Bytes. The
	// step that takes the key begins them all: a message that was begun before, and
	// not unbegun by a settlement, is begun again, alone, when it stands at the
	// cursor; and a run ends before a message that was begun before. Attempt is how
	// often the message was begun, this time included.
	//
	// A gap is open while the number at the cursor of the active epoch is missing, and
	// a higher one of the epoch is buffered, parked or unordered, or a higher epoch of
	// the key waits and the cursor is below the head. It is the range of numbers from
	// the cursor to below the lowest number that is buffered, parked or unordered, or
	// to below the head if there is none. It is as old as the message of that number,
	// if there is one; otherwise its age counts from when it opened. Since counts from
	// when the cursor came to stand at its first number, or it opened if that was
	// later.
	//
	// Numbers of a gap that arrive, or turn out to be void, shorten it. It stays the
	// same gap while its first number is missing. What is left when the cursor moves
	// within it, also after it has stood at an arrived number for a while, is still
	// the same gap if the number behind it is the same. The age of a gap that stays
	// the same does not change, nor what KindWait noted, nor the next look. All this
	// survives a restart.
	//
	// When the nonce is that of an earlier claim, and keys taken by it are still
	// claimed under a running lease, the answer is those keys as they are now, and
	// nothing changes: the same tokens, nothing begun. When there are no such keys,
	// the ask is a new one.
	//
	// When fewer than a.Keys were claimed, Claimed.Next is the time until the next key
	// can be claimed; zero means that there is none, or that the store does not know.
	Claim(ctx context.Context, p Params, a Ask) (Claimed, error)

	// Settle records what became of claimed keys, and what a person decided. It
	// returns one error per settlement, in order, or a nil slice when all were
	// applied; the second error means that nothing is known of any of them.
	//
	// The kinds of a worker need the token of the key, which is claimed, lapsed or
	// not, and Settlement.Epoch must be the active epoch, or, for KindDeliver,
	// KindSkip and KindVoid sent again, one that has ended since:
	//
	//   - KindDeliver moves the cursor to To. Every number from the cursor to below
	//     To is buffered, void or unordered; buffered ones are delivered.
	//   - KindVoid makes the missing numbers of [From, To) at or above the cursor, and
	//     below the head, void; numbers in it that are not missing stay what they are.
	//   - KindSkip moves the cursor to To: the missing numbers below To are skipped, and
	//     a gap record is kept for each unbroken range of them (Settlement.Reason). The
	//     first, if it begins where the gap does, keeps the gap's age, and the Alerted
	//     and Asked of the settlement or those that were noted, whichever is more.
	//     None below To is buffered or parked.
	//   - KindLate ends a late message: it was handed over. Its number is From.
	//   - KindLateRetry keeps the error of a late message, whose number is From, and
	//     makes it due again after Delay.
	//   - KindLatePark sets a late message aside: it is parked, and not due.
	//   - KindRetry keeps the error of the message at the cursor and releases the key,
	//     which is due again after Delay. What was begun behind that message is unbegun.
	//   - KindPark parks the message at the cursor with its error and releases the key.
	//     The key delivers nothing more, but late messages, until the message is resumed
	//     or dropped. What was begun behind it is unbegun.
	//   - KindWait notes for the gap at the cursor whether it was Alerted and how often
	//     it was Asked for, and when to look next: after Delay. It releases the key.
	//   - KindRelease releases the key, which is due at once if anything is due; a run
	//     only after Delay, if that is set. With Unbegun, the message at the cursor and
	//     those behind it were not handed to anybody: they are unbegun, and the attempt
	//     does not count.
	//   - KindExtend makes the lease end Settlement.Lease from now.
	//
	// A move (KindDeliver, KindSkip) whose To is not above the cursor, under the
	// right token, was applied before: it succeeds and changes nothing. So does a
	// KindLate, KindLateRetry or KindLatePark of a late message that has ended, and a
	// settlement that releases, when the key was released under this token and has
	// not been claimed since. Anything else that does not fit is [ErrStale], and
	// nothing changes.
	//
	// The kinds of a person need no token and do not touch the lease:
	//
	//   - KindResume makes a parked message, at From, due at once, with no attempts.
	//   - KindDrop skips a parked message, at From, with a gap record of ReasonDropped;
	//     a late one ends instead. Said again, it leaves the record as it is by then:
	//     somebody may have resolved it.
	//   - KindResolve notes Resolution, Actor and Note in every gap record that lies in
	//     [From, To). If the gap at the cursor begins at From, ResolutionLost and
	//     ResolutionIgnore also skip its numbers below To, as KindSkip does with
	//     ReasonResolved, and the record is resolved; ResolutionResent lets it wait as if
	//     it had just opened.
	//   - KindUnordered says that the number From was delivered outside of the buffer.
	//     A missing, void or buffered one at or above the cursor becomes unordered, a
	//     skipped or void one below it late; of any other nothing changes. A key or an
	//     epoch that does not exist begins with it, as with a push. Beyond p.MaxAhead it
	//     is [ErrTooFar].
	//   - KindForget erases the key with all its epochs, messages and records. The
	//     owner, if any, is stale from then on.
	//
	// A KindResume, KindDrop or KindResolve that finds nothing at its place is
	// [ErrNotFound], unless it was applied before and left the record that it leaves:
	// then it succeeds again.
	Settle(ctx context.Context, p Params, s []Settlement) ([]error, error)

	// Account returns the ledgers of a key, that of the active epoch first, then
	// those of epochs that wait, ascending, then those that have ended, the latest
	// first, at most [MaxEpochs] of each; and what arrived. It is consistent in
	// itself. A key that does not exist has no ledgers.
	Account(ctx context.Context, scope, key string) (Account, error)

	// Find says where messages are, one answer for each place, in order. A place
	// with an ID is looked up by it, one without by its key and position. The state
	// of a number below the cursor is exact within p.Window, and for ever for void
	// and skipped ones; of others it is StateSettled. A number of an epoch that has
	// ended is found as below its cursor; a store may forget the window of an epoch
	// when it ends, and answers StateSettled within it from then on. Message is
	// filled while it is remembered.
	Find(ctx context.Context, p Params, places []Place) ([]Found, error)

	// Gaps returns at most q.N gaps, those that are open and the records of those
	// that were skipped, in ascending order of key, epoch and number, beginning
	// behind q.After. With q.Unresolved, records that are resolved are left out.
	// Fewer than q.N means that there are no more. An open gap is listed from its
	// opening on, whether anybody has looked at it or not.
	Gaps(ctx context.Context, scope string, q Query) ([]Gap, error)

	// Parked returns at most q.N parked messages, in ascending order of key, epoch
	// and number, beginning behind q.After. Fewer than q.N means that there are no more.
	Parked(ctx context.Context, scope string, q Query) ([]Message, error)

	// Totals counts over all keys of a scope. Each number is exact up to [MaxCount],
	// where a store may stop counting.
	Totals(ctx context.Context, scope string) (Totals, error)
}

// A Sweeper is a [Store] that forgets when it is told to. Sweep looks at up to n
// messages and gap records, forgets those that need not be remembered any longer,
// and returns how many it forgot; it goes on where the last call stopped. A gap
// record is forgotten p.KeepGaps after it was resolved; its range is not.
type Sweeper interface {
	Sweep(ctx context.Context, p Params, n int) (forgotten int, err error)
}

// Params are what one buffer tells its store with every call.
type Params struct {
	Scope       string
	Start       uint64        // base of an epoch; zero: the number that arrives first
	Window      int           // numbers below the cursor that are remembered exactly
	MaxBuffered int           // messages of a key
	MaxAhead    uint64        // of the cursor
	Abandon     bool          // what a new epoch does with lower ones; see Push
	Late        bool          // late messages are stored and handed over
	GapLook     time.Duration // from the opening of a gap to the first look at it
	KeepBody    time.Duration // for a message with an ID, after it ended
	KeepGaps    time.Duration // for a gap record, after it was resolved
}

// An Arrival is a message on its way into a store.
type Arrival struct {
	Message
	Digest [16]byte // of ID and payload
	Assign bool     // the store gives the position; the message has an ID
}

// An Ask is a request for work. The nonce is random and 128 bits long; the same
// nonce means the same call, sent again.
type Ask struct {
	Nonce    [16]byte
	Keys     int
	Messages int // of a key
	Late     int // late ones of a key; zero: as many as Messages
	Bytes    int // payload of a key; one message in any case
	Lease    time.Duration
}

// Claimed is the answer to an [Ask].
type Claimed struct {
	Claims []Claim
	Next   time.Duration
}

// A Claim is a key that a worker holds.
type Claim struct {
	Key   string
	Token uint64 // rises with every owner of the key
	Left  time.Duration
	Epoch uint64 // the active one; the messages of the run are of it
	Run   []Message
	Gap   *Gap      // nil if there is none, or its next look has not come
	Late  []Message // of the active or any other epoch
	More  bool      // there is more in the key than the claim carries
}

// A Settlement says what became of a claimed key or of one of its numbers.
type Settlement struct {
	Kind       Kind
	Key        string
	Token      uint64 // zero for the kinds of a person
	Epoch      uint64
	From, To   uint64 // see the kinds; To is not included
	Error      string
	Delay      time.Duration
	Lease      time.Duration
	Alerted    bool
	Asked      int
	Unbegun    bool
	Reason     Reason
	Resolution Resolution
	Actor      string
	Note       string
}

// Kind is the kind of a [Settlement].
type Kind uint8

// The kinds of settlement: those of a worker, then those of a person.
const (
	KindDeliver Kind = iota + 1
	KindVoid
	KindSkip
	KindLate
	KindLateRetry
	KindLatePark
	KindRetry
	KindPark
	KindWait
	KindRelease
	KindExtend

	KindResume
	KindDrop
	KindResolve
	KindUnordered
	KindForget
)

// A Place is what Find looks up: an ID, or a position of a key.
type Place struct {
	ID       string
	Key      string
	Position Position
}

// A Query selects gaps or parked messages: those of Key, or of all keys.
type Query struct {
	Key        string
	After      Cursor
	N          int
	Unresolved bool
}

// A Cursor is a place in a list; the zero one is before the first.
type Cursor struct {
	Key      string
	Position Position
}

var (
	// ErrStale says that the key is no longer the caller's: its lease lapsed and
	// another worker took over, or it was released or forgotten. Nothing was changed.
	ErrStale = errors.New("order: stale claim")

	// ErrNotFound says that there is no such parked message or gap.
	ErrNotFound = errors.New("order: not found")

	// ErrTooFar says that a number lies too far above the cursor to be true.
	ErrTooFar = errors.New("order: number too far ahead")
)

const (
	// MaxNumber is the highest number and the highest epoch, 2^63-1.
	MaxNumber = 1<<63 - 1

	// MaxEpochs is how many epochs of a key may be waiting at once.
	MaxEpochs = 16

	// MaxCount is how far totals are counted in any case.
	MaxCount = 1_000_000

	// MaxDuration is the longest lease, delay and retention, a hundred years of 365
	// days: times then stay exact in every store.
	MaxDuration = 100 * 365 * 24 * time.Hour
)
