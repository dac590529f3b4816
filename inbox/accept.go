package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// Accept stores events and says of each what became of it, in order. When it
// returns nil they are durable; of one call, in one commit where the store has
// commits. It is for events that do not come over HTTP; [Handler] does the same
// with what it has decoded.
//
// The error is [ErrInvalid] for a bad event, before anything is stored; the
// context's error; or [ErrUnavailable] when the store gave no answer within
// Options.StoreTimeout. Some of the events may then be stored all the same: accept
// them again, which is harmless.
func (b *Box) Accept(ctx context.Context, events ...Event) ([]Answer, error) {
	arrivals := make([]Arrival, len(events))
	for i := range events {
		if err := events[i].validate(); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
		arrivals[i] = b.arrival(ctx, events[i])
	}
	return b.accept(ctx, arrivals)
}

// acceptBody stores what a verified body was decoded into. When the decoding
// failed, or an event is invalid, the body itself is stored too, in quarantine.
func (b *Box) acceptBody(ctx context.Context, provider string, body []byte, events []Event, reason error) ([]Answer, error) {
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
	if reason != nil {
		arrivals = append(arrivals, raw(provider, body, reason))
	}
	return b.accept(ctx, arrivals)
}

var errNoEvents = errors.New("the body has no events")

func (b *Box) arrival(ctx context.Context, e Event) Arrival {
	if e.Key == "" {
		e.Key = e.ID
	}
	return Arrival{Event: e, Digest: sha256.Sum256(e.Payload), Streams: b.streams(ctx, e)}
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
			b.warn(ctx, "Options.Streams panicked", "provider", e.Provider, "type", e.Type, "id", short(e.ID), "stack", string(debug.Stack()))
		}
	}()
	return slices.Clone(b.opts.Streams(e))
}

var defaultStreams = []string{DefaultStream}

// maxStreams is how many streams may work one event.
const maxStreams = 16

// raw is a body that could not be decoded. Its ID is made of its bytes, so that
// the same body delivered again is stored once.
func raw(provider string, body []byte, reason error) Arrival {
	sum := sha256.Sum256(body)
	id := provider + "/raw/" + hex.EncodeToString(sum[:])
	return Arrival{
		Event:  Event{ID: id, Provider: provider, Type: "raw", Key: id, Fingerprinted: true, Unknown: true, Payload: body},
		Digest: sum, Raw: true, Reason: cut(reason.Error()),
	}
}

// accept stores arrivals and counts the answers.
func (b *Box) accept(ctx context.Context, arrivals []Arrival) ([]Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(ctx, "accept", err)
	}
	if len(arrivals) == 0 {
		return nil, nil
	}
	var answers []Answer
	var err error
	if b.bound || b.local {
		answers, err = b.put(ctx, arrivals)
	} else {
		bounded, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
		defer cancel()
		answers, err = b.accepts.Do(bounded, arrivals)
	}
	if err != nil {
		b.counts.errors.Add(1)
		return nil, unavailable(ctx, fmt.Sprintf("accept of %d events", len(arrivals)), err)
	}
	b.accepted(arrivals, answers)
	return answers, nil
}

// mergedAccept stores the arrivals of many goroutines in one step.
func (b *Box) mergedAccept(ctx context.Context, groups [][]Arrival, _ func(int) bool) ([][]Answer, error) {
	if len(groups) == 1 {
		answers, err := b.put(ctx, groups[0])
		return [][]Answer{answers}, err
	}
	all := slices.Concat(groups...)
	answers, err := b.put(ctx, all)
	if err != nil {
		return nil, err
	}
	split := make([][]Answer, len(groups))
	for i, g := range groups {
		split[i], answers = answers[:len(g):len(g)], answers[len(g):]
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
