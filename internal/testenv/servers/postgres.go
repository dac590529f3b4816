package servers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ManyConnections is the setting of a server that several packages share while their
// tests run side by side, each with pools of its own: the default is 100 connections.
const ManyConnections = "max_connections=500"

// StartPostgres makes a fresh PostgreSQL cluster and starts a server for it with
// the default settings, fsync included. Extra settings such as
// "max_connections=20" change that. The user is postgres, without a password.
func StartPostgres(settings ...string) (*Server, error) {
	path, err := findPostgres()
	if err != nil {
		return nil, err
	}
	as, err := plainAccount()
	if err != nil {
		return nil, err
	}
	return startAnywhere(func() (*Server, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		dir, err := newDir(as)
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		if err := initdb(filepath.Join(filepath.Dir(path), "initdb"), dir, data, as); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		args := []string{path, "-D", data, "-p", strconv.Itoa(port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
		for _, s := range settings {
			args = append(args, "-c", s)
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		return &Server{
			addr: addr,
			url:  "postgres://postgres@" + addr + "/postgres?sslmode=disable",
			dir:  dir, args: args, as: as,
			ready:   func() error { return greet(addr) },
			quit:    syscall.SIGINT,  // PostgreSQL's fast shutdown: it does not wait for clients
			abandon: syscall.SIGQUIT, // its immediate shutdown
		}, nil
	})
}

var findPostgres = sync.OnceValues(func() (string, error) {
	const what = "PostgreSQL 15 or newer is needed (Debian and Ubuntu: apt-get install postgresql)"
	path, version, err := find("postgres", "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
		"/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/opt/postgresql@*/bin")
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	if version < 1500 {
		return "", fmt.Errorf("%s: %s has version %d.%d: %w", what, path, version/100, version%100, ErrMissing)
	}
	return path, nil
})

func initdb(program, dir, data string, as *account) error {
	// --no-sync spares the first write to disk only; the server itself syncs.
	cmd := exec.Command(program, "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	detach(cmd, as)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// greet opens a session as postgres and returns nil once the server is ready for
// a query. The messages are those of PostgreSQL's protocol 3.0.
func greet(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	const words = "user\x00postgres\x00database\x00postgres\x00\x00"
	startup := binary.BigEndian.AppendUint32(nil, uint32(8+len(words)))
	startup = binary.BigEndian.AppendUint32(startup, 3<<16)
	if _, err := conn.Write(append(startup, words...)); err != nil {
		return err
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > 1<<16 {
			return fmt.Errorf("no PostgreSQL server at %s", addr)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		switch head[0] {
		case 'Z': // ready for query; say good-bye
			_, err := conn.Write([]byte{'X', 0, 0, 0, 4})
			return err
		case 'E':
			return fmt.Errorf("PostgreSQL refuses: %q", body)
		}
	}
}
