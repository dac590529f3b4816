// Package seed chooses what tests draw their random histories from. An ordinary run takes
// the same seeds every time, so that a build falls for a change and not by chance; a hunt
// sets PAWL_SEED to ever new ones.
package seed

import (
	"fmt"
	"os"
	"strconv"
)

// Variable is the environment variable that names the one seed to run instead of the fixed ones.
const Variable = "PAWL_SEED"

// List returns the seeds 1 to n, or, if PAWL_SEED is set, that one alone. It panics if
// PAWL_SEED is no number from 0 to 2^64-1: a test of another seed would prove nothing.
func List(n int) []uint64 {
	if s := os.Getenv(Variable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("%s is %q; set it to a number from 0 to 2^64-1, or not at all", Variable, s))
		}
		return []uint64{seed}
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i) + 1
	}
	return seeds
}

// One returns the seed of a test that runs one history: 1, or that of PAWL_SEED.
func One() uint64 { return List(1)[0] }

// Repeat says, for the message of a failure, how to run the same history again.
func Repeat(seed uint64) string { return fmt.Sprintf("repeat with %s=%d", Variable, seed) }
