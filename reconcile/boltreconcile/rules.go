package boltreconcile

import (
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// The rules of [reconcile.Store] for one operation, in the order of its comments. They
// touch nothing but the operation.

// begin is the rules of Begin; an operation without state is rule 1.
func (o *operation) begin(now int64, p *reconcile.Params, a *reconcile.Ask) reconcile.Grant {
	switch leased := now < o.until; {
	case o.state == 0 && a.Later: // rule 1
		o.state, o.again, o.due = reconcile.Failed, true, now
		o.move(now, a.Nonce, reconcile.AsIs)
		o.last = reconcile.VerbFail
		o.tell(now, &reconcile.Settlement{Verb: reconcile.VerbFail})
	case o.state == 0: // rule 1
		return o.sendAgain(now, p, a)
	case o.fingerprint != a.Fingerprint && o.fingerprint != [32]byte{} && a.Fingerprint != [32]byte{}: // rule 2
		return reconcile.Conflict
	case o.nonce == a.Nonce: // rule 3
		if o.granted(now) {
			return o.grant
		}
	case leased || a.Later:
	case o.state == reconcile.Failed && o.again && o.review == "": // rule 4
		return o.sendAgain(now, p, a)
	case !o.state.Ended() && o.review == "" && o.due != 0 && o.due <= now: // rule 5
		o.look(now, p, a.Nonce)
		return reconcile.Look
	}
	return reconcile.AsIs // rule 6
}

// sendAgain grants an operation that certainly did not happen.
func (o *operation) sendAgain(now int64, p *reconcile.Params, a *reconcile.Ask) reconcile.Grant {
	o.send(now, p, p.Lease, true)
	o.move(now, a.Nonce, reconcile.Send)
	o.tell(now, &reconcile.Settlement{Verb: reconcile.VerbSend})
	return reconcile.Send
}

// look grants a due operation to one who has to find out first.
func (o *operation) look(now int64, p *reconcile.Params, nonce [16]byte) {
	if o.state == reconcile.Started {
		o.state = reconcile.Unknown
	}
	if o.fenced == 0 {
		o.fenced = now
	}
	o.until = now + p.Lease.Microseconds()
	o.move(now, nonce, reconcile.Look)
}

// send notes that the operation is about to be sent. Clean: nothing that was sent
// before has happened.
func (o *operation) send(now int64, p *reconcile.Params, lease time.Duration, clean bool) {
	if clean {
		o.first = now
	}
	o.state, o.again, o.fenced, o.expires = reconcile.Started, false, 0, 0
	o.attempts++
	o.sent = now
	o.extend(now, p, lease)
}

// extend begins a lease.
func (o *operation) extend(now int64, p *reconcile.Params, lease time.Duration) {
	o.until = now + lease.Microseconds()
	if o.state == reconcile.Started {
		o.due = o.until + p.Quiet.Microseconds()
	}
}

// move gives the operation a new token.
func (o *operation) move(now int64, nonce [16]byte, g reconcile.Grant) {
	o.token = max(o.token+1, uint64(now))
	o.nonce, o.grant, o.claimed, o.last, o.endedOutside = nonce, g, false, 0, false
}

// granted says that the last grant is still good.
func (o *operation) granted(now int64) bool {
	return now < o.until && o.last == 0 && !o.endedOutside
}

// claimable says whether a Claim may take the operation when it is due and no lease runs.
func (o *operation) claimable() bool {
	return o.due != 0 && o.review == "" && (!o.state.Ended() || o.state == reconcile.Failed && o.again)
}

// open is the rule of Query.Open.
func (o *operation) open() bool { return !o.state.Ended() || o.review != "" || o.due != 0 }

func (o *operation) expired(now int64) bool {
	at := o.expiry()
	return at != 0 && at <= now
}

// expiry is when the operation may be forgotten; zero: not as it is.
func (o *operation) expiry() int64 {
	if o.review != "" || o.due != 0 {
		return 0
	}
	return o.expires
}

// settle is the rules of Settle for an operation that is there.
func (o *operation) settle(now int64, p *reconcile.Params, s *reconcile.Settlement) error {
	switch s.Verb {
	case reconcile.VerbReceipt, reconcile.VerbResolve:
		if o.outside != s.Nonce {
			o.outside = s.Nonce
			if s.Verb == reconcile.VerbReceipt {
				o.outsideAs = o.receipt(now, p, s)
			} else {
				o.outsideAs = o.resolve(now, p, s)
			}
		}
		return o.outsideAs.err()
	}
	switch {
	case s.Token != o.token:
		return reconcile.ErrStale
	case o.endedOutside:
		if s.Verb == reconcile.VerbExtend || s.Verb == reconcile.VerbConfirm && o.state == reconcile.Confirmed ||
			s.Verb == reconcile.VerbFail && o.state == reconcile.Failed {
			return nil
		}
		return o.ended().err()
	case o.last != 0 && o.last == s.Verb: // applied before
		return nil
	case o.last != 0:
		return reconcile.ErrStale
	}
	return o.owner(now, p, s)
}

// owner applies a settlement of who was granted the operation.
func (o *operation) owner(now int64, p *reconcile.Params, s *reconcile.Settlement) error {
	switch s.Verb {
	case reconcile.VerbSend:
		switch {
		case o.state == reconcile.Started: // applied before
			return nil
		case now >= o.until || o.grant != reconcile.Look:
			return reconcile.ErrStale
		}
		o.send(now, p, s.Lease, o.state == reconcile.Failed)
		o.tell(now, s)
		return nil
	case reconcile.VerbExtend:
		o.extend(now, p, s.Lease)
		return nil
	}
	before := o.state
	o.last, o.until = s.Verb, 0
	switch s.Verb {
	case reconcile.VerbAccept:
		o.state, o.due, o.expires, o.result = reconcile.Accepted, now+s.Delay.Microseconds(), 0, s.Result
	case reconcile.VerbDoubt:
		o.state, o.due, o.expires = reconcile.Unknown, now+s.Delay.Microseconds(), 0
	case reconcile.VerbConfirm:
		o.end(now, p, reconcile.Confirmed, s.Result, false)
	case reconcile.VerbFail:
		o.end(now, p, reconcile.Failed, s.Result, s.Again)
		if s.Again && s.Delay > 0 {
			o.due = now + s.Delay.Microseconds()
		}
	case reconcile.VerbDefer:
		o.due = now + s.Delay.Microseconds()
		if s.Looked {
			o.looks++
		}
	case reconcile.VerbAsk:
		o.review, o.due = s.Note, 0
	}
	if o.state == reconcile.Started {
		o.state = reconcile.Unknown
	}
	if o.state != before || s.Verb == reconcile.VerbAsk {
		o.tell(now, s)
	}
	return nil
}

// receipt applies what the remote said by itself.
func (o *operation) receipt(now int64, p *reconcile.Params, s *reconcile.Settlement) refusal {
	switch {
	case o.state == s.State:
		if o.state == reconcile.Failed {
			o.again, o.due = false, 0
			o.take()
			if o.expires == 0 { // it was recorded, and never sent
				o.expires = now + p.Retention.Microseconds()
			}
		}
		return notRefused
	case o.state.Ended():
		o.again, o.due, o.review = false, 0, reconcile.Contradicting
		o.take()
		o.tell(now, s)
		return o.ended()
	}
	o.take()
	o.end(now, p, s.State, s.Result, false)
	o.tell(now, s)
	return notRefused
}

// take ends the grant of whoever is at work on the operation.
func (o *operation) take() { o.endedOutside, o.until = o.last == 0, 0 }

// resolve applies what a person decided.
func (o *operation) resolve(now int64, p *reconcile.Params, s *reconcile.Settlement) refusal {
	switch {
	case o.token != s.Token:
		return hasChanged
	case o.state.Ended() && o.review == "":
		return o.ended()
	}
	o.end(now, p, s.State, s.Result, s.Again)
	if s.Again {
		o.due = now
	}
	o.move(now, s.Nonce, reconcile.AsIs)
	o.last = s.Verb
	o.tell(now, s)
	return notRefused
}

func (o *operation) end(now int64, p *reconcile.Params, s reconcile.State, result []byte, again bool) {
	o.state, o.again, o.review, o.due, o.until = s, again, "", 0, 0
	o.expires = now + p.Retention.Microseconds()
	if result != nil {
		o.result = result
	}
}

// tell adds a line to the history.
func (o *operation) tell(now int64, s *reconcile.Settlement) {
	o.note = s.Note
	o.said = append(o.said, reconcile.Transition{
		At: time.UnixMicro(now), Verb: s.Verb, State: o.state, Token: o.token, By: s.By, Note: s.Note,
	})
}
