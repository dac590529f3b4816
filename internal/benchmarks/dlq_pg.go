package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
)

func dlqPGComparisons() []Comparison {
	what := "Letters of 512 random bytes with an error of three types, one of 50 fingerprints, each with a key of its own, " +
		"on a server with its default settings. "
	all := []Comparison{
		{
			Name:    "postgres-dlq/put/batch=100/g=16",
			What:    what + "16 goroutines put 100 letters per call. The peer is one INSERT ... SELECT FROM unnest of the same rows into the same table.",
			Metrics: []Metric{{Name: "letters/s", Bar: Bar{Ratio: 0.8}}},
			Open:    deadLetterCases,
		},
		{
			Name: "postgres-dlq/redrive",
			What: what + "A redrive job releases 100,000 letters that are in review (where a measurement takes 2 s or longer, else 5,000), and a handler " +
				"that does nothing works them, until the last is recorded as resolved. The peer's goroutines claim 100 rows of the same table " +
				"with one UPDATE and complete them with another that compares a token; with 1, 4 and 16 of them.",
			Metrics: []Metric{{Name: "letters/s", Bar: Bar{Ratio: 0.5}}},
			Open:    redriveCases,
		},
	}
	for _, read := range []struct {
		name, what string
		call       func(*dlq.Review) func(ctx context.Context) (int, error)
	}{
		{"page", "The first page of 100 letters in review.", listing(dlq.Query{Stream: deadStream, State: dlq.StateReview, N: 100})},
		{"filter", "The first page of 100 letters of one fingerprint in review.", listing(dlq.Query{Stream: deadStream, State: dlq.StateReview, N: 100, Fingerprint: deadPrint(7)})},
		{"groups", "The counts of all groups.", grouping},
	} {
		all = append(all, Comparison{
			Name:    "postgres-dlq/" + read.name,
			What:    what + read.what + " The figure with 1,000,000 letters beside that with 10,000, in two databases of one server.",
			Metrics: []Metric{{Name: "us per call", Lower: true, Bar: Bar{Ratio: 2}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return readCases(ctx, env, read.call) },
		})
	}
	return all
}

const (
	deadStream = "orders"
	deadPrints = 50
	dlqTables  = "pawl.dlq_letters, pawl.dlq_lanes, pawl.dlq_entries, pawl.dlq_jobs, pawl.dlq_alarms, pawl.dlq_deltas, pawl.dlq_counts"
)

// deadPrint is the fingerprint of a failure, as Pawl stores what Options.Fingerprint says.
func deadPrint(n int) string {
	sum := sha256.Sum256([]byte(deadName(n)))
	return hex.EncodeToString(sum[:8])
}

func deadName(n int) string { return fmt.Sprintf("CRM answered 503, kind %d", n) }

// errDead is the failure of all letters here. Its number is its fingerprint's.
type errDead int

func (e errDead) Error() string { return "the CRM answered 503: no such order in this region" }

// openDLQ opens a queue whose letters are in the schema pawl of a server of its own.
func openDLQ(ctx context.Context, env *Env, connections int32) (*pgxpool.Pool, *dlq.Queue, error) {
	url, err := env.Postgres()
	if err != nil {
		return nil, nil, err
	}
	pool, err := openPool(ctx, env, url, connections)
	if err != nil {
		return nil, nil, err
	}
	q, err := queueOn(ctx, pool, "")
	return pool, q, err
}

func queueOn(ctx context.Context, pool *pgxpool.Pool, schema string) (*dlq.Queue, error) {
	store, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return dlq.New(store, &dlq.Options{Capacity: 10_000_000, Handler: "crm", Version: "2026-11-30", Fingerprint: func(err error) string {
		var dead errDead
		errors.As(err, &dead)
		return deadName(int(dead))
	}})
}

// deadLetters returns a source of new letters. It is for one goroutine. A body is of
// random bytes, so that PostgreSQL does not compress it.
func deadLetters() func() dlq.Dead {
	next := randomIDs()
	random := rand.NewChaCha8([32]byte{1})
	return func() dlq.Dead {
		id := next()
		body := make([]byte, 512)
		_, _ = random.Read(body)
		cause := fmt.Errorf("update the order: %w", fmt.Errorf("call the CRM: %w", errDead(rand.IntN(deadPrints))))
		return dlq.Dead{Message: dlq.Message{Stream: deadStream, ID: "wamid." + id, Key: "order-" + id, Payload: body}, Cause: cause}
	}
}

func deadLetterCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers, size = 16, 100
	wide, q, err := openDLQ(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	usual, err := openPool(ctx, env, wide.Config().ConnString(), 0)
	if err != nil {
		return nil, err
	}
	sample, err := sampleLetter(ctx, wide, q)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Queue.Put", Role: Pawl, Run: emptied(wide, dlqTables, workers, putLetters(q, size))},
		{Name: "unnest", Role: Peer, Run: emptied(wide, dlqTables, workers, insertLetters(wide, size, sample))},
		{Name: "unnest, pgxpool's usual size", Role: Peer, Run: emptied(wide, dlqTables, workers, insertLetters(usual, size, sample))},
	}, nil
}

func putLetters(q *dlq.Queue, size int) func(int) step {
	return func(int) step {
		next := deadLetters()
		return func(ctx context.Context) (int, error) {
			letters := make([]dlq.Dead, size)
			for i := range letters {
				letters[i] = next()
			}
			answers, err := q.Put(ctx, letters...)
			for _, a := range answers {
				if a != dlq.Added {
					return 0, errNotNew
				}
			}
			return size, err
		}
	}
}

// A deadRow is what the rows of the peer copy from a letter: the sizes are the same.
type deadRow struct{ body, digest, nonce, detail []byte }

func sampleLetter(ctx context.Context, pool *pgxpool.Pool, q *dlq.Queue) (r deadRow, err error) {
	if _, err := q.Put(ctx, deadLetters()()); err != nil {
		return r, err
	}
	err = pool.QueryRow(ctx, "SELECT body, digest, put_by, log_details[1] FROM pawl.dlq_letters").Scan(&r.body, &r.digest, &r.nonce, &r.detail)
	return r, err
}

// insertLetters is the barest insert of many letters that fills the columns of a new
// one. It makes the digests and details of its rows as little as it can: not at all.
func insertLetters(pool *pgxpool.Pool, size int, sample deadRow) func(int) step {
	const sql = `INSERT INTO pawl.dlq_letters (seq, rank, due, next, put, digest, put_by, stream, id, key, lane, fingerprint,
			log_times, log_prints, log_details, body)
		SELECT nextval('pawl.dlq_seq'), 0, 1700000000000000, 1700000000000000, 1700000000000000, a.digest, a.nonce, 'orders', a.id, a.key,
			'k' || a.key, a.print, ARRAY[1700000000000000], ARRAY[a.print], ARRAY[a.detail], a.body
		FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[])
			AS a(digest, nonce, id, key, print, detail, body)`
	return func(int) step {
		next := deadLetters()
		return func(ctx context.Context) (int, error) {
			digests, nonces, details, bodies := make([][]byte, size), make([][]byte, size), make([][]byte, size), make([][]byte, size)
			ids, keys, prints := make([]string, size), make([]string, size), make([]string, size)
			for i := range ids {
				d := next()
				var dead errDead
				errors.As(d.Cause, &dead)
				ids[i], keys[i], prints[i] = d.ID, d.Key, deadPrint(int(dead))
				digests[i], nonces[i], details[i] = sample.digest, sample.nonce, sample.detail
				bodies[i] = append(d.Payload[:len(d.Payload):len(d.Payload)], sample.body[:len(sample.body)-len(d.Payload)]...)
			}
			tag, err := pool.Exec(ctx, sql, digests, nonces, ids, keys, prints, details, bodies)
			if err == nil && tag.RowsAffected() != int64(size) {
				err = errNotNew
			}
			return size, err
		}
	}
}

func redriveCases(ctx context.Context, env *Env) ([]Case, error) {
	pool, q, err := openDLQ(ctx, env, 32)
	if err != nil {
		return nil, err
	}
	cases := []Case{{Name: "Redrive and Run", Role: Pawl, Run: redrive(pool, q)}}
	for _, g := range []int{1, 4, 16} {
		cases = append(cases, Case{Name: fmt.Sprintf("claim, complete; 100 rows, %d goroutines", g), Role: Peer, Run: bareRedrive(pool, q, g)})
	}
	return cases, nil
}

// fillReview empties the tables and puts letters in review.
func fillReview(ctx context.Context, pool *pgxpool.Pool, q *dlq.Queue, schema string, n int) error {
	next := deadLetters()
	for range n / 1000 {
		letters := make([]dlq.Dead, 1000)
		for i := range letters {
			letters[i] = next()
		}
		if _, err := q.Put(ctx, letters...); err != nil {
			return err
		}
	}
	for _, sql := range []string{
		"UPDATE pawl.dlq_letters SET state = 2, next = NULL, due = NULL",
		"INSERT INTO pawl.dlq_deltas (at, waiting, review, stream, print) SELECT max(put), -count(*), count(*), stream, fingerprint FROM pawl.dlq_letters GROUP BY stream, fingerprint",
		"SELECT pawl.dlq_fold('" + deadStream + "')",
		"VACUUM ANALYZE " + dlqTables,
		"CHECKPOINT",
	} {
		if _, err := pool.Exec(ctx, strings.ReplaceAll(sql, "pawl.", schema+".")); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// redriven is how many letters a measurement has.
func redriven(d time.Duration) int {
	if d < 2*time.Second {
		return 5_000
	}
	return 100_000
}

// redrive makes a job of all letters, and works them.
func redrive(pool *pgxpool.Pool, q *dlq.Queue) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		n := redriven(d)
		if err := empty(ctx, pool, dlqTables); err != nil {
			return nil, err
		}
		if err := fillReview(ctx, pool, q, "pawl", n); err != nil {
			return nil, err
		}
		review, err := dlq.NewReview(q, func(context.Context, dlq.Action) (string, error) { return "bench", nil }, nil)
		if err != nil {
			return nil, err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		var worked atomic.Int64
		start := time.Now()
		if _, _, err := review.Redrive(ctx, dlq.Redrive{Stream: deadStream, ID: "all", Ramp: []int{100}, Reason: "the CRM is back"}); err != nil {
			return nil, err
		}
		err = q.Run(running, func(context.Context, dlq.Letter) error {
			if worked.Add(1) == int64(n) {
				stop()
			}
			return nil
		}, &dlq.RunOptions{Stream: deadStream, Concurrency: 500, Poll: 10 * time.Millisecond})
		elapsed := time.Since(start) // Run waits for the last settlements
		if err != nil {
			return nil, err
		}
		totals, err := review.Totals(ctx, "", 1)
		if err == nil && (len(totals) != 1 || totals[0].Resolved != n) {
			err = fmt.Errorf("of %d letters there are %+v", n, totals)
		}
		return []float64{float64(n) / elapsed.Seconds()}, err
	}
}

// bareRedrive claims and completes rows of the same table, and knows nothing of keys,
// crashed workers, an audit, counts or errors.
func bareRedrive(pool *pgxpool.Pool, q *dlq.Queue, goroutines int) func(context.Context, time.Duration) ([]float64, error) {
	const (
		claim = `UPDATE pawl.dlq_letters AS r SET state = 1, tries = tries + 1, settled_by = $1
			FROM (SELECT seq FROM pawl.dlq_letters WHERE stream = 'orders' AND state = 2 ORDER BY stream, seq LIMIT 100 FOR UPDATE SKIP LOCKED) AS s
			WHERE r.stream = 'orders' AND r.seq = s.seq RETURNING r.seq, r.id, r.key, r.body`
		complete = `UPDATE pawl.dlq_letters SET state = 3, ended = seq, settled = $3, expires = $3
			WHERE stream = 'orders' AND seq = ANY ($2) AND settled_by = $1 AND state = 1`
	)
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		n := redriven(d)
		if err := empty(ctx, pool, dlqTables); err != nil {
			return nil, err
		}
		if err := fillReview(ctx, pool, q, "pawl", n); err != nil {
			return nil, err
		}
		var done atomic.Int64
		start := time.Now()
		_, err := fan(ctx, goroutines, time.Hour, func(int) step {
			return func(ctx context.Context) (int, error) {
				token := rand.Int64()
				rows, err := pool.Query(ctx, claim, token)
				if err != nil {
					return 0, err
				}
				var seqs []int64
				var seq int64
				var id, key string
				var body []byte
				_, err = pgx.ForEachRow(rows, []any{&seq, &id, &key, &body}, func() error { seqs = append(seqs, seq); return nil })
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
				if done.Add(int64(len(seqs))) == int64(n) {
					err = errEmptied
				}
				return len(seqs), err
			}
		})
		elapsed := time.Since(start)
		if !errors.Is(err, errEmptied) {
			return nil, err
		}
		return []float64{float64(n) / elapsed.Seconds()}, nil
	}
}

// readCases measures one call with few letters and with many.
func readCases(ctx context.Context, env *Env, newCall func(*dlq.Review) func(context.Context) (int, error)) ([]Case, error) {
	const few, many = 10_000, 1_000_000
	url, err := env.Postgres()
	if err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, env, url, 4)
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, c := range []struct {
		name   string
		role   Role
		schema string
		n      int
	}{{"1,000,000 letters", Pawl, "many", many}, {"10,000 letters", Peer, "few", few}} {
		q, err := queueOn(ctx, pool, c.schema)
		if err != nil {
			return nil, err
		}
		if err := fillReview(ctx, pool, q, c.schema, few); err != nil {
			return nil, err
		}
		if err := multiply(ctx, pool, c.schema, c.n/few); err != nil {
			return nil, err
		}
		review, err := dlq.NewReview(q, func(context.Context, dlq.Action) (string, error) { return "bench", nil }, nil)
		if err != nil {
			return nil, err
		}
		totals, err := review.Totals(ctx, "", 1)
		if err != nil || len(totals) != 1 || totals[0].Review != c.n {
			return nil, fmt.Errorf("%d letters are wanted, there are %+v, %w", c.n, totals, err)
		}
		call := newCall(review)
		cases = append(cases, Case{Name: c.name, Role: c.role, Run: func(ctx context.Context, d time.Duration) ([]float64, error) {
			one := func(int) step { return call }
			if _, err := fan(ctx, 1, warmUp(d), one); err != nil {
				return nil, err
			}
			rate, err := fan(ctx, 1, d, one)
			return []float64{1e6 / rate}, err
		}})
	}
	return cases, nil
}

// multiply makes so many letters of each, and has them counted.
func multiply(ctx context.Context, pool *pgxpool.Pool, schema string, times int) error {
	if times == 1 {
		return nil
	}
	columns := "put, digest, put_by, stream, fingerprint, log_times, log_prints, log_details, body"
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO pawl.dlq_letters (seq, rank, state, id, key, lane, %s)
			SELECT nextval('pawl.dlq_seq'), 0, 2, id || '-' || n, key || '-' || n, lane || '-' || n, %s
			FROM pawl.dlq_letters CROSS JOIN generate_series(2, %d) AS n`, columns, columns, times),
		fmt.Sprintf("UPDATE pawl.dlq_counts SET b = b * %d WHERE kind < 2", times),
		"VACUUM ANALYZE " + dlqTables,
		"CHECKPOINT",
	} {
		if _, err := pool.Exec(ctx, strings.ReplaceAll(sql, "pawl.", schema+".")); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func listing(query dlq.Query) func(*dlq.Review) func(context.Context) (int, error) {
	return func(r *dlq.Review) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			p, err := r.List(ctx, query)
			if err == nil && len(p.Letters) != query.N {
				err = fmt.Errorf("a page of %d letters", len(p.Letters))
			}
			return 1, err
		}
	}
}

func grouping(r *dlq.Review) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		groups, err := r.Groups(ctx, deadStream, "", 100)
		if err == nil && len(groups) != deadPrints {
			err = fmt.Errorf("%d groups", len(groups))
		}
		return 1, err
	}
}
