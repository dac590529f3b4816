package pginbox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestStore(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, newSuite(t).config())
}

// TestLongStoreInOtherModes runs the suite as it would run behind a pooler that
// keeps no prepared statements, and on a database whose transactions are
// serializable.
func TestLongStoreInOtherModes(t *testing.T) {
	for name, change := range map[string]func(*pgxpool.Config){
		"Exec":           func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"Serializable": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSuite(t, change).config()
			c.Once = testenv.LongShort(t)
			inboxtest.Run(t, c)
		})
	}
}

// A suite makes empty stores. A schema that a subtest has done with is emptied
// and serves the next one, which is quicker than making one.
type suite struct {
	t      *testing.T // of the whole suite
	change []func(*pgxpool.Config)

	mu   sync.Mutex
	free []schemaOf
}

type schemaOf struct {
	pool *pgxpool.Pool
	name string
}

func newSuite(t *testing.T, change ...func(*pgxpool.Config)) *suite {
	change = append(change, func(c *pgxpool.Config) { c.MaxConns = 3 })
	return &suite{t: t, change: change}
}

func (s *suite) config() inboxtest.Config {
	return inboxtest.Config{
		New: s.take,
		// Another process opens the same schema.
		Reopen: func(t *testing.T, was inbox.Store) inbox.Store { return open(t, was.(*opened).schemaOf) },
	}
}

type opened struct {
	*pginbox.Store
	schemaOf schemaOf
}

func open(t *testing.T, of schemaOf) *opened {
	store, err := pginbox.New(of.pool, &pginbox.Options{Schema: of.name})
	require.NoError(t, err)
	return &opened{store, of}
}

func (s *suite) take(t *testing.T) inbox.Store {
	s.mu.Lock()
	var of schemaOf
	if n := len(s.free); n > 0 {
		of, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if of.pool == nil {
		_, of.pool, of.name = newStore(s.t, s.change...)
	}
	t.Cleanup(func() {
		for _, table := range []string{"records", "done", "keys", "asks", "fronts"} {
			_, err := of.pool.Exec(context.Background(), "DELETE FROM "+of.name+".inbox_"+table)
			require.NoError(t, err)
		}
		s.mu.Lock()
		s.free = append(s.free, of)
		s.mu.Unlock()
	})
	return open(t, of)
}
