package pgdedup_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
)

// A message that is delivered twice has its effect once.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	store, err := pgdedup.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(store, &dedup.Options{Scope: "example-greetings"})
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Forget(ctx, "wamid.1") // for the sake of the next run

	for range 2 {
		err := guard.Do(ctx, dedup.Request{ID: "wamid.1"}, func(ctx context.Context) error {
			fmt.Println("hello")
			return nil
		})
		fmt.Println("acknowledge:", err == nil)
	}
	// Output:
	// hello
	// acknowledge: true
	// acknowledge: true
}

// The claim, the business write and the completion commit together. While the
// transaction is open, everybody else is told that the message is in flight; a
// rollback would make it new again.
func ExampleStore_Tx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgdedup.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(store, &dedup.Options{Scope: "example-payments"})
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Forget(ctx, "order-7") // for the sake of the next run

	pay := func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return guard.With(store.Tx(tx)).Do(ctx, dedup.Request{ID: "order-7"}, func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "SELECT 'your business write'")
				fmt.Println("paid")

				var refused *dedup.ClaimError
				other := guard.Do(ctx, dedup.Request{ID: "order-7"}, func(context.Context) error { return nil })
				fmt.Println("somebody else:", errors.As(other, &refused), refused.Claim.State)
				return err
			})
		})
	}
	fmt.Println("acknowledge:", pay() == nil)
	fmt.Println("acknowledge:", pay() == nil)
	// Output:
	// paid
	// somebody else: true in flight
	// acknowledge: true
	// acknowledge: true
}

// Expired records are removed a little at a time, by one process or by many.
func ExampleStore_Sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // in a service: until it stops
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgdedup.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}

	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if n, err := store.Sweep(ctx, 10_000); err != nil {
				log.Print(err) // the next one goes on
			} else if n > 0 {
				log.Printf("removed %d expired records", n)
			}
		case <-ctx.Done():
			fmt.Println("stopped")
			return
		}
	}
	// Output: stopped
}
