package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The gateway is what the replies are sent to: a process of its own, so that it
// outlives the pipeline. It is the example's own binary, started with one hidden
// argument. It is a harsh remote: it does not know an operation that it has done
// before, and does it again; it fails before and after it has done what it is asked
// for; its receipts get lost, come late and come twice; and what it has just done, it
// may not find. That each reply is sent once is for the pipeline to bring about.
const gatewayArg = "the-gateway-of-the-example"

// A gatewaySetup is the first line of the gateway's standard input.
type gatewaySetup struct {
	Log      string
	Anew     bool
	Receipts string // where to post receipts
	Secret   string // of both directions
	Faults   float64
	Seed     uint64
	Lag      time.Duration // for how long what was done is not found, at most
}

// A reply is what the gateway is asked to send.
type reply struct {
	Operation string
	Key       string
	Text      string
}

// A receipt is what it says of one later, as a webhook.
type receipt struct {
	Event     string
	Message   string
	Operation string
	At        time.Time
}

const (
	messageHeader  = "Message-Id"    // not Idempotency-Key: net/http would send such a request twice by itself
	deadlineHeader = "Deadline"      // when the request is of no use any more, as grpc-timeout says it
	secretHeader   = "Authorization" // the other processes of this machine are nobody
)

// gateway is the process: it ends when its standard input does, which is when the
// pipeline has gone, and not before its running requests have ended.
func gateway(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to both
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	var s gatewaySetup
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		fmt.Fprintln(stderr, "pipeline: the gateway was not told what to do:", err)
		return 1
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	if err := serveGateway(s, gone, stdout); err != nil && !errors.Is(err, errGone) {
		fmt.Fprintln(stderr, "pipeline: gateway:", err)
		return 1
	}
	return 0
}

var errGone = errors.New("the pipeline has gone")

func serveGateway(s gatewaySetup, gone <-chan struct{}, stdout io.Writer) error {
	log, err := openReplyLog(s.Log, s.Anew, gone)
	if err != nil {
		select {
		case <-gone:
			return errGone
		default:
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := &gatewayServer{gatewaySetup: s, ctx: ctx, log: log, attempts: map[string]int{}, out: make(chan receipt, 10_000)}
	for range 8 {
		go g.post()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /send", g.send)
	mux.HandleFunc("POST /find", g.find)
	var silent sync.Map // connections on which nothing was asked yet: Shutdown would wait for them
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ConnState: func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			silent.Store(c, nil)
		} else {
			silent.Delete(c)
		}
	}}
	server.RegisterOnShutdown(func() {
		silent.Range(func(c, _ any) bool {
			c.(net.Conn).Close()
			return true
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(stdout, listener.Addr()); err != nil {
		return err
	}
	select {
	case <-gone:
	case err := <-ended:
		return err
	}
	return server.Shutdown(context.Background())
}

type gatewayServer struct {
	gatewaySetup
	ctx context.Context
	log *replyLog
	out chan receipt // full: lost

	hangs atomic.Int32

	mu       sync.Mutex
	attempts map[string]int // by operation and what is tried
}

// lag is the Lag of a run.
const lag = 100 * time.Millisecond

// send performs a reply, with faults before and after.
func (g *gatewayServer) send(w http.ResponseWriter, r *http.Request) {
	m, ok := g.read(w, r)
	deadline, err := time.Parse(time.RFC3339Nano, r.Header.Get(deadlineHeader))
	if !ok || err != nil {
		http.Error(w, "no reply, or without deadline", http.StatusBadRequest)
		return
	}
	switch draw := g.draw("before", m.Operation); {
	case draw < g.Faults/3:
		http.Error(w, "too much at once", http.StatusTooManyRequests)
		return
	case draw < g.Faults*2/3:
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	case draw < g.Faults:
		panic(http.ErrAbortHandler) // hangs up
	}
	if err := g.log.perform(m.Operation, m.Key, deadline); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	g.report(receipt{Message: r.Header.Get(messageHeader), Operation: m.Operation, At: time.Now()})
	if draw := g.draw("after", m.Operation); draw < g.Faults {
		if draw < g.Faults/10 && g.hangs.Add(1) <= 10 { // each costs its lane some time
			select { // until the caller has lost its patience
			case <-r.Context().Done():
			case <-time.After(time.Minute):
			}
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusAccepted)
}

// find says whether a reply was performed: some time later, or not at all, if it so
// pleases.
func (g *gatewayServer) find(w http.ResponseWriter, r *http.Request) {
	m, ok := g.read(w, r)
	if !ok {
		http.Error(w, "no reply", http.StatusBadRequest)
		return
	}
	found, age, err := g.log.find(m.Operation)
	late := time.Duration(0)
	if c := g.chance("lag", m.Operation, 0); c < g.Faults { // the same whenever it is asked
		late = time.Duration(c / g.Faults * float64(g.Lag))
	}
	switch {
	case err != nil || g.draw("find", m.Operation) < g.Faults/2:
		http.Error(w, "broken", http.StatusServiceUnavailable)
	case !found || age < late:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (g *gatewayServer) read(w http.ResponseWriter, r *http.Request) (m reply, ok bool) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(secretHeader)), []byte(g.Secret)) != 1 {
		return m, false
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&m)
	return m, err == nil && m.Operation != "" && !strings.ContainsAny(m.Operation+m.Key, "\t\n")
}

// report posts the receipt of a reply, unless it gets lost.
func (g *gatewayServer) report(r receipt) {
	times, late := 1, time.Duration(0)
	draw := g.draw("receipt", r.Operation)
	r.Event = fmt.Sprintf("%s/%d", r.Message, r.At.UnixNano())
	switch {
	case draw < g.Faults/3:
		return
	case draw < g.Faults*2/3:
		times = 2
	case draw < g.Faults:
		late = 2 * quiet
	}
	time.AfterFunc(late, func() {
		for range times {
			select {
			case g.out <- r:
			default:
			}
		}
	})
}

func (g *gatewayServer) post() {
	client := &http.Client{Timeout: 5 * time.Second}
	for {
		select {
		case <-g.ctx.Done():
			return
		case r := <-g.out:
			text, err := json.Marshal(r)
			if err != nil {
				continue
			}
			req, err := http.NewRequestWithContext(g.ctx, http.MethodPost, g.Receipts, strings.NewReader(string(text)))
			if err != nil {
				continue
			}
			req.Header.Set(secretHeader, g.Secret)
			if answer, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
				answer.Body.Close()
			}
		}
	}
}

// draw is a number in [0,1), another one for each attempt. What becomes of an operation
// depends on the seed, and not on what else is under way.
func (g *gatewayServer) draw(what, operation string) float64 {
	g.mu.Lock()
	name := what + "/" + operation
	n := g.attempts[name]
	g.attempts[name]++
	g.mu.Unlock()
	return g.chance(what, operation, n)
}

func (g *gatewayServer) chance(what, operation string, attempt int) float64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d/%s", g.Seed, what, attempt, operation))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}
