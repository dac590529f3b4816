package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/retry"
)

// A message that has failed for good becomes a letter, and is retried.
func Example() {
	q, err := dlq.New(dlq.NewMemory(), &dlq.Options{Backoff: retry.Constant(time.Millisecond), Handler: "crm"})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())

	m := dlq.Message{Stream: "crm-update", ID: "wamid.1", Key: "customer 7", Payload: []byte(`{"status":"read"}`)}
	answers, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New("the CRM answered 503")})
	fmt.Println(answers[0], err)

	err = q.Run(ctx, func(ctx context.Context, l dlq.Letter) error {
		fmt.Printf("retry %d of %s: %s\n", l.Tries, l.ID, l.Payload)
		if l.Tries < 2 {
			return errors.New("the CRM answered 503")
		}
		stop()
		return nil
	}, &dlq.RunOptions{Stream: "crm-update", Poll: time.Millisecond})
	l, _ := q.Get(context.Background(), "crm-update", "wamid.1")
	fmt.Println(l.State, len(l.Attempts), "failures:", l.Attempts[0].Error, err)
	// Output:
	// added <nil>
	// retry 1 of wamid.1: {"status":"read"}
	// retry 2 of wamid.1: {"status":"read"}
	// resolved 2 failures: the CRM answered 503 <nil>
}

// The normal flow asks whether the key of a message is blocked before it works the
// message, so that nothing overtakes a letter.
func ExampleQueue_Park() {
	q, err := dlq.New(dlq.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	work := func(id, key string) {
		m := dlq.Message{Stream: "crm-update", ID: id, Key: key}
		answers, err := q.Park(ctx, m)
		switch {
		case err != nil:
			fmt.Println("not acknowledged:", err)
		case answers[0] == dlq.NotBlocked && id == "1":
			q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New("failed")})
			fmt.Println(id, "failed")
		case answers[0] == dlq.NotBlocked:
			fmt.Println(id, "worked")
		default:
			fmt.Println(id, "parked")
		}
	}
	work("1", "customer 7")
	work("2", "customer 7")
	work("3", "customer 8")
	// Output:
	// 1 failed
	// 2 parked
	// 3 worked
}

// The effects of a retry go through the same guard as those of the normal flow, under
// the original ID, so that a message that did have its effect does not have it twice.
// Pin makes the guard remember it for as long as the letter is not resolved.
func ExampleQueue_Run_dedup() {
	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "charges"})
	if err != nil {
		panic(err)
	}
	charge := func(ctx context.Context, id string) error {
		return dlq.Effect(ctx, "charge", func(ctx context.Context) error { // not run in a rehearsal
			return guard.Do(ctx, dedup.Request{ID: id}, func(context.Context) error {
				fmt.Println("charged", id)
				return nil
			})
		})
	}
	q, err := dlq.New(dlq.NewMemory(), &dlq.Options{
		Backoff: retry.Constant(time.Millisecond),
		Pin: func(ctx context.Context, _, id string) error {
			return guard.Retain(ctx, 72*time.Hour, id) // three times PinEvery
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := dlq.Message{Stream: "charges", ID: "order 1"}
	charge(ctx, m.ID) // it happened, and what came after it failed
	q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New("the receipt was not mailed")})
	q.Run(ctx, func(ctx context.Context, l dlq.Letter) error {
		defer stop()
		return charge(ctx, l.ID)
	}, &dlq.RunOptions{Stream: "charges", Poll: time.Millisecond})
	l, _ := q.Get(context.Background(), "charges", "order 1")
	fmt.Println(l.State)
	// Output:
	// charged order 1
	// resolved
}

// A dry run says what would become of a letter, and which effects it would have.
func ExampleQueue_DryRun() {
	q, err := dlq.New(dlq.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	m := dlq.Message{Stream: "charges", ID: "order 1"}
	q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New("no such customer")})
	l, err := q.Get(ctx, m.Stream, m.ID)
	if err != nil {
		panic(err)
	}
	r, err := q.DryRun(ctx, func(ctx context.Context, l dlq.Letter) error {
		return dlq.Effect(ctx, "charge the card", func(context.Context) error {
			panic("never in a rehearsal")
		})
	}, l, nil)
	fmt.Println(r.Verdict, r.Effects, err)
	// Output: would pass [charge the card] <nil>
}

// A review asks the application who acts, and keeps what was done.
func ExampleReview() {
	q, err := dlq.New(dlq.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	q.Put(ctx, dlq.Dead{Message: dlq.Message{Stream: "charges", ID: "order 1"}, Cause: errors.New("no such customer")})

	type user struct{}
	r, err := dlq.NewReview(q, func(ctx context.Context, a dlq.Action) (string, error) {
		name, _ := ctx.Value(user{}).(string)
		if a.Verb == dlq.VerbForget {
			return "", errors.New("not in this shop")
		}
		return name, nil
	}, nil)
	if err != nil {
		panic(err)
	}
	ctx = context.WithValue(ctx, user{}, "ana")
	page, err := r.List(ctx, dlq.Query{Stream: "charges", State: dlq.StateWaiting, N: 10})
	if err != nil {
		panic(err)
	}
	ref := page.Letters[0].Ref()
	fmt.Println(r.Forget(ctx, ref, "tidy"))
	fmt.Println(r.Discard(ctx, ref, "a test order"))
	entries, _, _ := r.Audit(ctx, dlq.AuditQuery{Stream: "charges", N: 10})
	fmt.Println(entries[0].Actor, entries[0].Verb, entries[0].ID, entries[0].Reason)
	// Output:
	// dlq: forget: not authorized, nothing was done: not in this shop
	// <nil>
	// ana discard order 1 a test order
}

// The JSON handler is mounted behind whatever authenticates the application's admins.
func ExampleHandler() {
	q, err := dlq.New(dlq.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	type user struct{}
	r, err := dlq.NewReview(q, func(ctx context.Context, a dlq.Action) (string, error) {
		name, _ := ctx.Value(user{}).(string) // empty refuses
		return name, nil
	}, nil)
	if err != nil {
		panic(err)
	}
	h, err := dlq.Handler(r)
	if err != nil {
		panic(err)
	}
	authenticate := func(next http.Handler) http.Handler { return next } // the application's
	http.Handle("/admin/dlq/", authenticate(http.StripPrefix("/admin/dlq", h)))
}

// TestPackageCommentIsTrue keeps the sentence of the package comment about times.
func TestPackageCommentIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), nil) // the defaults
		put(t, q, "", "a")
		var tried []time.Duration
		last := time.Now()
		stop := run(t, q, nil, func(context.Context, dlq.Letter) error {
			tried = append(tried, time.Since(last))
			last = time.Now()
			return errDown
		})
		time.Sleep(3 * time.Hour)
		stop()
		for i, least := range []time.Duration{5, 10, 15, 25} {
			least *= time.Minute
			if len(tried) != 4 || tried[i] < least || tried[i] > least+least/10+time.Second {
				t.Fatalf("the retries came after %v", tried)
			}
		}
		wantState(t, q, "a", dlq.StateReview)
	})
}
