package redisdlq_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/redisdlq"
)

var update = flag.Bool("update", false, "write down the layout anew")

const layoutFile = "testdata/layout1.txt"

// What is stored looks as it did when layout 1 was made. When it has to look otherwise,
// what an older version has stored cannot be read any longer: layoutVersion has to rise,
// and the file is written anew with -update.
func TestLayout(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.UnixMicro(1_800_000_000_000_000))
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	store := newWith(t, client, redisdlq.Options{Partitions: 1})
	scenario(t, store)
	var lines []string
	for field, value := range client.HGetAll(t.Context(), store.Tag(0)+":h").Val() {
		lines = append(lines, fmt.Sprintf("h %q %q", field, value))
	}
	for _, member := range client.ZRange(t.Context(), store.Tag(0)+":z", 0, -1).Val() {
		lines = append(lines, fmt.Sprintf("z %q", member))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(layoutFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// scenario stores a row of every kind.
func scenario(t *testing.T, s *redisdlq.Store) {
	var n [16]byte
	nonce := func() [16]byte {
		n[0]++
		return n
	}
	step := func(k dlq.ChangeKind, id, job string) {
		c := changeOf(k, record(t, s, "orders", id))
		c.Nonce, c.Job = nonce(), job
		change(t, s, c)
	}
	var letters []dlq.Put
	for _, id := range []string{"a", "b", "c"} {
		l := letter("orders", id, "key")
		l.Nonce, l.Delay = nonce(), time.Second
		letters = append(letters, l)
	}
	letters[1].Failure, letters[2].Key = dlq.Failure{}, ""
	put(t, s, letters...)
	for i := range 7 {
		l := letters[0]
		l.Nonce, l.Failure = nonce(), dlq.Failure{At: time.UnixMicro(int64(i - 1)), Fingerprint: fmt.Sprint(i % 2), Detail: []byte("\x00\xff ")}
		require.Equal(t, []dlq.Answer{dlq.Duplicate}, putAll(t, s, l))
	}
	_, err := s.SaveJob(t.Context(), params, dlq.Job{Stream: "orders", ID: "job", Nonce: nonce(), Data: []byte("plan"), Ended: true})
	require.NoError(t, err)
	_, err = s.Alert(t.Context(), []dlq.Alarm{{Nonce: nonce(), Stream: "orders", Fingerprint: "0f", Window: time.Hour}})
	require.NoError(t, err)
	step(dlq.ChangeEdit, "a", "")
	step(dlq.ChangeApprove, "a", "job")
	step(dlq.ChangeSkip, "b", "")
	step(dlq.ChangeDiscard, "c", "")
	a := ask("orders", 10)
	a.Nonce = nonce()
	require.Len(t, claim(t, s, a), 1)
}
