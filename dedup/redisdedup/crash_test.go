package redisdedup_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/internal/crashtest"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestKilledServerUnderLoad(t *testing.T) { killedServer(t, 2_000, 2) }

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 4, 10)
	killedServer(t, 3_000*kills, kills)
}

// killedServer kills a server that flushes every write before it answers.
func killedServer(t *testing.T, ids, kills int) {
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}))
	crashtest.KillUnderLoad(t, s, ids, kills, func() {
		server.Kill()
		server.Start()
	})
}
