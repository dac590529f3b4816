// Pipeline runs the main job of Pawl from end to end: a real HTTP server on
// loopback receives provider bodies, signed as the provider signs, from a
// deliverer in the same program that adds faults; workers run the box dry; an
// account is printed.
//
//	go run ./examples/pipeline
//	go run ./examples/pipeline -dup 0.3 -shuffle 50 -malformed 0.05 -forged 0.05 -json
//	go run ./examples/pipeline -store bolt -data events.db
//
// Every event has exactly one effect, however often its body is delivered, and
// also when the program is killed at any moment and run again with the same
// -data, bodies and seed. It exits with 0 if that holds, 1 if it does not, and 2
// on bad flags or without a body of a known provider.
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
)

func main() {
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
	forged          float64
	seed            uint64
	effects         string
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
	if errors.Is(err, errBodies) {
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
	f.StringVar(&c.bodies, "bodies", "", "`folder` of bodies, provider by file name: meta-*.json, ycloud-*.json; default: the example's own")
	f.StringVar(&c.store, "store", "memory", "memory or bolt")
	f.StringVar(&c.data, "data", "", "`file` of the bolt store; default: a temporary one")
	f.IntVar(&c.repeat, "repeat", 1, "deliver all bodies `n` times, with new provider IDs each time")
	f.Float64Var(&c.dup, "dup", 0, "`probability` that a delivery is sent again, byte for byte")
	f.IntVar(&c.shuffle, "shuffle", 0, "move deliveries by up to `n` places")
	f.Float64Var(&c.malformed, "malformed", 0, "`probability` of an extra copy, truncated and correctly signed")
	f.Float64Var(&c.forged, "forged", 0, "`probability` of an extra copy with a wrong signature")
	f.Uint64Var(&c.seed, "seed", 1, "`seed` of the faults")
	f.StringVar(&c.effects, "effects", "", "write one line per effect to this `file`: identity, tab, ordering key")
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
	case c.store != "memory" && c.store != "bolt":
		return c, fmt.Errorf("-store %q: not memory or bolt", c.store)
	case c.data != "" && c.store != "bolt":
		return c, fmt.Errorf("-data goes with -store bolt, not with %s", c.store)
	case c.repeat < 1 || c.repeat > 10_000:
		return c, fmt.Errorf("-repeat %d: not 1 to 10,000", c.repeat)
	case c.shuffle < 0:
		return c, fmt.Errorf("-shuffle %d: negative", c.shuffle)
	}
	for name, p := range map[string]float64{"dup": c.dup, "malformed": c.malformed, "forged": c.forged} {
		if !(p >= 0 && p <= 1) {
			return c, fmt.Errorf("-%s %v: not a probability", name, p)
		}
	}
	return c, nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
