package boltorder_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTORDER_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var crashKeys = []string{"a", "b", "c", "d"}

// workUntilKilled pushes messages for ever, shuffled and some of them twice, and
// delivers them: effect and cursor in one commit. It says on standard output what
// was answered.
func workUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := boltorder.New(db, nil)
	if err != nil {
		return err
	}
	b, err := order.New(s, nil)
	if err != nil {
		return err
	}
	failed := make(chan error)
	go func() {
		failed <- b.RunTx(context.Background(), crashHandler(s, failed), &order.RunOptions{Lease: 300 * time.Millisecond, Batch: 7, PerTx: 3})
	}()
	for _, key := range crashKeys {
		go func() { failed <- pushForEver(b, key) }()
	}
	return <-failed
}

// crashHandler has the effect of each message. A message that comes twice or out of
// order ends the process.
func crashHandler(s *boltorder.Store, failed chan<- error) order.TxHandler {
	return s.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error {
		if err := effect(tx, m); err != nil {
			failed <- err
		}
		if want := fmt.Sprint("body ", m.Position.Number); string(m.Payload) != want {
			failed <- fmt.Errorf("number %d has the body %q", m.Position.Number, m.Payload)
		}
		if rand.IntN(50) == 0 && m.Attempt == 1 {
			return context.DeadlineExceeded // so that some transactions are done again
		}
		return nil
	})
}

func pushForEver(b *order.Buffer, key string) error {
	a, err := b.Account(context.Background(), key)
	if err != nil {
		return err
	}
	from := uint64(1)
	if len(a.Ledgers) > 0 {
		from = a.Ledgers[0].Cursor
	}
	for ; ; from += 8 {
		batch := messages(key, from, from+7)
		rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		batch = append(batch, batch[0])
		for part := range slices.Chunk(batch, 3) {
			answers, err := b.Push(context.Background(), part...)
			if err != nil {
				return err
			}
			for i, got := range answers {
				if got.State != order.Buffered && got.State != order.Duplicate {
					return fmt.Errorf("number %d was answered %v", part[i].Position.Number, got.State)
				}
				fmt.Println(key, part[i].Position.Number)
			}
		}
	}
}

// TestKilledAtAnyMoment kills a process again and again while it works. After each
// time the file is whole, every message that was answered is there, and the last
// effect of a key is that of the number before its cursor: each happened once, in
// order. Then the rest is delivered.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 5)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 15, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	answered := map[string]map[uint64]bool{}
	for _, key := range crashKeys {
		answered[key] = map[uint64]bool{}
	}
	for range kills {
		killWhileAtWork(t, path, answered)
		verifyCrashed(t, path, answered)
	}
	f := verified(t, openPath(t, path))
	b := newBuffer(t, f, nil)
	total, delivered := 0, uint64(0)
	for key, numbers := range answered {
		a, err := b.Account(t.Context(), key)
		require.NoError(t, err)
		l := a.Ledgers[0]
		delivered += l.Delivered
		if l.Head > l.Cursor {
			_, err = b.Push(t.Context(), messages(key, l.Cursor, l.Head-1)...) // also what was never pushed
			require.NoError(t, err)
		}
		runTxAll(t, f, b, key, l.Head-1)
		for n := range numbers {
			require.Less(t, n, l.Head)
		}
		total += len(numbers)
	}
	require.NotZero(t, delivered, "nothing was at stake")
	t.Logf("%d kills, %d messages answered, %d delivered before the last", kills, total, delivered)
}

// runTxAll delivers until the cursor is behind the number n.
func runTxAll(t testing.TB, f *file, b *order.Buffer, key string, n uint64) {
	t.Helper()
	if cursor(t, b, key) <= n {
		runTx(t, f, b, key, n, f.InTx(func(_ context.Context, tx *bbolt.Tx, m order.Message) error { return effect(tx, m) }), quick)
	}
	wantEffects(t, f, key, n)
}

func cursor(t testing.TB, b *order.Buffer, key string) uint64 {
	t.Helper()
	a, err := b.Account(t.Context(), key)
	require.NoError(t, err)
	return a.Ledgers[0].Cursor
}

// killWhileAtWork starts the child, waits until it works, kills it some time
// later, and adds what was answered.
func killWhileAtWork(t *testing.T, path string, answered map[string]map[uint64]bool) {
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
	lines, more := bufio.NewReader(stdout), 50+rand.IntN(300)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var key string
		var number uint64
		_, err = fmt.Sscan(line, &key, &number)
		require.NoError(t, err)
		answered[key][number] = true
		if n == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	require.Empty(t, stderr.String())
}

func verifyCrashed(t *testing.T, path string, answered map[string]map[uint64]bool) {
	t.Helper()
	f := openPath(t, path)
	defer f.db.Close()
	require.NoError(t, f.db.View(f.Verify))
	b := newBuffer(t, f, nil)
	for key, numbers := range answered {
		a, err := b.Account(t.Context(), key)
		require.NoError(t, err)
		if len(a.Ledgers) == 0 {
			require.Empty(t, numbers, key)
			continue
		}
		wantEffects(t, f, key, a.Ledgers[0].Cursor-1)
		for n := range numbers {
			found, err := b.Where(t.Context(), key, order.Position{Number: n})
			require.NoError(t, err)
			switch found[0].State {
			case order.StateDelivered, order.StateSettled, order.StateBuffered:
			default:
				t.Errorf("number %d of key %s was answered, and is %v now", n, key, found[0].State)
			}
		}
	}
}
