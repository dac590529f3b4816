package pgseqgen_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
)

// The number and what it numbers commit together. A rollback returns the number.
func ExampleStore_Tx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgseqgen.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	generator, err := seqgen.New(store, &seqgen.Options{Scope: "example"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := generator.Bump(ctx, "invoices"); err != nil { // for the sake of the next run
		log.Fatal(err)
	}

	invoice := func(then error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			at, err := generator.With(store.Tx(tx)).NextTx(ctx, "invoices")
			if err != nil {
				return err
			}
			fmt.Println("invoice", at.Number)
			return then // your own writes with tx come here
		})
	}
	fmt.Println(invoice(nil))
	fmt.Println(invoice(errors.New("the customer is unknown")))
	fmt.Println(invoice(nil))
	// Output:
	// invoice 1
	// <nil>
	// invoice 2
	// the customer is unknown
	// invoice 2
	// <nil>
}
