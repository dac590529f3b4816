package order

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Push stores messages and says of each what became of it, in order. Buffered and
// Duplicate are safe to acknowledge; so is Late, which is stored if there is
// Options.OnLate and counted if not; Unordered was taken by Options.OnUnavailable.
// Full should be sent again later. Conflict, StaleEpoch and TooFar are not stored
// and will not be: acknowledge them once you have looked at what the sender does.
//
// A higher epoch begins when its first message is pushed, and nothing takes it back:
// one that is wrong and too high makes all lower ones stale once they have ended, at
// once under Abandon. Only a still higher epoch helps then, or [Buffer.Forget]. So
// take epochs from where nobody can make them up.
//
// The error is nil only if the store has answered for every message, which does not
// mean that it has taken each: see [Answer.Taken]. [ErrInvalid] is returned for a bad
// message before anything is stored, and there are no answers then. In all other cases
// each message has its own: the error wraps the context's when ctx ended first, and
// [ErrUnavailable] when the store gave no answer, and a message whose Answer.Err is
// set may be stored or not. Push it again, which is harmless.
//
// Messages of one call take effect in its order. A payload is not retained.
func (b *Buffer) Push(ctx context.Context, msgs ...Message) ([]Answer, error) {
	var arrivals []Arrival
	if b.local { // where nothing holds on to them
		kept := arrivalPool.Get().(*[]Arrival)
		defer func() {
			clear(*kept)
			arrivalPool.Put(kept)
		}()
		*kept = slices.Grow((*kept)[:0], len(msgs))[:len(msgs)]
		arrivals = *kept
	} else {
		arrivals = make([]Arrival, len(msgs))
	}
	for i := range msgs {
		m, a := &msgs[i], &arrivals[i]
		if i == 0 || m.Key != msgs[i-1].Key {
			if err := validID("key", m.Key); err != nil {
				return nil, fmt.Errorf("%w (message %d of %d)", err, i+1, len(msgs))
			}
		}
		if err := b.opts.validateRest(m, true); err != nil {
			return nil, fmt.Errorf("%w (message %d of %d)", err, i+1, len(msgs))
		}
		a.Key, a.Position, a.ID, a.Payload, a.Context = m.Key, m.Position, m.ID, m.Payload, m.Context
		a.Digest = digest(m.ID, m.Payload)
	}
	return b.push(ctx, arrivals)
}

// arrivalPool keeps arrivals between pushes into a memory.
var arrivalPool = sync.Pool{New: func() any { return new([]Arrival) }}

// digest tells the contents of two messages apart. It is stored, so it must not
// change.
func digest(id string, payload []byte) (d [16]byte) {
	var small [256]byte // most messages are hashed in one piece, without an allocation
	buf := append(binary.BigEndian.AppendUint16(small[:0], uint16(len(id))), id...)
	if len(buf)+len(payload) <= len(small) {
		sum := sha256.Sum256(append(buf, payload...))
		return [16]byte(sum[:16])
	}
	h := sha256.New()
	h.Write(buf)
	h.Write(payload)
	var sum [sha256.Size]byte
	return [16]byte(h.Sum(sum[:0])[:16])
}

// push stores arrivals that are valid, and counts the answers.
func (b *Buffer) push(ctx context.Context, arrivals []Arrival) ([]Answer, error) {
	err := ctx.Err()
	if len(arrivals) == 0 {
		if err != nil {
			err = unavailable(ctx, "push", err)
		}
		return nil, err
	}
	var answers []Answer
	switch {
	case err != nil:
	case b.local && !b.bound:
		answers, err = b.ask(ctx, arrivals)
	case b.bound:
		answers = make([]Answer, len(arrivals))
		b.putAll(ctx, arrivals, answers)
	case b.opts.OnUnavailable != nil: // it may take its time
		answers, err = b.pushes.Do(ctx, arrivals)
	default:
		bounded, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
		answers, err = b.pushes.Do(bounded, arrivals)
		cancel()
	}
	if err != nil {
		answers = slices.Repeat([]Answer{{Err: err}}, len(arrivals))
	}
	return answers, b.answered(ctx, arrivals, answers)
}

// answered counts answers, wakes the workers, and returns an error for those that
// are none.
func (b *Buffer) answered(ctx context.Context, arrivals []Arrival, answers []Answer) error {
	fresh, failed := false, 0
	var first error
	for i := range answers {
		a := &answers[i]
		if a.Err != nil {
			a.Err = unavailable(ctx, fmt.Sprintf("push of number %d of key %s", arrivals[i].Position.Number, short(arrivals[i].Key)), a.Err)
			if first = orErr(first, a.Err); failed == 0 && errors.Is(a.Err, ErrUnavailable) {
				b.counts.errors.Add(1)
			}
			failed++
			continue
		}
		fresh = fresh || a.State == Buffered || a.State == Late
		b.pushed(ctx, &arrivals[i], a)
	}
	if fresh && !b.bound {
		b.Wake()
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("order: %d of %d messages have no answer, the first: %w", failed, len(answers), first)
}

// orphan counts what was stored for a caller that gave up.
func (b *Buffer) orphan(arrivals []Arrival, answers []Answer, err error) {
	if err == nil {
		b.answered(context.Background(), arrivals, answers)
	}
}

// mergedPush stores the arrivals of many goroutines. Each has an answer.
func (b *Buffer) mergedPush(ctx context.Context, groups [][]Arrival, _ func(int) bool) ([][]Answer, error) {
	all := groups[0]
	if len(groups) > 1 {
		all = slices.Concat(groups...)
	}
	answers := make([]Answer, len(all))
	if b.opts.OnUnavailable != nil {
		b.pushOrHandOver(all, answers)
	} else {
		b.putAll(ctx, all, answers)
	}
	split := make([][]Answer, len(groups))
	for i, g := range groups {
		split[i], answers = answers[:len(g):len(g)], answers[len(g):]
	}
	return split, nil
}

// pushBatch is how many messages one step of the store takes.
const pushBatch = 512

func (b *Buffer) putAll(ctx context.Context, arrivals []Arrival, answers []Answer) {
	for len(arrivals) > 0 {
		n := min(len(arrivals), pushBatch)
		b.put(ctx, arrivals[:n], answers[:n])
		arrivals, answers = arrivals[n:], answers[n:]
	}
}

// put is one step. What has no answer is sent once more, unless in a transaction,
// where that has no sense.
func (b *Buffer) put(ctx context.Context, arrivals []Arrival, answers []Answer) {
	b.putOnce(ctx, arrivals, answers)
	if b.bound {
		return
	}
	var again []Arrival
	var places []int
	for i := range answers {
		if err := answers[i].Err; err != nil && !errors.Is(err, ErrInvalid) {
			again, places = append(again, arrivals[i]), append(places, i)
		}
	}
	if len(again) == 0 || ctx.Err() != nil {
		return
	}
	second := make([]Answer, len(again))
	b.putOnce(ctx, again, second)
	for i, place := range places {
		answers[place] = second[i]
	}
}

func (b *Buffer) putOnce(ctx context.Context, arrivals []Arrival, answers []Answer) {
	got, err := b.ask(ctx, arrivals)
	if err == nil {
		copy(answers, got)
		return
	}
	for i := range answers {
		answers[i] = Answer{Err: err}
	}
}

// ask asks the store, and takes an answer that is none for what it is.
func (b *Buffer) ask(ctx context.Context, arrivals []Arrival) ([]Answer, error) {
	got, err := b.store.Push(ctx, b.params(), arrivals)
	if err != nil {
		return nil, err
	}
	if len(got) != len(arrivals) {
		return nil, fmt.Errorf("%d answers to %d arrivals", len(got), len(arrivals))
	}
	for i := range got {
		if a := &got[i]; a.Err == nil && (a.State < Buffered || a.State > TooFar) {
			a.Err = fmt.Errorf("the store answered with state %d", a.State)
		}
	}
	return got, nil
}

// orErr returns the first error there is.
func orErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
