package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartRedis starts a Redis server that keeps nothing on disk, unless extra
// arguments such as "--appendonly", "yes" say otherwise.
func StartRedis(args ...string) (*Server, error) {
	path, err := findRedis()
	if err != nil {
		return nil, err
	}
	return startAnywhere(func() (*Server, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		dir, err := newDir(nil)
		if err != nil {
			return nil, err
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		return &Server{
			addr: addr,
			url:  "redis://" + addr,
			dir:  dir,
			args: append([]string{
				path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
				"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning",
			}, args...),
			ready:   func() error { return ping(addr) },
			quit:    syscall.SIGTERM,
			abandon: syscall.SIGKILL,
		}, nil
	})
}

// StartCluster starts a Redis Cluster of three masters without replicas, all
// slots assigned, and returns when every node says that the cluster is in order.
func StartCluster() ([]*Server, error) {
	const nodes, slots = 3, 16384
	var cluster []*Server
	ok := false
	defer func() {
		if !ok {
			for _, s := range cluster {
				_ = s.Close()
			}
		}
	}()
	bus := make([]string, nodes)
	for i := range nodes {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		bus[i] = strconv.Itoa(port)
		s, err := StartRedis("--cluster-enabled", "yes", "--cluster-port", bus[i],
			"--cluster-node-timeout", "5000", "--cluster-require-full-coverage", "yes")
		if err != nil {
			return nil, err
		}
		cluster = append(cluster, s)
	}
	for i, s := range cluster {
		from, to := i*slots/nodes, (i+1)*slots/nodes-1
		if _, err := Redis(s.addr, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
			return nil, fmt.Errorf("assign slots: %w", err)
		}
		// Two nodes that start with the same epoch would need rounds of gossip to settle it.
		if _, err := Redis(s.addr, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return nil, fmt.Errorf("set the epoch: %w", err)
		}
	}
	for i, s := range cluster {
		host, port, err := net.SplitHostPort(s.addr)
		if err != nil {
			return nil, err
		}
		for _, other := range cluster[:i] { // every pair, so that nobody waits for gossip
			if _, err := Redis(other.addr, "CLUSTER", "MEET", host, port, bus[i]); err != nil {
				return nil, fmt.Errorf("meet: %w", err)
			}
		}
	}
	for _, s := range cluster {
		if err := waitFor(func() error { return clusterReady(s.addr, nodes) }); err != nil {
			return nil, err
		}
		// A node that starts again must not answer before it has its slots back.
		s.ready = func() error { return clusterReady(s.addr, nodes) }
	}
	ok = true
	return cluster, nil
}

var findRedis = sync.OnceValues(func() (string, error) {
	const what = "Redis 7.0 or newer is needed (Debian and Ubuntu: apt-get install redis-server)"
	path, version, err := find("redis-server", "/usr/local/bin", "/opt/homebrew/bin", "/usr/local/opt/redis*/bin")
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if version < 700 {
		return "", fmt.Errorf("%s: %s has version %d.%d: %w", what, path, version/100, version%100, ErrMissing)
	}
	return path, nil
})

// startAnywhere tries again elsewhere when somebody took the port between our
// finding it free and the server's using it.
func startAnywhere(plan func() (*Server, error)) (*Server, error) {
	var errs []error
	for range 3 {
		s, err := plan()
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		err = s.startOnce(time.Now().Add(startTimeout))
		s.mu.Unlock()
		if err == nil {
			return s, nil
		}
		errs = append(errs, err, os.RemoveAll(s.dir))
	}
	return nil, errors.Join(errs...)
}

func ping(addr string) error {
	answer, err := Redis(addr, "PING")
	if err == nil && answer != "PONG" {
		err = fmt.Errorf("PING answered %q", answer)
	}
	return err
}

func clusterReady(addr string, nodes int) error {
	info, err := Redis(addr, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok", "cluster_slots_ok:16384",
		fmt.Sprintf("cluster_known_nodes:%d", nodes), fmt.Sprintf("cluster_size:%d", nodes),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("the cluster at %s is not ready: no %s", addr, want)
		}
	}
	return nil
}

func waitFor(ready func() error) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := ready()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollEvery)
	}
}
