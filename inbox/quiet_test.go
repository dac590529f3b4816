package inbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// What all boxes of these tests log, and the errors that their hooks are told, is
// overheard, and read when the tests have run: it must not say what it was about.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		for _, line := range everything.lines() {
			if s := secretIn(line); s != "" {
				fmt.Fprintf(os.Stderr, "a box has told %q: %s\n", s, line)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// secrets are in the payloads, IDs, keys, contexts, headers and addresses of the
// tests. IDs are told by "test/", which begins them all.
var secrets = []string{
	"payload of", "test/", "49123", "around", "token=", "signature=", "sig=", "https://", "topsecret", `{"id"`, "cannot decode",
}

func secretIn(line string) string {
	for _, s := range secrets {
		if strings.Contains(line, s) {
			return s
		}
	}
	return ""
}

// A recorder keeps lines.
type recorder struct {
	mu  sync.Mutex
	all []string
}

var everything recorder

func (r *recorder) Write(p []byte) (int, error) {
	r.add(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (r *recorder) add(line string) {
	// A stack has the names of functions and files, which are the program's own.
	line, _, _ = strings.Cut(line, " stack=")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, line)
}

func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.all...)
}

// overheard returns options whose logger and hooks are overheard.
func overheard(opts *inbox.Options) *inbox.Options {
	var o inbox.Options
	if opts != nil {
		o = *opts
	}
	own := slog.NewTextHandler(&everything, &slog.HandlerOptions{Level: slog.LevelDebug})
	if o.Logger == nil {
		o.Logger = slog.New(own)
	} else {
		o.Logger = slog.New(both{o.Logger.Handler(), own})
	}
	var h inbox.Hooks
	if o.Hooks != nil {
		h = *o.Hooks
	}
	note := func(hook string, err error) {
		if err != nil {
			everything.add(hook + ": " + err.Error())
		}
	}
	refused, worked, lost, acted := h.Refused, h.Worked, h.LeaseLost, h.Acted
	h.Refused = func(ctx context.Context, provider string, err error) {
		note("Refused", err)
		if refused != nil {
			refused(ctx, provider, err)
		}
	}
	h.Worked = func(ctx context.Context, r inbox.Record, o inbox.Outcome, took time.Duration, err error) {
		note("Worked", err)
		if worked != nil {
			worked(ctx, r, o, took, err)
		}
	}
	h.LeaseLost = func(c inbox.Claim, cause error) {
		note("LeaseLost", cause)
		if lost != nil {
			lost(c, cause)
		}
	}
	h.Acted = func(ctx context.Context, i inbox.Intent, actor string, err error) {
		note("Acted", err)
		if acted != nil {
			acted(ctx, i, actor, err)
		}
	}
	o.Hooks = &h
	return &o
}

// both hands records to two handlers.
type both [2]slog.Handler

func (b both) Enabled(context.Context, slog.Level) bool { return true }

func (b both) Handle(ctx context.Context, r slog.Record) error {
	for _, h := range b {
		if h.Enabled(ctx, r.Level) {
			if err := h.Handle(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}

// The recorder hears what it is there for.
func TestTheBoxesAreOverheard(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	es := events("k", "overheard", "overheard")
	es[1].Payload = []byte("payload of another")
	accept(t, b, es...)
	found := false
	for _, line := range everything.lines() {
		found = found || strings.Contains(line, "an event is known with another payload")
	}
	if !found {
		t.Error("what a box logs is not overheard")
	}
	if secretIn("GET https://bucket/?sig=1") == "" || secretIn("a payload of 12 bytes") != "payload of" {
		t.Error("a secret is not found")
	}
}
