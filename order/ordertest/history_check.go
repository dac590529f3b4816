package ordertest

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/order"
)

// checkAgain checks a claim that was sent again.
func (h *history) checkAgain(k *modelKey, c *order.Claim) {
	if c.Token != k.token {
		h.fail("sent again, the token of %q is %d, want %d", c.Key, c.Token, k.token)
	}
	if !k.settled {
		h.checkRun(k, c)
	}
}

// checkClaim checks a new claim, and claims the key in the model.
func (h *history) checkClaim(k *modelKey, a order.Ask, c *order.Claim) {
	if c.Token <= k.token {
		h.fail("the token of %q is %d, after %d", c.Key, c.Token, k.token)
	}
	e := k.active()
	if c.Epoch != e.epoch || c.Left > a.Lease {
		h.fail("the claim of %q is of epoch %d, want %d; %v is left", c.Key, c.Epoch, e.epoch, c.Left)
	}
	due := h.m.lateDue(k)
	h.m.begun(k, a)
	k.token, k.nonce, k.until = c.Token, a.Nonce, h.m.now+a.Lease
	h.checkRun(k, c)
	if open := e.gap && e.look <= h.m.now; open != (c.Gap != nil) {
		h.fail("the claim of %q has the gap %+v, want one: %t", c.Key, c.Gap, open)
	}
	if c.Gap != nil {
		h.checkGap(*c.Gap, h.openGap(k), e.opened)
		h.checkSince(*c.Gap, e)
	}
	most := mostLate(a)
	if len(c.Late) != min(len(due), most) {
		h.fail("the claim of %q has %d late messages, want %d", c.Key, len(c.Late), min(len(due), most))
	}
	for _, msg := range c.Late {
		x := k.epoch(msg.Position.Epoch).numbers[msg.Position.Number]
		if x == nil || !x.waits || x.parked || x.due > h.m.now {
			h.fail("the claim of %q has the late message %v, which is not due", c.Key, msg.Position)
		}
		x.attempts++
		h.checkMessage(msg, x)
	}
	next := e.cursor + uint64(len(k.run))
	if cut := len(k.run) > 0 && e.state(next) == order.StateBuffered; (cut || len(due) > most) && !c.More {
		h.fail("the claim of %q has no more, although there is", c.Key)
	}
	if k.buffered() == uint64(len(k.run)) && len(due) <= most && c.More {
		h.fail("the claim of %q has more, although it carries all", c.Key)
	}
}

func (h *history) checkRun(k *modelKey, c *order.Claim) {
	if got := numbersOf(c.Run); !slices.Equal(got, k.run) {
		h.fail("the run of %q is %v, want %v", c.Key, got, k.run)
	}
	for _, msg := range c.Run {
		h.checkMessage(msg, k.active().numbers[msg.Position.Number])
	}
}

func (h *history) checkMessage(msg order.Message, x *modelNumber) {
	a := x.arrival
	if msg.ID != a.ID || string(msg.Payload) != string(a.Payload) || msg.Attempt != x.attempts || msg.Error != x.failure ||
		h.e.virtual && msg.Age != h.m.now-x.pushed {
		h.fail("message %s %v is %+v, want %+v with attempt %d, error %q, age %v",
			msg.Key, msg.Position, msg, a.Message, x.attempts, x.failure, h.m.now-x.pushed)
	}
}

func (h *history) openGap(k *modelKey) order.Gap {
	e := k.active()
	return order.Gap{
		Key: k.name, Epoch: e.epoch, From: e.cursor, To: e.gapEnd(), Open: true,
		Old: e != k.epochs[len(k.epochs)-1], Alerted: e.alerted, Asked: e.asked,
	}
}

// checkGap compares a gap without its times, and its age where the clock is virtual.
func (h *history) checkGap(got, want order.Gap, opened time.Duration) {
	if want.Age = h.m.now - opened; !h.e.virtual {
		want.Age = got.Age
	}
	if want.Since = got.Since; got != want {
		h.fail("the gap is %+v, want %+v", got, want)
	}
}

// checkSince checks since when the cursor stands at an open gap. Whether a person
// who says that it is sent again sets it is left open.
func (h *history) checkSince(got order.Gap, e *modelEpoch) {
	if since, resent := h.m.now-e.since, h.m.now-e.resent; h.e.virtual && got.Since != since && got.Since != resent {
		h.fail("the cursor stands at the gap %+v since %v, want %v", got, got.Since, since)
	}
}

// checkAccount compares the account of a key with the model.
func (h *history) checkAccount(key string) {
	a, err := h.e.store.Account(context.Background(), h.m.p.Scope, key)
	if err != nil {
		h.fail("Account: %v", err)
	}
	var want order.Account
	if k := h.m.keys[key]; k != nil {
		var ended []order.Ledger
		for _, e := range k.epochs {
			if e.ended {
				ended = append(ended, e.ledger())
			} else {
				want.Ledgers = append(want.Ledgers, e.ledger())
			}
		}
		slices.Reverse(ended)
		want.Ledgers = append(want.Ledgers, ended[:min(len(ended), order.MaxEpochs)]...)
		want.Arrivals, want.LateWaiting, want.Claimed = k.arrivals, len(k.lateWaiting()), k.until > h.m.now
		e := k.active()
		want.Parked = e.state(e.cursor) == order.StateParked
		if x := k.next(); x != nil {
			want.Oldest = h.m.now - x.pushed
		}
	}
	if !h.e.virtual {
		want.Oldest = a.Oldest
	}
	// Of what came while a key did not exist, and of assigned duplicates, the
	// count is the store's to choose.
	want.Arrivals = h.countable(want.Arrivals, a.Arrivals)
	if !slices.Equal(a.Ledgers, want.Ledgers) || a.Arrivals != want.Arrivals || a.LateWaiting != want.LateWaiting ||
		a.Claimed != want.Claimed || a.Parked != want.Parked || a.Oldest != want.Oldest {
		h.fail("the account of %q is\n%+v, want\n%+v", key, a, want)
	}
}

// countable takes from got what a store may count or not.
func (h *history) countable(want, got order.Arrivals) order.Arrivals {
	want.Duplicate = max(want.Duplicate, got.Duplicate)
	want.Stale, want.Full, want.TooFar = max(want.Stale, got.Stale), max(want.Full, got.Full), max(want.TooFar, got.TooFar)
	want.Pushed = want.Accepted + want.Duplicate + want.Conflict + want.Late + want.Stale + want.Full + want.TooFar
	return want
}
