package pawlotel

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/seqgen"
)

// Every number that a primitive counts moves one series, and no two move the same, so
// that a field which somebody adds to Stats and forgets here fails.
func TestEveryFieldMovesOneSeries(t *testing.T) {
	covers(t, dedupRows(), dedup.Stats{})
	covers(t, seqgenRows(), seqgen.Stats{})
	covers(t, orderRows(), order.Stats{})
	covers(t, inboxRows(), inbox.Stats{Rejected: map[inbox.Reason]uint64{inbox.NoSignature: 0}})
	covers(t, dlqRows(), dlq.Stats{})
	covers(t, ledgerRows(), reconcile.Stats{})
	covers(t, timelineRows(), reconcile.TimelineStats{})
	covers(t, checksRows(), reconcile.CheckStats{Open: []reconcile.OpenFindings{{Check: "stray"}, {Check: "types"}}})
	gate, err := backpressure.NewGate(nil)
	if err != nil {
		t.Fatal(err)
	}
	covers(t, gateRows(), gate.Stats(), ".MaxQueue", ".Target", ".Lowest.User") // as the options are, and what follows from the counts
	covers(t, shaperRows(), map[string]backpressure.LineStats{"core": {}, "bulk": {}})
	covers(t, keyedRows(), backpressure.KeyedStats{})
	covers(t, sharedRows(), backpressure.SharedStats{})
	covers(t, levelsRows(), backpressure.LevelsStats{Signals: map[string]float64{"backlog": 1, "age": 2}})
	covers(t, watchdogRows(), watchdog.Stats{
		Workers: map[watchdog.Verdict]int{watchdog.Undecided: 0, watchdog.Healthy: 0, watchdog.Late: 0, watchdog.Stuck: 0, watchdog.Zombie: 0, watchdog.Gone: 0},
		States: map[watchdog.State]int{watchdog.Unknown: 0, watchdog.Idle: 0, watchdog.Flowing: 0, watchdog.WaitingGap: 0, watchdog.HandlerTooLong: 0,
			watchdog.Parked: 0, watchdog.LeaseLost: 0, watchdog.StoppedPolling: 0},
	}, ".StoreTime", ".Took") // the store's own clock, and what the hooks' histogram has
	covers(t, reporterRows(), watchdog.ReporterStats{})
	covers(t, warmupRows(), watchdog.WarmupStats{})
}

// covers changes each number of a snapshot in turn, and sees what changes of the page.
// Left are those that no instrument shows.
func covers[S any](t *testing.T, rows []row[S], base S, left ...string) {
	t.Helper()
	before := page(rows, base)
	movedBy := map[string]string{}
	walk(reflect.ValueOf(base), "", func(path string, changed reflect.Value) {
		after := page(rows, changed.Interface().(S))
		var moved []string
		for series, v := range after {
			if old, ok := before[series]; !ok || old != v {
				moved = append(moved, series)
			}
		}
		what := fmt.Sprintf("%T%s", base, path)
		switch {
		case slices.Contains(left, path):
			if len(moved) > 0 {
				t.Errorf("%s is shown, by %v", what, moved)
			}
		case path == ".Phase": // one on, another off
			if len(moved) != 2 {
				t.Errorf("%s moves %v", what, moved)
			}
		case len(moved) != 1:
			t.Errorf("%s moves %v", what, moved)
		case movedBy[moved[0]] != "" && path[:min(len(path), 9)] != ".Rejected":
			t.Errorf("%s and %s move %s", what, movedBy[moved[0]], moved[0])
		default:
			movedBy[moved[0]] = what
		}
	}, func(v reflect.Value) reflect.Value { return v })
	for series := range before {
		if movedBy[series] == "" && reflect.TypeFor[S]() != reflect.TypeFor[watchdog.WarmupStats]() {
			t.Errorf("%T: nothing moves %s", base, series)
		}
	}
}

// page is what an exporter would show of a snapshot. A time since is shown as one.
func page[S any](rows []row[S], s S) map[string]float64 {
	all := map[string]float64{}
	for _, r := range rows {
		r.each(&s, func(v float64, attrs ...attribute.KeyValue) {
			set := attribute.NewSet(attrs...)
			name := r.name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
			if _, twice := all[name]; twice {
				panic(name + " is there twice")
			}
			all[name] = v
		})
	}
	return all
}

// walk visits a copy of the whole for each number in v, in which that one is another.
func walk(v reflect.Value, path string, visit func(path string, whole reflect.Value), within func(reflect.Value) reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		visit(path, within(reflect.ValueOf(time.Now().Add(-time.Hour))))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit, func(part reflect.Value) reflect.Value {
				c := reflect.New(v.Type()).Elem()
				c.Set(v)
				c.Field(i).Set(part)
				return within(c)
			})
		}
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			walk(v.MapIndex(k), fmt.Sprintf("%s[%v]", path, k), visit, func(part reflect.Value) reflect.Value {
				c := reflect.MakeMap(v.Type())
				for _, other := range v.MapKeys() {
					c.SetMapIndex(other, v.MapIndex(other))
				}
				c.SetMapIndex(k, part)
				return within(c)
			})
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String: // of which the number counts
		visit(path, within(reflect.Append(v, reflect.ValueOf("another"))))
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit, func(part reflect.Value) reflect.Value {
				c := reflect.New(v.Type()).Elem()
				if c.Set(v); v.Kind() == reflect.Slice {
					c.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
				}
				c.Index(i).Set(part)
				return within(c)
			})
		}
	case v.Kind() == reflect.String, v.Type() == reflect.TypeFor[backpressure.Class](): // names what the numbers are of
	default:
		c := reflect.New(v.Type()).Elem()
		switch {
		case v.CanInt():
			c.SetInt(v.Int() + 3)
		case v.CanUint():
			c.SetUint(v.Uint() + 3)
		case v.CanFloat():
			c.SetFloat(v.Float() + 3)
		default:
			c.SetBool(!v.Bool())
		}
		visit(path, within(c))
	}
}
