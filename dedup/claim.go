package dedup

import "time"

// State is what a store knows of an ID, and so the answer to a claim.
type State uint8

const (
	// Acquired: the effect is yours to run. Settle the claim afterwards.
	Acquired State = iota + 1
	// InFlight: another owner is at work and its lease is running.
	InFlight
	// Done: the effect has happened; Claim.Result is what its owner stored.
	Done
	// Conflict: the ID is known with another fingerprint. This is another message
	// under the same ID, or a changed one: look at it, do not run it.
	Conflict
	// Unknown: the ID is held. An owner vanished, or gave up without knowing, and
	// the policy is Hold. Only a settlement ends it; see [Guard.Held].
	Unknown
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Acquired:
		return "acquired"
	case InFlight:
		return "in flight"
	case Done:
		return "done"
	case Conflict:
		return "conflict"
	case Unknown:
		return "unknown"
	}
	return "no answer"
}

// Lapse says what becomes of a claim whose lease ran out.
type Lapse uint8

const (
	// Rerun gives the ID to the next one who asks, with a new token. It is for
	// effects that may run again: the zero value.
	Rerun Lapse = iota
	// Hold lets nobody run it again until a settlement says what happened. It is
	// for effects that cost money.
	Hold
)

// String returns the policy's name in lower case.
func (l Lapse) String() string {
	if l == Hold {
		return "hold"
	}
	return "rerun"
}

// A Request names one message.
type Request struct {
	// ID is the message's identity within the guard's scope: 1 to 512 bytes of
	// UTF-8 without NUL. See [MessageID] and [FingerprintID].
	ID string
	// Fingerprint is a digest of the content, to tell a duplicate from another
	// message under the same ID: see [Guard.Claim]. Zero is not compared.
	Fingerprint [32]byte
}

// A Claim is the answer to a Request.
type Claim struct {
	State   State
	ID      string
	Token   uint64        // rises with every owner of this ID; for Acquired and Unknown
	Attempt int           // 1 for the first owner; counts owners, not duplicates
	Left    time.Duration // of the lease, by the store's clock; zero: not known
	Age     time.Duration // since the completion (Done) or the grant (InFlight, Unknown)
	Result  []byte        // what the owner stored, for Done
	Err     error         // in batches: this ID has no answer, and its claim is not known
}

// Complete returns the settlement that records the effect as done, with a
// result for later duplicates. A nil result is stored as an empty one.
func (c Claim) Complete(result []byte) Settlement {
	return Settlement{Kind: KindComplete, ID: c.ID, Token: c.Token, Result: result}
}

// Release returns the settlement that gives the ID to the next one who asks: the
// effect certainly did not happen.
func (c Claim) Release() Settlement {
	return Settlement{Kind: KindRelease, ID: c.ID, Token: c.Token}
}

// Hold returns the settlement that lets nobody run the ID again until another
// settlement ends it: the caller cannot tell whether the effect happened.
func (c Claim) Hold() Settlement {
	return Settlement{Kind: KindHold, ID: c.ID, Token: c.Token}
}

// Extend returns the settlement that makes the lease end d from now, by the
// store's clock.
func (c Claim) Extend(d time.Duration) Settlement {
	return Settlement{Kind: KindExtend, ID: c.ID, Token: c.Token, Lease: d}
}

// A Settlement says what became of a claim. Claims make them.
type Settlement struct {
	Kind      Kind
	ID        string
	Token     uint64
	Result    []byte        // KindComplete
	Lease     time.Duration // KindExtend
	Retention time.Duration // KindRetain
}

// Kind is the kind of a [Settlement].
type Kind uint8

// The kinds of settlement. KindForget is made by [Guard.Forget] and KindRetain by
// [Guard.Retain]; they have no token.
const (
	KindComplete Kind = iota + 1
	KindRelease
	KindHold
	KindExtend
	KindForget
	KindRetain
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case KindComplete:
		return "complete"
	case KindRelease:
		return "release"
	case KindHold:
		return "hold"
	case KindExtend:
		return "extend"
	case KindForget:
		return "forget"
	case KindRetain:
		return "retain"
	}
	return "none"
}
