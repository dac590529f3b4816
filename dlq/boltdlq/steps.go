package boltdlq

import (
	"github.com/pawl-go/pawl/dlq"
)

// The steps of [dlq.Store] within a transaction, whosever it is. Their rules are those
// of its comments, in their order.

func (st *step) put(p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	answers := make([]dlq.Answer, len(letters))
	for i := range letters {
		var err error
		if answers[i], err = st.putOne(p, &letters[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (st *step) putOne(p dlq.Params, n *dlq.Put) (dlq.Answer, error) {
	l, found, err := st.newest(n.Stream, n.ID)
	if err != nil {
		return 0, err
	}
	if found && l.putBy == n.Nonce { // rule 1
		return l.putAs, nil
	}
	if found && l.state.Unresolved() { // rule 2
		return dlq.Duplicate, st.repeat(&l, n)
	}
	lane := lane{stream: n.Stream, name: dlq.LaneOf(n.ID, n.Key, false)}
	if n.IfBlocked && lane.first(st) == 0 { // rule 3
		return dlq.NotBlocked, nil
	}
	c, err := st.count(n.Stream)
	if err != nil {
		return 0, err
	}
	if c[dlq.StateWaiting]+c[dlq.StateReview] >= p.Capacity { // rule 4
		return dlq.Full, nil
	}
	return dlq.Added, st.add(n) // rule 5
}

// repeat notes that an unresolved letter was put again.
func (st *step) repeat(l *letter, n *dlq.Put) error {
	again := *l
	again.putBy, again.putAs = n.Nonce, dlq.Duplicate
	failed := n.Failure.Fingerprint != ""
	if failed {
		if err := st.fail(&again, &n.Failure); err != nil {
			return err
		}
	}
	taken := failed && l.begunBy != 0
	if taken { // its worker does not know of the failure
		again.begunBy, again.next = 0, st.now+n.Delay.Microseconds()
	}
	if err := st.rewrite(l, &again, failed); err != nil || !taken {
		return err
	}
	k, err := st.lane(l.stream, l.lane())
	if err != nil {
		return err
	}
	return st.putLane(&k)
}

// add stores a letter behind all others of its lane.
func (st *step) add(n *dlq.Put) error {
	seq, err := st.letters.NextSequence()
	if err != nil {
		return err
	}
	l := letter{
		stream: n.Stream, seq: seq, id: n.ID, key: n.Key, state: dlq.StateWaiting, digest: n.Digest,
		put: st.now, next: st.now + n.Delay.Microseconds(), putBy: n.Nonce, putAs: dlq.Added,
	}
	if err := st.write(st.bodies, seqKey(l.stream, seq), blob(n.Body)); err != nil {
		return err
	}
	if n.Failure.Fingerprint != "" {
		if err := st.fail(&l, &n.Failure); err != nil {
			return err
		}
	}
	if err := st.rewrite(nil, &l, false); err != nil {
		return err
	}
	return st.enter(&l)
}

func (st *step) claim(a *dlq.Ask) (c dlq.Claimed, err error) {
	if c.Claims, err = st.claimedBefore(a); err != nil || len(c.Claims) > 0 {
		return c, err
	}
	size := 0
	for len(c.Claims) < a.N && (size < a.Bytes || len(c.Claims) == 0) {
		name, at, found := st.nextDue(a.Stream)
		if !found || at > st.now {
			if found {
				c.Next = micros(at - st.now)
			}
			return c, nil
		}
		k, err := st.lane(a.Stream, name)
		if err != nil {
			return dlq.Claimed{}, err
		}
		l, err := st.grant(&k, a)
		if err != nil {
			return dlq.Claimed{}, err
		}
		claim, err := st.owned(&k, &l)
		if err != nil {
			return dlq.Claimed{}, err
		}
		size += len(claim.Record.Body) + len(claim.Record.Original)
		c.Claims = append(c.Claims, claim)
	}
	return c, nil
}

// claimedBefore is what an earlier sending of the ask has claimed.
func (st *step) claimedBefore(a *dlq.Ask) (claims []dlq.Claim, err error) {
	for _, name := range st.claimedBy(a.Nonce, a.Stream) {
		k, err := st.lane(a.Stream, name)
		if err != nil {
			return nil, err
		}
		seq := k.first(st)
		if st.now >= k.until || seq == 0 {
			continue
		}
		l, err := st.listed(k.stream, seq)
		if err != nil {
			return nil, err
		}
		if l.begunBy != k.token {
			continue
		}
		c, err := st.owned(&k, &l)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}
