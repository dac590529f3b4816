package reconcile_test

import (
	"context"
	"fmt"
	"os"

	"github.com/pawl-go/pawl/reconcile"
)

// An event of a type that the consumer does not know, and a status of a message that
// nobody sent. A person sees to the one; the other waits until it is sure.
func ExampleChecks() {
	ctx := context.Background()
	checks, err := reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{
		Kind:  "whatsapp",
		Types: &reconcile.Types{},
		Stray: &reconcile.Stray{
			Known: func(context.Context, reconcile.Ref) (bool, error) { return false, nil }, // look into your own records
		},
		Authorize: func(context.Context, reconcile.Action) (string, error) { return "alice", nil }, // from the session
	})
	if err != nil {
		panic(err)
	}
	// Where the webhooks are worked:
	checks.UnknownType("ycloud", "whatsapp.call.missed", "v2")
	checks.UnknownType("ycloud", "whatsapp.call.missed", "v2")
	if err := checks.Stray(ctx, reconcile.Ref{Message: "wamid.1"}, "acct-1"); err != nil {
		panic(err)
	}

	// In the background it is Run that looks.
	if err := checks.Once(ctx); err != nil {
		panic(err)
	}
	for _, open := range checks.Stats().Open {
		fmt.Printf("%s: %d open, %d suspected\n", open.Check, open.Open, open.Suspected)
	}
	found, err := checks.Findings(ctx, reconcile.FindingQuery{State: reconcile.Open, N: 10})
	if err != nil {
		panic(err)
	}
	fmt.Println(found[0].Subject, found[0].Count)
	if err := checks.Resolve(ctx, found[0], "the next version works it"); err != nil {
		panic(err)
	}
	n, err := checks.Export(ctx, os.Stdout, reconcile.FindingQuery{State: reconcile.Open})
	fmt.Println(n, err)
	// Output:
	// stray: 0 open, 1 suspected
	// types: 1 open, 0 suspected
	// ycloud whatsapp.call.missed v2 2
	// 0 <nil>
}

// The volume of each business number against its own week, and what is done with it.
func ExampleRhythm() {
	checks, err := reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{
		Volume: &reconcile.Rhythm{Weeks: 4, Drop: 0.7}, // less than 30 % of the median of four weeks
		Hooks: &reconcile.CheckHooks{
			Raised: func(_ context.Context, check string, s reconcile.Sighting, _ bool) {
				fmt.Println("page somebody:", check, s.Account, s.Detail)
			},
		},
	})
	if err != nil {
		panic(err)
	}
	checks.Arrived("waba-1", "1555000", 1) // for each event that an inbox accepted for the first time
	fmt.Println(checks.Stats().Pending)
	// Output: 1
}

// The reply and the fact that it is to be sent are one transaction: Record writes the
// operation, and the queue sends it after the commit.
func ExampleLedger_Record() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ledger, err := reconcile.New(reconcile.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	// In earnest: ledger.With(store.Tx(tx)).Record(...), and tx.Commit.
	if err := ledger.Record(ctx, reconcile.Op{Key: "reply-17", Payload: []byte("hello")}); err != nil {
		panic(err)
	}
	err = ledger.Run(ctx, func(_ context.Context, op reconcile.Op) ([]byte, error) {
		defer cancel() // the example has seen enough
		fmt.Printf("sent %s: %s\n", op.Key, op.Payload)
		return nil, nil
	}, nil, nil)
	if err != nil {
		panic(err)
	}
	e, err := ledger.Lookup(context.Background(), "reply-17")
	fmt.Println(e.State, e.Attempts, err)
	// Output:
	// sent reply-17: hello
	// confirmed 1 <nil>
}
