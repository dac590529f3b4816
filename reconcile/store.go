package reconcile

import (
	"context"
	"time"
)

// A Store keeps the operations of a [Ledger]. Implement it to bring your own
// database; run [github.com/pawl-go/pawl/reconcile/reconciletest] against it before
// you trust it. The comments here are the specification.
//
// An operation is known by its kind and its key. Every method is safe for concurrent
// use, and a step is atomic per operation. A batch is not a transaction: each item has
// its own answer, and items take effect in order, as if each had been sent alone. When
// a method returns an error, nothing is known of any item, and sending all again is
// harmless.
//
// Every step may be sent twice, because clients re-send after a broken connection: a
// Begin and a Claim are recognised by their nonces, a settlement by its token or, if
// it has none, by its nonce.
//
// Time is the store's own, in microseconds. No time read by a caller decides anything.
//
// The ledger has validated the arguments: kinds match [A-Za-z0-9._-]{1,64}, keys are 1
// to 512 bytes of UTF-8 without NUL and accounts 0 to 512, durations are not negative
// and at most [MaxDuration]. A store does not retain slices after it returns, and what
// it returns is the caller's to keep. When its context has ended, a method returns the
// context's error.
type Store interface {
	// Begin answers one question per ask, in order: may I send this operation? What a
	// record answers, the first rule that fits:
	//
	//  1. There is no record, or it has expired: Send. The record is Started, with
	//     Attempts 1, what the ask's Op holds, a new token, a lease of p.Lease, and Due
	//     when that ends and p.Quiet has passed. Created, First and Sent are now.
	//     With Later: AsIs. The record is Failed with Again, with Attempts 0, a new token, and
	//     Due and Created now; it has no lease, and First, Sent and Expires are zero.
	//  2. The record and the ask both have a fingerprint, and the two differ: Conflict.
	//     Nothing changes.
	//  3. The record was granted last to this nonce: the same grant again if its lease
	//     runs and nothing has ended it; otherwise AsIs. Nothing changes.
	//  4. Failed with Again, without Review, and no lease runs: Send. The record is Started, Attempts
	//     grows by one, the token moves, a lease of p.Lease begins, Due is as in rule 1,
	//     First and Sent are now, Fenced is zero, Again is false.
	//  5. Started, Accepted or Unknown, without Review, due, and no lease runs: Look. The
	//     token moves, a lease of p.Lease begins; Fenced is now if it was zero. A Started
	//     record is Unknown from then on.
	//  6. Anything else: AsIs. Nothing changes.
	//
	// Rules 4 and 5 are not for an ask with Later: it is recorded, and never granted.
	//
	// A new token is max(previous + 1, the store's time in microseconds). The answer's
	// Entry is the record after the step. An ask whose Err is set has no answer; with
	// [ErrFull] nothing was stored.
	Begin(ctx context.Context, p Params, asks []Ask) ([]Answer, error)

	// Claim takes at most a.N records of the kind p.Kind that are due, in the order of
	// Due: those of rule 5 of Begin, and those that are Failed with Again, without Review, and
	// have a Due that has passed. Each is granted as a Look; a Failed one stays Failed.
	//
	// When the nonce is that of an earlier claim, and records granted by it are still
	// under its lease and not ended, the answer is those as they are now, and nothing
	// changes. When there are none, the ask is a new one.
	//
	// When fewer than a.N were taken, the second result is the time until the next
	// record can be; zero means that there is none, or that the store does not know.
	Claim(ctx context.Context, p Params, a ClaimAsk) ([]Entry, time.Duration, error)

	// Settle says what became of operations. It returns one error per settlement, in
	// order, or a nil slice when all were applied.
	//
	// With a token, which has to be that of the record; a lease that has lapsed
	// does not matter, unless it is said:
	//
	//   - Accept: Accepted, due after s.Delay.
	//   - Confirm: Confirmed.
	//   - Fail: Failed, with s.Again. With Again and a Delay it is due after
	//     that, otherwise never.
	//   - Doubt: Unknown, due after s.Delay.
	//   - Defer: the state stays (Started becomes Unknown), due after s.Delay. Looks grows by one with s.Looked.
	//   - Ask: the state stays (Started becomes Unknown), and Review is s.Note.
	//   - Send: needs a Look under a running lease. The record is Started, Attempts grows
	//     by one, Sent is now, Fenced is zero, Again is false, the lease is s.Lease from now,
	//     and Due when that ends and p.Quiet has passed. If the record was Failed, First is now.
	//   - Extend: the lease ends s.Lease from now, and Due of a Started record is p.Quiet
	//     after that.
	//
	// A result that is not nil, of Accept, Confirm, Fail, Receipt or Resolve, takes the
	// place of the one before. All but Send and Extend end the lease. The last settlement that was applied with a
	// token succeeds again and changes nothing; so does Send while the record is Started
	// under that token. Another token, another settlement after the one that ended the
	// lease, or no record is [ErrStale].
	//
	// A record that a receipt or a person has ended meanwhile, and whose token did not
	// move, answers nil to the settlement that says the same, and to Extend; otherwise
	// [*EndedError]. Nothing changes.
	//
	// Without a token, by nonce; without a record they are [ErrNotFound], except Forget:
	//
	//   - Receipt: s.State is Confirmed or Failed, which the record becomes, if it is Started,
	//     Accepted or Unknown. If it is in that state already, nothing changes, except that a
	//     Failed one loses Again and Due, and has Expires, p.Retention from now, if it had none.
	//     If it is in the other, the state stays, Again is false, Due is zero, Review is
	//     "contradicting receipts", and the error is [*EndedError]. In each case it ends the
	//     lease: who was granted the record finds it ended.
	//   - Resolve: the record has to have the token s.Token, or the error is [ErrChanged]; it
	//     must not have ended (Confirmed or Failed) without Review, or it is [*EndedError].
	//     The token moves; the record becomes s.State, Review is empty, and Failed has s.Again and,
	//     with it, Due now.
	//   - Forget: the record is erased.
	//
	// A Receipt or Resolve with the nonce of the last one that was answered for the
	// record gets the same answer, and nothing happens.
	//
	// Confirmed and Failed set Review to "" unless it is said, and Expires to p.Retention from
	// now. When that has passed, and it has no Review and no Due, a record has expired: for
	// every method it is none any more, though Counts may count it until it is forgotten. Any
	// other is never forgotten.
	//
	// Each settlement that changes State or Review, and each contradiction, appends a
	// [Transition] in the same step; so do a grant to Send, and the making of a record with
	// Later, as a Fail without By and Note. Of more than [MaxLog] the
	// first four and the last ones are kept, and Dropped counts the others.
	Settle(ctx context.Context, p Params, s []Settlement) ([]error, error)

	// List returns at most q.N records that the query selects, by ascending byte order
	// of their keys, beginning behind q.After. It may return fewer, and at least one, when
	// their payloads and results exceed 8 MiB; none means that there are no more.
	List(ctx context.Context, q Query) ([]Entry, error)

	// Counts counts the records of at most n accounts of a kind, by ascending byte order
	// of the accounts, beginning behind after; with first set, at the first. Fewer than n
	// means that there are no more.
	Counts(ctx context.Context, kind, after string, first bool, n int) ([]Counts, error)
}

// A Sweeper is a [Store] that removes expired records when it is told to. Sweep looks
// at up to n records and returns how many it removed.
type Sweeper interface {
	Sweep(ctx context.Context, n int) (removed int, err error)
}

// Params are what a ledger tells its store with every call.
type Params struct {
	Kind      string
	Lease     time.Duration
	Quiet     time.Duration
	Retention time.Duration
}

// An Ask is an operation with the nonce of the call that begins it. The nonce is random
// and 128 bits long; the same nonce means the same call, sent again.
type Ask struct {
	Op
	Nonce [16]byte
	Later bool // it is recorded only, for the queue to send
}

// A ClaimAsk is a request for due operations. The nonce is as in [Ask].
type ClaimAsk struct {
	Nonce [16]byte
	N     int
}

// Grant is what an answer allows.
type Grant uint8

const (
	// AsIs: nothing; the entry says how things stand.
	AsIs Grant = iota + 1
	// Conflict: nothing; the key is known with another fingerprint.
	Conflict
	// Send: the caller may send the operation. Nobody else may have had it happen.
	Send
	// Look: the caller has to find out first.
	Look
)

// String returns the grant's name in lower case.
func (g Grant) String() string { return name(g, "no answer", "as is", "conflict", "send", "look") }

// An Answer is the answer to an [Ask].
type Answer struct {
	Grant Grant
	Entry Entry
	Err   error // this ask has no answer, and whether it was applied is not known
}

// A Settlement says what became of an operation.
type Settlement struct {
	Verb   Verb
	Key    string
	Token  uint64
	Nonce  [16]byte      // Receipt, Resolve
	State  State         // Receipt, Resolve: Confirmed or Failed
	Result []byte        // Accept, Confirm, Receipt, Resolve
	Again  bool          // Fail, Resolve
	Looked bool          // Defer
	Delay  time.Duration // Accept, Doubt, Defer, Fail
	Lease  time.Duration // Send, Extend
	By     string        // who says so: "call", "probe", "receipt", or an actor; at most 256 bytes
	Note   string        // why, at most MaxNote bytes
}

// Verb is the kind of a [Settlement].
type Verb uint8

// The verbs of settlements.
const (
	VerbAccept Verb = iota + 1
	VerbConfirm
	VerbFail
	VerbDoubt
	VerbDefer
	VerbAsk
	VerbSend
	VerbExtend
	VerbReceipt
	VerbResolve
	VerbForget
)

// String returns the verb in lower case.
func (v Verb) String() string {
	return name(v, "none", "accept", "confirm", "fail", "doubt", "defer", "ask", "send", "extend", "receipt", "resolve", "forget")
}

// A Query selects the operations of a kind for which all of its fields hold that are
// not zero.
type Query struct {
	Kind    string // required
	Key     string
	Account string
	State   State
	Open    bool // Started, Accepted, Unknown, or with a Review or a Due
	Review  bool // only those that a person has to resolve
	After   string
	N       int
}

// Counts are the operations of one account that the store keeps, by state. Failed are also
// those that are Waiting.
type Counts struct {
	Account                                       string
	Started, Accepted, Confirmed, Failed, Unknown int
	Waiting                                       int           // those of Failed with a Due: the queue sends them, for the first time or again
	Review                                        int           // those that a person has to resolve
	Resent, ResentConfirmed                       int           // those that were sent more than once, and those of them that are Confirmed
	Oldest                                        time.Duration // the age of the oldest that is open, will be sent again or waits for a person
}

// Ended is how many operations are Confirmed, or Failed and not Waiting.
func (c Counts) Ended() int { return c.Confirmed + c.Failed - c.Waiting }

// SuccessRate is the share of the operations that have ended which are Confirmed, and
// 1 if none has ended.
func (c Counts) SuccessRate() float64 {
	if c.Ended() <= 0 {
		return 1
	}
	return float64(c.Confirmed) / float64(c.Ended())
}

const (
	// MaxDuration is the longest of all durations, a hundred years of 365 days: times
	// then stay exact in every store.
	MaxDuration = 100 * 365 * 24 * time.Hour
	// MaxKey is the length of the longest key and account in bytes.
	MaxKey = 512
	// MaxNote is the length of the longest note in bytes.
	MaxNote = 1024
	// MaxLog is how many transitions of an operation are kept.
	MaxLog = 32
)

// name returns the name of a small number.
func name[N ~uint8](n N, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return names[0]
}
