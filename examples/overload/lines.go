package main

import (
	"time"

	"github.com/pawl-go/pawl/backpressure"
)

// A gateway with two lines of business, and a tenth more workers than both need at
// their rates: 57 workers of 10 ms serve 5,700 calls a second.
const (
	messageRate    = 5000
	noticeRate     = 200
	messageLoad    = 0.8 * messageRate
	runaway        = 50 // times its rate is what the line of the notices asks for
	gatewayMean    = 10 * time.Millisecond
	gatewayWorkers = 57
	linesLength    = 20 * time.Second
)

// shapedCase is the row that the bar is about.
const shapedCase = "at 50 x, shaper, bursts of 1 x"

// A lineRow is what messages meet beside notices.
type lineRow struct {
	Case    string  `json:"case"`
	P50     float64 `json:"messages_p50_ms"`
	P99     float64 `json:"messages_p99_ms"`
	Worse   float64 `json:"p99_worse_by"`           // than with the notices at their rate; 0.1 is 10 %
	InTime  float64 `json:"messages_in_time"`       // part of the messages
	Notices float64 `json:"notices_admitted_per_s"` // of the load of the notices
}

// A lineCase is a row to be made.
type lineCase struct {
	name  string
	load  float64 // of the notices, as a multiple of their rate
	burst int     // of the lines, as a multiple of their rate; 0: no shaper
	gate  bool
}

// lineCases are all rows; the first is what the others are compared with.
var lineCases = []lineCase{
	{"notices at their rate, no shaper", 1, 0, false},
	{"notices at 50 x their rate, no shaper", runaway, 0, false},
	{"at 50 x, gate alone", runaway, 0, true},
	{shapedCase, runaway, 1, false},
	{"at 50 x, shaper, bursts of 5 x", runaway, 5, false},
	{"at 50 x, shaper, bursts of 5 x, gate", runaway, 5, true},
}

// lines runs one line at 50 times its rate beside message traffic for 20 seconds, its
// first burst included; the median of runs, at most three.
func lines(c config, cases []lineCase) (rows []lineRow) {
	for _, l := range cases {
		var p50, p99, inTime, notices []float64
		for run := range min(c.runs, 3) {
			g := newGateway(c.seed+uint64(run), l.burst, l.gate)
			g.run(l.load * noticeRate)
			p50 = append(p50, quantile(g.took, 0.5))
			p99 = append(p99, quantile(g.took, 0.99))
			inTime = append(inTime, float64(g.inTime)/float64(g.messages))
			notices = append(notices, float64(g.notices)/linesLength.Seconds())
		}
		row := lineRow{Case: l.name, P50: median(p50), P99: median(p99), InTime: median(inTime), Notices: median(notices)}
		if rows != nil {
			row.Worse = row.P99/rows[0].P99 - 1
		}
		rows = append(rows, row)
	}
	return rows
}

var (
	high = backpressure.Priority{Class: backpressure.ClassHigh}
	low  = backpressure.Priority{Class: backpressure.ClassLow}
)

type gateway struct {
	w       *world
	s       *service
	message func() bool // asks the shaper
	notice  func() bool

	took             []float64 // by messages, in ms
	messages, inTime int
	notices          int // admitted
}

func newGateway(seed uint64, burst int, gated bool) *gateway {
	w := newWorld(seed)
	g := &gateway{w: w, message: always, notice: always}
	g.s = &service{w: w, gate: nothing{}, idle: gatewayWorkers, took: func() time.Duration { return w.around(gatewayMean) }}
	if gated {
		g.s.gate = newGate(w)
	}
	if burst == 0 {
		return g
	}
	shaper, err := backpressure.NewShaper(&backpressure.ShaperOptions{Now: w.clock, Lines: []backpressure.LineOptions{
		{Name: "messages", Rate: messageRate, Burst: burst * messageRate, Importance: 1},
		{Name: "notices", Rate: noticeRate, Burst: burst * noticeRate, Floor: noticeRate / 10},
	}})
	if err != nil {
		panic(err) // the options are right
	}
	g.message, g.notice = line(shaper, "messages"), line(shaper, "notices")
	return g
}

// line returns what asks a line for one token.
func line(s *backpressure.Shaper, name string) func() bool {
	l, err := s.Line(name)
	if err != nil {
		panic(err) // the name is right
	}
	return func() bool { return l.Allow(1).Admit }
}

func (g *gateway) run(noticeLoad float64) {
	during := func(perSecond float64) func(time.Duration) float64 {
		return func(at time.Duration) float64 {
			if at > linesLength {
				return 0
			}
			return perSecond
		}
	}
	g.w.poisson(during(messageLoad), func() {
		g.messages++
		if !g.message() {
			return
		}
		at := g.w.now
		g.s.offer(call{priority: high, deadline: at.Add(deadline), done: func(inTime bool) {
			g.took = append(g.took, float64(g.w.now.Sub(at))/1e6)
			if inTime {
				g.inTime++
			}
		}})
	})
	g.w.poisson(during(noticeLoad), func() {
		if g.notice() {
			g.notices++
			g.s.offer(call{priority: low, deadline: g.w.now.Add(deadline), done: func(bool) {}})
		}
	})
	g.w.run(4 * linesLength) // until the last has its answer
}
