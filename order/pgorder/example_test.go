package pgorder_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
)

// What a message effects and the move of the cursor are one commit, so the effect
// happens once. Messages that arrive out of order are handed over in order.
func ExampleStore_InTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgorder.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	buffer, err := order.New(store, &order.Options{Scope: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer buffer.Forget(context.Background(), "account-1") // for the sake of the next run

	for _, n := range []uint64{2, 3, 1, 2} {
		answers, err := buffer.Push(ctx, order.Message{
			Key: "account-1", Position: order.Position{Epoch: 1, Number: n}, Payload: fmt.Append(nil, "message ", n)})
		if err != nil {
			log.Fatal(err)
		}
		if !answers[0].Taken() {
			log.Fatal(answers[0].State)
		}
		fmt.Println(n, "duplicate:", answers[0].State == order.Duplicate)
	}

	err = buffer.RunTx(ctx, store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		var text string
		err := tx.QueryRow(ctx, "SELECT $1::text", string(m.Payload)).Scan(&text) // your own writes
		fmt.Println("handled", text)
		if m.Position.Number == 3 {
			stop() // in a service: when it is told to
		}
		return err
	}), nil)
	fmt.Println(err)
	// Output:
	// 2 duplicate: false
	// 3 duplicate: false
	// 1 duplicate: false
	// 2 duplicate: true
	// handled message 1
	// handled message 2
	// handled message 3
	// <nil>
}
