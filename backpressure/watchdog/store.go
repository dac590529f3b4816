package watchdog

import (
	"context"
	"time"
)

// A Store keeps what workers say, and who restarts them. Implement it to bring
// your own database; run [github.com/pawl-go/pawl/backpressure/watchdog/watchdogtest]
// against it before you trust it. The comments here are the specification, and each
// sentence that a test can decide has a subtest there.
//
// A store keeps one record for each name of a scope. Names and scopes do not touch
// each other. Beside the [Record] it keeps the nonces of the last [PastInstances]
// instances that had the name before this one.
//
// Every method is safe for concurrent use. A step is atomic per worker. A batch is
// not a transaction: each item has its own answer, in order, and when the method
// returns an error, some items may have been applied and others not. A name may
// stand in a batch more than once.
//
// Every step may be sent twice: a beat is recognised by nonce and number, a take by
// its nonce, and the others change nothing the second time.
//
// Time is the store's own, one clock for a scope, in microseconds. No time read by a
// caller decides anything. A new token is max(previous + 1, the store's time in
// microseconds). After a clock has gone back, what was said before counts as said
// now.
//
// When its context has ended, a method returns the context's error.
//
// The callers of this package have validated the arguments: names are 1 to
// [MaxName] bytes of UTF-8 without NUL, scopes match [A-Za-z0-9._-]{1,64}, a detail
// has at most [MaxDetail] bytes of UTF-8 without NUL, numbers are at most
// [MaxNumber], durations are positive and at most [MaxDuration]. A store does not
// retain slices.
type Store interface {
	// Beat records heartbeats. What a record answers, the first rule that fits:
	//
	//  1. There is no record: [ErrGone] unless the beat joins; [ErrFull] if the scope
	//     has p.Most records; otherwise one is made with a new token, and the beat is
	//     applied to it.
	//  2. The record has the beat's nonce, and the worker has left or the beat's Seq is
	//     not above the record's: it was sent before. Nothing changes.
	//  3. The record has the beat's nonce: the beat is applied.
	//  4. The beat joins, and its nonce is not one of the past instances': the record
	//     is the new instance's, with a new token, and the beat is applied. What was
	//     done about the worker stays: Attempts, GivenUp, Claim, NextAt and ActedAt.
	//  5. Otherwise: [ErrFenced].
	//
	// Applying sets what the beat says and BeatAt. For a new instance JoinedAt and
	// StateAt are now, and Stalled, Quiet and Running zero. For the same instance,
	// StateAt is now if the state is another, and the time since the record's BeatAt,
	// at least zero and at most [MaxCount] intervals of the beat, is added
	//
	//   - to Stalled, if the record and the beat are both Busy, at one Position;
	//   - to Quiet, if they have the same Turns, which are not zero, and in both no
	//     handler runs (Handler is zero);
	//   - to Running, if they have the same Handler, which is not zero;
	//
	// and what nothing is added to becomes zero.
	//
	// Every answer without an error has the record's token.
	Beat(ctx context.Context, p Params, beats []Beat) ([]Ack, error)

	// List returns the records of a scope whose names come after another in the order
	// of bytes, at most limit of them, in that order, and the store's time.
	List(ctx context.Context, scope, after string, limit int) (Page, error)

	// Act changes what is done about workers. Without a record all but KindForget are
	// answered [ErrGone].
	//
	//   - KindTake asks for the right to restart a worker. If the last take had this
	//     nonce: the same answer, and nothing changes. [ErrChanged] if the worker has
	//     left, has another Token, another Seq (unless that is zero), or a lower
	//     Stalled or Quiet than the action. If it was given up: [ErrGivenUp], and
	//     ActedAt is now. If now is before ActedAt, the clock has gone back, and the wait
	//     begins again: NextAt is as long from now as it was from ActedAt, ActedAt is now,
	//     and the answer is [ErrBusy]. [ErrBusy] before NextAt. If it had Most attempts: it is given
	//     up, ActedAt is now, and the answer is ErrGivenUp with First. Otherwise it is
	//     granted: Attempts is one more, Claim a new token, NextAt is Wait from now,
	//     ActedAt is now; the answer has Claim and Attempt.
	//   - KindDone ends the attempt: [ErrChanged] unless the record has the Claim.
	//     NextAt is Wait from now and ActedAt is now, the first time.
	//   - KindClear forgets the attempts of a worker that is well again: [ErrChanged]
	//     unless the record has the Claim, and Wait has passed since ActedAt. Attempts is
	//     zero and it is not given up.
	//   - KindResume does so at once, for a person. NextAt is not set any more, unless
	//     an attempt is under way.
	//   - KindForget drops the record: [ErrChanged] if it has another Token, or another
	//     Seq; a zero Token is any worker, and a zero Seq any Seq.
	Act(ctx context.Context, scope string, actions []Action) ([]Outcome, error)
}

// Limits of what a store is asked for.
const (
	MaxName   = 512 // bytes
	MaxDetail = 256 // bytes
	MaxNumber = 1<<63 - 1
	MaxBatch  = 1000 // beats, actions and records of one call

	// MaxDuration is the longest duration in a step.
	MaxDuration = 366 * 24 * time.Hour

	// MaxCount is how many intervals the time between two beats counts for at most:
	// one more than the heartbeats that may be missed. So neither a store that was
	// away nor a clock that jumped makes a worker look as if it stood still.
	MaxCount = 4

	// PastInstances is how many earlier instances of a name a store knows.
	PastInstances = 8
)

// Params are what one [Store.Beat] shares.
type Params struct {
	Scope string
	Most  int // records of the scope
}

// A Beat is one heartbeat.
type Beat struct {
	Name     string
	Nonce    [16]byte      // of the instance
	Join     bool          // the instance may take the name
	Leave    bool          // it is the last one
	Seq      uint64        // rises with every beat of an instance, from 1
	Interval time.Duration // the next comes after
	State    State
	Detail   string
	Position uint64 // what it has worked up to; stores compare it for equality only
	Pending  uint64 // what waits for it
	Turns    uint64 // of its loop
	Handler  uint64 // the handler that has run for longest; 0: none
	Busy     bool   // it should make progress
}

// An Ack is the answer to a beat.
type Ack struct {
	Token uint64 // of the instance
	Err   error
}

// A Page is a part of a scope's records.
type Page struct {
	Now     time.Time // the store's
	Records []Entry
}

// An Entry is a record and its name.
type Entry struct {
	Name string
	Record
}

// A Record is what a store keeps of a worker.
type Record struct {
	Token    uint64        // of the instance; rises with every instance of the name
	Seq      uint64        // of the last beat
	Interval time.Duration // between its beats
	Said     State         // the state that the worker told
	Detail   string
	Position uint64
	Pending  uint64
	Busy     bool
	Left     bool // it said goodbye

	JoinedAt, StateAt, BeatAt time.Time

	Stalled time.Duration // at one position with work to do
	Quiet   time.Duration // without a turn of the loop
	Running time.Duration // of the handler that has run for longest

	Attempts int       // restarts since it was last well
	GivenUp  bool      // there will be no more
	Claim    uint64    // of the last attempt; 0: none
	NextAt   time.Time // not before this another one; zero: at once
	ActedAt  time.Time // last attempt, or when it was last seen to be given up; zero: never
}

// A Kind is what an [Action] does.
type Kind uint8

// The actions of [Store.Act].
const (
	KindTake Kind = iota + 1
	KindDone
	KindClear
	KindResume
	KindForget
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindTake:
		return "take"
	case KindDone:
		return "done"
	case KindClear:
		return "clear"
	case KindResume:
		return "resume"
	case KindForget:
		return "forget"
	}
	return "unknown"
}

// An Action is one change by a watchdog. [Store.Act] says which fields a kind uses.
type Action struct {
	Kind    Kind
	Name    string
	Nonce   [16]byte
	Token   uint64 // of the worker
	Seq     uint64
	Stalled time.Duration
	Quiet   time.Duration
	Claim   uint64
	Wait    time.Duration
	Most    int
}

// An Outcome is the answer to an action.
type Outcome struct {
	Claim   uint64
	Attempt int
	First   bool // it was this action that gave up
	Err     error
}
