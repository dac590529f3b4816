package pawlotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/dlq"
)

// DLQ registers the counters of a queue of dead letters, its views and its reviews.
//
//   - pawl.dlq.messages: messages that were put or parked, by answer: added, duplicate,
//     not_blocked, refused; what was refused had no room, and is its caller's
//   - pawl.dlq.tries: tries that were settled, by outcome: resolved, retry, review,
//     interrupted; pawl.dlq.panics: those of them that panicked
//   - pawl.dlq.alerts: times that RunOptions.Alert was called
//   - pawl.dlq.operator_actions: what reviewers asked for, by answer: authorized,
//     unauthorized; pawl.dlq.redriven: letters that redrive jobs released
//   - pawl.dlq.pins: by outcome: pinned, failed
//   - pawl.dlq.stale, leases_lost, errors: as in [dlq.Stats]
//   - pawl.dlq.running: letters that are being tried
//   - pawl.dlq.processing.max: the longest that a try took since the start
//
// What is in the store, [DLQTotals] registers. With [DLQHooks] beside it, outcomes and
// tries count the same: take the one that has the attributes you need.
func DLQ(m metric.Meter, q *dlq.Queue, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (dlq.Stats, error) { return q.Stats(), nil }, dlqRows())
}

func dlqRows() []row[dlq.Stats] {
	type S = dlq.Stats
	return []row[S]{
		counter("pawl.dlq.messages", "{message}", "Messages that were put or parked, by what they were answered.", "answer",
			by("added", func(s *S) uint64 { return s.Added }), by("duplicate", func(s *S) uint64 { return s.Duplicates }),
			by("not_blocked", func(s *S) uint64 { return s.NotBlocked }), by("refused", func(s *S) uint64 { return s.Refused })),
		counter("pawl.dlq.tries", "{try}", "Tries that were settled, by what they led to.", "outcome",
			by("resolved", func(s *S) uint64 { return s.Resolved }), by("retry", func(s *S) uint64 { return s.Retried }),
			by("review", func(s *S) uint64 { return s.Reviewed }), by("interrupted", func(s *S) uint64 { return s.Interrupted })),
		count("pawl.dlq.panics", "{try}", "Tries that panicked.", func(s *S) uint64 { return s.Panics }),
		count("pawl.dlq.alerts", "{alert}", "Alerts of failed tries.", func(s *S) uint64 { return s.Alerts }),
		counter("pawl.dlq.operator_actions", "{action}", "What reviewers asked for, by whether they might.", "answer",
			by("authorized", func(s *S) uint64 { return s.Actions }), by("unauthorized", func(s *S) uint64 { return s.Unauthorized })),
		count("pawl.dlq.redriven", "{letter}", "Letters that redrive jobs released.", func(s *S) uint64 { return s.Redriven }),
		counter("pawl.dlq.pins", "{call}", "Calls that pin or unpin a letter's ID in its guard.", "outcome",
			by("pinned", func(s *S) uint64 { return s.Pinned }), by("failed", func(s *S) uint64 { return s.PinsFailed })),
		count("pawl.dlq.stale", "{settlement}", "Settlements that came too late.", func(s *S) uint64 { return s.Stale }),
		count("pawl.dlq.leases_lost", "{key}", "Keys whose handlers were cancelled because the lease was lost.", func(s *S) uint64 { return s.LeasesLost }),
		count("pawl.dlq.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		gauge("pawl.dlq.running", "{letter}", "Letters that are being tried.", func(s *S) int { return s.Running }),
		age("pawl.dlq.processing.max", "Longest time that a try took.", func(s *S) time.Duration { return s.LongestTry }),
	}
}

// DLQTotals registers what is in the store of a queue: pawl.dlq.letters by stream and
// state (waiting, review, resolved, discarded, rejected), and pawl.dlq.oldest by stream, the
// time since the first unresolved letter was put; zero if there is none. The first streams
// by name, at most limit, have series of their own; all that follow share one, whose
// attribute rest is true instead of a stream. Each collection reads the store: one page of
// 1,000 streams after another, at most 100.
func DLQTotals(m metric.Meter, q *dlq.Queue, limit int, attrs ...attribute.KeyValue) (metric.Registration, error) {
	type S = []part[dlq.Totals]
	read := func(ctx context.Context) (S, error) {
		p := parts[dlq.Totals]{limit: limit, attr: "stream", add: func(all *dlq.Totals, t dlq.Totals) {
			all.Waiting, all.Review, all.Resolved = all.Waiting+t.Waiting, all.Review+t.Review, all.Resolved+t.Resolved
			all.Discarded, all.Rejected = all.Discarded+t.Discarded, all.Rejected+t.Rejected
			all.Oldest = max(all.Oldest, t.Oldest)
		}}
		return p.read(func(after string, n int) ([]dlq.Totals, error) { return q.Totals(ctx, after, n) }, func(t dlq.Totals) string { return t.Stream })
	}
	return observe(m, attrs, read, []row[S]{
		{"pawl.dlq.letters", "{letter}", "Letters that are stored, by state.", amounts, func(s *S, at observer) {
			for _, p := range *s {
				for state, n := range map[dlq.State]int{
					dlq.StateWaiting: p.of.Waiting, dlq.StateReview: p.of.Review, dlq.StateResolved: p.of.Resolved,
					dlq.StateDiscarded: p.of.Discarded, dlq.StateRejected: p.of.Rejected,
				} {
					at(float64(n), p.attr, attribute.String("state", state.String()))
				}
			}
		}},
		{"pawl.dlq.oldest", "s", "Time since the first unresolved letter was put.", measures, func(s *S, at observer) {
			for _, p := range *s {
				at(p.of.Oldest.Seconds(), p.attr)
			}
		}},
	})
}

// DLQHooks returns hooks that count and measure letters as things happen, by stream: set
// other fields of it as you like.
//
//   - pawl.dlq.put: messages that were put or parked, by stream and answer: added,
//     duplicate, not_blocked, refused
//   - pawl.dlq.outcomes: tries, by stream and by what became of the letter: resolved, retry,
//     review, interrupted, or unsettled if the outcome was not recorded
//   - pawl.dlq.processing: time that a try took, by stream
//   - pawl.dlq.actions: what reviewers asked for, by verb and answer: done, failed,
//     unauthorized
//   - pawl.dlq.job_changes: redrive jobs that went on, were paused by their failures, or are
//     done, by stream and state
//
// There are as many series as streams; no ID, key, actor or job becomes an attribute.
func DLQHooks(m metric.Meter, attrs ...attribute.KeyValue) (*dlq.Hooks, error) {
	counters, err := counters(m,
		instrument{"pawl.dlq.put", "{message}", "Messages that were put or parked, by what they were answered."},
		instrument{"pawl.dlq.outcomes", "{try}", "Tries, by what became of the letter."},
		instrument{"pawl.dlq.actions", "{action}", "What reviewers asked for, by what became of it."},
		instrument{"pawl.dlq.job_changes", "{change}", "Redrive jobs by what they became."})
	if err != nil {
		return nil, err
	}
	put, outcomes, actions, jobs := counters[0], counters[1], counters[2], counters[3]
	processing, err := histogram(m, "pawl.dlq.processing", "Time that a try took.", waits)
	if err != nil {
		return nil, err
	}
	with := fixed(attrs)
	return &dlq.Hooks{
		Put: func(ctx context.Context, stream, _ string, a dlq.Answer) {
			put.Add(ctx, 1, with(attribute.String("stream", stream), attribute.String("answer", dlqAnswer(a))))
		},
		Tried: func(ctx context.Context, l dlq.Letter, k dlq.Kind, took time.Duration, _, err error) {
			stream := attribute.String("stream", l.Stream)
			outcomes.Add(ctx, 1, with(stream, attribute.String("outcome", dlqOutcome(k, err))))
			processing(ctx, took, with(stream))
		},
		Acted: func(ctx context.Context, a dlq.Action, _ string, err error) {
			answer := orFailed("done", err)
			if errors.Is(err, dlq.ErrUnauthorized) {
				answer = "unauthorized"
			}
			actions.Add(ctx, 1, with(attribute.String("verb", string(a.Verb)), attribute.String("answer", answer)))
		},
		JobChanged: func(j dlq.JobStatus) {
			jobs.Add(context.Background(), 1, with(attribute.String("stream", j.Stream), attribute.String("state", string(j.State))))
		},
	}, nil
}

func dlqAnswer(a dlq.Answer) string {
	switch a {
	case dlq.Added:
		return "added"
	case dlq.Duplicate:
		return "duplicate"
	case dlq.NotBlocked:
		return "not_blocked"
	case dlq.Full:
		return "refused"
	}
	return "other"
}

func dlqOutcome(k dlq.Kind, err error) string {
	switch {
	case err != nil:
		return "unsettled"
	case k == dlq.KindResolve:
		return "resolved"
	case k == dlq.KindRetry:
		return "retry"
	case k == dlq.KindReview:
		return "review"
	case k == dlq.KindRelease:
		return "interrupted"
	}
	return "other"
}
