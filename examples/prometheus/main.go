// Command prometheus shows what pawlotel measures: it sends messages through lanes and
// a buffer, with duplicates, a gap and a refusal among them; receives events, of which one
// fails for good and becomes a dead letter; sends replies through a ledger to a remote
// that does not always answer; checks what is not as it should be; and watches its own
// workers. It serves the instruments at /metrics for Prometheus.
//
//	go run . -listen localhost:9464
//	curl localhost:9464/metrics
//
// With -once it prints the page and ends.
//
// # What to alert on
//
// These are the expressions to begin with; the numbers are yours to choose. Names are as
// the exporter makes them of the instruments' names. Gauges of a store are the same in
// every process that reads it, hence max and not sum.
//
// Somebody waits, or nobody works:
//
//	max(pawl_inbox_oldest_seconds) > 300                          # events are not worked
//	max by (scope) (pawl_order_oldest_seconds) > 300              # messages wait for a gap or a worker
//	max by (stream, rest) (pawl_dlq_oldest_seconds) > 86400       # letters of which nothing becomes
//	max by (account, rest) (pawl_reconcile_oldest_seconds) > 3600 # operations without an outcome
//	max(pawl_reconcile_outage_seconds) > 60                       # the remote gives no answer
//
// A person has to decide:
//
//	max by (scope) (pawl_order_parked_now) > 0
//	max by (scope) (pawl_order_gaps_unresolved) > 0
//	max(pawl_inbox_records{state=~"unknown|quarantined|conflict"}) > 0
//	max by (stream, rest) (pawl_dlq_letters{state="review"}) > 0
//	max by (account, rest) (pawl_reconcile_review) > 0
//	max by (check) (pawl_reconcile_checks_open{state="open"}) > 0 # acknowledged ones are known of
//	max by (scope) (pawl_dedup_held_age_max_seconds) > 3600
//	increase(pawl_dlq_job_changes_total{state="paused"}[1h]) > 0  # a redrive was stopped by its failures
//	max by (scope) (pawl_watchdog_given_up) > 0
//
// It may have happened twice, or not at all:
//
//	max by (account, rest) (pawl_reconcile_operations{state="unknown"}) > 0 # for longer than the quiet period
//	min by (account, rest) (pawl_reconcile_success_ratio) < 0.99
//	increase(pawl_reconcile_contradictions_total[1h]) > 0
//	increase(pawl_dedup_stale_total[10m]) > 0                     # the same for order, inbox, dlq, reconcile:
//	increase(pawl_dlq_leases_lost_total[10m]) > 0                 # leases are too short, or processes were halted
//
// Something is not kept, or not seen:
//
//	increase(pawl_dlq_messages_total{answer="refused"}[10m]) > 0  # no room for dead letters
//	increase(pawl_inbox_dead_letters_failed_total[10m]) > 0
//	increase(pawl_reconcile_checks_lost_total[1h]) + increase(pawl_reconcile_checks_too_many_total[1h]) > 0
//	increase(pawl_reconcile_observations_total{answer=~"differs|overflow"}[1h]) > 0
//	max by (job) (pawl_reconcile_checks_read_age_seconds) > 300   # the checks do not run
//	max(pawl_watchdog_up_to_date) < 1 or absent(pawl_watchdog_up_to_date)
//	increase(pawl_dlq_errors_total[5m]) > 0                       # and the errors of the other primitives: the store
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/seqgen"
)

func main() {
	listen := flag.String("listen", "localhost:9464", "address to serve /metrics on")
	once := flag.Bool("once", false, "print the page once, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *once, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, once bool, out io.Writer) error {
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer provider.Shutdown(context.WithoutCancel(ctx))
	s, err := newService(provider.Meter("github.com/pawl-go/pawl/examples/prometheus"))
	if err != nil {
		return err
	}
	if err := s.work(ctx); err != nil {
		return err
	}
	care, err := newCare(provider.Meter("github.com/pawl-go/pawl/examples/prometheus"))
	if err != nil {
		return err
	}
	if err := care.work(ctx); err != nil {
		return err
	}
	if once {
		page := httptest.NewRecorder()
		promhttp.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		_, err := io.Copy(out, page.Body)
		return err
	}
	http.Handle("/metrics", promhttp.Handler())
	server := &http.Server{Addr: listen, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	log.Printf("serving http://%s/metrics", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A service numbers messages, puts them in order, charges each once, and answers.
type service struct {
	numbers *seqgen.Generator
	charges *dedup.Guard
	inbound *order.Buffer
	replies *order.Lanes
}

func newService(m metric.Meter) (*service, error) {
	s := &service{}
	ages, err := pawlotel.DedupHooks(m)
	if err != nil {
		return nil, err
	}
	waits, err := pawlotel.OrderHooks(m)
	if err != nil {
		return nil, err
	}
	if s.numbers, err = seqgen.New(seqgen.NewMemory(), nil); err != nil {
		return nil, err
	}
	if s.charges, err = dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "charges", Hooks: ages}); err != nil {
		return nil, err
	}
	store := order.NewMemory()
	s.inbound, err = order.New(store, &order.Options{Scope: "inbound", GapTimeout: 100 * time.Millisecond, Hooks: waits})
	if err != nil {
		return nil, err
	}
	outbound, err := order.New(store, &order.Options{Scope: "outbound"})
	if err != nil {
		return nil, err
	}
	s.replies, err = order.NewLanes(outbound, &order.LanesOptions{
		Route: func(_ context.Context, customer string) (string, error) { return "account-" + customer[:1], nil },
	})
	if err != nil {
		return nil, err
	}
	return s, s.register(m, outbound)
}

func (s *service) register(m metric.Meter, outbound *order.Buffer) error {
	in, out := attribute.String("scope", "inbound"), attribute.String("scope", "outbound")
	_, err := pawlotel.Seqgen(m, s.numbers)
	for _, register := range []func() (metric.Registration, error){
		func() (metric.Registration, error) {
			return pawlotel.Dedup(m, s.charges, attribute.String("scope", "charges"))
		},
		func() (metric.Registration, error) {
			return pawlotel.Held(m, s.charges, 1000, attribute.String("scope", "charges"))
		},
		func() (metric.Registration, error) { return pawlotel.Order(m, s.inbound, in) },
		func() (metric.Registration, error) { return pawlotel.Totals(m, s.inbound, in) },
		func() (metric.Registration, error) { return pawlotel.Order(m, outbound, out) },
		func() (metric.Registration, error) { return pawlotel.Totals(m, outbound, out) },
		func() (metric.Registration, error) { return pawlotel.Lanes(m, s.replies) },
	} {
		if err == nil {
			_, err = register()
		}
	}
	return err
}

// work pushes a hundred messages, every tenth twice, one not at all, and waits
// until all that came is delivered and answered.
func (s *service) work(ctx context.Context) error {
	const messages, lost = 100, 42
	for range messages {
		at, err := s.numbers.Next(ctx, "sender")
		if err != nil {
			return err
		}
		if at.Number == lost {
			continue
		}
		m := order.Message{Key: "sender", ID: fmt.Sprint("message-", at.Number), Payload: []byte("hello")}
		m.Position = order.Position{Epoch: at.Epoch, Number: at.Number}
		batch := []order.Message{m}
		if at.Number%10 == 0 {
			batch = append(batch, m)
		}
		if _, err := s.inbound.Push(ctx, batch...); err != nil {
			return err
		}
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	sent := 0
	go func() {
		_ = s.inbound.Run(ctx, s.handle, nil) // ends with ctx
	}()
	return s.replies.Run(ctx, func(_ context.Context, out order.Sending) error {
		if sent++; sent == messages-1 {
			done()
		}
		if sent == 7 {
			return order.Failed(order.CauseRefused, errors.New("the number is not on the platform"))
		}
		return nil
	}, nil)
}

// handle charges for a message once, and enqueues its answer.
func (s *service) handle(ctx context.Context, m order.Message) error {
	err := s.charges.Do(ctx, dedup.Request{ID: m.ID}, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	customer := fmt.Sprint(m.Position.Number%3, "-customer")
	_, err = s.replies.Enqueue(ctx, order.Outbound{Operation: "reply to " + m.ID, Customer: customer, Payload: []byte("thanks")})
	return err
}
