// Command withservers starts a Redis, a three-node Redis Cluster and a PostgreSQL
// server, runs the command it is given with their addresses in the environment,
// stops the servers and ends with the command's exit status:
//
//	withservers go test ./...
//
// It sets PAWL_TEST_REDIS, PAWL_TEST_REDIS_CLUSTER and PAWL_TEST_POSTGRES, which
// package testenv reads, so that all test binaries of a run share these servers.
// A variable that is set already is kept, and its server is not started. A server
// that is not installed is left out; with PAWL_TEST_REQUIRE_SERVERS=1 or CI=true
// that is an error.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/pawl-go/pawl/internal/testenv/servers"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withservers command [argument...]")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}

func run(command []string) int {
	// The command gets an interrupt from the keyboard by itself, and we live on to
	// stop the servers. A SIGTERM is passed on to it.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	started, err := startAll()
	defer func() {
		for _, s := range started {
			if err := s.Close(); err != nil {
				fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
			}
		}
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
		return 1
	}
	select {
	case <-signals:
		return 1
	default:
	}

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
		return 1
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	if err := cmd.Wait(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
			return exit.ExitCode()
		}
		fmt.Fprintf(os.Stderr, "withservers: %s: %v\n", command[0], err)
		return 1
	}
	return 0
}

// startAll starts what the environment does not name yet and puts it there. It
// returns what it started, also when it fails.
func startAll() ([]*servers.Server, error) {
	kinds := []struct {
		variable string
		start    func() ([]*servers.Server, error)
		name     func(*servers.Server) string
	}{
		{"PAWL_TEST_REDIS", one(servers.StartRedis), (*servers.Server).Addr},
		{"PAWL_TEST_REDIS_CLUSTER", servers.StartCluster, (*servers.Server).Addr},
		{"PAWL_TEST_POSTGRES", one(servers.StartPostgres, servers.ManyConnections), (*servers.Server).URL},
	}
	results := make([][]*servers.Server, len(kinds))
	errs := make([]error, len(kinds))
	var starting sync.WaitGroup
	for i, k := range kinds {
		if os.Getenv(k.variable) == "" {
			starting.Go(func() { results[i], errs[i] = k.start() })
		}
	}
	starting.Wait()

	var all []*servers.Server
	var failed []error
	for i, k := range kinds {
		switch {
		case errors.Is(errs[i], servers.ErrMissing) && !servers.Required():
			fmt.Fprintf(os.Stderr, "withservers: going on without %s: %v\n", k.variable, errs[i])
		case errs[i] != nil:
			failed = append(failed, fmt.Errorf("%s: %w", k.variable, errs[i]))
		case results[i] != nil:
			var names []string
			for _, s := range results[i] {
				names = append(names, k.name(s))
			}
			failed = append(failed, os.Setenv(k.variable, strings.Join(names, ",")))
			all = append(all, results[i]...)
		}
	}
	return all, errors.Join(failed...)
}

func one(start func(...string) (*servers.Server, error), settings ...string) func() ([]*servers.Server, error) {
	return func() ([]*servers.Server, error) {
		s, err := start(settings...)
		if err != nil {
			return nil, err
		}
		return []*servers.Server{s}, nil
	}
}
