package redisdlq

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/pawl-go/pawl/dlq"
)

//go:embed put.lua
var putText string

//go:embed settle.lua
var settleText string

var (
	putScript    = script(putText)
	settleScript = script(settleText)
)

// Put implements [dlq.Store]. It is one round trip for up to 512 letters and 8 MiB. A
// server whose memory is full is [dlq.Full] for what would be added; for a duplicate
// with a failure it is an error.
func (s *Store) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	answers := make([]dlq.Answer, len(letters))
	err := send(ctx, s, letters, batch[dlq.Put]{
		step: "put", script: putScript, header: []any{decimal(int64(min(p.Capacity, maxNumber)))},
		stream: func(l *dlq.Put) string { return l.Stream },
		size:   func(l *dlq.Put) int { return len(l.Body) + len(l.Failure.Detail) },
		encode: func(args []any, l *dlq.Put) []any {
			return append(args, hexadecimal(l.Nonce), l.Stream, l.ID, l.Key, digest(l.Digest), flag(l.IfBlocked)+span(l.Delay),
				failureRow(&l.Failure), l.Body)
		},
		answer: func(i int, letter byte) error {
			switch letter {
			case 'a':
				answers[i] = dlq.Added
			case 'd':
				answers[i] = dlq.Duplicate
			case 'n':
				answers[i] = dlq.NotBlocked
			case 'f':
				answers[i] = dlq.Full
			case 'x':
				return errRow
			default:
				return errReply
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Settle implements [dlq.Store]. It is one round trip for up to 512 settlements.
func (s *Store) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	var errs refusals
	err := send(ctx, s, settlements, batch[dlq.Settlement]{
		step: "settle", script: settleScript, header: []any{span(p.Retention)},
		stream: func(t *dlq.Settlement) string { return t.Stream },
		size:   func(t *dlq.Settlement) int { return len(t.Failure.Detail) },
		encode: func(args []any, t *dlq.Settlement) []any {
			wait := t.Delay
			if t.Kind == dlq.KindExtend {
				wait = t.Lease
			}
			return append(args, strconv.Itoa(int(t.Kind)), t.Stream, t.Lane, strconv.FormatUint(t.Token, 10), digits(t.Seq),
				failureRow(&t.Failure), span(wait))
		},
		answer: func(i int, letter byte) error {
			switch letter {
			case '.':
			case 's':
				errs.add(i, len(settlements), dlq.ErrStale)
			case 'x':
				errs.add(i, len(settlements), failed(ctx, "settle", errRow))
			default:
				return errReply
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// refusals are the errors of a batch; nil while there is none.
type refusals []error

func (r *refusals) add(i, n int, err error) {
	if *r == nil {
		*r = make(refusals, n)
	}
	(*r)[i] = err
}
