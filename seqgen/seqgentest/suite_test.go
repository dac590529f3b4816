package seqgentest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

func TestMemoryInBubbles(t *testing.T) {
	seqgentest.Run(t, seqgentest.Config{
		New:    func(*testing.T) seqgen.Store { return seqgen.NewMemory() },
		Reopen: func(_ *testing.T, s seqgen.Store) seqgen.Store { return s.(*seqgen.Memory).Clone() },
		Bubble: true,
	})
}

// The form in which stores on real servers are tested.
func TestMemoryOnTheRealClock(t *testing.T) {
	seqgentest.Run(t, seqgentest.Config{
		New: func(*testing.T) seqgen.Store { return seqgen.NewMemory() },
	})
}

func BenchmarkMemory(b *testing.B) {
	seqgentest.Bench(b, func(*testing.B) seqgen.Store { return seqgen.NewMemory() })
}

// A service is tested against a store whose every reply is lost once: the
// generator asks again with the same nonce, and no number comes twice.
func ExampleLoseReplies() {
	numbers, err := seqgen.New(seqgentest.LoseReplies(seqgen.NewMemory()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		p, err := numbers.Next(context.Background(), "lane")
		fmt.Println(p, err)
	}
	// Output:
	// 1/1 <nil>
	// 1/2 <nil>
	// 1/3 <nil>
}

// A service is tested against a store that is down.
func ExampleFaulty() {
	store := &seqgentest.Faulty{
		Store:  seqgen.NewMemory(),
		Before: func(seqgentest.Step) error { return errors.New("no connection") },
	}
	numbers, err := seqgen.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = numbers.Next(context.Background(), "lane")
	fmt.Println(errors.Is(err, seqgen.ErrUnavailable))
	// Output: true
}
