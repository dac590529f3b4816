package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/order/redisorder"
)

// lanes is the order store of a run.
type lanes struct {
	store  order.Store
	recall bool // the store may not know of what an earlier run accepted
	close  func() error

	// inTx makes a handler that has the effects in the transactions of the store; nil:
	// they are not in the same file.
	inTx func(effectOf func(order.Message) effect) order.TxHandler

	// together binds the store and the inbox to one transaction; nil: they are not in
	// the same file.
	together func(fn func(order.Store, inbox.Store) error) error
}

// openLanes opens the order store that the flags name. What it writes on a server
// has a name of its own, is kept with -data and where the events are on a server, and
// removed otherwise.
func openLanes(ctx context.Context, c config, s storage, o *outage) (*lanes, error) {
	name, changed, err := s.ordered(c.orderStore)
	if err != nil {
		return nil, err
	}
	l := &lanes{recall: changed, close: func() error { return nil }}
	file, inFile := s.(*bolt)
	switch {
	case c.orderStore == "memory":
		l.store, l.recall = order.NewMemory(), true
	case c.orderStore == "bolt" && inFile:
		l.together = file.together
		if l.store = file.lanes; file.claims != nil {
			l.inTx = file.inTx
		}
	case c.orderStore == "bolt":
		db, temporary, err := openFile("")
		if err != nil {
			return nil, err
		}
		l.close = func() error { return closeFile(db, temporary) }
		l.store, err = boltorder.New(db, nil)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
	case c.degrade:
		l.recall = true
		l.store, err = redisorder.New(o.server.client, nil)
	case c.orderStore == "redis":
		err = l.redis(ctx, c, name)
	case c.orderStore == "postgres":
		err = l.postgres(ctx, c, s, name)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *lanes) redis(ctx context.Context, c config, name string) error {
	opts, err := redis.ParseURL(c.redis)
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	store, err := redisorder.New(client, &redisorder.Options{Prefix: name})
	if err == nil {
		err = store.Check(ctx)
	}
	if err != nil && !errors.Is(err, order.ErrAtRisk) && !errors.Is(err, order.ErrUnchecked) {
		return errors.Join(fmt.Errorf("-redis: %w", err), client.Close())
	}
	l.store = store
	l.close = func() error {
		if c.kept() {
			return client.Close()
		}
		return errors.Join(forget(client, name), client.Close())
	}
	return nil
}

// forget removes the keys that begin with a name, or have it behind a brace.
func forget(client *redis.Client, name string) error {
	ctx := context.Background()
	for _, pattern := range []string{name + ":*", "{" + name + ":*"} {
		keys := client.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (l *lanes) postgres(ctx context.Context, c config, s storage, name string) error {
	pool, err := pgxpool.New(ctx, c.postgres)
	if err != nil {
		return err
	}
	store, err := pgorder.New(pool, &pgorder.Options{Schema: name})
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return fmt.Errorf("-postgres: %w", err)
	}
	l.store = store
	if same, ok := s.(*postgres); ok {
		l.inTx = func(effectOf func(order.Message) effect) order.TxHandler { return same.inTx(store, effectOf) }
		l.together = func(fn func(order.Store, inbox.Store) error) error { return same.together(store, fn) }
	}
	l.close = func() (err error) {
		defer pool.Close()
		if !c.kept() {
			_, err = pool.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		}
		return err
	}
	return nil
}
