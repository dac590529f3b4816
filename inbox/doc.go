// Package inbox accepts what a provider sends, durably, and works it afterwards.
//
// An event that was answered with success is stored: nothing is acknowledged or
// worked before it is durable, and no answer waits for work. Every stored event is
// handed to a handler at least once, until it is done or given up on, and the
// events of one ordering key are handled one at a time, in the order in which they
// were accepted, across any number of processes. The same event delivered again is
// a duplicate for the whole retention and is not worked again. Only trouble of the
// storage makes the endpoint refuse a delivery that is authentic; a backlog, a
// failing handler or a dead dependency never does.
//
// What is not guaranteed: a handler may run more than once for an event, so guard
// its effects: see below. Two events of one key that are accepted at the same
// time have no order among them, and providers do not deliver in order: what the
// sender numbered has to be put in order by its numbers. An event that was given
// up on, whose effect is unknown, that conflicts with an earlier one or could not be
// decoded is kept and counted, and waits for a person. Accepted events are as durable
// as the store; each store's package says how durable that is.
//
// Most callers want [Handler] in front and [Box.Work] behind:
//
//	box, err := inbox.New(store, nil)
//	...
//	hook, err := inbox.Handler(box, source, nil)
//	...
//	mux.Handle("/webhooks/whatsapp", hook)
//	...
//	err = box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
//		return inbox.OutcomeOf(crm.Put(ctx, r.Event))
//	}, nil)
//
// Work blocks: run the server and Work in goroutines of their own. To stop, call
// Shutdown of the http.Server, then end Work's context and wait for it, then close
// the store's file.
//
// One box may stand behind many handlers, one for each provider, and many calls of
// Work may share it. What accepts and what works may also be different processes, each
// with a box on the same data. [Stats] and [Hooks] are those of one box.
//
// # Too much at once
//
// Put no limit in front of [Handler]: no rate, no gate and no level of package
// backpressure. What is refused has to come again, and a provider that is refused for
// long stops sending; what is stored waits. What has to be guarded there is the storage
// (HandlerOptions.Refuse). Limits belong behind it, where the work is: in the
// function that Work calls, before it calls a dependency (Line.Wait of a
// backpressure.Shaper; a [Retry] after what a Verdict says is an attempt, of which there
// are MaxAttempts); WorkOptions.Concurrency; and Options.Streams for what must not wait
// behind a slow dependency. [Box.Totals] has the backlog that backpressure.Levels watches.
//
// # One effect
//
// When the events and what the handler writes are in one database, complete the
// event in the transaction of the write ([Box.Complete], and InTx of the stores that
// have transactions): both are then one commit, and nothing else is needed. A call to
// a remote, such as a reply, belongs in a ledger of [github.com/pawl-go/pawl/reconcile],
// and needs no guard. For any other effect use a guard of
// [github.com/pawl-go/pawl/dedup] with the event's ID. What their errors mean for the
// event is shown in the examples of [Outcome] named Ledger and Dedup, and what to do with
// the statuses of what was sent in that of [Box.Work] named Receipts. Where nothing can
// tell whether the effect happened, return [Unknown]: guessing is how an effect is lost,
// or happens twice.
//
// # Who promises what
//
// Four layers have a part in a message, and each promises its own and no more:
//
//   - The platform (for WhatsApp, Meta's) defines what exists: messages, their statuses,
//     what is allowed. It promises no order among notifications and more than one of each.
//   - The API (the Cloud API) takes what you send and delivers webhooks: again and again
//     until they are answered with success, but only for its horizon ([Source]).
//     What is not taken within it is not sent any more.
//   - A business solution provider (BSP) in between has events, IDs, signatures and
//     re-sends of its own. They are not those of the API behind it: use its source.
//   - Your operations, this package included, make something of it: conversations,
//     tickets, charges.
//
// So "accepted" in the answer of an API is not "delivered": it says that the request was
// taken, and a later event says what became of it. And the 200 that a [Handler] answers
// is not an effect: it says that the delivery is stored, not that it was worked. What was
// never delivered cannot be found here; ask the provider, now and then, for what
// matters. Finally, no library makes a firm compliant: sealing and redaction below are
// means. What may be stored, for what purpose and how long, with whose consent, and
// who may see it, the law and your contracts say and your operations have to hold.
//
// # Identity
//
// An event is known by its ID, which the source makes from signed bytes. The
// same ID with the same payload is a duplicate; with another payload it is a
// conflict, which is kept beside the first and never worked. Three more IDs lead to an
// event: the provider's message ID and the sender's own ID, by [Box.FindByMessage] and
// [Box.FindByExternal], and the event's own, by [Box.Get]. Do not correlate by the
// customer's number.
//
// # Operating
//
// What waits for a person is listed by state ([Box.List], [Operator.Inspect]):
//
//   - dead: given up on. When the cause is mended, replay it, one by one
//     ([Operator.Replay]) or all that died of an outage ([Operator.ReplayState]). Set
//     WorkOptions.MaxAttempts so that the attempts last longer than the longest outage
//     of what the handler needs, and there is little to replay. WorkOptions.DeadLetter
//     hears of each, with all its failures, before it is recorded.
//   - unknown: the effect may have happened. Find out at the remote, then resolve or
//     replay it. It never expires.
//   - quarantined: not understood. A body that its source could not decode is decoded
//     again with a newer version of it ([Operator.Redecode]); what a handler did not
//     understand is replayed to a newer handler.
//   - conflict: the same ID with other content, for a person to look at and resolve.
//
// A replay has the event's own ID, so that the guards of its effects know it. Operators
// are behind a required [Authorize], and each action is kept with the record, logged
// and told to a hook, with actor and reason. How full the inbox is and how old its
// oldest event, [Box.Totals] says; what happened, [Box.Stats] and [Hooks];
// package pawlotel makes instruments of them.
//
// # Personal data
//
// Payload, context and the texts of errors are stored in clear, unless Options.Keys
// seal payload and context. With Options.Payloads bodies are in a store of their
// own, sealed first. An event that is done keeps its body for Options.BodyRetention, is
// remembered for Options.Retention, so that it is known when it is sent again, and one
// that was given up on for Options.Keep. The next [Box.Sweep] after that removes it:
// call it now and then, since nothing else removes events and their bodies. An
// event that waits is never removed by itself. [Operator.Redact] removes the body of a
// single event, and [Operator.Forget] the event.
//
// IDs are personal data too (a WhatsApp message ID contains the customer's number), and
// cannot be sealed, since events are found by them. Logs and errors have short hashes
// in their place. Hooks get whole events: see what you do with them.
//
// # Choosing a store
//
// [NewMemory] is for tests and for events that may be lost with the process. The
// package boltinbox keeps them in a file, for one process: behind a load balancer
// all deliveries must reach it. The packages pginbox and redisinbox are for any number of
// processes; the documentation of each says what survives what. A store of your own
// implements [Store] and passes inboxtest.
package inbox
