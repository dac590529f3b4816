//go:build !race

package backpressure_test

const raceEnabled = false
