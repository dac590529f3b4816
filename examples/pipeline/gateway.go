package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A gatewayClient starts the gateway, starts it again when it dies, and speaks with
// it.
type gatewayClient struct {
	setup  gatewaySetup
	dir    string // to be removed at the end; empty: the log is kept
	client *http.Client

	mu      sync.Mutex
	process *os.Process
	address string
	up      chan struct{} // closed while there is an address
}

const (
	// patience is how long the gateway has to answer, and the deadline of a request.
	patience = 250 * time.Millisecond
	// quiet is how long an operation without a certain outcome is left alone.
	quiet = 100 * time.Millisecond
	// settleTime is longer than a request can be on its way and what was done is not
	// found yet.
	settleTime = patience + lag + 150*time.Millisecond
)

// serverPlace is where the log lies that goes with data on a server: in a file of this
// machine, since the gateway's log is the gateway's. A run on another machine has to be
// told of a log that both know.
func serverPlace(name string) string { return filepath.Join(os.TempDir(), name+".gateway") }

// newGateway prepares a gateway whose log is at path; empty: a temporary one.
func newGateway(c config, path string, anew bool) (*gatewayClient, error) {
	g := &gatewayClient{up: make(chan struct{})}
	if path == "" {
		dir, err := os.MkdirTemp("", "pipeline-")
		if err != nil {
			return nil, err
		}
		g.dir, path = dir, filepath.Join(dir, "replies.tsv")
	}
	keyed, err := reconcile.IdempotencyHeader(messageHeader, &http.Transport{MaxIdleConnsPerHost: 64})
	if err != nil {
		return nil, err
	}
	g.client = &http.Client{Transport: keyed, Timeout: patience}
	g.setup = gatewaySetup{Log: path, Anew: anew, Secret: "Bearer " + rand.Text(), Faults: c.gatewayFaults, Seed: c.seed, Lag: lag}
	return g, nil
}

func (g *gatewayClient) close() error {
	g.client.CloseIdleConnections()
	if g.dir == "" {
		return nil
	}
	return os.RemoveAll(g.dir)
}

// run keeps the gateway running until ctx ends, and returns when it has ended.
func (g *gatewayClient) run(ctx context.Context) error {
	for died := 0; ; died++ {
		err := g.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if died == 20 {
			return fmt.Errorf("the gateway has died again and again: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// once runs one process.
func (g *gatewayClient) once(ctx context.Context) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	setup, err := json.Marshal(g.setup)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, gatewayArg) // this program, as the gateway
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	g.mu.Lock()
	g.process = cmd.Process
	g.mu.Unlock()
	defer context.AfterFunc(ctx, func() { in.Close() })()
	_, err = in.Write(append(setup, '\n'))
	address, readErr := bufio.NewReader(out).ReadString('\n')
	if err = errors.Join(err, readErr); err == nil {
		g.setup.Anew = false // what a next one finds is of this run
		g.isUp(strings.TrimSpace(address))
		_, _ = io.Copy(io.Discard, out) // until it ends
		g.isUp("")
	}
	in.Close()
	return errors.Join(err, cmd.Wait())
}

func (g *gatewayClient) isUp(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.address = address; address == "" {
		g.up = make(chan struct{})
	} else {
		close(g.up)
	}
}

// where returns the address of the gateway, once there is one.
func (g *gatewayClient) where(ctx context.Context) (string, error) {
	late := time.After(10 * time.Second)
	for {
		g.mu.Lock()
		address, up := g.address, g.up
		g.mu.Unlock()
		if address != "" {
			return address, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-late:
			return "", errors.New("the gateway is not up")
		}
	}
}

// call sends a reply. That the gateway took it is not the end of it: its receipt is.
func (g *gatewayClient) call(ctx context.Context, op reconcile.Op) ([]byte, error) {
	answer, err := g.post(ctx, "/send", op)
	if err == nil {
		err = answer.Body.Close()
	}
	return nil, err
}

// probe asks for a reply. The gateway says what it has done, or that it has not: not
// that it never will. What that is worth, and when, is the ledger's business.
func (g *gatewayClient) probe(ctx context.Context, op reconcile.Op) (e reconcile.Evidence, err error) {
	answer, err := g.post(ctx, "/find", op)
	if err != nil {
		return e, err
	}
	if e.Seen = reconcile.SeenDone; answer.StatusCode == http.StatusNoContent {
		e.Seen = reconcile.SeenNothing
	}
	return e, answer.Body.Close()
}

func (g *gatewayClient) post(ctx context.Context, path string, op reconcile.Op) (*http.Response, error) {
	address, err := g.where(ctx)
	if err != nil {
		return nil, reconcile.NotDone(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(op.Payload))
	if err != nil {
		return nil, reconcile.NotDone(err)
	}
	r.Header.Set(secretHeader, g.setup.Secret)
	r.Header.Set(deadlineHeader, time.Now().Add(patience).Format(time.RFC3339Nano))
	return reconcile.SendHTTP(g.client, r)
}
