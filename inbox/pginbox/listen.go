package pginbox

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
)

// ErrNoNotifications is what [Store.Listen] reports when a notification that it sent
// to itself did not arrive: the connection has no session of its own, as behind a
// pooler in transaction mode.
var ErrNoNotifications = errors.New("pginbox: notifications do not arrive on this connection, events are found by polling")

// Listen calls wake whenever another process with Options.Notify has accepted
// events, until ctx ends, and then returns nil. Pass Box.Wake. It holds one
// connection, beside those of the pool, and connects again when that breaks, after
// 100 ms at first and then at longer intervals up to 30 s; after each connecting it
// calls wake, for what it has missed. wake must not block.
//
// Whether notifications arrive is tried out each time, with one to itself. What goes
// wrong is given to problem, which may be nil: [ErrNoNotifications], or why there is
// no connection. Events are found by polling meanwhile, and nothing is lost.
func (s *Store) Listen(ctx context.Context, wake func(), problem func(error)) error {
	if wake == nil {
		return fmt.Errorf("pginbox: %w: nil wake function", inbox.ErrInvalid)
	}
	wait := firstWait
	for ctx.Err() == nil {
		err := s.listenOnce(ctx, wake, func() { wait = firstWait })
		if ctx.Err() != nil {
			break
		}
		if problem != nil {
			problem(s.wrap("listen", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, longestWait)
	}
	return nil
}

const (
	firstWait   = 100 * time.Millisecond
	longestWait = 30 * time.Second
	// testWait is how long the notification to itself may take.
	testWait = 5 * time.Second
	// checkEvery is how often a connection on which nothing arrives is tried out
	// again: a broken one does not say so by itself.
	checkEvery = 30 * time.Second
)

// listenOnce listens on one connection until it fails.
func (s *Store) listenOnce(ctx context.Context, wake, works func()) error {
	connecting, cancel := context.WithTimeout(ctx, testWait)
	conn, err := s.listen(connecting)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel()}.Sanitize()); err != nil {
		return err
	}
	for {
		if err := s.selfTest(ctx, conn); err != nil {
			return err
		}
		works()
		wake()
		for {
			waiting, cancel := context.WithTimeout(ctx, checkEvery)
			_, err := conn.WaitForNotification(waiting)
			quiet := waiting.Err() != nil
			cancel()
			if err != nil && quiet && ctx.Err() == nil && !conn.IsClosed() {
				break // try it out
			}
			if err != nil {
				return err
			}
			wake()
		}
	}
}

// selfTest sends a notification through the pool, as an acceptance does, and waits
// for it.
func (s *Store) selfTest(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, testWait)
	defer cancel()
	token := fmt.Sprintf("test %016x", rand.Uint64())
	if _, err := s.pool.Exec(ctx, "SELECT pg_notify($1::text, $2::text)", s.channel(), token); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil && ctx.Err() != nil && context.Cause(ctx) == context.DeadlineExceeded:
			return ErrNoNotifications
		case err != nil:
			return err
		case n.Payload == token:
			return nil
		}
	}
}

// channel is the name of the schema's channel. It is shared by the whole database.
func (s *Store) channel() string {
	h := fnv.New64a()
	h.Write([]byte(s.schema))
	return fmt.Sprintf("pawl_inbox_%016x", h.Sum64())
}

// notify tells those who listen.
func (s *Store) notify() {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	defer cancel()
	// An error is of no use to anybody: workers look by themselves, too.
	_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1::text, '')", s.channel())
}

// A bell rings once for all who press it while it rings, and then rests as long as
// that took, at most maxRest.
type bell struct {
	ring func()

	mu      sync.Mutex
	ringing bool
	again   bool
}

// press makes the bell ring after this moment. It does not wait.
func (b *bell) press() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ringing {
		b.again = true
		return
	}
	b.ringing = true
	go func() {
		for {
			start := time.Now()
			b.ring()
			time.Sleep(min(time.Since(start), maxRest))
			b.mu.Lock()
			if !b.again {
				b.ringing = false
				b.mu.Unlock()
				return
			}
			b.again = false
			b.mu.Unlock()
		}
	}()
}

// maxRest bounds by how much a notification is late because another one has just
// been sent.
const maxRest = 2 * time.Millisecond
