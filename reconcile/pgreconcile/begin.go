package pgreconcile

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

// maxAsks is how many asks one call carries.
const maxAsks = 1000

// begin sends asks in as few calls as it can. Each is a transaction of its own.
func (s *Store) begin(ctx context.Context, r pgcall.Route, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	answers := make([]reconcile.Answer, len(asks))
	for from := 0; from < len(asks); {
		rest := asks[from:]
		n := batch(len(rest), maxAsks, func(i int) int { return len(rest[i].Payload) })
		if err := s.beginSome(ctx, r, p, rest[:n], answers[from:from+n]); err != nil {
			return nil, err // what was granted is known by its nonce when it is sent again
		}
		from += n
	}
	return answers, nil
}

func (s *Store) beginSome(ctx context.Context, r pgcall.Route, p reconcile.Params, asks []reconcile.Ask, answers []reconcile.Answer) error {
	n := len(asks)
	places, _ := sorted(n, func(i int) string { return asks[i].Key })
	nonces, prints, payloads := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	keys, accounts, laters := make([]string, n), make([]string, n), make([]bool, n)
	for k, place := range places {
		a := &asks[place]
		laters[k], nonces[k], keys[k], accounts[k], payloads[k] = a.Later, a.Nonce[:], a.Key, a.Account, a.Payload
		if a.Fingerprint != [32]byte{} {
			prints[k] = a.Fingerprint[:]
		}
	}
	lease, quiet := p.Lease.Microseconds(), p.Quiet.Microseconds()
	w := newRow()
	return locking(r, func(mode int) error {
		now := int64(0)
		err := r.Call(ctx, func(rows pgx.Rows) error {
			if err := rows.Scan(w.dest[:]...); err != nil {
				return err
			}
			k := value(w.n)
			switch {
			case k == 0:
				now = value(w.now)
				for i := range asks {
					answers[i] = begun(p.Kind, &asks[i], now, lease, quiet)
				}
				return nil
			case now == 0 || k < 0 || int(k) > n:
				return errAnswers(int(k), n, "ask")
			}
			a := &answers[places[k-1]]
			if g := value(w.answer); g == locked {
				*a = reconcile.Answer{Entry: reconcile.Entry{Op: reconcile.Op{Key: asks[places[k-1]].Key}}, Err: fmt.Errorf("pgreconcile: begin: %w", ErrBusy)}
			} else {
				*a = reconcile.Answer{Grant: reconcile.Grant(g), Entry: w.entry(p.Kind)}
			}
			return nil
		}, s.sql.begin, mode, p.Kind, lease, quiet, laters, nonces, keys, accounts, prints, payloads)
		if err == nil && now == 0 {
			err = errNoAnswer
		}
		return err
	})
}

// begun is the answer of an operation that the server has recorded as new, at a time that
// is its token.
func begun(kind string, a *reconcile.Ask, now, lease, quiet int64) reconcile.Answer {
	at := time.UnixMicro(now)
	e := reconcile.Entry{Op: a.Op, Kind: kind, Token: uint64(now), Read: at, Created: at}
	e.Payload = bytes.Clone(a.Payload)
	log := reconcile.Transition{At: at, Token: uint64(now)}
	grant := reconcile.Send
	if a.Later {
		grant = reconcile.AsIs
		e.State, e.Again, e.Due, log.Verb = reconcile.Failed, true, at, reconcile.VerbFail
	} else {
		e.State, e.Attempts, e.First, e.Sent, log.Verb = reconcile.Started, 1, at, at, reconcile.VerbSend
		e.Due, e.Left = time.UnixMicro(now+lease+quiet), micros(lease)
	}
	log.State = e.State
	e.Log = []reconcile.Transition{log}
	return reconcile.Answer{Grant: grant, Entry: e}
}
