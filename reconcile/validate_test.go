package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]*reconcile.Options{
		"kind":                  {Kind: "a b"},
		"long kind":             {Kind: strings.Repeat("k", 65)},
		"lease":                 {Lease: time.Microsecond},
		"negative quiet":        {Quiet: -1},
		"settle time":           {SettleTime: -1},
		"patience":              {Patience: -1},
		"horizon":               {Horizon: -1},
		"horizon within lease":  {Horizon: 10 * time.Second},
		"retention":             {Retention: -1},
		"retention vs. horizon": {Retention: time.Hour, Horizon: 2 * time.Hour},
		"looks":                 {MaxLooks: -1},
		"sends":                 {MaxSends: -1},
		"result size":           {ResultSize: 1 << 30},
		"payload size":          {PayloadSize: -1},
		"settle timeout":        {SettleTimeout: -1},
	} {
		if _, err := reconcile.New(reconcile.NewMemory(), o); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []reconcile.Store{nil, (*reconcile.Memory)(nil)} {
		if _, err := reconcile.New(s, nil); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("nil store: %v", err)
		}
	}
}

func TestBadInput(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{PayloadSize: 4, ResultSize: 4})
	for name, op := range map[string]reconcile.Op{
		"no key":         {},
		"long key":       {Key: strings.Repeat("k", 513)},
		"NUL":            {Key: "a\x00b"},
		"not UTF-8":      {Key: "\xff"},
		"account":        {Key: "k", Account: "\xff"},
		"large payload":  {Key: "k", Payload: make([]byte, 5)},
		"NUL in account": {Key: "k", Account: "\x00"},
	} {
		if err := l.Do(t.Context(), op, never(t), nil); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx := t.Context()
	for name, err := range map[string]error{
		"nil call":             l.Do(ctx, reconcile.Op{Key: "k"}, nil, nil),
		"nil call of Run":      l.Run(ctx, nil, nil, nil),
		"concurrency":          l.Run(ctx, ok, nil, &reconcile.RunOptions{Concurrency: -1}),
		"receipt of no state":  l.Receipt(ctx, "k", reconcile.Receipt{}),
		"receipt accepted":     l.Receipt(ctx, "k", reconcile.Receipt{State: reconcile.Accepted}),
		"large receipt":        l.Receipt(ctx, "k", reconcile.Receipt{State: reconcile.Failed, Result: make([]byte, 5)}),
		"receipt without key":  l.Receipt(ctx, "", reconcile.Receipt{State: reconcile.Failed}),
		"resolve to unknown":   l.Resolve(ctx, reconcile.Resolution{Key: "k", Token: 1, State: reconcile.Unknown, Evidence: "e"}),
		"confirmed, again":     l.Resolve(ctx, reconcile.Resolution{Key: "k", Token: 1, State: reconcile.Confirmed, Again: true, Evidence: "e"}),
		"without evidence":     l.Resolve(ctx, reconcile.Resolution{Key: "k", Token: 1, State: reconcile.Failed}),
		"too much evidence":    l.Resolve(ctx, reconcile.Resolution{Key: "k", Token: 1, State: reconcile.Failed, Evidence: strings.Repeat("e", 1025)}),
		"without a token":      l.Resolve(ctx, reconcile.Resolution{Key: "k", State: reconcile.Failed, Evidence: "e"}),
		"forget without a key": l.Forget(ctx, ""),
	} {
		if !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.List(ctx, reconcile.Query{}); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("page of 0: %v", err)
	}
	for name, q := range map[string]reconcile.Query{
		"key": {Key: "\xff"}, "NUL in key": {Key: "a\x00"}, "account": {Account: "\xff"}, "long account": {Account: strings.Repeat("a", 513)},
		"after": {After: "\xff"}, "long after": {After: strings.Repeat("a", 513)}, "state": {State: reconcile.Unknown + 1},
	} {
		q.N = 1
		if _, err := l.List(ctx, q); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("query with a bad %s: %v", name, err)
		}
	}
	if _, err := l.Counts(ctx, "\xff", 1); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("counts behind no account: %v", err)
	}
	if _, err := l.Counts(ctx, "", 1001); !errors.Is(err, reconcile.ErrInvalid) {
		t.Errorf("page of 1001: %v", err)
	}
}

// Hostile strings are stored as they are, and are not repeated in errors.
func TestHostileStrings(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	for _, key := range []string{"<script>alert(1)</script>", "\u202eevil", "a\r\nX-Evil: 1", "+8613800138000", strings.Repeat("é", 256)} {
		err := l.Do(t.Context(), reconcile.Op{Key: key, Account: key}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, errLost }, nil)
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("the error of %q: %v", key, err)
		}
		if e := want(t, l, key, reconcile.Unknown); e.Account != key {
			t.Errorf("account %q", e.Account)
		}
		note := strings.Repeat("é", 600) + "\x00\xff"
		if err := l.Receipt(t.Context(), key, reconcile.Receipt{State: reconcile.Confirmed, Note: note}); err != nil {
			t.Fatal(err)
		}
		if e := want(t, l, key, reconcile.Confirmed); len(e.Note) > reconcile.MaxNote || !strings.HasPrefix(note, e.Note) || len(e.Note) < 1000 {
			t.Errorf("a note of %d bytes", len(e.Note))
		}
	}
}

func TestWhoMayResolve(t *testing.T) {
	denied := errors.New("not on call")
	for name, f := range map[string]func(context.Context, reconcile.Action) (string, error){
		"nil":      nil,
		"refuses":  func(context.Context, reconcile.Action) (string, error) { return "alice", denied },
		"nobody":   func(context.Context, reconcile.Action) (string, error) { return "", nil },
		"panics":   func(context.Context, reconcile.Action) (string, error) { panic("secret") },
		"too long": func(context.Context, reconcile.Action) (string, error) { return strings.Repeat("a", 257), nil },
	} {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Authorize: f})
		_ = l.Do(t.Context(), reconcile.Op{Key: "k"}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, errLost }, nil)
		e := want(t, l, "k", reconcile.Unknown)
		err := l.Resolve(t.Context(), reconcile.Resolution{Key: "k", Token: e.Token, State: reconcile.Confirmed, Evidence: "seen"})
		if !errors.Is(err, reconcile.ErrUnauthorized) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Forget(t.Context(), "k"); !errors.Is(err, reconcile.ErrUnauthorized) {
			t.Errorf("%s: forget: %v", name, err)
		}
		want(t, l, "k", reconcile.Unknown)
		if n := l.Stats().Refused; n != 2 {
			t.Errorf("%s: %d refused", name, n)
		}
	}
}

func TestForget(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Authorize: func(context.Context, reconcile.Action) (string, error) { return "dpo", nil }})
	if err := l.Do(t.Context(), reconcile.Op{Key: "k"}, ok, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Forget(t.Context(), "k", "none"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lookup(t.Context(), "k"); !errors.Is(err, reconcile.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}
