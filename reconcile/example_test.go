package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A provider that takes a message does not say that it was delivered: its receipt does.
func ExampleLedger_Do() {
	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{Kind: "whatsapp", Receipt: true})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	send := func(_ context.Context, op reconcile.Op) ([]byte, error) {
		fmt.Println("sent under", op.Key)
		return []byte(`{"status":"accepted"}`), nil
	}
	op := reconcile.Op{Key: "reply:acct-1:17", Account: "acct-1", Payload: []byte("hello")}

	err = ledger.Do(ctx, op, send, nil)
	fmt.Println(errors.Is(err, reconcile.ErrAccepted))
	err = ledger.Do(ctx, op, send, nil) // a redelivery of what made the reply
	fmt.Println(errors.Is(err, reconcile.ErrAccepted))

	// The webhook says delivered.
	if err := ledger.Receipt(ctx, op.Key, reconcile.Receipt{State: reconcile.Confirmed}); err != nil {
		panic(err)
	}
	fmt.Println(ledger.Do(ctx, op, send, nil))
	// Output:
	// sent under reply:acct-1:17
	// true
	// true
	// <nil>
}

// A write that is an upsert keyed by the operation may be sent any number of times: the
// remote honours the key, so what is Unknown is simply sent again within the horizon.
func ExampleOptions_horizon() {
	crm := map[string]string{} // INSERT ... ON CONFLICT (operation) DO NOTHING
	calls := 0
	upsert := func(_ context.Context, op reconcile.Op) ([]byte, error) {
		if _, ok := crm[op.Key]; !ok {
			crm[op.Key] = string(op.Payload)
		}
		if calls++; calls == 1 {
			return nil, errors.New("connection reset") // after the write
		}
		return nil, nil
	}
	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{
		Kind: "crm", Horizon: 365 * 24 * time.Hour, Retention: 2 * 365 * 24 * time.Hour,
		Quiet: time.Millisecond, // so that the example ends; 2 minutes by default
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err = ledger.Do(ctx, reconcile.Op{Key: "ticket-7:close", Payload: []byte("closed")}, upsert, nil)
	fmt.Println(errors.Is(err, reconcile.ErrUnknown))

	again := func(ctx context.Context, op reconcile.Op) ([]byte, error) {
		defer cancel() // the example has seen enough
		return upsert(ctx, op)
	}
	if err := ledger.Run(ctx, again, nil, nil); err != nil {
		panic(err)
	}
	e, err := ledger.Lookup(context.Background(), "ticket-7:close")
	fmt.Println(e.State, e.Attempts, len(crm), err)
	// Output:
	// true
	// confirmed 2 1 <nil>
}

// A remote without keys has to be asked before anything is sent again: by our own
// reference, which it keeps beside the message (externalId, say).
func ExampleLedger_Run() {
	var outbox []string // what the remote has sent
	calls := 0
	send := func(_ context.Context, op reconcile.Op) ([]byte, error) {
		outbox = append(outbox, op.Key)
		if calls++; calls == 1 {
			return nil, errors.New("timeout") // it was sent all the same
		}
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	probe := func(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) {
		defer cancel() // the example has seen enough
		if slices.Contains(outbox, op.Key) {
			return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
		}
		return reconcile.Evidence{Seen: reconcile.SeenNothing}, nil
	}
	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{
		Kind: "sms", Quiet: time.Millisecond, // so that the example ends; 2 minutes by default
	})
	if err != nil {
		panic(err)
	}
	err = ledger.Do(ctx, reconcile.Op{Key: "reminder-3"}, send, probe)
	fmt.Println(errors.Is(err, reconcile.ErrUnknown))
	if err := ledger.Run(ctx, send, probe, nil); err != nil {
		panic(err)
	}
	e, err := ledger.Lookup(context.Background(), "reminder-3")
	fmt.Println(e.State, len(outbox), err)
	// Output:
	// true
	// confirmed 1 <nil>
}

// The webhook that would have said delivered was lost. The provider can be asked by its own
// ID of the message, which it gave when it took it, and which is the recorded result.
func ExampleResultFrom() {
	provider := map[string]string{"ycloud-77": "delivered"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	send := func(context.Context, reconcile.Op) ([]byte, error) { return []byte("ycloud-77"), nil }
	probe := func(ctx context.Context, _ reconcile.Op) (reconcile.Evidence, error) {
		defer cancel() // the example has seen enough
		switch provider[string(reconcile.ResultFrom(ctx))] {
		case "delivered", "read":
			return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
		case "":
			return reconcile.Evidence{Seen: reconcile.SeenUnclear}, nil // no ID: its answer was lost
		default:
			return reconcile.Evidence{Seen: reconcile.SeenPending}, nil
		}
	}
	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{
		Receipt: true, Quiet: time.Millisecond, // so that the example ends; 2 minutes by default
	})
	if err != nil {
		panic(err)
	}
	err = ledger.Do(ctx, reconcile.Op{Key: "reply-7"}, send, nil)
	fmt.Println(errors.Is(err, reconcile.ErrAccepted))
	if err := ledger.Run(ctx, send, probe, nil); err != nil {
		panic(err)
	}
	e, err := ledger.Lookup(context.Background(), "reply-7")
	fmt.Println(e.State, e.Attempts, err)
	// Output:
	// true
	// confirmed 1 <nil>
}
