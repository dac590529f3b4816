package reconcile

import (
	"cmp"
	"slices"
	"strings"
)

// A Projection says what a message's status is, from what was said about it. It is a pure
// function: it does not depend on the order of the observations, and the same ones have
// the same answer in any process.
type Projection func([]Observation) Projected

// Projected is what follows from observations.
type Projected struct {
	// Status is empty if nothing was said that counts.
	Status string
	// Basis is the observation that the status follows from.
	Basis Observation
	// Contradicting are observations that cannot be true together with the basis.
	Contradicting []Observation
	// Settled says that the status is a last one, nothing that was said by now contradicts
	// it, and its time is sensible; in a group, that this holds for every participant of
	// whom anything was said: who else is in the group is not known here. Bills and promises to
	// customers use Settled only: the order of statuses is ours, and no provider's promise.
	Settled bool
	// Participants are those of a group, each by itself, by their IDs. The status of the
	// message is then the most informative of them.
	Participants []Participant
	// Unranked counts observations whose status is not known to the projection.
	Unranked int
}

// A Participant is one member of a group.
type Participant struct {
	ID string
	Projected
}

// A Status is one that a projection knows. The greater rank is the more informative.
type Status struct {
	Name  string
	Rank  int
	Last  bool     // nothing follows that takes it back
	Never []string // the names of those that cannot be true of the same recipient
}

// WhatsAppStatuses are those of WhatsApp and YCloud. Failed excludes delivered, read and
// played; where both were said, the message arrived somewhere. Failed is not a last status:
// delivered may follow it, above all where a user has several devices
// (https://docs.ycloud.com/reference-link/whatsapp-message-updated-webhook-examples). The
// ranks are ours.
func WhatsAppStatuses() []Status {
	return []Status{
		{Name: "accepted", Rank: 1},
		{Name: "sent", Rank: 2},
		{Name: "failed", Rank: 3, Never: []string{"delivered", "read", "played"}},
		{Name: "delivered", Rank: 4, Last: true, Never: []string{"failed"}},
		{Name: "read", Rank: 5, Last: true, Never: []string{"failed"}},
		{Name: "played", Rank: 6, Last: true, Never: []string{"failed"}},
	}
}

// MostInformative returns the projection to the status with the greatest rank. Of several
// observations with it one whose time is not absurd holds; then the one that happened last,
// to the second, since providers say no more; then the one that was received first; then the
// one with the smaller event ID.
func MostInformative(statuses ...Status) Projection {
	known := make(map[string]Status, len(statuses))
	for _, s := range statuses {
		s.Never = slices.Clone(s.Never)
		known[s.Name] = s
	}
	return func(os []Observation) Projected {
		of := map[string][]Observation{}
		for _, o := range os {
			of[o.Participant] = append(of[o.Participant], o)
		}
		p := informative(known, os)
		if len(of) == 1 && len(of[""]) > 0 {
			return p
		}
		p.Contradicting, p.Settled = nil, len(of) > 0
		for id, said := range of {
			one := informative(known, said)
			p.Contradicting = append(p.Contradicting, one.Contradicting...)
			if id == "" { // about the message as a whole, before it reached anyone
				p.Settled = p.Settled && len(one.Contradicting) == 0
				continue
			}
			p.Settled = p.Settled && one.Settled
			p.Participants = append(p.Participants, Participant{ID: id, Projected: one})
		}
		slices.SortFunc(p.Contradicting, byArrival)
		slices.SortFunc(p.Participants, func(a, b Participant) int { return strings.Compare(a.ID, b.ID) })
		return p
	}
}

// informative projects what was said of one recipient.
func informative(known map[string]Status, os []Observation) (p Projected) {
	best := Status{}
	for _, o := range os {
		s, ok := known[o.Status]
		if !ok {
			p.Unranked++
			continue
		}
		if p.Status == "" || s.Rank > best.Rank || s.Rank == best.Rank && before(o, p.Basis) {
			best, p.Status, p.Basis = s, s.Name, o
		}
	}
	for _, o := range os {
		s := known[o.Status]
		if slices.Contains(best.Never, o.Status) || s.Name != "" && slices.Contains(s.Never, p.Status) {
			p.Contradicting = append(p.Contradicting, o)
		}
	}
	slices.SortFunc(p.Contradicting, byArrival)
	p.Settled = best.Last && len(p.Contradicting) == 0 && !p.Basis.Absurd
	return p
}

// before says that of two observations of one rank the first holds.
func before(a, b Observation) bool {
	if a.Absurd != b.Absurd {
		return b.Absurd
	}
	return cmp.Or(cmp.Compare(b.At.Unix(), a.At.Unix()), strings.Compare(a.Status, b.Status), byArrival(a, b)) < 0
}

func byArrival(a, b Observation) int {
	return cmp.Or(a.Received.Compare(b.Received), strings.Compare(a.Event, b.Event))
}
