package pawlotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// Watchdog registers what a watchdog has found and done. No worker's name becomes an
// attribute: which one it is stands in the log and in the answer of Round.
//
//   - pawl.watchdog.workers: workers of the last round, by verdict; pawl.watchdog.states:
//     the same workers, by state, which is why; pawl.watchdog.given_up: those of them that
//     are not restarted any more. Several watchdogs of a scope each see all of it: take
//     the greatest, and do not add them up
//   - pawl.watchdog.up_to_date: 1 while the last round was answered and is not long ago;
//     while it is 0 all workers are undecided, and nobody is restarted
//   - pawl.watchdog.round_age: time since the last round that was answered; nothing before
//     the first
//   - pawl.watchdog.rounds: by outcome: answered, failed; pawl.watchdog.acts_failed: rounds
//     in which the store took not every action
//   - pawl.watchdog.found: times that a worker became stuck or a zombie, by verdict;
//     pawl.watchdog.changes: of verdicts and states
//   - pawl.watchdog.restarts: attempts of this watchdog; restarts_failed, restarts_postponed
//     for want of a place, restarts_unsettled whose end is not written down;
//     restarts_running, restarts_overdue: now
//   - pawl.watchdog.ended: workers that this watchdog has given up, seen recover, or
//     forgotten, by event; pawl.watchdog.panics: of hooks
func Watchdog(m metric.Meter, w *watchdog.Watchdog, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (watchdog.Stats, error) { return w.Stats(), nil }, watchdogRows())
}

func watchdogRows() []row[watchdog.Stats] {
	type S = watchdog.Stats
	return []row[S]{
		{"pawl.watchdog.workers", "{worker}", "Workers of the last round, by verdict.", amounts, func(s *S, at observer) {
			for v := watchdog.Undecided; v <= watchdog.Gone; v++ { // also those that nobody has
				at(float64(s.Workers[v]), attribute.String("verdict", snake(v.String())))
			}
		}},
		{"pawl.watchdog.states", "{worker}", "Workers of the last round, by state.", amounts, func(s *S, at observer) {
			for v := watchdog.Unknown; v <= watchdog.StoppedPolling; v++ {
				at(float64(s.States[v]), attribute.String("state", snake(v.String())))
			}
		}},
		gauge("pawl.watchdog.given_up", "{worker}", "Workers that are given up.", func(s *S) int { return s.GivenUpNow }),
		flag("pawl.watchdog.up_to_date", "{watchdog}", "Whether the last round can be believed: 1 or 0.", func(s *S) bool { return s.UpToDate }),
		sinceRow("pawl.watchdog.round_age", "Time since the last round that was answered.", func(s *S) time.Time { return s.LastRound }),
		counter("pawl.watchdog.rounds", "{round}", "Rounds, by whether the store answered.", "outcome",
			by("answered", func(s *S) uint64 { return s.Rounds }), by("failed", func(s *S) uint64 { return s.FailedRounds })),
		count("pawl.watchdog.acts_failed", "{round}", "Rounds in which the store took not every action.", func(s *S) uint64 { return s.FailedActs }),
		counter("pawl.watchdog.found", "{worker}", "Times that a worker became bad, by verdict.", "verdict",
			by("stuck", func(s *S) uint64 { return s.Stuck }), by("zombie", func(s *S) uint64 { return s.Zombies })),
		count("pawl.watchdog.changes", "{change}", "Changes of verdicts and states.", func(s *S) uint64 { return s.Changes }),
		count("pawl.watchdog.restarts", "{restart}", "Attempts to restart a worker.", func(s *S) uint64 { return s.Restarts }),
		count("pawl.watchdog.restarts_failed", "{restart}", "Attempts that failed.", func(s *S) uint64 { return s.FailedRestarts }),
		count("pawl.watchdog.restarts_postponed", "{restart}", "Times that no place was free for an attempt.", func(s *S) uint64 { return s.Postponed }),
		count("pawl.watchdog.restarts_unsettled", "{restart}", "Attempts whose end could not be written down.", func(s *S) uint64 { return s.Unsettled }),
		gauge("pawl.watchdog.restarts_running", "{restart}", "Attempts that run.", func(s *S) int { return s.Restarting }),
		gauge("pawl.watchdog.restarts_overdue", "{restart}", "Attempts that run although their time is up.", func(s *S) int { return s.Overdue }),
		counter("pawl.watchdog.ended", "{worker}", "Workers that were given up, were well again, or are not listed any more.", "event",
			by("given_up", func(s *S) uint64 { return s.GivenUp }), by("recovered", func(s *S) uint64 { return s.Recovered }),
			by("forgotten", func(s *S) uint64 { return s.Forgotten })),
		count("pawl.watchdog.panics", "{hook}", "Hooks that panicked.", func(s *S) uint64 { return s.Panics }),
	}
}

// WatchdogHooks returns hooks that record how long things took: pawl.watchdog.round, by
// outcome (answered, failed), and pawl.watchdog.restart, by outcome (done, failed); and that
// count what workers became, by verdict and state: pawl.watchdog.became. Set other fields
// of it as you like.
func WatchdogHooks(m metric.Meter, attrs ...attribute.KeyValue) (*watchdog.Hooks, error) {
	round, err := histogram(m, "pawl.watchdog.round", "Time that a round took.", quick)
	if err != nil {
		return nil, err
	}
	restart, err := histogram(m, "pawl.watchdog.restart", "Time that an attempt to restart a worker took.", waits)
	if err != nil {
		return nil, err
	}
	became, err := m.Int64Counter("pawl.watchdog.became", metric.WithUnit("{worker}"), metric.WithDescription("Workers whose verdict or state changed, by what they became."))
	if err != nil {
		return nil, err
	}
	with := fixed(attrs)
	ctx := context.Background()
	return &watchdog.Hooks{
		Round: func(_ int, took time.Duration, err error) {
			round(ctx, took, with(attribute.String("outcome", orFailed("answered", err))))
		},
		Restarted: func(_ watchdog.Incident, err error, took time.Duration) {
			restart(ctx, took, with(attribute.String("outcome", orFailed("done", err))))
		},
		Changed: func(c watchdog.Change) {
			if c.Worker.Verdict == c.WasVerdict && c.Worker.State == c.WasState {
				return // it was given up, or is not any more
			}
			became.Add(ctx, 1, with(attribute.String("verdict", snake(c.Worker.Verdict.String())), attribute.String("state", snake(c.Worker.State.String()))))
		},
	}, nil
}

// Reporter registers what became of the heartbeats of a worker: pawl.watchdog.beats by
// outcome (taken, failed), pawl.watchdog.beat_age, the time since the store took the last
// one and nothing before the first, pawl.watchdog.fenced, blind, and handlers, those that
// run. Give it attributes that tell the workers of a process apart, such as the name of
// the loop; not the name of the worker, if processes make their own.
func Reporter(m metric.Meter, r *watchdog.Reporter, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (watchdog.ReporterStats, error) { return r.Stats(), nil }, reporterRows())
}

func reporterRows() []row[watchdog.ReporterStats] {
	type S = watchdog.ReporterStats
	return []row[S]{
		counter("pawl.watchdog.beats", "{heartbeat}", "Heartbeats, by whether the store took them.", "outcome",
			by("taken", func(s *S) uint64 { return s.Beats }), by("failed", func(s *S) uint64 { return s.Failed })),
		sinceRow("pawl.watchdog.beat_age", "Time since the store took a heartbeat.", func(s *S) time.Time { return s.LastBeat }),
		count("pawl.watchdog.fenced", "{time}", "Times that another instance took the name.", func(s *S) uint64 { return s.Fenced }),
		count("pawl.watchdog.blind", "{heartbeat}", "Heartbeats for which the sample gave no answer.", func(s *S) uint64 { return s.Blind }),
		gauge("pawl.watchdog.handlers", "{handler}", "Handlers that run.", func(s *S) int { return s.Running }),
	}
}

// Warmup registers how far a warm-up is: pawl.watchdog.warmup.phase, 1 for the phase it is
// in and 0 for the others, left, the rest of its window, results by kind (normal,
// abnormal), check_runs, checks_failed, windows, joins, resets and panics.
func Warmup(m metric.Meter, w *watchdog.Warmup, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (watchdog.WarmupStats, error) { return w.Stats(), nil }, warmupRows())
}

func warmupRows() []row[watchdog.WarmupStats] {
	type S = watchdog.WarmupStats
	return []row[S]{
		{"pawl.watchdog.warmup.phase", "{instance}", "The phase that it is in: 1 or 0.", amounts, func(s *S, at observer) {
			for p := watchdog.Isolated; p <= watchdog.Joined; p++ {
				in := 0.0
				if p == s.Phase {
					in = 1
				}
				at(in, attribute.String("phase", snake(p.String())))
			}
		}},
		age("pawl.watchdog.warmup.left", "Rest of the window.", func(s *S) time.Duration { return s.Left }),
		counter("pawl.watchdog.warmup.results", "{result}", "Results that were observed.", "kind",
			by("normal", func(s *S) uint64 { return s.Normal }), by("abnormal", func(s *S) uint64 { return s.Abnormal })),
		count("pawl.watchdog.warmup.check_runs", "{run}", "Runs of the checks.", func(s *S) uint64 { return s.CheckRuns }),
		count("pawl.watchdog.warmup.checks_failed", "{check}", "Checks that failed.", func(s *S) uint64 { return s.CheckFailures }),
		count("pawl.watchdog.warmup.windows", "{window}", "Windows that have begun.", func(s *S) uint64 { return s.Windows }),
		count("pawl.watchdog.warmup.joins", "{time}", "Times that it became ready.", func(s *S) uint64 { return s.Joins }),
		count("pawl.watchdog.warmup.resets", "{time}", "Times that it was reset.", func(s *S) uint64 { return s.Resets }),
		count("pawl.watchdog.warmup.panics", "{call}", "Hooks and checks that panicked.", func(s *S) uint64 { return s.Panics }),
	}
}

// sinceRow is a gauge of the time since a moment by this process's clock; without one it
// has no value.
func sinceRow[S any](name, help string, moment func(s *S) time.Time) row[S] {
	return row[S]{name, "s", help, measures, func(s *S, at observer) {
		if t := moment(s); !t.IsZero() {
			at(time.Since(t).Seconds())
		}
	}}
}
