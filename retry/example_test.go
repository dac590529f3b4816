package retry_test

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/pawl-go/pawl/retry"
)

func ExampleGradient() {
	for n := 1; n <= 7; n++ {
		fmt.Print(retry.Gradient().Delay(n, 0), " ")
	}
	// Output: 1s 2s 4s 8s 16s 30s 30s
}

func ExampleFibonacci() {
	b := retry.Fibonacci(5*time.Minute, 10*time.Minute)
	for n := 1; n <= 4; n++ {
		fmt.Print(b.Delay(n, 0), " ")
	}
	// Output: 5m0s 10m0s 15m0s 25m0s
}

// A schedule that survives a restart: the jitter comes from the ID of what is
// tried again, so any process computes the same times.
func ExampleBackoff_Delay() {
	b := retry.Exponential(time.Minute, time.Hour, retry.FullJitter)
	seed := fnv.New64a()
	seed.Write([]byte("order 7"))
	for n := 1; n <= 3; n++ {
		before, after := b.Delay(n, seed.Sum64()), b.Delay(n, seed.Sum64())
		fmt.Println(before == after, before <= time.Minute<<(n-1))
	}
	// Output:
	// true true
	// true true
	// true true
}
