package pawlotel

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/inbox"
)

// Inbox registers the counters of a box: events by what they were answered, runs of
// handlers by what became of the event, deliveries that were acknowledged, rejected
// and refused, what failed, and the longest times.
//
//   - pawl.inbox.received: events, by answer: accepted, duplicate, conflict, quarantined
//   - pawl.inbox.deliveries: by answer: acknowledged, rejected, refused
//   - pawl.inbox.worked: handler runs that were settled, by outcome: done, retry, dead,
//     quarantined, unknown; runs that were interrupted by the end of Work are not in it
//   - pawl.inbox.panics, dead_letters_failed, unopened, stale, leases_lost, errors,
//     operator_actions: as in [inbox.Stats]
//   - pawl.inbox.running: keys that are being worked
//   - pawl.inbox.ack_latency.max, wait.max, processing.max: the longest since the start
//
// With [InboxHooks] beside it, events and received count the same, and so do outcomes
// and worked: take the one that has the attributes you need, and do not add them up.
func Inbox(m metric.Meter, b *inbox.Box, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (inbox.Stats, error) { return b.Stats(), nil }, inboxRows())
}

func inboxRows() []row[inbox.Stats] {
	type S = inbox.Stats
	return []row[S]{
		counter("pawl.inbox.received", "{event}", "Events that were received, by what they were answered.", "answer",
			by("accepted", func(s *S) uint64 { return s.Accepted }), by("duplicate", func(s *S) uint64 { return s.Duplicates }),
			by("conflict", func(s *S) uint64 { return s.Conflicts }), by("quarantined", func(s *S) uint64 { return s.Quarantined })),
		counter("pawl.inbox.deliveries", "{delivery}", "Deliveries, by how they were answered.", "answer",
			by("acknowledged", func(s *S) uint64 { return s.Acknowledged }), by("refused", func(s *S) uint64 { return s.Refused }),
			by("rejected", func(s *S) (n uint64) {
				for _, c := range s.Rejected {
					n += c
				}
				return n
			})),
		counter("pawl.inbox.worked", "{run}", "Handler runs that were settled, by what became of the event.", "outcome",
			by("done", func(s *S) uint64 { return s.Done }), by("retry", func(s *S) uint64 { return s.Retried }),
			by("dead", func(s *S) uint64 { return s.Dead }), by("quarantined", func(s *S) uint64 { return s.GivenToQuarantine }),
			by("unknown", func(s *S) uint64 { return s.Unknown })),
		count("pawl.inbox.panics", "{run}", "Handler runs that panicked.", func(s *S) uint64 { return s.Panics }),
		count("pawl.inbox.dead_letters_failed", "{call}", "Events that are not dead, since the dead-letter function failed.", func(s *S) uint64 { return s.DeadLettersFailed }),
		count("pawl.inbox.unopened", "{body}", "Bodies that were listed and could not be had.", func(s *S) uint64 { return s.Unopened }),
		counter("pawl.inbox.operator_actions", "{action}", "What operators asked for, by whether they might.", "answer",
			by("authorized", func(s *S) uint64 { return s.Actions }), by("unauthorized", func(s *S) uint64 { return s.Unauthorized })),
		count("pawl.inbox.stale", "{settlement}", "Settlements that came too late.", func(s *S) uint64 { return s.Stale }),
		count("pawl.inbox.leases_lost", "{key}", "Keys whose handlers were cancelled because the lease was lost.", func(s *S) uint64 { return s.LeasesLost }),
		count("pawl.inbox.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		gauge("pawl.inbox.running", "{key}", "Keys that are being worked.", func(s *S) int { return s.Running }),
		age("pawl.inbox.ack_latency.max", "Longest time until a delivery that was stored was answered.", func(s *S) time.Duration { return s.LongestAnswer }),
		age("pawl.inbox.wait.max", "Longest time between the acceptance of an event and its first attempt.", func(s *S) time.Duration { return s.LongestWait }),
		age("pawl.inbox.processing.max", "Longest time that a handler took.", func(s *S) time.Duration { return s.LongestRun }),
	}
}

// InboxTotals registers what is in the store of a box: records by state, and the age
// of the event that waits longest: pawl.inbox.records by state, and pawl.inbox.oldest.
// Each collection reads the store.
func InboxTotals(m metric.Meter, b *inbox.Box, attrs ...attribute.KeyValue) (metric.Registration, error) {
	type S = inbox.Totals
	return observe(m, attrs, b.Totals, []row[S]{
		{"pawl.inbox.records", "{record}", "Records that are stored, by state.", amounts, func(t *S, at observer) {
			for state, n := range map[inbox.State]int{
				inbox.StatePending: t.Pending, inbox.StateDone: t.Done, inbox.StateDead: t.Dead,
				inbox.StateQuarantined: t.Quarantined, inbox.StateConflict: t.Conflicts, inbox.StateUnknown: t.Unknown,
			} {
				at(float64(n), attribute.String("state", state.String()))
			}
		}},
		age("pawl.inbox.oldest", "Age of the event that waits longest.", func(t *S) time.Duration { return t.Oldest }),
	})
}

// InboxOptions say which attributes the instruments of [InboxHooks] have beside
// provider and type. Each multiplies the number of series.
type InboxOptions struct {
	// Account adds the account of an event, for WhatsApp the WABA, as account.
	Account bool
	// Phone adds what it returns for an event as phone: which of the business's phone
	// numbers it is about, best by the provider's ID for it
	// ([github.com/pawl-go/pawl/inbox/whatsapp.PhoneNumberID]); Event.Phone is the
	// number itself, which is never a customer's. Nil: there is no such attribute.
	Phone func(inbox.Event) string
	// Version is the version of the program that runs, as version. Empty: there is no
	// such attribute.
	Version string
	// Attrs are added to all.
	Attrs []attribute.KeyValue
}

// InboxHooks returns hooks that count and measure events as things happen, by their
// provider and type: set other fields of it as you like. Nil options mean defaults.
//
//   - pawl.inbox.events: events received, by answer; those accepted are the unique ones
//   - pawl.inbox.ack_latency: time until a request was answered, by provider and status
//   - pawl.inbox.rejections: deliveries that were not accepted, by provider and reason
//   - pawl.inbox.refusals: deliveries that the storage refused, by provider
//   - pawl.inbox.outcomes: handler runs by stream and by what became of the event: done,
//     retry, dead, quarantined, unknown, or unsettled if that is not known; a run that
//     the end of Work interrupted is a retry here
//   - pawl.inbox.processing: time that the handler took, by stream
//   - pawl.inbox.wait: time between acceptance and first attempt, by stream
//
// The type is the provider's own word; one that the source does not know is counted as
// "unknown", so that the series are as many as the types that somebody has thought of.
func InboxHooks(m metric.Meter, opts *InboxOptions) (*inbox.Hooks, error) {
	i := &inboxInstruments{}
	if opts != nil {
		i.opts = *opts
		i.opts.Attrs = slices.Clone(opts.Attrs)
	}
	if i.opts.Version != "" {
		i.opts.Attrs = append(i.opts.Attrs, attribute.String("version", i.opts.Version))
	}
	for name, c := range map[string]struct {
		to         *metric.Int64Counter
		unit, help string
	}{
		"pawl.inbox.events":     {&i.events, "{event}", "Events that were received, by what they were answered."},
		"pawl.inbox.rejections": {&i.rejections, "{delivery}", "Deliveries that were not accepted, by reason."},
		"pawl.inbox.refusals":   {&i.refusals, "{delivery}", "Deliveries that the storage refused."},
		"pawl.inbox.outcomes":   {&i.outcomes, "{run}", "Handler runs, by what became of the event."},
	} {
		var err error
		if *c.to, err = m.Int64Counter(name, metric.WithUnit(c.unit), metric.WithDescription(c.help)); err != nil {
			return nil, err
		}
	}
	for name, h := range map[string]struct {
		to     *metric.Float64Histogram
		help   string
		bounds []float64
	}{
		"pawl.inbox.ack_latency": {&i.ack, "Time until a request was answered.", quick},
		"pawl.inbox.processing":  {&i.processing, "Time that a handler took.", waits},
		"pawl.inbox.wait":        {&i.wait, "Time between the acceptance of an event and its first attempt.", waits},
	} {
		var err error
		if *h.to, err = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(h.help), metric.WithExplicitBucketBoundaries(h.bounds...)); err != nil {
			return nil, err
		}
	}
	return &inbox.Hooks{Accepted: i.accepted, Answered: i.answered, Rejected: i.rejected, Refused: i.refused, Worked: i.worked}, nil
}

// quick are the boundaries of answers, in seconds: providers give up after a few.
var quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

type inboxInstruments struct {
	opts                                   InboxOptions
	events, rejections, refusals, outcomes metric.Int64Counter
	ack, processing, wait                  metric.Float64Histogram
}

func (i *inboxInstruments) accepted(e inbox.Event, a inbox.Answer) {
	i.events.Add(context.Background(), 1, i.of(&e, attribute.String("answer", a.String())))
}

func (i *inboxInstruments) answered(ctx context.Context, provider string, status int, took time.Duration) {
	i.ack.Record(ctx, took.Seconds(), i.with(attribute.String("provider", provider), attribute.Int("status", status)))
}

func (i *inboxInstruments) rejected(ctx context.Context, provider string, r inbox.Reason) {
	i.rejections.Add(ctx, 1, i.with(attribute.String("provider", provider), attribute.String("reason", string(r))))
}

func (i *inboxInstruments) refused(ctx context.Context, provider string, _ error) {
	i.refusals.Add(ctx, 1, i.with(attribute.String("provider", provider)))
}

func (i *inboxInstruments) worked(ctx context.Context, r inbox.Record, o inbox.Outcome, took time.Duration, err error) {
	outcome := r.State.String()
	switch {
	case err != nil:
		outcome = "unsettled"
	case r.State == inbox.StatePending:
		outcome = "retry"
	}
	stream := attribute.String("stream", r.Stream)
	i.outcomes.Add(ctx, 1, i.of(&r.Event, stream, attribute.String("outcome", outcome)))
	i.processing.Record(ctx, took.Seconds(), i.of(&r.Event, stream))
	if r.Attempts == 1 {
		i.wait.Record(ctx, r.Age.Seconds(), i.of(&r.Event, stream))
	}
}

// of are the attributes of an event, and more.
func (i *inboxInstruments) of(e *inbox.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	typ := e.Type
	if e.Unknown && typ != "raw" {
		typ = "unknown"
	}
	more = append(more, attribute.String("provider", e.Provider), attribute.String("type", typ))
	if i.opts.Account {
		more = append(more, attribute.String("account", e.Account))
	}
	if i.opts.Phone != nil {
		more = append(more, attribute.String("phone", i.opts.Phone(*e)))
	}
	return i.with(more...)
}

func (i *inboxInstruments) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, i.opts.Attrs...)...))
}
