package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
)

// TestAReturnedMessageThatFailsAtOnceIsNotLost has a flow that is so quick, or a worker
// that is so slow, that the message has failed again and is put while its letter is not
// yet resolved.
func TestAReturnedMessageThatFailsAtOnceIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		j := newJournal()
		put(t, q, "k", "a", "b")
		stop := run(t, q, &dlq.RunOptions{Return: func(_ context.Context, l dlq.Letter) error {
			j.timed("return " + l.ID)
			if l.ID == "a" && l.Tries == 1 { // the flow works it on another goroutine, and it fails
				m := dlq.Message{Stream: l.Stream, ID: l.ID, Key: l.Key, Payload: l.Payload, Headers: l.Headers}
				a, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New("failed in the flow")})
				j.add("%v %v", a, err)
			}
			return nil
		}}, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(5*time.Minute + 30*time.Second)
		l := wantState(t, q, "a", dlq.StateWaiting)
		if n := len(l.Attempts); n != 2 || l.Attempts[1].Error != "failed in the flow" {
			t.Errorf("the attempts are %+v", l.Attempts)
		}
		time.Sleep(5 * time.Minute)
		stop()
		wantState(t, q, "a", dlq.StateResolved)
		wantState(t, q, "b", dlq.StateResolved)
		if want := "return a@5m0s [duplicate] <nil> return a@10m0s return b@10m0s"; j.String() != want {
			t.Errorf("what happened:\n%s, want\n%s", j, want)
		}
	})
}

// TestAReturnedMessageCanBePutAgain has a message with as many headers as there may be,
// beside which the queue sets its own.
func TestAReturnedMessageCanBePutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		m := message("a", "k")
		for i := len(m.Headers); i < 64; i++ {
			m.Headers[fmt.Sprintf("h%02d", i)] = strings.Repeat("x", 240)
		}
		if _, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errDown}); err != nil {
			t.Fatal(err)
		}
		first := get(t, q, "a")
		var returned dlq.Letter
		stop := run(t, q, &dlq.RunOptions{Return: func(_ context.Context, l dlq.Letter) error { returned = l; return nil }},
			func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(6 * time.Minute)
		stop()
		if returned.Headers[dlq.HeaderReturned] == "" {
			t.Fatal("the message came back without its header")
		}
		m.Headers = returned.Headers
		if a, err := q.Park(ctx, m); err != nil || a[0] != dlq.NotBlocked {
			t.Errorf("Park of a returned message: %v, %v", a, err)
		}
		if a, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errDown}); err != nil || a[0] != dlq.Added {
			t.Fatalf("a returned message that failed again: %v, %v", a, err)
		}
		if l := get(t, q, "a"); l.Headers[dlq.HeaderReturned] != "" || len(l.Headers) != 64 || l.Digest != first.Digest || l.Seq == first.Seq {
			t.Errorf("the new letter has %d headers, and the digest %x after %x", len(l.Headers), l.Digest, first.Digest)
		}
		m.Headers[dlq.HeaderReturned] = strings.Repeat("x", 1<<20) // whoever sets it gets it not stored
		if _, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errDown}); err != nil {
			t.Errorf("a message with a giant header of the queue's own: %v", err)
		}
	})
}

// TestAHandlerMayChangeWhatItGets has a rehearsal that works in place. What is put back
// is the letter's, and so is what the caller of a dry run has.
func TestAHandlerMayChangeWhatItGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "k", "a")
		spoil := func(_ context.Context, l dlq.Letter) error {
			clear(l.Payload)
			clear(l.Headers)
			l.Headers["x"] = "y"
			return nil
		}
		l := get(t, q, "a")
		if _, err := q.DryRun(ctx, spoil, l, nil); err != nil || string(l.Payload) != "payload of a" || l.Headers["h"] != "of a" || len(l.Headers) != 1 {
			t.Errorf("after a dry run its letter is %q with %q, %v", l.Payload, l.Headers, err)
		}
		var returned dlq.Letter
		stop := run(t, q, &dlq.RunOptions{Return: func(_ context.Context, l dlq.Letter) error { returned = l; return nil }}, spoil)
		time.Sleep(6 * time.Minute)
		stop()
		if string(returned.Payload) != "payload of a" || returned.Headers["h"] != "of a" || len(returned.Headers) != 2 {
			t.Errorf("what was put back is %q with %q", returned.Payload, returned.Headers)
		}
	})
}

// TestAGuardBelongsInsideOfItsEffect rehearses both ways: a guard inside of the effect
// knows nothing of it afterwards; one around it refuses the real effect, as the doc says.
func TestAGuardBelongsInsideOfItsEffect(t *testing.T) {
	for _, inside := range []bool{true, false} {
		guard, err := dedup.New(dedup.NewMemory(), nil)
		if err != nil {
			t.Fatal(err)
		}
		charged := 0
		charge := func(context.Context) error { charged++; return nil }
		handle := func(ctx context.Context, l dlq.Letter) error {
			if inside {
				return dlq.Effect(ctx, "charge", func(ctx context.Context) error { return guard.Do(ctx, dedup.Request{ID: l.ID}, charge) })
			}
			return guard.Do(ctx, dedup.Request{ID: l.ID}, func(ctx context.Context) error { return dlq.Effect(ctx, "charge", charge) })
		}
		q := newQueue(t, dlq.NewMemory(), nil)
		put(t, q, "", "a")
		l := get(t, q, "a")
		if r, err := q.DryRun(ctx, handle, l, nil); err != nil || r.Verdict != dlq.WouldPass || charged != 0 {
			t.Errorf("the rehearsal charged %d times: %+v, %v", charged, r, err)
		}
		if err := handle(ctx, l); err != nil || charged != map[bool]int{true: 1, false: 0}[inside] {
			t.Errorf("with the guard inside %t, the real run charged %d times, %v", inside, charged, err)
		}
	}
}
