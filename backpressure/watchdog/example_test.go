package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/retry"
)

// A worker whose handler hangs is restarted. The times are short so that the example
// is; leave them out, and a zombie is one after ten minutes.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	store := watchdog.NewMemory() // rediswatchdog or pgwatchdog, for several processes

	// The worker.
	reporter, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: "orders-1", Interval: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- reporter.Run(ctx) }()
	loop, restart := context.WithCancel(ctx)
	handle := watchdog.Around(reporter, func(ctx context.Context, order string) error {
		<-ctx.Done() // it hangs
		return ctx.Err()
	})
	handled := make(chan error)
	go func() { handled <- handle(loop, "order 7") }()

	// The watchdog, best in another process.
	w, err := watchdog.New(store, &watchdog.Options{
		Every: 10 * time.Millisecond, Zombie: 50 * time.Millisecond, HandlerLimit: 20 * time.Millisecond,
		Restart: func(ctx context.Context, i watchdog.Incident) error {
			fmt.Printf("attempt %d for a %v: %v\n", i.Attempt, i.Worker.Verdict, i.Worker.State)
			restart()
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { stopped <- w.Run(ctx) }()

	fmt.Println(<-handled)
	cancel()
	fmt.Println(<-stopped, <-stopped)
	// Output:
	// attempt 1 for a zombie: handler too long
	// context canceled
	// <nil> <nil>
}

// A watchdog without a restart function reports, and a round can be made by hand.
func ExampleWatchdog_Round() {
	ctx := context.Background()
	store := watchdog.NewMemory()
	run, stop := context.WithCancel(ctx)
	beaten := make(chan struct{}, 1)
	reporter, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{
		Name: "orders-1",
		Sample: func() watchdog.Sample { // such as from the Stats of an order.Buffer
			return watchdog.Sample{State: watchdog.WaitingGap, Position: 41, Pending: 3, Detail: "42 is missing"}
		},
		Hooks: &watchdog.ReporterHooks{Beaten: func(time.Duration) {
			select {
			case beaten <- struct{}{}:
			default:
			}
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- reporter.Run(run) }()
	<-beaten

	w, err := watchdog.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers, err := w.Round(ctx)
	if err != nil {
		log.Fatal(err) // nothing is known
	}
	for _, worker := range workers {
		fmt.Printf("%s is %v: %v (%s)\n", worker.Name, worker.Verdict, worker.State, worker.Detail)
	}
	stop()
	<-done
	// Output: orders-1 is healthy: waiting for a gap (42 is missing)
}

// A worker claims nothing until it has been without an abnormal result for the whole
// window, which is three minutes unless it is set.
func ExampleWarmup() {
	warmup, err := watchdog.NewWarmup(&watchdog.WarmupOptions{
		Window: 50 * time.Millisecond,
		Checks: []watchdog.Check{{Name: "database", Run: func(context.Context) error { return nil }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- warmup.Run(ctx) }()

	ready := func() int { // as a load balancer asks
		rec := httptest.NewRecorder()
		warmup.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return rec.Code
	}
	warmup.Observe(errors.New("a mirrored request failed")) // the window begins again
	fmt.Println(ready())
	if err := warmup.Wait(ctx); err == nil { // before each claim
		fmt.Println(ready())
	}
	warmup.Reset() // a restart
	fmt.Println(ready())
	cancel()
	<-done
	// Output:
	// 503
	// 200
	// 503
}

// Backoff and cap of restarts.
func ExampleNew() {
	_, err := watchdog.New(watchdog.NewMemory(), &watchdog.Options{
		Restart:     func(context.Context, watchdog.Incident) error { return nil },
		Backoff:     retry.Exponential(30*time.Second, 5*time.Minute, retry.FullJitter),
		MaxRestarts: 8,
	})
	fmt.Println(err)
	_, err = watchdog.New(watchdog.NewMemory(), &watchdog.Options{Missed: -1})
	fmt.Println(err)
	// Output:
	// <nil>
	// watchdog: invalid argument: Missed is -1, not 1 to 100
}
