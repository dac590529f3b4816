package redisinbox_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// A server that is killed while it writes a script's effects leaves a part of them in
// its file. Redis 7.0 cuts the file off behind the last whole command of that part
// and not in front of it, so that the part is applied after all, when the server is
// started once more, in front of what was done instead. No effect of a script may
// count on being applied once.
func TestTornAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	var batch []inbox.Arrival
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		batch = append(batch, arrival(id, "k", "payload"))
	}
	_, err := s.Accept(t.Context(), params, batch)
	require.NoError(t, err)
	a := ask(1)
	a.Events = 10
	claimed, err := s.Claim(t.Context(), a)
	require.NoError(t, err)
	c := claimed.Claims[0]
	var steps []inbox.Settlement
	for _, r := range c.Records {
		steps = append(steps, settlement(inbox.KindBegin, c, r.ID), settlement(inbox.KindDone, c, r.ID))
	}
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
	before := size()
	settled := func() {
		t.Helper()
		errs, err := s.Settle(t.Context(), params, steps)
		for range 50 { // the connection broke with the server
			if err == nil {
				break
			}
			errs, err = s.Settle(t.Context(), params, steps)
		}
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	settled()
	server.Kill()
	require.NoError(t, os.Truncate(files[0], before+(size()-before)*3/4))
	server.Start()
	settled() // the answer was lost, and so was the settlement
	for range 2 {
		totals, err := s.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, inbox.Totals{Done: 6}, totals)
		server.Kill()
		server.Start()
		require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	}
}
