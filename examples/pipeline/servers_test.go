package main

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testenv"
)

// servers are where a run can keep everything; each gives the flags for a place that
// is empty.
var servers = map[string]func(t *testing.T) []string{
	"redis": func(t *testing.T) []string {
		server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
		return []string{"-store", "redis", "-redis", "redis://" + server.Addr()}
	},
	"postgres": func(t *testing.T) []string { return []string{"-store", "postgres", "-postgres", database(t)} },
}

// database makes a database on the shared server.
func database(t *testing.T) string {
	t.Helper()
	server, name := testenv.Postgres(t), testenv.SchemaName(t)
	do := func(sql string) {
		conn, err := pgx.Connect(context.Background(), server)
		if err == nil {
			defer conn.Close(context.Background())
			_, err = conn.Exec(context.Background(), sql)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE DATABASE " + name)
	t.Cleanup(func() { do("DROP DATABASE " + name + " WITH (FORCE)") })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Everything is on a server, where the next run finds it.
func TestStoresOnServers(t *testing.T) {
	t.Parallel()
	plain := runs(t, 0)
	for name, flags := range servers {
		t.Run(name, func(t *testing.T) {
			place := flags(t)
			a := runs(t, 0, faults(place...)...)
			if a.Events != plain.Events || a.Rejected == 0 || a.Quarantined == 0 {
				t.Errorf("faults: %+v, in memory and without them: %+v", a, plain)
			}
			again := runs(t, 0, place...)
			if again.Events != plain.Events || again.Duplicates < plain.Events {
				t.Errorf("run again: %+v", again)
			}
			if more := runs(t, 0, append(place, "-repeat", "2")...); more.Events != 2*plain.Events {
				t.Errorf("another pass: %+v", more)
			}
			runs(t, 1, append(place, "-order")...) // it was begun without
		})
	}
}

func TestOrderWhereTheEventsAre(t *testing.T) {
	t.Parallel()
	for name, flags := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := flags(t)
			first := ordered(t, faults(place...)...)
			if again := ordered(t, place...); again.Events != first.Events {
				t.Errorf("run again: %+v, first %+v", again, first)
			}
		})
	}
}

func TestLongKilledOnServers(t *testing.T) {
	kills := testenv.LongCount(t, 4, 50)
	for name, flags := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killed(t, kills, 2, flags(t)...)
			killed(t, kills, 2, append(flags(t), "-order")...)
		})
	}
}

func TestServersMustBeNamed(t *testing.T) {
	for _, args := range [][]string{
		{"-store", "redis"},
		{"-store", "postgres"},
		{"-store", "redis", "-postgres", "postgres://localhost/db"},
		{"-store", "postgres", "-redis", "redis://localhost"},
		{"-store", "postgres", "-postgres", "postgres://localhost:what/db"},
		{"-store", "redis", "-redis", "http://localhost"},
		{"-store", "redis", "-redis", "redis://localhost", "-data", "file"},
		{"-store", "redis", "-redis", "redis://localhost", "-order", "-order-store", "redis", "-degrade"},
	} {
		runs(t, 2, args...)
	}
}
