package redisreconcile_test

import (
	"context"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// newPipeClient returns a client of a miniredis in the same bubble. Its connections
// are pipes, since a socket cannot be in a bubble.
func newPipeClient(server *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            "127.0.0.1:1", // no name to look up; nothing is there
		DisableIdentity: true,          // see newClient
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := server.Dial()
			if err != nil {
				return nil, err
			}
			return newQueued(conn), nil
		},
	})
}

// A queued is a connection whose writes do not wait for the reader, as those of a
// socket do not: a pipeline would otherwise wait for ever for the replies that it
// does not read yet.
type queued struct {
	net.Conn
	writes chan []byte
}

func newQueued(conn net.Conn) *queued {
	q := &queued{Conn: conn, writes: make(chan []byte, 1024)}
	go func() {
		for b := range q.writes {
			if _, err := conn.Write(b); err != nil {
				conn.Close()
			}
		}
	}()
	return q
}

func (q *queued) Write(b []byte) (int, error) {
	q.writes <- append([]byte(nil), b...)
	return len(b), nil
}

func (q *queued) SetDeadline(t time.Time) error    { return q.Conn.SetReadDeadline(t) }
func (q *queued) SetWriteDeadline(time.Time) error { return nil }

func (q *queued) Close() error {
	close(q.writes) // a client closes a connection once, and writes nothing more
	return q.Conn.Close()
}
