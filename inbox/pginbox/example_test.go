package pginbox_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

// What an event effects and its completion are one commit, so the effect happens
// once, however often it is delivered.
func ExampleStore_InTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pginbox.New(pool, &pginbox.Options{Schema: "pawl_example"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Exec(context.Background(), "DROP SCHEMA pawl_example CASCADE") // for the sake of the next run

	for _, id := range []string{"1", "2", "1"} {
		answers, err := box.Accept(ctx, inbox.Event{ID: "demo/" + id, Provider: "demo", Type: "order", Key: "customer-7", Payload: []byte("order " + id)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(id, answers[0])
	}

	err = box.Work(ctx, store.InTx(box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		var text string
		err := tx.QueryRow(ctx, "SELECT $1::text", string(r.Payload)).Scan(&text) // your own writes
		fmt.Println("worked", text)
		if text == "order 2" {
			stop() // in a service: when it is told to
		}
		return inbox.OutcomeOf(err)
	}), nil)
	fmt.Println(err)
	// Output:
	// 1 accepted
	// 2 accepted
	// 1 duplicate
	// worked order 1
	// worked order 2
	// <nil>
}

// Workers in other processes are woken when events are accepted here: the store
// that accepts has Notify set, and those that work listen.
func ExampleStore_Listen() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pginbox.New(pool, &pginbox.Options{Schema: "pawl_example_listen"})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = store.Listen(ctx, func() {
		box.Wake()
		fmt.Println("listening")
		stop() // in a service: when it is told to
	}, func(err error) { log.Print(err) })
	fmt.Println(err)
	// Output:
	// listening
	// <nil>
}
