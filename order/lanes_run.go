package order

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"
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

// CauseOf returns the cause that Failed gave an error, or what it is taken for.
func CauseOf(err error) Cause {
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
// has no receipt, leaves the lane: see [Failed] and LanesOptions.OnFailed.
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
		return l.send(ctx, send, &m, full.MaxAttempts)
	}, &o)
}

// send sends one message, and says whether its lane goes on.
func (l *Lanes) send(ctx context.Context, send func(context.Context, Sending) error, m *Message, attempts int) error {
	customer, trace, ok := unpackContext(m.Context)
	if !ok {
		return fmt.Errorf("order: number %d of lane %s was not enqueued by lanes", m.Position.Number, short(m.Key))
	}
	s := Sending{
		Account: m.Key, Customer: customer, Operation: m.ID, MessageID: l.messageID(m.Key, m.Position),
		Position: m.Position, Payload: m.Payload, Context: trace, Attempt: m.Attempt, Age: m.Age,
	}
	err := l.switched(ctx, &s)
	if err == nil {
		err = send(ctx, s)
	}
	if err == nil {
		l.count(m.Key, func(c *LaneStats) { c.Sent++ })
		return nil
	}
	cause := CauseOf(err)
	switch {
	case cause == CauseRefused || cause == CauseNoReceipt || cause == CauseSwitched:
		if l.opts.OnFailed == nil {
			l.buf.warn(ctx, "a message was not sent", "lane", short(m.Key), "number", m.Position.Number, "cause", cause.String())
		} else if failed := l.opts.OnFailed(ctx, s, cause, err); failed != nil {
			return fmt.Errorf("order: hand over a message that was not sent (%v): %w", cause, failed)
		}
		l.count(m.Key, func(c *LaneStats) { c.Failed.add(cause) })
		return nil
	case m.Attempt >= attempts:
		l.count(m.Key, func(c *LaneStats) { c.Failed.Parked++ })
	}
	l.count(m.Key, func(c *LaneStats) { c.Failed.add(cause); c.Retries++ })
	return err
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

// A lane is what this process knows of one account.
type lane struct {
	LaneStats
	tokens float64   // of its rate
	filled time.Time // when they were counted
}

// pace says for how long an account may not send, and takes a token if it may.
func (l *Lanes) pace(account string) time.Duration {
	if l.opts.Rate == nil {
		return 0
	}
	r := l.opts.Rate(account)
	if !(r.PerSecond > 0) {
		return 0
	}
	burst := float64(max(r.Burst, 1))
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.lane(account)
	now := time.Now()
	if a.filled.IsZero() {
		a.tokens = burst
	} else {
		a.tokens = min(burst, a.tokens+r.PerSecond*now.Sub(a.filled).Seconds())
	}
	a.filled = now
	if a.tokens >= 1 {
		a.tokens--
		return 0
	}
	rest := (burst - a.tokens) / r.PerSecond * float64(time.Second)
	return max(time.Duration(min(rest, float64(MaxDuration))), time.Millisecond)
}

// LaneStats are what this process counted for one account.
type LaneStats struct {
	Enqueued, Repeated, Sent, Retries uint64
	Failed                            Failures
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
	stats := make(map[string]LaneStats, len(l.accounts))
	for name, a := range l.accounts {
		stats[name] = a.LaneStats
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
	f(&l.lane(account).LaneStats)
}

// lane returns what is known of an account. l.mu is held.
func (l *Lanes) lane(account string) *lane {
	a := l.accounts[account]
	if a == nil && account != "" && len(l.accounts) >= maxLanes {
		l.rest()
		if len(l.accounts) >= maxLanes {
			account = ""
			a = l.accounts[account]
		}
	}
	if a == nil {
		a = &lane{}
		l.accounts[account] = a
	}
	return a
}

// rest forgets lanes of which nothing was counted.
func (l *Lanes) rest() {
	maps.DeleteFunc(l.accounts, func(name string, a *lane) bool { return name != "" && a.LaneStats == LaneStats{} })
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
