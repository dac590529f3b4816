package seqgen

import (
	"context"
	"time"
)

// A Store keeps the sequences of a [Generator]. Implement it to bring your own
// database; run [github.com/pawl-go/pawl/seqgen/seqgentest] against it before you
// trust it. The comments here are the specification, and each sentence has a
// subtest there.
//
// A store keeps one record for each key of a scope, and the voids of the key.
// Neither a record nor its voids are touched by steps for another key or another
// scope. A record holds
//
//   - epoch and last, the position reserved last. A record begins in epoch 1 with
//     last 0;
//   - mode, which is 0 until the first reservation in an epoch;
//   - token, owned and used, of the owner in mode Block: numbers above used were
//     reserved for it and may have been handed out or not;
//   - the log: the nonces of the last [LogSize] steps that carry one, with what
//     they were answered. A spent nonce is one without an answer. The log goes on
//     through all epochs.
//
// Records never expire: a forgotten one would begin again at 1.
//
// Every method is safe for concurrent use. A step is atomic per key. A batch is
// not a transaction: each item has its own answer, and when the method returns an
// error, some items may have been applied and others not. Items of a batch take
// effect in order, as if each had been sent alone, so a key may stand in a batch
// more than once.
//
// Every step may be sent twice, because clients re-send after a broken
// connection: a reservation, an abandonment and a bump are recognised by their
// nonce, the others change nothing the second time.
//
// A new token is max(token + 1, the store's time in microseconds), so that it
// rises also after a record was lost. Time is the store's own: no time read by a
// caller decides anything, and none decides who gets which number.
//
// When its context has ended, a method returns the context's error; asking again
// tells what was applied.
//
// The generator has validated the arguments: keys are 1 to 512 bytes of UTF-8
// without NUL, scopes match [A-Za-z0-9._-]{1,64}, epochs and numbers are at most
// [MaxNumber], N is 1 to [MaxBlock], the retention is positive and at most
// [MaxDuration]. A store does not retain slices after it returns, and what it
// returns is the caller's to keep.
type Store interface {
	// Reserve reserves numbers. It returns one Grant for each ask, in order, or an
	// error when it has no answer for any of them. A grant whose Err is none of
	// the errors below has no answer; whether it was applied is then unknown.
	//
	// What a record answers, the first rule that fits. Under rules 1 to 5 nothing
	// changes.
	//
	//  1. The log has the nonce: the same epoch, numbers and token again. If the
	//     nonce is spent: [ErrStale].
	//  2. (epoch, last) is below Seen: [ErrRolledBack].
	//  3. The mode is set and is not the ask's: [ErrMode].
	//  4. The mode of the ask is Block and it does not Open, and the record is not
	//     owned or has another token: [ErrStale].
	//  5. last is MaxNumber: [ErrExhausted].
	//  6. Otherwise the numbers from last + 1 to last + N are granted, and none
	//     above MaxNumber: N may be cut. They are logged with the nonce, last is
	//     the highest of them and the mode is the ask's.
	//
	// In mode Block, rule 6 also does this before it grants. An ask that opens
	// takes the key: the numbers from used + 1 to last, if the record was owned and
	// there are any, become an orphaned void of the token that owned them, with the
	// reason TakenOver; the record is owned by a new token, and used is last. An ask
	// that does not open raises used to Used, if that is higher, but not above last.
	//
	// In the modes Single and Gapless there is no owner: Open, Token and Used mean
	// nothing, and the token of the grant is 0. To a store the two differ by name
	// only.
	Reserve(ctx context.Context, p Params, asks []Ask) ([]Grant, error)

	// Settle changes what is not a reservation. It returns one Outcome for each
	// change, in order, or an error when nothing is known of any of them.
	//
	//   - KindReturn gives the numbers of Epoch from Lo on back that were reserved
	//     under Token. If the record is in Epoch and owned by Token: [ErrRolledBack]
	//     if Lo is above last + 1, [ErrStale] if Lo is not above used; otherwise
	//     last and used are Lo - 1, the record is not owned any more, and the nonces
	//     of the log with numbers of Epoch from Lo on are spent. So the next
	//     reservation begins at Lo, and nothing is void. If the record is in
	//     Epoch, has the token and is not owned, it was returned before: nothing
	//     changes. If the record is in a lower epoch, or has a lower token in
	//     Epoch: [ErrRolledBack]. Otherwise the key was taken over or bumped
	//     meanwhile: what is orphaned in Epoch under Token becomes certain from Lo
	//     on, with the change's reason; nothing changes if nothing is.
	//   - KindVoid makes the numbers Lo to Hi of Epoch certain voids. [ErrRolledBack]
	//     if (Epoch, Hi) is above (epoch, last). The generator voids numbers of the
	//     modes Single and Gapless only, so these never meet an orphaned void.
	//   - KindAbandon gives up the answer to the ask with Nonce. If the log has the
	//     nonce with numbers granted in mode Block, they are given back as by
	//     KindReturn with their epoch, their token and the lowest of them; in another
	//     mode they become certain voids, as by KindVoid. What those answer with an
	//     error, this does, and nothing changes. If the log has no such nonce, it is
	//     logged, and the record is made if there is none. The nonce is spent then. A
	//     nonce that is spent, or is a bump's: nothing changes.
	//   - KindBump opens the epoch max(epoch, Epoch) + 1, and answers it. The
	//     numbers from used + 1 to last, if the record was owned and there are any,
	//     become an orphaned void of the epoch that ends and of the token that
	//     owned them, with the reason Bumped. last and used are 0 then, the mode is
	//     not set, the token is a new one and the record is not owned. The nonce is
	//     logged with the new epoch; a nonce that is logged is answered the same
	//     epoch again, and nothing changes. [ErrExhausted] if the new epoch would be
	//     above MaxNumber.
	//   - KindRaise makes (Epoch, Hi) the record's (epoch, last) if it is above them
	//     or the same, and Token its token; it is owned then, unless Token is 0, and
	//     used is 0. Mode and log stay as they are, and nothing becomes void. If
	//     (Epoch, Hi) is below (epoch, last), nothing changes. The record is made if
	//     there is none. The generator raises records of a witness only.
	//
	// Where a change needs a record and there is none, the record is one in epoch
	// 0: KindReturn and KindVoid answer [ErrRolledBack], KindBump opens the epoch
	// Epoch + 1.
	//
	// Voids of one epoch never overlap. A certain void that would touch or overlap
	// others that are certain is joined with them into one, with the reason and the
	// time of the newest. A void may be forgotten p.Retention after its time, and
	// not before.
	Settle(ctx context.Context, p Params, changes []Change) ([]Outcome, error)

	// Look returns the state of each key, in order. A key without a record has a
	// State with its Key alone.
	Look(ctx context.Context, scope string, keys []string) ([]State, error)

	// Voids lists at most q.Limit voids of the key and the epoch that have a number
	// in q.From to q.To, in ascending order. They are not cut to those limits. Fewer
	// than Limit means that there are no more.
	Voids(ctx context.Context, q VoidQuery) ([]Void, error)
}

// Params are what one generator tells its store with every call that changes
// something.
type Params struct {
	Scope     string
	Retention time.Duration // of voids
}

// An Ask is a question for N numbers of a key. The nonce is random and 128 bits
// long; the same nonce means the same ask, sent again.
type Ask struct {
	Key   string
	Mode  Mode
	N     int
	Nonce [16]byte
	Seen  Position // the highest the caller knows to be reserved; zero: none

	// Mode Block only.
	Open  bool   // take the key from whoever owns it
	Token uint64 // of the owner that asks, unless it opens
	Used  uint64 // it has handed out all numbers of the epoch up to this one
}

// A Grant is the answer to an [Ask].
type Grant struct {
	Epoch    uint64
	Lo, Hi   uint64   // the numbers, both included
	Token    uint64   // of the owner in mode Block; 0 in the others
	Orphaned Range    // what the ask orphaned when it took the key; may be missing when it is answered again
	Err      error    // nil, ErrStale, ErrMode, ErrRolledBack, ErrExhausted, ErrFull; another: no answer
	Stored   Position // with ErrRolledBack: what the record has
	Mode     Mode     // with ErrMode: what the record has
}

// A Change is one step of [Store.Settle].
type Change struct {
	Kind   Kind
	Key    string
	Epoch  uint64   // Return, Void, Raise: of the numbers. Bump: the highest the caller knows
	Token  uint64   // Return, Raise
	Lo, Hi uint64   // Return: Lo. Void: both. Raise: Hi
	Nonce  [16]byte // Abandon: of the ask. Bump: its own
	Reason Reason   // Return, Void, Abandon
}

// Kind says what a [Change] changes.
type Kind uint8

// The kinds of change; see [Store.Settle].
const (
	KindReturn Kind = iota + 1
	KindVoid
	KindAbandon
	KindBump
	KindRaise
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case KindReturn:
		return "return"
	case KindVoid:
		return "void"
	case KindAbandon:
		return "abandon"
	case KindBump:
		return "bump"
	case KindRaise:
		return "raise"
	}
	return "nothing"
}

// An Outcome is what became of a [Change].
type Outcome struct {
	Epoch  uint64   // Bump: the new one
	Void   Range    // what became void by this step; may be missing when it is answered again
	Err    error    // nil, ErrStale, ErrRolledBack, ErrExhausted, ErrFull; another: no answer
	Stored Position // with ErrRolledBack: what the record has
}

// A State is what a store has of a key. Epoch 0: it has nothing.
type State struct {
	Key         string
	Epoch, Last uint64 // the position reserved last; Last 0: none in this epoch
	Mode        Mode   // 0: not fixed yet
	Token       uint64 // of the last owner
	Owned       bool   // in mode Block: the owner has not returned its rest
	Used        uint64 // in mode Block: all numbers up to it were handed out or are accounted for
	Err         error  // the store has no answer for this key
}

// A VoidQuery asks for voids.
type VoidQuery struct {
	Scope, Key string
	Epoch      uint64
	From, To   uint64 // both included
	Limit      int    // 1 to 1000
}

const (
	// MaxNumber is the highest number and the highest epoch, 2⁶³-1.
	MaxNumber = 1<<63 - 1
	// MaxBlock is the largest number of numbers in one reservation.
	MaxBlock = 65_536
	// MaxKey is the length of the longest key in bytes.
	MaxKey = 512
	// LogSize is how many nonces a record remembers at least. A step that is sent
	// again after so many others of its key would be taken for a new one.
	LogSize = 32
	// MaxDuration is the longest retention, a hundred years of 365 days: times
	// then stay exact in every store.
	MaxDuration = 100 * 365 * 24 * time.Hour
)
