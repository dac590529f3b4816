package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// An ordering puts what the inbox has accepted in the order of its sender's
// numbers. The inbox hands an event over by pushing it: from then on it is the
// buffer's to deliver.
type ordering struct {
	*order.Buffer
	box      *inbox.Box
	effects  storage
	lanes    *lanes
	passed   map[string]order.Position // where lanes had come in earlier runs, if the store does not know
	degraded bool                      // -degrade
}

// dropTimeout is how long a gap is waited for with -drop. What is only shuffled
// should come sooner; if it does not, it is late and has its effect all the same.
const dropTimeout = time.Second

func newOrdering(c config, box *inbox.Box, effects storage, lanes *lanes) (*ordering, error) {
	o := &ordering{box: box, effects: effects, lanes: lanes, passed: map[string]order.Position{}, degraded: c.degrade}
	opts := &order.Options{
		Scope:       "inbound",
		MaxBuffered: 1_000_000,
		MaxPayload:  4 << 20, // an inbox takes bodies of 3 MiB
		OnLate:      func(ctx context.Context, m order.Message) error { return effects.handle(ctx, effectOf(m, late)) },
	}
	if c.drop > 0 {
		opts.GapTimeout = dropTimeout
	}
	if c.degrade {
		opts.OnUnavailable = o.arrived
		opts.StoreTimeout = time.Second
	}
	var err error
	o.Buffer, err = order.New(lanes.store, opts)
	return o, err
}

// run delivers until ctx ends.
func (o *ordering) run(ctx context.Context) error {
	opts := &order.RunOptions{
		Lease:       2 * time.Second, // a run that was killed holds its keys for no longer
		Poll:        100 * time.Millisecond,
		Backoff:     retry.Exponential(100*time.Millisecond, time.Second, retry.EqualJitter),
		MaxAttempts: 100,
	}
	if o.lanes.inTx != nil {
		return o.RunTx(ctx, o.lanes.inTx(o.inTurn), opts)
	}
	return o.Run(ctx, func(ctx context.Context, m order.Message) error {
		return o.effects.handle(ctx, o.inTurn(m))
	}, opts)
}

// inTurn is the effect of a message whose turn has come. An order store that is new
// to the data may wait for a number which another had skipped.
func (o *ordering) inTurn(m order.Message) effect {
	if m.Position.Compare(o.passed[m.Key]) < 0 {
		return effectOf(m, late)
	}
	return effectOf(m, inOrder)
}

func effectOf(m order.Message, w way) effect {
	key, reply := strings.CutPrefix(string(m.Context), answered)
	return effect{ID: m.ID, Key: key, Reply: reply, At: position{m.Key, m.Position}, Way: w}
}

// push is the handler of the inbox. Where both are in one file, an event leaves the
// inbox in the commit with which it enters the order.
func (o *ordering) push(ctx context.Context, r inbox.Record) inbox.Outcome {
	at, err := positionOf(r)
	if err != nil {
		return inbox.Dead(err)
	}
	if o.lanes.together == nil {
		err = taken(o.Push(ctx, message(r, at)))
	} else {
		err = o.lanes.together(func(lanes order.Store, events inbox.Store) error {
			if err := taken(o.With(lanes).Push(ctx, message(r, at))); err != nil {
				return err
			}
			return o.box.With(events).Complete(ctx)
		})
		o.Wake()
	}
	if errors.Is(err, errRefused) {
		return inbox.Dead(err)
	}
	return inbox.OutcomeOf(err)
}

var errRefused = errors.New("the order store refuses an event for good")

// taken says whether a pushed event need not be pushed again.
func taken(answers []order.Answer, err error) error {
	if err != nil {
		return err
	}
	switch s := answers[0].State; s {
	case order.Buffered, order.Duplicate, order.Late, order.Unordered:
		return nil
	case order.Full:
		return errors.New("the lane is full")
	default:
		return fmt.Errorf("%w: %v", errRefused, s)
	}
}

func message(r inbox.Record, at position) order.Message {
	e := effectOn(r)
	m := order.Message{Key: at.Lane, Position: at.Position, ID: e.ID, Payload: r.Payload, Context: []byte(e.Key)}
	if e.Reply {
		m.Context = []byte(answered + e.Key)
	}
	return m
}

// answered stands before the ordering key in the context of what is answered.
const answered = "reply\t"

// arrived takes what the order store does not answer for: the effects happen in
// the order of arrival, and what happened is refused when it comes again.
func (o *ordering) arrived(ctx context.Context, ms []order.Message) []error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		errs[i] = o.effects.handle(bounded, effectOf(m, unordered))
		cancel()
	}
	return errs
}

// recall pushes again what the inbox has handed over before: an order store that
// was not in use in the last run, or did not outlive it, does not know of it. What
// had its effect is refused by dedup when its turn comes.
func (o *ordering) recall(ctx context.Context) error {
	had, err := o.effects.effects()
	if err != nil {
		return err
	}
	for _, e := range had {
		if e.Way == inOrder && e.At.Compare(o.passed[e.At.Lane]) > 0 {
			o.passed[e.At.Lane] = e.At.Position
		}
	}
	for after := uint64(0); ; {
		page, err := o.box.List(ctx, inbox.StateDone, after, 500)
		if err != nil || len(page) == 0 {
			return err
		}
		ms := make([]order.Message, len(page))
		for i, r := range page {
			at, err := positionOf(r)
			if err != nil {
				return err
			}
			ms[i] = message(r, at)
		}
		answers, err := o.Push(ctx, ms...)
		for i := 0; i < len(answers) && err == nil; i++ {
			err = taken(answers[i:], nil)
		}
		if err != nil {
			return err
		}
		after = page[len(page)-1].Seq
	}
}

// waiting says how many events are to be delivered yet, in order or late, or
// reported, and how many gaps are waited for.
func (o *ordering) waiting(ctx context.Context) (int, error) {
	t, err := o.Totals(ctx)
	if err != nil {
		return 0, err
	}
	if t.Parked > 0 {
		return 0, fmt.Errorf("%d events are parked: their effects failed again and again", t.Parked)
	}
	return t.Buffered + t.LateWaiting + t.OpenGaps + o.Stats().Unreported, nil
}
