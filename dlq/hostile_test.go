package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// as has an As method that panics.
type as struct{}

func (as) Error() string { return "as" }
func (as) As(any) bool   { panic("no") }

// TestHostileErrorsOfHandlers has handlers return, and panic with, what is hard on
// whoever looks for GiveUp in it. The worker survives, and the letters are settled.
func TestHostileErrorsOfHandlers(t *testing.T) {
	failures := map[string]error{
		"panicking": panicking{}, "typed nil": (*typedNil)(nil), "cyclic": circle(), "wide": wide{}, "cannot unwrap": unwraps{},
		"as": as{}, "many wrappings": wrapped(100_000), "joined": errors.Join(circle(), unwraps{}, as{}),
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		for name := range failures {
			put(t, q, "", name, "panic "+name)
		}
		put(t, q, "", "given up")
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			if name, ok := strings.CutPrefix(l.ID, "panic "); ok {
				panic(failures[name])
			}
			if l.ID == "given up" {
				return errors.Join(circle(), fmt.Errorf("deep: %w", dlq.GiveUp(unwraps{})))
			}
			return failures[l.ID]
		})
		time.Sleep(6 * time.Minute)
		for name := range failures {
			for _, id := range []string{name, "panic " + name} {
				if l := wantState(t, q, id, dlq.StateWaiting); len(l.Attempts) != 2 {
					t.Errorf("%s: the letter has %d attempts", id, len(l.Attempts))
				}
			}
		}
		wantState(t, q, "given up", dlq.StateReview)
	})
}

// TestGiveUpIsFoundAmongTheFirstErrors wraps it deep, and deeper than is looked at.
func TestGiveUpIsFoundAmongTheFirstErrors(t *testing.T) {
	deep := func(n int) error {
		err := dlq.GiveUp(errDown)
		for range n {
			err = fmt.Errorf("%w", err)
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "63", "64")
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error { return deep(map[string]int{"63": 63, "64": 64}[l.ID]) })
		time.Sleep(6 * time.Minute)
		wantState(t, q, "63", dlq.StateReview)
		wantState(t, q, "64", dlq.StateWaiting)
	})
	if text := dlq.GiveUp(nil).Error(); text != "no error was given" {
		t.Errorf("GiveUp of nothing says %q", text)
	}
}

// TestTraceThatLosesTheContext has an Extract that returns a context of its own: the
// handler keeps its sandbox.
func TestTraceThatLosesTheContext(t *testing.T) {
	opts := exact()
	log, text := logged()
	opts.Logger = log
	opts.Trace = &dlq.Trace{Extract: func(context.Context, map[string]string) context.Context { return context.Background() }}
	q := newQueue(t, dlq.NewMemory(), opts)
	put(t, q, "", "a")
	effect := func(ctx context.Context, _ dlq.Letter) error {
		return dlq.Effect(ctx, "charge", func(context.Context) error { t.Error("an effect happened in a rehearsal"); return nil })
	}
	if r, err := q.DryRun(ctx, effect, get(t, q, "a"), nil); err != nil || r.Verdict != dlq.WouldPass || len(r.Effects) != 1 {
		t.Errorf("the rehearsal found %+v, %v", r, err)
	}
	if !strings.Contains(text(), "without a trace") {
		t.Errorf("the log says %s", text())
	}
	other := func(_ context.Context, run func(context.Context) error) error { return run(context.Background()) }
	r, err := q.DryRun(ctx, effect, get(t, q, "a"), &dlq.DryRunOptions{Sandbox: other})
	if err != nil || r.Verdict != dlq.OtherFailure || !strings.Contains(r.Attempt.Error, "context") {
		t.Errorf("a sandbox function that hands on another context: %+v, %v", r, err)
	}
}

// TestEffectsAfterTheEnd has a handler that leaves a goroutine behind, which goes on
// with effects while the rehearsal is looked at.
func TestEffectsAfterTheEnd(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	put(t, q, "", "a")
	ended := make(chan struct{})
	r, err := q.DryRun(ctx, func(ctx context.Context, _ dlq.Letter) error {
		go func() {
			defer close(ended)
			for range 100 {
				dlq.Effect(ctx, "late", nil)
			}
		}()
		return nil
	}, get(t, q, "a"), nil)
	n := len(r.Effects)
	for i := range r.Effects {
		r.Effects[i] = "mine"
	}
	<-ended
	if err != nil || len(r.Effects) != n || r.Verdict != dlq.WouldPass {
		t.Errorf("the rehearsal found %+v, %v", r, err)
	}
}

// TestDamagedRowsAreSaid has a store whose bodies and failures are cut and altered
// anywhere: nothing panics, nothing that was not there is made up, and a letter whose
// body is not of a known version is not worked.
func TestDamagedRowsAreSaid(t *testing.T) {
	m := dlq.NewMemory()
	q := newQueue(t, m, &dlq.Options{Handler: "h", Version: "v"})
	if _, err := q.Put(ctx, dlq.Dead{Message: message("a", ""), Cause: errors.Join(errDown, errDown), Stack: []byte("stack")}); err != nil {
		t.Fatal(err)
	}
	p, err := m.List(ctx, dlq.Query{Stream: stream, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	whole := p.Records[0]
	rnd, unopened, unknown := rand.New(rand.NewPCG(1, 2)), 0, 0
	damaged := func(b []byte, i int) []byte {
		b = slices.Clone(b)
		if i < len(b) {
			return b[:i]
		}
		b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		return b
	}
	for i := range 3000 {
		id := fmt.Sprint("d", i)
		put := dlq.Put{Nonce: [16]byte{byte(i), byte(i >> 8), 1}, Stream: stream, ID: id, Body: damaged(whole.Body, i), Failure: whole.Log.First}
		put.Failure.Detail = damaged(whole.Log.First.Detail, i)
		if _, err := m.Put(ctx, dlq.Params{Retention: time.Hour, Audit: time.Hour, Capacity: 10_000}, []dlq.Put{put}); err != nil {
			t.Fatal(err)
		}
		l := get(t, q, id)
		if len(l.Payload) > len(put.Body) || len(l.Attempts) != 1 || len(l.Attempts[0].Error) > len(put.Failure.Detail)+64 {
			t.Fatalf("of a body of %d bytes came %d, and the attempts %+v", len(put.Body), len(l.Payload), l.Attempts)
		}
		if l.Unopened != nil {
			unopened++
			if r, err := q.DryRun(ctx, func(context.Context, dlq.Letter) error { return nil }, l, nil); err != nil || r.Verdict == dlq.WouldPass {
				t.Fatalf("a letter that cannot be opened was worked: %+v, %v", r, err)
			}
		}
		if strings.Contains(l.Attempts[0].Error, "not of a known version") {
			unknown++
		}
	}
	if unopened < 20 || unknown < 20 {
		t.Errorf("of 3000 damaged rows %d bodies and %d failures were noticed", unopened, unknown)
	}
}
