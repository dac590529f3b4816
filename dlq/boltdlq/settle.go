package boltdlq

import (
	"github.com/pawl-go/pawl/dlq"
)

func (st *step) settle(p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	return each(settlements, func(s *dlq.Settlement) (refused, err error) {
		applied, err := st.settleOne(p, s)
		if !applied {
			return dlq.ErrStale, err
		}
		return nil, err
	})
}

// each applies the items of a batch and collects why some were refused.
func each[T any](items []T, apply func(*T) (refused, err error)) (errs []error, err error) {
	for i := range items {
		refused, err := apply(&items[i])
		if err != nil {
			return nil, err
		}
		if refused != nil {
			if errs == nil {
				errs = make([]error, len(items))
			}
			errs[i] = refused
		}
	}
	return errs, nil
}

// settleOne says whether a settlement was applied, now or before.
func (st *step) settleOne(p dlq.Params, s *dlq.Settlement) (applied bool, err error) {
	l, found, err := st.letter(s.Stream, s.Seq)
	if err != nil || s.Token == 0 {
		return false, err
	}
	found = found && l.lane() == s.Lane
	if found && l.settledBy == s.Token && l.settledAs == s.Kind {
		return true, nil // before
	}
	k, err := st.lane(s.Stream, s.Lane)
	if err != nil || k.token != s.Token {
		return false, err
	}
	if k.until == 0 { // released
		return s.Kind == dlq.KindRelease, nil
	}
	mine := found && l.begunBy == s.Token
	switch s.Kind {
	case dlq.KindExtend:
		k.until = st.now + s.Lease.Microseconds()
		return true, st.putLane(&k)
	case dlq.KindResolve, dlq.KindRetry, dlq.KindReview:
		if !mine {
			return false, nil
		}
	case dlq.KindRelease:
	default:
		return false, nil
	}
	if mine {
		if err := st.conclude(&l, s, p); err != nil {
			return false, err
		}
	}
	return true, st.release(&k, p)
}

// conclude writes what became of a letter that was begun.
func (st *step) conclude(l *letter, s *dlq.Settlement, p dlq.Params) (err error) {
	after, failed := *l, false
	after.begunBy, after.settledBy, after.settledAs = 0, s.Token, s.Kind
	switch s.Kind {
	case dlq.KindRelease:
		after.tries--
	case dlq.KindResolve:
		st.end(&after, dlq.StateResolved, p)
		err = st.outcome(&after, passed)
	case dlq.KindRetry:
		after.next, failed = st.now+s.Delay.Microseconds(), true
	case dlq.KindReview:
		after.state, after.next, failed = dlq.StateReview, 0, true
	}
	if failed {
		if err = st.fail(&after, &s.Failure); err == nil {
			err = st.outcome(&after, notPassed)
		}
	}
	if err != nil {
		return err
	}
	return st.rewrite(l, &after, failed)
}
