// Package servers starts throw-away Redis and PostgreSQL servers on free
// loopback ports. It knows nothing of package testing, so that a program can use
// it too; tests use package testenv, which stands on it.
//
// A server never outlives the process that started it, however that process
// ends: beside each server stands a shell that waits for the process to go away,
// then kills the server and removes its directory. It works on every Unix and,
// unlike the parent-death signal of Linux, does not depend on the thread that
// started the server.
package servers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 60 * time.Second // a loaded machine with two cores needs seconds for initdb
	stopTimeout  = 20 * time.Second
	pollEvery    = 5 * time.Millisecond
)

// ErrMissing says that the machine lacks a server's program, or has one that is
// too old. Errors that wrap it name what to install.
var ErrMissing = errors.New("server not installed")

// Required reports whether a missing server is a failure rather than a reason to
// skip: on CI, and where PAWL_TEST_REQUIRE_SERVERS says so.
func Required() bool {
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	must, _ := strconv.ParseBool(os.Getenv("PAWL_TEST_REQUIRE_SERVERS"))
	return ci || must
}

// Server is one running, stopped or killed server process. Its address and its
// data directory stay the same until Close. All methods are safe for concurrent use.
type Server struct {
	addr string
	url  string
	dir  string
	args []string // program and arguments
	as   *account // nil: as ourselves

	ready   func() error
	quit    syscall.Signal // asks for an orderly end
	abandon syscall.Signal // asks for a quick one, when nobody cares for the data

	mu      sync.Mutex
	cmd     *exec.Cmd
	life    *os.File // end of file once no process of the server is left
	janitor *exec.Cmd
	leash   io.Closer // the janitor acts once this is closed
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.addr }

// URL is what a client library takes: redis://host:port, or
// postgres://user@host:port/database?sslmode=disable.
func (s *Server) URL() string { return s.url }

// Start starts a server that was stopped or killed, on the same port and data,
// and returns when it answers. Starting a running server does nothing.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return nil
	}
	// A port or a lock file may take a moment to be free after a kill.
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.startOnce(deadline)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * pollEvery)
	}
}

// Stop asks the server for an orderly end and returns when no process of it is left.
func (s *Server) Stop() error { return s.end(s.quit) }

// Kill ends the server with SIGKILL, as a crash would, and returns when no
// process of it is left: nothing is committed after Kill has returned.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Close kills the server and removes its data.
func (s *Server) Close() error {
	err := s.Kill()
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *Server) startOnce(deadline time.Time) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	life, held, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()

	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{held} // inherited by every process of the server
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	detach(cmd, s.as)
	if err := cmd.Start(); err != nil {
		life.Close()
		return fmt.Errorf("start %s: %w", filepath.Base(s.args[0]), err)
	}
	held.Close()
	s.cmd, s.life = cmd, life

	if err := s.startJanitor(); err != nil {
		return errors.Join(err, s.endLocked(syscall.SIGKILL))
	}
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		// Waiting for the pipe is waiting a little, cut short when the server dies.
		if gone, _ := s.waitGone(pollEvery); gone || time.Now().After(deadline) {
			err = fmt.Errorf("%s did not start: %w; its log ends with:\n%s",
				filepath.Base(s.args[0]), err, s.logTail())
			return errors.Join(err, s.endLocked(syscall.SIGKILL))
		}
	}
}

// startJanitor starts the shell that outlives us. The server's process ID cannot
// be taken by a stranger while the janitor may still use it, because we reap the
// server only after the janitor has ended.
func (s *Server) startJanitor() error {
	const script = `read -r _; kill "-$3" "$1"; sleep 1; kill -9 "$1"; rm -rf -- "$2"`
	janitor := exec.Command("/bin/sh", "-c", script, "sh",
		strconv.Itoa(s.cmd.Process.Pid), s.dir, strconv.Itoa(int(s.abandon)))
	detach(janitor, nil) // an interrupt from the keyboard must not reach it
	leash, err := janitor.StdinPipe()
	if err != nil {
		return err
	}
	if err := janitor.Start(); err != nil {
		return fmt.Errorf("start the shell that cleans up: %w", err)
	}
	s.janitor, s.leash = janitor, leash
	return nil
}

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(sig)
}

func (s *Server) endLocked(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(sig) // it may have ended by itself
	gone, err := s.waitGone(stopTimeout)
	if !gone {
		_ = s.cmd.Process.Kill()
		err = fmt.Errorf("%s did not end within %v of %v: %w", filepath.Base(s.args[0]), stopTimeout, sig, err)
	} else {
		err = nil
	}
	if s.janitor != nil {
		_ = s.janitor.Process.Kill()
		_ = s.janitor.Wait()
		_ = s.leash.Close()
	}
	_ = s.cmd.Wait() // the exit status is the signal's; nothing to learn from it
	_ = s.life.Close()
	s.cmd, s.life, s.janitor, s.leash = nil, nil, nil, nil
	return err
}

// waitGone waits for at most d until no process of the server is left.
func (s *Server) waitGone(d time.Duration) (bool, error) {
	if err := s.life.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, err
	}
	_, err := s.life.Read(make([]byte, 1))
	return errors.Is(err, io.EOF), err
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) logTail() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
