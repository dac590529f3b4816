package redisdlq_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// A part of a step that Redis 7.0 keeps from the moment when it was killed, and applies
// at the start after the next, counts no letter twice.
func TestTornAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	const n = 6
	for i := range n {
		put(t, s, letter("s", fmt.Sprint(i), ""))
	}
	var steps []dlq.Settlement
	for _, c := range claim(t, s, ask("s", n)) {
		steps = append(steps, settlement(dlq.KindResolve, c))
	}
	require.Len(t, steps, n)
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	size := func() int64 {
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		return info.Size()
	}
	restart := func() {
		server.Kill()
		server.Start()
		require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	}
	before := size()
	settle(t, s, steps...)
	server.Kill()
	require.NoError(t, os.Truncate(files[0], before+(size()-before)*3/4))
	restart()
	settle(t, s, steps...) // the answer was lost, and so was the settlement
	for range 2 {
		require.Equal(t, dlq.Totals{Stream: "s", Resolved: n}, totals(t, s)["s"])
		restart()
	}
}
