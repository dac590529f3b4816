package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/retry"
)

// replies are the way out. Each inbound message is answered once:
//
//   - The reply enters the lane of its account with the effect of its event: in the same
//     transaction, where there is one. Its operation ID is made from the event's
//     identity, so it enters once, however often it is tried.
//   - One worker per account sends, in order. The ledger records each sending before it
//     is made, under the message ID that the lane gave it.
//   - What the gateway did not confirm is in the ledger's queue: asked for, and sent again
//     only if it certainly was not sent.
//   - What the gateway refuses for good is a dead letter, and its lane goes on.
type replies struct {
	buffer   *order.Buffer
	lanes    *order.Lanes
	ledger   *reconcile.Ledger
	timeline *reconcile.Timeline
	letters  *dlq.Queue
	checks   *reconcile.Checks
}

// outbound is where the replies of a run are kept.
type outbound struct {
	lanes      order.Store
	operations reconcile.Store
	said       reconcile.TimelineStore
	letters    dlq.Store
	findings   reconcile.CheckStore
}

func newReplies(in outbound, settle time.Duration) (r *replies, err error) {
	r = new(replies)
	if r.letters, err = dlq.New(in.letters, &dlq.Options{Handler: "gateway"}); err != nil {
		return nil, err
	}
	if r.buffer, err = order.New(in.lanes, &order.Options{Scope: stream, MaxBuffered: 1_000_000}); err != nil {
		return nil, err
	}
	if r.lanes, err = order.NewLanes(r.buffer, r.laneOptions()); err != nil {
		return nil, err
	}
	if r.timeline, err = reconcile.NewTimeline(in.said, &reconcile.TimelineOptions{Kind: stream}); err != nil {
		return nil, err
	}
	r.ledger, err = reconcile.New(in.operations, &reconcile.Options{
		Kind:       stream,
		Receipt:    true,
		Quiet:      quiet,
		SettleTime: settle,
		Backoff:    retry.Exponential(quiet, 4*quiet, retry.EqualJitter),
		Lease:      2 * time.Second, // a run that was killed holds its operations for no longer
		MaxSends:   1000,            // what this gateway refuses, it takes some time
	})
	if err == nil {
		r.checks, err = r.newChecks(in.findings)
	}
	return r, err
}

// stream is the name of the replies in every store.
const stream = "replies"

// laneOptions route a customer to the account that it wrote to.
func (r *replies) laneOptions() *order.LanesOptions {
	return &order.LanesOptions{
		Route:    func(_ context.Context, customer string) (string, error) { return accountOf(customer), nil },
		BizType:  "reply",
		OnFailed: r.dead,
	}
}

// dead keeps a reply that its lane gives up: for a person, since the ledger does not
// send again what was refused.
func (r *replies) dead(ctx context.Context, s order.Sending, _ order.Cause, err error) error {
	_, err = r.letters.Put(ctx, dlq.Dead{
		Message: dlq.Message{Stream: stream, ID: s.Operation, Key: s.Account, Payload: s.Payload},
		Cause:   err,
	})
	return err
}

// due says whether an event is an inbound message, which is answered. Statuses, events
// of accounts, echoes of what was sent elsewhere and history are not.
func due(e inbox.Event) bool {
	switch e.Provider {
	case "meta":
		return strings.HasPrefix(e.Type, "messages.messages.")
	case "ycloud":
		return e.Type == "whatsapp.inbound_message.received"
	case "wechat":
		kind, _, event := strings.Cut(e.Type, ".") // "event.", "info." or "action.", else a MsgType
		return !event && kind != "-"
	}
	return false
}

// enqueue answers an event whose effect is happening. The view is of the store of the
// lanes within the transaction of the effect; nil: there is none.
func (r *replies) enqueue(ctx context.Context, view order.Store, e effect) error {
	if !e.Reply {
		return nil
	}
	lanes := r.lanes
	if view != nil {
		var err error
		if lanes, err = order.NewLanes(r.buffer.With(view), r.laneOptions()); err != nil {
			return err
		}
	}
	m := reply{Operation: operationOf(e.ID), Key: e.Key, Text: "We have your message."}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = lanes.Enqueue(ctx, order.Outbound{Operation: m.Operation, Customer: e.Key, Payload: text})
	return err
}

// operationOf is the operation ID of the reply to an event.
func operationOf(event string) string {
	const prefix = "reply/"
	if len(prefix+event) > 512 || strings.ContainsAny(event, "\t\r\n") {
		sum := sha256.Sum256([]byte(event))
		event = "sha256/" + hex.EncodeToString(sum[:])
	}
	return prefix + event
}

// accountOf is the account that an ordering key is of: all but the person.
func accountOf(key string) string {
	parts := strings.SplitN(key, "/", 3)
	account := strings.Join(parts[:min(len(parts), 2)], "/")
	if len(account) > 100 || strings.Contains(account, "~") {
		sum := sha256.Sum256([]byte(account))
		account = "sha256/" + hex.EncodeToString(sum[:])
	}
	return account
}

// work sends until ctx ends: what the lanes hold, what the ledger's queue has, and what
// the gateway reports.
func (r *replies) work(g *gatewayClient) (workers []func(context.Context) error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.setup.Receipts = "http://" + listener.Addr().String() + "/"
	server := &http.Server{Handler: r.receipts(g.setup.Secret), ReadHeaderTimeout: 5 * time.Second}
	return []func(context.Context) error{
		g.run,
		func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { server.Close() })()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
		func(ctx context.Context) error {
			return r.lanes.Run(ctx, r.sender(g), &order.RunOptions{
				Batch:       64,              // what is sent again after a crash is refused by the ledger
				Lease:       2 * time.Second, // as everywhere
				Poll:        50 * time.Millisecond,
				Backoff:     retry.Exponential(5*time.Millisecond, time.Second, retry.EqualJitter),
				MaxAttempts: 10_000,
			})
		},
		func(ctx context.Context) error {
			return r.checks.Run(ctx)
		},
		func(ctx context.Context) error {
			return r.ledger.Run(ctx, g.call, g.probe, &reconcile.RunOptions{Poll: 50 * time.Millisecond, Concurrency: 16})
		},
	}, nil
}

// sender sends one message of a lane. The lane goes on when the ledger has it: what is
// Accepted or Unknown is settled by the queue, and not in the order of the lane any
// more. What was certainly not taken is sent again, in its place; what somebody else is
// at work on, as a worker who lost the lane's lease, may come to that.
func (r *replies) sender(g *gatewayClient) func(context.Context, order.Sending) error {
	return func(ctx context.Context, s order.Sending) error {
		op := reconcile.Op{Key: s.MessageID, Account: s.Account, Payload: s.Payload, Fingerprint: sha256.Sum256(s.Payload)}
		err := r.ledger.Do(ctx, op, g.call, g.probe)
		for _, recorded := range []error{reconcile.ErrAccepted, reconcile.ErrUnknown} {
			if errors.Is(err, recorded) {
				return nil
			}
		}
		if s, ok := errors.AsType[*reconcile.StateError](err); ok && s.State == reconcile.Failed && !s.Again || errors.Is(err, reconcile.ErrConflict) {
			return order.Failed(order.CauseRefused, err)
		}
		return err
	}
}

// receipts takes what the gateway says of replies. It answers 2xx only when that is
// recorded; the gateway does not care, and says nothing twice on purpose.
func (r *replies) receipts(secret string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var said receipt
		if req.Header.Get(secretHeader) != secret {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&said); err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		_, err := r.timeline.Append(req.Context(), reconcile.Observation{
			Ref:    reconcile.Ref{Event: said.Event, Message: said.Message, Own: said.Operation},
			Status: "delivered",
			Source: "gateway",
			Said:   said.At,
		})
		if err == nil {
			err = r.ledger.Receipt(req.Context(), said.Message, reconcile.Receipt{State: reconcile.Confirmed})
		}
		if err != nil {
			http.Error(w, "", http.StatusServiceUnavailable)
		}
	})
}

// waiting says how many replies are still to be sent, or settled.
func (r *replies) waiting(ctx context.Context) (int, error) {
	t, err := r.buffer.Totals(ctx)
	if err != nil {
		return 0, err
	}
	if t.Parked > 0 {
		return 0, fmt.Errorf("%d replies are parked: they could not be sent, again and again", t.Parked)
	}
	open, err := r.ledger.List(ctx, reconcile.Query{Open: true, N: 1000})
	left, reviews := t.Buffered, 0
	for _, e := range open {
		if e.Review == "" {
			left++
		} else {
			reviews++
		}
	}
	if err != nil || left > 0 || reviews > 0 {
		return left, err
	}
	found, err := r.open(ctx)
	return len(found), err // they hold no more, and go by themselves
}

func (r *replies) answers() *replies { return r }
