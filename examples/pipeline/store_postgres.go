package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
)

// postgres keeps events, claims, effects and numbers in one schema of a database,
// where the next run finds them.
type postgres struct {
	*replies
	pool      *pgxpool.Pool
	box       *pginbox.Store
	claims    *pgdedup.Store
	guard     *dedup.Guard
	numbers   *pgseqgen.Store
	generator *seqgen.Generator
	lanes     *pgorder.Store // of the replies
}

// serverName is the schema, or the prefix of the keys, of everything that this
// program keeps on a server.
const serverName = "pawl_pipeline"

// The tables of the program itself. Effects are numbered, not keyed by the event,
// so that a second effect of an event is seen.
const postgresTables = `
CREATE TABLE IF NOT EXISTS ` + serverName + `.effects (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, effect bytea NOT NULL);
CREATE TABLE IF NOT EXISTS ` + serverName + `.numbers (id text COLLATE "C" PRIMARY KEY, position bytea NOT NULL);
CREATE TABLE IF NOT EXISTS ` + serverName + `.run (key text PRIMARY KEY, value text NOT NULL)`

func openPostgres(ctx context.Context, url string) (*postgres, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, errors.New("-postgres: not the URL of a PostgreSQL server") // the cause may have a password in it
	}
	p := &postgres{pool: pool}
	if err := p.use(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("-postgres: %w", err)
	}
	return p, nil
}

func (p *postgres) use(ctx context.Context) (err error) {
	if p.box, err = pginbox.New(p.pool, &pginbox.Options{Schema: serverName}); err != nil {
		return err
	}
	if p.claims, err = pgdedup.New(p.pool, &pgdedup.Options{Schema: serverName}); err != nil {
		return err
	}
	if p.numbers, err = pgseqgen.New(p.pool, &pgseqgen.Options{Schema: serverName}); err != nil {
		return err
	}
	if p.guard, err = dedup.New(p.claims, guardOptions); err != nil {
		return err
	}
	if p.generator, err = seqgen.New(p.numbers, &seqgen.Options{Scope: "sender"}); err != nil {
		return err
	}
	if p.lanes, err = pgorder.New(p.pool, &pgorder.Options{Schema: serverName}); err != nil {
		return err
	}
	letters, err := pgdlq.New(p.pool, &pgdlq.Options{Schema: serverName})
	if err != nil {
		return err
	}
	operations, err := pgreconcile.New(p.pool, &pgreconcile.Options{Schema: serverName})
	if err != nil {
		return err
	}
	p.replies, err = newReplies(outbound{
		lanes: p.lanes, operations: operations, said: operations.Timeline(), letters: letters,
		findings: operations.Checks(),
	}, settleTime)
	if err != nil {
		return err
	}
	for _, migrate := range []func(context.Context) error{
		p.box.Migrate, p.claims.Migrate, p.numbers.Migrate, p.lanes.Migrate, letters.Migrate, operations.Migrate,
	} {
		if err := migrate(ctx); err != nil {
			return err
		}
	}
	_, err = p.pool.Exec(ctx, postgresTables)
	return err
}

func (p *postgres) events() inbox.Store { return p.box }

func (p *postgres) close() error {
	p.pool.Close()
	return nil
}

// handle has the effect in the transaction of the completion: either both are
// durable or neither is.
func (p *postgres) handle(ctx context.Context, e effect) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return p.handleIn(ctx, tx, e) })
}

func (p *postgres) handleIn(ctx context.Context, tx pgx.Tx, e effect) error {
	return p.guard.With(p.claims.Tx(tx)).Do(ctx, dedup.Request{ID: e.ID}, func(ctx context.Context) error {
		if err := p.enqueue(ctx, p.lanes.Tx(tx), e); err != nil {
			return err
		}
		v, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO "+serverName+".effects (effect) VALUES ($1)", v)
		return err
	})
}

// inTx delivers messages of an order store in the same database: the effects, their
// completions and the move of the cursor are one commit.
func (p *postgres) inTx(s *pgorder.Store, effectOf func(order.Message) effect) order.TxHandler {
	return s.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		return p.handleIn(ctx, tx, effectOf(m))
	})
}

// together binds the inbox and an order store in the same database to one
// transaction.
func (p *postgres) together(s *pgorder.Store, fn func(order.Store, inbox.Store) error) error {
	return pgx.BeginFunc(context.Background(), p.pool, func(tx pgx.Tx) error { return fn(s.Tx(tx), p.box.Tx(tx)) })
}

// number commits a number together with the event it was given to: a crash between
// the two would leave a gap that nothing ever fills.
func (p *postgres) number(ctx context.Context, events []inbox.Event) (list []position, err error) {
	list = make([]position, len(events))
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		numbers := p.generator.With(p.numbers.Tx(tx))
		for i, e := range events {
			var v []byte
			err := tx.QueryRow(ctx, "SELECT position FROM "+serverName+".numbers WHERE id = $1", e.ID).Scan(&v)
			if err == nil {
				err = json.Unmarshal(v, &list[i])
			}
			if !errors.Is(err, pgx.ErrNoRows) {
				if err != nil {
					return fmt.Errorf("the number of an event: %w", err)
				}
				continue
			}
			next, err := numbers.NextTx(ctx, laneOf(e))
			if err != nil {
				return err
			}
			list[i] = at(laneOf(e), next)
			if v, err = json.Marshal(list[i]); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO "+serverName+".numbers (id, position) VALUES ($1, $2)", e.ID, v); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

func (p *postgres) effects() (list []effect, err error) {
	rows, err := p.pool.Query(context.Background(), "SELECT effect FROM "+serverName+".effects ORDER BY n")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e effect, err error) {
		var v []byte
		if err := row.Scan(&v); err != nil {
			return e, err
		}
		return e, json.Unmarshal(v, &e)
	})
}

func (p *postgres) ordered(by string) (name string, changed bool, err error) {
	ctx := context.Background()
	totals, err := p.box.Totals(ctx)
	if err != nil {
		return "", false, err
	}
	var before string
	err = p.pool.QueryRow(ctx, "SELECT value FROM "+serverName+".run WHERE key = 'order'").Scan(&before)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", false, err
	}
	return serverName, before != by, sameOrder("the database", totals, before, by)
}

func (p *postgres) orderedBy(by string) error {
	_, err := p.pool.Exec(context.Background(), "INSERT INTO "+serverName+".run VALUES ('order', $1) ON CONFLICT (key) DO UPDATE SET value = $1", by)
	return err
}

func (p *postgres) place(ctx context.Context) (name string, err error) {
	_, err = p.pool.Exec(ctx, "INSERT INTO "+serverName+".run VALUES ('gateway', $1) ON CONFLICT DO NOTHING", newName())
	if err == nil {
		err = p.pool.QueryRow(ctx, "SELECT value FROM "+serverName+".run WHERE key = 'gateway'").Scan(&name)
	}
	return serverPlace(name), err
}
