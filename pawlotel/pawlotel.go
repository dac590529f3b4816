// Package pawlotel makes OpenTelemetry instruments of what the primitives count.
//
// Functions that are named for a primitive register observable instruments over the Stats
// of one of its kind: nothing is added to its calls, and a collection costs one snapshot.
// They are [Dedup], [Seqgen], [Order], [Lanes], [Inbox], [DLQ], [Ledger], [Timeline],
// [Checks], [Gate], [Shaper], [Keyed], [Shared], [Levels], [Watchdog], [Reporter] and
// [Warmup].
//
// [Totals], [Held], [LanesWaiting], [InboxTotals], [DLQTotals] and [LedgerCounts] add what
// only the store knows, at the price of a read of the store at each collection, which has
// 5 seconds. When it fails, those instruments have no values, the others do, and the
// reader hears of the error.
//
// Functions that end in Hooks return hooks that record things as they happen: waiting
// times, ages of duplicates, latencies, outcomes by stream or type. [InboxTrace] and
// [DLQTrace] carry trace contexts from an event to its handler, its dead letter and its
// retries.
//
//	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
//	meter := provider.Meter("example.com/service")
//	...
//	_, err := pawlotel.Order(meter, buffer, attribute.String("scope", "inbound"))
//
// Counters count from when the primitive was made, in this process. Give each
// primitive attributes that tell it from others of its kind; no key, ID, subject, worker's
// name, actor or payload becomes an attribute. Names that the program chooses do: streams,
// checks, lines, signals. So do the names of accounts in [Lanes], [LedgerCounts] and
// [LedgerHooks], and of accounts and business phone numbers in [InboxHooks], where the
// caller chooses to have them.
//
// Names begin with pawl. and follow OpenTelemetry's rules
// (https://opentelemetry.io/docs/specs/semconv/general/metrics/): durations are in seconds,
// what is counted is the unit. Instruments are registered until Unregister of what the
// function returns, or until the provider is shut down. All functions are safe for
// concurrent use.
package pawlotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/seqgen"
)

// Dedup registers the counters of a guard: claims by answer, settlements by kind,
// stale settlements, lost leases, errors, effects under way, and how old duplicates
// were against the retention.
func Dedup(m metric.Meter, g *dedup.Guard, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (dedup.Stats, error) { return g.Stats(), nil }, dedupRows())
}

func dedupRows() []row[dedup.Stats] {
	type S = dedup.Stats
	return []row[S]{
		counter("pawl.dedup.claims", "{claim}", "Claims by what they were answered.", "answer",
			by("acquired", func(s *S) uint64 { return s.Acquired }), by("in_flight", func(s *S) uint64 { return s.InFlight }),
			by("done", func(s *S) uint64 { return s.Done }), by("conflict", func(s *S) uint64 { return s.Conflict }),
			by("unknown", func(s *S) uint64 { return s.Unknown })),
		count("pawl.dedup.reruns", "{claim}", "Acquired claims that were not the first attempt.", func(s *S) uint64 { return s.Reruns }),
		counter("pawl.dedup.settlements", "{settlement}", "Settlements that were applied, by kind.", "kind",
			by("complete", func(s *S) uint64 { return s.Completed }), by("release", func(s *S) uint64 { return s.Released }),
			by("hold", func(s *S) uint64 { return s.Held }), by("extend", func(s *S) uint64 { return s.Extended }),
			by("forget", func(s *S) uint64 { return s.Forgotten }), by("retain", func(s *S) uint64 { return s.Retained })),
		count("pawl.dedup.stale", "{settlement}", "Settlements that came too late.", func(s *S) uint64 { return s.Stale }),
		count("pawl.dedup.leases_lost", "{effect}", "Effects that were cancelled because their lease was lost.", func(s *S) uint64 { return s.LeasesLost }),
		count("pawl.dedup.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		gauge("pawl.dedup.running", "{effect}", "Effects under way.", func(s *S) int { return s.Running }),
		gauge("pawl.dedup.waiting", "{claim}", "Claims that wait for a call of the store.", func(s *S) int { return s.Waiting }),
		age("pawl.dedup.duplicate_age.max", "Greatest age of a completed message at the arrival of a duplicate.", func(s *S) time.Duration { return s.OldestDuplicate }),
		age("pawl.dedup.retention", "How long a completed message is remembered.", func(s *S) time.Duration { return s.Retention }),
	}
}

// Held registers how many IDs of a guard are held, up to limit, and the age of the
// oldest. Each collection reads the store.
func Held(m metric.Meter, g *dedup.Guard, limit int, attrs ...attribute.KeyValue) (metric.Registration, error) {
	type S = struct {
		n      int
		oldest time.Duration
	}
	read := func(ctx context.Context) (s S, err error) {
		s.n, s.oldest, err = g.HeldStats(ctx, limit)
		return s, err
	}
	return observe(m, attrs, read, []row[S]{
		gauge("pawl.dedup.held", "{id}", "IDs that are held.", func(s *S) int { return s.n }),
		age("pawl.dedup.held_age.max", "Age of the oldest ID that is held.", func(s *S) time.Duration { return s.oldest }),
	})
}

// Seqgen registers the counters of a generator.
func Seqgen(m metric.Meter, g *seqgen.Generator, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (seqgen.Stats, error) { return g.Stats(), nil }, seqgenRows())
}

func seqgenRows() []row[seqgen.Stats] {
	type S = seqgen.Stats
	return []row[S]{
		counter("pawl.seqgen.numbers", "{number}", "Numbers that were handed out, by mode.", "mode",
			by("single", func(s *S) uint64 { return s.Single }), by("block", func(s *S) uint64 { return s.Block }),
			by("gapless", func(s *S) uint64 { return s.Gapless })),
		count("pawl.seqgen.reserves", "{reservation}", "Reservations that the store granted.", func(s *S) uint64 { return s.Reserves }),
		count("pawl.seqgen.waits", "{call}", "Calls in mode block that waited for a reservation.", func(s *S) uint64 { return s.Waits }),
		counter("pawl.seqgen.refused", "{call}", "Answers of the store that were no numbers.", "reason",
			by("stale", func(s *S) uint64 { return s.Stale }), by("mode", func(s *S) uint64 { return s.Mode }),
			by("rolled_back", func(s *S) uint64 { return s.RolledBack }), by("exhausted", func(s *S) uint64 { return s.Exhausted })),
		counter("pawl.seqgen.voids", "{number}", "Numbers that became void.", "kind",
			by("certain", func(s *S) uint64 { return s.CertainVoids }), by("orphaned", func(s *S) uint64 { return s.OrphanedVoids }),
			by("unrecorded", func(s *S) uint64 { return s.Unrecorded })),
		count("pawl.seqgen.returned", "{key}", "Keys whose rest was returned.", func(s *S) uint64 { return s.Returned }),
		count("pawl.seqgen.errors", "{step}", "Steps that the store or the witness gave no answer to.", func(s *S) uint64 { return s.Errors }),
		gauge("pawl.seqgen.keys", "{key}", "Keys in memory.", func(s *S) int { return s.Keys }),
		gauge("pawl.seqgen.waiting", "{call}", "Calls that wait for the store.", func(s *S) int { return s.Waiting }),
		gauge("pawl.seqgen.unsettled", "{range}", "Voids that wait to be recorded.", func(s *S) int { return s.Unsettled }),
	}
}

// Order registers the counters of a buffer: messages by answer, deliveries, failures,
// what was parked, gaps by what became of them, late messages.
func Order(m metric.Meter, b *order.Buffer, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (order.Stats, error) { return b.Stats(), nil }, orderRows())
}

func orderRows() []row[order.Stats] {
	type S = order.Stats
	return []row[S]{
		counter("pawl.order.pushed", "{message}", "Messages pushed, by what they were answered.", "answer",
			by("buffered", func(s *S) uint64 { return s.Buffered }), by("duplicate", func(s *S) uint64 { return s.Duplicate }),
			by("conflict", func(s *S) uint64 { return s.Conflict }), by("late", func(s *S) uint64 { return s.Late }),
			by("stale_epoch", func(s *S) uint64 { return s.StaleEpoch }), by("full", func(s *S) uint64 { return s.Full }),
			by("too_far", func(s *S) uint64 { return s.TooFar }), by("unordered", func(s *S) uint64 { return s.Unordered })),
		counter("pawl.order.delivered", "{message}", "Messages whose delivery is recorded.", "order",
			by("in_order", func(s *S) uint64 { return s.Delivered }), by("late", func(s *S) uint64 { return s.LateDelivered })),
		count("pawl.order.failed", "{run}", "Handler runs that failed.", func(s *S) uint64 { return s.Failed }),
		count("pawl.order.retried", "{message}", "Failed messages that are tried again.", func(s *S) uint64 { return s.Retried }),
		count("pawl.order.lost", "{message}", "Failed messages that are not tried again, with at most once.", func(s *S) uint64 { return s.Lost }),
		count("pawl.order.panics", "{run}", "Handler runs that panicked.", func(s *S) uint64 { return s.Panics }),
		counter("pawl.order.parked", "{message}", "Messages that were parked, and what a person did with them.", "event",
			by("parked", func(s *S) uint64 { return s.Parked }), by("late_parked", func(s *S) uint64 { return s.LateParked }),
			by("resumed", func(s *S) uint64 { return s.Resumed }), by("dropped", func(s *S) uint64 { return s.Dropped })),
		counter("pawl.order.gaps", "{gap}", "Gaps by what became of them.", "event",
			by("opened", func(s *S) uint64 { return s.GapsOpened }), by("alerted", func(s *S) uint64 { return s.GapsAlerted }),
			by("asked", func(s *S) uint64 { return s.GapsAsked }), by("skipped", func(s *S) uint64 { return s.GapsSkipped }),
			by("resolved", func(s *S) uint64 { return s.GapsResolved }), by("voided", func(s *S) uint64 { return s.Voided })),
		count("pawl.order.skipped_numbers", "{number}", "Numbers that were given up.", func(s *S) uint64 { return s.SkippedNumbers }),
		count("pawl.order.stale", "{settlement}", "Settlements that came too late.", func(s *S) uint64 { return s.Stale }),
		count("pawl.order.leases_lost", "{key}", "Keys whose handlers were cancelled because the lease was lost.", func(s *S) uint64 { return s.LeasesLost }),
		count("pawl.order.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		count("pawl.order.callbacks_failed", "{call}", "Functions of the options that failed or panicked.", func(s *S) uint64 { return s.Callbacks }),
		count("pawl.order.reported", "{message}", "Deliveries outside of the buffer that the store was told of.", func(s *S) uint64 { return s.Reported }),
		gauge("pawl.order.unreported", "{message}", "Deliveries outside of the buffer that the store is still to be told of.", func(s *S) int { return s.Unreported }),
		count("pawl.order.forgotten", "{message}", "Deliveries outside of the buffer that the store will not be told of.", func(s *S) uint64 { return s.Forgotten }),
		gauge("pawl.order.running", "{key}", "Keys that are being worked.", func(s *S) int { return s.Running }),
		gauge("pawl.order.waiting_calls", "{call}", "Pushes that wait for the store.", func(s *S) int { return s.Waiting }),
		age("pawl.order.wait.max", "Longest time between the push of a message and its first attempt.", func(s *S) time.Duration { return s.LongestWait }),
	}
}

// Totals registers what waits in the store of a buffer: messages, parked ones, late
// ones, open gaps, gaps to be resolved, and the age of the message that waits
// longest. Each collection reads the store.
func Totals(m metric.Meter, b *order.Buffer, attrs ...attribute.KeyValue) (metric.Registration, error) {
	type S = order.Totals
	return observe(m, attrs, b.Totals, []row[S]{
		gauge("pawl.order.keys", "{key}", "Keys that are stored.", func(s *S) int { return s.Keys }),
		gauge("pawl.order.buffered", "{message}", "Messages that wait.", func(s *S) int { return s.Buffered }),
		gauge("pawl.order.parked_now", "{message}", "Messages that are parked.", func(s *S) int { return s.Parked }),
		gauge("pawl.order.late_waiting", "{message}", "Late messages that are to be handed over.", func(s *S) int { return s.LateWaiting }),
		gauge("pawl.order.gaps_open", "{gap}", "Gaps that are open.", func(s *S) int { return s.OpenGaps }),
		gauge("pawl.order.gaps_unresolved", "{gap}", "Skipped gaps that nobody has resolved.", func(s *S) int { return s.Unresolved }),
		age("pawl.order.oldest", "Age of the message that waits longest.", func(s *S) time.Duration { return s.Oldest }),
	})
}
