package seqgen_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pawl-go/pawl/seqgen"
)

// A service numbers the messages of a customer. Each process may use any key.
func Example() {
	numbers, err := seqgen.New(seqgen.NewMemory(), nil) // in production: pgseqgen, boltseqgen, redisseqgen
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 3 {
		p, err := numbers.Next(ctx, "customer-7")
		if err != nil {
			log.Fatal(err) // no number was assigned: do not send the message
		}
		fmt.Println("epoch", p.Epoch, "number", p.Number)
	}
	if err := numbers.Close(ctx); err != nil {
		log.Print(err)
	}
	// Output:
	// epoch 1 number 1
	// epoch 1 number 2
	// epoch 1 number 3
}

// One process owns a key and draws many numbers. A clean end leaves no hole.
func ExampleGenerator_Key() {
	store := seqgen.NewMemory()
	ctx := context.Background()
	for range 2 { // the process, and the process after a restart
		numbers, err := seqgen.New(store, &seqgen.Options{Mode: seqgen.Block})
		if err != nil {
			log.Fatal(err)
		}
		lane, err := numbers.Key("lane-1")
		if err != nil {
			log.Fatal(err)
		}
		var last seqgen.Position
		for range 1000 {
			if last, err = lane.Next(ctx); err != nil {
				log.Fatal(err)
			}
		}
		fmt.Println(last)
		if err := numbers.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1/1000
	// 1/2000
}

// A process that vanishes leaves an orphaned void, which a consumer crosses after
// a while without an arrival inside it.
func ExampleGenerator_Voids() {
	store := seqgen.NewMemory()
	ctx := context.Background()
	opts := &seqgen.Options{Mode: seqgen.Block, Block: 10, MaxBlock: 10}
	killed, _ := seqgen.New(store, opts)
	if _, err := killed.Next(ctx, "lane-1"); err != nil {
		log.Fatal(err)
	}

	numbers, _ := seqgen.New(store, opts)
	p, err := numbers.Next(ctx, "lane-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("goes on at", p)
	voids, err := numbers.Voids(ctx, "lane-1", 1, 1, p.Number)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range voids {
		fmt.Printf("%d to %d: %v, %v\n", v.Lo, v.Hi, v.Kind, v.Reason)
	}
	// Output:
	// goes on at 1/11
	// 1 to 10: orphaned, taken over
}

// A lane starts afresh: its next number is 1, in a new epoch.
func ExampleGenerator_Bump() {
	numbers, _ := seqgen.New(seqgen.NewMemory(), nil)
	ctx := context.Background()
	before, _ := numbers.Next(ctx, "lane-1")
	if _, err := numbers.Bump(ctx, "lane-1"); err != nil {
		log.Fatal(err)
	}
	after, _ := numbers.Next(ctx, "lane-1")
	fmt.Println(before, after, after.Compare(before) > 0)
	// Output: 1/1 2/1 true
}
