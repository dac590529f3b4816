package pgdlq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
)

// A message is dead-lettered in the transaction that acknowledges it: it is in one of
// the two places, and never in both or in none.
func ExampleStore_Tx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgdlq.New(pool, &pgdlq.Options{Schema: "pawl_example"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	defer pool.Exec(ctx, "DROP SCHEMA pawl_example CASCADE") // for the sake of the next run
	queue, err := dlq.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	m := dlq.Message{Stream: "orders", ID: "wamid.1", Key: "customer-7", Payload: []byte("two of them")}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		answers, err := queue.With(store.Tx(tx)).Put(ctx, dlq.Dead{Message: m, Cause: errors.New("no such article")})
		fmt.Println(answers, err)
		return err // beside: DELETE FROM your_queue ...
	})
	fmt.Println(err)
	totals, err := store.Totals(ctx, "", 10)
	fmt.Println(totals[0].Stream, totals[0].Waiting, err)
	// Output:
	// [added] <nil>
	// <nil>
	// orders 1 <nil>
}

// A dry run shows what a handler would do, and its transaction is rolled back.
func ExampleSandbox() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	queue, err := dlq.New(dlq.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	handle := func(ctx context.Context, l dlq.Letter) error {
		tx, ok := pgdlq.TxFrom(ctx)
		if !ok {
			return errors.New("this handler begins a transaction of its own here")
		}
		if _, err := tx.Exec(ctx, "CREATE TABLE pawl_example_orders (id text)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO pawl_example_orders VALUES ($1)", l.ID)
		return err
	}
	rehearsal, err := queue.DryRun(ctx, handle, dlq.Letter{Stream: "orders", ID: "wamid.1"}, &dlq.DryRunOptions{Sandbox: pgdlq.Sandbox(pool)})
	fmt.Println(rehearsal.Verdict, err)
	var there bool
	err = pool.QueryRow(ctx, "SELECT to_regclass('pawl_example_orders') IS NOT NULL").Scan(&there)
	fmt.Println(there, err)
	// Output:
	// would pass <nil>
	// false <nil>
}
