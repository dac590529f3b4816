package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/ycloud"
	"github.com/pawl-go/pawl/reconcile"
)

// What each error of Ledger.Do means for the event that made the operation. No guard is
// needed around it: the ledger knows the operation by its key, also when the handler runs again.
func ExampleOutcome_ledger() {
	outcomeOf := func(err error) inbox.Outcome {
		var is *reconcile.StateError
		switch {
		case errors.Is(err, reconcile.ErrAccepted), errors.Is(err, reconcile.ErrUnknown):
			return inbox.Done() // it is in the ledger, and Ledger.Run finds out
		case errors.Is(err, reconcile.ErrStarted) && errors.As(err, &is):
			return inbox.Retry(max(is.Wait, time.Second), err) // somebody else is at it
		case errors.Is(err, reconcile.ErrFailed) && errors.As(err, &is) && !is.Again:
			return inbox.Dead(err) // the remote refused it for good
		case errors.Is(err, reconcile.ErrConflict), errors.Is(err, reconcile.ErrInvalid):
			return inbox.Dead(err)
		}
		return inbox.OutcomeOf(err) // not taken, or no store: again, after the backoff
	}

	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{Kind: "replies", Receipt: true})
	if err != nil {
		log.Fatal(err)
	}
	reply := func(event string, answer error) {
		err := ledger.Do(context.Background(), reconcile.Op{Key: "reply:" + event}, func(context.Context, reconcile.Op) ([]byte, error) {
			fmt.Println("sent for", event)
			return nil, answer
		}, nil)
		fmt.Println(outcomeOf(err), "of", event)
	}
	reply("test/m1", nil)
	reply("test/m1", nil) // the handler runs again
	reply("test/m2", errors.New("timeout"))
	reply("test/m2", nil)
	reply("test/m3", reconcile.NotDone(errors.New("429 Too Many Requests")))
	reply("test/m3", nil)
	reply("test/m4", reconcile.Refused(errors.New("400 Bad Request")))
	// Output:
	// sent for test/m1
	// done of test/m1
	// done of test/m1
	// sent for test/m2
	// done of test/m2
	// done of test/m2
	// sent for test/m3
	// failed of test/m3
	// sent for test/m3
	// done of test/m3
	// sent for test/m4
	// dead of test/m4
}

// Statuses of what was sent come in by the same door. Each is an observation, some are
// receipts, and those of messages that nobody here has sent are looked at again later.
func ExampleBox_Work_receipts() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source, err := ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: "whsec_..."}}})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{Kind: "replies", Receipt: true})
	if err != nil {
		log.Fatal(err)
	}
	timeline, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), &reconcile.TimelineOptions{Kind: "ycloud"})
	if err != nil {
		log.Fatal(err)
	}
	checks, err := reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{
		Silent: []reconcile.Silent{{Source: reconcile.InLedger(ledger, nil), Timeline: timeline}},
		Stuck:  []reconcile.Stuck{{Ledger: ledger}},
		Types:  &reconcile.Types{},
		Stray: &reconcile.Stray{Known: func(ctx context.Context, ref reconcile.Ref) (bool, error) {
			if ref.Own == "" {
				return false, nil // all that is sent here has an externalId
			}
			_, err := ledger.Lookup(ctx, ref.Own)
			if errors.Is(err, reconcile.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		}},
	})
	if err != nil {
		log.Fatal(err)
	}

	status := func(ctx context.Context, r inbox.Record) error {
		var e struct {
			WhatsappMessage struct {
				Status, ErrorCode string
				UpdateTime        time.Time
			}
		}
		if err := json.Unmarshal(r.Payload, &e); err != nil {
			return err
		}
		m := e.WhatsappMessage
		ref := reconcile.Ref{Event: r.ID, Message: r.MessageID, Own: r.ExternalID}
		_, err := timeline.Append(ctx, reconcile.Observation{Ref: ref, Status: m.Status, Code: m.ErrorCode, Source: "webhook", Said: m.UpdateTime})
		if err != nil {
			return err
		}
		said := map[string]reconcile.State{"delivered": reconcile.Confirmed, "read": reconcile.Confirmed, "failed": reconcile.Failed}[m.Status]
		if r.ExternalID == "" {
			return checks.Stray(ctx, reconcile.Ref{Message: r.MessageID}, r.Account)
		}
		if said == 0 {
			return nil // on its way
		}
		err = ledger.Receipt(ctx, r.ExternalID, reconcile.Receipt{State: said, Note: m.ErrorCode})
		if errors.Is(err, reconcile.ErrNotFound) {
			return checks.Stray(ctx, reconcile.Ref{Own: r.ExternalID}, r.Account)
		}
		if errors.As(err, new(*reconcile.EndedError)) {
			return nil // delivered and failed: the ledger has kept it for a person
		}
		return err
	}
	var worked atomic.Int32
	handle := func(ctx context.Context, r inbox.Record) inbox.Outcome {
		if worked.Add(1) == 3 {
			defer cancel() // the example has seen enough
		}
		if r.Unknown {
			checks.UnknownType(r.Provider, r.Type, r.Version)
			return inbox.Quarantine(errors.New("a type that this version does not know"))
		}
		if r.Type == "whatsapp.message.updated" {
			return inbox.OutcomeOf(status(ctx, r))
		}
		return inbox.Done() // messages: as in the example of Outcome named Ledger
	}

	// A reply was sent, and YCloud tells of it, and of one that somebody sent by hand.
	_ = ledger.Do(ctx, reconcile.Op{Key: "reply-1", Account: "waba-1"}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, nil }, nil)
	for _, body := range []string{
		`{"id":"evt_1","type":"whatsapp.message.updated","whatsappMessage":{"wamid":"wamid.1","from":"+15550008100","to":"+15550003001","externalId":"reply-1","status":"delivered","updateTime":"2026-11-30T12:00:00Z"}}`,
		`{"id":"evt_2","type":"whatsapp.message.updated","whatsappMessage":{"wamid":"wamid.2","from":"+15550008100","to":"+15550003002","status":"sent","updateTime":"2026-11-30T12:00:00Z"}}`,
		`{"id":"evt_3","type":"whatsapp.moon.phase","apiVersion":"v2"}`,
	} {
		events, err := source.Decode([]byte(body)) // in earnest: Handler, which verifies first
		if err != nil {
			log.Fatal(err)
		}
		if _, err := box.Accept(ctx, events...); err != nil {
			log.Fatal(err)
		}
	}
	if err := box.Work(ctx, handle, nil); err != nil {
		log.Fatal(err)
	}

	ctx = context.Background()
	if err := checks.Once(ctx); err != nil { // in earnest Run, in the background
		log.Fatal(err)
	}
	e, err := ledger.Lookup(ctx, "reply-1")
	fmt.Println(e.State, err)
	is, err := timeline.Project(ctx, reconcile.Ref{Own: "reply-1"})
	fmt.Println(is.Status, is.Settled, err)
	found, err := checks.Findings(ctx, reconcile.FindingQuery{N: 10})
	for _, f := range found {
		fmt.Println(f.Check, f.State, f.Subject)
	}
	fmt.Println(err)
	// Output:
	// confirmed <nil>
	// delivered true <nil>
	// stray suspected message:wamid.2
	// types open ycloud whatsapp.moon.phase v2
	// <nil>
}
