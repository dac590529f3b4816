package deps

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheModule holds the rules against the module as it is.
func TestTheModule(t *testing.T) {
	graph := load(t)
	if len(graph) < 50 {
		t.Fatalf("go list knows %d packages, which cannot be all", len(graph))
	}
	for _, finding := range Check(graph) {
		t.Error(finding)
	}
}

func TestTheModuleFile(t *testing.T) {
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(run(t, "go", "mod", "edit", "-json"), &file); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range file.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	for _, finding := range CheckRequirements(direct) {
		t.Error(finding)
	}
}

// TestBenchmarksAreAModuleOfTheirOwn keeps the peers that the benchmarks measure
// against out of a user's go.mod.
func TestBenchmarksAreAModuleOfTheirOwn(t *testing.T) {
	dir := filepath.Join("..", "benchmarks")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no benchmarks")
	}
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatalf("internal/benchmarks must be a module of its own: %v", err)
	}
	if want := "module " + Module + "/internal/benchmarks\n"; !strings.Contains(string(b), want) {
		t.Errorf("internal/benchmarks/go.mod has no line %q", want)
	}
}

func load(t *testing.T) map[string]Package {
	t.Helper()
	out := run(t, "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	graph := map[string]Package{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p Package
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return graph
		}
		if err != nil {
			t.Fatal(err)
		}
		graph[p.ImportPath] = p
	}
}

// run runs a command in the module's root.
func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %v\n%s", cmd, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
