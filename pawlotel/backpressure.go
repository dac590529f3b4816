package pawlotel

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/backpressure"
)

// Gate registers what a gate has admitted and refused, by class of priority, and how it
// stands.
//
//   - pawl.backpressure.gate.admitted, refused, expired, given_up: calls, by class, as in
//     [backpressure.GateClassStats]: those that expired were admitted before, and in shadow
//     mode those that are counted as refused were admitted, too
//   - pawl.backpressure.gate.unclassified: calls of a class that there is not
//   - pawl.backpressure.gate.waiting, running: calls that are admitted and not started,
//     and those that run
//   - pawl.backpressure.gate.shedding: 1 while calls are refused, or would be
//   - pawl.backpressure.gate.arriving, served: calls a second, as measured
//
// [GateHooks] beside it says why calls were refused.
func Gate(m metric.Meter, g *backpressure.Gate, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (backpressure.GateStats, error) { return g.Stats(), nil }, gateRows())
}

func gateRows() []row[backpressure.GateStats] {
	type S = backpressure.GateStats
	calls := func(name, help string, value func(c *backpressure.GateClassStats) uint64) row[S] {
		return row[S]{"pawl.backpressure.gate." + name, "{call}", help, counts, func(s *S, at observer) {
			for i := range s.Classes {
				at(float64(value(&s.Classes[i])), attribute.String("class", s.Classes[i].Class.String()))
			}
		}}
	}
	type C = backpressure.GateClassStats
	return []row[S]{
		calls("admitted", "Calls that were admitted.", func(c *C) uint64 { return c.Admitted }),
		calls("refused", "Calls that were refused on arrival, or would have been.", func(c *C) uint64 { return c.Refused }),
		calls("expired", "Admitted calls whose deadline had passed when their turn came.", func(c *C) uint64 { return c.Expired }),
		calls("given_up", "Admitted calls whose callers gave up while they waited.", func(c *C) uint64 { return c.GivenUp }),
		count("pawl.backpressure.gate.unclassified", "{call}", "Calls of a class that there is not.", func(s *S) uint64 { return s.Unknown }),
		gauge("pawl.backpressure.gate.waiting", "{call}", "Calls that are admitted and not started.", func(s *S) int { return s.Waiting }),
		gauge("pawl.backpressure.gate.running", "{call}", "Calls that run.", func(s *S) int { return s.Running }),
		flag("pawl.backpressure.gate.shedding", "{gate}", "Whether calls are refused, or would be: 1 or 0.", func(s *S) bool { return s.Shedding }),
		measure("pawl.backpressure.gate.arriving", "{call}/s", "Calls that arrive, as measured.", func(s *S) float64 { return s.Arriving }),
		measure("pawl.backpressure.gate.served", "{call}/s", "Calls that are served, as measured.", func(s *S) float64 { return s.Served }),
	}
}

// Shaper registers what the lines of a shaper have admitted, refused and taken from each
// other: pawl.backpressure.shaper.calls by line and answer, borrowed and lent by line, in
// tokens, and waiting by line. There are as many series as lines. [ShaperHooks] beside it
// says why calls were refused.
func Shaper(m metric.Meter, sh *backpressure.Shaper, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (map[string]backpressure.LineStats, error) { return sh.Stats(), nil }, shaperRows())
}

func shaperRows() []row[map[string]backpressure.LineStats] {
	type S = map[string]backpressure.LineStats
	lines := func(each func(line attribute.KeyValue, l backpressure.LineStats, at observer)) func(*S, observer) {
		return func(s *S, at observer) {
			for name, l := range *s {
				each(attribute.String("line", name), l, at)
			}
		}
	}
	type L = backpressure.LineStats
	return []row[S]{
		{"pawl.backpressure.shaper.calls", "{call}", "Calls, by what they were answered.", counts, lines(func(line attribute.KeyValue, l L, at observer) {
			at(float64(l.Admitted), line, attribute.String("answer", "admitted"))
			at(float64(l.Refused), line, attribute.String("answer", "refused"))
		})},
		{"pawl.backpressure.shaper.borrowed", "{token}", "Tokens that a line took from lesser ones.", counts, lines(func(line attribute.KeyValue, l L, at observer) { at(float64(l.Borrowed), line) })},
		{"pawl.backpressure.shaper.lent", "{token}", "Tokens that more important lines took from a line.", counts, lines(func(line attribute.KeyValue, l L, at observer) { at(float64(l.Lent), line) })},
		{"pawl.backpressure.shaper.waiting", "{call}", "Callers that wait.", amounts, lines(func(line attribute.KeyValue, l L, at observer) { at(float64(l.Waiting), line) })},
	}
}

// Keyed registers the counters of a limit by key, all keys together: calls by answer,
// calls of keys that there was no room for, and how many keys are remembered.
func Keyed(m metric.Meter, k *backpressure.Keyed, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (backpressure.KeyedStats, error) { return k.Stats(), nil }, keyedRows())
}

func keyedRows() []row[backpressure.KeyedStats] {
	type S = backpressure.KeyedStats
	return []row[S]{
		counter("pawl.backpressure.keyed.calls", "{call}", "Calls, by what they were answered.", "answer",
			by("admitted", func(s *S) uint64 { return s.Admitted }), by("refused", func(s *S) uint64 { return s.Refused })),
		count("pawl.backpressure.keyed.crowded", "{call}", "Calls of keys that there was no room for, which share a rate.", func(s *S) uint64 { return s.Shared }),
		gauge("pawl.backpressure.keyed.keys", "{key}", "Keys that are remembered.", func(s *S) int { return s.Keys }),
	}
}

// Shared registers the counters of a rate that processes share: calls by answer, those
// with borrowed tokens, those that the policy decided since the store gave no answer, the
// store's errors, and whether the store is down.
func Shared(m metric.Meter, sh *backpressure.Shared, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (backpressure.SharedStats, error) { return sh.Stats(), nil }, sharedRows())
}

func sharedRows() []row[backpressure.SharedStats] {
	type S = backpressure.SharedStats
	return []row[S]{
		counter("pawl.backpressure.shared.calls", "{call}", "Calls, by what they were answered.", "answer",
			by("admitted", func(s *S) uint64 { return s.Admitted }), by("refused", func(s *S) uint64 { return s.Refused })),
		count("pawl.backpressure.shared.borrowed", "{call}", "Calls that were admitted with the tokens of lesser lines.", func(s *S) uint64 { return s.Borrowed }),
		count("pawl.backpressure.shared.undecided", "{call}", "Calls that the policy decided, since the store gave no answer.", func(s *S) uint64 { return s.Down }),
		count("pawl.backpressure.shared.errors", "{step}", "Steps that the store gave no answer to.", func(s *S) uint64 { return s.Errors }),
		flag("pawl.backpressure.shared.down", "{store}", "Whether the store is taken to be down: 1 or 0.", func(s *S) bool { return s.IsDown }),
	}
}

// Levels registers the level of a backlog and the signals that decide on it, by name:
// pawl.backpressure.levels.level, changes, refused, faults by kind (value, gauge, panic),
// signal and stale. A signal that was never told has no value.
func Levels(m metric.Meter, l *backpressure.Levels, attrs ...attribute.KeyValue) (metric.Registration, error) {
	return observe(m, attrs, func(context.Context) (backpressure.LevelsStats, error) { return l.Stats(), nil }, levelsRows())
}

func levelsRows() []row[backpressure.LevelsStats] {
	type S = backpressure.LevelsStats
	return []row[S]{
		gauge("pawl.backpressure.levels.level", "{level}", "The level, 0 to 3.", func(s *S) int { return s.Level }),
		count("pawl.backpressure.levels.changes", "{change}", "Changes of the level.", func(s *S) uint64 { return s.Changes }),
		count("pawl.backpressure.levels.refused", "{call}", "Calls that the level refused.", func(s *S) uint64 { return s.Refused }),
		counter("pawl.backpressure.levels.faults", "{fault}", "Values that made no sense, gauges without a value, and panics.", "kind",
			by("value", func(s *S) uint64 { return s.Invalid }), by("gauge", func(s *S) uint64 { return s.GaugeErrors }), by("panic", func(s *S) uint64 { return s.Panics })),
		{"pawl.backpressure.levels.signal", "{unit}", "The last value of a signal.", measures, func(s *S, at observer) {
			for name, v := range s.Signals {
				if !math.IsNaN(v) {
					at(v, attribute.String("signal", name))
				}
			}
		}},
		gauge("pawl.backpressure.levels.stale", "{signal}", "Signals that were told nothing for too long.", func(s *S) int { return len(s.Stale) }),
	}
}

// GateHooks returns hooks that count the calls that a gate refuses, by class and reason:
// pawl.backpressure.gate.refusals. It counts those that expired or gave up after they were
// admitted, too, and in shadow mode those that would have been refused. Set other fields
// of it as you like.
func GateHooks(m metric.Meter, attrs ...attribute.KeyValue) (*backpressure.GateHooks, error) {
	refusals, err := m.Int64Counter("pawl.backpressure.gate.refusals", metric.WithUnit("{call}"), metric.WithDescription("Calls that were refused, by reason."))
	if err != nil {
		return nil, err
	}
	with := fixed(attrs)
	return &backpressure.GateHooks{Refused: func(p backpressure.Priority, v backpressure.Verdict) {
		class := "none"
		if p.Class.Valid() {
			class = p.Class.String()
		}
		refusals.Add(context.Background(), 1, with(attribute.String("class", class), attribute.String("reason", reasonOf(v.Reason))))
	}}, nil
}

// ShaperHooks returns hooks that count the calls that a shaper refuses, by line and
// reason: pawl.backpressure.shaper.refusals. Set other fields of it as you like.
func ShaperHooks(m metric.Meter, attrs ...attribute.KeyValue) (*backpressure.ShaperHooks, error) {
	refusals, err := m.Int64Counter("pawl.backpressure.shaper.refusals", metric.WithUnit("{call}"), metric.WithDescription("Calls that were refused, by reason."))
	if err != nil {
		return nil, err
	}
	with := fixed(attrs)
	return &backpressure.ShaperHooks{Refused: func(line string, _ int, v backpressure.Verdict) {
		refusals.Add(context.Background(), 1, with(attribute.String("line", line), attribute.String("reason", reasonOf(v.Reason))))
	}}, nil
}

// reasonOf is a reason as an attribute: its words may change.
func reasonOf(r backpressure.Reason) string {
	switch r {
	case backpressure.NoTokens:
		return "no_tokens"
	case backpressure.Queued:
		return "queued"
	case backpressure.QueueFull:
		return "queue_full"
	case backpressure.CostInvalid:
		return "cost_invalid"
	case backpressure.KeyInvalid:
		return "key_invalid"
	case backpressure.Overload:
		return "overload"
	case backpressure.Expired:
		return "expired"
	case backpressure.GivenUp:
		return "given_up"
	case backpressure.NonCore:
		return "non_core"
	case backpressure.Paused:
		return "paused"
	case backpressure.StoreDown:
		return "store_down"
	}
	return "other"
}
