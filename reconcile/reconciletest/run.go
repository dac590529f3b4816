// Package reconciletest is the conformance suite of [reconcile.Store]: what the comments
// there say and a test can decide has a subtest here. A store that passes gives the
// specified answers to one caller after another, to concurrent callers of one key, to
// steps that are sent twice, and its answers to long random histories are those of a
// small model of the specification.
//
// It does not show that a store survives a crash, a lost connection or a failover of its
// server; test those with the real server beside it. Nor does it show what a store does
// with arguments that a ledger refuses.
//
//	func TestStore(t *testing.T) {
//		reconciletest.Run(t, reconciletest.Config{
//			New: func(t *testing.T) reconcile.Store { return open(t) },
//		})
//	}
//
// The suite needs the standard library only.
package reconciletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// Config says how to make a store and how to move its clock. At most one of Sleep and
// Bubble is needed: a store that reads the process's clock sets Bubble, a store on a
// simulated server sets Sleep, and a store on a real server sets neither.
type Config struct {
	// New makes a store for one subtest and registers its clean-up with t.Cleanup. It
	// may return the same store each time: every subtest uses a random kind of its own.
	// The suite calls it several times at once unless Sleep is set.
	New func(t *testing.T) reconcile.Store

	// Sleep moves the store's clock forward. Nil means that the clock runs by itself,
	// and the suite waits with time.Sleep. Where it is set, subtests run one after another.
	Sleep func(time.Duration)

	// Bubble runs each subtest, and New with it, in a [testing/synctest] bubble of its own.
	Bubble bool

	// Steps is how long each random history is. Zero means 250, and 60 for a store on a
	// real server.
	Steps int

	// Once leaves the subtests of "Twice" out: for one more server of a kind on which the
	// same store has passed them.
	Once bool
}

// Run tests the stores that c.New makes. Under "Once" every step is sent once; "Twice"
// runs the same subtests with every step sent twice and the first answer lost.
//
// A store on a real server takes leases of 100 milliseconds and real sleeps; margins are
// one-sided, so a busy machine makes the suite slow and never red.
func Run(t *testing.T, c Config) {
	t.Helper()
	if c.New == nil {
		t.Fatal("reconciletest: Config.New is nil")
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
	for _, cases := range [][]testCase{beginCases, claimCases, settleCases, outsideCases, laterCases, readCases, expiryCases, modelCases} {
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
