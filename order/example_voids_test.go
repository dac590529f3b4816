package order_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/seqgen"
)

// The buffer asks the generator which numbers were never used, and crosses them at
// once, where it would wait five minutes for messages that do not exist: here the
// rest of the block of a process that another one has replaced.
func ExampleOptions_voids() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// Two processes that number one key in turn, in blocks of 64.
	sequences := seqgen.NewMemory()
	block := &seqgen.Options{Mode: seqgen.Block, Block: 64, MaxBlock: 64}
	replaced, err := seqgen.New(sequences, block)
	if err != nil {
		log.Fatal(err)
	}
	numbers, err := seqgen.New(sequences, block)
	if err != nil {
		log.Fatal(err)
	}
	first, err := replaced.Next(ctx, "account-7")
	if err != nil {
		log.Fatal(err)
	}
	second, err := numbers.Next(ctx, "account-7") // takes the key over
	if err != nil {
		log.Fatal(err)
	}
	if err := replaced.Close(ctx); err != nil { // says that it has used nothing else
		log.Fatal(err)
	}

	// The two packages do not know each other: the service that uses both joins them.
	buffer, err := order.New(order.NewMemory(), &order.Options{Voids: voidsOf(numbers)})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range []seqgen.Position{second, first} {
		answers, err := buffer.Push(ctx, order.Message{Key: "account-7", Position: order.Position(p)})
		if err != nil {
			log.Fatal(err)
		}
		if !answers[0].Taken() {
			log.Fatal(answers[0].State)
		}
	}
	err = buffer.Run(ctx, func(_ context.Context, m order.Message) error {
		fmt.Println("delivered", m.Position.Number)
		if m.Position.Number == second.Number {
			cancel()
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	account, err := buffer.Account(context.Background(), "account-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.Ledgers[0].Void, "numbers were void")
	// Output:
	// delivered 1
	// delivered 65
	// 63 numbers were void
}

// voidsOf makes Options.Voids of a generator. Both ends of a seqgen.Void belong to
// it, the end of an order.Void does not.
func voidsOf(g *seqgen.Generator) func(ctx context.Context, key string, epoch, from, to uint64) ([]order.Void, error) {
	return func(ctx context.Context, key string, epoch, from, to uint64) ([]order.Void, error) {
		voids, err := g.Voids(ctx, key, epoch, from, to-1)
		if err != nil {
			return nil, err
		}
		list := make([]order.Void, len(voids))
		for i, v := range voids {
			list[i] = order.Void{From: v.Lo, To: v.Hi + 1, Orphaned: v.Kind == seqgen.Orphaned}
		}
		return list, nil
	}
}
