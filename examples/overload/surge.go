package main

import (
	"math"
	"time"

	"github.com/pawl-go/pawl/backpressure"
)

// The surge: 30,000 messages a second use a part of what the workers can do, and for
// five minutes there are four times as many. A text costs one unit, a picture or a
// video three, and one when it is made small; a like costs one and can wait. A
// part of all calls are clients that only look for news. (A report from a messaging
// service in production has a backlog of 47 minutes without levels and of 9 with them,
// at loads that it does not name.)
const (
	normalRate = 30_000.0
	surgeBy    = 4.0 // +300 %
	surgeFrom  = 10 * time.Minute
	surgeTo    = 15 * time.Minute
	surgeEnd   = 6 * time.Hour

	textShare  = 0.6
	mediaShare = 0.2 // of 3 units, or 1
	likesShare = 0.1 // refused at level 3
	looksShare = 0.1 // half of them with slow clients

	mediaCost = 3.0
	joinsIn   = 4 * time.Minute // new capacity: one minute to start, three in isolation
	every     = 5 * time.Second // between two looks at the backlog
)

// The rows that others look for.
const withoutLevels, withLevels = "without levels", "with levels"

// measures are which of the levels' measures are taken.
type measures struct{ scaleOut, slowClients, shrinkMedia, refuseNonCore bool }

// A surgeRow is how long the backlog of the surge lasts.
type surgeRow struct {
	Used    float64   `json:"used"` // of what the workers can do, before the surge
	Case    string    `json:"case"`
	Peak    float64   `json:"peak_backlog"`
	Drained float64   `json:"drained_after_min"` // minutes from the end of the surge; -1: not within six hours
	Refused float64   `json:"likes_refused"`     // part of all likes
	Delayed float64   `json:"looks_delayed"`     // part of all looks for news
	Shrunk  float64   `json:"media_shrunk"`      // part of all media
	Backlog []float64 `json:"-"`                 // every 5 seconds from the start of the surge
}

// drains runs the surge with all measures and with each alone, and at other shares of
// what the workers can do.
func drains() (rows []surgeRow) {
	all := measures{true, true, true, true}
	for _, r := range []struct {
		used float64
		name string
		measures
	}{
		{0.7, withoutLevels, measures{}},
		{0.7, "scale out alone", measures{scaleOut: true}},
		{0.7, "slow clients alone", measures{slowClients: true}},
		{0.7, "shrink media alone", measures{shrinkMedia: true}},
		{0.7, "refuse non-core alone", measures{refuseNonCore: true}},
		{0.7, withLevels, all},
		{0.6, withoutLevels, measures{}},
		{0.6, withLevels, all},
		{0.8, withoutLevels, measures{}},
		{0.8, withLevels, all},
	} {
		row := newSurge(r.used, r.measures).run()
		row.Used, row.Case = r.used, r.name
		rows = append(rows, row)
	}
	return rows
}

// A surge is a queue as a flow, in steps of a second; nothing in it is random.
type surge struct {
	now      time.Time
	capacity float64 // units a second
	levels   *backpressure.Levels
	takes    measures
	joins    []capacityStep
	backlog  [4]float64 // messages that wait, by kind
}

type capacityStep struct {
	at  time.Time
	add float64
}

// The kinds of calls, in the order of surge.backlog.
const (
	text = iota
	media
	likes
	looks
)

var kindShare = [4]float64{textShare, mediaShare, likesShare, looksShare}

func newSurge(used float64, m measures) *surge {
	cost := textShare + mediaShare*mediaCost + likesShare + looksShare
	s := &surge{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), takes: m}
	s.capacity = normalRate * cost / used
	levels, err := backpressure.NewLevels(&backpressure.LevelsOptions{
		Signals: []backpressure.Signal{{Name: "backlog"}}, // with the default marks
		Now:     func() time.Time { return s.now },
		ScaleOut: func(a backpressure.Advice) {
			if m.scaleOut {
				s.joins = append(s.joins, capacityStep{s.now.Add(joinsIn), a.Scale * s.capacity})
			}
		},
	})
	if err != nil {
		panic(err) // the options are right
	}
	s.levels = levels
	return s
}

// degrade is what the level asks for, as far as it is done.
func (s *surge) degrade() (slow, shrink, refuse bool) {
	d := s.levels.Degrade()
	return s.takes.slowClients && d.Has(backpressure.SlowClients),
		s.takes.shrinkMedia && d.Has(backpressure.ShrinkMedia),
		s.takes.refuseNonCore && d.Has(backpressure.RefuseNonCore)
}

func (s *surge) run() surgeRow {
	row := surgeRow{Drained: -1}
	start := s.now
	var came, refused, delayed, worked, shrunk float64
	for at := time.Duration(0); at < surgeEnd; at += time.Second {
		s.now = start.Add(at)
		for len(s.joins) > 0 && !s.now.Before(s.joins[0].at) {
			s.capacity += s.joins[0].add
			s.joins = s.joins[1:]
		}
		rate := normalRate
		if at >= surgeFrom && at < surgeTo {
			rate *= surgeBy
		}
		slow, shrink, refuse := s.degrade()
		came += rate
		for kind, share := range kindShare {
			n := rate * share
			switch {
			case kind == likes && refuse:
				refused += n
				n = 0
			case kind == looks && slow:
				delayed += n / 2
				n /= 2
			}
			s.backlog[kind] += n
		}
		done := s.work(shrink)
		worked += done
		if shrink {
			shrunk += done
		}
		if at%every == 0 {
			_ = s.levels.Observe("backlog", s.waiting())
			if at >= surgeFrom {
				row.Backlog = append(row.Backlog, s.waiting())
			}
		}
		row.Peak = max(row.Peak, s.waiting())
		if at >= surgeTo && s.waiting() < 1 {
			row.Drained = (at - surgeTo).Minutes()
			break
		}
	}
	row.Refused, row.Delayed = refused/(came*likesShare), delayed/(came*looksShare)
	row.Shrunk = shrunk / max(worked, 1)
	return row
}

// work takes from all kinds alike, as from one queue, for a second, and returns how
// many media were among it.
func (s *surge) work(shrink bool) (mediaDone float64) {
	cost := [4]float64{text: 1, media: mediaCost, likes: 1, looks: 1}
	if shrink {
		cost[media] = 1
	}
	units := 0.0
	for kind, n := range s.backlog {
		units += n * cost[kind]
	}
	part := math.Min(1, s.capacity/max(units, 1e-9))
	mediaDone = part * s.backlog[media]
	for kind := range s.backlog {
		s.backlog[kind] *= 1 - part
	}
	return mediaDone
}

func (s *surge) waiting() float64 {
	return s.backlog[text] + s.backlog[media] + s.backlog[likes] + s.backlog[looks]
}
