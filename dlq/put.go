package dlq

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Dead is a message that could not be processed, and why.
type Dead struct {
	Message
	// Cause is the error of the last attempt. Its types, text and fingerprint are kept.
	Cause error
	// Stack, if there is one, is kept as far as [MaxStack] goes. A [*PanicError] brings
	// its own.
	Stack []byte
}

// Put stores messages that could not be processed, and returns one answer for each:
// [Added], or [Duplicate] if an unresolved letter of the stream has its ID, whose
// attempts then have the new failure, too. If that letter is being tried at this
// moment, what comes of the try is not recorded and it is tried again later, since
// the failure may be that of the message which RunOptions.Return has just put back. A
// letter of the ID that has ended is no obstacle. When Put returns nil, all are durable,
// as far as the store is.
//
// The error is [ErrInvalid], of which a [*SizeError] is one, before anything is sent;
// [ErrFull] if some letters were answered [Full] and not stored: they are the
// caller's, to keep elsewhere or to refuse; [ErrUnavailable] if the store gave no
// answer: put them again. A caller that gave up (its context's error) does not know
// either.
func (q *Queue) Put(ctx context.Context, dead ...Dead) ([]Answer, error) {
	puts := make([]Put, len(dead))
	for i := range dead {
		m, _ := original(&dead[i].Message)
		if err := q.validate(&m); err != nil {
			return nil, of(err, i, len(dead))
		}
		a := q.attempt(dead[i].Cause, dead[i].Stack)
		puts[i] = q.arrange(ctx, &m)
		puts[i].Failure, puts[i].Delay = a.failure(), q.delay(1, m.ID)
	}
	return q.persist(ctx, puts)
}

// Park stores messages that have not failed if their keys have unresolved letters,
// behind those: [Added] or [Duplicate], and they are worked by [Queue.Run] when their
// turn has come. Otherwise the answer is [NotBlocked], and the message is the
// caller's to work. Messages without key, and those that RunOptions.Return has put
// back, are never blocked. The errors are those of [Queue.Put].
//
// Between an answer of NotBlocked and the end of the caller's work a letter of the key
// may be put: work the messages of a key one at a time, as an inbox or an order buffer
// does.
func (q *Queue) Park(ctx context.Context, messages ...Message) ([]Answer, error) {
	answers := make([]Answer, len(messages))
	var puts []Put
	var at []int
	for i := range messages {
		m, returned := original(&messages[i])
		if err := q.validate(&m); err != nil {
			return nil, of(err, i, len(messages))
		}
		if answers[i] = NotBlocked; m.Key == "" || returned {
			continue
		}
		p := q.arrange(ctx, &m)
		p.IfBlocked = true
		puts, at = append(puts, p), append(at, i)
	}
	if len(puts) == 0 {
		return answers, nil
	}
	got, err := q.persist(ctx, puts)
	if got == nil {
		return nil, err
	}
	for i, a := range got {
		answers[at[i]] = a
	}
	return answers, err
}

func of(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("%w (letter %d of %d)", err, i+1, n)
}

// original is the message without [HeaderReturned], and whether it had it.
func original(m *Message) (without Message, returned bool) {
	without = *m
	if _, returned = m.Headers[HeaderReturned]; returned {
		without.Headers = maps.Clone(m.Headers)
		delete(without.Headers, HeaderReturned)
	}
	return without, returned
}

// arrange makes of a message what the store gets.
func (q *Queue) arrange(ctx context.Context, m *Message) Put {
	content := Content{m.Payload, q.inject(ctx, m.Headers)}
	p := Put{Nonce: newNonce(), Stream: m.Stream, ID: m.ID, Key: m.Key}
	p.Body, p.Digest = q.encode(m.Stream, m.ID, content)
	return p
}

// inject adds the trace context, if it fits.
func (c *core) inject(ctx context.Context, headers map[string]string) (with map[string]string) {
	if c.opts.Trace == nil || c.opts.Trace.Inject == nil {
		return headers
	}
	defer func() {
		if recover() != nil {
			c.warn(ctx, "Options.Trace.Inject panicked; the letter goes without a trace")
			with = headers
		}
	}()
	with = make(map[string]string, len(headers)+2)
	maps.Copy(with, headers)
	c.opts.Trace.Inject(ctx, with)
	if err := c.validContent(Content{Headers: with}); err != nil {
		c.warn(ctx, "the trace context does not fit into the headers; the letter goes without", "error", err)
		return headers
	}
	return with
}

// persist sends letters until they are answered, counts, and pins.
func (q *Queue) persist(ctx context.Context, puts []Put) ([]Answer, error) {
	if len(puts) == 0 {
		return nil, nil
	}
	answers, err := q.sendPuts(ctx, puts)
	if err != nil {
		q.counts.errors.Add(1)
		return nil, unavailable(ctx, fmt.Sprintf("put of %d letters", len(puts)), err)
	}
	// What is stored is pinned, also when the caller has given up by now.
	pinning, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.opts.StoreTimeout)
	defer cancel()
	full, added := 0, false
	for i, a := range answers {
		q.put(ctx, &puts[i], a)
		switch a {
		case Full:
			full++
		case Added, Duplicate:
			added = added || puts[i].Delay == 0
			q.pin(pinning, puts[i].Stream, puts[i].ID)
		}
	}
	if added && !q.bound {
		q.Wake()
	}
	if full > 0 {
		return answers, fmt.Errorf("%w: %d of %d were not stored", ErrFull, full, len(puts))
	}
	return answers, nil
}

func (q *Queue) sendPuts(ctx context.Context, puts []Put) (answers []Answer, err error) {
	if q.bound || q.local {
		answers, err = q.store.Put(ctx, q.params(), puts)
		return q.answered(puts, answers, err)
	}
	err = q.again(ctx, func(ctx context.Context) (err error) {
		answers, err = q.puts.Do(ctx, puts)
		return err
	})
	return answers, err
}

// mergedPut stores the letters of many callers in one step.
func (q *Queue) mergedPut(ctx context.Context, groups [][]Put, _ func(int) bool) ([][]Answer, error) {
	batch := groups[0]
	if len(groups) > 1 {
		batch = slices.Concat(groups...)
	}
	all, err := q.store.Put(ctx, q.params(), batch)
	if all, err = q.answered(batch, all, err); err != nil {
		return nil, err
	}
	answers := make([][]Answer, len(groups))
	for i, g := range groups {
		answers[i], all = all[:len(g):len(g)], all[len(g):]
	}
	return answers, nil
}

func (q *Queue) answered(puts []Put, answers []Answer, err error) ([]Answer, error) {
	if err == nil && len(answers) != len(puts) {
		return nil, fmt.Errorf("%d answers to %d letters", len(answers), len(puts))
	}
	return answers, err
}

// again takes a step, which may be sent twice, until it is answered or the timeout
// ends.
func (q *Queue) again(ctx context.Context, step func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, q.opts.StoreTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := step(bounded)
		if err == nil || q.bound || final(err) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-bounded.Done():
			timer.Stop()
			return err
		}
	}
}

// final says whether an error is an answer, which sending again would not change.
func final(err error) bool {
	for _, known := range []error{ErrStale, ErrInvalid, ErrNotFound, ErrState, ErrChanged, ErrFull} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func newNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

// hash makes a number of an ID, the same in every process.
func hash(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:])
}
