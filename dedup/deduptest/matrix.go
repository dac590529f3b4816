package deduptest

import (
	"fmt"

	"github.com/pawl-go/pawl/dedup"
)

// Every kind of settlement against every state of a record, by its owner and by
// somebody with another token.
var matrixCases = []testCase{
	{name: "EverySettlementInEveryState", run: everySettlementInEveryState},
}

// The states that a record can be in, and what a stranger is answered when
// nothing changes them.
const (
	stateAbsent      = "absent"
	stateForgotten   = "forgotten"
	stateClaimed     = "claimed under Rerun"
	stateClaimedHold = "claimed under Hold"
	stateLapsed      = "lapsed under Rerun"
	stateLapsedHold  = "lapsed under Hold"
	stateHeld        = "held"
	stateDone        = "done"
	stateReleased    = "released"
)

var strangerSees = map[string]seen{
	stateAbsent:      {dedup.Acquired, 1, ""},
	stateForgotten:   {dedup.Acquired, 1, ""},
	stateClaimed:     {dedup.InFlight, 0, ""},
	stateClaimedHold: {dedup.InFlight, 0, ""},
	stateLapsed:      {dedup.Acquired, 2, ""},
	stateLapsedHold:  {dedup.Unknown, 1, ""},
	stateHeld:        {dedup.Unknown, 1, ""},
	stateDone:        {dedup.Done, 0, "first"},
	stateReleased:    {dedup.Acquired, 2, ""},
}

// seen is what an ask of somebody new is answered.
type seen struct {
	state   dedup.State
	attempt int // for Acquired and Unknown
	result  string
}

// afterSettlement is what a stranger sees after the owner's settlement was
// applied; where a kind is missing, the owner's settlement is stale.
var afterSettlement = map[string]map[dedup.Kind]seen{
	stateAbsent:      {},
	stateForgotten:   {},
	stateClaimed:     claimedSettled,
	stateClaimedHold: claimedSettled,
	stateLapsed:      claimedSettled,
	stateLapsedHold:  claimedSettled,
	stateHeld: {
		dedup.KindComplete: {dedup.Done, 0, "second"},
		dedup.KindRelease:  {dedup.Acquired, 2, ""},
		dedup.KindHold:     {dedup.Unknown, 1, ""},
	},
	stateDone:     {dedup.KindComplete: {dedup.Done, 0, "first"}},
	stateReleased: {dedup.KindRelease: {dedup.Acquired, 2, ""}},
}

var claimedSettled = map[dedup.Kind]seen{
	dedup.KindComplete: {dedup.Done, 0, "second"},
	dedup.KindRelease:  {dedup.Acquired, 2, ""},
	dedup.KindHold:     {dedup.Unknown, 1, ""},
	dedup.KindExtend:   {dedup.InFlight, 0, ""},
}

// A cell is one field of the table, with an ID of its own.
type cell struct {
	state string
	kind  dedup.Kind
	own   bool
	owner dedup.Claim
}

func (c *cell) String() string {
	who := "its owner"
	if !c.own {
		who = "another token"
	}
	return fmt.Sprintf("%v by %s of an ID that is %s", c.kind, who, c.state)
}

func everySettlementInEveryState(e *env) {
	var cells []*cell
	for state := range afterSettlement {
		for kind := dedup.KindComplete; kind <= dedup.KindRetain; kind++ {
			cells = append(cells, &cell{state: state, kind: kind, own: true}, &cell{state: state, kind: kind})
		}
	}
	e.prepare(cells)
	for _, c := range cells {
		e.check(c)
	}
}

// prepare brings the ID of every cell into its state.
func (e *env) prepare(cells []*cell) {
	e.Helper()
	for i, c := range cells {
		id := fmt.Sprintf("cell-%d", i)
		switch c.state {
		case stateAbsent:
			c.owner = dedup.Claim{ID: id, Token: 1}
		case stateClaimedHold:
			c.owner = e.acquire(e.hold, id)
		case stateLapsed:
			c.owner = e.acquire(e.shortLease(e.p), id)
		case stateLapsedHold:
			c.owner = e.acquire(e.shortLease(e.hold), id)
		default:
			c.owner = e.acquire(e.p, id)
		}
		switch c.state {
		case stateForgotten:
			e.applied(forget(id))
		case stateHeld:
			e.applied(c.owner.Hold())
		case stateDone:
			e.applied(c.owner.Complete([]byte("first")))
		case stateReleased:
			e.applied(c.owner.Release())
		}
	}
	e.wait() // for the lapsed ones, and so that tokens rise for the forgotten
}

func (e *env) check(c *cell) {
	e.Helper()
	want, applies := afterSettlement[c.state][c.kind]
	if !c.own {
		applies = false
	}
	if !applies {
		want = strangerSees[c.state]
	}
	if c.kind == dedup.KindForget { // needs neither record nor token
		want, applies = seen{dedup.Acquired, 1, ""}, true
	}
	if c.kind == dedup.KindRetain { // succeeds, and a stranger sees no change
		applies = true
	}
	by := c.owner
	if !c.own {
		by.Token++
	}
	err := e.settle(e.p, settlementOf(c.kind, by, "second"))[0]
	if (err == nil) != applies {
		e.Fatalf("%v returned %v; want it applied: %t", c, err, applies)
	}
	got := e.probe(c.owner.ID)
	if got.State != want.state || string(got.Result) != want.result || want.attempt != 0 && got.Attempt != want.attempt {
		e.Fatalf("after %v a stranger is answered %v (attempt %d, result %q), want %v (attempt %d, result %q)",
			c, got.State, got.Attempt, got.Result, want.state, want.attempt, want.result)
	}
	if got.State == dedup.InFlight { // the owner is still the owner
		e.applied(c.owner.Complete(nil))
	}
	if got.State == dedup.Unknown && got.Token != c.owner.Token {
		e.Fatalf("after %v the ID is unknown with token %d, want its owner's, %d", c, got.Token, c.owner.Token)
	}
}
