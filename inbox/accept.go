package inbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Accept stores events and says of each what became of it, in order. When it
// returns nil they are durable; of one call, in one commit where the store has
// commits. It is for events that do not come over HTTP; [Handler] does the same
// with what it has decoded.
//
// The error is [ErrInvalid] for a bad event, before anything is stored; the
// context's error; or [ErrUnavailable] when the store gave no answer within
// Options.StoreTimeout, or [ErrOutside] when Options.Payloads did not keep a body. Some
// of the events may then be stored all the same: accept them again, which is harmless.
func (b *Box) Accept(ctx context.Context, events ...Event) ([]Answer, error) {
	for i := range events {
		if err := events[i].validate(); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
	}
	arrivals := make([]Arrival, len(events))
	for i := range events {
		arrivals[i] = b.arrival(ctx, events[i])
	}
	return b.accept(ctx, arrivals)
}

// acceptBody stores what a verified body was decoded into. When the decoding
// failed, or an event is invalid, the body itself is stored too, in quarantine.
func (b *Box) acceptBody(ctx context.Context, provider string, body []byte, events []Event, reason error) ([]Answer, error) {
	arrivals, reason := b.arrivals(ctx, provider, events, reason)
	if reason != nil {
		arrivals = append(arrivals, b.raw(ctx, provider, body, reason))
	}
	return b.accept(ctx, arrivals)
}

// arrivals makes arrivals of the events that are valid. The reason is why not all
// of the body is among them.
func (b *Box) arrivals(ctx context.Context, provider string, events []Event, reason error) ([]Arrival, error) {
	arrivals := make([]Arrival, 0, len(events)+1)
	for i := range events {
		err := events[i].validate()
		if err == nil && events[i].Provider != provider {
			err = invalid("event of another provider than its source")
		}
		if err != nil {
			reason = fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
			continue
		}
		arrivals = append(arrivals, b.arrival(ctx, events[i]))
	}
	if reason == nil && len(events) == 0 {
		reason = errNoEvents
	}
	return arrivals, reason
}

var errNoEvents = errors.New("the body has no events")

func (b *Box) arrival(ctx context.Context, e Event) Arrival {
	if e.Key == "" {
		e.Key = e.ID
	}
	b.inject(ctx, &e)
	return Arrival{Event: e, Digest: b.digest(e.Payload), Streams: b.streams(ctx, e)}
}

// streams asks the options where an event is worked.
func (b *Box) streams(ctx context.Context, e Event) []string {
	if b.opts.Streams == nil {
		return defaultStreams
	}
	names := b.askStreams(ctx, e)
	slices.Sort(names)
	names = slices.Compact(names)
	valid := len(names) >= 1 && len(names) <= maxStreams && !slices.ContainsFunc(names, func(s string) bool { return !validName(s) })
	if !valid {
		b.warn(ctx, "Options.Streams gave no valid names; the event goes to the default stream",
			"provider", e.Provider, "type", e.Type, "id", short(e.ID))
		return defaultStreams
	}
	return names
}

// askStreams returns no names if the function panics: an event that it cannot
// take would otherwise never be stored, however often it is sent.
func (b *Box) askStreams(ctx context.Context, e Event) (names []string) {
	defer func() {
		if recover() != nil {
			names = nil
			b.warn(ctx, "Options.Streams panicked", "provider", e.Provider, "type", e.Type, "id", short(e.ID), "stack", stack())
		}
	}()
	return slices.Clone(b.opts.Streams(e))
}

var defaultStreams = []string{DefaultStream}

// maxStreams is how many streams may work one event.
const maxStreams = 16

// raw is a body that could not be decoded. Its ID is made of its bytes, so that
// the same body delivered again is stored once.
func (b *Box) raw(ctx context.Context, provider string, body []byte, reason error) Arrival {
	sum := b.digest(body)
	id := provider + "/raw/" + hex.EncodeToString(sum[:])
	e := Event{ID: id, Provider: provider, Type: rawType, Key: id, Fingerprinted: true, Unknown: true, Payload: body}
	b.inject(ctx, &e)
	return Arrival{Event: e, Digest: sum, Raw: true, Reason: Failed(reason).text()}
}

// rawType is the type of a body that could not be decoded.
const rawType = "raw"

// A batch is the arrivals of one call, as the store gets them.
type batch struct {
	arrivals []Arrival
	events   []Event // as they came, for the hook; nil if arrivals has them so
}

// accept stores arrivals and counts the answers.
func (b *Box) accept(ctx context.Context, arrivals []Arrival) ([]Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(ctx, "accept", err)
	}
	if len(arrivals) == 0 {
		return nil, nil
	}
	in := batch{arrivals: arrivals}
	var parcels []*parcel
	if b.ring != nil || b.opts.Payloads != nil {
		in.events = make([]Event, len(arrivals))
		for i := range arrivals {
			in.events[i] = arrivals[i].Event
			if p := b.arrange(&arrivals[i], i); p != nil {
				parcels = append(parcels, p)
			}
		}
	}
	answers, err := b.keep(ctx, in, parcels)
	if err != nil {
		b.counts.errors.Add(1)
		return nil, unavailable(ctx, fmt.Sprintf("accept of %d events", len(arrivals)), err)
	}
	return answers, nil
}

// keep stores a batch: what is kept outside before what refers to it. The events
// are counted when the store has them, whatever comes after.
func (b *Box) keep(ctx context.Context, in batch, parcels []*parcel) (answers []Answer, err error) {
	if err := b.putAll(ctx, parcels); err != nil {
		return nil, err
	}
	if b.bound || b.local {
		answers, err = b.put(ctx, in.arrivals)
	} else {
		bounded, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
		defer cancel()
		if len(in.arrivals) > mergeable {
			answers, err = b.put(bounded, in.arrivals)
		} else {
			answers, err = b.accepts.Do(bounded, in)
		}
	}
	if err != nil {
		return nil, err
	}
	b.accepted(in, answers)
	return answers, b.putRest(ctx, parcels, answers)
}

// mergeable is how many events an acceptance may have to share a commit with others.
// One with more has a commit of its own: it needs no company, and large ones are
// stored side by side, as far as the store can.
const mergeable = 32

// mergedAccept stores the arrivals of many goroutines in one step.
func (b *Box) mergedAccept(ctx context.Context, groups []batch, _ func(int) bool) ([][]Answer, error) {
	if len(groups) == 1 {
		answers, err := b.put(ctx, groups[0].arrivals)
		return [][]Answer{answers}, err
	}
	n := 0
	for i := range groups {
		n += len(groups[i].arrivals)
	}
	all := make([]Arrival, 0, n)
	for i := range groups {
		all = append(all, groups[i].arrivals...)
	}
	answers, err := b.put(ctx, all)
	if err != nil {
		return nil, err
	}
	split := make([][]Answer, len(groups))
	for i := range groups {
		n := len(groups[i].arrivals)
		split[i], answers = answers[:n:n], answers[n:]
	}
	return split, nil
}

// put is one step of accepting. A store that leaves an arrival without an answer
// has not said that it is stored, so it must not be answered with success.
func (b *Box) put(ctx context.Context, arrivals []Arrival) ([]Answer, error) {
	answers, err := b.store.Accept(ctx, b.params(), arrivals)
	if err != nil {
		return nil, err
	}
	if len(answers) != len(arrivals) {
		return nil, fmt.Errorf("%d answers to %d arrivals", len(answers), len(arrivals))
	}
	for i, a := range answers {
		if a < Accepted || a > Quarantined {
			return nil, fmt.Errorf("no answer to arrival %d of %d", i+1, len(arrivals))
		}
	}
	return answers, nil
}
