package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/retry"
)

// deliver posts a body to an endpoint as Meta does, and returns the answer's status.
func deliver(hook http.Handler, body string) int {
	r := httptest.NewRequest("POST", "/webhooks/whatsapp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Hub-Signature-256", whatsapp.Sign("the app secret", []byte(body)))
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, r)
	return w.Code
}

// A delivery is stored, answered, and worked. The provider sends it again, and
// nothing happens twice. (Other sources are in the packages beside this one, and one
// for a provider of yours is a few lines: see package signature.)
func Example() {
	source, err := whatsapp.New(&whatsapp.Options{
		Secrets:     []whatsapp.Secret{{Value: "the app secret"}},
		VerifyToken: "the token entered in the App Dashboard",
	})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(inbox.NewMemory(), nil) // boltinbox, pginbox or redisinbox, to keep what was accepted
	if err != nil {
		log.Fatal(err)
	}
	hook, err := inbox.Handler(box, source, nil)
	if err != nil {
		log.Fatal(err)
	}
	const body = `{"object": "whatsapp_business_account", "entry": [{"id": "41", "changes": [{"field": "messages", "value": {
		"metadata": {"display_phone_number": "15550008000", "phone_number_id": "31"},
		"messages": [
			{"from": "15550003001", "id": "wamid.one", "timestamp": "1760000000", "type": "text", "text": {"body": "Hello"}},
			{"from": "15550003001", "id": "wamid.two", "timestamp": "1760000001", "type": "text", "text": {"body": "Anybody there?"}}]
	}}]}]}`
	fmt.Println(deliver(hook, body))
	fmt.Println(deliver(hook, body))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		fmt.Println("worked", r.MessageID, "-", r.Type)
		if r.MessageID == "wamid.two" {
			cancel() // the example ends here; a service works until it is stopped
		}
		return inbox.Done()
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	s := box.Stats()
	fmt.Println(s.Accepted, "accepted,", s.Duplicates, "duplicates,", s.Done, "done")
	// Output:
	// 200
	// 200
	// worked wamid.one - messages.messages.text
	// worked wamid.two - messages.messages.text
	// 2 accepted, 2 duplicates, 2 done
}

// A handler can run more than once for an event: here it fails after its effect.
// A guard makes the effect happen once all the same.
func ExampleBox_Work_effectOnce() {
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "crm"})
	if err != nil {
		log.Fatal(err)
	}
	event := inbox.Event{ID: "test/m1", Provider: "test", Key: "alice", Payload: []byte("hello")}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, event); err != nil {
		log.Fatal(err)
	}
	err = box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
		fmt.Println("attempt", r.Attempts)
		err := guard.Do(ctx, dedup.Request{ID: r.ID}, func(context.Context) error {
			fmt.Println("the CRM gets", string(r.Payload))
			return nil
		})
		switch {
		case err != nil:
			return inbox.Failed(err)
		case r.Attempts == 1:
			return inbox.Failed(errors.New("the network broke behind the effect"))
		}
		cancel()
		return inbox.Done()
	}, &inbox.WorkOptions{Backoff: retry.Constant(time.Millisecond)})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1
	// the CRM gets hello
	// attempt 2
}

// What a handler returns decides what becomes of the event.
func ExampleOutcome() {
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, typ := range []string{"order", "advertisement", "unheard of"} {
		if _, err := box.Accept(ctx, inbox.Event{ID: "test/" + typ, Provider: "test", Type: typ, Key: "alice"}); err != nil {
			log.Fatal(err)
		}
	}
	err = box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		switch r.Type {
		case "order":
			return inbox.Done()
		case "advertisement":
			return inbox.Dead(errors.New("the customer has left"))
		}
		cancel()
		return inbox.Quarantine(errors.New("no such type"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range []inbox.State{inbox.StateDead, inbox.StateQuarantined} {
		records, err := box.List(context.Background(), s, 0, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range records {
			fmt.Printf("%s: %v, %s\n", r.Type, r.State, r.LastError)
		}
	}
	// Output:
	// advertisement: dead, the customer has left
	// unheard of: quarantined, no such type
}

// What the errors of a dedup guard mean for an event: which of them another
// attempt cannot mend, and when to come back for the others.
func ExampleOutcome_dedup() {
	outcomeOf := func(err error) inbox.Outcome {
		var claim *dedup.ClaimError
		switch {
		case errors.Is(err, dedup.ErrConflict), errors.Is(err, dedup.ErrInvalid):
			return inbox.Dead(err)
		case errors.Is(err, dedup.ErrHeld):
			return inbox.Dead(err) // a person looks at Guard.Held and settles it
		case errors.Is(err, dedup.ErrInFlight) && errors.As(err, &claim):
			return inbox.Retry(max(claim.Claim.Left, time.Second), err)
		}
		return inbox.OutcomeOf(err)
	}

	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "payments", OnLapse: dedup.Hold})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var unsure error
	pay := func(id, payload string) {
		err := guard.Do(ctx, dedup.Request{ID: id, Fingerprint: dedup.Fingerprint([]byte(payload))}, func(context.Context) error {
			fmt.Println("pay", payload)
			return unsure
		})
		fmt.Println(outcomeOf(err), "of", id)
	}
	pay("test/m1", "10 euros")
	pay("test/m1", "10 euros")
	pay("test/m1", "20 euros")

	unsure = errors.New("the bank gave no answer")
	pay("test/m2", "30 euros")
	pay("test/m2", "30 euros")

	if _, err := guard.Claim(ctx, dedup.Request{ID: "test/m3"}); err != nil { // another process is at it
		log.Fatal(err)
	}
	pay("test/m3", "40 euros")
	// Output:
	// pay 10 euros
	// done of test/m1
	// done of test/m1
	// dead of test/m1
	// pay 30 euros
	// failed of test/m2
	// dead of test/m2
	// retry of test/m3
}

// Two dependencies work the same events, each at its own pace: while one of them
// is down, the other goes on.
func ExampleOptions_streams() {
	box, err := inbox.New(inbox.NewMemory(), &inbox.Options{
		Streams: func(inbox.Event) []string { return []string{"crm", "routing"} },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m1", Provider: "test", Key: "alice"}); err != nil {
		log.Fatal(err)
	}
	tried := make(chan struct{})
	crm := make(chan error)
	go func() {
		crm <- box.Work(ctx, func(context.Context, inbox.Record) inbox.Outcome {
			close(tried)
			return inbox.Failed(errors.New("the CRM is down"))
		}, &inbox.WorkOptions{Stream: "crm", Backoff: retry.Constant(time.Hour)})
	}()
	<-tried
	err = box.Work(ctx, func(context.Context, inbox.Record) inbox.Outcome {
		fmt.Println("routed")
		cancel()
		return inbox.Done()
	}, &inbox.WorkOptions{Stream: "routing"})
	if err := errors.Join(err, <-crm); err != nil {
		log.Fatal(err)
	}
	totals, err := box.Totals(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(totals.Done, "done,", totals.Pending, "pending")
	// Output:
	// routed
	// 1 done, 1 pending
}
