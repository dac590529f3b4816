package pawlotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/reconcile"
)

// Checks registers what checks have found. It reads no store: what is open is as old as
// pawl.reconcile.checks.read_age says, which Run keeps at 30 seconds.
//
//   - pawl.reconcile.checks.open: findings that are not resolved, by check and state:
//     suspected, open, acknowledged; and pawl.reconcile.checks.oldest, by check: age of the
//     oldest that is open or acknowledged. A check of which nothing is left has no value
//   - pawl.reconcile.checks.read_age: time since what is open was read; no value before that
//   - pawl.reconcile.checks.findings: by event: raised and reopened by this process, gone
//     by themselves, resolved by persons
//   - pawl.reconcile.checks.unauthorized: decisions that were refused
//   - pawl.reconcile.checks.too_many, lost: sightings for which there was no room, and what
//     was not counted: the findings are not all there are
//   - pawl.reconcile.checks.passes, failures, unclear, errors: as in [reconcile.CheckStats]
//   - pawl.reconcile.checks.pending: what is counted and not written down yet
func Checks(m metric.Meter, c *reconcile.Checks, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (reconcile.CheckStats, error) { return c.Stats(), nil }, checksRows())
}

func checksRows() []row[reconcile.CheckStats] {
	type S = reconcile.CheckStats
	return []row[S]{
		{"pawl.reconcile.checks.open", "{finding}", "Findings that are not resolved, by state.", amounts, func(s *S, at observer) {
			for _, f := range s.Open {
				check := attribute.String("check", f.Check)
				at(float64(f.Suspected), check, attribute.String("state", reconcile.Suspected.String()))
				at(float64(f.Open), check, attribute.String("state", reconcile.Open.String()))
				at(float64(f.Acknowledged), check, attribute.String("state", reconcile.Acknowledged.String()))
			}
		}},
		{"pawl.reconcile.checks.oldest", "s", "Age of the oldest finding that is open or acknowledged.", measures, func(s *S, at observer) {
			for _, f := range s.Open {
				at(f.Oldest.Seconds(), attribute.String("check", f.Check))
			}
		}},
		sinceRow("pawl.reconcile.checks.read_age", "Time since what is open was read.", func(s *S) time.Time { return s.At }),
		counter("pawl.reconcile.checks.findings", "{finding}", "Findings, by what became of them.", "event",
			by("raised", func(s *S) uint64 { return s.Raised }), by("reopened", func(s *S) uint64 { return s.Reopened }),
			by("gone", func(s *S) uint64 { return s.Gone }), by("resolved", func(s *S) uint64 { return s.Resolved })),
		count("pawl.reconcile.checks.unauthorized", "{action}", "Decisions of persons that were refused.", func(s *S) uint64 { return s.Refused }),
		count("pawl.reconcile.checks.too_many", "{sighting}", "Sightings for which there was no room.", func(s *S) uint64 { return s.TooMany }),
		count("pawl.reconcile.checks.lost", "{sighting}", "What was to be counted or reported, and was not.", func(s *S) uint64 { return s.Lost }),
		count("pawl.reconcile.checks.passes", "{pass}", "Passes of all checks.", func(s *S) uint64 { return s.Passes }),
		count("pawl.reconcile.checks.failures", "{pass}", "Passes that failed.", func(s *S) uint64 { return s.Failures }),
		count("pawl.reconcile.checks.unclear", "{finding}", "Looks at findings that could not tell whether they hold.", func(s *S) uint64 { return s.Unclear }),
		count("pawl.reconcile.checks.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		gauge("pawl.reconcile.checks.pending", "{count}", "What is counted and not written down yet.", func(s *S) int { return s.Pending }),
	}
}

// CheckHooks returns hooks that count findings as they happen, by check:
// pawl.reconcile.checks.changes, by event: raised, reopened, gone; and what failed:
// pawl.reconcile.checks.failed, by check. No subject or account becomes an attribute. Set
// other fields of it as you like.
func CheckHooks(m metric.Meter, attrs ...attribute.KeyValue) (*reconcile.CheckHooks, error) {
	made, err := counters(m,
		instrument{"pawl.reconcile.checks.changes", "{finding}", "Findings, by check and what became of them."},
		instrument{"pawl.reconcile.checks.failed", "{pass}", "Passes that failed, by check."})
	if err != nil {
		return nil, err
	}
	with := fixed(attrs)
	changed := func(ctx context.Context, check, event string) {
		made[0].Add(ctx, 1, with(attribute.String("check", check), attribute.String("event", event)))
	}
	return &reconcile.CheckHooks{
		Raised: func(ctx context.Context, check string, _ reconcile.Sighting, again bool) {
			if again {
				changed(ctx, check, "reopened")
			} else {
				changed(ctx, check, "raised")
			}
		},
		Gone: func(ctx context.Context, f reconcile.Finding, _ string) { changed(ctx, f.Check, "gone") },
		Failed: func(ctx context.Context, check string, _ error) {
			made[1].Add(ctx, 1, with(attribute.String("check", check)))
		},
	}, nil
}
