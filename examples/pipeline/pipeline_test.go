package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// asProgram makes this test binary the program itself.
const asProgram = "PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) == 2 && os.Args[1] == gatewayArg {
		main()
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8")                            // they wait for leases and time-outs more than for the processor
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // each gateway would take a second to end
	os.Exit(m.Run())
}

// process returns the program as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir()) // a killed one leaves files there
	return cmd
}

// runs the program and returns its account. The gateway does nothing wrong unless the
// arguments say so: what it does costs time.
func runs(t *testing.T, want int, args ...string) account {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"-gateway-faults", "0"}, args...)
	if got := run(t.Context(), append(args, "-json"), &stdout, &stderr); got != want {
		t.Fatalf("%v exits with %d, want %d:\n%s%s", args, got, want, stdout.Bytes(), stderr.Bytes())
	}
	var a account
	if want != 2 {
		if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
			t.Fatalf("%v prints %q: %v", args, stdout.Bytes(), err)
		}
	}
	return a
}

func faults(extra ...string) []string {
	return append([]string{"-dup", "0.3", "-shuffle", "50", "-malformed", "0.1", "-forged", "0.1"}, extra...)
}

func TestEveryEventHasOneEffect(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "bolt"} {
		t.Run(store, func(t *testing.T) {
			plain := runs(t, 0, "-store", store)
			if plain.Events == 0 || !plain.OK || plain.Rejected != 0 || plain.Deliveries != plain.Bodies {
				t.Errorf("without faults: %+v", plain)
			}
			for seed := range 2 {
				a := runs(t, 0, faults("-store", store, "-seed", fmt.Sprint(seed))...)
				if a.Events != plain.Events || a.Effects != plain.Effects || !a.OK {
					t.Errorf("faults change events and effects: %+v, without %+v", a, plain)
				}
				if a.Duplicates <= plain.Duplicates || a.Quarantined <= plain.Quarantined || a.Rejected == 0 ||
					a.Deliveries != a.Accepted+a.Rejected {
					t.Errorf("faults are not seen: %+v", a)
				}
			}
		})
	}
}

// The bodies of another folder, if there is one.
func TestOtherBodies(t *testing.T) {
	dir := os.Getenv("PAWL_BODIES")
	if dir == "" {
		dir = "../../../shared/data/webhooks"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no folder of other bodies; name one in PAWL_BODIES")
	}
	a := runs(t, 0, faults("-bodies", dir)...)
	b := runs(t, 0, faults("-bodies", dir, "-store", "bolt", "-seed", "7")...)
	if a.Events == 0 || a.Events != b.Events || a.Skipped != b.Skipped {
		t.Errorf("%+v and %+v", a, b)
	}
}

func TestRepeat(t *testing.T) {
	one := runs(t, 0)
	if many := runs(t, 0, faults("-repeat", "5")...); many.Events != 5*one.Events {
		t.Errorf("5 passes have %d events, one has %d", many.Events, one.Events)
	}
}

// Bodies as they might come, one event each: what the folder of the example lacks.
func TestRepeatOfOddBodies(t *testing.T) {
	const bare = `{"field":"account_update","value":{"event":"VERIFIED_ACCOUNT"}}`
	for text, want := range map[string]int{
		`{"entry":[{"id":7,"changes":[{"field":"account_update","value":{"event":"VERIFIED_ACCOUNT"}}]}]}`:                                   0,
		`{"entry":[{"id":"7","changes":[{"field":"messages","value":{"messages":[{"id":12,"type":"text"}]}}]}]}`:                             0,
		`{"entry":[{"id":"7","changes":[{"field":"messages","value":{"messages":[{"id":"a","type":"text"},{"id":"a~2","type":"text"}]}}]}]}`: 0,
		bare: 1, // nothing to rename
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "meta-odd.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		one := runs(t, 0, "-bodies", dir)
		if a := runs(t, want, "-bodies", dir, "-repeat", "3"); want == 0 && a.Events != 3*one.Events {
			t.Errorf("%s: 3 passes have %d events, one has %d", text, a.Events, one.Events)
		} else if want == 1 && (a.OK || a.Error == "") {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

func TestEffectsFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "effects.tsv")
	a := runs(t, 0, faults("-effects", file)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != a.Effects || !slices.IsSorted(lines) {
		t.Errorf("%d lines for %d effects, sorted: %v", len(lines), a.Effects, slices.IsSorted(lines))
	}
	for _, l := range lines {
		id, key, ok := strings.Cut(l, "\t")
		if !ok || !strings.Contains(id, "/") || key == "" {
			t.Errorf("line %q", l)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
	runs(t, 0, faults("-effects", file, "-order", "-seed", "2")...)
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the effects of a run with -order are not those of one without: %v", err)
	}
}

func TestSecondRunOnTheSameData(t *testing.T) {
	data := filepath.Join(t.TempDir(), "events.db")
	first := runs(t, 0, faults("-store", "bolt", "-data", data)...)
	second := runs(t, 0, faults("-store", "bolt", "-data", data)...)
	if second.Events != first.Events || second.Effects != first.Effects || second.Duplicates <= first.Duplicates {
		t.Errorf("first %+v, second %+v", first, second)
	}

	// The account notices an effect too many, and one too few.
	change(t, data, func(b *bbolt.Bucket) error {
		n, _ := b.NextSequence()
		_, v := b.Cursor().First()
		return b.Put(binary.BigEndian.AppendUint64(nil, n), bytes.Clone(v))
	})
	if a := runs(t, 1, "-store", "bolt", "-data", data); a.EffectsDuplicated != 1 || a.OK {
		t.Errorf("one effect too many: %+v", a)
	}
	change(t, data, func(b *bbolt.Bucket) error {
		k, _ := b.Cursor().Last()
		if err := b.Delete(bytes.Clone(k)); err != nil {
			return err
		}
		k, _ = b.Cursor().Last()
		return b.Delete(bytes.Clone(k))
	})
	if a := runs(t, 1, "-store", "bolt", "-data", data); a.Pending != 1 || a.OK {
		t.Errorf("one effect too few: %+v", a)
	}
}

func change(t *testing.T, data string, f func(*bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(data, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket(effectBucket)) }); err != nil {
		t.Fatal(err)
	}
}

func TestBadFlags(t *testing.T) {
	empty := t.TempDir()
	for _, args := range [][]string{
		{"-nonsense"}, {"extra"}, {"-store", "paper"}, {"-data", "x"}, {"-repeat", "0"}, {"-dup", "1.5"}, {"-dup", "NaN"},
		{"-forged", "-1"}, {"-drop", "2"}, {"-shuffle", "-1"}, {"-repeat", "10001"}, {"-bodies", empty}, {"-bodies", filepath.Join(empty, "missing")},
		{"-order-store", "memory"}, {"-order", "-order-store", "paper"}, {"-order", "-order-store", "redis"},
		{"-order", "-order-store", "postgres"}, {"-order", "-order-store", "redis", "-redis", "here"},
		{"-order", "-order-store", "postgres", "-postgres", "://"}, {"-redis", "redis://localhost"},
		{"-order", "-postgres", "postgres://localhost/x"}, {"-degrade"}, {"-order", "-degrade"},
		{"-gateway-faults", "0.91"}, {"-gateway-faults", "NaN"}, {"-gateway-faults", "-1"},
		{"-order", "-order-store", "redis", "-degrade", "-redis", "redis://localhost"},
	} {
		runs(t, 2, args...)
	}
}

func TestShuffleIsBounded(t *testing.T) {
	all := make([]delivery, 1000)
	for i := range all {
		all[i].bytes = []byte{byte(i >> 8), byte(i)}
	}
	moved := false
	for place, d := range shuffle(all, 7, rand.New(rand.NewPCG(1, 1))) {
		from := int(binary.BigEndian.Uint16(d.bytes))
		if place-from > 7 || from-place > 7 {
			t.Errorf("%d was moved to %d", from, place)
		}
		moved = moved || place != from
	}
	if !moved {
		t.Error("nothing was moved")
	}
}

func TestRenameStrings(t *testing.T) {
	in := `{"a": "x\/1", "b":[ "y", {"x\/1":"x/1"}],"n":1.50,"u":"\u00e4"}` + "\n"
	got, err := renameStrings([]byte(in), func(path, s string) (string, bool) { return s + "-2", s == "x/1" || path == ".b[]" })
	want := `{"a": "x/1-2", "b":[ "y-2", {"x\/1":"x/1-2"}],"n":1.50,"u":"\u00e4"}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if _, err := renameStrings([]byte(in[:20]), func(_, s string) (string, bool) { return s, true }); err == nil {
		t.Error("a truncated text was renamed")
	}
}
