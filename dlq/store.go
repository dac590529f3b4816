package dlq

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the letters of a [Queue]. Implement it to bring your own database;
// run [github.com/pawl-go/pawl/dlq/dlqtest] against it before you trust it. The
// comments here are the specification, and each sentence has a subtest there.
//
// A letter belongs to a stream, and no step concerns more than one stream, except
// that a batch may hold items of several. The letters of a stream with the same key
// are a lane ([Record.Lane]), in the order of Seq. The unresolved letters of a lane
// are worked one at a time, and the first holds up the others, in whichever state it
// is. A worker does not claim letters but lanes: the lane has the lease and the
// token.
//
// Every method is safe for concurrent use, and every step may be sent twice, because
// clients re-send after a broken connection: a Put, a Claim, a Change, a SaveJob and
// an Alert are recognised by their nonces, a settlement by its token. Items of a
// batch take effect in order, as if each had been sent alone. When a method returns
// an error, nothing is known of any item, and sending all again is harmless.
//
// Time is the store's own, in microseconds. No time read by a caller decides
// anything.
//
// The queue has validated the arguments: IDs and keys are 1 to 512 bytes of UTF-8
// without NUL (a key may be empty), streams match [A-Za-z0-9._-]{1,64}, fingerprints
// [0-9a-f]{1,64}, IDs of jobs [A-Za-z0-9._-]{1,64}, verbs, actors and reasons are UTF-8
// without NUL, bodies at most [MaxBody] long, durations are not negative and at most
// [MaxDuration]. A store does not retain slices after it returns, and what it
// returns is the caller's to keep.
type Store interface {
	// Put stores letters and returns one answer for each, in order. When it returns,
	// the answers are durable, as far as this store can make them so.
	//
	// What a letter is answered, the first rule that fits, where the newest letter is
	// the one of its stream and ID with the greatest Seq:
	//
	//  1. The newest letter was put last with the same nonce: as it was answered then.
	//     Nothing changes.
	//  2. The newest letter is unresolved: Duplicate. The failure, if there is one, is
	//     added to its log, and a letter that is begun is then begun no longer, as after
	//     a change, and due after Delay: a try that began before the failure must not
	//     resolve it. Nothing else of the letter changes.
	//  3. IfBlocked is set, and the lane that the letter would be in has no unresolved
	//     letter: NotBlocked. Nothing is stored.
	//  4. The stream has p.Capacity unresolved letters, or the store has no room of its
	//     own: Full. Nothing is stored. Puts that run at the same time may exceed the
	//     capacity, each by its own letters.
	//  5. Otherwise Added: the letter is stored in StateWaiting with a new Seq, greater
	//     than any other of its lane, due after Delay, its log empty or with the failure.
	//
	// Letters that have ended neither block nor answer for a new one of their ID.
	Put(ctx context.Context, p Params, letters []Put) ([]Answer, error)

	// Claim takes lanes of a stream for one worker, at most a.N, in the order in which
	// they became due, those of the same moment in any, and returns for each its first
	// unresolved letter; it stops after the letter that brings the bodies (Body and
	// Original) to a.Bytes.
	//
	// A lane can be claimed if its first unresolved letter is in StateWaiting and due,
	// and if it is not claimed or its lease has lapsed. It then has a new token,
	// max(previous + 1, the store's time in microseconds), and a lease of a.Lease, and
	// the letter is begun: Tries grows by one. A lane that was blocked or claimed became
	// due when that ended, if its letter was due before.
	//
	// When the nonce is that of an earlier claim, and lanes taken by it are still
	// claimed under a running lease with a letter that is begun under their token, the
	// answer is those as they are now, and nothing changes. When there are none, the
	// ask is a new one.
	//
	// When fewer than a.N were claimed and a.Bytes was not reached, Claimed.Next is the
	// time until the next lane can be claimed, because a delay ends or a lease lapses;
	// zero means that there is none, or that the store does not know.
	Claim(ctx context.Context, a Ask) (Claimed, error)

	// Settle records what became of claimed lanes. It returns one error per settlement,
	// in order, or a nil slice when all were applied.
	//
	// Every settlement needs the token of its lane, which is claimed, lapsed or not;
	// KindResolve, KindRetry and KindReview also need that the letter s.Seq is begun
	// under that token. Beside that:
	//
	//   - KindResolve: the letter is StateResolved. It ends: Settled is now, and it may be
	//     forgotten after p.Retention, which is Expires, and not before.
	//   - KindRetry: the failure is added to the log, and the letter is due after s.Delay.
	//   - KindReview: the failure is added to the log, and the letter is in StateReview.
	//   - KindRelease: the letter, if it is begun under the token, was not tried: Tries
	//     is one less. It is due as it was before.
	//   - KindExtend: the lease ends s.Lease from now.
	//
	// All but KindExtend release the lane. A lane that is not under a running lease may
	// be forgotten when it has had no unresolved letter for p.Retention.
	//
	// The last settlement of a letter that was applied, but no extension, succeeds again
	// with the same token and changes nothing, for as long as the letter is there, in
	// that lane, and has not been claimed since; so does the release of a lane, after
	// whichever settlement released it, until it is claimed again or forgotten. Anything
	// else is [ErrStale], and nothing changes.
	Settle(ctx context.Context, p Params, s []Settlement) ([]error, error)

	// Change applies what a person decided about letters, whatever their lanes are
	// doing. It returns one error per change, in order, or a nil slice when all were
	// applied.
	//
	// A change is about the letter with the number c.Seq, which has the ID c.ID. If
	// there is none, the error is [ErrNotFound]; if its state does not allow the
	// change, [ErrState]; if c.Before is not zero and not the letter's digest,
	// [ErrChanged]; in this order, and nothing changes. All but ChangeForget and
	// ChangeNote need an unresolved letter, and take it from its worker: it is no longer
	// begun, and what the worker settles of it is [ErrStale], while the lane stays
	// claimed until it is released or lapses.
	//
	//   - ChangeEdit: Body is c.Body, Digest c.After. Original is the body before, unless
	//     there is an Original already.
	//   - ChangeApprove: the letter is in StateWaiting, due at once, with Tries zero. If
	//     c.Job is not empty, it is the letter's Job, and the job counts it, see [Job];
	//     without such a job the error is ErrNotFound.
	//   - ChangeReject, ChangeDiscard: the letter ends in StateRejected, StateDiscarded:
	//     p.Retention begins.
	//   - ChangeSkip: the letter is in StateReview and Aside, which puts it in a lane of
	//     its own. A letter that is Aside does not allow it.
	//   - ChangeForget: the letter is removed, in any state.
	//   - ChangeNote: nothing happens to the letter. With c.Seq zero the note is about
	//     none, and the letter is not looked for.
	//
	// Each change that is applied appends an [Entry] in the same step. A change whose
	// nonce is that of an entry of its stream was applied by this very call: it
	// succeeds, and nothing happens. An entry is never changed, and may be forgotten
	// after p.Audit, and not before.
	Change(ctx context.Context, p Params, c []Change) ([]error, error)

	// SaveJob stores a redrive job, and returns it as it is stored then. If j.Version is
	// zero, there must not be one with its stream and ID yet; otherwise the stored
	// one must have this version. The new version is one greater; Data and Ended are
	// j's, Updated is now, and Created too if it is new; the counts stay. Otherwise
	// the error is [ErrChanged], or [ErrNotFound] if there is none, and the job
	// is the stored one. A job that was last saved with the same nonce was saved by
	// this very call.
	//
	// A job that is Ended may be forgotten p.Retention after Updated, and not before.
	SaveJob(ctx context.Context, p Params, j Job) (Job, error)

	// Alert answers for each alarm, in order, whether it is the first: it is not if an
	// alarm with its stream and fingerprint was, and that one's Window has not passed,
	// unless that one had the same nonce. When its window has passed, an alarm may be
	// forgotten.
	Alert(ctx context.Context, alarms []Alarm) ([]bool, error)

	// List returns at most q.N letters that the query selects, by ascending Seq,
	// beginning behind q.After. If Page.Next is not zero, there may be more: ask again
	// with it as q.After. A page may be short, or empty, although there are more, since
	// a store bounds how much it looks at.
	List(ctx context.Context, q Query) (Page, error)

	// Groups returns at most n groups of a stream, by ascending fingerprint, beginning
	// behind after. Fewer than n means that there are no more.
	Groups(ctx context.Context, stream, after string, n int) ([]Group, error)

	// Audit returns at most q.N entries that the query selects, in the order in which
	// they were appended, which is that of Seq, beginning behind q.After. The second
	// result is as Page.Next.
	Audit(ctx context.Context, q AuditQuery) ([]Entry, uint64, error)

	// Jobs returns at most n jobs of a stream, by ascending ID, beginning behind after.
	// Fewer than n means that there are no more.
	Jobs(ctx context.Context, stream, after string, n int) ([]Job, error)

	// Totals counts the letters of at most n streams, by ascending name, beginning
	// behind after. A stream without letters may be left out. Fewer than n means that
	// there are no more. Each number is exact up to [MaxCount], where a store may stop
	// counting.
	Totals(ctx context.Context, after string, n int) ([]Totals, error)
}

// A Sweeper is a [Store] that removes what its retention has left behind when it is
// told to. Sweep looks at up to n things (letters, entries, jobs, alarms, lanes),
// removes those whose retention has passed, and returns how many letters and entries
// it removed; it goes on where the last call stopped. What is unresolved stays.
type Sweeper interface {
	Sweep(ctx context.Context, n int) (removed int, err error)
}

// A Widener is a [Store] that works joined calls faster side by side than one after
// another: MergeWidth is how many of them a queue sends at once, 1 to 8. Wrap it with
// the store, or one call is under way at a time.
type Widener interface {
	MergeWidth() int
}

// Params are what a queue tells its store about bounds.
type Params struct {
	Retention time.Duration // of letters and jobs that have ended; positive
	Audit     time.Duration // of entries; positive
	Capacity  int           // of a stream: unresolved letters; positive
}

// A Put is a letter on its way into a store. The nonce is random and 128 bits long;
// the same nonce means the same call, sent again.
type Put struct {
	Nonce           [16]byte
	Stream, ID, Key string
	Body            []byte
	Digest          [32]byte
	Failure         Failure // zero (no Fingerprint): nothing has failed
	Delay           time.Duration
	IfBlocked       bool
}

// An Answer says what became of a letter that was put.
type Answer uint8

const (
	// Added: the letter is stored.
	Added Answer = iota + 1
	// Duplicate: an unresolved letter has its ID; the failure was added to it.
	Duplicate
	// NotBlocked: no unresolved letter has its key; nothing was stored.
	NotBlocked
	// Full: there is no room; nothing was stored.
	Full
)

// String returns the answer's name in lower case.
func (a Answer) String() string {
	switch a {
	case Added:
		return "added"
	case Duplicate:
		return "duplicate"
	case NotBlocked:
		return "not blocked"
	case Full:
		return "full"
	}
	return "no answer"
}

// An Ask is a request for work. The nonce is as in [Put].
type Ask struct {
	Nonce  [16]byte
	Stream string
	N      int
	Bytes  int // one letter in any case
	Lease  time.Duration
}

// Claimed is the answer to an [Ask].
type Claimed struct {
	Claims []Claim
	Next   time.Duration
}

// A Claim is a lane that a worker holds, with its first letter.
type Claim struct {
	Record Record
	Lane   string
	Token  uint64 // rises with every owner of the lane
	Left   time.Duration
}

// A Settlement says what became of a claimed lane.
type Settlement struct {
	Kind         Kind
	Stream, Lane string
	Token        uint64
	Seq          uint64        // of the letter
	Failure      Failure       // KindRetry, KindReview
	Delay        time.Duration // KindRetry; zero: due at once
	Lease        time.Duration // KindExtend
}

// Kind is the kind of a [Settlement].
type Kind uint8

// The kinds of settlement.
const (
	KindResolve Kind = iota + 1
	KindRetry
	KindReview
	KindRelease
	KindExtend
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case KindResolve:
		return "resolve"
	case KindRetry:
		return "retry"
	case KindReview:
		return "review"
	case KindRelease:
		return "release"
	case KindExtend:
		return "extend"
	}
	return "none"
}

// A Query selects the letters of a stream for which all of its fields hold that are
// not zero, and says which part of them is wanted: see [Page].
type Query struct {
	Stream      string // required
	ID          string
	Key         string
	State       State
	Fingerprint string
	Job         string
	From, Until time.Time // of Record.Put: from From on, and before Until
	After       uint64    // Seq: 0, or the Next of the last page
	N           int       // 1 to 1,000
	// Heads leaves Body and Original out, which it does not fetch.
	Heads bool
}

// A Page is a part of a list. It may be short although there are more.
type Page struct {
	Records []Record
	Next    uint64 // zero: there are no more
}

// A Group is the unresolved letters of a stream with one fingerprint. It begins with
// the first of them and ends with the last: First is when it began, Last when a
// failure of it was last recorded, by the store's clock. Letters without fingerprint
// are in no group.
type Group struct {
	Stream, Fingerprint string
	Waiting, Review     int
	First, Last         time.Time
}

// An AuditQuery selects the entries of a stream for which all of its fields hold that
// are not zero.
type AuditQuery struct {
	Stream string // required
	ID     string
	Job    string
	After  uint64 // Entry.Seq: 0, or what the last call returned
	N      int    // 1 to 1,000
}

// Totals are the letters of a stream by state.
type Totals struct {
	Stream                                         string
	Waiting, Review, Resolved, Discarded, Rejected int
	// Oldest is the time since the first unresolved letter was put; zero if there is
	// none.
	Oldest time.Duration
}

// Errors of a store that a caller branches on.
var (
	// ErrStale says that the lane is no longer the caller's, or the letter is not: its
	// lease lapsed and another worker took over, or a person changed the letter.
	// Nothing was changed.
	ErrStale = errors.New("dlq: stale claim")
	// ErrNotFound says that there is no such letter or job.
	ErrNotFound = errors.New("dlq: not found")
	// ErrState says that the letter or the job is in a state in which it cannot be
	// changed like that. Nothing was changed.
	ErrState = errors.New("dlq: the state does not allow it")
	// ErrChanged says that the letter or the job was changed since the caller saw it.
	// Nothing was changed: look again.
	ErrChanged = errors.New("dlq: it was changed meanwhile")
)

const (
	// MaxCount is how many letters of a state are counted in any case.
	MaxCount = 1_000_000

	// MaxBody is the length in bytes of the longest Record.Body and Record.Original.
	MaxBody = 16<<20 + 64<<10

	// MaxReason is the length in bytes of the longest Change.Reason.
	MaxReason = 1024

	// MaxJob is the length in bytes of the longest Job.Data.
	MaxJob = 16 << 10

	// MaxDuration is the longest lease, delay and retention, a hundred years of 365
	// days: times then stay exact in every store.
	MaxDuration = 100 * 365 * 24 * time.Hour
)
