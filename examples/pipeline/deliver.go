package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// deliver sends everything to a server that listens on loopback.
func (p *program) deliver(ctx context.Context, deliveries []delivery) error {
	mux, err := p.endpoints()
	if err != nil {
		return err
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
	if p.outage != nil {
		p.outage.during(p, len(deliveries))
	}
	for i, d := range deliveries {
		if p.outage != nil {
			if err := p.outage.before(ctx, i); err != nil {
				return err
			}
		}
		status, err := send(ctx, client, "http://"+listener.Addr().String()+"/"+d.provider.name, d)
		if err != nil {
			return fmt.Errorf("delivery %d of %d: %w", i+1, len(deliveries), err)
		}
		p.account.answered(d, status)
		if p.progress != nil && (i%100 == 0 || i+1 == len(deliveries)) {
			fmt.Fprintf(p.progress, "\rdelivered %d of %d ", i+1, len(deliveries))
		}
	}
	if p.progress != nil {
		fmt.Fprintln(p.progress)
	}
	if p.outage != nil {
		return p.outage.before(ctx, math.MaxInt)
	}
	return nil
}

// endpoints are one for each provider.
func (p *program) endpoints() (*http.ServeMux, error) {
	mux := http.NewServeMux()
	for _, provider := range providers {
		plain, err := inbox.Handler(p.box, provider.source, nil)
		if err != nil {
			return nil, err
		}
		if p.order == nil {
			mux.Handle("/"+provider.name, plain)
			continue
		}
		mux.HandleFunc("/"+provider.name, func(w http.ResponseWriter, r *http.Request) {
			positions, err := readPositions(r.Header.Get(positionHeader))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			h, err := inbox.Handler(p.box, numbered{provider.source, positions}, nil)
			if err != nil {
				http.Error(w, "", http.StatusInternalServerError)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	return mux, nil
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
	signed, err := d.provider.sign(d.body, d.fault == forged)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?"+signed.query.Encode(), bytes.NewReader(signed.body))
	if err != nil {
		return 0, err
	}
	r.Header = signed.header
	if d.positions != "" {
		r.Header.Set(positionHeader, d.positions)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	return answer.StatusCode, err
}
