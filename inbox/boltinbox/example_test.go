package boltinbox_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
)

// An event that was accepted is there after a restart, and is worked then.
func Example() {
	dir, err := os.MkdirTemp("", "boltinbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "service.db")

	// The first process accepts an event, and ends.
	db, box := openBox(path)
	event := inbox.Event{ID: "test/m1", Provider: "test", Key: "alice", Payload: []byte("hello")}
	answers, err := box.Accept(context.Background(), event)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0])
	db.Close()

	// The second one works it. The provider has sent it again meanwhile.
	db, box = openBox(path)
	defer db.Close()
	answers, err = box.Accept(context.Background(), event)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0])
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		fmt.Println("worked", string(r.Payload))
		cancel()
		return inbox.Done()
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// accepted
	// duplicate
	// worked hello
}

func openBox(path string) (*bbolt.DB, *inbox.Box) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		log.Fatal(err)
	}
	store, err := boltinbox.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, box
}

// The effect of an event and its completion are one commit: a crash at any moment
// leaves both or neither, so the balance is right.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltinbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "service.db"), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := boltinbox.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, id := range []string{"test/p1", "test/p2", "test/p1"} {
		if _, err := box.Accept(ctx, inbox.Event{ID: id, Provider: "test", Key: "alice", Payload: []byte("100")}); err != nil {
			log.Fatal(err)
		}
	}
	balance := []byte("balance")
	err = box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		err := db.Update(func(tx *bbolt.Tx) error {
			accounts, err := tx.CreateBucketIfNotExists([]byte("accounts"))
			if err != nil {
				return err
			}
			var now uint64
			if b := accounts.Get(balance); b != nil {
				now = binary.BigEndian.Uint64(b)
			}
			if err := accounts.Put(balance, binary.BigEndian.AppendUint64(nil, now+100)); err != nil {
				return err
			}
			fmt.Println("balance", now+100)
			return box.With(store.Tx(tx)).Complete(ctx)
		})
		if r.ID == "test/p2" {
			cancel()
		}
		return inbox.OutcomeOf(err)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// balance 100
	// balance 200
}

// A guard in the same file does what Complete does, for effects that other events
// may have, too: two providers tell of one order, and it is fulfilled once.
func ExampleStore_guard() {
	dir, err := os.MkdirTemp("", "boltinbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, box := openBox(filepath.Join(dir, "service.db"))
	defer db.Close()
	claims, err := boltdedup.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(claims, &dedup.Options{Scope: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, provider := range []string{"shop", "bank"} {
		e := inbox.Event{ID: provider + "/7", Provider: provider, Key: "alice", ExternalID: "order-7"}
		if _, err := box.Accept(ctx, e); err != nil {
			log.Fatal(err)
		}
	}
	err = box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		fmt.Println("the", r.Provider, "says that", r.ExternalID, "is paid")
		err := db.Update(func(tx *bbolt.Tx) error {
			return guard.With(claims.Tx(tx)).Do(ctx, dedup.Request{ID: r.ExternalID}, func(context.Context) error {
				fmt.Println("fulfilled")
				return nil // and the writes of the effect go into tx
			})
		})
		if r.Provider == "bank" {
			cancel()
		}
		return inbox.OutcomeOf(err)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// the shop says that order-7 is paid
	// fulfilled
	// the bank says that order-7 is paid
}
