package pgreconcile_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// An order and the message about it are recorded in one transaction; the compensation
// queue sends the message, and nobody else.
func ExampleStore_Tx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: "pawl_example"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	defer pool.Exec(ctx, "DROP SCHEMA pawl_example CASCADE") // for the sake of the next run
	ledger, err := reconcile.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// beside: INSERT INTO your_orders ...
		return ledger.With(store.Tx(tx)).Record(ctx, reconcile.Op{Key: "order-7/confirmation", Account: "shop"})
	})
	fmt.Println(err)

	sending, stop := context.WithCancel(ctx)
	call := func(_ context.Context, op reconcile.Op) ([]byte, error) {
		fmt.Println("sent", op.Key)
		stop() // for the sake of the example
		return nil, nil
	}
	fmt.Println(ledger.Run(sending, call, nil, nil))
	counts, err := store.Counts(ctx, "default", "", true, 1)
	fmt.Println(counts[0].Account, counts[0].Confirmed, err)
	// Output:
	// <nil>
	// sent order-7/confirmation
	// <nil>
	// shop 1 <nil>
}
