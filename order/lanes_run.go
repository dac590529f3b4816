package order

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Cause is why a message was not sent. The first are the gateway's, the others
// those of routing.
type Cause uint8

// Why a message was not sent.
const (
	// CauseOther: an error that nobody has named. It is tried again.
	CauseOther Cause = iota + 1
	// CauseTimeout: the gateway did not answer in time. It is tried again, under the
	// same message ID, since it may have been sent.
	CauseTimeout
	// CauseRefused: the gateway will not send it. It is not tried again.
	CauseRefused
	// CauseNoReceipt: the gateway took it and there is no receipt. It is not sent
	// again here: whether it should be is decided after a quiet period, elsewhere.
	CauseNoReceipt

	// CauseNoAccount: no account sends to the customer. It was not enqueued.
	CauseNoAccount
	// CauseSwitched: the customer has moved to another account.
	CauseSwitched
	// CauseParked: the attempts were used up, and the lane waits for a person.
	CauseParked
)

// Failed names the cause of an error of a send function. Without it, an error is
// CauseTimeout if it is, or wraps, a timeout, and CauseOther otherwise.
func Failed(c Cause, err error) error {
	if err == nil {
		err = errors.New("no error")
	}
	return &failure{c, err}
}

type failure struct {
	cause Cause
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// CauseOf returns the cause that Failed gave an error, or what it is taken for: a
// timeout, or another cause, as which an error counts whose own methods panic.
func CauseOf(err error) (cause Cause) {
	defer func() {
		if recover() != nil {
			cause = CauseOther
		}
	}()
	if f, ok := errors.AsType[*failure](err); ok {
		return f.cause
	}
	var timeout interface{ Timeout() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return CauseTimeout
	}
	return CauseOther
}

// Run sends what the lanes hold until ctx ends, as [Buffer.Run] does: one message
// of an account at a time and in order, the accounts side by side, across
// processes. RunOptions.Batch is 1 by default here, so that at most one message of
// an account is sent again after a crash.
//
// When send fails, the message is tried again in its place after a backoff, and
// parks its lane when the attempts are used up; but a message that was refused, or
// has no receipt, leaves the lane: see [Failed] and LanesOptions.OnFailed. So does
// any that fails in the mode AtMostOnce. A parked lane waits for a person: list with
// [Buffer.Parked], and resume or drop with the buffer.
func (l *Lanes) Run(ctx context.Context, send func(ctx context.Context, s Sending) error, opts *RunOptions) error {
	if send == nil {
		return invalid("nil send function")
	}
	var o RunOptions
	if opts != nil {
		o = *opts
	}
	if o.Batch == 0 {
		o.Batch = 1
	}
	o.pace = l.pace
	full, err := o.withDefaults()
	if err != nil {
		return err
	}
	return l.buf.Run(ctx, func(ctx context.Context, m Message) error {
		return l.send(ctx, send, &m, &full)
	}, &o)
}

// send sends one message, and says whether its lane goes on.
func (l *Lanes) send(ctx context.Context, send func(context.Context, Sending) error, m *Message, o *RunOptions) error {
	s, ok := l.Sending(*m)
	if !ok {
		return fmt.Errorf("order: number %d of lane %s was not enqueued by lanes", m.Position.Number, short(m.Key))
	}
	returned := false
	defer func() {
		if !returned { // it panics, or ends the goroutine
			l.failed(ctx, m, CauseOther, o)
		}
	}()
	err := l.switched(ctx, &s)
	if err == nil {
		err = send(ctx, s)
	}
	if err == nil {
		returned = true
		l.count(m.Key, func(c *LaneStats) { c.Sent++ })
		return nil
	}
	cause := CauseOf(err)
	if o.Mode == AtMostOnce || cause == CauseRefused || cause == CauseNoReceipt || cause == CauseSwitched {
		failed := l.leave(ctx, s, cause, err)
		if failed == nil {
			returned = true
			l.count(m.Key, func(c *LaneStats) { c.Failed.add(cause) })
			if o.Mode == AtMostOnce {
				return nil // its number counts as delivered already
			}
			return &givenUp{cause, l.opts.OnFailed != nil}
		}
		err = fmt.Errorf("order: hand over a message that was not sent (%v): %w", cause, failed)
	}
	returned = true
	l.failed(ctx, m, cause, o)
	return err
}

// laneActor is who gave a message up, in the record of its number.
const laneActor = "lanes"

// leave hands over a message that its lane will not send any more.
func (l *Lanes) leave(ctx context.Context, s Sending, cause Cause, err error) error {
	if l.opts.OnFailed == nil {
		l.buf.warn(ctx, "a message was not sent", "lane", short(s.Account), "number", s.Position.Number, "cause", cause.String())
		return nil
	}
	return l.opts.OnFailed(ctx, s, cause, err)
}

// failed counts a failed attempt, after which the message is tried again or parks
// its lane.
func (l *Lanes) failed(ctx context.Context, m *Message, cause Cause, o *RunOptions) {
	ended := context.Cause(ctx)
	interrupted := errors.Is(ended, ErrDraining) || errors.Is(ended, ErrStale)
	l.count(m.Key, func(c *LaneStats) {
		c.Failed.add(cause)
		switch {
		case o.Mode == AtMostOnce:
		case m.Attempt >= o.MaxAttempts && !interrupted:
			c.Failed.Parked++
		default:
			c.Retries++
		}
	})
}

// Sending makes a sending of a message of a lane, as [Buffer.Parked] and the
// look-ups return it. It is false for a message that lanes have not enqueued.
func (l *Lanes) Sending(m Message) (Sending, bool) {
	customer, trace, ok := unpackContext(m.Context)
	return Sending{
		Account: m.Key, Customer: customer, Operation: m.ID, MessageID: l.messageID(m.Key, m.Position),
		Position: m.Position, Payload: m.Payload, Context: trace, Attempt: m.Attempt, Age: m.Age,
	}, ok
}

// switched says whether the customer's account is another one by now, if that
// matters.
func (l *Lanes) switched(ctx context.Context, s *Sending) error {
	if l.opts.OnSwitch == SendOld {
		return nil
	}
	account, err := l.opts.Route(ctx, s.Customer)
	switch {
	case errors.Is(err, ErrNoAccount):
		return Failed(CauseSwitched, err)
	case err != nil:
		return fmt.Errorf("order: route customer %s: %w", short(s.Customer), err)
	case account != s.Account:
		return Failed(CauseSwitched, fmt.Errorf("order: the customer has moved to another account"))
	}
	return nil
}

// LaneStats are what this process counted for one account.
type LaneStats struct {
	Enqueued, Repeated, Sent uint64
	Retries                  uint64 // attempts that failed and are made again
	Failed                   Failures
}

// Failures are counted by their cause; those that were tried again count, too.
type Failures struct {
	Other, Timeout, Refused, NoReceipt uint64 // by the gateway
	NoAccount, Switched, Parked        uint64 // by routing
}

func (f *Failures) add(c Cause) {
	switch c {
	case CauseTimeout:
		f.Timeout++
	case CauseRefused:
		f.Refused++
	case CauseNoReceipt:
		f.NoReceipt++
	case CauseNoAccount:
		f.NoAccount++
	case CauseSwitched:
		f.Switched++
	case CauseParked:
		f.Parked++
	default:
		f.Other++
	}
}

// Stats returns what this process counted, by account: at most 10,000 of them, all
// further ones together under the empty name, and there, too, messages without an
// account.
func (l *Lanes) Stats() map[string]LaneStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := make(map[string]LaneStats, len(l.stats))
	for name, s := range l.stats {
		stats[name] = *s
	}
	return stats
}

// Account returns what waits in the lane of an account, and what became of the
// rest, from the store: Ledgers[0].Buffered messages wait, the first for Oldest.
func (l *Lanes) Account(ctx context.Context, account string) (Account, error) {
	return l.buf.Account(ctx, account)
}

const maxLanes = 10_000

func (l *Lanes) count(account string, f func(*LaneStats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats[account]
	if s == nil && account != "" && len(l.stats) >= maxLanes {
		account = ""
		s = l.stats[account]
	}
	if s == nil {
		s = &LaneStats{}
		l.stats[account] = s
	}
	f(s)
}

// packContext keeps the customer with the message.
func packContext(customer string, trace []byte) []byte {
	b := make([]byte, 0, 3+len(customer)+len(trace))
	b = binary.AppendUvarint(append(b, 1), uint64(len(customer)))
	return append(append(b, customer...), trace...)
}

func unpackContext(b []byte) (customer string, trace []byte, ok bool) {
	if len(b) == 0 || b[0] != 1 {
		return "", nil, false
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > uint64(len(b)-1-size) {
		return "", nil, false
	}
	b = b[1+size:]
	return string(b[:n]), b[n:], true
}

// String returns the name of a cause.
func (c Cause) String() string {
	switch c {
	case CauseTimeout:
		return "timeout"
	case CauseRefused:
		return "refused"
	case CauseNoReceipt:
		return "no receipt"
	case CauseNoAccount:
		return "no account"
	case CauseSwitched:
		return "switched"
	case CauseParked:
		return "parked"
	}
	return "other"
}
