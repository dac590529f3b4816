package boltdedup_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
)

// A message that is delivered twice has one effect, also when the process was
// restarted in between.
func Example() {
	dir, err := os.MkdirTemp("", "boltdedup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	deliver := func(id string) error {
		db, err := bbolt.Open(filepath.Join(dir, "service.db"), 0o600, &bbolt.Options{Timeout: time.Second})
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := boltdedup.New(db, nil)
		if err != nil {
			return err
		}
		guard, err := dedup.New(store, &dedup.Options{Scope: "invoices"})
		if err != nil {
			return err
		}
		return guard.Do(context.Background(), dedup.Request{ID: id}, func(context.Context) error {
			fmt.Println("invoice sent for", id)
			return nil
		})
	}
	for _, id := range []string{"order-1", "order-2", "order-1"} {
		if err := deliver(id); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// invoice sent for order-1
	// invoice sent for order-2
}

// Claim, business write and completion in one commit: the balance changes
// exactly once for each payment, whenever the process dies.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltdedup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "service.db"), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := boltdedup.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(store, &dedup.Options{Scope: "payments"})
	if err != nil {
		log.Fatal(err)
	}

	balance := []byte("balance")
	pay := func(ctx context.Context, paymentID string) error {
		return db.Update(func(tx *bbolt.Tx) error {
			return guard.With(store.Tx(tx)).Do(ctx, dedup.Request{ID: paymentID}, func(context.Context) error {
				accounts, err := tx.CreateBucketIfNotExists([]byte("accounts"))
				if err != nil {
					return err
				}
				return accounts.Put(balance, append(accounts.Get(balance), '$'))
			})
		})
	}
	for _, id := range []string{"payment-1", "payment-1", "payment-2", "payment-1"} {
		if err := pay(context.Background(), id); err != nil {
			log.Fatal(err)
		}
	}
	_ = db.View(func(tx *bbolt.Tx) error {
		fmt.Printf("balance: %s\n", tx.Bucket([]byte("accounts")).Get(balance))
		return nil
	})
	// Output: balance: $$
}
