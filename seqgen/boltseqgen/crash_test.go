package boltseqgen_test

import (
	"bufio"
	"context"
	"encoding/binary"
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

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTSEQGEN_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, numberUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// numberUntilKilled draws numbers in all modes for ever, and says on standard
// output which it got.
func numberUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := boltseqgen.New(db, nil)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block} {
		g, err := seqgen.New(s, &seqgen.Options{Mode: mode, Block: 8, MaxBlock: 64})
		if err != nil {
			return err
		}
		for range 3 {
			go func() {
				for {
					at, err := g.Next(context.Background(), mode.String())
					if err != nil {
						failed <- err
						return
					}
					fmt.Println(mode, at.Number)
					if mode == seqgen.Block {
						time.Sleep(100 * time.Microsecond) // it would do nothing but print
					}
				}
			}()
		}
	}
	g, err := seqgen.New(s, &seqgen.Options{Mode: seqgen.Gapless})
	if err != nil {
		return err
	}
	go func() {
		for {
			if err := writeInvoice(db, s, g); err != nil {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}

var (
	invoices     = []byte("invoices")
	errCancelled = errors.New("cancelled")
)

// writeInvoice draws a number and writes an invoice under it, in one commit or not
// at all.
func writeInvoice(db *bbolt.DB, s *boltseqgen.Store, g *seqgen.Generator) error {
	var number uint64
	err := db.Update(func(tx *bbolt.Tx) error {
		at, err := g.With(s.Tx(tx)).NextTx(context.Background(), "gapless")
		if err != nil {
			return err
		}
		b, err := tx.CreateBucketIfNotExists(invoices)
		if err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, at.Number)
		if b.Get(key) != nil {
			return fmt.Errorf("number %d was drawn twice", at.Number)
		}
		if err := b.Put(key, []byte("invoice")); err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			return errCancelled
		}
		number = at.Number
		return nil
	})
	if err == nil {
		fmt.Println(seqgen.Gapless, number)
	}
	if errors.Is(err, errCancelled) {
		return nil
	}
	return err
}

// TestKilledAtAnyMoment kills a process again and again while it draws numbers.
// None comes twice, whatever the mode, and the invoices have no gap.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 5)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 20, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	drawn := map[string]map[uint64]bool{}
	for _, mode := range []seqgen.Mode{seqgen.Single, seqgen.Block, seqgen.Gapless} {
		drawn[mode.String()] = map[uint64]bool{}
	}
	for range kills {
		killWhileAtWork(t, path, drawn)
		verifyCrashed(t, path, drawn)
	}
	for mode, numbers := range drawn {
		require.NotEmpty(t, numbers, mode)
		t.Logf("%d kills, %d numbers in mode %s", kills, len(numbers), mode)
	}
}

// killWhileAtWork starts the child, waits until it works, kills it some time
// later, and adds the numbers it got. None of them may be there already.
func killWhileAtWork(t *testing.T, path string, drawn map[string]map[uint64]bool) {
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
	lines, more, durable := bufio.NewReader(stdout), 20+rand.IntN(60), 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var mode string
		var number uint64
		_, err = fmt.Sscan(line, &mode, &number)
		require.NoError(t, err)
		require.False(t, drawn[mode][number], "number %d in mode %s came twice", number, mode)
		drawn[mode][number] = true
		if mode == seqgen.Gapless.String() {
			durable++
		}
		if durable == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	require.Empty(t, stderr.String())
}

func verifyCrashed(t *testing.T, path string, drawn map[string]map[uint64]bool) {
	t.Helper()
	f := openPath(t, path)
	defer f.db.Close()
	require.NoError(t, f.db.View(f.Verify))
	states, err := f.Look(t.Context(), "default", []string{"gapless"})
	require.NoError(t, err)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(invoices)
		require.Equal(t, uint64(b.Stats().KeyN), states[0].Last, "a number without an invoice")
		first, _ := b.Cursor().First()
		last, _ := b.Cursor().Last()
		require.Equal(t, []uint64{1, states[0].Last}, []uint64{binary.BigEndian.Uint64(first), binary.BigEndian.Uint64(last)})
		for n := range drawn["gapless"] {
			require.NotNil(t, b.Get(binary.BigEndian.AppendUint64(nil, n)), "invoice %d was committed", n)
		}
		return nil
	}))
}
