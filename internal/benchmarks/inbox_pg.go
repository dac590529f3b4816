package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

func inboxPGComparisons() []Comparison {
	what := "Events of 10,000 ordering keys, each with a payload of 512 random bytes, an ID and a message ID, on a server with its default settings. "
	var all []Comparison
	all = append(all,
		Comparison{
			Name:    "postgres-inbox/accept/g=64",
			What:    what + "64 goroutines accept one event per call, which is durable when it is answered. The peer inserts one row into the same table.",
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 4}}},
			Open:    acceptOneCases,
		},
		Comparison{
			Name:    "postgres-inbox/accept/g=64/river",
			What:    what + "The same beside River's Insert of one job with such a payload; its InsertManyFast of one job is shown.",
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 10}}},
			Open:    acceptOneRiverCases,
		})
	for _, size := range []int{100, 1000} {
		all = append(all, Comparison{
			Name: fmt.Sprintf("postgres-inbox/accept/batch=%d/g=16", size),
			What: what + fmt.Sprintf("16 goroutines accept %d events per call. The peer is one INSERT ... SELECT FROM unnest of all columns into the same table.",
				size),
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 0.8}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return acceptManyCases(ctx, env, size) },
		})
	}
	return append(all,
		Comparison{
			Name: "postgres-inbox/table/batch=100/g=16",
			What: what + "16 goroutines insert 100 events per call with one INSERT ... SELECT FROM unnest into pginbox's table. " +
				"The peer inserts the same into a table with the same columns and one unique index.",
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 0.5}}},
			Open:    inboxTableCases,
		},
		Comparison{
			Name: "postgres-inbox/process",
			What: what + "20,000 stored events are worked with a handler that does nothing, until the last one is recorded as done. The peer's " +
				"goroutines claim 100 rows of the same table with one UPDATE and complete them with another that compares a token; " +
				"with 4 and with 16 of them.",
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 0.8}}},
			Open:    processCases,
		},
		Comparison{
			Name: "postgres-inbox/process/river",
			What: what + "The same beside 2 River clients of 100 workers, FetchCooldown 2 ms, until every job is completed. " +
				"Pawl has as many handlers.",
			Metrics: []Metric{{Name: "events/s", Bar: Bar{Ratio: 2}}},
			Open:    processRiverCases,
		},
		Comparison{
			Name: "postgres-inbox/pickup/rate=300",
			What: what + "300 events a second are accepted in one store and worked in another, which share the database only. " +
				"The peer is River with its defaults. Counted from the call that accepts to the beginning of the handler.",
			Metrics: []Metric{{Name: "ms, p95", Lower: true, Bar: Bar{Ratio: 0.1}}, {Name: "ms, p50", Lower: true}},
			Open:    pickupCases,
		},
		Comparison{
			Name: "postgres-inbox/snapshot/rate=2000",
			What: what + "2,000 events a second while a transaction keeps a snapshot open, for 60 s where a measurement takes 2 s or longer. " +
				"Counted as in pickup; the worst p95 of any five seconds.",
			Metrics: []Metric{{Name: "ms, worst p95", Lower: true, Bar: Bar{Value: 50}}, {Name: "ms, p95", Lower: true}},
			Open:    snapshotCases,
		},
		Comparison{
			Name:    "postgres-inbox/killed",
			What:    what + "A worker with a lease of 5 s vanishes with 100 events in its hands. Counted until another has worked them all.",
			Metrics: []Metric{{Name: "s", Lower: true, Bar: Bar{Value: 10}}},
			Open:    killedCases,
		},
	)
}

const (
	inboxTable   = "pawl.inbox_records"
	inboxColumns = "(seq, received, since, occurred, state, rank, fingerprinted, unknown, digest, id, stream, key, provider, type, version," +
		" account, phone, message_id, external_id, trace, payload)"
	inboxFixed = "nextval('pawl.inbox_seq'), 1700000000000000, 1700000000000000, 1700000000000000, 1, 0, false, false"

	inboxInsertOne = "INSERT INTO " + inboxTable + inboxColumns + " VALUES (" + inboxFixed +
		", $1, $2, 'default', $3, 'bench', 'messages.messages.text', 'v1', '102290129340398', '15550783881', $4, '', '', $5)"
)

// inboxInsertMany is the barest insert of many events that fills the same columns.
func inboxInsertMany(table string) string {
	return "INSERT INTO " + table + inboxColumns + " SELECT " + inboxFixed +
		", a.digest, a.id, a.stream, a.key, a.provider, a.type, a.version, a.account, a.phone, a.message, a.external, '', a.payload" +
		" FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]," +
		" $10::text[], $11::text[], $12::bytea[])" +
		" AS a(digest, id, stream, key, provider, type, version, account, phone, message, external, payload)"
}

// randomEvents returns a source of new events. It is for one goroutine.
func randomEvents() func() inbox.Event {
	next := randomIDs()
	body := make([]byte, 512)
	random := rand.NewChaCha8([32]byte{1})
	occurred := time.Now()
	return func() inbox.Event {
		id := next()
		_, _ = random.Read(body)
		return inbox.Event{
			ID: "bench/" + id, Provider: "bench", Type: "messages.messages.text", Version: "v1", Key: fmt.Sprintf("conversation-%05d", rand.IntN(10_000)),
			Account: "102290129340398", Phone: "15550783881", MessageID: id, Occurred: occurred, Payload: append([]byte(nil), body...),
		}
	}
}

func openInbox(ctx context.Context, env *Env, connections int32) (*pgxpool.Pool, *pginbox.Store, *inbox.Box, error) {
	url, err := env.Postgres()
	if err != nil {
		return nil, nil, nil, err
	}
	pool, err := openPool(ctx, env, url, connections)
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := pginbox.New(pool, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, nil, nil, err
	}
	box, err := inbox.New(store, nil)
	return pool, store, box, err
}

// emptied warms up, empties the tables and measures.
func emptied(pool *pgxpool.Pool, tables string, workers int, newStep func(int) step) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if _, err := fan(ctx, workers, warmUp(d), newStep); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		if err := empty(ctx, pool, tables); err != nil {
			return nil, err
		}
		rate, err := fan(ctx, workers, d, newStep)
		return []float64{rate}, err
	}
}

func empty(ctx context.Context, pool *pgxpool.Pool, tables string) error {
	for _, q := range []string{"TRUNCATE " + tables, "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

const inboxTables = "pawl.inbox_records, pawl.inbox_done, pawl.inbox_keys"

func acceptOneCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	wide, _, box, err := openInbox(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	usual, err := openPool(ctx, env, wide.Config().ConnString(), 0)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Box.Accept", Role: Pawl, Run: emptied(wide, inboxTables, workers, acceptEvents(box, 1))},
		{Name: "INSERT of one row", Role: Peer, Run: emptied(wide, inboxTables, workers, insertEvent(wide))},
		{Name: "INSERT of one row, pgxpool's usual size", Role: Peer, Run: emptied(wide, inboxTables, workers, insertEvent(usual))},
	}, nil
}

func acceptManyCases(ctx context.Context, env *Env, size int) ([]Case, error) {
	const workers = 16
	wide, _, box, err := openInbox(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	usual, err := openPool(ctx, env, wide.Config().ConnString(), 0)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Box.Accept", Role: Pawl, Run: emptied(wide, inboxTables, workers, acceptEvents(box, size))},
		{Name: "unnest", Role: Peer, Run: emptied(wide, inboxTables, workers, insertEvents(wide, inboxTable, size))},
		{Name: "unnest, pgxpool's usual size", Role: Peer, Run: emptied(wide, inboxTables, workers, insertEvents(usual, inboxTable, size))},
	}, nil
}

func inboxTableCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers, size, plain = 16, 100, "plain_records"
	wide, _, _, err := openInbox(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	_, err = wide.Exec(ctx, "CREATE TABLE "+plain+" (LIKE "+inboxTable+" INCLUDING DEFAULTS INCLUDING STORAGE); CREATE UNIQUE INDEX ON "+plain+" (id)",
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "pginbox's table", Role: Pawl, Run: emptied(wide, inboxTables, workers, insertEvents(wide, inboxTable, size))},
		{Name: "one unique index", Role: Peer, Run: emptied(wide, plain, workers, insertEvents(wide, plain, size))},
	}, nil
}

func acceptEvents(box *inbox.Box, size int) func(int) step {
	return func(int) step {
		next := randomEvents()
		return func(ctx context.Context) (int, error) {
			events := make([]inbox.Event, size)
			for i := range events {
				events[i] = next()
			}
			answers, err := box.Accept(ctx, events...)
			for _, a := range answers {
				if a != inbox.Accepted {
					return 0, errNotNew
				}
			}
			return size, err
		}
	}
}

func insertEvent(pool *pgxpool.Pool) func(int) step {
	return func(int) step {
		next := randomEvents()
		return func(ctx context.Context) (int, error) {
			e := next()
			digest := sum(e.Payload)
			_, err := pool.Exec(ctx, inboxInsertOne, digest[:], e.ID, e.Key, e.MessageID, e.Payload)
			return 1, err
		}
	}
}

func insertEvents(pool *pgxpool.Pool, table string, size int) func(int) step {
	sql := inboxInsertMany(table)
	return func(int) step {
		next := randomEvents()
		return func(ctx context.Context) (int, error) {
			text := func() []string { return make([]string, size) }
			digests, payloads := make([][]byte, size), make([][]byte, size)
			ids, streams, keys, providers, types, versions := text(), text(), text(), text(), text(), text()
			accounts, phones, messages, externals := text(), text(), text(), text()
			for i := range size {
				e := next()
				digest := sum(e.Payload)
				digests[i], ids[i], streams[i], keys[i], providers[i], types[i], versions[i] = digest[:], e.ID, "default", e.Key, e.Provider, e.Type, e.Version
				accounts[i], phones[i], messages[i], payloads[i] = e.Account, e.Phone, e.MessageID, e.Payload
			}
			_, err := pool.Exec(ctx, sql, digests, ids, streams, keys, providers, types, versions, accounts, phones, messages, externals, payloads)
			return size, err
		}
	}
}

const processed = 20_000

// fillInbox empties the tables and stores events.
func fillInbox(ctx context.Context, pool *pgxpool.Pool, box *inbox.Box) error {
	if err := empty(ctx, pool, inboxTables); err != nil {
		return err
	}
	accept := acceptEvents(box, 1000)(0)
	for range processed / 1000 {
		if _, err := accept(ctx); err != nil {
			return err
		}
	}
	for _, q := range []string{"VACUUM ANALYZE " + inboxTables, "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func processCases(ctx context.Context, env *Env) ([]Case, error) {
	pool, store, box, err := openInbox(ctx, env, 20)
	if err != nil {
		return nil, err
	}
	cases := []Case{{Name: "Box.Work, 200 at once", Role: Pawl, Run: workInbox(pool, store, box)}}
	for _, g := range []int{4, 16} {
		cases = append(cases, Case{Name: fmt.Sprintf("claim, complete; 100 rows, %d goroutines", g), Role: Peer, Run: bareLoop(pool, box, g)})
	}
	return cases, nil
}

// workInbox works all events with a fresh box.
func workInbox(pool *pgxpool.Pool, store *pginbox.Store, filler *inbox.Box) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, _ time.Duration) ([]float64, error) {
		if err := fillInbox(ctx, pool, filler); err != nil {
			return nil, err
		}
		box, err := inbox.New(store, nil)
		if err != nil {
			return nil, err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		var worked atomic.Int64
		start := time.Now()
		err = box.Work(running, func(context.Context, inbox.Record) inbox.Outcome {
			if worked.Add(1) == processed {
				stop()
			}
			return inbox.Done()
		}, &inbox.WorkOptions{Concurrency: 200})
		elapsed := time.Since(start) // Work waits for the last settlements
		if err != nil {
			return nil, err
		}
		totals, err := box.Totals(ctx)
		if err == nil && totals.Done != processed {
			err = fmt.Errorf("%d of %d events are done", totals.Done, processed)
		}
		return []float64{processed / elapsed.Seconds()}, err
	}
}

// bareLoop claims and completes rows of the same table, and knows nothing of keys,
// of crashed workers, or of errors.
func bareLoop(pool *pgxpool.Pool, filler *inbox.Box, goroutines int) func(context.Context, time.Duration) ([]float64, error) {
	const running = 7 // a state of its own
	claim := fmt.Sprintf(`UPDATE %s AS r SET state = %d, attempts = attempts + 1, ended_by = $1
		FROM (SELECT seq FROM %s WHERE stream = 'default' AND state = 1 ORDER BY stream, key, seq LIMIT 100 FOR UPDATE SKIP LOCKED) AS s
		WHERE r.seq = s.seq RETURNING r.seq, r.id, r.type, r.payload`, inboxTable, running, inboxTable)
	complete := fmt.Sprintf(`UPDATE %s SET state = 2, settled = $3, expires = $3 WHERE seq = ANY ($2) AND ended_by = $1 AND state = %d`, inboxTable, running)
	return func(ctx context.Context, _ time.Duration) ([]float64, error) {
		if err := fillInbox(ctx, pool, filler); err != nil {
			return nil, err
		}
		start := time.Now()
		var done atomic.Int64
		_, err := fan(ctx, goroutines, time.Hour, func(int) step {
			return func(ctx context.Context) (int, error) {
				token := rand.Int64()
				rows, err := pool.Query(ctx, claim, token)
				if err != nil {
					return 0, err
				}
				var seqs []int64
				var seq int64
				var id, kind string
				var payload []byte
				_, err = pgx.ForEachRow(rows, []any{&seq, &id, &kind, &payload}, func() error { seqs = append(seqs, seq); return nil })
				if err != nil {
					return 0, err
				}
				if len(seqs) == 0 { // the last ones are with the others
					time.Sleep(time.Millisecond)
					return 0, nil
				}
				tag, err := pool.Exec(ctx, complete, token, seqs, time.Now().UnixMicro())
				if err == nil && tag.RowsAffected() != int64(len(seqs)) {
					err = errors.New("a row was taken away")
				}
				if done.Add(int64(len(seqs))) == processed {
					err = errEmptied
				}
				return len(seqs), err
			}
		})
		elapsed := time.Since(start)
		if !errors.Is(err, errEmptied) {
			return nil, err
		}
		if n := done.Load(); n != processed {
			return nil, fmt.Errorf("%d of %d rows are done", n, processed)
		}
		return []float64{processed / elapsed.Seconds()}, nil
	}
}

var errEmptied = errors.New("nothing is left")
