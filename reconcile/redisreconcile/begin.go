package redisreconcile

import (
	"bytes"
	"context"
	_ "embed"
	"strconv"

	"github.com/pawl-go/pawl/reconcile"
)

//go:embed ledger.lua
var ledgerText string

//go:embed begin.lua
var beginText string

//go:embed settle.lua
var settleText string

var (
	beginScript  = script(ledgerText, beginText)
	settleScript = script(ledgerText, settleText)
)

// part returns the partition of an operation.
func (s *Store) part(kind, key string) int { return s.parts.Of(kind + "\x00" + key) }

// Begin implements [reconcile.Store]. It is one round trip for up to 512 operations and
// 8 MiB. A server whose memory is full is [reconcile.ErrFull] for what would be new, and
// nothing was stored of it.
func (s *Store) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	answers := make([]reconcile.Answer, len(asks))
	err := send(ctx, s, asks, batch[reconcile.Ask]{
		script: beginScript, keys: s.ledger, header: []any{p.Kind, span(p.Lease), span(p.Quiet)},
		part: func(a *reconcile.Ask) int { return s.part(p.Kind, a.Key) },
		size: func(a *reconcile.Ask) int { return len(a.Payload) },
		encode: func(args []any, a *reconcile.Ask) []any {
			return append(args, a.Key, hexadecimal(a.Nonce), flag(a.Later), a.Account, digest(a.Fingerprint), a.Payload)
		},
		read: func(reply []string, places []int) (int, error) {
			r := &reader{values: reply}
			now := r.int()
			for _, i := range places {
				if err := readAnswer(&answers[i], r, p.Kind, &asks[i], now); err != nil {
					return 0, err
				}
			}
			if r.bad || r.more() {
				return 0, errReply
			}
			return len(places), nil
		},
	})
	if err != nil {
		return nil, failed(ctx, "begin", err)
	}
	return answers, nil
}

func readAnswer(a *reconcile.Answer, r *reader, kind string, ask *reconcile.Ask, now int64) error {
	letter := r.text()
	e, found, err := r.entry(kind, ask.Key, now)
	switch {
	case letter == "x":
		return errRow
	case err != nil:
		return err
	case letter == "f":
		*a = reconcile.Answer{Entry: e, Err: reconcile.ErrFull}
		return nil
	case !found:
		return errReply
	case letter == "N" || letter == "R":
		e.Payload = bytes.Clone(ask.Payload)
		*a = reconcile.Answer{Grant: map[string]reconcile.Grant{"N": reconcile.Send, "R": reconcile.AsIs}[letter], Entry: e}
		return nil
	}
	n, err := strconv.ParseUint(letter, 10, 8)
	if g := reconcile.Grant(n); err == nil && g >= reconcile.AsIs && g <= reconcile.Look {
		*a = reconcile.Answer{Grant: g, Entry: e}
		return nil
	}
	return errReply
}

// Settle implements [reconcile.Store]. It is one round trip for up to 512 settlements and
// 8 MiB.
func (s *Store) Settle(ctx context.Context, p reconcile.Params, settlements []reconcile.Settlement) ([]error, error) {
	var errs []error
	refuse := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(settlements))
		}
		errs[i] = err
	}
	err := send(ctx, s, settlements, batch[reconcile.Settlement]{
		script: settleScript, keys: s.ledger, header: []any{p.Kind, span(p.Quiet), span(p.Retention)},
		part: func(t *reconcile.Settlement) int { return s.part(p.Kind, t.Key) },
		size: func(t *reconcile.Settlement) int { return len(t.Result) + len(t.Note) },
		encode: func(args []any, t *reconcile.Settlement) []any {
			flags := strconv.Itoa(int(t.State%10)) + flag(t.Again) + flag(t.Looked)
			return append(args, strconv.Itoa(int(t.Verb)), t.Key, strconv.FormatUint(t.Token, 10), hexadecimal(t.Nonce), flags,
				span(t.Delay), span(t.Lease), row(t.Result), t.By, t.Note)
		},
		read: letters(func(i int, letter byte) error {
			switch letter {
			case '.':
			case 's':
				refuse(i, reconcile.ErrStale)
			case 'n':
				refuse(i, reconcile.ErrNotFound)
			case 'c':
				refuse(i, reconcile.ErrChanged)
			case '3', '4':
				refuse(i, &reconcile.EndedError{State: reconcile.State(letter - '0')})
			case 'x':
				refuse(i, failed(ctx, "settle", errRow))
			default:
				return errReply
			}
			return nil
		}),
	})
	if err != nil {
		return nil, failed(ctx, "settle", err)
	}
	return errs, nil
}
