// Pipeline runs the main job of Pawl from end to end: a real HTTP server on
// loopback receives provider bodies, signed as the provider signs, from a
// deliverer in the same program that adds faults; workers run the box dry; an
// account is printed.
//
//	go run ./examples/pipeline
//	go run ./examples/pipeline -dup 0.3 -shuffle 50 -malformed 0.05 -forged 0.05 -json
//	go run ./examples/pipeline -store bolt -data events.db
//	go run ./examples/pipeline -store redis -redis redis://localhost:6379
//	go run ./examples/pipeline -store postgres -postgres postgres://localhost/db
//	go run ./examples/pipeline -order -shuffle 50 -drop 0.05
//	go run ./examples/pipeline -order -order-store redis -degrade
//	go run ./examples/pipeline -store bolt -data events.db -gateway-log replies.tsv -gateway-faults 0.3
//
// Every event has exactly one effect, however often its body is delivered, and
// also when the program is killed at any moment and run again with the same
// -data or server, bodies and seed. On a server everything is kept under the name
// pawl_pipeline, for the next run. It exits with 0 if that holds, 1 if it does not, and 2
// on bad flags, without a body of a known provider, or with -degrade without a
// redis-server.
//
// Every message gets one reply; statuses and events of accounts get none. It goes out
// through the lane of its account and the ledger of what was sent, to a gateway that is
// a process of its own, started by this program. The gateway refuses, breaks down, hangs
// up after it has done what it was asked for, loses its receipts, repeats them, and does
// not find at once what it has done. It would send a reply twice if it were asked twice.
// That its log has each reply once is held also when this program, or both, are killed.
//
// With -order the deliverer numbers each event within its ordering key, in a
// header beside the body (see positionHeader), and the effects of a key happen in
// the order of these numbers, whatever the order of arrival. What -drop takes away
// leaves gaps, which are skipped after a second with a record of each. With
// -degrade the order is in a Redis that is killed in mid-run: effects then happen
// in the order of arrival, still once each, until it is back. This is a choice of
// this program: by default each part fails closed, and events wait.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == gatewayArg {
		os.Exit(gateway(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// config is what the flags say.
type config struct {
	bodies          string
	store, data     string
	repeat, shuffle int
	dup, malformed  float64
	forged, drop    float64
	order, degrade  bool
	orderStore      string
	redis, postgres string
	seed            uint64
	effects         string
	gatewayLog      string
	gatewayFaults   float64
	json            bool
	progress        io.Writer // nil: none
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "pipeline:", err)
		}
		return 2
	}
	a := new(account)
	err = pipeline(ctx, c, a)
	if errors.Is(err, errBodies) || errors.Is(err, errNoRedis) {
		fmt.Fprintln(stderr, "pipeline:", err)
		return 2
	}
	if err != nil {
		a.OK, a.Error = false, err.Error()
	}
	if c.json {
		if err := json.NewEncoder(stdout).Encode(a); err != nil {
			fmt.Fprintln(stderr, "pipeline:", err)
			return 1
		}
	}
	a.table(stderr)
	if !a.OK {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.bodies, "bodies", "", "`folder` of bodies, provider by file name: meta-*.json, ycloud-*.json, wechat-*.xml, wechat-*.json; default: the example's own")
	f.StringVar(&c.store, "store", "memory", "memory, bolt, redis or postgres")
	f.StringVar(&c.data, "data", "", "`file` of the bolt store; default: a temporary one")
	f.IntVar(&c.repeat, "repeat", 1, "deliver all bodies `n` times, with new provider IDs each time")
	f.Float64Var(&c.dup, "dup", 0, "`probability` that a delivery is sent again, byte for byte")
	f.IntVar(&c.shuffle, "shuffle", 0, "move deliveries by up to `n` places")
	f.Float64Var(&c.malformed, "malformed", 0, "`probability` of an extra copy, truncated and correctly signed")
	f.Float64Var(&c.forged, "forged", 0, "`probability` of an extra copy with a wrong signature")
	f.Float64Var(&c.drop, "drop", 0, "`probability` that a body is taken away, with every other body that has one of its events")
	f.BoolVar(&c.order, "order", false, "number the events of each ordering key, in the header\n"+positionHeader+": <key>:<epoch>:<number>[-<number>],... ,\nand have their effects in that order")
	f.StringVar(&c.orderStore, "order-store", "", "with -order: memory, bolt, redis or postgres; default: that of -store")
	f.BoolVar(&c.degrade, "degrade", false, "with -order-store redis: start a Redis, kill it in mid-run, and go on without order until it is back")
	f.StringVar(&c.redis, "redis", "", "`URL` of the Redis of -store and -order-store, such as redis://localhost:6379")
	f.StringVar(&c.postgres, "postgres", "", "`URL` of the PostgreSQL of -store and -order-store, such as postgres://localhost/db")
	f.Uint64Var(&c.seed, "seed", 1, "`seed` of the faults")
	f.StringVar(&c.effects, "effects", "", "write one line per effect to this `file`: identity, tab, ordering key")
	f.StringVar(&c.gatewayLog, "gateway-log", "", "`file` in which the gateway writes one line per reply it sends: operation ID, tab, ordering key;\ndata without an event begin it anew; default: a temporary one, and with -data the file beside it with .gateway behind its name")
	f.Float64Var(&c.gatewayFaults, "gateway-faults", 0.1, "`probability` of each fault of the gateway, at most 0.9")
	f.BoolVar(&c.json, "json", false, "print the account as one JSON object on stdout")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if t, ok := stderr.(*os.File); ok && isTerminal(t) {
		c.progress = stderr
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case c.store != "memory" && c.store != "bolt" && c.store != "redis" && c.store != "postgres":
		return c, fmt.Errorf("-store %q: not memory, bolt, redis or postgres", c.store)
	case c.data != "" && c.store != "bolt":
		return c, fmt.Errorf("-data goes with -store bolt, not with %s", c.store)
	case c.repeat < 1 || c.repeat > 10_000:
		return c, fmt.Errorf("-repeat %d: not 1 to 10,000", c.repeat)
	case c.shuffle < 0:
		return c, fmt.Errorf("-shuffle %d: negative", c.shuffle)
	}
	for name, p := range map[string]float64{"dup": c.dup, "malformed": c.malformed, "forged": c.forged, "drop": c.drop} {
		if !(p >= 0 && p <= 1) {
			return c, fmt.Errorf("-%s %v: not a probability", name, p)
		}
	}
	if !(c.gatewayFaults >= 0 && c.gatewayFaults <= 0.9) {
		return c, fmt.Errorf("-gateway-faults %v: not 0 to 0.9", c.gatewayFaults)
	}
	return c, c.checkOrder()
}

// checkOrder checks the flags about order, and fills in what depends on others.
func (c *config) checkOrder() error {
	switch {
	case !c.order && c.orderStore != "":
		return errors.New("-order-store goes with -order")
	case c.degrade && c.orderStore != "redis":
		return errors.New("-degrade goes with -order -order-store redis")
	case c.degrade && c.store != "memory" && c.store != "bolt":
		return errors.New("-degrade goes with -store memory or bolt")
	case c.degrade && c.redis != "":
		return errors.New("-degrade starts a Redis of its own: leave -redis away")
	}
	if c.order && c.orderStore == "" {
		c.orderStore = c.store
	}
	switch c.orderStore {
	case "", "memory", "bolt", "redis", "postgres":
	default:
		return fmt.Errorf("-order-store %q: not memory, bolt, redis or postgres", c.orderStore)
	}
	switch {
	case c.redis != "" && c.store != "redis" && c.orderStore != "redis":
		return errors.New("-redis goes with -store redis or -order-store redis")
	case c.postgres != "" && c.store != "postgres" && c.orderStore != "postgres":
		return errors.New("-postgres goes with -store postgres or -order-store postgres")
	case c.store == "redis" && c.redis == "":
		return errors.New("-store redis: name a server with -redis")
	case c.store == "postgres" && c.postgres == "":
		return errors.New("-store postgres: name a server with -postgres")
	case c.orderStore == "redis" && c.redis == "" && !c.degrade:
		return errors.New("-order-store redis: name a server with -redis, or let one be started with -degrade")
	case c.orderStore == "postgres" && c.postgres == "":
		return errors.New("-order-store postgres: name a server with -postgres")
	}
	// The causes are left out: they may have a password in them.
	if _, err := redis.ParseURL(c.redis); c.redis != "" && err != nil {
		return errors.New("-redis: not the URL of a Redis server")
	}
	if _, err := pgxpool.ParseConfig(c.postgres); c.postgres != "" && err != nil {
		return errors.New("-postgres: not the URL of a PostgreSQL server")
	}
	return nil
}

// kept says whether what this run writes is for the next run, too.
func (c *config) kept() bool { return c.data != "" || c.store == "redis" || c.store == "postgres" }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
