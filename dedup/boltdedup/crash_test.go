package boltdedup_test

import (
	"bufio"
	"context"
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

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTDEDUP_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// crashIDs is how many messages there are in the crash test. They are drawn at
// random, so that many are duplicates.
const crashIDs = 1000

// workUntilKilled fulfils orders for ever, and says on standard output which ones
// it would have acknowledged: some with claim, effect and completion in one
// commit, others in three steps.
func workUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := boltdedup.New(db, nil)
	if err != nil {
		return err
	}
	g, err := crashGuard(s)
	if err != nil {
		return err
	}
	ctx := context.Background()
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				id := fmt.Sprintf("tx-%d", rand.IntN(crashIDs))
				if err := fulfil(ctx, db, g, s, id, nil); err != nil {
					failed <- err
				}
				fmt.Println(id)

				id = fmt.Sprintf("steps-%d", rand.IntN(crashIDs))
				c, err := g.Claim(ctx, dedup.Request{ID: id})
				if err == nil && c.State == dedup.Acquired {
					err = g.Settle(ctx, c.Complete([]byte(id)))
				}
				if err != nil {
					failed <- err
				}
				if c.State == dedup.Acquired || c.State == dedup.Done {
					fmt.Println(id)
				}
			}
		}()
	}
	return <-failed
}

func crashGuard(s *boltdedup.Store) (*dedup.Guard, error) {
	return dedup.New(s, &dedup.Options{Scope: "crash", Lease: time.Hour})
}

// TestKilledAtAnyMoment kills a process again and again while it works. After
// each time the file is whole, every order was written exactly once if its
// message is done and not at all otherwise, and every message that was
// acknowledged is done.
func TestKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, 5)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 20, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	acknowledged := map[string]bool{}
	for range kills {
		killWhileAtWork(t, path, acknowledged)
		verify(t, path, acknowledged)
	}
	t.Logf("%d kills, %d messages acknowledged", kills, len(acknowledged))
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
	lines, more := bufio.NewReader(stdout), 1+rand.IntN(60)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a line that was cut off was not acknowledged
		}
		acknowledged[strings.TrimSpace(line)] = true
		if n == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	err = cmd.Wait()
	require.EqualError(t, err, "signal: killed", "the child ended by itself: %s", &stderr)
}

// verify looks at the file as the next process would find it.
func verify(t *testing.T, path string, acknowledged map[string]bool) {
	t.Helper()
	db := openFile(t, path, nil)
	defer db.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error("the file is damaged:", err)
		}
		return nil
	}))
	g, err := crashGuard(newStore(t, db))
	require.NoError(t, err)

	var requests []dedup.Request
	for n := range crashIDs {
		requests = append(requests, dedup.Request{ID: fmt.Sprintf("tx-%d", n)}, dedup.Request{ID: fmt.Sprintf("steps-%d", n)})
	}
	claims, err := g.ClaimBatch(t.Context(), requests)
	require.NoError(t, err)
	var free []dedup.Settlement
	for _, c := range claims {
		require.NoError(t, c.Err)
		if acknowledged[c.ID] {
			require.Equal(t, dedup.Done, c.State, "%s was acknowledged", c.ID)
		}
		if c.State == dedup.Acquired {
			free = append(free, dedup.Settlement{Kind: dedup.KindForget, ID: c.ID})
		}
		if strings.HasPrefix(c.ID, "tx-") {
			want := map[dedup.State]string{dedup.Done: "1", dedup.Acquired: ""}
			require.Contains(t, want, c.State, c.ID)
			require.Equal(t, want[c.State], order(t, db, c.ID), "%s is %s", c.ID, c.State)
		}
	}
	require.NoError(t, g.Settle(t.Context(), free...))
}
