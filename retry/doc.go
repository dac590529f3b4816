// Package retry says when to try again.
//
// A [Backoff] is a pure function from the number of a retry to the time before
// it. It holds no state and reads no clock, so one value serves any number of
// callers, retries within a process and schedules that survive a restart alike.
// It never waits longer than its cap, jitter included, and never overflows,
// whatever the number of retries.
//
// It does not decide whether to try again: the number of attempts and the time
// they may take are for the caller to bound.
//
//	b := retry.Exponential(100*time.Millisecond, time.Minute, retry.FullJitter)
//	wait := b.Delay(failures, rand.Uint64())
package retry
