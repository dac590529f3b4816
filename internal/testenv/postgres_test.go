package testenv_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testenv"
)

func TestSharedPostgresKeepsWhatItCommits(t *testing.T) {
	url := testenv.Postgres(t)
	if !strings.HasPrefix(url, "postgres://") {
		t.Fatalf("URL %q", url)
	}
	addr, _, _ := strings.Cut(url[strings.Index(url, "@")+1:], "/")
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "server_encoding": "UTF8",
	} {
		if got := query(t, addr, "SHOW "+setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
}

func TestPostgresOwnKeepsCommittedDataOverAKill(t *testing.T) {
	s := testenv.PostgresOwn(t, "max_connections=20")
	query(t, s.Addr(), "CREATE TABLE t AS SELECT 'kept' AS v")
	for _, end := range []func(){s.Kill, s.Stop} {
		end()
		if conn, err := net.Dial("tcp", s.Addr()); err == nil {
			conn.Close()
			t.Fatal("a server that has ended takes connections")
		}
		s.Start()
		if got := query(t, s.Addr(), "SELECT v FROM t"); got != "kept" {
			t.Errorf("got %q", got)
		}
	}
	if got := query(t, s.Addr(), "SHOW max_connections"); got != "20" {
		t.Errorf("max_connections = %q", got)
	}
}

func TestPostgresKillEndsEveryBackend(t *testing.T) {
	s := testenv.PostgresOwn(t)
	conn := connect(t, s.Addr())
	send(t, conn, 'Q', "SELECT pg_sleep(3600)\x00")
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		done <- err
	}()
	s.Kill()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a backend outlived its server")
	}
}

// query runs one statement in PostgreSQL's simple query protocol and returns the
// first column of the last row.
func query(t *testing.T, addr, sql string) string {
	t.Helper()
	conn := connect(t, addr)
	defer conn.Close()
	send(t, conn, 'Q', sql+"\x00")
	value := ""
	for {
		switch kind, body := receive(t, conn); kind {
		case 'D': // columns (2 bytes), length of the first (4 bytes), the first
			n := binary.BigEndian.Uint32(body[2:])
			value = string(body[6 : 6+n])
		case 'E':
			t.Fatalf("%s: %q", sql, body)
		case 'Z':
			return value
		}
	}
}

type session struct {
	net.Conn
	*bufio.Reader
}

func (s session) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func connect(t *testing.T, addr string) session {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	conn := session{c, bufio.NewReader(c)}
	const words = "user\x00postgres\x00database\x00postgres\x00\x00"
	startup := binary.BigEndian.AppendUint32(nil, uint32(8+len(words)))
	startup = binary.BigEndian.AppendUint32(startup, 3<<16)
	if _, err := conn.Write(append(startup, words...)); err != nil {
		t.Fatal(err)
	}
	for {
		switch kind, body := receive(t, conn); kind {
		case 'E':
			t.Fatalf("connect: %q", body)
		case 'Z':
			return conn
		}
	}
}

func send(t *testing.T, w io.Writer, kind byte, body string) {
	t.Helper()
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	if _, err := w.Write(append(b, body...)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, r io.Reader) (byte, []byte) {
	t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatal(err)
	}
	return head[0], body
}
