package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func sum(b []byte) [32]byte { return sha256.Sum256(b) }

// eventJob is an event as a River job.
type eventJob struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Phone   string `json:"phone"`
	Payload []byte `json:"payload"`
	Sent    int64  `json:"sent"`
}

func (eventJob) Kind() string { return "event" }

func newEventJob(next func() string) eventJob {
	return eventJob{ID: next(), Account: "102290129340398", Phone: "15550783881", Payload: make([]byte, 512)}
}

func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// newRiver makes a client; one with a handler can be started.
func newRiver(pool *pgxpool.Pool, config river.Config, workers int, handle func(eventJob)) (*river.Client[pgx.Tx], error) {
	config.Logger = slog.New(slog.DiscardHandler)
	if handle != nil {
		config.Workers = river.NewWorkers()
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
		river.AddWorker(config.Workers, river.WorkFunc(func(_ context.Context, job *river.Job[eventJob]) error {
			handle(job.Args)
			return nil
		}))
	}
	return river.NewClient(riverpgxv5.New(pool), &config)
}

func acceptOneRiverCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	wide, _, box, err := openInbox(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	if err := migrateRiver(ctx, wide); err != nil {
		return nil, err
	}
	client, err := newRiver(wide, river.Config{}, 0, nil)
	if err != nil {
		return nil, err
	}
	const jobs = "river_job"
	return []Case{
		{Name: "Box.Accept", Role: Pawl, Run: emptied(wide, inboxTables, workers, acceptEvents(box, 1))},
		{Name: "River Insert", Role: Peer, Run: emptied(wide, jobs, workers, func(int) step {
			next := randomIDs()
			return func(ctx context.Context) (int, error) {
				_, err := client.Insert(ctx, newEventJob(next), nil)
				return 1, err
			}
		})},
		{Name: "River InsertManyFast of one", Role: Shown, Run: emptied(wide, jobs, workers, func(int) step {
			next := randomIDs()
			return func(ctx context.Context) (int, error) {
				return client.InsertManyFast(ctx, []river.InsertManyParams{{Args: newEventJob(next)}})
			}
		})},
		{Name: "River InsertManyFast of 100", Role: Shown, Run: emptied(wide, jobs, workers, func(int) step {
			next := randomIDs()
			return func(ctx context.Context) (int, error) {
				many := make([]river.InsertManyParams, 100)
				for i := range many {
					many[i].Args = newEventJob(next)
				}
				return client.InsertManyFast(ctx, many)
			}
		})},
	}, nil
}

func processRiverCases(ctx context.Context, env *Env) ([]Case, error) {
	pool, store, box, err := openInbox(ctx, env, 20)
	if err != nil {
		return nil, err
	}
	if err := migrateRiver(ctx, pool); err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Box.Work, 200 at once", Role: Pawl, Run: workInbox(pool, store, box)},
		{Name: "River, 2 clients of 100, cooldown 2 ms", Role: Peer, Run: func(ctx context.Context, _ time.Duration) ([]float64, error) {
			return workRiver(ctx, pool)
		}},
	}, nil
}

// workRiver works jobs until all are completed.
func workRiver(ctx context.Context, pool *pgxpool.Pool) ([]float64, error) {
	if err := empty(ctx, pool, "river_job"); err != nil {
		return nil, err
	}
	var clients []*river.Client[pgx.Tx]
	for range 2 {
		c, err := newRiver(pool, river.Config{FetchCooldown: 2 * time.Millisecond}, 100, func(eventJob) {})
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	next := randomIDs()
	for range processed / 1000 {
		many := make([]river.InsertManyParams, 1000)
		for i := range many {
			many[i].Args = newEventJob(next)
		}
		if _, err := clients[0].InsertManyFast(ctx, many); err != nil {
			return nil, err
		}
	}
	for _, q := range []string{"VACUUM ANALYZE river_job", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, q); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	for _, c := range clients {
		if err := c.Start(ctx); err != nil {
			return nil, err
		}
		defer func() { _ = c.Stop(context.WithoutCancel(ctx)) }()
	}
	for deadline := start.Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var left bool
		if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')").Scan(&left); err != nil {
			return nil, err
		}
		if !left {
			return []float64{processed / time.Since(start).Seconds()}, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("jobs are left after a minute")
		}
	}
}

func riverPickup(env *Env, url string) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		front, err := openPool(ctx, env, url, 10)
		if err != nil {
			return nil, err
		}
		back, err := openPool(ctx, env, url, 10)
		if err != nil {
			return nil, err
		}
		if err := migrateRiver(ctx, back); err != nil {
			return nil, err
		}
		if err := empty(ctx, back, "river_job"); err != nil {
			return nil, err
		}
		inserts, err := newRiver(front, river.Config{}, 0, nil)
		if err != nil {
			return nil, err
		}
		l := &latencies{}
		works, err := newRiver(back, river.Config{}, 100, func(j eventJob) { l.add(time.UnixMicro(j.Sent)) })
		if err != nil {
			return nil, err
		}
		if err := works.Start(ctx); err != nil {
			return nil, err
		}
		defer func() { _ = works.Stop(context.WithoutCancel(ctx)) }()
		next := randomIDs()
		ids := make(chan string)
		feeding, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			for {
				select {
				case ids <- next():
				case <-feeding.Done():
					return
				}
			}
		}()
		err = paced(ctx, 300, d, l, func(sent time.Time) error {
			job := newEventJob(func() string { return <-ids })
			job.Sent = sent.UnixMicro()
			_, err := inserts.Insert(ctx, job, nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		return []float64{quantile(l.took, 0.95), quantile(l.took, 0.5)}, nil
	}
}
