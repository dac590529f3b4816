package quiettest

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/backpressure/redisshaper"
	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/pgwatchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/rediswatchdog"
	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/inbox/redisinbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/order/redisorder"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
	"github.com/pawl-go/pawl/seqgen/redisseqgen"
)

const (
	number  = "4917612345678"
	secret  = "topsecret"
	payload = "hello from anna"
)

var plants = []string{number, secret, payload}

func plantedIn(text string) string {
	for _, p := range plants {
		if strings.Contains(text, p) {
			return p
		}
	}
	return ""
}

// An overhearing keeps what the Redis client logs by itself.
type overhearing struct {
	mu  sync.Mutex
	all strings.Builder
}

func (o *overhearing) Printf(_ context.Context, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(&o.all, format+"\n", args...)
}

// Every step of every store is told of a number, a secret and a payload, and the server
// is not there: what the errors say, which is logged, has none of them, nor the password
// of the server.
func TestErrorsOfStoresTellNothing(t *testing.T) {
	log := &overhearing{}
	redis.SetLogger(log)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Password: secret, MaxRetries: -1, DialTimeout: 100 * time.Millisecond, DialerRetries: 1})
	defer client.Close()
	pool, err := pgxpool.New(t.Context(), "postgres://pawl:"+secret+"@127.0.0.1:1/pawl?connect_timeout=1")
	require.NoError(t, err)
	defer pool.Close()
	file, err := bbolt.Open(filepath.Join(t.TempDir(), "closed.db"), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	tells(t, made[dedup.Store](boltdedup.New(file, nil)), made[dedup.Store](pgdedup.New(pool, nil)), made[dedup.Store](redisdedup.New(client, nil)))
	tells(t, made[seqgen.Store](boltseqgen.New(file, nil)), made[seqgen.Store](pgseqgen.New(pool, nil)), made[seqgen.Store](redisseqgen.New(client, nil)))
	tells(t, made[order.Store](boltorder.New(file, nil)), made[order.Store](pgorder.New(pool, nil)), made[order.Store](redisorder.New(client, nil)))
	tells(t, made[inbox.Store](boltinbox.New(file, nil)), made[inbox.Store](pginbox.New(pool, nil)), made[inbox.Store](redisinbox.New(client, nil)))
	tells(t, made[dlq.Store](boltdlq.New(file, nil)), made[dlq.Store](pgdlq.New(pool, nil)), made[dlq.Store](redisdlq.New(client, nil)))
	tells(t, made[watchdog.Store](pgwatchdog.New(pool, nil)), made[watchdog.Store](rediswatchdog.New(client, nil)))
	tells(t, made[backpressure.SharedStore](redisshaper.New(client, &redisshaper.Options{Name: "calls"})))

	bolt, err := boltreconcile.New(file, nil)
	require.NoError(t, err)
	pg, err := pgreconcile.New(pool, nil)
	require.NoError(t, err)
	valkey, err := redisreconcile.New(client, nil)
	require.NoError(t, err)
	tells[reconcile.Store](t, bolt, pg, valkey)
	tells[reconcile.TimelineStore](t, bolt.Timeline(), pg.Timeline(), valkey.Timeline())
	tells[reconcile.CheckStore](t, bolt.Checks(), pg.Checks(), valkey.Checks())
	log.mu.Lock()
	defer log.mu.Unlock()
	require.NotEmpty(t, log.all.String())
	require.Empty(t, plantedIn(log.all.String()))
}

func made[I any, S any](s S, err error) I {
	if err != nil {
		panic(err)
	}
	return any(s).(I)
}

// tells calls each method of the interface with arguments whose texts are all planted.
func tells[I any](t *testing.T, stores ...I) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, s := range stores {
		v := reflect.ValueOf(s)
		calls, failures := 0, 0
		for m := range reflect.TypeFor[I]().Methods() {
			method := v.MethodByName(m.Name)
			args := []reflect.Value{reflect.ValueOf(ctx)}
			for i := 1; i < method.Type().NumIn(); i++ {
				args = append(args, filled(method.Type().In(i)))
			}
			answers := method.Call(args)
			calls++
			err, failed := answers[len(answers)-1].Interface().(error)
			if !failed { // it knew without asking that there is nothing
				continue
			}
			failures++
			if p := plantedIn(err.Error()); p != "" {
				t.Errorf("%T.%s tells %q: %v", s, m.Name, p, err)
			}
			if strings.TrimSpace(err.Error()) == "" {
				t.Errorf("%T.%s fails without a word", s, m.Name)
			}
		}
		if failures == 0 || failures < calls-1 {
			t.Errorf("%d of %d calls of %T failed although there is no server", failures, calls, s)
		}
	}
}

// filled is a value of a type in which every text has what must not be told.
func filled(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch {
	case typ == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
	case typ == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Hour))
	case typ.Kind() == reflect.String:
		v.SetString(strings.Join(plants, "."))
	case typ == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte(strings.Join(plants, ".")))
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case typ.Kind() == reflect.Bool:
		v.SetBool(true)
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() {
				v.Field(i).Set(filled(typ.Field(i).Type))
			}
		}
	case typ.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, filled(typ.Elem())))
	case typ.Kind() == reflect.Array:
		for i := range v.Len() {
			v.Index(i).Set(filled(typ.Elem()))
		}
	case typ.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(typ))
		v.SetMapIndex(filled(typ.Key()), filled(typ.Elem()))
	}
	return v
}
