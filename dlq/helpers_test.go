package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

const stream = "orders"

var ctx = context.Background()

func newQueue(t testing.TB, s dlq.Store, opts *dlq.Options) *dlq.Queue {
	t.Helper()
	q, err := dlq.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newReview(t testing.TB, q *dlq.Queue) *dlq.Review {
	t.Helper()
	r, err := dlq.NewReview(q, func(context.Context, dlq.Action) (string, error) { return "ana", nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func message(id, key string) dlq.Message {
	return dlq.Message{Stream: stream, ID: id, Key: key, Payload: []byte("payload of " + id), Headers: map[string]string{"h": "of " + id}}
}

var errDown = errors.New("the remote is down")

// put puts letters of a key.
func put(t testing.TB, q *dlq.Queue, key string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if a, err := q.Put(ctx, dlq.Dead{Message: message(id, key), Cause: errDown}); err != nil || a[0] != dlq.Added {
			t.Fatalf("Put of %s: %v, %v", id, a, err)
		}
	}
}

func get(t testing.TB, q *dlq.Queue, id string) dlq.Letter {
	t.Helper()
	l, err := q.Get(ctx, stream, id)
	if err != nil {
		t.Fatalf("Get of %s: %v", id, err)
	}
	return l
}

func wantState(t testing.TB, q *dlq.Queue, id string, s dlq.State) dlq.Letter {
	t.Helper()
	l := get(t, q, id)
	if l.State != s {
		t.Fatalf("the letter %s is %v after %d tries, want %v", id, l.State, l.Tries, s)
	}
	return l
}

// run runs Run in the background; stop waits for its end.
func run(t testing.TB, q *dlq.Queue, opts *dlq.RunOptions, handle func(context.Context, dlq.Letter) error) (stop func()) {
	t.Helper()
	if opts == nil {
		opts = &dlq.RunOptions{}
	}
	opts.Stream = stream
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- q.Run(running, handle, opts) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A journal notes what happened, and when since it began.
type journal struct {
	mu      sync.Mutex
	start   time.Time
	entries []string
}

func newJournal() *journal { return &journal{start: time.Now()} }

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

// timed is add with the time in minutes.
func (j *journal) timed(what string) { j.add("%s@%v", what, time.Since(j.start).Round(time.Second)) }

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.entries, " ")
}

// logged returns a logger and a function that returns what was logged.
func logged() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var b strings.Builder
	return slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return b.Write(p)
		}), nil)), func() string {
			mu.Lock()
			defer mu.Unlock()
			return b.String()
		}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// authorized is a review whose function is the test's.
func authorized(t testing.TB, q *dlq.Queue, f dlq.Authorize) *dlq.Review {
	t.Helper()
	r, err := dlq.NewReview(q, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
