package testenv_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv"
)

// echo is a server that sends back what it gets and remembers it.
type echo struct {
	addr string

	mu  sync.Mutex
	got strings.Builder
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 1024)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.got.Write(buf[:n])
		e.mu.Unlock()
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got.String()
}

func dial(t *testing.T, p *testenv.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask sends a text and returns what came back, and the error when less did.
func ask(t *testing.T, conn net.Conn, text string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(conn, b)
	return string(b[:n]), err
}

func mustEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if got, err := ask(t, conn, text); got != text || err != nil {
		t.Fatalf("%q came back as %q: %v", text, got, err)
	}
}

func mustBreak(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got, err := ask(t, conn, text)
	if err == nil || got != "" {
		t.Fatalf("%q came back as %q", text, got)
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Fatal("the connection was left open")
	}
}

func TestProxyPassesEverythingOn(t *testing.T) {
	e := newEcho(t)
	p := testenv.NewProxy(t, e.addr)
	conn := dial(t, p)
	mustEcho(t, conn, "hello")
	mustEcho(t, conn, strings.Repeat("long ", 100_000))
}

func TestProxyDropsTheReplyAndNotTheRequest(t *testing.T) {
	e := newEcho(t)
	p := testenv.NewProxy(t, e.addr)
	p.DropReplies(2)
	mustBreak(t, dial(t, p), "one.")
	mustBreak(t, dial(t, p), "two.")
	mustEcho(t, dial(t, p), "three.")
	if got := e.received(); got != "one.two.three." {
		t.Errorf("the server received %q", got)
	}
	if p.Dropped() != 2 {
		t.Errorf("Dropped = %d", p.Dropped())
	}
}

func TestProxyDropsOnAConnectionInUse(t *testing.T) {
	e := newEcho(t)
	p := testenv.NewProxy(t, e.addr)
	conn, other := dial(t, p), dial(t, p)
	mustEcho(t, conn, "before.")
	p.DropReplies(1)
	mustBreak(t, conn, "after.")
	mustEcho(t, other, "other.")
	if got := e.received(); got != "before.after.other." {
		t.Errorf("the server received %q", got)
	}
}

func TestProxyDropsOnlyWhatMatches(t *testing.T) {
	e := newEcho(t)
	p := testenv.NewProxy(t, e.addr)
	conn := dial(t, p)
	p.DropRepliesTo("COMMIT", 1)
	mustEcho(t, conn, "begin")
	mustEcho(t, conn, "insert")
	if p.Dropped() != 0 {
		t.Error("dropped a reply that was not meant")
	}
	mustBreak(t, conn, "commit")
	mustEcho(t, dial(t, p), "commit")
}

func TestProxySwallowsAWholeReply(t *testing.T) {
	// The server answers a long request in pieces, while the client still sends.
	e := newEcho(t)
	p := testenv.NewProxy(t, e.addr)
	p.DropReplies(1)
	long := strings.Repeat("x", 1<<20)
	mustBreak(t, dial(t, p), long)
	if got := len(e.received()); got != len(long) {
		t.Errorf("the server received %d of %d bytes", got, len(long))
	}
}

func TestProxyDelays(t *testing.T) {
	const delay = 50 * time.Millisecond
	p := testenv.NewProxy(t, newEcho(t).addr)
	conn := dial(t, p)
	mustEcho(t, conn, "x")
	p.Delay(delay)
	start := time.Now()
	mustEcho(t, conn, "x")
	if took := time.Since(start); took < delay {
		t.Errorf("the reply took %v", took)
	}
	p.Delay(time.Hour)
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	p.Cut() // must not wait for the hour, nor may the end of the test
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a cut connection gave a byte")
	}
}

func TestProxyCutsWhatExists(t *testing.T) {
	p := testenv.NewProxy(t, newEcho(t).addr)
	a, b := dial(t, p), dial(t, p)
	mustEcho(t, a, "x")
	mustEcho(t, b, "x")
	p.Cut()
	mustBreak(t, a, "y")
	mustBreak(t, b, "y")
	mustEcho(t, dial(t, p), "z")
}

func TestProxyRefusesAndHeals(t *testing.T) {
	p := testenv.NewProxy(t, newEcho(t).addr)
	old := dial(t, p)
	mustEcho(t, old, "x")
	p.Refuse()
	conn, err := net.Dial("tcp", p.Addr())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			conn.Close()
		}
		t.Fatalf("dial: %v", err)
	}
	mustEcho(t, old, "y")
	p.DropReplies(5)
	p.Delay(time.Hour)
	p.Heal()
	mustEcho(t, old, "z")
	mustEcho(t, dial(t, p), "z")
	p.Heal() // healing the healthy changes nothing
	mustEcho(t, dial(t, p), "z")
}

func TestProxyWithoutAServerClosesTheConnection(t *testing.T) {
	p := testenv.NewProxy(t, "127.0.0.1:1")
	mustBreak(t, dial(t, p), "x")
}

func TestProxyRewritesTheURL(t *testing.T) {
	e := newEcho(t)
	p := testenv.NewProxy(t, "postgres://u@"+e.addr+"/db?sslmode=disable")
	if want := "postgres://u@" + p.Addr() + "/db?sslmode=disable"; p.URL() != want {
		t.Errorf("URL %q, want %q", p.URL(), want)
	}
	mustEcho(t, dial(t, p), "x")
	if p := testenv.NewProxy(t, e.addr); p.URL() != "" {
		t.Errorf("URL %q of a plain address", p.URL())
	}
}

func TestProxyIsSafeForConcurrentUse(t *testing.T) {
	p := testenv.NewProxy(t, newEcho(t).addr)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 50 {
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // refused just now
				}
				_, _ = ask(t, conn, "x")
				conn.Close()
			}
		})
	}
	for range 20 {
		p.DropReplies(1)
		p.Delay(time.Millisecond)
		p.Cut()
		p.Refuse()
		p.Heal()
	}
	clients.Wait()
	mustEcho(t, dial(t, p), "still there")
}
