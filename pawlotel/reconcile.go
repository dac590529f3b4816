package pawlotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/reconcile"
)

// Ledger registers the counters of a ledger of operations.
//
//   - pawl.reconcile.calls: operations that were sent; pawl.reconcile.resends: those of them
//     that were not the first of their operation; pawl.reconcile.resends_confirmed: the
//     operations that such a call confirmed; pawl.reconcile.probes: questions to the remote
//   - pawl.reconcile.settlements: what they led to, by outcome: accepted, confirmed, failed,
//     unknown, review, deferred
//   - pawl.reconcile.receipts: applied; pawl.reconcile.strays: receipts of no operation, as
//     yet; pawl.reconcile.contradictions: what says something else than is recorded
//   - pawl.reconcile.operator_actions: decisions of persons, by answer: applied,
//     unauthorized
//   - pawl.reconcile.stale, leases_lost, errors: as in [reconcile.Stats]
//   - pawl.reconcile.unanswered: calls and probes without answer; unanswered_streak: the
//     last ones in a row; pawl.reconcile.outage: for how long the remote has given no
//     answer, zero while it does
//   - pawl.reconcile.waiting_calls: calls that wait for the store
//
// What is in the store, [LedgerCounts] registers.
func Ledger(m metric.Meter, l *reconcile.Ledger, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (reconcile.Stats, error) { return l.Stats(), nil }, ledgerRows())
}

func ledgerRows() []row[reconcile.Stats] {
	type S = reconcile.Stats
	return []row[S]{
		count("pawl.reconcile.calls", "{call}", "Operations that were sent.", func(s *S) uint64 { return s.Sent }),
		count("pawl.reconcile.resends", "{call}", "Operations that were sent again.", func(s *S) uint64 { return s.Resent }),
		count("pawl.reconcile.resends_confirmed", "{operation}", "Operations that a call which was not the first confirmed.", func(s *S) uint64 { return s.ResentConfirmed }),
		count("pawl.reconcile.probes", "{probe}", "Questions to the remote.", func(s *S) uint64 { return s.Probes }),
		counter("pawl.reconcile.settlements", "{settlement}", "Settlements that were applied, by what they led to.", "outcome",
			by("accepted", func(s *S) uint64 { return s.Accepted }), by("confirmed", func(s *S) uint64 { return s.Confirmed }),
			by("failed", func(s *S) uint64 { return s.Failed }), by("unknown", func(s *S) uint64 { return s.Unknown }),
			by("review", func(s *S) uint64 { return s.Reviews }), by("deferred", func(s *S) uint64 { return s.Deferred })),
		count("pawl.reconcile.receipts", "{receipt}", "Receipts that were applied.", func(s *S) uint64 { return s.Receipts }),
		count("pawl.reconcile.strays", "{receipt}", "Receipts of no operation, as yet.", func(s *S) uint64 { return s.Strays }),
		count("pawl.reconcile.contradictions", "{receipt}", "What says something else than what is recorded.", func(s *S) uint64 { return s.Contradictions }),
		counter("pawl.reconcile.operator_actions", "{action}", "Decisions of persons, by what became of them.", "answer",
			by("applied", func(s *S) uint64 { return s.Resolved }), by("unauthorized", func(s *S) uint64 { return s.Refused })),
		count("pawl.reconcile.stale", "{settlement}", "Settlements that came too late.", func(s *S) uint64 { return s.Stale }),
		count("pawl.reconcile.leases_lost", "{call}", "Calls that were cancelled because the lease was lost.", func(s *S) uint64 { return s.LeasesLost }),
		count("pawl.reconcile.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		count("pawl.reconcile.unanswered", "{call}", "Calls and probes without answer.", func(s *S) uint64 { return s.Unanswered }),
		gauge("pawl.reconcile.unanswered_streak", "{call}", "Calls and probes without answer, the last in a row.", func(s *S) int { return s.Streak }),
		age("pawl.reconcile.outage", "For how long the remote has given no answer; zero while it does.", func(s *S) time.Duration { return s.Outage }),
		gauge("pawl.reconcile.waiting_calls", "{call}", "Calls that wait for the store.", func(s *S) int { return s.Waiting }),
	}
}

// LedgerCounts registers what is in the store of a ledger, by account.
//
//   - pawl.reconcile.operations: by state: started, accepted, confirmed, failed, unknown
//   - pawl.reconcile.waiting: those of the failed that will be sent again, or were only
//     recorded and will be sent
//   - pawl.reconcile.review: operations that a person has to resolve
//   - pawl.reconcile.success: the share of those that have ended which are confirmed; no
//     value while none has ended
//   - pawl.reconcile.resent, resent_confirmed: operations that were sent more than once, and
//     those of them that are confirmed
//   - pawl.reconcile.oldest: age of the oldest that is open; zero if there is none
//
// The first accounts by name, at most limit, have series of their own; all that follow
// share one, whose attribute rest is true instead of an account. Accounts become
// attributes: with a limit of zero none does, and the one series has all. Each
// collection reads the store: one page of 1,000 accounts after another, at most 100.
func LedgerCounts(m metric.Meter, l *reconcile.Ledger, limit int, attrs ...attribute.KeyValue) (metric.Registration, error) {
	type C = reconcile.Counts
	type S = []part[C]
	read := func(ctx context.Context) (S, error) {
		p := parts[C]{limit: limit, attr: "account", add: func(all *C, c C) {
			all.Started, all.Accepted, all.Confirmed = all.Started+c.Started, all.Accepted+c.Accepted, all.Confirmed+c.Confirmed
			all.Failed, all.Unknown, all.Review = all.Failed+c.Failed, all.Unknown+c.Unknown, all.Review+c.Review
			all.Waiting += c.Waiting
			all.Resent, all.ResentConfirmed = all.Resent+c.Resent, all.ResentConfirmed+c.ResentConfirmed
			all.Oldest = max(all.Oldest, c.Oldest)
		}}
		return p.read(func(after string, n int) ([]C, error) { return l.Counts(ctx, after, n) }, func(c C) string { return c.Account })
	}
	of := func(name, unit, help string, k kind, value func(c *C) float64) row[S] {
		return row[S]{"pawl.reconcile." + name, unit, help, k, func(s *S, at observer) {
			for i := range *s {
				at(value(&(*s)[i].of), (*s)[i].attr)
			}
		}}
	}
	return observe(m, attrs, read, []row[S]{
		{"pawl.reconcile.operations", "{operation}", "Operations that are stored, by state.", amounts, func(s *S, at observer) {
			for _, p := range *s {
				for state, n := range map[reconcile.State]int{
					reconcile.Started: p.of.Started, reconcile.Accepted: p.of.Accepted, reconcile.Confirmed: p.of.Confirmed,
					reconcile.Failed: p.of.Failed, reconcile.Unknown: p.of.Unknown,
				} {
					at(float64(n), p.attr, attribute.String("state", state.String()))
				}
			}
		}},
		of("waiting", "{operation}", "Failed operations that will be sent again, or for the first time.", amounts, func(c *C) float64 { return float64(c.Waiting) }),
		of("review", "{operation}", "Operations that a person has to resolve.", amounts, func(c *C) float64 { return float64(c.Review) }),
		{"pawl.reconcile.success", "1", "Share of the operations that have ended which are confirmed.", measures, func(s *S, at observer) {
			for _, p := range *s {
				if p.of.Ended() > 0 {
					at(p.of.SuccessRate(), p.attr)
				}
			}
		}},
		of("resent", "{operation}", "Operations that were sent more than once.", amounts, func(c *C) float64 { return float64(c.Resent) }),
		of("resent_confirmed", "{operation}", "Operations that were sent more than once and are confirmed.", amounts, func(c *C) float64 { return float64(c.ResentConfirmed) }),
		of("oldest", "s", "Age of the oldest operation that is open.", measures, func(c *C) float64 { return c.Oldest.Seconds() }),
	})
}

// LedgerOptions say which attributes the instruments of [LedgerHooks] have.
type LedgerOptions struct {
	// Account adds the account of an operation as account, empty where a settlement does
	// not say it, as that of a receipt. It multiplies the series: add it where accounts are
	// few, and no person's.
	Account bool
	// Attrs are added to all.
	Attrs []attribute.KeyValue
}

// LedgerHooks returns hooks that count settlements as they happen, by verb, by who says so
// (call, probe, receipt, person) and by fate: applied, stale, ended (it has ended
// otherwise), not_found, lost (it is not known whether it is recorded):
// pawl.reconcile.settled; and that
// measure how long the remote gave no answer, when it answers again:
// pawl.reconcile.outages. Nil options mean defaults. Set other fields of it as you like.
func LedgerHooks(m metric.Meter, opts *LedgerOptions) (*reconcile.Hooks, error) {
	var o LedgerOptions
	if opts != nil {
		o = *opts
	}
	made, err := counters(m, instrument{"pawl.reconcile.settled", "{settlement}", "Settlements, by who says what and what became of that."})
	if err != nil {
		return nil, err
	}
	outages, err := histogram(m, "pawl.reconcile.outages", "For how long the remote gave no answer.", waits)
	if err != nil {
		return nil, err
	}
	with := fixed(o.Attrs)
	return &reconcile.Hooks{
		Settled: func(ctx context.Context, account string, s reconcile.Settlement, err error) {
			own := []attribute.KeyValue{attribute.String("verb", s.Verb.String()), attribute.String("by", sayer(s.By)), attribute.String("fate", fate(err))}
			if o.Account {
				own = append(own, attribute.String("account", account))
			}
			made[0].Add(ctx, 1, with(own...))
		},
		Outage: func(ctx context.Context, begun bool, lasted time.Duration) {
			if !begun {
				outages(ctx, lasted, with())
			}
		},
	}, nil
}

// sayer leaves out who a person is.
func sayer(by string) string {
	switch by {
	case "call", "probe", "receipt":
		return by
	}
	return "person"
}

func fate(err error) string {
	switch {
	case err == nil:
		return "applied"
	case errors.Is(err, reconcile.ErrStale):
		return "stale"
	case errors.Is(err, reconcile.ErrEnded):
		return "ended"
	case errors.Is(err, reconcile.ErrNotFound):
		return "not_found"
	}
	return "lost"
}

// Timeline registers what a timeline was told, by answer: pawl.reconcile.observations:
// appended, repeated, differs (the same event said something else), overflow (there was no
// room for it).
func Timeline(m metric.Meter, t *reconcile.Timeline, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (reconcile.TimelineStats, error) { return t.Stats(), nil }, timelineRows())
}

func timelineRows() []row[reconcile.TimelineStats] {
	type S = reconcile.TimelineStats
	return []row[S]{
		counter("pawl.reconcile.observations", "{observation}", "Observations, by what became of them.", "answer",
			by("appended", func(s *S) uint64 { return s.Appended }), by("repeated", func(s *S) uint64 { return s.Repeated }),
			by("differs", func(s *S) uint64 { return s.Differs }), by("overflow", func(s *S) uint64 { return s.Overflow })),
	}
}
