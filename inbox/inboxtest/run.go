// Package inboxtest is the conformance suite of [inbox.Store]: every sentence of
// its comments is a subtest here. A store that passes may be trusted with what it
// answers one caller after another, with concurrent callers, with steps sent
// twice, and, in a bubble, with random histories compared to [inbox.Memory].
//
// With Config.Reopen it also shows that nothing is lost when the store is closed
// and opened. It does not show that a store survives a crash, a lost connection
// or a failover of its server; test those with the real server beside it.
//
//	func TestStore(t *testing.T) {
//		inboxtest.Run(t, inboxtest.Config{
//			New: func(t *testing.T) inbox.Store { return open(t) },
//		})
//	}
//
// The suite needs the standard library only. [Faulty] fails on purpose, to test
// what stands on a store. [Storm] tests the endpoint of a webhook and what stands
// behind it, which need not use package inbox.
package inboxtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Config says how to make a store and how to move its clock. At most one of
// Sleep and Bubble is needed: a store that reads the process's clock sets
// Bubble, a store on a simulated server sets Sleep, and a store on a real
// server sets neither.
type Config struct {
	// New makes an empty store for one subtest and registers its clean-up with
	// t.Cleanup. The suite calls it several times at once unless Sleep is set.
	New func(t *testing.T) inbox.Store

	// Reopen closes a store that New has made, or that Reopen has returned, and
	// opens it again on the same data. Nil: the store is not durable, and the
	// subtests of "Reopen" are skipped.
	Reopen func(t *testing.T, s inbox.Store) inbox.Store

	// Sleep moves the store's clock forward. Nil means that the clock runs by
	// itself, and the suite waits with time.Sleep. Where it is set, subtests run
	// one after another, because they may share that clock. A call with a
	// duration up to a year must return at once.
	Sleep func(time.Duration)

	// Bubble runs each subtest, and New with it, in a [testing/synctest] bubble of
	// its own, in which time.Now and time.Sleep are virtual. It is for stores
	// whose time is the process's and that wait for no network.
	Bubble bool

	// Steps is how long the random histories are that are compared to
	// [inbox.Memory]. Zero means 800.
	Steps int

	// Many is how many events the subtest of large batches accepts at once. Zero
	// means 1,000.
	Many int

	// Once leaves the subtests of "Twice" out: for one more server of a kind on which the
	// same store has passed them.
	Once bool
}

// Run tests the stores that c.New makes. Under "Once" every step is sent once;
// "Twice" runs the same subtests with every step sent twice and the first answer
// checked against the second.
//
// A store on a real server takes leases of 100 milliseconds and real sleeps.
// Margins are one-sided: what must not have happened yet has an hour, what must
// have happened has had twice its time, so a busy machine makes the suite slow
// and never red.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.New == nil {
		t.Fatal("inboxtest: Config.New is nil")
	}
	t.Run("Once", func(t *testing.T) {
		for _, tc := range allCases() {
			c.run(t, tc, false)
		}
	})
	if c.Once {
		return
	}
	t.Run("Twice", func(t *testing.T) {
		for _, tc := range allCases() {
			if !tc.once {
				c.run(t, tc, true)
			}
		}
	})
}

// A testCase is one subtest.
type testCase struct {
	name string
	run  func(e *env)
	once bool // the case counts sendings itself, or means nothing when doubled
}

func allCases() []testCase {
	var all []testCase
	for _, cases := range [][]testCase{
		acceptCases, conflictCases, fieldCases, claimCases, dueCases, settleCases, fenceCases,
		outcomeCases, failureCases, formCases, changeCases, replayCases, redactCases, forgetCases,
		listCases, findCases, sweepCases, eraseCases, concurrentCases, reopenCases, modelCases,
	} {
		all = append(all, cases...)
	}
	return all
}

func (c Config) run(t *testing.T, tc testCase, twice bool) {
	t.Run(tc.name, func(t *testing.T) {
		if c.Sleep == nil {
			t.Parallel()
		}
		if c.Bubble {
			synctest.Test(t, func(t *testing.T) { tc.run(c.env(t, twice)) })
			return
		}
		tc.run(c.env(t, twice))
	})
}
