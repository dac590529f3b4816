package seqgentest

import (
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/seqgen"
)

// Batches, names, and numbers that a store's own types could mistake.
var batchCases = []testCase{
	{name: "BatchAnswersInOrder", run: batchInOrder},
	{name: "EachItemHasItsOwnAnswer", run: ownAnswers},
	{name: "RepeatedKeyInABatch", run: repeatedKey},
	{name: "RepeatedAskInABatch", run: repeatedAskInABatch},
	{name: "ChangesOfABatchTakeEffectInOrder", run: changesInOrder},
	{name: "LargeBatch", run: largeBatch},
	{name: "SlicesAreNotKept", run: slicesAreNotKept, once: true},
}

func batchInOrder(e *env) {
	var asks []seqgen.Ask
	for n := range 50 {
		asks = append(asks, single(fmt.Sprintf("key-%d", 49-n), n+1))
	}
	for i, g := range e.reserve(asks...) {
		e.wantGrant(g, 1, 1, uint64(i+1))
	}
	var changes []seqgen.Change
	for n := range 50 {
		changes = append(changes, bump(fmt.Sprintf("key-%d", n), uint64(n+1)))
	}
	for i, o := range e.settle(changes...) {
		if o.Err != nil || o.Epoch != uint64(i+2) {
			e.Fatalf("bump %d of a batch was answered epoch %d (%v), want %d", i, o.Epoch, o.Err, i+2)
		}
	}
}

func ownAnswers(e *env) {
	e.grant(single("single", 1), 1, 1, 1)
	e.apply(raise("end", 1, seqgen.MaxNumber, 0))
	grants := e.reserve(open("single", 1), single("a", 1), more("b", 1, 5, 0), seen(single("c", 1), 1, 1), single("end", 1), open("d", 2))
	for i, want := range []error{seqgen.ErrMode, nil, seqgen.ErrStale, seqgen.ErrRolledBack, seqgen.ErrExhausted, nil} {
		if !errors.Is(grants[i].Err, want) {
			e.Fatalf("ask %d of a batch was answered %v, want %v", i, grants[i].Err, want)
		}
	}
	outcomes := e.settle(void("a", 1, 5, 5), void("a", 1, 1, 1), bump("single", 0), giveBack("b", grants[5], 1))
	for i, want := range []error{seqgen.ErrRolledBack, nil, nil, seqgen.ErrRolledBack} {
		if !errors.Is(outcomes[i].Err, want) {
			e.Fatalf("change %d of a batch was answered %v, want %v", i, outcomes[i].Err, want)
		}
	}
}

func repeatedKey(e *env) {
	grants := e.reserve(single("key", 2), single("other", 1), single("key", 3), open("key", 1), single("key", 1))
	e.wantGrant(grants[0], 1, 1, 2)
	e.wantGrant(grants[1], 1, 1, 1)
	e.wantGrant(grants[2], 1, 3, 5)
	if !errors.Is(grants[3].Err, seqgen.ErrMode) {
		e.Fatalf("an ask in another mode than the one before it was answered %v", grants[3].Err)
	}
	e.wantGrant(grants[4], 1, 6, 6)
}

func repeatedAskInABatch(e *env) {
	a := single("key", 4)
	for _, g := range e.reserve(a, a, a) {
		e.wantGrant(g, 1, 1, 4)
	}
	e.wantAt("key", 1, 4)
}

func changesInOrder(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	outcomes := e.settle(void("key", 1, 1, 2), bump("key", 0), void("key", 2, 1, 1), void("key", 1, 3, 3), bump("key", 0))
	for i, want := range []error{nil, nil, seqgen.ErrRolledBack, nil, nil} {
		if !errors.Is(outcomes[i].Err, want) {
			e.Fatalf("change %d was answered %v, want %v", i, outcomes[i].Err, want)
		}
	}
	if outcomes[1].Epoch != 2 || outcomes[4].Epoch != 3 {
		e.Fatalf("two bumps in a batch opened %d and %d", outcomes[1].Epoch, outcomes[4].Epoch)
	}
	e.wantVoids("key", 1, rng{1, 3, certain, seqgen.GaveUp})
}

func largeBatch(e *env) {
	const n = 512
	asks := make([]seqgen.Ask, n)
	changes := make([]seqgen.Change, n)
	for i := range asks {
		asks[i] = single(fmt.Sprint("key-", i%100, "-", i), i+1)
		changes[i] = void(asks[i].Key, 1, uint64(i+1), uint64(i+1))
	}
	for i, g := range e.reserve(asks...) {
		e.wantGrant(g, 1, 1, uint64(i+1))
	}
	for i, o := range e.settle(changes...) {
		if o.Err != nil {
			e.Fatalf("change %d: %v", i, o.Err)
		}
	}
	e.wantVoids(asks[n-1].Key, 1, rng{n, n, certain, seqgen.GaveUp})
}

func slicesAreNotKept(e *env) {
	asks := []seqgen.Ask{single("key", 3)}
	first := asks[0]
	e.wantGrant(e.reserve(asks...)[0], 1, 1, 3)
	asks[0] = single("other", 9)
	e.grant(first, 1, 1, 3)
	changes := []seqgen.Change{void("key", 1, 2, 2)}
	e.settle(changes...)
	changes[0] = void("key", 1, 3, 3)
	voids := e.wantVoids("key", 1, rng{2, 2, certain, seqgen.GaveUp})
	voids[0].Lo, voids[0].Hi = 7, 9
	e.wantVoids("key", 1, rng{2, 2, certain, seqgen.GaveUp})
}
