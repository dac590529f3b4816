package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// errNoRedis says that there is no Redis to start.
var errNoRedis = errors.New("-degrade needs redis-server, 7.0 or newer, in the PATH (Debian and Ubuntu: apt-get install redis-server)")

// A redisServer is a Redis of this program's own, which survives a kill with all
// that it has acknowledged. It listens on a socket in its directory and nowhere
// else.
type redisServer struct {
	path, dir string
	client    *redis.Client
	shell     *exec.Cmd // nil: not running
	word      io.WriteCloser
}

func startRedis(ctx context.Context) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	dir, err := os.MkdirTemp("", "pipeline-")
	if err != nil {
		return nil, err
	}
	redis.SetLogger(new(logging.VoidLogger)) // that it cannot be reached is no news here
	s := &redisServer{path: path, dir: dir, client: redis.NewClient(&redis.Options{
		Network:               "unix",
		Addr:                  filepath.Join(dir, "socket"),
		MaxRetries:            -1, // the primitives ask again by themselves
		DialerRetries:         1,
		DialTimeout:           time.Second,
		ContextTimeoutEnabled: true,
	})}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// guarded runs a server until this program says a word or dies, however it dies.
// The word is that the data are to be kept.
const guarded = `"$0" "$@" & read -r keep; kill -9 $!; wait; test "$keep" || rm -rf -- "$SERVER_DIR"`

// start starts the server and returns when it answers.
func (s *redisServer) start(ctx context.Context) error {
	shell := exec.Command("sh", "-c", guarded, s.path, "--port", "0", "--unixsocket", s.client.Options().Addr,
		"--dir", s.dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	shell.Env = append(os.Environ(), "SERVER_DIR="+s.dir)
	word, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.shell, s.word = shell, word
	for begun := time.Now(); ; {
		if err = s.client.Ping(ctx).Err(); err == nil {
			return nil
		}
		if time.Since(begun) > 20*time.Second {
			return fmt.Errorf("redis-server does not answer: %w", err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// kill ends the server as a crash would, and returns when it is gone.
func (s *redisServer) kill() error {
	if s.shell == nil {
		return nil
	}
	_, err := s.word.Write([]byte("keep\n"))
	err = errors.Join(err, s.word.Close())
	s.shell.Wait() // its status is that of the server, which was killed
	s.shell = nil
	return err
}

func (s *redisServer) close() error {
	return errors.Join(s.client.Close(), s.kill(), os.RemoveAll(s.dir))
}
