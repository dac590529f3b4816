package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
)

// An account says what became of everything. Events, effects, pending and
// effects_duplicated cover all runs on the same data; the other counters are of
// this run.
type account struct {
	Bodies  int `json:"bodies"`
	Skipped int `json:"skipped"` // files of no known provider

	Deliveries int `json:"deliveries"` // Accepted + Rejected
	Accepted   int `json:"accepted"`
	Rejected   int `json:"rejected"`

	Duplicates  uint64 `json:"duplicates"`  // events stored before, with the same bytes
	Conflicts   uint64 `json:"conflicts"`   // events stored before, with other bytes
	Quarantined uint64 `json:"quarantined"` // authentic bodies that could not be decoded

	Events            uint64 `json:"events"`
	Effects           int    `json:"effects"`
	Pending           uint64 `json:"pending"` // events without an effect
	EffectsDuplicated int    `json:"effects_duplicated"`

	// With -order.
	Lanes           *int `json:"lanes,omitempty"`            // ordering keys of what was sent
	OrderViolations *int `json:"order_violations,omitempty"` // effects behind a later one of their lane
	GapsSkipped     *int `json:"gaps_skipped,omitempty"`     // gaps that were given up, each with its record

	// With -drop and with -degrade: events that were taken away, and those whose
	// effect happened on arrival because the order store was down.
	Dropped   *int    `json:"dropped,omitempty"`
	Unordered *uint64 `json:"unordered,omitempty"`

	// Replies, of all runs on the same data and log.
	Sent           int `json:"sent"`            // distinct ones that the gateway has sent
	SentTwice      int `json:"sent_twice"`      // that it has sent more often than once
	UnknownSettled int `json:"unknown_settled"` // that nobody could tell of, at some time
	Dead           int `json:"dead"`            // given up
	InReview       int `json:"in_review"`       // for a person to decide
	Findings       int `json:"findings"`        // open: what the checks saw, and has not gone

	Seconds float64 `json:"seconds"`
	OK      bool    `json:"ok"`
	Error   string  `json:"error,omitempty"` // why the run ended early

	list                      []effect
	replies                   int    // that are due
	raised                    uint64 // findings, in this run
	sentForged, sentMalformed int
	wrong                     []string // what should not have been, at most 10
}

// note keeps what should not have been: the run is not ok.
func (a *account) note(format string, args ...any) {
	if len(a.wrong) < 10 {
		a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
	}
}

// answered counts the answer to a delivery.
func (a *account) answered(d delivery, status int) {
	a.Deliveries++
	if status < 300 {
		a.Accepted++
	} else {
		a.Rejected++
	}
	if (d.fault == forged) != (status == 401) {
		a.note("a delivery of %s was answered %d (forged: %v)", d.provider.name, status, d.fault == forged)
	}
	switch d.fault {
	case forged:
		a.sentForged++
	case malformed:
		a.sentMalformed++
	}
}

// count asks the stores, and judges.
func (a *account) count(ctx context.Context, p *program, sent *schedule) error {
	ctx = context.WithoutCancel(ctx) // a run that was ended is counted, too
	s := p.box.Stats()
	a.Duplicates, a.Conflicts, a.Quarantined = s.Duplicates, s.Conflicts, s.Quarantined
	t, err := p.box.Totals(ctx)
	if err != nil {
		return err
	}
	a.Events = uint64(t.Pending + t.Done + t.Dead)
	if a.list, err = p.store.effects(); err != nil {
		return err
	}
	a.Effects = len(a.list)
	distinct := map[string]bool{}
	for _, e := range a.list {
		distinct[e.ID] = true
	}
	a.EffectsDuplicated = a.Effects - len(distinct)
	a.Pending = a.Events - uint64(len(distinct))
	if p.drop > 0 {
		a.Dropped = new(len(sent.dropped))
	}
	if p.order != nil {
		if err := p.order.count(ctx, sent, a); err != nil {
			return err
		}
	}
	if err := p.store.answers().count(ctx, p.gateway.setup.Log, a); err != nil {
		return err
	}
	a.OK = uint64(a.Effects) == a.Events && a.Pending == 0 && a.EffectsDuplicated == 0 &&
		(a.OrderViolations == nil || *a.OrderViolations == 0) &&
		a.Sent == a.replies && a.SentTwice == 0 && a.Dead == 0 && a.InReview == 0 && a.Findings == 0 &&
		len(a.wrong) == 0 && a.Rejected == a.sentForged && a.Quarantined >= uint64(a.sentMalformed)
	return nil
}

func (a *account) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n any, what string) { fmt.Fprintf(t, "%s\t%v\t  %s\n", name, n, what) }
	row("bodies", a.Bodies, fmt.Sprintf("and %d files skipped", a.Skipped))
	row("deliveries", a.Deliveries, fmt.Sprintf("%d accepted, %d rejected", a.Accepted, a.Rejected))
	row("duplicates", a.Duplicates, "events stored before")
	row("conflicts", a.Conflicts, "the same ID with other bytes")
	row("quarantined", a.Quarantined, "authentic, not decodable")
	row("events", a.Events, "distinct")
	row("effects", a.Effects, fmt.Sprintf("%d missing, %d duplicated", a.Pending, a.EffectsDuplicated))
	if a.Dropped != nil {
		row("dropped", *a.Dropped, "events taken away")
	}
	if a.Lanes != nil {
		row("lanes", *a.Lanes, fmt.Sprintf("%d effects out of order, %d gaps skipped", *a.OrderViolations, *a.GapsSkipped))
	}
	if a.Unordered != nil {
		row("unordered", *a.Unordered, "effects on arrival, without the order store")
	}
	row("sent", a.Sent, fmt.Sprintf("of %d replies; %d twice, %d unknown at first, %d dead, %d for a person",
		a.replies, a.SentTwice, a.UnknownSettled, a.Dead, a.InReview))
	row("findings", a.Findings, fmt.Sprintf("open, of %d in this run", a.raised))
	t.Flush()
	if a.Error != "" {
		fmt.Fprintln(w, "ended early:", a.Error)
	}
	for _, s := range a.wrong {
		fmt.Fprintln(w, s)
	}
	verdict := "not ok"
	if a.OK {
		verdict = "ok: every event has had its effect, and every message its reply, exactly once"
	}
	fmt.Fprintf(w, "%s, in %.2f s\n", verdict, a.Seconds)
}
