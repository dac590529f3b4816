package boltinbox_test

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTINBOX_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// workUntilKilled accepts events for ever, some of them twice, and works them:
// effect and completion in one commit. It says on standard output what it has
// acknowledged.
func workUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := boltinbox.New(db, nil)
	if err != nil {
		return err
	}
	b, err := inbox.New(s, nil)
	if err != nil {
		return err
	}
	f := &file{Store: s, db: db, path: path}
	failed := make(chan error)
	go func() {
		failed <- b.Work(context.Background(), func(ctx context.Context, r inbox.Record) inbox.Outcome {
			if givenUp(r) {
				return inbox.Dead(nil)
			}
			return inbox.OutcomeOf(effect(ctx, f, b, r, nil))
		}, &inbox.WorkOptions{Lease: 500 * time.Millisecond, Batch: 3})
	}()
	go func() {
		for {
			if err := replayDead(context.Background(), f); err != nil {
				failed <- err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for range 4 {
		go func() {
			for {
				n := rand.IntN(100_000)
				if _, err := b.Accept(context.Background(), event(keyOf(n), idOf(n)), event(keyOf(n+1), idOf(n+1))); err != nil {
					failed <- err
				}
				fmt.Println(n)
			}
		}()
	}
	return <-failed
}

// givenUp is whether an event is given up on, until a person replays it: every
// tenth is.
func givenUp(r inbox.Record) bool {
	return strings.HasSuffix(r.ID, "3") && len(r.Actions) == 0
}

// replayDead does what a person would do about the events that were given up on.
func replayDead(ctx context.Context, f *file) error {
	dead, err := f.List(ctx, inbox.Query{State: inbox.StateDead, N: 20})
	if err != nil {
		return err
	}
	var changes []inbox.Change
	for _, r := range dead {
		c := inbox.Change{Kind: inbox.ChangeReplay, ID: r.ID, Actor: "test", Reason: "mended"}
		crand.Read(c.Nonce[:])
		changes = append(changes, c)
	}
	errs, err := f.Change(ctx, inbox.Params{Retention: time.Hour, Keep: time.Hour}, changes)
	return errors.Join(append(errs, err)...)
}

// TestKilledAtAnyMoment kills a process again and again while it works. After
// each time the file is whole, every event that was acknowledged is there, and
// an event has its effect exactly once if it is done and not at all otherwise.
// Then the rest is worked to its end.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 5)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 15, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	acknowledged := map[string]bool{}
	for range kills {
		killWhileAtWork(t, path, acknowledged)
		verifyCrashed(t, path, acknowledged)
	}
	f := openPath(t, path)
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	for totals := (inbox.Totals{Dead: 1}); totals.Dead > 0; {
		require.NoError(t, replayDead(t.Context(), f))
		totals, err = b.Totals(t.Context())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.NoError(t, b.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		err := effect(ctx, f, b, r, nil)
		if totals, _ := b.Totals(ctx); totals.Pending == 0 {
			cancel()
		}
		return inbox.OutcomeOf(err)
	}, nil))
	require.NoError(t, f.db.View(f.Verify))
	for id := range acknowledged {
		require.Equal(t, "1", mark(t, f, "p/"+id), id)
	}
	t.Logf("%d kills, %d events acknowledged", kills, len(acknowledged))
}

// killWhileAtWork starts the child, waits until it works, kills it some time
// later, and adds what it acknowledged.
func killWhileAtWork(t *testing.T, path string, acknowledged map[string]bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashFile+"="+path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	// The moment is some commits and some fraction of a commit after the start.
	lines, more := bufio.NewReader(stdout), 20+rand.IntN(100)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var i int
		_, err = fmt.Sscan(line, &i)
		require.NoError(t, err)
		acknowledged[idOf(i)], acknowledged[idOf(i+1)] = true, true
		if n == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	require.Empty(t, stderr.String())
}

func verifyCrashed(t *testing.T, path string, acknowledged map[string]bool) {
	t.Helper()
	f := openPath(t, path)
	defer f.db.Close()
	require.NoError(t, f.db.View(f.Verify))
	for id := range acknowledged {
		rs, err := f.List(t.Context(), inbox.Query{ID: "p/" + id, N: 10})
		require.NoError(t, err)
		require.Len(t, rs, 1, id)
		want := ""
		if rs[0].State == inbox.StateDone {
			want = "1"
		}
		require.Equal(t, want, mark(t, f, rs[0].ID), "an event that is %v after %d attempts: %s", rs[0].State, rs[0].Attempts, id)
	}
}
