package reconcile_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/retry"
)

// viaHTTP makes a call that posts to a URL.
func viaHTTP(c *http.Client, url string) reconcile.CallFunc {
	return func(ctx context.Context, op reconcile.Op) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(op.Payload)))
		if err != nil {
			return nil, reconcile.NotDone(err)
		}
		resp, err := reconcile.SendHTTP(c, r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		return io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	}
}

// client has a transport of its own, so that nothing is left behind.
func client(t *testing.T, base http.RoundTripper) *http.Client {
	if base == nil {
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		base = tr
	}
	return &http.Client{Transport: base}
}

func TestHTTPStatuses(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		code := 0
		for _, c := range strings.TrimPrefix(r.URL.Path, "/") {
			code = 10*code + int(c-'0')
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "customer +8613800138000")
	}))
	defer srv.Close()
	c := client(t, nil)
	for path, state := range map[string]reconcile.State{
		"200": reconcile.Confirmed, "201": reconcile.Confirmed,
		"400": reconcile.Failed, "401": reconcile.Failed, "404": reconcile.Failed, "422": reconcile.Failed,
		"425": reconcile.Failed, "429": reconcile.Failed,
		"304": reconcile.Unknown, "408": reconcile.Unknown, "409": reconcile.Unknown, "423": reconcile.Unknown,
		"500": reconcile.Unknown, "502": reconcile.Unknown, "503": reconcile.Unknown, "504": reconcile.Unknown,
	} {
		l := newLedger(t, reconcile.NewMemory(), nil)
		err := l.Do(t.Context(), reconcile.Op{Key: "k"}, viaHTTP(c, srv.URL+"/"+path+"?secret=hunter2"), nil)
		want(t, l, "k", state)
		if err == nil {
			continue
		}
		if e := stateOf(t, err); e.Again != (path == "425" || path == "429") {
			t.Errorf("%s: may be sent again: %t", path, e.Again)
		}
		if status := (*retry.StatusError)(nil); !errors.As(err, &status) || path > "399" && status.After != 7*time.Second {
			t.Errorf("%s: %v", path, err)
		}
		if s := err.Error(); strings.Contains(s, "hunter2") || strings.Contains(s, "138") {
			t.Errorf("%s: the error tells: %v", path, s)
		}
	}
}

// Nobody listens: it was never sent.
func TestHTTPNeverSent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	for name, base := range map[string]http.RoundTripper{"refused connection": nil, "no such host": nowhere} {
		l := newLedger(t, reconcile.NewMemory(), nil)
		err := l.Do(t.Context(), reconcile.Op{Key: "k"}, viaHTTP(client(t, base), "http://"+addr+"/?secret=hunter2"), nil)
		if e := stateOf(t, err); e.State != reconcile.Failed || !e.Again {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells: %v", name, err)
		}
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler()) // whose certificate nobody knows
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	l := newLedger(t, reconcile.NewMemory(), nil)
	if e := stateOf(t, l.Do(t.Context(), reconcile.Op{Key: "k"}, viaHTTP(client(t, nil), srv.URL), nil)); e.State != reconcile.Failed || !e.Again {
		t.Errorf("no TLS: %+v", e)
	}
}

// The connection breaks after the request was written, or the answer does not come in
// time: the server has had the request, and nobody can tell what came of it.
func TestHTTPAmbiguous(t *testing.T) {
	var had atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		had.Add(1)
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer srv.Close()
	for _, path := range []string{"/cut", "/hang"} {
		l := newLedger(t, reconcile.NewMemory(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		if path == "/hang" {
			before := had.Load()
			go func() {
				for had.Load() == before {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		}
		err := l.Do(ctx, reconcile.Op{Key: "k", Payload: []byte("x")}, viaHTTP(client(t, nil), srv.URL+path+"?secret=hunter2"), nil)
		cancel()
		if e := stateOf(t, err); e.State != reconcile.Unknown || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if had.Load() != 2 {
		t.Errorf("the server had %d requests", had.Load())
	}
}

// A transport that says nothing to httptrace is not believed to have sent nothing; nor is a
// chain of hops of which the last had no connection.
func TestHTTPIsAmbiguousWhereNobodyCanTell(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	mute := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errLost })
	if e := stateOf(t, l.Do(t.Context(), reconcile.Op{Key: "mute"}, viaHTTP(client(t, mute), "http://x/"), nil)); e.State != reconcile.Unknown {
		t.Errorf("mute: %+v", e)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://nowhere.invalid/", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	first := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "nowhere") {
			return nil, errNowhere
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	defer first.CloseIdleConnections()
	if e := stateOf(t, l.Do(t.Context(), reconcile.Op{Key: "hop"}, viaHTTP(client(t, first), srv.URL), nil)); e.State != reconcile.Unknown {
		t.Errorf("second hop: %+v", e)
	}
}

// nowhere is a network without names.
var (
	nowhere    = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errNowhere }}
	errNowhere = &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestIdempotencyHeader(t *testing.T) {
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, "other:"+r.Header.Get("Idempotency-Key"))
	}))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Idempotency-Key"))
		switch r.URL.Path {
		case "/fail":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	}))
	defer srv.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	tr, err := reconcile.IdempotencyHeader("Idempotency-Key", base)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, tr)
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Horizon: time.Hour, Quiet: time.Millisecond, Backoff: retry.Constant(time.Millisecond)})
	for range 2 { // the same on every attempt
		_ = l.Do(t.Context(), reconcile.Op{Key: "wamid.1"}, viaHTTP(c, srv.URL+"/fail"), nil)
		for {
			e, err := l.Lookup(t.Context(), "wamid.1")
			if err != nil {
				t.Fatal(err)
			}
			if !e.Read.Before(e.Due) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	_ = l.Do(t.Context(), reconcile.Op{Key: "消息\r\nX-Evil: 1"}, viaHTTP(c, srv.URL), nil)
	_ = l.Do(t.Context(), reconcile.Op{Key: "away"}, viaHTTP(c, srv.URL+"/away"), nil)
	if _, err := viaHTTP(c, srv.URL)(t.Context(), reconcile.Op{}); err != nil { // on behalf of no operation
		t.Fatal(err)
	}
	wanted := []string{"wamid.1", "wamid.1", reconcile.HeaderKey("消息\r\nX-Evil: 1"), "away", "other:", ""}
	if strings.Join(got, "|") != strings.Join(wanted, "|") || len(wanted[2]) != 64 {
		t.Errorf("sent %q, want %q", got, wanted)
	}
	for _, name := range []string{"", "a b", "a:b", "é"} {
		if _, err := reconcile.IdempotencyHeader(name, nil); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
