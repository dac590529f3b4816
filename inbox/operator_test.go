package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

// operator is one that everybody may be.
func operator(t testing.TB, b *inbox.Box, actor string) *inbox.Operator {
	t.Helper()
	op, err := inbox.NewOperator(b, func(context.Context, inbox.Intent) (string, error) { return actor, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// worked makes a box whose events have ended as their IDs say.
func worked(t testing.TB, s inbox.Store, opts *inbox.Options, ids ...string) *inbox.Box {
	t.Helper()
	b := newBox(t, s, opts)
	accept(t, b, events("k", ids...)...)
	w := work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
		switch name, _, _ := strings.Cut(short(r), "-"); name {
		case "dead":
			return inbox.Dead(errors.New("the CRM is down"))
		case "quarantined":
			return inbox.Quarantine(errors.New("no such type"))
		case "unknown":
			return inbox.Unknown(errors.New("no answer"))
		}
		return inbox.Done()
	})
	synctest.Wait()
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	return b
}

func one(t testing.TB, b *inbox.Box, id string) inbox.Record {
	t.Helper()
	rs, err := b.Get(context.Background(), "test/"+id)
	if err != nil || len(rs) != 1 {
		t.Fatalf("%s has the records %+v, %v", id, rs, err)
	}
	return rs[0]
}

func TestOperatorReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worked(t, inbox.NewMemory(), nil, "dead", "quarantined", "unknown", "done")
		op := operator(t, b, "alice")
		var j journal
		work(t, b, &inbox.WorkOptions{Poll: time.Hour}, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s/%d/%d", r.ID, r.Attempts, len(r.Failures))
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		for _, id := range []string{"unknown", "dead", "quarantined", "done"} {
			if err := op.Replay(t.Context(), "test/"+id, 0, "the CRM is up again"); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			synctest.Wait() // it is worked at once
		}
		if got, want := j.String(), "test/unknown/1/1 test/dead/1/1 test/quarantined/1/1 test/done/1/0"; got != want {
			t.Errorf("worked were %q, want %q", got, want)
		}
		wantTotals(t, b, inbox.Totals{Done: 4})
		r := one(t, b, "dead")
		if len(r.Actions) != 1 || r.Actions[0].Kind != inbox.ChangeReplay || r.Actions[0].Actor != "alice" || r.Actions[0].Reason != "the CRM is up again" || r.LastError != "the CRM is down" {
			t.Errorf("the record is %+v", r)
		}
		if err := op.Replay(t.Context(), "test/nothing", 0, "x"); !errors.Is(err, inbox.ErrNotFound) {
			t.Errorf("a replay of nothing: %v", err)
		}
		if err := op.Replay(t.Context(), "test/dead", r.Seq+100, "x"); !errors.Is(err, inbox.ErrNotFound) {
			t.Errorf("a replay of no such record: %v", err)
		}
	})
}

func TestOperatorResolvesRedactsAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &files{}
		b := worked(t, inbox.NewMemory(), &inbox.Options{Payloads: out}, "dead", "unknown", "done", "done-2")
		op := operator(t, b, "alice")
		if err := op.Resolve(t.Context(), "test/unknown", one(t, b, "unknown").Seq, "found at the bank"); err != nil {
			t.Error(err)
		}
		if r := one(t, b, "unknown"); r.State != inbox.StateDone || r.Expires.IsZero() || r.Actions[0].Kind != inbox.ChangeResolve {
			t.Errorf("resolved it is %+v", r)
		}
		if err := op.Resolve(t.Context(), "test/done", 0, "x"); !errors.Is(err, inbox.ErrState) {
			t.Errorf("to resolve what is done: %v", err)
		}
		if err := op.Redact(t.Context(), "test/dead", 0, "asked to"); err != nil {
			t.Error(err)
		}
		r := one(t, b, "dead")
		if r.Form != inbox.FormRedacted || r.Payload != nil || r.LastError != "" || len(r.Failures) != 0 || r.Deleted.IsZero() || r.State != inbox.StateDead {
			t.Errorf("redacted it is %+v", r)
		}
		if out.len() != 3 {
			t.Errorf("outside are %s", out.text())
		}
		if err := op.Replay(t.Context(), "test/dead", 0, "x"); !errors.Is(err, inbox.ErrState) {
			t.Errorf("a replay of what was redacted: %v", err)
		}
		accept(t, b, events("k", "waits")...)
		if err := op.Redact(t.Context(), "test/waits", 0, "x"); !errors.Is(err, inbox.ErrState) {
			t.Errorf("to redact what waits: %v", err)
		}
		if string(one(t, b, "waits").Payload) != "payload of waits" {
			t.Error("a refused redaction has taken the body")
		}
		for _, id := range []string{"test/waits", "test/done", "test/nothing"} {
			if err := op.Forget(t.Context(), id, "asked to"); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		wantTotals(t, b, inbox.Totals{Dead: 1, Done: 2})
		if out.len() != 2 {
			t.Errorf("outside are %s", out.text())
		}
		if got, err := b.Accept(t.Context(), events("k", "done")...); err != nil || got[0] != inbox.Accepted {
			t.Errorf("a forgotten event is answered %v, %v", got, err)
		}
		out.set("delete")
		if err := op.Forget(t.Context(), "test/done-2", "x"); !errors.Is(err, inbox.ErrOutside) {
			t.Errorf("to forget what cannot be deleted: %v", err)
		}
		out.set("")
		if r := one(t, b, "done-2"); r.State != inbox.StateDone || r.Payload == nil {
			t.Errorf("an event whose body could not be deleted is %+v", r)
		}
	})
}

// Streams share a body outside; it goes with the last of them.
func TestOperatorRedactsOneOfTwoStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &files{}
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Payloads: out, Streams: func(inbox.Event) []string { return []string{"a", "b"} }})
		accept(t, b, events("k", "1")...)
		for _, s := range []string{"a", "b"} {
			w := work(t, b, &inbox.WorkOptions{Stream: s}, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() })
			synctest.Wait()
			w.stop()
		}
		op := operator(t, b, "alice")
		rs, err := b.Get(t.Context(), "test/1")
		if err != nil || len(rs) != 2 {
			t.Fatal(rs, err)
		}
		for i, left := range []int{1, 0} {
			if err := op.Redact(t.Context(), "test/1", rs[i].Seq, "asked to"); err != nil || out.len() != left {
				t.Errorf("after redaction %d: %v, and outside are %s", i+1, err, out.text())
			}
		}
	})
}

func TestOperatorInspectsAndReveals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worked(t, inbox.NewMemory(), &inbox.Options{Keys: keys("a")}, "dead-1", "dead-2", "dead-3", "done")
		op := operator(t, b, "alice")
		var seen []string
		for after := uint64(0); ; {
			rs, err := op.Inspect(t.Context(), inbox.Query{State: inbox.StateDead, After: after, N: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if r.Payload != nil || r.Context != nil || r.LastError != "the CRM is down" {
					t.Errorf("inspected is %+v", r)
				}
				seen = append(seen, short(r))
				after = r.Seq
			}
			if len(rs) < 2 {
				break
			}
		}
		if fmt.Sprint(seen) != "[dead-1 dead-2 dead-3]" {
			t.Errorf("inspected were %v", seen)
		}
		rs, err := op.Inspect(t.Context(), inbox.Query{ID: "test/done", N: 1})
		if err != nil || len(rs) != 1 || rs[0].State != inbox.StateDone {
			t.Errorf("inspected is %+v, %v", rs, err)
		}
		rs, err = op.Reveal(t.Context(), "test/dead-1", "a customer complained")
		if err != nil || len(rs) != 1 || string(rs[0].Payload) != "payload of dead-1" {
			t.Errorf("revealed is %+v, %v", rs, err)
		}
		if rs, err = op.Reveal(t.Context(), "test/nothing", "x"); !errors.Is(err, inbox.ErrNotFound) || rs != nil {
			t.Errorf("revealed is %+v, %v", rs, err)
		}
	})
}

// All that died of an outage is replayed in pages, whoever else is at it.
func TestOperatorReplaysAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for i := range 250 {
			ids = append(ids, fmt.Sprint("dead-", i))
		}
		memory := inbox.NewMemory()
		answer := error(nil)
		store := changing{memory, func() error { return answer }}
		b := worked(t, store, nil, append(ids, "unknown", "done")...)
		op := operator(t, b, "alice")
		if err := op.Redact(t.Context(), "test/dead-7", 0, "asked to"); err != nil {
			t.Fatal(err)
		}
		total, pages := 0, 0
		for after := uint64(0); ; pages++ {
			done, err := op.ReplayState(t.Context(), inbox.StateDead, inbox.DefaultStream, after, 120, "it is up again")
			if err != nil {
				t.Fatal(err)
			}
			total += done.Records
			after = done.After
			if !done.More {
				break
			}
			if pages == 0 { // a replay of another stream's does nothing
				if done, err := op.ReplayState(t.Context(), inbox.StateDead, "other", 0, 1000, "x"); err != nil || done.Records != 0 || done.More {
					t.Errorf("of another stream: %+v, %v", done, err)
				}
			}
		}
		if total != 249 || pages != 2 {
			t.Errorf("%d records were replayed on %d pages", total, pages+1)
		}
		wantTotals(t, b, inbox.Totals{Pending: 249, Dead: 1, Unknown: 1, Done: 1})
		answer = errors.New("down")
		begin := time.Now()
		if _, err := op.ReplayState(t.Context(), inbox.StateUnknown, "", 0, 10, "x"); !errors.Is(err, inbox.ErrUnavailable) {
			t.Errorf("without a store: %v", err)
		}
		if d := time.Since(begin); d < 4*time.Second || d > 6*time.Second {
			t.Errorf("it was tried for %v, want the store timeout", d)
		}
	})
}

// What dies again at once is not replayed for ever.
func TestOperatorReplaysARecordOnceForAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worked(t, inbox.NewMemory(), nil, "dead-1", "dead-2", "dead-3")
		op := operator(t, b, "alice")
		handled := 0
		w := work(t, b, nil, func(context.Context, inbox.Record) inbox.Outcome {
			handled++
			return inbox.Dead(errors.New("still"))
		})
		replay := func(reason string) (records int) {
			for after := uint64(0); ; {
				done, err := op.ReplayState(t.Context(), inbox.StateDead, "", after, 2, reason)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				records, after = records+done.Records, done.After
				if !done.More {
					return records
				}
			}
		}
		if n := replay("it is up again"); n != 3 || handled != 3 {
			t.Errorf("%d replays, %d handled", n, handled)
		}
		if n := replay("it is up again"); n != 0 {
			t.Errorf("%d replays at a second click", n)
		}
		if n := replay("now it is"); n != 3 {
			t.Errorf("%d replays for another reason", n)
		}
		w.stop()
	})
}

// changing is a store whose Change may have no answer.
type changing struct {
	inbox.Store
	fail func() error
}

func (c changing) Change(ctx context.Context, p inbox.Params, cs []inbox.Change) ([]error, error) {
	errs, err := c.Store.Change(ctx, p, cs)
	if lost := c.fail(); lost != nil {
		return nil, lost
	}
	return errs, err
}

// A change whose answer is lost is sent again and made once.
func TestAChangeWhoseAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := worked(t, changing{inbox.NewMemory(), func() error {
			if calls++; calls <= 2 {
				return inboxtest.ErrFault
			}
			return nil
		}}, nil, "dead")
		if err := operator(t, b, "alice").Replay(t.Context(), "test/dead", 0, "x"); err != nil || calls != 3 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if r := one(t, b, "dead"); r.State != inbox.StatePending || len(r.Actions) != 1 {
			t.Errorf("the record is %+v", r)
		}
	})
}

// Nothing is read or changed that was not authorized, and everything is told.
func TestOperatorAsksFirst(t *testing.T) {
	type ctxKey struct{}
	for name, c := range map[string]struct {
		actor string
		err   error
		panic bool
		ok    bool
	}{
		"allowed":  {actor: "alice", ok: true},
		"refused":  {err: errors.New("not on call, says the policy")},
		"nobody":   {},
		"too long": {actor: strings.Repeat("x", 257)},
		"panic":    {panic: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, text := logged()
				var acted []string
				memory := inbox.NewMemory()
				quiet := false
				store := &inboxtest.Faulty{Store: memory, Before: func(inboxtest.Step) error {
					if quiet {
						t.Error("the store was asked")
					}
					return nil
				}}
				b := worked(t, changing{store, func() error {
					if !c.ok {
						t.Error("something was changed")
					}
					return nil
				}}, &inbox.Options{Logger: log, Hooks: &inbox.Hooks{Acted: func(_ context.Context, i inbox.Intent, actor string, err error) {
					acted = append(acted, fmt.Sprintf("%s by %q: %t", i.Verb, actor, err == nil))
				}}}, "dead-1", "dead-2", "dead-3", "dead-49123", "dead-5")
				quiet = !c.ok
				var asked []inbox.Intent
				op, err := inbox.NewOperator(b, func(ctx context.Context, i inbox.Intent) (string, error) {
					if ctx.Value(ctxKey{}) != "session" {
						t.Error("it is not asked with the caller's context")
					}
					asked = append(asked, i)
					if c.panic {
						panic("topsecret")
					}
					return c.actor, c.err
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx := context.WithValue(t.Context(), ctxKey{}, "session")
				errs := []error{
					second(op.Inspect(ctx, inbox.Query{State: inbox.StateDead, N: 10})),
					second(op.Reveal(ctx, "test/dead-49123", "a reason")),
					op.Resolve(ctx, "test/dead-2", 0, "a reason"),
					op.Redact(ctx, "test/dead-2", 0, "a reason"),
					op.Replay(ctx, "test/dead-1", 0, "a reason"),
					op.Forget(ctx, "test/dead-3", "a reason"),
					second(op.ReplayState(ctx, inbox.StateDead, "", 0, 10, "a reason")),
				}
				verbs := []inbox.Verb{inbox.VerbInspect, inbox.VerbReveal, inbox.VerbResolve, inbox.VerbRedact, inbox.VerbReplay, inbox.VerbForget, inbox.VerbReplayState}
				for i, err := range errs {
					if c.ok && err != nil || !c.ok && !errors.Is(err, inbox.ErrUnauthorized) || c.err != nil && !errors.Is(err, c.err) {
						t.Errorf("%s: %v", verbs[i], err)
					}
					if asked[i].Verb != verbs[i] || i > 0 && asked[i].Reason != "a reason" {
						t.Errorf("it was asked about %+v", asked[i])
					}
					by := ""
					if c.ok {
						by = c.actor
					}
					if want := fmt.Sprintf("%s by %q: %t", verbs[i], by, c.ok); acted[i] != want {
						t.Errorf("the hook was told %q, want %q", acted[i], want)
					}
				}
				s := b.Stats()
				if n := uint64(len(errs)); c.ok && s.Actions != n || !c.ok && s.Unauthorized != n {
					t.Errorf("the counts are %+v", s)
				}
				if !strings.Contains(text(), `reason="a reason"`) || c.ok && !strings.Contains(text(), "actor=alice") {
					t.Errorf("logged is %s", text())
				}
				for _, bad := range []string{"policy", "49123", "payload of"} {
					if strings.Contains(text(), bad) {
						t.Errorf("the log says %q: %s", bad, text())
					}
				}
			})
		})
	}
}

func TestOperatorIsRefused(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	allow := func(context.Context, inbox.Intent) (string, error) { return "alice", nil }
	asked := false
	op, err := inbox.NewOperator(b, func(context.Context, inbox.Intent) (string, error) { asked = true; return "alice", nil }, &inbox.OperatorOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, err := range map[string]error{
		"nil box":             second(inbox.NewOperator(nil, allow, nil)),
		"nil authorize":       second(inbox.NewOperator(b, nil, nil)),
		"no ID":               op.Replay(ctx, "", 0, "x"),
		"no reason":           op.Replay(ctx, "test/1", 0, ""),
		"a long reason":       op.Forget(ctx, "test/1", strings.Repeat("x", inbox.MaxError+1)),
		"NUL in a reason":     op.Forget(ctx, "test/1", "\x00"),
		"an empty query":      second(op.Inspect(ctx, inbox.Query{N: 1})),
		"no page":             second(op.Inspect(ctx, inbox.Query{State: inbox.StateDead})),
		"no such state":       second(op.Inspect(ctx, inbox.Query{State: 99, N: 1})),
		"a bad ID":            second(op.Inspect(ctx, inbox.Query{ID: "\xff", N: 1})),
		"a bad message ID":    second(op.Inspect(ctx, inbox.Query{MessageID: "\x00", N: 1})),
		"a bad external ID":   second(op.Inspect(ctx, inbox.Query{ExternalID: "\x00", N: 1})),
		"replay of the done":  second(op.ReplayState(ctx, inbox.StateDone, "", 0, 1, "x")),
		"replay of conflicts": second(op.ReplayState(ctx, inbox.StateConflict, "", 0, 1, "x")),
		"a bad stream":        second(op.ReplayState(ctx, inbox.StateDead, "a b", 0, 1, "x")),
		"no records":          second(op.ReplayState(ctx, inbox.StateDead, "", 0, 0, "x")),
		"for no reason":       second(op.ReplayState(ctx, inbox.StateDead, "", 0, 1, "")),
		"nil source":          second(op.Redecode(ctx, "test/1", nil, "x")),
		"reveal of nothing":   second(op.Reveal(ctx, "", "x")),
	} {
		if !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if asked {
		t.Error("somebody was asked about what is invalid")
	}
}
