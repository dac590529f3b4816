package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/dlq"
)

// Errors that are hard on whoever looks at them.
type (
	panicking struct{}
	cyclic    struct{ next error }
	wide      struct{}
	unwraps   struct{}
	typedNil  struct{ text string }
)

func (panicking) Error() string { panic("no text") }
func (*cyclic) Error() string   { return "round and round" }
func (c *cyclic) Unwrap() error { return c.next }
func (wide) Error() string      { return "wide" }
func (wide) Unwrap() []error {
	all := make([]error, 100_000)
	for i := range all {
		all[i] = wide{}
	}
	return all
}
func (unwraps) Error() string     { return "cannot be unwrapped" }
func (unwraps) Unwrap() error     { panic("no") }
func (e *typedNil) Error() string { return e.text }

func circle() error {
	a, b := &cyclic{}, &cyclic{}
	a.next, b.next = b, a
	return a
}

func TestHostileErrorsAreKeptSafely(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	for name, tc := range map[string]struct {
		err   error
		text  string
		types int
	}{
		"none":           {nil, "no error was given", 0},
		"panicking":      {panicking{}, "dlq_test.panicking whose text cannot be had", 1},
		"typed nil":      {(*typedNil)(nil), "whose text cannot be had", 1},
		"cyclic":         {circle(), "round and round", 16},
		"wide":           {wide{}, "wide", 16},
		"cannot unwrap":  {unwraps{}, "cannot be unwrapped", 1},
		"joined":         {errors.Join(errDown, fmt.Errorf("b: %w", context.Canceled)), "the remote is down\nb: context canceled", 4},
		"long":           {errors.New(long), long[:4000], 1},
		"not UTF-8":      {errors.New("a\xff\x00b"), "a\uFFFD\uFFFDb", 1},
		"HTML":           {errors.New("<script>alert(1)</script>\u202e\x1b[31m"), "<script>alert(1)</script>\u202e\x1b[31m", 1},
		"panic's value":  {fmt.Errorf("%w", panicking{}), "", 2},
		"many wrappings": {wrapped(1000), "deep", 16},
	} {
		if name == "panic's value" {
			continue // fmt itself recovers: the text is fmt's
		}
		q := newQueue(t, dlq.NewMemory(), nil)
		if _, err := q.Put(ctx, dlq.Dead{Message: message("a", ""), Cause: tc.err, Stack: []byte(long)}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a := get(t, q, "a").Attempts[0]
		if !strings.Contains(a.Error, tc.text) || len(a.Error) > dlq.MaxError || !utf8.ValidString(a.Error) || len(a.Types) != tc.types {
			t.Errorf("%s: kept as %d bytes %.100q with the types %d", name, len(a.Error), a.Error, len(a.Types))
		}
		if len(a.Stack) > dlq.MaxStack || !utf8.ValidString(a.Stack) || len(a.Stack) < dlq.MaxStack-4 {
			t.Errorf("%s: a stack of %d bytes is kept as %d", name, len(long), len(a.Stack))
		}
		if len(a.Fingerprint) != 16 {
			t.Errorf("%s: the fingerprint is %q", name, a.Fingerprint)
		}
	}
}

func wrapped(n int) error {
	err := errors.New("deep")
	for range n {
		err = fmt.Errorf("%w", err)
	}
	return err
}

func TestFingerprintTellsKindsApart(t *testing.T) {
	print := func(opts *dlq.Options, err error) string {
		q := newQueue(t, dlq.NewMemory(), opts)
		if _, e := q.Put(ctx, dlq.Dead{Message: message("a", ""), Cause: err}); e != nil {
			t.Fatal(e)
		}
		return get(t, q, "a").Fingerprint
	}
	same := [][]error{
		{errors.New("order 17 not found"), errors.New("order 4711 not found")},
		{errors.New(`customer "Ana" is blocked`), errors.New(`customer "Ben" is blocked`)},
		{errors.New("lock 550e8400-e29b-41d4-a716-446655440000 held"), errors.New("lock f47ac10b-58cc-4372-a567-0e02b2c3d479 held")},
		{errors.New("dial 10.0.0.1:80: refused"), errors.New("dial 10.0.0.17:8080: refused")},
	}
	for i, group := range same {
		if a, b := print(nil, group[0]), print(nil, group[1]); a != b {
			t.Errorf("%q and %q are two kinds", group[0], group[1])
		}
		for k, other := range same {
			if i != k && print(nil, group[0]) == print(nil, other[0]) {
				t.Errorf("%q and %q are one kind", group[0], other[0])
			}
		}
	}
	if print(nil, errors.New("x")) == print(nil, fmt.Errorf("%w", errors.New("x"))) {
		t.Error("errors of other types are one kind")
	}
	own := &dlq.Options{Fingerprint: func(err error) string { return map[bool]string{true: "down"}[errors.Is(err, errDown)] }}
	if print(own, errDown) != print(own, fmt.Errorf("at 7: %w", errDown)) || print(own, errors.New("x")) != print(nil, errors.New("x")) {
		t.Error("the option's names are not used, or used where there are none")
	}
	bad := &dlq.Options{Fingerprint: func(error) string { panic("no") }}
	if print(bad, errDown) != print(nil, errDown) {
		t.Error("an option that panics is not passed over")
	}
}

func TestPanicsOfOnePlaceAreOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "a1", "a2", "b1")
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			if l.ID[0] == 'a' {
				panicHere()
			}
			panicThere()
			return nil
		})
		time.Sleep(6 * time.Minute)
		a1, a2, b1 := get(t, q, "a1").Fingerprint, get(t, q, "a2").Fingerprint, get(t, q, "b1").Fingerprint
		if a1 != a2 || a1 == b1 {
			t.Errorf("the fingerprints are %s, %s and %s", a1, a2, b1)
		}
	})
}

//go:noinline
func panicHere() { panic("same words") }

//go:noinline
func panicThere() { panic("same words") }

func TestAttemptsKeepFirstAndLast(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), &dlq.Options{Handler: "billing", Version: "v7"})
	for i := range 20 {
		err := fmt.Errorf("failure %d of kind %s", i, string(rune('a'+i%3)))
		if _, err := q.Put(ctx, dlq.Dead{Message: message("a", ""), Cause: err}); err != nil {
			t.Fatal(err)
		}
	}
	l := get(t, q, "a")
	if len(l.Attempts) != 1+dlq.LogLast || l.Attempts[0].Error != "failure 0 of kind a" || l.Attempts[dlq.LogLast].Error != "failure 19 of kind b" {
		t.Errorf("the attempts that are kept are %+v", l.Attempts)
	}
	counted := 0
	for _, f := range l.Folds {
		counted += f.Count
	}
	if len(l.Folds) != 3 || counted != 15 || l.Others != 0 {
		t.Errorf("those in between are %+v and %d others", l.Folds, l.Others)
	}
	if a := l.Attempts[0]; a.Handler != "billing" || a.Version != "v7" || a.At.IsZero() {
		t.Errorf("an attempt is %+v", a)
	}
}
