package redisinbox

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed settle.lua
var settleText string

var settleScript = script(settleText)

// Settle implements [inbox.Store]. It is one round trip for up to 512 settlements,
// with a script call for each partition that they touch.
func (s *Store) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "settle", err)
	}
	errs := make([]error, len(settlements))
	wrong := false
	for from := 0; from < len(settlements); from += maxBatch {
		items := settlements[from:min(from+maxBatch, len(settlements))]
		err := s.run(ctx, settleScript, []any{micros(p.Retention), micros(p.Keep), micros(p.Bodies)}, upTo(len(items)),
			func(i int) int { return s.parts.Of(items[i].Key) },
			func(args []any, i int) []any {
				one := &items[i]
				wait := one.Delay
				if one.Kind == inbox.KindExtend {
					wait = one.Lease
				}
				return append(args, kindLetter(one.Kind), one.Stream+"\x00"+one.Key, strconv.FormatUint(one.Token, 10), one.ID,
					failedRow(one.Error, one.Failures), micros(wait), numberIn(s.parts.Of(one.Key), one.Seq))
			},
			func(_ int, places []int, reply []string) error {
				if len(reply) != 1 || len(reply[0]) != len(places) {
					return errReply
				}
				for n, i := range places {
					switch reply[0][n] {
					case '.':
						continue
					case 's':
						errs[from+i] = inbox.ErrStale
					case 'x':
						errs[from+i] = failed(ctx, "settle", errRow)
					default:
						return errReply
					}
					wrong = true
				}
				return nil
			})
		if err != nil {
			return nil, failed(ctx, "settle", err)
		}
	}
	if !wrong {
		return nil, nil
	}
	return errs, nil
}

// numberIn is what settle.lua calls a record that has to be in a partition: empty for
// any, and no record's number for one of another partition.
func numberIn(part int, seq uint64) string {
	switch {
	case seq == 0:
		return ""
	case seq&(1<<partBits-1) != uint64(part):
		return "-"
	}
	return digits(seq >> partBits)
}

// kindLetter is what settle.lua calls a kind: for an end, the state that it leads to.
func kindLetter(k inbox.Kind) string {
	switch k {
	case inbox.KindBegin:
		return "b"
	case inbox.KindRetry:
		return "r"
	case inbox.KindRelease:
		return "l"
	case inbox.KindExtend:
		return "e"
	case inbox.KindDone:
		return digit(inbox.StateDone)
	case inbox.KindDead:
		return digit(inbox.StateDead)
	case inbox.KindQuarantine:
		return digit(inbox.StateQuarantined)
	case inbox.KindUnknown:
		return digit(inbox.StateUnknown)
	}
	return "?"
}

func digit(s inbox.State) string { return strconv.Itoa(int(s)) }
