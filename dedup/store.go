package dedup

import (
	"context"
	"time"
)

// A Store keeps the claims of a [Guard]. Implement it to bring your own
// database; run [github.com/pawl-go/pawl/dedup/deduptest] against it before you
// trust it. The comments here are the specification, and each sentence has a
// subtest there.
//
// Every method is safe for concurrent use. A step is atomic per ID: two callers
// never both see an ID as free. A batch is not a transaction: each item has its
// own answer, and when the method returns an error, some items may have been
// applied and others not. Items of a batch take effect in order, as if each had
// been sent alone, so an ID may stand in a batch more than once.
//
// Every step may be sent twice, because clients re-send after a broken
// connection: a repeated Claim is recognised by its nonce, a repeated
// settlement by its token.
//
// Time is the store's own. No time read by a caller decides anything.
//
// When its context has ended, a method returns the context's error; asking again
// tells what was applied.
//
// The guard has validated the arguments: IDs are 1 to 512 bytes of UTF-8
// without NUL, scopes match [A-Za-z0-9._-]{1,64}, durations are positive and at
// most [MaxDuration]. A store does not retain slices after it returns, and what
// it returns is the caller's to keep.
type Store interface {
	// Claim answers one question per ask, in the order of the asks: may I run the
	// effect of this ID? It returns one Claim for each ask, or an error when it
	// has no answer for any of them. A claim whose Err is set has no answer;
	// whether it was applied is then unknown.
	//
	// What a record answers, the first rule that fits:
	//
	//  1. There is no record, or its retention has passed: Acquired, with
	//     Attempt 1. The record now holds the ask's nonce and fingerprint, the
	//     policy p.OnLapse, and a lease of p.Lease.
	//  2. The record and the ask both have a fingerprint and the two differ:
	//     Conflict. Nothing changes. A record never changes its fingerprint
	//     before its retention has passed; one without takes that of the next ask
	//     that acquires it.
	//  3. Completed: Done, with the stored result. If the record was completed by
	//     the very ask (p.Complete and the same nonce): Acquired again, unchanged.
	//  4. Held, or claimed under Hold with a lapsed lease: Unknown, with the token
	//     that a settlement needs to end it. Nothing changes.
	//  5. Claimed with a running lease: Acquired again, with the same token and
	//     attempt, if the nonce is the same; InFlight otherwise. Nothing changes.
	//  6. Claimed under Rerun with a lapsed lease, or released: Acquired, with the
	//     next Attempt and a new token, lease, policy and nonce. A released record
	//     whose nonce is the ask's is a late copy of a spent ask: InFlight with
	//     Left zero, and nothing changes.
	//
	// A new token is max(previous + 1, the store's time in microseconds), so that
	// it rises while the record lives and also after it was lost.
	//
	// Left is what remains of the lease for Acquired and InFlight; zero means not
	// known, which a store answers when it knows only that another transaction is
	// about to claim. Age is the time since the completion for Done, since the
	// claim was granted for InFlight and Unknown; zero where it is not known.
	//
	// With p.Complete, an ask that acquires also completes, with an empty result,
	// in the same step.
	//
	// A record that is held, claimed under Hold, or claimed with a running lease
	// never expires. Any other may be forgotten p.Retention after its last change,
	// and not before, nor before the time until which it was retained.
	Claim(ctx context.Context, p Params, asks []Ask) ([]Claim, error)

	// Settle ends or extends claims. It returns one error per settlement, in
	// order, or a nil slice when all were applied; the second error means that
	// nothing is known of any of them.
	//
	//   - Completing, releasing or holding needs the record's token and a record
	//     that is claimed (lapsed or not) or held. Done stores the result and
	//     starts the retention; release makes the ID free for the next attempt and
	//     keeps the record; hold makes it Unknown for everybody.
	//   - Extending needs the record's token and a record that is claimed, lapsed
	//     or not: the lease then ends Settlement.Lease from now.
	//   - Completing, releasing or holding that was applied before with the same
	//     token succeeds again and changes nothing; the first result stays.
	//   - Anything else is [ErrStale]: another token, a record that ended another
	//     way, or no record. Nothing changes.
	//   - Forgetting needs no token and no record. It erases the record with its
	//     ID, result and fingerprint; the owner, if any, is stale from then on, and
	//     the ID is new again.
	//   - Retaining needs no token and no record either. A record that is done then
	//     stays at least Settlement.Retention from now; one that stays longer anyway
	//     is left as it is. So is a record that is not done, and nothing is made
	//     where there is none, or none any more.
	Settle(ctx context.Context, p Params, s []Settlement) ([]error, error)

	// Held lists at most n claims of the scope that are Unknown: held, or claimed
	// under Hold with a lapsed lease. They come in ascending byte order of their
	// IDs, beginning behind after; the empty string begins at the first. Each
	// carries ID, Token, Attempt and Age, so that a settlement can end it.
	// Fewer than n means that there are no more.
	Held(ctx context.Context, scope, after string, n int) ([]Claim, error)
}

// A Widener is a [Store] that works joined calls faster side by side than one after
// another: MergeWidth is how many of them a guard sends at once, 1 to 8. Wrap it with
// the store, or one call is under way at a time.
type Widener interface {
	MergeWidth() int
}

// Params are what one guard tells its store with every call.
type Params struct {
	Scope     string
	Lease     time.Duration
	Retention time.Duration
	OnLapse   Lapse
	Complete  bool // Claim also completes: see [Guard.FirstSeen]
}

// An Ask is a Request with the nonce of the call that makes it. The nonce is
// random and 128 bits long; the same nonce means the same call, sent again.
type Ask struct {
	Request
	Nonce [16]byte
}

// MaxDuration is the longest lease and the longest retention, a hundred years
// of 365 days: times then stay exact in every store (Redis computes with 53
// bits).
const MaxDuration = 100 * 365 * 24 * time.Hour
