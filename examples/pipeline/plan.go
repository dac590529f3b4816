package main

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
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

// plan says what is sent, and in which order. Faults are extra deliveries and
// never replace a good one; with the same seed they are the same.
func plan(c config, bodies []body) ([]delivery, error) {
	r := newRewriter(bodies)
	if c.repeat > 1 {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	random := rand.New(rand.NewPCG(c.seed, 0))
	var all []delivery
	for pass := 1; pass <= c.repeat; pass++ {
		for _, b := range r.pass(pass) {
			all = append(all, delivery{b, none})
			if random.Float64() < c.dup {
				all = append(all, delivery{b, duplicated})
			}
			if random.Float64() < c.malformed {
				all = append(all, delivery{truncate(b, random), malformed})
			}
			if random.Float64() < c.forged {
				all = append(all, delivery{b, forged})
			}
		}
	}
	return shuffle(all, c.shuffle, random), nil
}

// truncate cuts a body off before its end, where it cannot be whole.
func truncate(b body, random *rand.Rand) body {
	whole := bytes.TrimSpace(b.bytes)
	n := 0
	if len(whole) > 1 {
		n = 1 + random.IntN(len(whole)-1)
	}
	return body{b.provider, whole[:n]}
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
