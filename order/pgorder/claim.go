package pgorder

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

func (s *Store) claim(ctx context.Context, r pgcall.Route, p order.Params, a order.Ask) (order.Claimed, error) {
	var claimed order.Claimed
	at := map[string]int{}
	claim := func(key string) *order.Claim {
		i, ok := at[key]
		if !ok {
			i = len(claimed.Claims)
			at[key] = i
			claimed.Claims = append(claimed.Claims, order.Claim{Key: key})
		}
		return &claimed.Claims[i]
	}
	late := a.Messages
	if a.Late > 0 {
		late = min(late, a.Late)
	}
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var what int16
		var key, id, text *string
		var token, left, epoch, at, stop, age int64
		var tries int
		var flag, old bool
		var payload, context []byte
		err := rows.Scan(&what, &key, &token, &left, &epoch, &at, &stop, &tries, &age,
			&flag, &old, &id, &payload, &context, &text)
		if err != nil {
			return err
		}
		if what == 5 {
			claimed.Next = micros(left)
			return nil
		}
		c := claim(*key)
		position := order.Position{Epoch: uint64(epoch), Number: number(at)}
		switch what {
		case 1:
			c.Token, c.Left, c.Epoch, c.More = uint64(token), micros(left), uint64(epoch), flag
		case 2, 3:
			m := order.Message{Key: *key, Position: position, Payload: payload, Context: context,
				Attempt: tries, Age: micros(age), Late: flag}
			if id != nil {
				m.ID = *id
			}
			if text != nil {
				m.Error = *text
			}
			if what == 2 {
				c.Run = append(c.Run, m)
			} else {
				c.Late = append(c.Late, m)
			}
		case 4:
			c.Gap = &order.Gap{Key: *key, Epoch: uint64(epoch), From: number(at), To: number(stop), Age: micros(age),
				Since: micros(left), Open: true, Old: old, Alerted: flag, Asked: tries}
		}
		return nil
	}, s.sql.claim, p.Scope, a.Nonce[:], a.Keys, a.Messages, late, int64(a.Bytes), a.Lease.Microseconds())
	return claimed, err
}
