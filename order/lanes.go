package order

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/msgid"
)

// Lanes are the way out: each account has a lane, which is a key of a [Buffer] that
// numbers its messages itself, so that no other generator is needed. A message is
// routed to the account of its customer, and its number, its message ID and the
// message are stored in one step. One worker at a time sends the messages of an
// account, in their order, at the account's rate, and accounts do not hold each
// other up. A lane has no gaps.
//
// A customer who moves to another account takes that account's next numbers and
// disturbs nobody there; an account that was never used begins at 1. When the
// customer moves back, the first account goes on where it was: no position and no
// message ID is used twice.
//
// What is not guaranteed: a message is sent at least once. A process may die
// between the gateway's answer and its record; the message is then sent again
// under the same message ID, which a gateway that knows the ID can refuse. There is
// no order between accounts: what a customer has still in the lane of the account
// before may be sent after the first message of the next one.
type Lanes struct {
	buf  *Buffer
	opts LanesOptions

	mu    sync.Mutex
	stats map[string]*LaneStats // by account
	rates rates
}

// LanesOptions set up [Lanes]. Route is required; the zero value of every other
// field is a working default.
type LanesOptions struct {
	// Route says which account sends to a customer. It returns ErrNoAccount, or an
	// error that wraps it, when there is none; an empty account means the same. It is
	// called from many goroutines at once, by Enqueue and, with FailSwitched, by Run.
	// An account is 1 to 400 bytes of UTF-8 without NUL and without "~"; with BizType
	// and number it makes a message ID of at most 512 bytes, in which each ":" and "%"
	// takes three.
	Route func(ctx context.Context, customer string) (account string, err error)

	// BizType is the first part of the message IDs, as in dedup.MessageID: at most 64
	// bytes of UTF-8 without NUL. Empty means "out".
	BizType string

	// Epoch is the incarnation of an account. Raise it when the account was registered
	// anew and should begin at number 1 again: the next message begins that epoch,
	// and its ID has the epoch in it. Nil, or a result of 0, means 1.
	Epoch func(account string) uint64

	// Rate is how fast an account may send. Nil: as fast as it can.
	Rate func(account string) Rate

	// OnSwitch says what becomes of a message whose customer has moved to another
	// account since it was enqueued. The zero value is SendOld.
	OnSwitch SwitchPolicy

	// OnFailed is handed a message that its lane gives up: it was refused, has no
	// receipt, or its customer has moved. Put it where the next decision is made: a
	// compensation queue, a dead letter queue. The lane goes on when it returns nil; an
	// error is a failed attempt. It may be called more than once. The number of the
	// message is then skipped, with a record that a look-up returns and that
	// [Buffer.Gaps] lists: ReasonDropped, the actor "lanes", and the cause as its note.
	// Nil: that record waits for a person ([Buffer.ResolveGap]), and the failure is
	// counted and logged; with OnFailed it is resolved.
	OnFailed func(ctx context.Context, s Sending, c Cause, err error) error
}

// SwitchPolicy is what becomes of a message whose customer has moved.
type SwitchPolicy uint8

const (
	// SendOld sends it from the account for which it was enqueued.
	SendOld SwitchPolicy = iota
	// FailSwitched does not send it: see LanesOptions.OnFailed.
	FailSwitched
)

// An Outbound is a message on its way into a lane.
type Outbound struct {
	// Operation is the caller's own ID of this sending: 1 to 512 bytes of UTF-8
	// without NUL. The same operation is enqueued once, however often it is asked
	// for, for as long as the buffer remembers it: Options.KeepBody after it ended.
	Operation string

	Customer string // as the operation
	Payload  []byte
	Context  []byte // trace context; at most 3 KiB
}

// Queued says where an outbound message is.
type Queued struct {
	Account   string
	Position  Position
	MessageID string
	Repeated  bool // the operation was enqueued before; this is where
}

// A Sending is a message that its lane sends.
type Sending struct {
	Account, Customer, Operation, MessageID string

	Position Position
	Payload  []byte
	Context  []byte
	Attempt  int           // this one included
	Age      time.Duration // since it was enqueued
}

var (
	// ErrNoAccount says that no account sends to a customer. Nothing was stored.
	ErrNoAccount = errors.New("order: no account for the customer")

	// ErrFull says that a lane holds as many messages as it may. Nothing was stored.
	ErrFull = errors.New("order: the lane is full")
)

// NewLanes returns lanes over a buffer, which should serve nothing else: give it a
// scope of its own. The buffer needs a KeepBody, and no OnUnavailable: without the
// store there are no numbers. It fails with [ErrInvalid].
func NewLanes(b *Buffer, opts *LanesOptions) (*Lanes, error) {
	switch {
	case b == nil:
		return nil, invalid("nil buffer")
	case opts == nil || opts.Route == nil:
		return nil, invalid("lanes without Route")
	case b.opts.OnUnavailable != nil:
		return nil, invalid("lanes over a buffer with OnUnavailable: without the store there are no numbers")
	case b.opts.KeepBody <= 0:
		return nil, invalid("lanes over a buffer that forgets operations as soon as they have ended: set KeepBody")
	case opts.OnSwitch > FailSwitched:
		return nil, invalid("switch policy %d", opts.OnSwitch)
	case opts.BizType != "" && (len(opts.BizType) > 64 || validID("", opts.BizType) != nil):
		return nil, invalid("business type of %d bytes, not at most 64 of UTF-8 without NUL", len(opts.BizType))
	}
	o := *opts
	if o.BizType == "" {
		o.BizType = "out"
	}
	return &Lanes{buf: b, opts: o, stats: map[string]*LaneStats{}}, nil
}

// Enqueue stores a message in the lane of its customer's account and says where it
// is. An operation that was enqueued before is not enqueued again, also when the
// customer has moved meanwhile, or has no account any more: the answer is where it
// is, with the first number and message ID. Customer and Payload are those of the
// first call; nobody compares them.
//
// The error is [ErrNoAccount], [ErrFull] when the lane holds Options.MaxBuffered
// messages, [ErrUnavailable], [ErrInvalid], or that of Route. Enqueue it again
// after any of them, which is harmless.
func (l *Lanes) Enqueue(ctx context.Context, m Outbound) (Queued, error) {
	if err := validOutbound(&m); err != nil {
		return Queued{}, err
	}
	account, err := l.route(ctx, m.Customer)
	if err != nil {
		return l.enqueued(ctx, m.Operation, err)
	}
	a := Arrival{Assign: true}
	a.Key, a.ID = account, m.Operation
	a.Position.Epoch = l.epoch(account)
	a.Payload, a.Context = m.Payload, packContext(m.Customer, m.Context)
	if err := l.buf.opts.validate(&a.Message, false); err != nil {
		return Queued{}, err
	}
	a.Digest = digest(a.ID, a.Payload)
	answers, err := l.buf.push(ctx, []Arrival{a})
	if err != nil {
		return Queued{}, err
	}
	answer := answers[0]
	switch answer.State {
	case Buffered, Duplicate:
	case Full:
		return Queued{}, fmt.Errorf("%w: lane %s; the message was not stored, enqueue it again later", ErrFull, short(account))
	default:
		return Queued{}, fmt.Errorf("order: enqueue in lane %s: the store answered %v", short(account), answer.State)
	}
	return l.queued(answer.Key, answer.Position, answer.State == Duplicate), nil
}

func (l *Lanes) queued(account string, p Position, repeated bool) Queued {
	l.count(account, func(c *LaneStats) {
		if repeated {
			c.Repeated++
		} else {
			c.Enqueued++
		}
	})
	return Queued{Account: account, Position: p, MessageID: l.messageID(account, p), Repeated: repeated}
}

// enqueued says where an operation is whose customer cannot be routed, if it was
// enqueued when that could be done. Otherwise the answer is why not.
func (l *Lanes) enqueued(ctx context.Context, operation string, why error) (Queued, error) {
	if errors.Is(why, ErrInvalid) {
		return Queued{}, why
	}
	found, err := l.buf.Lookup(ctx, operation)
	switch {
	case err != nil:
		return Queued{}, fmt.Errorf("%w; nor is it known whether the operation was enqueued before: %w", why, err)
	case found[0].State == StateUnknown:
		if errors.Is(why, ErrNoAccount) {
			l.count("", func(c *LaneStats) { c.Failed.NoAccount++ })
		}
		return Queued{}, why
	}
	return l.queued(found[0].Key, found[0].Position, true), nil
}

// route asks for the account of a customer.
func (l *Lanes) route(ctx context.Context, customer string) (string, error) {
	account, err := l.opts.Route(ctx, customer)
	switch {
	case errors.Is(err, ErrNoAccount) || err == nil && account == "":
		if err == nil {
			err = ErrNoAccount
		}
		return "", fmt.Errorf("%w (%s); nothing was stored", err, short(customer))
	case err != nil:
		return "", fmt.Errorf("order: route customer %s: %w", short(customer), err)
	case len(account) > maxAccount || strings.Contains(account, "~"):
		return "", invalid("account of %d bytes, more than %d or with a ~", len(account), maxAccount)
	case len(l.messageID(account, Position{MaxNumber, MaxNumber})) > maxID:
		return "", invalid("account of %d bytes, of which message IDs have more than %d", len(account), maxID)
	}
	return account, nil
}

const maxAccount = 400

func (l *Lanes) epoch(account string) uint64 {
	if l.opts.Epoch == nil {
		return 1
	}
	return max(l.opts.Epoch(account), 1)
}

// messageID is bizType:account:number, in the first epoch, and with ~epoch behind
// the account in later ones.
func (l *Lanes) messageID(account string, p Position) string {
	if p.Epoch > 1 {
		account = fmt.Sprintf("%s~%d", account, p.Epoch)
	}
	return msgid.Format(l.opts.BizType, account, p.Number)
}

// Lookup says where the message with a message ID is. [Lanes.Sending] makes a
// sending of the message that it finds.
func (l *Lanes) Lookup(ctx context.Context, messageID string) (Found, error) {
	biz, account, number, ok := msgid.Parse(messageID)
	p := Position{Epoch: 1, Number: number}
	if name, epoch, later := strings.Cut(account, "~"); ok && later {
		_, err := fmt.Sscanf(epoch, "%d", &p.Epoch)
		account, ok = name, err == nil
	}
	if !ok || biz != l.opts.BizType || l.messageID(account, p) != messageID {
		return Found{}, invalid("message ID %s is none of these lanes", short(messageID))
	}
	found, err := l.buf.Where(ctx, account, p)
	if err != nil {
		return Found{}, err
	}
	return found[0], nil
}

// LookupOperation says where the message of an operation is; see Lookup.
func (l *Lanes) LookupOperation(ctx context.Context, operation string) (Found, error) {
	found, err := l.buf.Lookup(ctx, operation)
	if err != nil {
		return Found{}, err
	}
	return found[0], nil
}

func validOutbound(m *Outbound) error {
	for _, s := range []struct{ what, value string }{{"operation", m.Operation}, {"customer", m.Customer}} {
		if err := validID(s.what, s.value); err != nil {
			return err
		}
	}
	if len(m.Context) > 3<<10 {
		return invalid("context of %d bytes, more than %d", len(m.Context), 3<<10)
	}
	return nil
}
