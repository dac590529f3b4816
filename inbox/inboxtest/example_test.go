package inboxtest_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/inbox/whatsapp"
)

// How to test a service of your own: its endpoint is the handler, and its effects
// are counted where they happen, here in the handler of the events. The endpoint
// can be any http.Handler, and the events can be worked by anything.
func ExampleStorm() {
	t := printer{} // in a test of yours: its *testing.T

	source, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: "the app secret"}}})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	hook, err := inbox.Handler(box, source, nil)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "crm"})
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex
	effects := map[string]int{}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() {
		stopped <- box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			return inbox.OutcomeOf(guard.Do(ctx, dedup.Request{ID: r.ID}, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				effects[r.ID]++
				return nil
			}))
		}, nil)
	}()

	report := inboxtest.Storm(t, inboxtest.StormConfig{
		Handler: hook,
		Path:    "/webhooks/whatsapp",
		Corpus: []inboxtest.Body{
			{
				Name: "messages in two entries",
				Content: []byte(`{"object": "whatsapp_business_account", "entry": [
					{"id": "41", "changes": [{"field": "messages", "value": {
						"metadata": {"display_phone_number": "15550008000", "phone_number_id": "31"},
						"messages": [{"from": "15550003001", "id": "wamid.one", "timestamp": "1760000000", "type": "text", "text": {"body": "Hello"}}]}}]},
					{"id": "42", "changes": [{"field": "messages", "value": {
						"metadata": {"display_phone_number": "15550008001", "phone_number_id": "32"},
						"messages": [{"from": "15550003002", "id": "wamid.two", "timestamp": "1760000000", "type": "text", "text": {"body": "Hi"}}]}}]}]}`),
				Events: []string{"meta/messages/messages/wamid.one", "meta/messages/messages/wamid.two"},
			},
			{
				Name: "a status",
				Content: []byte(`{"object": "whatsapp_business_account", "entry": [{"id": "41", "changes": [{"field": "messages", "value": {
					"metadata": {"display_phone_number": "15550008000", "phone_number_id": "31"},
					"statuses": [{"id": "wamid.three", "status": "delivered", "timestamp": "1760000001", "recipient_id": "15550003001"}]}}]}]}`),
				Events: []string{"meta/messages/statuses/wamid.three/delivered/-"},
			},
		},
		Sign: func(body []byte, _ time.Time) inboxtest.Signature { // Meta signs no time
			return inboxtest.Signature{Header: http.Header{"X-Hub-Signature-256": {whatsapp.Sign("the app secret", body)}}}
		},
		Duplicates: 5,
		Malformed:  8,
		Effects: func() map[string]int {
			for totals := (inbox.Totals{Pending: 1}); totals.Pending > 0; { // all that was accepted is worked
				if totals, err = box.Totals(ctx); err != nil {
					log.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			stop()
			if err := <-stopped; err != nil {
				log.Fatal(err)
			}
			return effects
		},
	})
	for _, k := range []inboxtest.StormKind{
		inboxtest.StormGood, inboxtest.StormDuplicate, inboxtest.StormMalformed, inboxtest.StormForged, inboxtest.StormReplay,
	} {
		fmt.Println(k, report.Answers[k])
	}
	fmt.Println(len(report.Events), "events,", len(effects), "effects")
	// Output:
	// good map[200:2]
	// duplicate map[200:10]
	// malformed map[200:16]
	// forged map[401:4]
	// replay map[200:2]
	// 3 events, 3 effects
}

// A printer is a test that says what is wrong, since an example has no test.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printer) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
