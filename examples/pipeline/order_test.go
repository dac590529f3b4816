package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// ordered runs the program with -order, and checks what every such run promises.
func ordered(t *testing.T, args ...string) account {
	t.Helper()
	a := runs(t, 0, append(args, "-order")...)
	if !a.OK || a.Lanes == nil || (*a.Lanes == 0) != (a.Events == 0) || *a.OrderViolations != 0 || a.Pending != 0 || a.Effects != int(a.Events) {
		t.Errorf("%v: %+v", args, a)
	}
	if degraded := slices.Contains(args, "-degrade"); degraded != (a.Unordered != nil) {
		t.Errorf("%v: unordered %v", args, a.Unordered)
	}
	return a
}

// All stores and faults have the same events, lanes and effects.
func TestOrder(t *testing.T) {
	t.Parallel()
	plain := runs(t, 0)
	if plain.Lanes != nil || plain.OrderViolations != nil || plain.GapsSkipped != nil || plain.Dropped != nil || plain.Unordered != nil {
		t.Errorf("without -order: %+v", plain)
	}
	lanes := *ordered(t).Lanes
	for _, stores := range [][]string{
		{"-store", "memory"},
		{"-store", "memory", "-order-store", "bolt"},
		{"-store", "bolt"},
		{"-store", "bolt", "-order-store", "memory"},
	} {
		some := [][]string{faults("-seed", "2")}
		if len(stores) == 2 && stores[1] == "memory" { // where it costs least
			some = append(some, nil, []string{"-dup", "1"}, []string{"-shuffle", "1000"})
		}
		for _, f := range some {
			a := ordered(t, append(f, stores...)...)
			if a.Events != plain.Events || *a.Lanes != lanes || *a.GapsSkipped != 0 || a.Dropped != nil {
				t.Errorf("%v %v: %+v, without faults %d events in %d lanes", stores, f, a, plain.Events, lanes)
			}
		}
	}
	if a := ordered(t, faults("-repeat", "4")...); a.Events != 4*plain.Events || *a.GapsSkipped != 0 {
		t.Errorf("4 passes: %+v", a)
	}
}

// What is taken away leaves gaps, which are skipped; everything else arrives.
func TestDrop(t *testing.T) {
	t.Parallel()
	whole := runs(t, 0)
	for _, args := range [][]string{
		{"-drop", "0.1"},
		faults("-drop", "0.1", "-store", "bolt"),
		faults("-drop", "0.3", "-order-store", "bolt", "-seed", "3"),
	} {
		a := ordered(t, args...)
		if *a.Dropped == 0 || *a.GapsSkipped == 0 || a.Events+uint64(*a.Dropped) != whole.Events {
			t.Errorf("%v: %+v of %d events", args, a, whole.Events)
		}
	}
	if a := runs(t, 0, "-drop", "0.1"); *a.Dropped == 0 || a.Lanes != nil || a.Events+uint64(*a.Dropped) != whole.Events {
		t.Errorf("without -order: %+v of %d events", a, whole.Events)
	}
	if a := runs(t, 0, "-order", "-drop", "1"); a.Events != 0 || *a.Dropped != int(whole.Events) || *a.Lanes != 0 || *a.GapsSkipped != 0 {
		t.Errorf("all taken away: %+v", a)
	}

	// What was taken away in one run and comes in the next is late, and not lost.
	data := []string{"-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db")}
	ordered(t, append(data, "-drop", "0.2")...)
	if a := ordered(t, data...); a.Events != whole.Events {
		t.Errorf("sent again: %+v of %d events", a, whole.Events)
	}
}

// A body goes with all bodies that share an event with it, directly or not.
func TestDropTakesAllCopies(t *testing.T) {
	body := func(ids ...string) (list []inbox.Event) {
		for _, id := range ids {
			list = append(list, inbox.Event{ID: id})
		}
		return list
	}
	events := [][]inbox.Event{body("a", "b"), body("c"), body("b", "d"), body(), body("d"), body("e")}
	random := func(chosen int) []bool { // the place of the body that is chosen
		for seed := uint64(0); ; seed++ {
			gone := drop(events, 0.2, rand.New(rand.NewPCG(seed, 0)))
			if n := slices.Index(gone, true); n == chosen {
				return gone
			}
		}
	}
	if gone := random(1); gone[0] || gone[2] || gone[4] {
		t.Errorf("with c go others: %v", gone)
	}
	if gone := random(0); !gone[2] || !gone[4] || gone[3] {
		t.Errorf("with a, b and d: %v", gone)
	}
}

// The account notices two effects in the wrong order.
func TestOrderIsJudged(t *testing.T) {
	data := filepath.Join(t.TempDir(), "events.db")
	args := []string{"-store", "bolt", "-data", data}
	first := ordered(t, args...)
	change(t, data, func(b *bbolt.Bucket) error {
		last := map[string][2][]byte{} // by lane: key and value of its last effect
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			var e effect
			if err := json.Unmarshal(v, &e); err != nil {
				return err
			}
			if before, ok := last[e.At.Lane]; ok {
				k, v := bytes.Clone(k), bytes.Clone(v)
				if err := b.Put(k, before[1]); err != nil {
					return err
				}
				return b.Put(before[0], v)
			}
			last[e.At.Lane] = [2][]byte{bytes.Clone(k), bytes.Clone(v)}
		}
		return nil
	})
	a := runs(t, 1, append(args, "-order")...)
	if a.OK || *a.OrderViolations != 1 || a.Events != first.Events || a.Effects != first.Effects {
		t.Errorf("two effects exchanged: %+v", a)
	}
}

func TestOrderViolations(t *testing.T) {
	list := func(ways ...way) (list []effect) { // the numbers 2, 5, 3, 6, 4
		for i, n := range []uint64{2, 5, 3, 6, 4} {
			e := effect{At: position{Lane: "a"}, Way: ways[i]}
			e.At.Number = n
			other := e
			other.At.Lane, other.At.Number = "b", uint64(i+1)
			list = append(list, e, other)
		}
		return list
	}
	for _, c := range []struct {
		list []effect
		want int
	}{
		{list(inOrder, inOrder, inOrder, inOrder, inOrder), 2},
		{list(inOrder, inOrder, late, inOrder, late), 0},
		{list(inOrder, unordered, inOrder, unordered, inOrder), 0},
		{list(inOrder, inOrder, unordered, unordered, inOrder), 1},
	} {
		if got := orderViolations(c.list); got != c.want {
			t.Errorf("%d violations, want %d in %+v", got, c.want, c.list)
		}
	}
}

// An event keeps its number, whatever it is sent with and however often the sender
// starts.
func TestNumbersAreKept(t *testing.T) {
	events := []inbox.Event{{ID: "1", Key: "a"}, {ID: "2", Key: "b"}, {ID: "3", Key: "a"}, {ID: "4", Provider: "p"}, {ID: "1", Key: "a"}}
	want := "[{a {1 1}} {b {1 1}} {a {1 2}} {p/- {1 1}} {a {1 1}}]"
	path := filepath.Join(t.TempDir(), "events.db")
	for _, open := range []func() (storage, error){
		func() (storage, error) { return openBolt(path, nil) },
		func() (storage, error) { return openBolt(path, nil) },
		func() (storage, error) { return openMemory(nil) },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.number(t.Context(), events)
		if err != nil || fmt.Sprint(first) != want {
			t.Errorf("%v, %v, want %s", first, err, want)
		}
		again, err := s.number(t.Context(), append([]inbox.Event{{ID: fmt.Sprint(path, "5"), Key: "c"}}, events[1], events[0]))
		if err != nil || fmt.Sprint(again[1:]) != "[{b {1 1}} {a {1 1}}]" {
			t.Errorf("in another body: %v, %v", again, err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// A file of events without numbers cannot go on with them, and the other way round.
func TestOrderOfAFileIsFixed(t *testing.T) {
	for _, first := range [][]string{nil, {"-order"}} {
		data := []string{"-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db")}
		runs(t, 0, append(data, first...)...)
		if first == nil {
			data = append(data, "-order")
		}
		if a := runs(t, 1, data...); a.OK || !strings.Contains(a.Error, "-order") {
			t.Errorf("begun with %v: %+v", first, a)
		}
	}
}

// Another order store takes over what the first has left, and the other way round.
func TestOrderStoreChanges(t *testing.T) {
	t.Parallel()
	data := []string{"-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db")}
	ordered(t, append(data, "-drop", "0.3")...)
	for i, store := range []string{"memory", "bolt", "memory"} {
		a := ordered(t, append(data, "-order-store", store, "-repeat", fmt.Sprint(i+1))...)
		if a.EffectsDuplicated != 0 {
			t.Errorf("%s: %+v", store, a)
		}
	}
}

// On servers: nothing is left behind there without -data, and all is found again
// with it.
func TestOrderOnServers(t *testing.T) {
	t.Parallel()
	plain := runs(t, 0)
	for _, server := range []struct {
		name  string
		flags func(t *testing.T) []string
		left  func(t *testing.T, url string) int // what is on the server by a name of the program
	}{
		{"redis", func(t *testing.T) []string { return []string{"-redis", "redis://" + testenv.Redis(t)} }, redisKeys},
		{"postgres", func(t *testing.T) []string { return []string{"-postgres", testenv.Postgres(t)} }, postgresSchemas},
	} {
		t.Run(server.name, func(t *testing.T) {
			flags := server.flags(t)
			before := server.left(t, flags[1])
			flags = append(flags, "-order-store", server.name)
			for _, f := range [][]string{faults(), {"-store", "bolt", "-drop", "0.1"}} {
				if a := ordered(t, append(f, flags...)...); a.Dropped == nil && a.Events != plain.Events {
					t.Errorf("%v: %+v", f, a)
				}
			}
			if left := server.left(t, flags[1]); left != before {
				t.Errorf("%d before, %d are left", before, left)
			}
			data := faults("-store", "bolt", "-data", filepath.Join(t.TempDir(), "events.db"))
			first := ordered(t, append(data, flags...)...)
			second := ordered(t, append(data, append(flags, "-repeat", "2")...)...)
			if *second.Lanes < *first.Lanes || second.Events != 2*first.Events {
				t.Errorf("first %+v, second %+v", first, second)
			}
		})
	}
}

func redisKeys(t *testing.T, url string) int {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	keys, err := client.Keys(context.Background(), "*pipeline_*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(keys)
}

func postgresSchemas(t *testing.T, url string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pipeline\_%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
