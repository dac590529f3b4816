package boltdlq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/retry"
)

// A letter is there after a restart, and is tried when it is due.
func Example() {
	dir, err := os.MkdirTemp("", "boltdlq")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "service.db")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	// The first process could not process a message, and ends.
	db, _, queue := openQueue(path)
	answers, err := queue.Put(ctx, dlq.Dead{
		Message: dlq.Message{Stream: "crm", ID: "wamid.1", Key: "alice", Payload: []byte("hello")},
		Cause:   errors.New("the CRM does not know the customer"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0])
	db.Close()

	// The second one tries it again. What follows of the same key waits behind it.
	db, _, queue = openQueue(path)
	defer db.Close()
	answers, err = queue.Park(ctx, dlq.Message{Stream: "crm", ID: "wamid.2", Key: "alice", Payload: []byte("are you there?")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0])
	err = queue.Run(ctx, func(_ context.Context, l dlq.Letter) error {
		fmt.Println(l.ID, "worked:", string(l.Payload))
		if l.ID == "wamid.2" {
			cancel()
		}
		return nil
	}, &dlq.RunOptions{Stream: "crm"})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// added
	// added
	// wamid.1 worked: hello
	// wamid.2 worked: are you there?
}

func openQueue(path string) (*bbolt.DB, *boltdlq.Store, *dlq.Queue) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		log.Fatal(err)
	}
	store, err := boltdlq.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := dlq.New(store, &dlq.Options{Backoff: retry.Constant(time.Millisecond)}) // so soon in an example only
	if err != nil {
		log.Fatal(err)
	}
	return db, store, queue
}

// The effect of a letter and its resolution are one commit: a crash at any moment
// leaves both or neither.
func ExampleStore_InTx() {
	dir, err := os.MkdirTemp("", "boltdlq")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store, queue := openQueue(filepath.Join(dir, "service.db"))
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = queue.Put(ctx, dlq.Dead{
		Message: dlq.Message{Stream: "orders", ID: "order-7", Payload: []byte("2 chairs")},
		Cause:   errors.New("the stock is not known"),
	})
	if err != nil {
		log.Fatal(err)
	}
	handle := store.InTx(queue, func(_ context.Context, tx *bbolt.Tx, l dlq.Letter) error {
		orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
		if err != nil {
			return err
		}
		return orders.Put([]byte(l.ID), l.Payload)
	})

	// First, without consequences: what would become of it?
	letter, err := queue.Get(ctx, "orders", "order-7")
	if err != nil {
		log.Fatal(err)
	}
	rehearsal, err := queue.DryRun(ctx, handle, letter, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rehearsal.Verdict)
	print := func() {
		_ = db.View(func(tx *bbolt.Tx) error {
			if orders := tx.Bucket([]byte("orders")); orders != nil {
				fmt.Printf("order-7: %s\n", orders.Get([]byte("order-7")))
				return nil
			}
			fmt.Println("no orders")
			return nil
		})
	}
	print()

	// And then in earnest.
	err = queue.Run(ctx, func(ctx context.Context, l dlq.Letter) error {
		defer cancel()
		return handle(ctx, l)
	}, &dlq.RunOptions{Stream: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	print()
	// Output:
	// would pass
	// no orders
	// order-7: 2 chairs
}

// An event that cannot be processed leaves the inbox and becomes a letter in one
// commit: a crash at any moment neither loses it nor makes two of it.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltdlq")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, letters, queue := openQueue(filepath.Join(dir, "service.db"))
	defer db.Close()
	events, err := boltinbox.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(events, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, inbox.Event{ID: "shop/7", Provider: "shop", Key: "alice", Payload: []byte("{")}); err != nil {
		log.Fatal(err)
	}

	err = box.Work(ctx, events.InTx(box, func(ctx context.Context, tx *bbolt.Tx, r inbox.Record) inbox.Outcome {
		defer cancel()
		if cause := process(r); cause != nil {
			_, err := queue.With(letters.Tx(tx)).Put(ctx, dlq.Dead{
				Message: dlq.Message{Stream: "orders", ID: r.ID, Key: r.Key, Payload: r.Payload},
				Cause:   cause,
			})
			return inbox.OutcomeOf(err) // Done commits both
		}
		return inbox.Done()
	}), nil)
	if err != nil {
		log.Fatal(err)
	}

	done, err := box.Totals(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	dead, err := letters.Totals(context.Background(), "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pending events:", done.Pending)
	fmt.Println("letters in", dead[0].Stream+":", dead[0].Waiting)
	// Output:
	// pending events: 0
	// letters in orders: 1
}

func process(inbox.Record) error { return errors.New("no order can be read from this") }
