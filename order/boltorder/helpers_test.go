package boltorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/order"
)

func params() order.Params {
	return order.Params{Scope: "default", Start: 1, Window: 10, MaxBuffered: 100, MaxAhead: 1000, Late: true,
		GapLook: time.Minute, KeepBody: time.Hour, KeepGaps: time.Hour}
}

func ask(nonce byte) order.Ask {
	return order.Ask{Nonce: [16]byte{nonce}, Keys: 10, Messages: 10, Bytes: 1 << 20, Lease: time.Minute}
}

// arrivals are messages of a key as a buffer pushes them.
func arrivals(key string, from, to uint64) (list []order.Arrival) {
	for _, m := range messages(key, from, to) {
		list = append(list, order.Arrival{Message: m, Digest: [16]byte{byte(m.Position.Number)}})
	}
	return list
}

// lastTx is the number of the last commit.
func lastTx(t testing.TB, f *file) (id int) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// entries is how many there are in a bucket of the default scope.
func entries(tx *bbolt.Tx, bucket string) int {
	return tx.Bucket([]byte("pawl/order")).Bucket([]byte("scope:default")).Bucket([]byte(bucket)).Stats().KeyN
}

// start delivers in the background, and returns how to stop that.
func start(t testing.TB, b *order.Buffer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- b.Run(ctx, func(context.Context, order.Message) error { return nil }, nil)
	}()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}
