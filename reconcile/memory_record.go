package reconcile

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

// A record is an operation in a [Memory]. Times are in microseconds since 1970; zero is
// never. Its methods are the rules of [Store], in their order.
type record struct {
	Op
	kind             string
	state            State
	token            uint64
	attempts, looks  int
	review, note     string
	again            bool
	result           []byte
	created          int64
	first, sent      int64
	fenced, due      int64
	until            int64 // of the lease; zero: none
	expires          int64
	nonce            [16]byte // of the last grant
	grant            Grant
	last             Verb     // that ended the last grant; zero: none did
	outside          [16]byte // nonce of the last receipt or decision
	outsideErr       error
	log              []Transition
	dropped          int
	endedFromOutside bool // by a receipt, under the token that the record still has
}

func newRecord(kind string, op *Op, now int64) *record {
	r := &record{Op: *op, kind: strings.Clone(kind), created: now}
	r.Key, r.Account, r.Payload = strings.Clone(op.Key), strings.Clone(op.Account), bytes.Clone(op.Payload)
	return r
}

// begin is the rules of [Store.Begin]; a record without state is rule 1.
func (r *record) begin(now int64, p Params, a *Ask) Grant {
	switch leased := now < r.until; {
	case r.state == 0 && a.Later: // rule 1
		r.state, r.again, r.due = Failed, true, now
		r.move(now, a.Nonce, AsIs)
		r.last = VerbFail
		r.append(now, VerbFail, "", "")
		return AsIs
	case r.state == 0: // rule 1
		r.send(now, p, p.Lease, true)
		r.move(now, a.Nonce, Send)
		r.append(now, VerbSend, "", "")
		return Send
	case r.Fingerprint != a.Fingerprint && r.Fingerprint != [32]byte{} && a.Fingerprint != [32]byte{}: // rule 2
		return Conflict
	case r.nonce == a.Nonce: // rule 3
		if r.granted(now) {
			return r.grant
		}
	case leased || a.Later:
	case r.state == Failed && r.again && r.review == "": // rule 4
		r.send(now, p, p.Lease, true)
		r.move(now, a.Nonce, Send)
		r.append(now, VerbSend, "", "")
		return Send
	case !r.state.Ended() && r.review == "" && r.due != 0 && r.due <= now: // rule 5
		r.look(now, p, a.Nonce)
		return Look
	}
	return AsIs // rule 6
}

// look grants a due record to one who has to find out first.
func (r *record) look(now int64, p Params, nonce [16]byte) {
	if r.state == Started {
		r.state = Unknown
	}
	if r.fenced == 0 {
		r.fenced = now
	}
	r.until = now + p.Lease.Microseconds()
	r.move(now, nonce, Look)
}

// send notes that the operation is about to be sent. Clean: nothing that was sent
// before has happened.
func (r *record) send(now int64, p Params, lease time.Duration, clean bool) {
	if clean {
		r.first = now
	}
	r.state, r.again, r.fenced, r.expires = Started, false, 0, 0
	r.attempts++
	r.sent = now
	r.until = now + lease.Microseconds()
	r.due = r.until + p.Quiet.Microseconds()
}

// move gives the record a new token.
func (r *record) move(now int64, nonce [16]byte, g Grant) {
	r.token = max(r.token+1, uint64(now))
	r.nonce, r.grant, r.last, r.endedFromOutside = nonce, g, 0, false
}

// granted says that the last grant is still good.
func (r *record) granted(now int64) bool {
	return now < r.until && r.last == 0 && !r.endedFromOutside
}

// claimable is when the record can be claimed; zero: not as it is.
func (r *record) claimable() int64 {
	if r.due == 0 || r.review != "" || r.state == Confirmed || r.state == Failed && !r.again {
		return 0
	}
	return max(r.due, r.until)
}

// settle is the rules of [Store.Settle].
func (r *record) settle(now int64, p Params, s *Settlement) error {
	switch s.Verb {
	case VerbReceipt, VerbResolve:
		if r.outside == s.Nonce {
			return r.outsideErr
		}
		apply := r.receipt
		if s.Verb == VerbResolve {
			apply = r.resolve
		}
		err := apply(now, p, s)
		r.outside, r.outsideErr = s.Nonce, err
		return err
	}
	switch {
	case s.Token != r.token:
		return ErrStale
	case r.endedFromOutside:
		if s.Verb == VerbExtend || s.Verb == VerbConfirm && r.state == Confirmed || s.Verb == VerbFail && r.state == Failed {
			return nil
		}
		return &EndedError{State: r.state}
	case r.last != 0 && r.last == s.Verb: // applied before
		return nil
	case r.last != 0:
		return ErrStale
	}
	return r.owner(now, p, s)
}

// owner applies a settlement of who was granted the record.
func (r *record) owner(now int64, p Params, s *Settlement) error {
	switch s.Verb {
	case VerbSend:
		switch {
		case r.state == Started: // applied before
			return nil
		case now >= r.until || r.grant != Look:
			return ErrStale
		}
		r.send(now, p, s.Lease, r.state == Failed)
		r.append(now, s.Verb, s.By, s.Note)
		return nil
	case VerbExtend:
		r.until = now + s.Lease.Microseconds()
		if r.state == Started {
			r.due = r.until + p.Quiet.Microseconds()
		}
		return nil
	}
	before := r.state
	r.last, r.until = s.Verb, 0
	switch s.Verb {
	case VerbAccept:
		r.state, r.due, r.expires = Accepted, now+s.Delay.Microseconds(), 0
		if s.Result != nil {
			r.result = bytes.Clone(s.Result)
		}
	case VerbDoubt:
		r.state, r.due, r.expires = Unknown, now+s.Delay.Microseconds(), 0
	case VerbConfirm:
		r.end(now, p, Confirmed, s.Result, false)
	case VerbFail:
		r.end(now, p, Failed, s.Result, s.Again)
		if s.Again && s.Delay > 0 {
			r.due = now + s.Delay.Microseconds()
		}
	case VerbDefer:
		r.due = now + s.Delay.Microseconds()
		if s.Looked {
			r.looks++
		}
	case VerbAsk:
		r.review, r.due = s.Note, 0
	}
	if r.state == Started {
		r.state = Unknown
	}
	if r.state != before || s.Verb == VerbAsk {
		r.append(now, s.Verb, s.By, s.Note)
	}
	return nil
}

// receipt applies what the remote said by itself.
func (r *record) receipt(now int64, p Params, s *Settlement) error {
	switch {
	case r.state == s.State:
		if r.state == Failed {
			r.again, r.due = false, 0
			r.take()
			if r.expires == 0 { // it was made with Later
				r.expires = now + p.Retention.Microseconds()
			}
		}
		return nil
	case r.state.Ended():
		r.again, r.due, r.review = false, 0, Contradicting
		r.take()
		r.append(now, s.Verb, s.By, s.Note)
		return &EndedError{State: r.state}
	}
	r.take()
	r.end(now, p, s.State, s.Result, false)
	r.append(now, s.Verb, s.By, s.Note)
	return nil
}

// take ends the grant of whoever is at work on the record.
func (r *record) take() { r.endedFromOutside, r.until = r.last == 0, 0 }

// resolve applies what a person decided.
func (r *record) resolve(now int64, p Params, s *Settlement) error {
	switch {
	case r.token != s.Token:
		return ErrChanged
	case r.state.Ended() && r.review == "":
		return &EndedError{State: r.state}
	}
	r.end(now, p, s.State, s.Result, s.Again)
	if s.Again {
		r.due = now
	}
	r.move(now, s.Nonce, AsIs)
	r.last = s.Verb
	r.append(now, s.Verb, s.By, s.Note)
	return nil
}

func (r *record) end(now int64, p Params, s State, result []byte, again bool) {
	r.state, r.again, r.review, r.due, r.until = s, again, "", 0, 0
	if result != nil {
		r.result = bytes.Clone(result)
	}
	r.expires = now + p.Retention.Microseconds()
}

// append adds to the log, which is bounded.
func (r *record) append(now int64, v Verb, by, note string) {
	r.note = strings.Clone(note)
	if len(r.log) == MaxLog {
		r.log = slices.Delete(r.log, 4, 5)
		r.dropped++
	}
	r.log = append(r.log, Transition{At: time.UnixMicro(now), Verb: v, State: r.state, Token: r.token, By: strings.Clone(by), Note: r.note})
}

func (r *record) expired(now int64) bool {
	return r.expires != 0 && r.expires <= now && r.review == "" && r.due == 0
}

func (r *record) selected(q *Query) bool {
	open := !r.state.Ended() || r.review != "" || r.due != 0
	return r.Key > q.After && (q.Key == "" || q.Key == r.Key) && (q.Account == "" || q.Account == r.Account) &&
		(q.State == 0 || q.State == r.state) && (!q.Open || open) && (!q.Review || r.review != "")
}

func (r *record) count(c *Counts, now int64) {
	n := []*int{Started: &c.Started, Accepted: &c.Accepted, Confirmed: &c.Confirmed, Failed: &c.Failed, Unknown: &c.Unknown}
	*n[r.state]++
	if r.state == Failed && r.due != 0 {
		c.Waiting++
	}
	if r.review != "" {
		c.Review++
	}
	if r.attempts > 1 {
		c.Resent++
		if r.state == Confirmed {
			c.ResentConfirmed++
		}
	}
	if !r.state.Ended() || r.review != "" || r.due != 0 {
		c.Oldest = max(c.Oldest, micros(now-r.created))
	}
}

// entry is a copy of the record, for the caller to keep.
func (r *record) entry(now int64) Entry {
	e := Entry{
		Op: r.Op, Kind: r.kind, State: r.state, Token: r.token, Attempts: r.attempts, Looks: r.looks,
		Review: r.review, Again: r.again, Result: bytes.Clone(r.result), Note: r.note,
		Read: at(now), Created: at(r.created), First: at(r.first), Sent: at(r.sent), Fenced: at(r.fenced), Due: at(r.due),
		Expires: at(r.expires), Log: slices.Clone(r.log), Dropped: r.dropped,
	}
	e.Payload = bytes.Clone(r.Payload)
	if now < r.until {
		e.Left = micros(r.until - now)
	}
	return e
}

func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// Contradicting is the Review of an operation of which one receipt says that it happened
// and another that it did not.
const Contradicting = "contradicting receipts"
