package boltreconcile_test

import (
	"bufio"
	"bytes"
	"context"
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
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
	"github.com/pawl-go/pawl/retry"
)

// crashFile names the file that this program works on until it is killed, when
// a test starts it again as a child.
const crashFile = "BOLTRECONCILE_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A service is what the child runs: effects in the file, and effects outside of it, in a
// remote that knows no keys and can be asked. Orders are stored with the message about
// them in one transaction.
type service struct {
	*file
	local, remote *reconcile.Ledger
	notes         *reconcile.Timeline
	lines         *os.File // what the remote did, a line each
}

func newService(f *file) (*service, error) {
	s := &service{file: f}
	var errs [4]error
	options := func(kind string) *reconcile.Options {
		return &reconcile.Options{
			Kind: kind, Quiet: time.Millisecond, SettleTime: time.Millisecond, Lease: 2 * time.Second, Backoff: retry.Constant(time.Millisecond),
			MaxSends: 1000,
		}
	}
	s.local, errs[0] = reconcile.New(f.Store, options("local"))
	s.remote, errs[1] = reconcile.New(f.Store, options("remote"))
	s.notes, errs[2] = reconcile.NewTimeline(f.Timeline(), nil)
	s.lines, errs[3] = os.OpenFile(f.path+".remote", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return s, errors.Join(errs[:]...)
}

// effect is the call for what is in the file. Sometimes it fails.
func (s *service) effect() reconcile.CallFunc {
	return s.InTx(s.local, func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
		if err := count(tx, "effects", op.Key); err != nil {
			return nil, err
		}
		if rand.IntN(4) == 0 {
			return nil, errors.New("it failed, after it wrote")
		}
		return []byte("done"), nil
	})
}

func count(tx *bbolt.Tx, bucket, key string) error {
	b, err := tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), append(bytes.Clone(b.Get([]byte(key))), 1))
}

// send is the call for what is outside. Its answer is lost at times.
func (s *service) send(ctx context.Context, op reconcile.Op) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, reconcile.NotDone(ctx.Err())
	}
	if _, err := s.lines.WriteString(op.Key + "\n"); err != nil {
		return nil, err
	}
	if rand.IntN(4) == 0 {
		return nil, errors.New("no answer")
	}
	return nil, nil
}

func (s *service) seen(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) {
	b, err := os.ReadFile(s.lines.Name())
	if bytes.Contains(append([]byte("\n"), b...), []byte("\n"+op.Key+"\n")) {
		return reconcile.Evidence{Seen: reconcile.SeenDone}, err
	}
	return reconcile.Evidence{Seen: reconcile.SeenNothing}, err
}

// order stores an order, and in the same commit the message that has to be sent.
func (s *service) order(ctx context.Context, key string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("orders"))
		if err == nil {
			err = b.Put([]byte(key), nil)
		}
		return errors.Join(err, s.remote.With(s.Tx(tx)).Record(ctx, reconcile.Op{Key: key, Account: "orders"}))
	})
}

// run works both queues until ctx ends.
func (s *service) run(ctx context.Context, failed chan<- error) {
	o := &reconcile.RunOptions{Poll: 5 * time.Millisecond}
	go func() { failed <- s.local.Run(ctx, s.effect(), boltreconcile.NotConfirmed, o) }()
	go func() { failed <- s.remote.Run(ctx, s.send, s.seen, o) }()
}

// workUntilKilled says on standard output what was answered.
func workUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	store, err := boltreconcile.New(db, nil)
	if err != nil {
		return err
	}
	s, err := newService(&file{Store: store, db: db, path: path})
	if err != nil {
		return err
	}
	ctx, failed := context.Background(), make(chan error)
	s.run(ctx, failed)
	for range 3 {
		go func() {
			for {
				op := reconcile.Op{Key: keyOf(rand.IntN(1_000_000)), Account: "acct"}
				if s.local.Do(ctx, op, s.effect(), boltreconcile.NotConfirmed) == nil {
					fmt.Println("local", op.Key)
				}
				if s.remote.Do(ctx, op, s.send, s.seen) == nil {
					fmt.Println("remote", op.Key)
				}
			}
		}()
	}
	go func() {
		for {
			key := "order-" + keyOf(rand.IntN(1_000_000))
			if err := s.order(ctx, key); err != nil {
				failed <- err
			}
			fmt.Println("order", key)
			said := reconcile.Observation{Ref: reconcile.Ref{Event: key, Message: keyOf(rand.IntN(100)), Own: key}, Status: "sent", Said: time.Now()}
			if _, err := s.notes.Append(ctx, said); err != nil {
				failed <- err
			}
			fmt.Println("said", key)
		}
	}()
	return <-failed
}

// TestKilledAtAnyMoment kills a process again and again while it works. After each time
// the file is whole, what was answered is there, and what is Confirmed has happened
// exactly once. Then the rest is worked to its end.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 4)
}

func TestLongKilledAtAnyMoment(t *testing.T) {
	killedAtAnyMoment(t, testenv.LongCount(t, 6, 50))
}

func killedAtAnyMoment(t *testing.T, kills int) {
	path := filepath.Join(t.TempDir(), "crash.db")
	answered := map[string]map[string]bool{"local": {}, "remote": {}, "order": {}, "said": {}}
	for range kills {
		killWhileAtWork(t, path, answered)
		f := openPath(t, path)
		s, err := newService(f)
		require.NoError(t, err)
		s.verify(t, answered)
		require.NoError(t, errors.Join(f.db.Close(), s.lines.Close()))
	}
	s, err := newService(openPath(t, path))
	require.NoError(t, err)
	defer s.lines.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	s.run(ctx, ended)
	for s.open(t) { // leases of the killed process, among others
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	require.NoError(t, errors.Join(<-ended, <-ended))
	local, remote := s.verify(t, answered)
	require.NotEmpty(t, answered["order"])
	t.Logf("%d kills; %d effects in the file and %d outside, each once; %d of them answered", kills, local, remote,
		len(answered["local"])+len(answered["remote"]))
}

// killWhileAtWork starts the child, waits until it works, kills it some time
// later, and adds what it was answered.
func killWhileAtWork(t *testing.T, path string, answered map[string]map[string]bool) {
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
	lines, more := bufio.NewReader(stdout), 20+rand.IntN(150)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var what, key string
		_, err = fmt.Sscan(line, &what, &key)
		require.NoError(t, err)
		answered[what][key] = true
		if n == more {
			time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	require.Empty(t, stderr.String())
}

// verify compares the file and the remote with what was answered, and returns how many
// operations are Confirmed.
func (s *service) verify(t *testing.T, answered map[string]map[string]bool) (local, remote int) {
	t.Helper()
	require.NoError(t, s.db.View(s.Verify))
	b, err := os.ReadFile(s.lines.Name())
	require.NoError(t, err)
	sent := map[string]int{}
	for line := range strings.Lines(string(b)) {
		sent[strings.TrimSpace(line)]++
	}
	done, orders := map[string]int{}, map[string]bool{}
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		return errors.Join(each(tx, "effects", func(k string, v []byte) { done[k] = len(v) }),
			each(tx, "orders", func(k string, _ []byte) { orders[k] = true }))
	}))
	for key, n := range sent {
		require.Equal(t, 1, n, "the remote was sent %s more than once", key)
	}
	locals, remotes := s.states(t, "local"), s.states(t, "remote")
	for key, state := range locals {
		want := 0
		if state == reconcile.Confirmed {
			want = 1
			local++
		}
		require.Equal(t, want, done[key], "%s is %v", key, state)
	}
	require.Len(t, done, local)
	for key, state := range remotes {
		if state == reconcile.Confirmed {
			remote++
			require.Equal(t, 1, sent[key], "%s is %v", key, state)
		}
		if strings.HasPrefix(key, "order-") {
			require.True(t, orders[key], "%s has no order", key)
		}
	}
	for key := range sent {
		require.NotZero(t, remotes[key], "%s was sent, and is not recorded", key)
	}
	for key := range orders {
		require.NotZero(t, remotes[key], "%s was stored without its message", key)
	}
	for key := range answered["local"] {
		require.Equal(t, reconcile.Confirmed, locals[key], key)
	}
	for key := range answered["remote"] {
		require.Equal(t, reconcile.Confirmed, remotes[key], key)
	}
	for key := range answered["order"] {
		require.True(t, orders[key], key)
	}
	for key := range answered["said"] {
		h, err := s.notes.Read(t.Context(), reconcile.Ref{Event: key})
		require.NoError(t, err)
		require.NotEmpty(t, h.Observations, key)
	}
	return local, remote
}

func each(tx *bbolt.Tx, bucket string, do func(k string, v []byte)) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		do(string(k), v)
		return nil
	})
}

func (s *service) states(t *testing.T, kind string) map[string]reconcile.State {
	t.Helper()
	states := map[string]reconcile.State{}
	q := reconcile.Query{Kind: kind, N: 1000}
	for {
		es, err := s.List(t.Context(), q)
		require.NoError(t, err)
		if len(es) == 0 {
			return states
		}
		for _, e := range es {
			require.Empty(t, e.Review, e.Key)
			states[e.Key], q.After = e.State, e.Key
		}
	}
}

// open says whether there is an operation that the queues have yet to work. One that
// failed is left to another Do.
func (s *service) open(t *testing.T) bool {
	t.Helper()
	for _, kind := range []string{"local", "remote"} {
		es, err := s.List(t.Context(), reconcile.Query{Kind: kind, Open: true, N: 1})
		require.NoError(t, err)
		if len(es) > 0 {
			return true
		}
	}
	return false
}
