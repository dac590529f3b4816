// Package deps holds the rule that dependencies point one way, and checks it
// against the module's import graph.
//
// A user of one primitive gets that primitive: its package imports the standard
// library and nothing else, its stores import one driver each, and what serves
// tests stays in tests. The rules go by the names of packages, so that a new
// package in a known place is covered from its first day.
package deps

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Module is the path of the module the rules are for.
const Module = "github.com/pawl-go/pawl"

// Package is what the rules need to know of one package, without its tests.
type Package struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// rooms are the primitives, each with what its packages may import besides the
// standard library, the module's internal packages and each other.
var rooms = map[string][]string{
	"dedup":        nil,
	"seqgen":       nil,
	"order":        {Module + "/retry"},
	"inbox":        {Module + "/retry"},
	"retry":        nil,
	"backpressure": {Module + "/retry", "golang.org/x/time/rate"},
	"dlq":          {Module + "/retry"},
	"reconcile":    {Module + "/retry"},
}

// drivers are the packages that a store, and an internal package that serves
// stores, may import, by the beginning of its name.
var drivers = map[string]string{
	"redis": "github.com/redis/go-redis/v9",
	"pg":    "github.com/jackc/pgx/v5",
	"bolt":  "go.etcd.io/bbolt",
}

// testOnly are modules for tests. They may be in go.mod, and in no package that a
// user can import.
var testOnly = []string{
	"github.com/stretchr/testify",
	"github.com/alicebob/miniredis/v2",
	"pgregory.net/rapid",
	"github.com/anishathalye/porcupine",
	"go.uber.org/goleak",
	"go.opentelemetry.io/otel/sdk",
	"go.opentelemetry.io/otel/sdk/metric",
}

// otel is what pawlotel may import, and nobody else: the interfaces of
// OpenTelemetry, not its SDK, which a program chooses and sets up, and the
// propagation of trace contexts, which is in the module of the attributes.
var otel = []string{
	"go.opentelemetry.io/otel/attribute",
	"go.opentelemetry.io/otel/metric",
	"go.opentelemetry.io/otel/propagation",
}

// requirable are the modules that go.mod may require for the module's own imports.
func requirable() []string {
	return slices.Concat(slices.Collect(maps.Values(drivers)), testOnly,
		[]string{"golang.org/x/time", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric"})
}

// rule is what one package may import besides the standard library.
type rule struct {
	why      string
	own      []string // of this module: each path and what is below it
	external []string // of others: each path and what is below it
	testing  bool     // may link package testing
}

// ruleFor finds the rule for a package by its place and name. It reports false
// for a place that has no rule.
func ruleFor(importPath string) (rule, bool) {
	inside, _ := strings.CutPrefix(importPath, Module+"/")
	room, _, _ := strings.Cut(inside, "/")
	name := path.Base(inside)

	extra, isRoom := rooms[room]
	switch {
	case importPath == Module:
		return rule{why: "the root package is documentation"}, true
	case under(inside, "internal/testenv"):
		return rule{
			why:     "internal/testenv starts servers for any test, and so imports the standard library only",
			own:     []string{Module + "/internal/testenv"},
			testing: true,
		}, true
	case room == "internal" && strings.HasSuffix(name, "test"):
		return rule{
			why:     "an internal package for tests knows what it tests, and no driver or test library",
			own:     []string{Module},
			testing: true,
		}, true
	case room == "internal":
		return withDriver(name, rule{
			why: "an internal package may be imported by every primitive, and so imports the standard library only, " +
				"unless its name begins with redis, pg or bolt",
			own: []string{Module + "/internal"},
		}), true
	case inside == "pawlotel":
		return rule{
			why:      "pawlotel knows the primitives, with what they import, and the interfaces of OpenTelemetry; no driver, and not the SDK",
			own:      []string{Module},
			external: append([]string{"golang.org/x/time/rate"}, otel...),
		}, true
	case room == "examples":
		r := rule{
			why: "an example composes primitives as an application would, with drivers but without test libraries; " +
				"x/time/rate is what one of them compares with",
			own:      []string{Module},
			external: []string{"golang.org/x/time/rate"},
		}
		for _, driver := range drivers {
			r.external = append(r.external, driver)
		}
		return r, true
	case isRoom && strings.HasSuffix(name, "test"):
		return rule{
			why:     "a conformance suite is for a user's own store too, and so needs the standard library only",
			own:     []string{Module + "/" + room, Module + "/internal"},
			testing: true,
		}, true
	case isRoom:
		r := rule{
			why: "a primitive imports the standard library, and other primitives meet it in application code; " +
				"a driver belongs in its own package, whose name begins with redis, pg or bolt",
			own: []string{Module + "/" + room, Module + "/internal"},
		}
		for _, e := range extra {
			if under(e, Module) {
				r.own = append(r.own, e)
			} else {
				r.external = append(r.external, e)
			}
		}
		return withDriver(name, r), true
	}
	return rule{}, false
}

func withDriver(name string, r rule) rule {
	for prefix, driver := range drivers {
		if strings.HasPrefix(name, prefix) {
			r.why = "a store imports one driver, the one it is named for"
			r.external = append(r.external, driver)
		}
	}
	return r
}

// Check returns a line for each import that breaks the rules: the chain of
// imports that leads to it and the reason it is forbidden.
func Check(graph map[string]Package) []string {
	var findings []string
	for _, p := range slices.Sorted(maps.Keys(graph)) {
		if under(p, Module) {
			findings = append(findings, checkPackage(graph, p)...)
		}
	}
	return findings
}

func checkPackage(graph map[string]Package, root string) []string {
	r, ok := ruleFor(root)
	if !ok {
		return []string{fmt.Sprintf("%s: no rule covers this place; add one to internal/deps", root)}
	}
	var findings []string
	say := func(chain []string, why string) {
		findings = append(findings, fmt.Sprintf("%s: %s", strings.Join(chain, " -> "), why))
	}
	walk(graph, root, func(chain []string) {
		from, to := chain[len(chain)-2], chain[len(chain)-1]
		switch {
		case !r.testing && under(to, "testing"):
			say(chain, "package testing would add its flags to a user's program")
		case slices.ContainsFunc(testOnly, func(m string) bool { return under(to, m) }):
			say(chain, "this module is for _test.go files only")
		case !under(from, Module) || graph[to].Standard:
			// What a driver imports is the driver's affair.
		case !under(to, Module):
			if !anyUnder(to, r.external) {
				say(chain, r.why)
			}
		case from == root: // what it imports further is checked as that package's own
			forTests := under(to, Module+"/internal/testenv") && !under(root, Module+"/internal/testenv")
			if !anyUnder(to, r.own) || forTests {
				say(chain, r.why)
			}
		}
	})
	return findings
}

// walk visits each package that root reaches once, with the shortest chain of
// imports that leads to it.
func walk(graph map[string]Package, root string, visit func(chain []string)) {
	seen := map[string]bool{root: true}
	queue := [][]string{{root}}
	for len(queue) > 0 {
		chain := queue[0]
		queue = queue[1:]
		for _, to := range graph[chain[len(chain)-1]].Imports {
			if seen[to] {
				continue
			}
			seen[to] = true
			next := append(slices.Clone(chain), to)
			visit(next)
			queue = append(queue, next)
		}
	}
}

// CheckRequirements returns a line for each module that go.mod requires directly
// and should not.
func CheckRequirements(modules []string) []string {
	var findings []string
	for _, m := range modules {
		if !slices.Contains(requirable(), m) {
			findings = append(findings, fmt.Sprintf(
				"go.mod requires %s: every user of the module would get it; the default answer to a new dependency is no", m))
		}
	}
	return findings
}

func anyUnder(p string, parents []string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool { return under(p, parent) })
}

func under(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }
