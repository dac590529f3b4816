package main

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// A delivery is one request of the deliverer.
type delivery struct {
	body
	fault fault
}

type fault uint8

const (
	none fault = iota
	duplicated
	malformed // truncated, signed as it is
	forged    // with a wrong signature
)

// A schedule is what is sent, in this order.
type schedule struct {
	deliveries []delivery
	lanes      map[string]bool     // those of the events that are sent
	dropped    map[string]position // by event ID: what is taken away
}

// plan says what is sent, and in which order. Faults are extra deliveries and
// never replace a good one; with the same seed they are the same. What is dropped
// is numbered like everything else, and not sent.
func plan(ctx context.Context, c config, bodies []body, store storage) (*schedule, error) {
	r := newRewriter(bodies)
	if c.repeat > 1 {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	s := &schedule{lanes: map[string]bool{}, dropped: map[string]position{}}
	faults, drops := rand.New(rand.NewPCG(c.seed, 0)), rand.New(rand.NewPCG(c.seed, 1))
	for pass := 1; pass <= c.repeat; pass++ {
		sent, err := s.take(ctx, c, r.pass(pass), store, drops)
		if err != nil {
			return nil, err
		}
		for _, b := range sent {
			copies := []delivery{{b, none}}
			if faults.Float64() < c.dup {
				copies = append(copies, delivery{b, duplicated})
			}
			if faults.Float64() < c.malformed {
				copies = append(copies, delivery{truncate(b, faults), malformed})
			}
			if faults.Float64() < c.forged {
				copies = append(copies, delivery{b, forged})
			}
			s.deliveries = append(s.deliveries, copies...)
		}
	}
	s.deliveries = shuffle(s.deliveries, c.shuffle, faults)
	return s, nil
}

// take numbers the events of a pass, takes away what is dropped, and returns the
// rest.
func (s *schedule) take(ctx context.Context, c config, bodies []body, store storage, random *rand.Rand) (sent []body, err error) {
	if !c.order && c.drop == 0 {
		return bodies, nil
	}
	events := make([][]inbox.Event, len(bodies))
	for i, b := range bodies {
		events[i], _ = b.provider.source.Decode(b.bytes) // what does not decode goes to quarantine
	}
	all := slices.Concat(events...)
	positions := make([]position, len(all))
	if c.order {
		if positions, err = store.number(ctx, all); err != nil {
			return nil, err
		}
	}
	gone := drop(events, c.drop, random)
	for i, b := range bodies {
		own := positions[:len(events[i])]
		positions = positions[len(events[i]):]
		if gone[i] {
			for j, e := range events[i] {
				s.dropped[e.ID] = own[j]
			}
			continue
		}
		if c.order {
			b.positions = writePositions(own)
			for _, p := range own {
				s.lanes[p.Lane] = true
			}
		}
		sent = append(sent, b)
	}
	return sent, nil
}

// drop chooses bodies to take away. An event goes with all its copies, so with a
// body goes every other body that has an event of it.
func drop(events [][]inbox.Event, probability float64, random *rand.Rand) (gone []bool) {
	gone = make([]bool, len(events))
	bodies := make(map[string][]int) // by event ID
	var chosen []int
	for i, list := range events {
		for _, e := range list {
			bodies[e.ID] = append(bodies[e.ID], i)
		}
		if random.Float64() < probability && len(list) > 0 {
			chosen = append(chosen, i)
		}
	}
	for len(chosen) > 0 {
		i := chosen[0]
		chosen = chosen[1:]
		if gone[i] {
			continue
		}
		gone[i] = true
		for _, e := range events[i] {
			chosen = append(chosen, bodies[e.ID]...)
		}
	}
	return gone
}

// truncate cuts a body off before its end, where it cannot be whole.
func truncate(b body, random *rand.Rand) body {
	whole := bytes.TrimSpace(b.bytes)
	n := 0
	if len(whole) > 1 {
		n = 1 + random.IntN(len(whole)-1)
	}
	b.bytes = whole[:n]
	return b
}

// shuffle moves nothing by more than n places: each delivery is late by up to n.
func shuffle(all []delivery, n int, random *rand.Rand) []delivery {
	type late struct {
		delivery
		place int
	}
	order := make([]late, len(all))
	for i, d := range all {
		order[i] = late{d, i}
		if n > 0 {
			order[i].place += random.IntN(n + 1)
		}
	}
	slices.SortStableFunc(order, func(a, b late) int { return cmp.Compare(a.place, b.place) })
	for i, d := range order {
		all[i] = d.delivery
	}
	return all
}
