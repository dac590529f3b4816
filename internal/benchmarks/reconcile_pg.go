package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

func reconcilePGComparisons() []Comparison {
	all := []Comparison{{
		Name: "postgres-reconcile/do/g=64",
		What: "64 goroutines do new operations, each with a random key of 36 bytes, one of 100 accounts and a call that does nothing, on a server with " +
			"its default settings. The peer inserts the row of the operation into the same table, and then updates it, each by itself and with its commit.",
		Metrics: []Metric{{Name: "operations/s", Bar: Bar{Ratio: 4}}},
		Open:    doCases,
	}}
	for _, size := range []int{100, 1000} {
		all = append(all, Comparison{
			Name: fmt.Sprintf("postgres-reconcile/append/batch=%d/g=16", size),
			What: fmt.Sprintf("16 goroutines append %d observations per call, each about a message of its own, with an ID of the caller's. The peer is one "+
				"INSERT ... SELECT FROM unnest of all columns into the same table.", size),
			Metrics: []Metric{{Name: "observations/s", Bar: Bar{Ratio: 0.8}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return appendCases(ctx, env, size) },
		})
	}
	return all
}

const (
	reconcileTables = "pawl.reconcile_ops, pawl.reconcile_deltas, pawl.reconcile_counts, pawl.reconcile_observations"

	opInsert = "INSERT INTO pawl.reconcile_ops (token, created, first, sent, due, until, nonce, kind, key, account, log)" +
		" VALUES ($1, $1, $1, $1, $1, $1, '\\x00112233445566778899aabbccddeeff'::bytea, 'default', $2, $3, ARRAY['1700000000000000 7 1 1700000000000000 0 '])"
	opUpdate = "UPDATE pawl.reconcile_ops SET state = 3, ended_by = 2, until = NULL, due = NULL, expires = $3," +
		" log = log || '1700000000000000 2 3 1700000000000000 4 call'::text WHERE kind = 'default' AND key = $2 AND token = $1"

	observationsInsert = "INSERT INTO pawl.reconcile_observations" +
		" (received, said, expires, nth, absurd, digest, kind, event, subject, own, status, participant, source, code)" +
		" SELECT 1700000000000000, a.said, 1700000000000000, 1, false, a.digest, 'default', a.event, a.subject, a.own, a.status, a.participant, a.source, a.code" +
		" FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])" +
		" AS a(said, digest, event, subject, own, status, participant, source, code)"
)

func openReconcile(ctx context.Context, env *Env, workers int32) (wide, usual *pgxpool.Pool, store *pgreconcile.Store, err error) {
	url, err := env.Postgres()
	if err != nil {
		return nil, nil, nil, err
	}
	if wide, err = openPool(ctx, env, url, workers); err != nil {
		return nil, nil, nil, err
	}
	if usual, err = openPool(ctx, env, url, 0); err != nil {
		return nil, nil, nil, err
	}
	if store, err = pgreconcile.New(wide, nil); err != nil {
		return nil, nil, nil, err
	}
	return wide, usual, store, store.Migrate(ctx)
}

func doCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	wide, usual, store, err := openReconcile(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	ledger, err := reconcile.New(store, nil)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Ledger.Do", Role: Pawl, Run: emptied(wide, reconcileTables, workers, doOperations(ledger))},
		{Name: "INSERT and UPDATE of one row", Role: Peer, Run: emptied(wide, reconcileTables, workers, insertAndUpdate(wide))},
		{Name: "INSERT and UPDATE of one row, pgxpool's usual size", Role: Peer, Run: emptied(wide, reconcileTables, workers, insertAndUpdate(usual))},
	}, nil
}

func randomAccount() string { return fmt.Sprintf("account-%02d", rand.IntN(100)) }

func doOperations(ledger *reconcile.Ledger) func(int) step {
	call := func(context.Context, reconcile.Op) ([]byte, error) { return nil, nil }
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			return 1, ledger.Do(ctx, reconcile.Op{Key: next(), Account: randomAccount()}, call, nil)
		}
	}
}

func insertAndUpdate(pool *pgxpool.Pool) func(int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			key, now := next(), time.Now().UnixMicro()
			if _, err := pool.Exec(ctx, opInsert, now, key, randomAccount()); err != nil {
				return 0, err
			}
			tag, err := pool.Exec(ctx, opUpdate, now, key, now)
			if err == nil && tag.RowsAffected() != 1 {
				err = errors.New("the operation is not there")
			}
			return 1, err
		}
	}
}

func appendCases(ctx context.Context, env *Env, size int) ([]Case, error) {
	const workers = 16
	wide, usual, store, err := openReconcile(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Timeline.Append", Role: Pawl, Run: emptied(wide, reconcileTables, workers, appendObservations(timeline, size))},
		{Name: "unnest", Role: Peer, Run: emptied(wide, reconcileTables, workers, insertObservations(wide, size))},
		{Name: "unnest, pgxpool's usual size", Role: Peer, Run: emptied(wide, reconcileTables, workers, insertObservations(usual, size))},
	}, nil
}

func appendObservations(timeline *reconcile.Timeline, size int) func(int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			os := make([]reconcile.Observation, size)
			now := time.Now()
			for i := range os {
				id := next()
				os[i] = reconcile.Observation{Ref: reconcile.Ref{Event: "evt-" + id, Message: "wamid." + id, Own: "order-" + id},
					Status: "delivered", Source: "webhook", Said: now}
			}
			answers, err := timeline.Append(ctx, os...)
			for _, a := range answers {
				if a != reconcile.Appended {
					return 0, errNotNew
				}
			}
			return size, err
		}
	}
}

func insertObservations(pool *pgxpool.Pool, size int) func(int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			text := func() []string { return make([]string, size) }
			saids, digests := make([]int64, size), make([][]byte, size)
			events, subjects, owns, statuses, participants, sources, codes := text(), text(), text(), text(), text(), text(), text()
			now := time.Now()
			for i := range size {
				id := next()
				digest := sum([]byte(id))
				saids[i], digests[i], events[i], subjects[i], owns[i] = now.UnixMicro(), digest[:], "evt-"+id, "mwamid."+id, "order-"+id
				statuses[i], sources[i] = "delivered", "webhook"
			}
			_, err := pool.Exec(ctx, observationsInsert, saids, digests, events, subjects, owns, statuses, participants, sources, codes)
			return size, err
		}
	}
}
