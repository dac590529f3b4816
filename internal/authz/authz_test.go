package authz_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/authz"
)

func TestCheck(t *testing.T) {
	denied := errors.New("not on call")
	for name, c := range map[string]struct {
		actor string
		err   error
		ok    bool
	}{
		"a name":          {actor: "alice", ok: true},
		"the longest":     {actor: strings.Repeat("é", 128), ok: true},
		"nobody":          {},
		"a name too long": {actor: strings.Repeat("x", 257)},
		"NUL":             {actor: "a\x00"},
		"not UTF-8":       {actor: "\xff"},
		"a refusal":       {actor: "alice", err: denied},
	} {
		got, err := authz.Check(t.Context(), func(_ context.Context, action string) (string, error) {
			if action != "replay" {
				t.Errorf("%s: asked about %q", name, action)
			}
			return c.actor, c.err
		}, "replay")
		if c.ok && (got != c.actor || err != nil) || !c.ok && (got != "" || !errors.Is(err, authz.ErrUnauthorized)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: the error %v does not wrap the function's own", name, err)
		}
	}
}

func TestNobodyMayWithoutAFunction(t *testing.T) {
	got, err := authz.Check[string](t.Context(), nil, "replay")
	if got != "" || !errors.Is(err, authz.ErrUnauthorized) || !strings.Contains(err.Error(), "nil") {
		t.Errorf("%q, %v", got, err)
	}
}

// What a panic said may hold anything, so it is not told.
func TestAPanicIsARefusal(t *testing.T) {
	got, err := authz.Check(t.Context(), func(context.Context, int) (string, error) { panic("the secret") }, 1)
	p := (*authz.Panic)(nil)
	if got != "" || !errors.Is(err, authz.ErrUnauthorized) || !errors.As(err, &p) || len(p.Stack) == 0 {
		t.Fatalf("a panic was answered %q, %v", got, err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error repeats the panic: %v", err)
	}
}
