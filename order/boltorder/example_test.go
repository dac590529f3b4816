package boltorder_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
)

// A message that was answered Buffered is there after a restart, and is delivered
// when those before it have come.
func Example() {
	dir, err := os.MkdirTemp("", "boltorder")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "service.db")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	// The first process gets the second message, and ends.
	db, _, buffer := openBuffer(path)
	push(ctx, buffer, 2, "world")
	db.Close()

	// The second one gets the first.
	db, _, buffer = openBuffer(path)
	defer db.Close()
	push(ctx, buffer, 1, "hello")
	err = buffer.Run(ctx, func(_ context.Context, m order.Message) error {
		fmt.Println(m.Position.Number, string(m.Payload))
		if m.Position.Number == 2 {
			cancel() // enough for an example
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 2 is buffered
	// 1 is buffered
	// 1 hello
	// 2 world
}

func openBuffer(path string) (*bbolt.DB, *boltorder.Store, *order.Buffer) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		log.Fatal(err)
	}
	store, err := boltorder.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	buffer, err := order.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, store, buffer
}

func push(ctx context.Context, buffer *order.Buffer, number uint64, body string) {
	m := order.Message{Key: "account-7", Position: order.Position{Number: number}, Payload: []byte(body)}
	answers, err := buffer.Push(ctx, m)
	if err != nil {
		log.Fatal(err) // not known to be stored: do not acknowledge
	}
	if !answers[0].Taken() {
		log.Fatal(answers[0].State) // full, or nothing that can be stored
	}
	fmt.Println(number, "is", answers[0].State)
}

// The effects of messages and the move of the cursor are one commit: a crash at any
// moment leaves both or neither. A message that fails takes nothing with it that
// another one did.
func ExampleStore_InTx() {
	dir, err := os.MkdirTemp("", "boltorder")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store, buffer := openBuffer(filepath.Join(dir, "service.db"))
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	push(ctx, buffer, 3, "-20")
	push(ctx, buffer, 1, "+50")
	push(ctx, buffer, 2, "+50")
	account := []byte("account-7")
	deliver := store.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error {
		balances, err := tx.CreateBucketIfNotExists([]byte("balances"))
		if err != nil {
			return err
		}
		var amount, balance int64
		if b := balances.Get(account); b != nil {
			balance = int64(binary.BigEndian.Uint64(b))
		}
		if _, err := fmt.Sscan(string(m.Payload), &amount); err != nil {
			return err
		}
		return balances.Put(account, binary.BigEndian.AppendUint64(nil, uint64(balance+amount)))
	})
	err = buffer.RunTx(ctx, func(ctx context.Context, run *order.TxRun) (int, error) {
		delivered, err := deliver(ctx, run)
		fmt.Println("one commit with", delivered, "messages")
		cancel() // enough for an example
		return delivered, err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		fmt.Println("balance", binary.BigEndian.Uint64(tx.Bucket([]byte("balances")).Get(account)))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	a, err := buffer.Account(context.Background(), "account-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next is number", a.Ledgers[0].Cursor)
	// Output:
	// 3 is buffered
	// 1 is buffered
	// 2 is buffered
	// one commit with 3 messages
	// balance 80
	// next is number 4
}

// A message is pushed in the transaction that writes what belongs to it.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltorder")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store, buffer := openBuffer(filepath.Join(dir, "service.db"))
	defer db.Close()
	ctx := context.Background()
	err = db.Update(func(tx *bbolt.Tx) error {
		orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
		if err != nil {
			return err
		}
		if err := orders.Put([]byte("order-1"), []byte("paid")); err != nil {
			return err
		}
		push(ctx, buffer.With(store.Tx(tx)), 1, "order-1 is paid")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	buffer.Wake() // a worker, if there is one
	totals, err := buffer.Totals(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("buffered:", totals.Buffered)
	// Output:
	// 1 is buffered
	// buffered: 1
}
