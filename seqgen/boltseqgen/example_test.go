package boltseqgen_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
)

// Numbers go on after a restart where they were.
func Example() {
	dir, err := os.MkdirTemp("", "boltseqgen")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "service.db")
	for range 2 { // the process, and the process after a restart
		db, _, numbers := openGenerator(path)
		for range 2 {
			at, err := numbers.Next(context.Background(), "customer-7")
			if err != nil {
				log.Fatal(err) // no number was assigned: do not send the message
			}
			fmt.Println(at)
		}
		db.Close()
	}
	// Output:
	// 1/1
	// 1/2
	// 1/3
	// 1/4
}

func openGenerator(path string) (*bbolt.DB, *boltseqgen.Store, *seqgen.Generator) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		log.Fatal(err)
	}
	store, err := boltseqgen.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	numbers, err := seqgen.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, store, numbers
}

// Invoices are numbered without a gap: a number and its invoice are one commit, and
// a rollback gives the number back.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltseqgen")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store, numbers := openGenerator(filepath.Join(dir, "service.db"))
	defer db.Close()
	write := func(customer string) error {
		return db.Update(func(tx *bbolt.Tx) error {
			at, err := numbers.With(store.Tx(tx)).NextTx(context.Background(), "invoices")
			if err != nil {
				return err
			}
			if customer == "" {
				return errors.New("an invoice without a customer")
			}
			invoices, err := tx.CreateBucketIfNotExists([]byte("invoices"))
			if err != nil {
				return err
			}
			return invoices.Put(binary.BigEndian.AppendUint64(nil, at.Number), []byte(customer))
		})
	}
	for _, customer := range []string{"alice", "", "bob"} {
		if err := write(customer); err != nil {
			fmt.Println("not written:", err)
		}
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("invoices")).ForEach(func(number, customer []byte) error {
			fmt.Printf("invoice %d for %s\n", binary.BigEndian.Uint64(number), customer)
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// not written: an invoice without a customer
	// invoice 1 for alice
	// invoice 2 for bob
}
