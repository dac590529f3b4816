package reconcile

import (
	"context"
	"time"
)

// A CheckStore keeps what [Checks] found and counted. Implement it to bring your own
// database; run [github.com/pawl-go/pawl/reconcile/reconciletest.RunChecks] against it
// before you trust it. The comments here are the specification.
//
// A finding is known by its kind, its check and its subject. Every method is safe for
// concurrent use, and a step is atomic per finding. A batch is not a transaction: items take
// effect in order, as if each had been sent alone. When a method returns an error, nothing
// is known of any item, and sending all again is harmless: see each method.
//
// Time is the store's own, in microseconds. The caller has validated the arguments: kinds
// and checks match [A-Za-z0-9._-]{1,64}, subjects are 1 to [MaxSubject] bytes of UTF-8 without
// NUL, accounts 0 to [MaxKey], notes, details and By at most [MaxNote]. A store does not retain
// slices, and what it returns is the caller's to keep. When its context has ended, a method
// returns the context's error.
type CheckStore interface {
	// Report says what was seen, or decided, and returns one outcome for each report, in
	// order. A finding that has expired is no finding. The first rule that fits:
	//
	//  1. The nonce is that of the last report that changed the finding: the same outcome as
	//     then. Nothing changes.
	//  2. r.Version is not zero, and there is no finding or it has another: Changed. Nothing
	//     changes.
	//  3. The report would make a finding, or one that is Resolved unresolved again, and p.Most
	//     of the check are unresolved: TooMany. Nothing changes. (A store in which several
	//     can be made at once may go over by those.)
	//  4. By its verb:
	//
	//   - Suspect: without a finding one is made, Suspected; a Resolved one that is not dismissed
	//     becomes Suspected. Due is r.Delay from now. The outcome is Doubtful. Any other is
	//     Counted, and its Due and Detail stay.
	//   - Raise: without a finding one is made, Open: Raised. A Suspected one, and a Resolved
	//     one that is not dismissed, becomes Open: Raised if it never was (Times is zero),
	//     otherwise Reopened. Times grows by one and Opened is now. Open, Acknowledged, or
	//     dismissed: Counted. Due is r.Delay from now, unless it is dismissed.
	//   - Wait: of an unresolved finding Due is r.Delay from now: Applied. Otherwise Nothing.
	//   - Clear: a Suspected one that never was Open is erased, another that is unresolved becomes
	//     Resolved: Applied. Otherwise Nothing.
	//   - Acknowledge: an Open one becomes Acknowledged: Applied. Otherwise Nothing.
	//   - Resolve: an unresolved one becomes Resolved: Applied. Otherwise Nothing.
	//   - Forget: it is erased: Applied, also without a finding.
	//
	// Unresolved is Suspected, Open or Acknowledged. Dismissed is Resolved with a By, for as
	// long as no more than p.Lull has passed since Last: a person has seen to it, and it was
	// there all the time since.
	//
	// Suspect and Raise set Last to now, add r.N to Count, and set Account and Detail to the
	// report's, except where it is said; First is when the finding was made. Each change of
	// State gives the finding the Version max(previous + 1, the store's time in
	// microseconds), By and Note of the report, and appends a [Change] to Log; of more than
	// [MaxLog] the first four and the last ones are kept, and Dropped counts the others.
	//
	// Resolved sets Due to zero and Expires to p.Retention from now; Counted of a dismissed
	// one sets Expires so, too. Any other state sets Expires to zero.
	Report(ctx context.Context, p CheckParams, rs []Report) ([]Outcome, error)

	// Claim takes at most n unresolved findings of a check whose Due is not zero and has
	// passed, in the order of (Due, Subject). Due of each is then hold from now. Claims at
	// the same time take different ones. When the answer was lost, they are due again after
	// hold: nothing else is lost.
	Claim(ctx context.Context, p CheckParams, check string, n int, hold time.Duration) ([]Finding, error)

	// List returns at most q.N findings that the query selects, by ascending byte order
	// of (Check, Subject), beginning behind q.After. Fewer than q.N means that there are no more.
	List(ctx context.Context, q FindingQuery) ([]Finding, error)

	// Open counts the unresolved findings of a kind, by ascending byte order of their checks.
	// Checks without any may be left out.
	Open(ctx context.Context, kind string) ([]OpenFindings, error)

	// Tally keeps counts. Each cell, which is known by its series, start and writer, is
	// the greatest N that it was sent with. A cell whose start lies more than p.Keep before
	// now, or more than p.Keep after it, is not kept; one that was kept may be forgotten when
	// its start lies more than p.Keep before now, and not before.
	Tally(ctx context.Context, p CheckParams, cells []Cell) error

	// Volumes returns at most n series, by ascending byte order, beginning behind after, each
	// with the sums over all writers of the cells that begin at exactly those times. Since is
	// the earliest start that the store has of the series, whether it was asked for or not.
	// Fewer than n means that there are no more.
	Volumes(ctx context.Context, p CheckParams, after string, n int, starts []time.Time) ([]Volume, error)
}

// A CheckSweeper is a [CheckStore] that removes expired findings and old cells when it is
// told to. SweepChecks looks at up to n of each and returns how many it removed.
type CheckSweeper interface {
	SweepChecks(ctx context.Context, n int) (removed int, err error)
}

// CheckParams are what [Checks] tell their store with every call.
type CheckParams struct {
	Kind      string
	Most      int           // unresolved findings of a check
	Lull      time.Duration // after which a dismissed finding counts as a new one
	Retention time.Duration // of a resolved finding; longer than Lull
	Keep      time.Duration // of cells
}

// A Report is what a check saw of a subject, or what was decided about a finding.
type Report struct {
	Verb    ReportVerb
	Check   string
	Subject string
	Nonce   [16]byte      // random; the same nonce means the same report, sent again
	Version uint64        // of the finding that this is about; zero: whatever it is
	N       int64         // Suspect, Raise: how often it was seen
	Delay   time.Duration // Suspect, Raise, Wait
	Account string        // Suspect, Raise
	Detail  string        // Suspect, Raise: what is wrong
	By      string        // Acknowledge, Resolve: the actor; otherwise empty
	Note    string        // why
}

// ReportVerb is the kind of a [Report].
type ReportVerb uint8

// The verbs of reports.
const (
	ReportSuspect ReportVerb = iota + 1
	ReportRaise
	ReportWait
	ReportClear
	ReportAcknowledge
	ReportResolve
	ReportForget
)

// String returns the verb in lower case.
func (v ReportVerb) String() string {
	return name(v, "none", "suspect", "raise", "wait", "clear", "acknowledge", "resolve", "forget")
}

// Outcome says what became of a [Report].
type Outcome uint8

const (
	// Nothing: the finding is not in a state in which the report says anything.
	Nothing Outcome = iota + 1
	// Doubtful: it is suspected from now on.
	Doubtful
	// Raised: it is open from now on, for the first time.
	Raised
	// Reopened: it is open again.
	Reopened
	// Counted: it was known.
	Counted
	// Applied: what was decided is recorded.
	Applied
	// Changed: it is not what the report is about any more.
	Changed
	// TooMany: there are too many of the check; nothing was kept.
	TooMany
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	return name(o, "no answer", "nothing", "doubtful", "raised", "reopened", "counted", "applied", "changed", "too many")
}

// FindingState is how a finding stands.
type FindingState uint8

const (
	// Suspected: it is looked at again before anybody is told.
	Suspected FindingState = iota + 1
	// Open: it was raised, and holds as far as is known.
	Open
	// Acknowledged: a person knows of it.
	Acknowledged
	// Resolved: it has gone, or a person has seen to it.
	Resolved
)

// String returns the state in lower case.
func (s FindingState) String() string {
	return name(s, "none", "suspected", "open", "acknowledged", "resolved")
}

// MarshalText returns the name, for JSON.
func (s FindingState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name.
func (s *FindingState) UnmarshalText(text []byte) error {
	for i := Suspected; i <= Resolved; i++ {
		if i.String() == string(text) {
			*s = i
			return nil
		}
	}
	return invalid("state of a finding of %d bytes", len(text))
}

// A Finding is something that is not as it should be. Times are the store's.
type Finding struct {
	Kind    string `json:"kind"`
	Check   string `json:"check"`
	Subject string `json:"subject"` // what it is about; personal data if IDs are
	Account string `json:"account,omitempty"`

	State   FindingState `json:"state"`
	Version uint64       `json:"version"` // rises with each change of State
	Detail  string       `json:"detail,omitempty"`
	Count   int64        `json:"count"` // how often it was seen
	Times   int          `json:"times"` // how often it was opened
	By      string       `json:"by,omitempty"`
	Note    string       `json:"note,omitempty"` // why it is in this state

	Read    time.Time `json:"read"` // now, by the store's clock
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Opened  time.Time `json:"opened,omitzero"`  // the last time
	Due     time.Time `json:"due,omitzero"`     // when it is looked at again; zero: it is not
	Expires time.Time `json:"expires,omitzero"` // when it may be forgotten; zero: not as it is

	Log     []Change `json:"log"`
	Dropped int      `json:"dropped,omitempty"` // changes between the first and the last of Log
}

// A Change is one line of a finding's history.
type Change struct {
	At    time.Time    `json:"at"`
	State FindingState `json:"state"` // after it
	By    string       `json:"by,omitempty"`
	Note  string       `json:"note,omitempty"`
}

// A FindingQuery selects the findings of a kind for which all of its fields hold that are
// not zero.
type FindingQuery struct {
	Kind       string // required
	Check      string
	Subject    string
	Account    string
	State      FindingState
	Unresolved bool
	After      FindingKey
	N          int
}

// A FindingKey is where a page of findings ended: the last one's check and subject.
type FindingKey struct{ Check, Subject string }

// OpenFindings are the unresolved findings of one check.
type OpenFindings struct {
	Check                         string
	Suspected, Open, Acknowledged int
	// Oldest is how long ago the oldest that is Open or Acknowledged was opened.
	Oldest time.Duration
}

// A Cell is how much one writer has counted of a series in the window that begins at Start.
type Cell struct {
	Series string // 1 to MaxSubject bytes
	Start  time.Time
	Writer [16]byte // random, one for each life of a process
	N      int64    // at least 1
}

// A Volume is how much was counted of a series.
type Volume struct {
	Series string
	Since  time.Time
	N      []int64 // one for each start that was asked for
}

// MaxSubject is the length of the longest subject and series in bytes.
const MaxSubject = 1024
