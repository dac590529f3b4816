package boltdlq_test

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

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTDLQ_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// workUntilKilled puts letters for ever, some of them while they are there, works them
// and reviews them: effect and settlement in one commit. It says on standard output
// what was answered.
func workUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := boltdlq.New(db, nil)
	if err != nil {
		return err
	}
	f := &file{Store: s, db: db, path: path}
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				n := rand.IntN(100_000)
				letters := []dlq.Put{letter(keyOf(n), idOf(n)), letter(keyOf(n+1), idOf(n+1))}
				if _, err := f.Put(context.Background(), params, letters); err != nil {
					failed <- err
				}
				fmt.Println("put", n)
			}
		}()
	}
	for range 2 {
		go func() {
			for {
				next, err := workOnce(f)
				if err != nil {
					failed <- err
				}
				time.Sleep(min(next, time.Millisecond))
			}
		}()
	}
	go func() {
		for {
			approved, err := approveAll(f)
			if err != nil {
				failed <- err
			}
			for _, seq := range approved {
				fmt.Println("approved", seq)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return <-failed
}

func keyOf(i int) string { return fmt.Sprint("key-", i%7) }

// workOnce works what can be claimed, and returns when there may be more: letters
// fail once, some of them go to review, and then they succeed.
func workOnce(f *file) (next time.Duration, err error) {
	ctx := context.Background()
	a := ask(3)
	a.Lease = 500 * time.Millisecond
	c, err := f.Claim(ctx, a)
	for _, one := range c.Claims {
		r := one.Record
		s := settlement(dlq.KindResolve, one)
		switch {
		case r.Log.Total() > 1:
		case r.Seq%10 == 3:
			s = settlement(dlq.KindReview, one)
		case r.Seq%10 == 7:
			s = settlement(dlq.KindRetry, one)
			s.Delay = time.Millisecond
		}
		failed := f.db.Update(func(tx *bbolt.Tx) error {
			if s.Kind == dlq.KindResolve {
				if err := effect(tx, r.Seq); err != nil {
					return err
				}
			}
			return joined(f.Tx(tx).Settle(ctx, params, []dlq.Settlement{s}))
		})
		if !errors.Is(failed, dlq.ErrStale) { // on a busy machine the lease may lapse: it is another's
			err = errors.Join(err, failed)
		}
	}
	return c.Next, err
}

var effectsName = []byte("effects")

// effect is what the work of a letter is to do once. It notes in which order.
func effect(tx *bbolt.Tx, seq uint64) error {
	b, err := tx.CreateBucketIfNotExists(effectsName)
	if err != nil {
		return err
	}
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(nil, seq)
	return b.Put(key, binary.BigEndian.AppendUint64(b.Get(key), n))
}

// effects returns for each letter the places of its effects among all.
func effects(t testing.TB, f *file) map[uint64][]uint64 {
	t.Helper()
	all := map[uint64][]uint64{}
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(effectsName)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			for ; len(v) > 0; v = v[8:] {
				all[binary.BigEndian.Uint64(k)] = append(all[binary.BigEndian.Uint64(k)], binary.BigEndian.Uint64(v))
			}
			return nil
		})
	}))
	return all
}

// approveAll does what a person would do about the letters in review.
func approveAll(f *file) (approved []uint64, err error) {
	p, err := f.List(context.Background(), dlq.Query{Stream: "s", State: dlq.StateReview, N: 20})
	if err != nil {
		return nil, err
	}
	var changes []dlq.Change
	for _, r := range p.Records {
		changes = append(changes, dlq.Change{
			Kind: dlq.ChangeApprove, Nonce: nonce(), Stream: "s", ID: r.ID, Seq: r.Seq, Before: r.Digest, Actor: "ana", Reason: "mended",
		})
		approved = append(approved, r.Seq)
	}
	return approved, joined(f.Change(context.Background(), params, changes))
}

// TestKilledAtAnyMoment kills a process again and again while it works. After
// each time the file is whole, every letter and every decision that was answered is
// there, and a letter has its effect exactly once if it is resolved and not at all
// otherwise. Then the rest is worked to its end.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 3)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 8, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	said := &answers{put: map[string]bool{}, approved: map[uint64]bool{}}
	for range kills {
		killWhileAtWork(t, path, said)
		f := openPath(t, path)
		said.verify(t, f)
		require.NoError(t, f.db.Close())
	}
	f := openPath(t, path)
	for {
		next, err := workOnce(f)
		require.NoError(t, err)
		approved, err := approveAll(f)
		require.NoError(t, err)
		all, err := f.Totals(t.Context(), "", 1)
		require.NoError(t, err)
		if all[0].Waiting+all[0].Review == 0 {
			break
		}
		if len(approved) == 0 {
			time.Sleep(next) // a lease of the killed process
		}
	}
	resolved := said.verify(t, f)
	require.NotEmpty(t, said.approved)
	t.Logf("%d kills, %d letters answered, %d resolved, %d approved", kills, len(said.put), resolved, len(said.approved))
}

// answers is what the child was answered.
type answers struct {
	put      map[string]bool
	approved map[uint64]bool
}

// killWhileAtWork starts the child, waits until it works, kills it some time
// later, and adds what it was answered.
func killWhileAtWork(t *testing.T, path string, said *answers) {
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
		var verb string
		var i uint64
		_, err = fmt.Sscan(line, &verb, &i)
		require.NoError(t, err)
		switch verb {
		case "put":
			said.put[idOf(int(i))], said.put[idOf(int(i)+1)] = true, true
		case "approved":
			said.approved[i] = true
		}
		if n == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	require.Empty(t, stderr.String())
}

// verify compares the file with what was answered, and returns the number of letters
// that are resolved.
func (said *answers) verify(t *testing.T, f *file) (resolved int) {
	t.Helper()
	require.NoError(t, f.db.View(f.Verify))
	for id := range said.put {
		newest(t, f, id)
	}
	done := effects(t, f)
	lastOf := map[string]uint64{}
	q := dlq.Query{Stream: "s", N: 1000}
	for more := true; more; more = q.After != 0 {
		p, err := f.List(t.Context(), q)
		require.NoError(t, err)
		for _, r := range p.Records {
			want := 0
			if r.State == dlq.StateResolved {
				want = 1
				resolved++
			}
			require.Len(t, done[r.Seq], want, "a letter that is %v after %d tries", r.State, r.Tries)
			if want == 1 {
				require.Greater(t, done[r.Seq][0], lastOf[r.Key], "letters of a key were worked out of order")
				lastOf[r.Key] = done[r.Seq][0]
			}
		}
		q.After = p.Next
	}
	found := map[uint64]bool{}
	a := dlq.AuditQuery{Stream: "s", N: 1000}
	for more := true; more; more = a.After != 0 {
		entries, next, err := f.Audit(t.Context(), a)
		require.NoError(t, err)
		for _, e := range entries {
			found[e.Letter] = e.Verb == "approve" && e.Actor == "ana"
		}
		a.After = next
	}
	for seq := range said.approved {
		require.True(t, found[seq], "letter %d was approved, and no entry says so", seq)
	}
	return resolved
}
