package boltreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
)

func openStore(path string) (*bbolt.DB, *boltreconcile.Store) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		log.Fatal(err)
	}
	store, err := boltreconcile.New(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, store
}

// What a process sent and could not tell the outcome of is there after a restart. The
// second process asks the remote, and does not send it again.
func Example() {
	dir, err := os.MkdirTemp("", "boltreconcile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "service.db")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	options := &reconcile.Options{Kind: "payments", Quiet: time.Millisecond} // so short in an example only
	send := func(_ context.Context, op reconcile.Op) ([]byte, error) {
		fmt.Println("sent", op.Key)
		return nil, errors.New("connection reset")
	}

	db, store := openStore(path)
	ledger, err := reconcile.New(store, options)
	if err != nil {
		log.Fatal(err)
	}
	err = ledger.Do(ctx, reconcile.Op{Key: "payment-7", Account: "alice"}, send, nil)
	fmt.Println(errors.Is(err, reconcile.ErrUnknown))
	db.Close()

	db, store = openStore(path)
	defer db.Close()
	if ledger, err = reconcile.New(store, options); err != nil {
		log.Fatal(err)
	}
	err = ledger.Run(ctx, send, func(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) {
		fmt.Println("asked for", op.Key)
		cancel()
		return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
	}, &reconcile.RunOptions{Poll: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	e, err := ledger.Lookup(context.Background(), "payment-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.State)
	// Output:
	// sent payment-7
	// true
	// asked for payment-7
	// confirmed
}

// The effect of an operation and its confirmation are one commit: a crash at any moment
// leaves both or neither.
func ExampleStore_InTx() {
	dir, err := os.MkdirTemp("", "boltreconcile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store := openStore(filepath.Join(dir, "service.db"))
	defer db.Close()
	ledger, err := reconcile.New(store, &reconcile.Options{Kind: "credits"})
	if err != nil {
		log.Fatal(err)
	}
	credit := store.InTx(ledger, func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
		b, err := tx.CreateBucketIfNotExists([]byte("credits"))
		if err != nil {
			return nil, err
		}
		balance := append(append([]byte{}, b.Get([]byte(op.Account))...), op.Payload...)
		return balance, b.Put([]byte(op.Account), balance)
	})
	for range 2 { // the second time, nothing is written
		result, err := ledger.DoResult(context.Background(), reconcile.Op{Key: "topup-7", Account: "alice", Payload: []byte("+5")},
			credit, boltreconcile.NotConfirmed)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("alice: %s\n", result)
	}
	// Output:
	// alice: +5
	// alice: +5
}

// An order and the message about it are stored in one commit; Run sends the message.
func ExampleStore_Tx() {
	dir, err := os.MkdirTemp("", "boltreconcile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store := openStore(filepath.Join(dir, "service.db"))
	defer db.Close()
	ledger, err := reconcile.New(store, &reconcile.Options{Kind: "messages"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	err = db.Update(func(tx *bbolt.Tx) error {
		orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
		if err != nil {
			return err
		}
		if err := orders.Put([]byte("order-7"), []byte("2 chairs")); err != nil {
			return err
		}
		return ledger.With(store.Tx(tx)).Record(ctx, reconcile.Op{Key: "order-7/confirmed", Account: "alice", Payload: []byte("thank you")})
	})
	if err != nil {
		log.Fatal(err)
	}

	err = ledger.Run(ctx, func(_ context.Context, op reconcile.Op) ([]byte, error) {
		fmt.Printf("to %s: %s\n", op.Account, op.Payload)
		cancel()
		return nil, nil
	}, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// to alice: thank you
}

// What webhooks said of a message is kept as it was said.
func ExampleStore_Timeline() {
	dir, err := os.MkdirTemp("", "boltreconcile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, store := openStore(filepath.Join(dir, "service.db"))
	defer db.Close()
	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	read := reconcile.Observation{Ref: reconcile.Ref{Event: "evt_2", Message: "wamid.1"}, Status: "read", Said: time.Now()}
	delivered := reconcile.Observation{Ref: reconcile.Ref{Event: "evt_1", Message: "wamid.1"}, Status: "delivered", Said: time.Now()}
	for range 2 { // it was delivered twice
		answers, err := timeline.Append(ctx, read, delivered)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answers)
	}
	h, err := timeline.Read(ctx, reconcile.Ref{Message: "wamid.1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(h.Observations))
	// Output:
	// [appended appended]
	// [repeated repeated]
	// 2
}
