//go:build race

package backpressure_test

// raceEnabled says that the race detector makes everything many times slower: what is
// repeated for its numbers is then repeated less.
const raceEnabled = true
