package main

import (
	"time"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/retry"
)

// A small service with all layers: accepting takes two calls of its 5 workers, 250
// calls a second; what was accepted waits for delivery, 100 units a second. In the
// second minute there are four times as many messages and likes, and the notices are
// at 50 times their rate.
const (
	layersWorkers = 5
	layersMean    = 20 * time.Millisecond
	delivery      = 100.0 // units a second; a message with media is 3, or 1 when shrunk
	layersFrom    = time.Minute
	layersTo      = 2 * time.Minute
	layersJudged  = 5 * time.Minute  // what came before is judged
	layersEnd     = 70 * time.Minute // after the last retry of a dead letter
	patience      = time.Minute      // of a client
)

// A kind is a line of business.
type kind struct {
	name   string
	class  backpressure.Class
	rate   float64 // a second
	surge  float64 // times as much
	line   backpressure.LineOptions
	core   bool
	medium float64 // part of it that is media
}

var kinds = [3]kind{
	{"messages", backpressure.ClassHighest, 28, 4, backpressure.LineOptions{Name: "messages", Rate: 125, Importance: 2}, true, 0.25},
	{"notices", backpressure.ClassLow, 2.5, 50, backpressure.LineOptions{Name: "notices", Rate: 2.5, Burst: 12, Floor: 1}, true, 0},
	{"likes", backpressure.ClassLowest, 15, 4, backpressure.LineOptions{Name: "likes", Rate: 60, Floor: 5}, false, 0},
}

// layersOn are the layers that there are.
type layersOn struct{ client, shape, levels, letters bool }

// A layersRow is what became of what came in the first five minutes.
type layersRow struct {
	Case     string     `json:"case"`
	AtOnce   float64    `json:"messages_at_once"`       // part accepted at the first attempt, of those of the surge
	After    float64    `json:"messages_at_once_after"` // the same of the last two of the five minutes
	Accepted [3]float64 `json:"accepted"`               // part of the messages, notices and likes, in the end
	P99      float64    `json:"message_p99_s"`          // from when it came until it was accepted
	Retries  int        `json:"retries"`                // by clients
	Peak     int        `json:"peak_backlog"`           // accepted and not delivered
	Drained  float64    `json:"drained_after_s"`        // from the end of the surge
	Lost     int        `json:"lost"`                   // given up on, and nobody knows
	Review   int        `json:"waiting_for_review"`     // given up on, and a person is told
}

// A layerCase is a row to be made.
type layerCase struct {
	name string
	on   layersOn
}

// layerCases are the layers, one on top of the other.
var layerCases = []layerCase{
	{"none: a retry every second", layersOn{}},
	{"1 the client's gradient", layersOn{client: true}},
	{"2 and shaper and gate", layersOn{client: true, shape: true}},
	{"3 and levels", layersOn{client: true, shape: true, levels: true}},
	{"4 and dead letters", layersOn{client: true, shape: true, levels: true, letters: true}},
}

// layers runs the service with its layers, once.
func layers(c config, cases []layerCase) (rows []layersRow) {
	for _, l := range cases {
		rows = append(rows, newFour(c.seed, l.on).run(l.name))
	}
	return rows
}

// A four is the service with its layers.
type four struct {
	w      *world
	on     layersOn
	accept *service
	lines  [3]func() bool
	levels *backpressure.Levels

	backlog  []item
	capacity float64
	busy     bool
	peak     int
	drained  time.Duration // the last time at which anything waited for long

	sent    []*sent
	retries int
}

// An item waits for delivery.
type item struct {
	kind  int
	media bool
}

// A sent is what a client wants to have accepted.
type sent struct {
	item
	p        backpressure.Priority
	came     time.Duration
	at       time.Duration // when it was accepted
	attempts int           // by its client
	letters  int           // retries as a dead letter
	accepted bool
	lost     bool
	review   bool
}

func newFour(seed uint64, on layersOn) *four {
	w := newWorld(seed)
	f := &four{w: w, on: on, capacity: delivery}
	f.accept = &service{w: w, gate: drops{w}, idle: layersWorkers, took: func() time.Duration { return w.around(layersMean) }}
	for i := range f.lines {
		f.lines[i] = always
	}
	if on.shape {
		f.accept.gate = newGate(w)
		s, err := backpressure.NewShaper(&backpressure.ShaperOptions{Now: w.clock, Lines: []backpressure.LineOptions{
			kinds[0].line, kinds[1].line, kinds[2].line,
		}})
		if err != nil {
			panic(err) // the options are right
		}
		for i := range f.lines {
			f.lines[i] = line(s, kinds[i].name)
		}
	}
	if on.levels {
		f.watch()
	}
	for i, k := range kinds {
		w.poisson(func(at time.Duration) float64 {
			if at >= layersFrom && at < layersTo {
				return k.rate * k.surge
			}
			return k.rate
		}, func() { f.bring(i) })
	}
	return f
}

// watch sets up the levels, with the default marks divided by 5,000, as the
// service is small.
func (f *four) watch() {
	levels, err := backpressure.NewLevels(&backpressure.LevelsOptions{
		Now:     f.w.clock,
		Signals: []backpressure.Signal{{Name: "backlog", Enter: [backpressure.MaxLevel]float64{20, 200, 1000}}},
		ScaleOut: func(a backpressure.Advice) {
			f.w.after(joinsIn, func() { f.capacity += a.Scale * delivery })
		},
	})
	if err != nil {
		panic(err) // the options are right
	}
	f.levels = levels
	var look func()
	look = func() {
		_ = levels.Observe("backlog", float64(len(f.backlog)))
		f.w.after(every, look)
	}
	look()
}

func (f *four) bring(i int) {
	s := &sent{item: item{kind: i, media: f.w.random.Float64() < kinds[i].medium}, came: f.w.since()}
	s.p = backpressure.Priority{Class: kinds[i].class, User: int8(f.w.random.IntN(128) - 64)}
	if s.came < layersJudged {
		f.sent = append(f.sent, s)
	}
	f.try(s)
}

// try makes one attempt: the layers that can refuse at the door, and then two calls.
func (f *four) try(s *sent) {
	s.attempts++
	if f.on.levels {
		if v := f.levels.Verdict(kinds[s.kind].core); !v.Admit {
			f.failed(s, v.RetryAfter)
			return
		}
	}
	if !f.lines[s.kind]() {
		f.failed(s, 0)
		return
	}
	f.call(s, 1)
}

func (f *four) call(s *sent, nth int) {
	answered, given := false, false
	v := f.accept.offer(call{priority: s.p, deadline: f.w.now.Add(deadline), done: func(inTime bool) {
		switch {
		case !inTime || given:
		case nth < perTask:
			answered = true
			f.call(s, nth+1)
		default:
			answered = true
			f.accepted(s)
		}
	}})
	if !v.Admit {
		f.failed(s, v.RetryAfter)
		return
	}
	f.w.after(deadline+1, func() {
		if !answered {
			given = true
			f.failed(s, 0)
		}
	})
}

// failed is after an attempt that failed: the client tries again for a minute,
// and then there is the dead letter, if there are any.
func (f *four) failed(s *sent, asked time.Duration) {
	if s.letters > 0 {
		f.letter(s)
		return
	}
	wait := time.Second
	if f.on.client {
		wait = retry.Gradient().WithJitter(retry.EqualJitter).DelayAfter(s.attempts, f.w.random.Uint64(), asked)
	}
	if f.w.since()+wait-s.came <= patience {
		f.retries++
		f.w.after(wait, func() { f.try(s) })
		return
	}
	if f.on.letters {
		f.letter(s)
		return
	}
	s.lost = true
}

// letter tries again after 5, 10, 15 and 25 minutes; then a person is asked.
func (f *four) letter(s *sent) {
	if s.letters++; s.letters > 4 {
		s.review = true
		return
	}
	f.w.after(retry.Fibonacci(5*time.Minute, 10*time.Minute).Delay(s.letters, 0), func() { f.try(s) })
}

func (f *four) accepted(s *sent) {
	s.accepted, s.at = true, f.w.since()
	f.backlog = append(f.backlog, s.item)
	f.peak = max(f.peak, len(f.backlog))
	f.deliver()
}

// deliver works at the backlog.
func (f *four) deliver() {
	if len(f.backlog) > int(2*delivery) { // two seconds
		f.drained = f.w.since()
	}
	if f.busy || len(f.backlog) == 0 {
		return
	}
	next := f.backlog[0]
	f.backlog = f.backlog[1:]
	units := 1.0
	if next.media && !(f.on.levels && f.levels.Degrade().Has(backpressure.ShrinkMedia)) {
		units = mediaCost
	}
	f.busy = true
	f.w.after(time.Duration(units/f.capacity*1e9), func() {
		f.busy = false
		f.deliver()
	})
}

func (f *four) run(name string) layersRow {
	end := layersJudged + 2*patience
	if f.on.letters {
		end = layersEnd
	}
	f.w.run(end)
	row := layersRow{Case: name, Retries: f.retries, Peak: f.peak, Drained: max(f.drained-layersTo, 0).Seconds()}
	var came, accepted [3]float64
	var inSurge, atOnce, after, atOnceAfter float64
	var took []float64
	for _, s := range f.sent {
		came[s.kind]++
		if s.lost {
			row.Lost++
		}
		if s.review {
			row.Review++
		}
		if s.accepted {
			accepted[s.kind]++
		}
		if s.kind != 0 {
			continue
		}
		if s.accepted {
			took = append(took, (s.at - s.came).Seconds())
		}
		one := 0.0
		if s.accepted && s.attempts == 1 {
			one = 1
		}
		switch {
		case s.came >= layersFrom && s.came < layersTo:
			inSurge, atOnce = inSurge+1, atOnce+one
		case s.came >= layersJudged-2*time.Minute:
			after, atOnceAfter = after+1, atOnceAfter+one
		}
	}
	for i := range came {
		row.Accepted[i] = accepted[i] / came[i]
	}
	row.AtOnce, row.After, row.P99 = atOnce/inSurge, atOnceAfter/after, quantile(took, 0.99)
	return row
}
