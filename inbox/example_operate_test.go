package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/retry"
)

// An event has died while a dependency was down. Somebody who may do so replays it,
// under its own identity, and the record says who and why.
func ExampleOperator_Replay() {
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	type user struct{} // what the middleware of an admin page puts into the context
	operator, err := inbox.NewOperator(box, func(ctx context.Context, i inbox.Intent) (string, error) {
		name, _ := ctx.Value(user{}).(string)
		if name != "alice" {
			return "", fmt.Errorf("%q is not on call", name)
		}
		return name, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m1", Provider: "test", Payload: []byte("hello")}); err != nil {
		log.Fatal(err)
	}
	work := func(o inbox.Outcome) { // one event
		ctx, cancel := context.WithCancel(ctx)
		err := box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
			fmt.Println("working", r.ID, "with", len(r.Failures), "failures:", o)
			cancel()
			return o
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
	}
	work(inbox.Dead(errors.New("the CRM does not know this customer")))
	dead, err := operator.Inspect(context.WithValue(ctx, user{}, "alice"), inbox.Query{State: inbox.StateDead, N: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(dead), "dead:", dead[0].LastError)

	err = operator.Replay(context.WithValue(ctx, user{}, "bob"), dead[0].ID, 0, "just a try")
	fmt.Println("bob:", err)
	if err := operator.Replay(context.WithValue(ctx, user{}, "alice"), dead[0].ID, 0, "the customer was added"); err != nil {
		log.Fatal(err)
	}
	work(inbox.Done())
	records, err := box.Get(ctx, "test/m1")
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range records[0].Actions {
		fmt.Printf("%v by %s: %s\n", a.Kind, a.Actor, a.Reason)
	}
	// Output:
	// working test/m1 with 0 failures: dead
	// 1 dead: the CRM does not know this customer
	// bob: inbox: replay: not authorized, nothing was done: "bob" is not on call
	// working test/m1 with 1 failures: done
	// replay by alice: the customer was added
}

// What the store keeps cannot be read without the key. Keys are rotated by putting a
// new one in front.
func ExampleOptions_keys() {
	secret := func(b byte) []byte { // 32 random bytes, from where you keep secrets
		s := make([]byte, 32)
		for i := range s {
			s[i] = b
		}
		return s
	}
	store := inbox.NewMemory()
	old := inbox.Key{ID: "2026-01", Secret: secret(1)}
	box, err := inbox.New(store, &inbox.Options{Keys: []inbox.Key{old}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m1", Provider: "test", Payload: []byte("hello")}); err != nil {
		log.Fatal(err)
	}

	box, err = inbox.New(store, &inbox.Options{Keys: []inbox.Key{{ID: "2026-07", Secret: secret(2)}, old}})
	if err != nil {
		log.Fatal(err)
	}
	records, err := box.Get(ctx, "test/m1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("with the old key behind the new one: %s\n", records[0].Payload)

	box, err = inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	if records, err = box.Get(ctx, "test/m1"); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("without keys: %d bytes, sealed: %t\n", len(records[0].Payload), records[0].Form&inbox.FormSealed != 0)
	fmt.Println("a key prints as", old)
	// Output:
	// with the old key behind the new one: hello
	// without keys: 0 bytes, sealed: true
	// a key prints as [secret]
}

// The dead-letter function hears of an event that is given up on before it is
// recorded as dead. Here it fails the first time, so the event is not dead yet.
func ExampleWorkOptions_deadLetter() {
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m1", Provider: "test", Key: "alice"}); err != nil {
		log.Fatal(err)
	}
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m2", Provider: "test", Key: "alice"}); err != nil {
		log.Fatal(err)
	}
	calls := 0
	err = box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		if r.ID == "test/m2" {
			cancel()
			return inbox.Done()
		}
		return inbox.Failed(fmt.Errorf("failure %d", r.Attempts))
	}, &inbox.WorkOptions{
		MaxAttempts: 2,
		Backoff:     retry.Constant(time.Millisecond),
		DeadLetter: func(_ context.Context, r inbox.Record) error {
			if calls++; calls == 1 {
				return errors.New("the queue of dead letters is down")
			}
			for _, f := range r.Failures {
				fmt.Printf("%s, attempt %d: %s\n", r.ID, f.Attempt, f.Error)
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	s := box.Stats()
	fmt.Println(s.Dead, "dead,", s.DeadLettersFailed, "dead letter failed,", s.Done, "done")
	// Output:
	// test/m1, attempt 1: failure 1
	// test/m1, attempt 2: failure 2
	// 1 dead, 1 dead letter failed, 1 done
}
