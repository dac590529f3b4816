package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// pipeline delivers, works and counts.
func pipeline(ctx context.Context, c config, a *account) error {
	bodies, skipped, err := readBodies(c.bodies)
	if err != nil {
		return err
	}
	a.Bodies, a.Skipped = len(bodies), skipped
	deliveries, err := plan(c, bodies)
	if err != nil {
		return err
	}
	store, err := open(c)
	if err != nil {
		return err
	}
	defer store.close()
	box, err := inbox.New(store.events(), nil)
	if err != nil {
		return err
	}
	start := time.Now()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- box.Work(ctx, handler(store), workOptions) }()

	err = deliver(ctx, c, box, deliveries, a)
	if err == nil {
		err = drain(ctx, box)
	}
	stop()
	err = errors.Join(err, <-worked)
	a.Seconds = time.Since(start).Seconds()
	if err := errors.Join(err, a.count(box, store)); err != nil {
		return err
	}
	if c.effects != "" {
		return writeEffects(c.effects, a.list)
	}
	return nil
}

// workOptions have a short lease: a run that was killed holds its keys for no
// longer.
var workOptions = &inbox.WorkOptions{Lease: 2 * time.Second, Poll: 100 * time.Millisecond}

func handler(store storage) func(context.Context, inbox.Record) inbox.Outcome {
	return func(ctx context.Context, r inbox.Record) inbox.Outcome {
		return inbox.OutcomeOf(store.handle(ctx, r))
	}
}

// deliver sends everything to a server that listens on loopback.
func deliver(ctx context.Context, c config, box *inbox.Box, deliveries []delivery, a *account) error {
	mux := http.NewServeMux()
	for _, p := range providers {
		h, err := inbox.Handler(box, p.source, nil)
		if err != nil {
			return err
		}
		mux.Handle("/"+p.name, h)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	defer server.Close()

	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for i, d := range deliveries {
		status, err := send(ctx, client, "http://"+listener.Addr().String()+"/"+d.provider.name, d)
		if err != nil {
			return fmt.Errorf("delivery %d of %d: %w", i+1, len(deliveries), err)
		}
		a.answered(d, status)
		if c.progress != nil && (i%100 == 0 || i+1 == len(deliveries)) {
			fmt.Fprintf(c.progress, "\rdelivered %d of %d ", i+1, len(deliveries))
		}
	}
	if c.progress != nil {
		fmt.Fprintln(c.progress)
	}
	return nil
}

// send delivers until the answer is not a server error, as providers do.
func send(ctx context.Context, client *http.Client, url string, d delivery) (status int, err error) {
	wait := 50 * time.Millisecond
	for range 8 {
		if status, err = post(ctx, client, url, d); err == nil && status < 500 {
			return status, nil
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return status, errors.Join(fmt.Errorf("no answer but %d", status), err)
}

func post(ctx context.Context, client *http.Client, url string, d delivery) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.bytes))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	secret := ""
	if d.fault == forged {
		secret = forgedSecret
	}
	d.provider.sign(r.Header, secret, d.bytes)
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	return answer.StatusCode, err
}

// drain waits until nothing is pending, as long as there is progress.
func drain(ctx context.Context, box *inbox.Box) error {
	const patience = time.Minute
	pending, since := -1, time.Now()
	for {
		t, err := box.Totals(ctx)
		if err != nil {
			return err
		}
		n := int(t.Pending)
		if n == 0 {
			return nil
		}
		if n != pending {
			pending, since = n, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d events are pending and nothing moves", n)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
