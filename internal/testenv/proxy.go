package testenv

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv/servers"
)

// quiet is how long nothing may pass in either direction before a reply counts
// as complete. A reply, or those to a pipeline, may come in several pieces.
const quiet = 25 * time.Millisecond

// Proxy stands between a client and a server and breaks their connections when a
// test asks for it. It reads no protocol, so it serves Redis and PostgreSQL
// alike. A new Proxy passes everything on. All methods are safe for concurrent use.
type Proxy struct {
	t      testing.TB
	addr   string // ours
	target string // the server's host:port
	url    string

	mu       sync.Mutex
	listener net.Listener // nil: refusing
	links    map[*link]struct{}
	drops    int
	dropped  int
	match    []byte
	delay    time.Duration
	running  sync.WaitGroup
}

// NewProxy starts a proxy on a free loopback port in front of target, which is a
// host:port or a URL. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, links: map[*link]struct{}{}}
	listener, err := servers.Listen()
	if err != nil {
		t.Fatal(err)
	}
	p.addr = listener.Addr().String()
	if strings.Contains(target, "://") {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal("the proxy's target is not a URL")
		}
		p.target = u.Host
		u.Host = p.addr
		p.url = u.String()
	}
	p.mu.Lock()
	p.listen(listener)
	p.mu.Unlock()
	t.Cleanup(func() {
		p.Refuse()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// URL is the target's URL with the proxy's address in it, or empty when the
// target was not given as a URL.
func (p *Proxy) URL() string { return p.url }

// DropReplies makes the next n requests lose their replies: each reaches the
// server and is worked there, its reply is swallowed once complete, and the
// connection is cut. A request here is whatever a client sends next on one
// connection, also a driver's greeting on a new one; DropRepliesTo is more exact.
// It replaces what an earlier call asked for.
func (p *Proxy) DropReplies(n int) { p.DropRepliesTo("", n) }

// DropRepliesTo is DropReplies for requests that contain the given text, in upper
// or lower case: "eval" for Redis scripts, "commit" for PostgreSQL.
func (p *Proxy) DropRepliesTo(text string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops, p.match = n, bytes.ToLower([]byte(text))
}

// Dropped returns how many requests have lost their replies since the start. A
// test that arms a drop checks it, lest the drop never happened.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Delay holds back every piece of what the server sends for d. Zero ends it; what
// is already held back stays so for its time.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes every connection that exists now. New ones are welcome.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse makes new connections fail as if no server were there. Those that exist
// go on; Cut ends them.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Heal ends what DropReplies, Delay and Refuse began.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops, p.match, p.delay = 0, nil, 0
	if p.listener == nil {
		listener, err := net.Listen("tcp", p.addr)
		if err != nil {
			p.t.Errorf("the proxy cannot listen again: %v", err)
			return
		}
		p.listen(listener)
	}
}

// listen takes connections from the listener until it is closed. The caller holds mu.
func (p *Proxy) listen(listener net.Listener) {
	p.listener = listener
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(listener, client) })
		}
	})
}

func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{p: p, client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	if p.listener != listener {
		l.cut() // accepted just before Refuse: whoever refuses and cuts expects nobody
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()

	p.running.Go(l.replies)
	l.requests()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// link is one client's connection and the proxy's own to the server.
type link struct {
	p              *Proxy
	client, server net.Conn

	once sync.Once
	done chan struct{} // closed by cut

	mu       sync.Mutex
	dropping bool
	quiet    *time.Timer // cuts the link when the reply is complete; nil until it begins
}

// cut closes both connections at once. The client sees a reset rather than a
// clean end, as from a server that has crashed.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		if tcp, ok := l.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// requests copies from the client to the server until either ends.
func (l *link) requests() {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			// Armed before the request leaves, so that no reply can slip through.
			l.arm(buf[:n])
			if _, err := l.server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// replies copies from the server to the client, late or not at all as the test
// has asked.
func (l *link) replies() {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && !l.swallow() {
			if !l.hold() {
				return
			}
			if _, err := l.client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// arm begins to drop when the test has asked for it and this request is meant.
func (l *link) arm(request []byte) {
	l.p.mu.Lock()
	meant := l.p.drops > 0 && bytes.Contains(bytes.ToLower(request), l.p.match)
	l.mu.Lock()
	defer l.mu.Unlock()
	if meant && !l.dropping {
		l.p.drops--
		l.p.dropped++
		l.dropping = true
	}
	l.p.mu.Unlock()
	if l.quiet != nil {
		l.quiet.Reset(quiet) // the rest of a long request
	}
}

// swallow reports whether the server's bytes are to be dropped.
func (l *link) swallow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dropping {
		return false
	}
	if l.quiet == nil {
		l.quiet = time.AfterFunc(quiet, l.cut)
	} else {
		l.quiet.Reset(quiet)
	}
	return true
}

// hold waits for the delay, and reports false when the link was cut meanwhile.
func (l *link) hold() bool {
	l.p.mu.Lock()
	d := l.p.delay
	l.p.mu.Unlock()
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}
